"""Figures as plain values: what is a regression, what the measurement cannot tell, and what does not compare."""

from __future__ import annotations

import dataclasses
import math
import random
from typing import Any

import pytest

from linnet.registry.bench import (
    BenchReport,
    Environment,
    Figure,
    Measured,
    Protocol,
    Results,
    Score,
    UsedWeights,
    WeightFile,
)
from linnet.registry.gate_figures import (
    LIMITS,
    Windows,
    comparable,
    judge_beside,
    judge_recorded,
    judge_scores,
    judge_windows,
    limits,
)


def windows(sums: list[float], tokens: int = 100, text: str = "t") -> Windows:
    return Windows(tuple(sums), (tokens,) * len(sums), text)


def drawn(count: int = 64, seed: int = 0) -> list[float]:
    """Windows of a text: some hard, some easy."""
    generator = random.Random(seed)
    return [generator.gauss(300, 60) for _ in range(count)]


def test_limits_are_the_cards_or_the_defaults() -> None:
    assert limits({}) == LIMITS
    assert limits({"gate": {"perplexity_increase": 0.5, "allow": ["x"]}}) == {**LIMITS, "perplexity_increase": 0.5}


def test_a_rise_is_seen_far_below_what_the_text_varies_by() -> None:
    before = drawn()
    generator = random.Random(1)
    after = [value + 2 + generator.gauss(0, 1) for value in before]
    judged, findings = judge_windows(windows(before), windows(after), LIMITS, "0.1.0")
    assert judged is not None
    # The windows themselves scatter by a fifth, so their own standard errors would hide this.
    assert (judged.verdict, judged.basis, judged.against) == ("regression", "windows", "0.1.0")
    assert judged.worse == pytest.approx(math.exp(0.02) - 1, abs=0.005)
    assert judged.error is not None
    assert 0.0005 < judged.error < 0.003
    (finding,) = findings
    assert (finding.kind, finding.severity) == ("perplexity-rose", "regression")
    assert finding.message.startswith(f"The perplexity is {windows(after).perplexity:.3f} instead of ")
    assert " over the same 64 windows: +" in finding.message
    assert finding.message.endswith("and 1.0% is allowed.")


def test_what_the_error_leaves_open_is_told_and_no_regression() -> None:
    before = drawn()
    after = [value + 2 + (20 if index % 2 else -20) for index, value in enumerate(before)]
    judged, (finding,) = judge_windows(windows(before), windows(after), LIMITS, "0.1.0")
    assert judged is not None
    assert judged.verdict == "unclear"
    assert judged.error is not None
    assert judged.worse > 0.01 > judged.worse - 2 * judged.error
    assert (finding.kind, finding.severity) == ("perplexity-unclear", "notice")


def test_a_rise_within_the_limit_and_a_fall_are_fine() -> None:
    before = drawn()
    for step in (0.5, -30.0):
        judged, findings = judge_windows(windows(before), windows([b + step for b in before]), LIMITS, "0.1.0")
        assert judged is not None
        assert (judged.verdict, findings) == ("fine", [])
        assert judged.worse == pytest.approx(math.exp(step / 100) - 1)
        assert judged.error == pytest.approx(0, abs=1e-9)


def test_one_window_has_no_error_and_is_judged_alone() -> None:
    judged, (finding,) = judge_windows(windows([300.0]), windows([305.0]), LIMITS, "0.1.0")
    assert judged is not None
    assert (judged.verdict, judged.error) == ("regression", None)
    assert "over the same 1 window: +5.1%, and" in finding.message


def test_the_limit_is_the_cards() -> None:
    allowed = limits({"gate": {"perplexity_increase": 0.06}})
    judged, findings = judge_windows(windows([300.0] * 8), windows([305.0] * 8), allowed, "1")
    assert judged is not None
    assert (judged.verdict, judged.limit, findings) == ("fine", 0.06, [])


@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e6])
def test_what_is_no_number_fails(bad: float) -> None:
    judged, (finding,) = judge_windows(windows([300.0, 310.0]), windows([300.0, bad]), LIMITS, "0.1.0")
    assert judged is None
    assert (finding.kind, finding.severity) == ("perplexity-not-finite", "regression")


def test_a_published_version_without_a_perplexity_fails_nobody() -> None:
    judged, (finding,) = judge_windows(windows([math.nan]), windows([300.0]), LIMITS, "0.1.0")
    assert judged is None
    assert (finding.kind, finding.severity) == ("not-measured", "notice")
    assert finding.message == f"0.1.0 has no perplexity, and this has {math.exp(3):.3f}."


