"""`nest bench`: how fast a package runs, beside its baseline."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from linnet.cli.codes import FINE
from linnet.cli.frame import json_option, quiet_option
from linnet.cli.model_options import model_options
from linnet.cli.output import progress, table

if TYPE_CHECKING:
    from linnet.load_options import LoadOptions
    from linnet.registry.bench import BenchReport


@click.command("bench")
@click.argument("package", metavar="NAME")
@click.option("--baseline", metavar="NAME", help="The package to compare with; by default the one that the card names.")
@click.option("--no-baseline", is_flag=True, help="Measure the package alone.")
@click.option(
    "--baseline-weights",
    type=click.Path(exists=True, path_type=Path),
    help="A folder or file as for --weights, for the baseline.",
)
@click.option("--prompt", type=click.IntRange(min=1), help="Tokens of the prompt; by default the card's, or 128.")
@click.option("--new", type=click.IntRange(min=2), help="Tokens to generate; by default the card's, or 64.")
@click.option(
    "--runs", type=click.IntRange(min=1), default=3, show_default=True, help="Processes that measure each package."
)
@click.option("--no-perplexity", is_flag=True, help="Leave out the perplexity on the text of the card's [bench].")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="The file to write; by default bench.json beside the card."
)
@model_options
@json_option
@quiet_option
def command(
    package: str,
    baseline: str | None,
    no_baseline: bool,
    baseline_weights: Path | None,
    prompt: int | None,
    new: int | None,
    runs: int,
    no_perplexity: bool,
    output: Path | None,
    load: LoadOptions,
    as_json: bool,
    quiet: bool,
) -> int:
    """Time a package beside its baseline, and write what was measured, and with what, to bench.json.

    NAME is a folder of ./nests or any other, org/name on the Hub, name[@version] of a registry, or one that ships here.
    Measured are loading, the time to the first token, decoding and peak memory, by processes that take
    turns, and the perplexity on the text that the card's [bench] names.

    Example: nest bench qwen3-tiny-fp8 --numerics fast -o bench.json
    """
    from linnet.benchmark import run_bench

    if baseline is not None and no_baseline:
        raise click.UsageError("--baseline and --no-baseline contradict each other: give one of them.")
    report, written = run_bench(
        package,
        baseline=baseline,
        with_baseline=not no_baseline,
        baseline_weights=baseline_weights,
        prompt=prompt,
        new=new,
        runs=runs,
        perplexity=not no_perplexity,
        output=output,
        watch=progress("measuring", quiet=quiet),
        load=load,
    )
    if as_json:
        click.echo(report.to_json(), nl=False)
        return FINE
    for line in report_lines(report):
        click.echo(line)
    if not quiet:
        click.echo(f"Written to {written}.")
    return FINE


def report_lines(report: BenchReport) -> list[str]:
    """A report as a person reads it: a column for each package, medians with their spread, then what was measured."""
    from linnet.registry.bench_text import cell, columns, conditions, weights_note

    subjects = [item for item in (report.package, report.baseline) if item is not None]
    rows = [("", *(item.name for item in subjects), *(("ratio",) if len(subjects) > 1 else ()))]
    for key, label in columns(report).items():
        cells = [cell(item, key) for item in subjects]
        ratio = report.ratio(key)
        shown = [f"{found.value} ({found.spread})" if found.spread else found.value for found in cells]
        rows.append((label.lower(), *shown, *((f"{ratio:.2f}",) if ratio is not None else ("",) * (len(subjects) - 1))))
    head, *lines = table(rows)
    notes = [f"{item.name}: {weights_note(item)}" for item in subjects if weights_note(item)]
    return [click.style(head, bold=True), *lines, "", *notes, *conditions(report)]
