"""Charts of what was measured, drawn as SVG: each quantity over versions and devices, with its table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from markupsafe import Markup

from linnet.registry.bench import BenchReport, Figure, Measured
from linnet.registry.bench_text import Cell, cell
from linnet.site_builder.collect import PackageSource
from linnet.site_builder.text import one_line

# What is charted, in the order that people ask: a field of `Results` or `perplexity`, its title, and what is better.
CHARTED = (
    ("decode_tokens_per_second", "Decoding", "Tokens of a row per second; more is better."),
    ("time_to_first_token_seconds", "Time to first token", "From a prompt to its first new token; less is better."),
    (
        "peak_memory_bytes",
        "Peak memory",
        "On a GPU, the most that tensors held; on a CPU, how far the process grew at most. Less is better.",
    ),
    ("perplexity", "Perplexity", "Of the dataset that the card names; less is better."),
)
# Versions beyond these are in the table alone.
MOST_BARS = 24
# Narrow enough to be read on a phone: what a bar is stands above it.
WIDTH, VALUE, ROW, TOP = 440, 105, 50, 4
# The axis ends at so many times the largest median: one slow run would leave nothing to see of the rest.
MOST_OVER_MEDIAN = 2.0


@dataclass(frozen=True, slots=True)
class Bar:
    """One measurement: `low` and `high` are the extremes of its runs; `own` is false for the baseline's."""

    label: str
    under: str
    median: float
    low: float
    high: float
    text: Cell
    own: bool


@dataclass(frozen=True, slots=True)
class Chart:
    anchor: str
    title: str
    note: str
    svg: Markup
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def charts(versions: Sequence[PackageSource]) -> list[Chart]:
    """A chart for each quantity that some version has; `versions` are newest first. Raises RegistryError for a bad
    `bench.json`."""
    reports = [(source.version, report) for source in versions if (report := source.measured()) is not None]
    found = []
    for key, title, note in CHARTED:
        bars = [bar for version, report in reports for bar in _bars(key, version, report)]
        if bars:
            found.append(_chart(key, title, note, bars, reports))
    return found


def _bars(key: str, version: str, report: BenchReport) -> list[Bar]:
    device = one_line(f"{report.environment.device_name} ({report.environment.device})")
    found = []
    for item, own in ((report.package, True), (report.baseline, False)):
        if item is None or item.value(key) is None:
            continue
        low, median, high = _spread(item, key)
        label = (version or "unversioned") if own else one_line(item.name)
        found.append(Bar(label, device, median, low, high, cell(item, key), own))
    return found


def _spread(item: Measured, key: str) -> tuple[float, float, float]:
    if key == "perplexity" and item.perplexity is not None:
        error = item.perplexity.standard_error or 0.0
        return item.perplexity.perplexity - error, item.perplexity.perplexity, item.perplexity.perplexity + error
    figure: Figure | None = getattr(item.results, key)
    assert figure is not None
    return figure.low, figure.median, figure.high


def _chart(key: str, title: str, note: str, bars: Sequence[Bar], reports: Sequence[tuple[str, BenchReport]]) -> Chart:
    dates = {id(report): report.date[:10] for _, report in reports}
    rows = []
    for version, report in reports:
        for bar in _bars(key, version, report):
            name = "this" if bar.own else "baseline"
            rows.append((bar.label, name, bar.text.value, bar.text.spread, bar.under, dates[id(report)]))
    columns = ("Version", "Package", "Median", "Lowest to highest", "Device", "Date")
    anchor = key.partition("_")[0]
    return Chart(anchor, title, note, _svg(title, bars[:MOST_BARS]), columns, tuple(rows))


def _svg(title: str, bars: Sequence[Bar]) -> Markup:
    """Horizontal bars from zero, with whiskers from the lowest to the highest run, which stands in figures below the
    value where its whisker is broken off."""
    highest, median = max(bar.high for bar in bars), max(bar.median for bar in bars)
    longest = min(highest, MOST_OVER_MEDIAN * median) or highest or 1.0
    room = WIDTH - VALUE
    height = TOP + ROW * len(bars)

    def x(value: float) -> str:
        return f"{room * min(max(0.0, value) / longest, 1.0):.1f}"

    parts = [
        f'<svg class="bars" viewBox="0 0 {WIDTH} {height}" role="img" aria-labelledby="chart-{escape(title[:4])}">',
        f'<title id="chart-{escape(title[:4])}">{escape(title)}: '
        + escape("; ".join(f"{bar.label} {bar.text.value}" for bar in bars))
        + "</title>",
    ]
    for index, bar in enumerate(bars):
        y = TOP + ROW * index
        kind = "own" if bar.own else "base"
        under = f'<tspan class="under" dx="8">{_cut(bar.under, 32)}</tspan>'
        parts.append(f'<text class="label" x="0" y="{y + 14}">{_cut(bar.label, 24)}{under}</text>')
        parts.append(f'<rect class="{kind}" y="{y + 21}" width="{x(bar.median)}" height="18" rx="2"/>')
        if bar.high > bar.low:
            middle = y + 30
            parts.append(f'<path class="whisker" d="M{x(bar.low)} {middle}H{x(bar.high)}M{x(bar.low)} {middle - 4}v8')
            if bar.high > longest:
                # Two strokes across the end, and no bar: it goes on.
                parts.append(f'M{room - 9} {middle + 5}l4 -10M{room - 4} {middle + 5}l4 -10"/>')
            else:
                parts.append(f'M{x(bar.high)} {middle - 4}v8"/>')
        end = max(float(x(bar.median)), float(x(bar.high)))
        broken = bar.high > longest and bool(bar.text.spread)
        parts.append(
            f'<text class="value" x="{end + 8:.1f}" y="{y + (28 if broken else 35)}">{escape(bar.text.value)}</text>'
        )
        if broken:
            parts.append(f'<text class="under" x="{end + 8:.1f}" y="{y + 43}">{escape(bar.text.spread)}</text>')
    parts.append("</svg>")
    return Markup("".join(parts))


def _cut(text: str, length: int) -> str:
    return escape(text if len(text) <= length else f"{text[: length - 1]}…")
