"""A bench report for people: what the command prints and what pages show, in the same words."""

from __future__ import annotations

from dataclasses import dataclass

from linnet.registry.bench import BenchReport, Figure, Measured

# What is measured, in the order that people read it: a field of `Results`, or `perplexity`.
COLUMNS = {
    "perplexity": "Perplexity",
    "time_to_first_token_seconds": "Time to first token",
    "decode_tokens_per_second": "Decoding",
    "peak_memory_bytes": "Peak memory",
    "load_seconds": "Load",
    "load_and_first_token_seconds": "Load and first token",
}


@dataclass(frozen=True, slots=True)
class Cell:
    """A median, and how far the runs lie apart (`21.5 to 24.0`); both empty where nothing was measured."""

    value: str = ""
    spread: str = ""


def columns(report: BenchReport) -> dict[str, str]:
    """Those of `COLUMNS` that the report has a figure for."""
    return {key: label for key, label in COLUMNS.items() if report.package.value(key) is not None}


def cell(item: Measured, key: str) -> Cell:
    """A figure in its unit, its runs in the same."""
    if key == "perplexity":
        found = item.perplexity
        if found is None:
            return Cell()
        error = f"± {found.standard_error:.2f}" if found.standard_error is not None else ""
        return Cell(f"{found.perplexity:.2f}", error)
    figure: Figure | None = getattr(item.results, key)
    if figure is None:
        return Cell()
    if key == "decode_tokens_per_second":
        return _cell(figure, 1.0, "tokens/s")
    if key == "peak_memory_bytes":
        return _cell(figure, 2.0**-30, "GiB")
    return _cell(figure, 1.0, "s") if figure.median >= 1 else _cell(figure, 1e3, "ms")


def conditions(report: BenchReport) -> list[str]:
    """What the figures were measured with, a line each."""
    protocol, environment, item = report.protocol, report.environment, report.package
    modes: dict[bool | str, str] = {True: "compiled", False: "interpreted"}
    compiled = modes.get(item.compile, f"compiled ({item.compile})")
    fp8 = f", FP8 weights {'streamed' if item.fp8 == 'stream' else item.fp8}" if item.fp8 else ""
    dtype = f", in {protocol.dtype}" if protocol.dtype else ""
    several = f"medians of {protocol.runs} processes each, and the lowest and highest"
    backend = f"{protocol.backend}, " if protocol.backend != "torch" else ""
    mlx = f", mlx {environment.mlx}" if environment.mlx else ""
    how = f"{backend}numerics {protocol.numerics}, {compiled}{fp8}{dtype}"
    return [
        f"{protocol.prompt} tokens of prompt, {protocol.new} new; {how}",
        several if protocol.runs > 1 else "one process each",
        f"{environment.device_name} ({environment.device}), {environment.threads} threads, {environment.system}",
        f"linnet {environment.linnet}, torch {environment.torch}{mlx}, Python {environment.python}; {report.date[:10]}",
    ]


def weights_note(item: Measured) -> str:
    """What is to be said beside figures of weights that are not the card's; empty where they are."""
    if item.weights.pinned:
        return ""
    if item.weights.given is not None:
        return f"with the given weights {item.weights.given}, not those of the card"
    return "with weights beside the card that are not known to be those it pins"


def _cell(figure: Figure, scale: float, unit: str) -> Cell:
    spread = f"{_digits(figure.low * scale)} to {_digits(figure.high * scale)}" if len(figure.runs) > 1 else ""
    return Cell(f"{_digits(figure.median * scale)} {unit}", spread)


def _digits(number: float) -> str:
    """Three significant digits, never as a power of ten."""
    return f"{number:.0f}" if number >= 100 else f"{number:.1f}" if number >= 10 else f"{number:.3g}"