def test_other_tokens_do_not_compare() -> None:
    judged, (finding,) = judge_windows(windows([300.0]), windows([300.0, 2.0], text="u"), LIMITS, "0.1.0")
    assert judged is None
    assert (finding.kind, finding.severity) == ("tokens-changed", "regression")
    assert finding.message == "The text has 200 tokens and had 100: perplexities do not compare."


# Reports


def score(nll: float, error: float | None = 0.01, **protocol: Any) -> Score:
    known = {"text": {"sha256": "a"}, "window": 64, "stride": 32, "limit_tokens": None, "numerics": "fast"}
    tokenizer = {"sha256": protocol.pop("tokenizer", "b")}
    perplexity = math.exp(nll)
    spread = perplexity * error if error is not None else None
    return Score(perplexity, spread, nll, 1000, 10, {**known, "tokenizer": tokenizer, **protocol})


def test_scores_of_one_protocol_are_judged_with_both_errors() -> None:
    judged, (finding,) = judge_scores(score(3.0), score(3.05), LIMITS, "0.1.0")
    assert judged is not None
    assert (judged.verdict, judged.basis) == ("regression", "scores")
    assert judged.error == pytest.approx(math.exp(0.05) * math.hypot(0.01, 0.01))
    assert finding.kind == "perplexity-rose"
    judged, (finding,) = judge_scores(score(3.0), score(3.02), LIMITS, "0.1.0")
    assert judged is not None
    assert (judged.verdict, finding.kind) == ("unclear", "perplexity-unclear")
    judged, findings = judge_scores(score(3.0, None), score(3.009, None), LIMITS, "0.1.0")
    assert judged is not None
    assert (judged.verdict, judged.error, findings) == ("fine", None, [])


@pytest.mark.parametrize(
    ("changed", "named"),
    [({"text": {"sha256": "c"}}, "text"), ({"window": 128}, "window"), ({"tokenizer": "d"}, "tokenizer")],
)
def test_scores_of_another_protocol_are_not_compared(changed: dict[str, Any], named: str) -> None:
    judged, (finding,) = judge_scores(score(3.0), score(4.0, **changed), LIMITS, "0.1.0")
    assert judged is None
    assert (finding.kind, finding.severity) == ("not-measured", "notice")
    assert finding.message == f"Perplexity was not compared: that of 0.1.0 was measured with another {named}."


def test_a_report_without_a_score() -> None:
    assert judge_scores(None, score(3.0), LIMITS, "0.1.0")[1][0].message.endswith("the report of 0.1.0 has none.")
    assert judge_scores(score(3.0), None, LIMITS, "0.1.0")[1][0].message.endswith(": the report has none.")


ENVIRONMENT = Environment("0.1.0", "3.11.7", "2.13.0", None, "Linux", "x86_64", "cpu", "Some CPU", 2, 1 << 34)


def measured(
    name: str,
    decode: tuple[float, ...],
    prompt: tuple[float, ...],
    memory: tuple[float, ...] | None,
    digest: str = "0" * 64,
) -> Measured:
    figures = [Figure((1.0,)), Figure((2.0,)), Figure(prompt), Figure(decode)]
    weights = UsedWeights(True, None, None, None, (WeightFile("model.safetensors", 1, "1" * 64),))
    return Measured(
        name,
        "0.1.0",
        None,
        None,
        digest,
        {},
        True,
        None,
        weights,
        Results(*figures, Figure(memory) if memory else None),
    )


def report(own: Measured, base: Measured | None) -> BenchReport:
    return BenchReport(
        "nest bench", "2026-11-30T00:00:00Z", Protocol(128, 64, 3, 0, "fast", None), ENVIRONMENT, own, base
    )


BASE = measured("base", (50.0, 51.0, 49.0), (0.10, 0.11, 0.09), (1e9, 1e9, 1e9))
GIB = 2.0**30


