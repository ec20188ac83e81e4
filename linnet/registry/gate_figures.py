"""The gate's measured part: perplexity, speed and memory of a working package against its published version.

Figures come as plain values, whoever measured them. Speeds and memory are never compared as such: they are ratios to
what was measured in turn with the package, which is the published version itself, or the baseline of the card, whose
ratio the published version has on record.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from linnet.language.words import counted
from linnet.registry.bench import BenchReport, Figure, Measured, Score
from linnet.registry.bench_text import cell
from linnet.registry.gate_findings import NOTICE, REGRESSION, GateFinding, Place
from linnet.registry.package import CARD_NAME

# What a new version may change for the worse where the card does not say, as fractions.
LIMITS: Mapping[str, float] = {
    "perplexity_increase": 0.01,
    "decode_ratio_drop": 0.1,
    "prompt_ratio_drop": 0.1,
    "memory_increase": 0.1,
}
# How many standard errors beyond the limit a perplexity must lie to be a regression: by chance one in forty does.
ERRORS = 2.0
FINE, UNCLEAR = "fine", "unclear"
Found = tuple["Judged | None", list[GateFinding]]


@dataclass(frozen=True, slots=True)
class Quantity:
    """What is judged: its key in `[gate]`, its field in `Results`, which way is better, and its words."""

    limit: str
    field: str
    more_is_better: bool
    worse: str
    kind: str
    words: str
    help: str


_SLOWER = "Measure again with more --runs on a quiet machine; `linnet explain` says which kernels run"
QUANTITIES: Mapping[str, Quantity] = {
    "decode": Quantity(
        "decode_ratio_drop", "decode_tokens_per_second", True, "slower", "decode-slower", "Decoding", _SLOWER
    ),
    "prompt": Quantity(
        "prompt_ratio_drop", "time_to_first_token_seconds", False, "slower", "prompt-slower", "A prompt", _SLOWER
    ),
    "memory": Quantity(
        "memory_increase", "peak_memory_bytes", False, "more", "memory-grew", "The peak of memory", "Find what holds it"
    ),
}


@dataclass(frozen=True, slots=True)
class Judged:
    """A quantity and its verdict: `fine`, `regression`, or `unclear` where the measurement cannot tell.

    `before` and `after` are what was measured, in the unit of the quantity (perplexity; decode tokens/s; prompt
    seconds; memory bytes), or, where `basis` is `recorded`, ratios to the baseline. `worse` is by how much `after` is
    worse, as a fraction (below 0 where it is better), `error` its standard error, None where runs are all there is.
    `basis` is `windows` (the same windows, pair by pair), `scores` (the figures of two reports), `beside` (measured in
    turn), or `recorded`; `against` names the version, and the baseline where there is one.
    """

    quantity: str
    before: float
    after: float
    worse: float
    error: float | None
    limit: float
    verdict: str
    basis: str
    against: str

    def to_dict(self) -> dict[str, Any]:
        """JSON-able; a number that no JSON holds is null."""
        values = dataclasses.asdict(self)
        return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in values.items()}


@dataclass(frozen=True, slots=True)
class Windows:
    """A text scored window by window: the summed negative log-likelihood of each, in nats, and its scored tokens.

    `text` is a digest of the ids of all windows: equal where two models were asked the same.
    """

    sums: tuple[float, ...]
    tokens: tuple[int, ...]
    text: str

    @property
    def nll(self) -> float:
        return math.fsum(self.sums) / sum(self.tokens)

    @property
    def perplexity(self) -> float:
        return _exp(self.nll)

    @property
    def finite(self) -> bool:
        return math.isfinite(self.perplexity)


def limits(card: Mapping[str, Any]) -> dict[str, float]:
    """What the `[gate]` of a card, as `Card.to_dict()` has it, allows; the defaults where it does not say."""
    given = card.get("gate", {})
    return {name: float(given.get(name, default)) for name, default in LIMITS.items()}


# Perplexity


def judge_windows(old: Windows, new: Windows, allowed: Mapping[str, float], version: str) -> Found:
    """The perplexity over the same windows, pair by pair.

    What makes a window hard makes it hard for both, so their difference has a far smaller standard error than either
    perplexity: that of a ratio estimator with windows as the sample (Cochran, "Sampling Techniques", 1977, section
    2.11).
    """
    if not new.finite:
        return None, [not_finite(f"{new.nll:.1f} nats a token are more than a number holds")]
    if new.text != old.text:
        message = f"The text has {sum(new.tokens)} tokens and had {sum(old.tokens)}: perplexities do not compare."
        if sum(new.tokens) == sum(old.tokens):
            message = "The text has other tokens than before: perplexities do not compare."
        help = "Restore the tokenizer; if it is meant, look at both with nest eval, then allow it."
        return None, [GateFinding("tokens-changed", REGRESSION, "", message, help, Place(CARD_NAME))]
    if not old.finite:
        message = f"{version} has no perplexity, and this has {new.perplexity:.3f}."
        return None, [GateFinding("not-measured", NOTICE, "perplexity", message, "")]
    tokens = sum(new.tokens)
    pairs = [after - before for before, after in zip(old.sums, new.sums, strict=True)]
    mean = math.fsum(pairs) / tokens
    error = None
    if len(pairs) > 1:
        spread = math.fsum((pair - mean * count) ** 2 for pair, count in zip(pairs, new.tokens, strict=True))
        error = math.sqrt(len(pairs) / (len(pairs) - 1) * spread) / tokens
    over = f" over the same {counted(len(pairs), 'window')}"
    return _perplexity(old.perplexity, new.perplexity, mean, error, allowed, version, "windows", over)


def judge_scores(old: Score | None, new: Score | None, allowed: Mapping[str, float], version: str) -> Found:
    """The perplexities of two reports, as far as they were measured by one protocol."""
    if new is None or old is None:
        whose = "the report" if new is None else f"the report of {version}"
        return None, [_not_measured("perplexity", f"{whose} has none")]
    keys = ("text", "window", "stride", "limit_tokens", "numerics")
    other = [key for key in keys if old.protocol.get(key) != new.protocol.get(key)]
    digests = [score.protocol.get("tokenizer", {}).get("sha256") for score in (old, new)]
    other += ["tokenizer"] if digests[0] != digests[1] else []
    if other:
        return None, [_not_measured("perplexity", f"that of {version} was measured with another {', '.join(other)}")]
    errors = [s.standard_error / s.perplexity if s.standard_error is not None else None for s in (old, new)]
    error = math.hypot(*(e for e in errors if e is not None)) if None not in errors else None
    mean = new.nll - old.nll
    return _perplexity(old.perplexity, new.perplexity, mean, error, allowed, version, "scores", "")


def not_finite(reason: str) -> GateFinding:
    """The finding for a model whose logits are no numbers, or give no perplexity; `reason` as a clause."""
    help = "Compare the weights and the bindings with those of the published version; nest check --smoke full runs it."
    return GateFinding("perplexity-not-finite", REGRESSION, "", f"There is no perplexity: {reason}.", help)


def _perplexity(
    before: float,
    after: float,
    mean: float,
    error: float | None,
    allowed: Mapping[str, float],
    version: str,
    basis: str,
    over: str,
) -> Found:
    """`mean` is the difference of the mean negative log-likelihoods, `error` its standard error."""
    most = allowed["perplexity_increase"]
    rise = _exp(mean) - 1
    within = _exp(mean - ERRORS * (error or 0.0)) - 1
    verdict = REGRESSION if within > most else UNCLEAR if rise > most else FINE
    margin = (1 + rise) * error if error is not None else None
    judged = Judged("perplexity", before, after, rise, margin, most, verdict, basis, version)
    if verdict == FINE:
        return judged, []
    shown = f"{rise:+.1%}" + (f" ± {margin:.1%}" if margin is not None else "")
    message = f"The perplexity is {after:.3f} instead of {before:.3f}{over}: {shown}, and {most:.1%} is allowed."
    if verdict == UNCLEAR:
        help = "Measure on more of the text (--limit-tokens) to tell."
        return judged, [GateFinding("perplexity-unclear", NOTICE, "", message, help)]
    help = "Compare weights and source with the published version, or raise [gate] perplexity_increase if it is meant."
    return judged, [GateFinding("perplexity-rose", REGRESSION, "", message, help)]


# Speed and memory


def comparable(then: BenchReport | None, now: BenchReport) -> bool:
    """Whether ratios of the two reports are of one baseline, measured in one way on one kind of machine."""
    if then is None or then.baseline is None or now.baseline is None:
        return False
    return same_conditions(then, now) and _subject(then.baseline) == _subject(now.baseline)


def same_conditions(then: BenchReport, now: BenchReport) -> bool:
    """Whether two reports were measured in one way on one kind of machine."""

    def conditions(report: BenchReport) -> tuple[Any, ...]:
        protocol, environment = report.protocol, report.environment
        return (
            *(protocol.prompt, protocol.new, protocol.numerics, protocol.dtype, protocol.backend),
            *(environment.torch, environment.mlx),
            *(environment.device, environment.device_name, environment.machine, environment.threads),
        )

    return conditions(then) == conditions(now)


def judge_beside(
    now: BenchReport, allowed: Mapping[str, float], version: str
) -> tuple[list[Judged], list[GateFinding]]:
    """Speed and memory of a report whose baseline is the published `version`."""
    return _judge_all(now, None, allowed, version)


def judge_recorded(
    now: BenchReport, then: BenchReport, allowed: Mapping[str, float], version: str
) -> tuple[list[Judged], list[GateFinding]]:
    """Speed and memory by the ratio to the baseline, now and in the report of the published `version`.

    The two reports are `comparable`.
    """
    return _judge_all(now, then, allowed, version)


def _judge_all(
    now: BenchReport, then: BenchReport | None, allowed: Mapping[str, float], version: str
) -> tuple[list[Judged], list[GateFinding]]:
    judged, findings = [], []
    for name, quantity in QUANTITIES.items():
        found, more = _judge(name, quantity, now, then, allowed[quantity.limit], version)
        judged += [found] if found is not None else []
        findings += more
    return judged, findings


def _judge(
    name: str, quantity: Quantity, now: BenchReport, then: BenchReport | None, most: float, version: str
) -> Found:
    """Worse beyond the limit by the medians and by the best runs, since what disturbs a run only ever slows it."""
    assert now.baseline is not None
    ratios = [_ratios(quantity, report) for report in (now, then) if report is not None]
    if None in ratios:
        return None, [_not_measured(name, "this system does not tell it")]
    (median, best), (was_median, was_best) = (*(r for r in ratios if r is not None), (1.0, 1.0))[:2]
    worse, worse_best = (_worse(quantity, *pair) for pair in ((median, was_median), (best, was_best)))
    beyond = [value > most for value in (worse, worse_best)]
    verdict = REGRESSION if all(beyond) else UNCLEAR if any(beyond) else FINE
    baseline = now.baseline.name
    own, base = (_median(getattr(item.results, quantity.field)) for item in (now.package, now.baseline))
    if then is None:
        judged = Judged(name, base, own, worse, None, most, verdict, "beside", version)
        figures = f"{cell(now.package, quantity.field).value} against {cell(now.baseline, quantity.field).value}"
        told = f"{figures} of {version} in the same run"
    else:
        judged = Judged(name, was_median, median, worse, None, most, verdict, "recorded", f"{version}, {baseline}")
        told = f"{median:.2f} times {baseline} in the same run, and {version} had {was_median:.2f} times"
    message = f"{quantity.words}: {told}: {worse:.1%} {quantity.worse}, and {most:.1%} is allowed."
    if verdict == FINE:
        return judged, []
    if verdict == UNCLEAR:
        message += f" By the best run of each it is {worse_best:.1%}."
        return judged, [GateFinding("speed-unclear", NOTICE, name, message, f"{quantity.help}.")]
    help = f"{quantity.help}, or raise [gate] {quantity.limit} if it is meant."
    return judged, [GateFinding(quantity.kind, REGRESSION, "", message, help)]


def _ratios(quantity: Quantity, report: BenchReport) -> tuple[float, float] | None:
    """The package over its baseline: of the medians, and of the best runs; None where either was not measured."""
    assert report.baseline is not None
    own, base = (getattr(item.results, quantity.field) for item in (report.package, report.baseline))
    if own is None or base is None:
        return None
    best = (own.high / base.high) if quantity.more_is_better else (own.low / base.low)
    return own.median / base.median, best


def _worse(quantity: Quantity, now: float, then: float) -> float:
    """By what fraction `now` is worse than `then`: speed lost, or memory won.

    A prompt that takes twice as long has lost half of its speed.
    """
    if quantity.more_is_better:
        return 1 - now / then
    return now / then - 1 if quantity.limit == "memory_increase" else 1 - then / now


def _median(figure: Figure) -> float:
    return figure.median


def _subject(item: Measured) -> tuple[Any, ...]:
    return item.name, item.digest, tuple(sorted(file.sha256 for file in item.weights.files)), item.compile, item.fp8


def _not_measured(name: str, reason: str) -> GateFinding:
    return GateFinding("not-measured", NOTICE, name, f"{name.capitalize()} was not compared: {reason}.", "")


def _exp(value: float) -> float:
    return math.exp(value) if value < 709.0 else math.inf if value == value else math.nan
