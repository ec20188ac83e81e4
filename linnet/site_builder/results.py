"""The table of results on a model's page, from the package's `bench.json`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from linnet.registry.bench import BenchReport, Measured, Score, sources_digest
from linnet.registry.bench_text import Cell, cell, columns, conditions, weights_note
from linnet.registry.package import PackageFile
from linnet.site_builder.text import one_line


@dataclass(frozen=True, slots=True)
class ResultRow:
    """A package's cells; `note` says whose weights they are where those are not the card's."""

    name: str
    note: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class ResultsView:
    """`labels` head the cells of each row; `ratios` are the package's over the baseline's, empty without one.

    `earlier` where the package has changed since it was measured.
    """

    labels: tuple[str, ...]
    rows: tuple[ResultRow, ...]
    ratios: tuple[str, ...]
    conditions: tuple[str, ...]
    command: str
    earlier: bool


def results_view(report: BenchReport | None, record: Mapping[str, Any]) -> ResultsView | None:
    """The results of the package of that record; None where it was not measured."""
    if report is None:
        return None
    shown = columns(report)
    rows = [
        ResultRow(one_line(item.name), one_line(weights_note(item)), tuple(cell(item, key) for key in shown))
        for item in (report.package, report.baseline)
        if item is not None
    ]
    return ResultsView(
        tuple(shown.values()),
        tuple(rows),
        tuple(_ratio(report.ratio(key)) for key in shown) if report.baseline is not None else (),
        tuple(map(one_line, (*conditions(report), *_perplexity_note(report.package.perplexity)))),
        one_line(report.command),
        _has_changed(report.package, record),
    )


def _perplexity_note(score: Score | None) -> tuple[str, ...]:
    """Of what text a perplexity is, and how it was read, as far as its protocol tells; nothing without one."""
    if score is None:
        return ()
    protocol = score.protocol
    text = protocol.get("text")
    source: Mapping[str, Any] = text if isinstance(text, dict) else {}
    name = " ".join(str(source[key]) for key in ("dataset", "split", "file") if source.get(key))
    parts = [f"perplexity of {name}" if name else "perplexity"]
    if source.get("repo"):
        parts.append(f"{source['repo']} at {str(source.get('revision', ''))[:12]}")
    if source.get("sha256"):
        parts.append(f"sha256 {str(source['sha256'])[:12]}")
    read = [f"{key} {protocol[key]}" for key in ("window", "stride") if protocol.get(key)]
    scored = f"{score.tokens_scored:,} tokens scored in {score.windows:,} window{'' if score.windows == 1 else 's'}"
    return (f"{', '.join(parts)}; {', '.join([*read, scored])}",)


def _ratio(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.3f}" if 0.9 < ratio < 1.1 else f"{ratio:.2f}"


def _has_changed(measured: Measured, record: Mapping[str, Any]) -> bool:
    """Whether what decides how the package runs is other than when it was measured, as far as the record tells."""
    weights = record["card"]["weights"]
    files = [PackageFile(str(f["path"]), int(f["size"]), str(f["sha256"])) for f in record["files"]]
    digest = sources_digest(file for file in files if file.path not in weights["files"])
    sizes: Mapping[str, int] = record["weights"]["sizes"]
    other = measured.weights.given is None and any(
        sizes.get(file.path, file.size) != file.size for file in measured.weights.files
    )
    return digest != measured.digest or other