def test_slower_than_the_published_version_in_the_same_run() -> None:
    own = measured("tiny", (40.0, 41.0, 39.0), (0.13, 0.14, 0.12), (1.3 * GIB,))
    base = measured("tiny", (50.0, 51.0, 49.0), (0.10, 0.11, 0.09), (GIB,))
    judged, findings = judge_beside(report(own, base), LIMITS, "0.1.0")
    assert [(item.quantity, item.verdict, item.basis) for item in judged] == [
        ("decode", "regression", "beside"),
        ("prompt", "regression", "beside"),
        ("memory", "regression", "beside"),
    ]
    assert [item.worse for item in judged] == pytest.approx([0.2, 1 - 0.1 / 0.13, 0.3])
    assert [(finding.kind, finding.severity) for finding in findings] == [
        ("decode-slower", "regression"),
        ("prompt-slower", "regression"),
        ("memory-grew", "regression"),
    ]
    assert [finding.message for finding in findings] == [
        "Decoding: 40.0 tokens/s against 50.0 tokens/s of 0.1.0 in the same run: 20.0% slower, and 10.0% is allowed.",
        "A prompt: 130 ms against 100 ms of 0.1.0 in the same run: 23.1% slower, and 10.0% is allowed.",
        "The peak of memory: 1.3 GiB against 1 GiB of 0.1.0 in the same run: 30.0% more, and 10.0% is allowed.",
    ]
    assert findings[0].help.endswith("or raise [gate] decode_ratio_drop if it is meant.")


def test_one_bad_run_of_several_is_no_regression() -> None:
    # The medians say a fifth, the best runs nothing.
    own = measured("tiny", (40.0, 40.0, 50.0), (0.1,), (1e9,))
    base = measured("tiny", (50.0, 50.0, 50.0), (0.1,), (1e9,))
    judged, (finding,) = judge_beside(report(own, base), LIMITS, "0.1.0")
    assert judged[0].verdict == "unclear"
    assert (finding.kind, finding.severity) == ("speed-unclear", "notice")
    assert finding.message.endswith("20.0% slower, and 10.0% is allowed. By the best run of each it is 0.0%.")


def test_as_fast_as_before_is_fine() -> None:
    judged, findings = judge_beside(report(BASE, BASE), LIMITS, "0.1.0")
    assert {item.verdict for item in judged} == {"fine"}
    assert findings == []


def test_a_system_that_does_not_tell_memory() -> None:
    own = measured("tiny", (50.0,), (0.09,), None)
    judged, (finding,) = judge_beside(report(own, BASE), LIMITS, "0.1.0")
    assert [item.quantity for item in judged] == ["decode", "prompt"]
    assert finding.message == "Memory was not compared: this system does not tell it."


def test_ratios_to_the_baseline_are_compared_not_speeds() -> None:
    then = report(measured("tiny", (70.0,), (0.08,), (5e8,)), BASE)
    # The machine is half as fast today, and so is the baseline.
    slow_base = measured("base", (25.0,), (0.20,), (1e9,))
    now = report(measured("tiny", (35.0,), (0.16,), (5e8,)), slow_base)
    assert comparable(then, now)
    judged, findings = judge_recorded(now, then, LIMITS, "0.1.0")
    assert findings == []
    assert judged[0].basis == "recorded"
    assert (judged[0].before, judged[0].after) == pytest.approx((1.4, 1.4))
    now = report(measured("tiny", (26.0,), (0.16,), (5e8,)), slow_base)
    judged, (finding,) = judge_recorded(now, then, LIMITS, "0.1.0")
    assert finding.message == (
        "Decoding: 1.04 times base in the same run, and 0.1.0 had 1.40 times: 25.7% slower, and 10.0% is allowed."
    )
    assert judged[0].against == "0.1.0, base"


def test_what_compares() -> None:
    own = measured("tiny", (70.0,), (0.08,), (5e8,))
    then = report(own, BASE)
    assert comparable(then, then)
    assert not comparable(None, then)
    assert not comparable(report(own, None), then)
    assert not comparable(then, report(own, None))
    assert not comparable(then, report(own, dataclasses.replace(BASE, digest="2" * 64)))
    assert not comparable(then, report(own, dataclasses.replace(BASE, compile=False)))
    for name, value in (("device_name", "Another"), ("threads", 8), ("torch", "3.0")):
        other = dataclasses.replace(ENVIRONMENT, **{name: value})
        assert not comparable(then, dataclasses.replace(then, environment=other))
    other_protocol = dataclasses.replace(then.protocol, prompt=256)
    assert not comparable(then, dataclasses.replace(then, protocol=other_protocol))


def test_judged_is_json() -> None:
    judged, _ = judge_windows(windows([1.0]), windows([700.0], tokens=1), LIMITS, "0.1.0")
    assert judged is not None
    assert judged.to_dict()["worse"] is None or math.isfinite(judged.to_dict()["worse"])
