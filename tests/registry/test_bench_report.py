"""`bench.json`: read as it was written, by the schema that the guide gives, and refused with every fault named."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from bench_reports import measured, report
from hypothesis import given
from hypothesis import strategies as st
from tiny_package import MakePackage

from linnet.registry.bench import (
    BenchReport,
    BenchReportError,
    package_digest,
    read_bench,
)
from linnet.registry.bench_text import cell, columns, conditions, weights_note
from linnet.registry.check import check_package


def document() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(report().to_json())
    return found


@pytest.fixture(scope="module")
def schema(root: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((root / "docs" / "schemas" / "bench.v1.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(found)
    return found


@pytest.mark.parametrize("changes", [{}, {"baseline": None}, {"package": measured("tiny", scored=False, given="mine")}])
def test_what_is_written_is_read_and_fits_the_schema(schema: dict[str, Any], changes: dict[str, Any]) -> None:
    made = report(**changes)
    text = made.to_json()
    jsonschema.validate(json.loads(text), schema)
    assert BenchReport.from_json(text) == made
    assert BenchReport.from_json(text.encode()).to_json() == text


def test_reports_that_are_shipped_fit_the_schema(root: Path, schema: dict[str, Any]) -> None:
    files = sorted((root / "nests").glob("*/bench.json"))
    assert files
    for file in files:
        jsonschema.validate(json.loads(file.read_text()), schema)
        found = read_bench(file.parent)
        assert found is not None
        assert found.package.name == file.parent.name
        assert found.to_json() == file.read_text()


def test_medians_and_ratios() -> None:
    made = report()
    assert made.package.results.load_seconds.median == 0.5
    assert made.package.results.load_and_first_token_seconds.to_dict() == {
        "median": 1.375,
        "min": 1.25,
        "max": 1.5,
        "runs": [1.5, 1.25],
    }
    assert made.ratio("decode_tokens_per_second") == pytest.approx(2)
    assert made.ratio("perplexity") == 1
    assert report(baseline=None).ratio("load_seconds") is None
    assert report(baseline=measured("other", scored=False)).ratio("perplexity") is None


def at(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(found: dict[str, Any]) -> None:
        *outer, key = path.split(".")
        for step in outer:
            found = found[step]
        found[key] = value

    return change


def without(path: str) -> Callable[[dict[str, Any]], None]:
    def change(found: dict[str, Any]) -> None:
        *outer, key = path.split(".")
        for step in outer:
            found = found[step]
        del found[key]

    return change


FAULTS: list[tuple[Callable[[dict[str, Any]], None], str]] = [
    (at("package.digest", "ab"), "package.digest must be a sha256 in hex."),
    (at("package.results.load_seconds", 3), "package.results.load_seconds must be an object with runs, and their"),
    (at("package.results.load_seconds.runs", []), "package.results.load_seconds must be an object with runs"),
    (at("package.results.load_seconds.runs", [0]), "package.results.load_seconds must be a number above 0."),
    (at("package.results.peak_memory_bytes", None), ""),
    (at("package.weights.pinned", "yes"), "package.weights.pinned must be true or false."),
    (at("package.weights.files", []), "package.weights.files must be a list of objects with path, size and sha256."),
    (at("package.generics.H", 1.5), "package.generics must be an object of whole numbers and dtypes."),
    (at("package.perplexity.nll", -1), "package.perplexity.nll must be a number of at least 0."),
    (at("package.perplexity", 12.5), "package.perplexity must be an object or null."),
    (at("package.compile", 1), "package.compile must be a line of text."),
    (at("package", None), "package must be an object."),
    (at("protocol.new", True), "protocol.new must be a whole number of at least 1."),
    (at("protocol.seed", -1), "protocol.seed must be a whole number of at least 0."),
    (at("environment.threads", "2"), "environment.threads must be a whole number of at least 1."),
    (at("date", "31 January"), "date must be a time in UTC, such as 2026-01-31T12:00:00Z."),
    (at("protocl", {}), "protocl is not a key of the schema (the nearest is protocol)."),
    (at("package.results.speed", 1), "package.results.speed is not a key of the schema"),
    (without("baseline"), "baseline is missing."),
    (without("package.weights"), "package.weights is missing."),
    (without("package.results.decode_tokens_per_second"), "package.results.decode_tokens_per_second is missing."),
    (without("environment.torch"), "environment.torch is missing."),
]


@pytest.mark.parametrize(("change", "message"), FAULTS, ids=[message[:50] for _, message in FAULTS])
def test_the_reader_and_the_schema_refuse_the_same(
    schema: dict[str, Any], change: Callable[[dict[str, Any]], None], message: str
) -> None:
    changed = document()
    change(changed)
    fits = jsonschema.Draft202012Validator(schema).is_valid(changed)
    assert fits == (not message)
    if fits:
        BenchReport.from_json(json.dumps(changed))
        return
    with pytest.raises(BenchReportError) as caught:
        BenchReport.from_json(json.dumps(changed))
    (problem,) = caught.value.problems
    assert problem.message.startswith(message)
    assert str(problem).startswith(problem.message)


def test_every_fault_is_told_at_once() -> None:
    changed = document()
    for change in (at("date", 1), at("package.digest", 1), at("baseline.name", ""), at("extra", 1)):
        change(changed)
    with pytest.raises(BenchReportError) as caught:
        BenchReport.from_json(json.dumps(changed))
    assert [problem.where for problem in caught.value.problems] == ["date", "package.digest", "baseline.name", "extra"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "bench.json is not JSON at line 1"),
        ("[]", "bench.json must be an object."),
        ("{}", "bench.json has no schema, and this version reads 1. Measure again"),
        ('{"schema": 2}', "bench.json has the schema 2, and this version reads 1. Install a newer linnet-nest"),
        ('{"schema": 0}', 'bench.json has the schema "0", and this version reads 1. Measure again'),
        ('{"schema": true}', 'bench.json has the schema "True"'),
        ('{"schema": "1"}', 'bench.json has the schema "1"'),
        ('{"schema": NaN}', "bench.json is not JSON"),
    ],
)
def test_other_files_are_refused(text: str, message: str) -> None:
    with pytest.raises(BenchReportError) as caught:
        BenchReport.from_json(text)
    assert str(caught.value).startswith(message)


def test_a_median_that_is_not_that_of_the_runs_is_refused() -> None:
    changed = document()
    changed["package"]["results"]["decode_tokens_per_second"]["median"] = 900.0
    with pytest.raises(
        BenchReportError, match="decode_tokens_per_second must be an object with runs, and their median"
    ):
        BenchReport.from_json(json.dumps(changed))


VALUES = (
    st.none() | st.booleans() | st.integers(-2, 10**30) | st.floats() | st.text(max_size=3) | st.just([]) | st.just({})
)


@given(st.data())
def test_whatever_a_value_becomes_it_is_read_or_refused(data: st.DataObject) -> None:
    changed = copy.deepcopy(document())
    place: Any = changed
    while isinstance(place, dict) and place:
        key = data.draw(st.sampled_from(sorted(place)))
        if not isinstance(place[key], dict) or data.draw(st.booleans()):
            place[key] = data.draw(VALUES)
            break
        place = place[key]
    try:
        found = BenchReport.from_json(json.dumps(changed))
    except BenchReportError:
        return
    assert json.loads(found.to_json()) == changed


def test_check_reads_the_report_and_its_name(make_package: MakePackage) -> None:
    package = make_package()
    assert read_bench(package) is None
    (package / "bench.json").write_text(report().to_json())
    assert not check_package(package, hub=False).section("files").findings
    (package / "bench.json").write_text(report(package=measured("other")).to_json())
    (finding,) = check_package(package, hub=False).section("files").findings
    assert 'bench.json has the figures of "other", and this is "tiny".' in str(finding)
    (package / "bench.json").write_text('{"schema": 9}')
    (finding,) = check_package(package, hub=False).section("files").findings
    assert "has the schema 9, and this version reads 1" in str(finding)


def test_the_digest_is_of_what_decides_how_a_package_runs(make_package: MakePackage) -> None:
    package = make_package()
    weights = ["model.safetensors"]
    before = package_digest(package, weights)
    (package / "README.md").write_text("# Other\n")
    (package / "bench.json").write_text(report().to_json())
    (package / "model.safetensors").write_bytes(b"other")
    assert package_digest(package, weights) == before
    source = package / "src" / "lib.linnet"
    source.write_text(source.read_text() + "\n")
    assert package_digest(package, weights) != before


def test_the_words_for_people() -> None:
    made = report()
    item = made.package
    shown = {label: cell(item, key) for key, label in columns(made).items()}
    assert {label: (found.value, found.spread) for label, found in shown.items()} == {
        "Perplexity": ("12.50", "± 0.25"),
        "Time to first token": ("12.5 ms", "10.0 to 500"),
        "Decoding": ("238 tokens/s", "12.2 to 240"),
        "Peak memory": ("1 GiB", "1 to 2"),
        "Load": ("500 ms", "250 to 750"),
        "Load and first token": ("1.38 s", "1.25 to 1.5"),
    }
    assert "Perplexity" not in columns(report(package=measured("tiny", scored=False))).values()
    assert conditions(made)[0] == ("128 tokens of prompt, 64 new; numerics fast, compiled, FP8 weights streamed")
    assert "A processor (cpu), 2 threads" in conditions(made)[2]
    assert weights_note(item) == ""
    assert weights_note(measured("tiny", given="mine")) == "with the given weights mine, not those of the card"
