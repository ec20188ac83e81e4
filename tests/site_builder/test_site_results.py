"""The table of results on a model's page, filled from `bench.json`."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from bench_reports import measured, report

from linnet.registry.bench import BenchReport, BenchReportError, package_digest
from linnet.site_builder.build import SiteReport
from linnet.site_builder.collect import PackageSource, collect_model

Build = Callable[..., SiteReport]
MakePackage = Callable[..., PackageSource]


@pytest.fixture
def benched(make_package: MakePackage) -> Callable[..., PackageSource]:
    """The package with a `bench.json`; `change` alters the report."""

    def make(change: Callable[[BenchReport], BenchReport] = lambda report: report) -> PackageSource:
        digest = package_digest(make_package().folder, ["model.safetensors"])
        made = report(package=measured("tiny-wren", digest=digest), baseline=measured("wren", 0.5))
        on = replace(made.environment, device="cuda", device_name="A <GPU>", threads=16)
        return make_package(files={"bench.json": change(replace(made, environment=on)).to_json()})

    return make


def results(site: SiteReport, name: str = "tiny-wren") -> str:
    """The text of the page's section of results; empty where it has none."""
    page = (site.output / "models" / name / "index.html").read_text(encoding="utf-8")
    found = re.search(r'<section aria-labelledby="results">(.*?)</section>', page, re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", found[1])).split()) if found else ""


def test_the_table_is_filled(benched: Callable[..., PackageSource], build: Build) -> None:
    shown = results(build(benched()))
    assert shown.startswith(
        "Results Package Perplexity Time to first token Decoding Peak memory Load Load and first token tiny-wren "
        "12.50 ± 0.25 12.5 ms 10.0 to 500 238 tokens/s 12.2 to 240 1 GiB 1 to 2 500 ms 250 to 750 1.38 s "
        "1.25 to 1.5 wren "
    )
    assert "128 tokens of prompt, 64 new; numerics fast, compiled, FP8 weights streamed" in shown
    assert "A <GPU> (cuda), 16 threads, Linux 6.1" in shown
    assert "linnet 0.1.0, torch 2.11, Python 3.11.7; 2026-01-31" in shown
    assert "perplexity of held-out.txt; window 256, 1,000 tokens scored in 9 windows nest bench" in shown
    assert "Ratio 1.000 1.000 2.00 1.000 2.00 1.000 128 tokens" in shown
    assert shown.endswith("nest bench tiny --baseline other Charts")
    assert "earlier state" not in shown
    assert "weights mine" not in shown


@pytest.mark.parametrize(
    ("protocol", "told"),
    [
        (
            {
                "text": {
                    "dataset": "wikitext-2",
                    "split": "test",
                    "repo": "a/b",
                    "revision": "0" * 40,
                    "sha256": "c" * 64,
                },
                "window": 1024,
                "stride": 512,
            },
            "perplexity of wikitext-2 test, a/b at 000000000000, sha256 cccccccccccc; window 1024, stride 512, 1,000",
        ),
        ({"text": "mine"}, "perplexity; 1,000 tokens scored in 9 windows"),
    ],
)
def test_how_a_perplexity_was_measured_is_told(
    benched: Callable[..., PackageSource], build: Build, protocol: dict[str, Any], told: str
) -> None:
    def measured_so(report: BenchReport) -> BenchReport:
        assert report.package.perplexity is not None
        score = replace(report.package.perplexity, protocol=protocol)
        return replace(report, package=replace(report.package, perplexity=score))

    site = build(benched(measured_so))
    assert told in results(site)
    assert told in (site.output / "models/tiny-wren/benchmarks/index.html").read_text(encoding="utf-8")


def test_a_package_that_was_not_measured_has_no_table(make_package: MakePackage, build: Build) -> None:
    assert results(build(make_package())) == ""


def test_figures_of_other_weights_are_never_the_cards(benched: Callable[..., PackageSource], build: Build) -> None:
    def given(report: BenchReport) -> BenchReport:
        weights = replace(report.package.weights, pinned=False, given="mine")
        return replace(report, package=replace(report.package, weights=weights))

    assert "tiny-wren with the given weights mine, not those of the card 12.50" in results(build(benched(given)))

    def beside(report: BenchReport) -> BenchReport:
        assert report.baseline is not None
        weights = replace(report.baseline.weights, pinned=False)
        return replace(report, baseline=replace(report.baseline, weights=weights))

    shown = results(build(benched(beside)))
    assert "tiny-wren 12.50" in shown
    assert "wren with weights beside the card that are not known to be those it pins 12.50" in shown


def test_a_package_that_has_changed_says_so(benched: Callable[..., PackageSource], build: Build) -> None:
    source = benched()
    file = source.folder / "src" / "lib.linnet"
    file.write_text(file.read_text() + "\n")
    changed = hashlib.sha256(file.read_bytes()).hexdigest()
    for item in source.record["files"]:
        if item["path"] == "src/lib.linnet":
            item.update(size=file.stat().st_size, sha256=changed)
    assert "Measured on an earlier state of this package." in results(build(source))
    # The README decides nothing of how it runs.
    source = benched()
    assert "earlier" not in results(build(source))
    # Weights beside the card are no files of the record; their size is.
    source.record["weights"]["sizes"]["model.safetensors"] = 11
    assert "earlier" in results(build(source))


def test_a_file_that_is_no_report_builds_no_page(make_package: MakePackage) -> None:
    source = make_package(files={"bench.json": json.dumps({"schema": 2})})
    with pytest.raises(BenchReportError, match="has the schema 2, and this version reads 1"):
        collect_model(source)


def test_only_what_is_shipped_is_shown(shipped: SiteReport, root: Path) -> None:
    for folder in (root / "nests").iterdir():
        if (folder / "nest.toml").is_file():
            assert bool(results(shipped, folder.name)) == (folder / "bench.json").is_file()


def test_one_slow_run_does_not_set_the_axis(benched: Callable[..., PackageSource], build: Build) -> None:
    """The runs took 10, 12.5 and 500 ms, those of the baseline too."""
    site = build(benched())
    page = (site.output / "models" / "tiny-wren" / "benchmarks" / "index.html").read_text(encoding="utf-8")
    chart = page.partition('<h2 id="time">')[2].partition("</figure>")[0]
    bars = re.findall(r'<rect class="(?:own|base)" y="\d+" width="([\d.]+)"', chart)
    assert bars == ["167.5", "167.5"]
    assert chart.count("10.0 to 500</text>") == 2
    # The whisker ends in two strokes; where it fits, in a bar.
    assert re.findall(r"M335\.0 \d+v8", chart) == []
    assert len(re.findall(r"l4 -10M331 ", chart)) == 2
    decoding = page.partition('<h2 id="decode">')[2].partition("</figure>")[0]
    assert "l4 -10" not in decoding
    assert "12.2 to 240</text>" not in decoding
    assert "on a CPU, how far the process grew at most" in page
