"""`nest gate`: may these packages be published, after what was published before?"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import click

from linnet.cli.codes import COULD_NOT, FINE, PROBLEMS
from linnet.cli.frame import json_option, quiet_option
from linnet.cli.model_options import model_options
from linnet.cli.output import progress, table

if TYPE_CHECKING:
    from linnet.load_options import LoadOptions
    from linnet.registry.gate_report import GateReport, GateRun

SUMMARY_VARIABLE = "GITHUB_STEP_SUMMARY"
COLOURS = {"failed": "red", "undone": "yellow", "new": "blue", "unchanged": "blue", "passed": "green"}
_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command("gate")
@click.argument("packages", nargs=-1, metavar="NAME...")
@click.option("--against", metavar="REGISTRY", help="The registry to compare with; by default as for nest publish.")
@click.option(
    "--changed-since",
    "since",
    metavar="GITREF",
    help="Only packages that changed since this branch left a git revision; all of them where no NAME is given.",
)
@click.option(
    "--nests",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default="nests",
    show_default=True,
    help="The folder of packages that NAME and --changed-since look in.",
)
@click.option("--no-bench", is_flag=True, help="Measure nothing: compare what is written only.")
@click.option(
    "--limit-tokens", type=click.IntRange(min=2), help="Score the first so many tokens of the text of [bench] only."
)
@click.option(
    "--runs", type=click.IntRange(min=1), default=3, show_default=True, help="Processes that time each version."
)
@click.option("--junit", type=_FILE, help="Write JUnit XML to a file.")
@click.option(
    "--summary",
    type=_FILE,
    help=f"Append a Markdown summary to a file; by default to ${SUMMARY_VARIABLE} where it is set.",
)
@click.option("--sarif", "sarif_file", type=_FILE, help="Write SARIF to a file, for the lines of a change.")
@model_options
@json_option
@quiet_option
def command(
    packages: tuple[str, ...],
    against: str | None,
    since: str | None,
    nests: Path,
    no_bench: bool,
    limit_tokens: int | None,
    runs: int,
    junit: Path | None,
    summary: Path | None,
    sarif_file: Path | None,
    load: LoadOptions,
    as_json: bool,
    quiet: bool,
) -> int:
    """Compare packages with their last published versions, and fail where one got worse.

    NAME is a package in ./nests, or a folder. Compared are parameters and bindings, entries, the licence, the weights'
    pin; and, measured side by side here, perplexity, speed and memory. The card's [gate] says how much may change, and
    which changes are meant. A package that did not change is not measured.

    Exit codes: 1 for a regression, 3 where something could not be done.

    Example: nest gate qwen3-tiny-fp8 --against ~/registry
    """
    from linnet import gating
    from linnet.registry.gate_output import junit as to_junit
    from linnet.registry.gate_output import markdown
    from linnet.registry.gate_sarif import sarif
    from linnet.registry.index import write_text

    if not packages and since is None:
        raise click.UsageError("Name a package, or give --changed-since for all that changed.")
    run = gating.gate(
        packages,
        against=against,
        bench=not no_bench,
        since=since,
        nests=nests,
        limit_tokens=limit_tokens,
        runs=runs,
        watch=progress("measuring", quiet=quiet),
        load=load,
    )
    if junit is not None:
        write_text(to_junit(run), junit)
    if sarif_file is not None:
        found = sarif(run, version("linnet-nest"))
        write_text(json.dumps(found, ensure_ascii=False, indent=1) + "\n", sarif_file)
    target = summary or (Path(os.environ[SUMMARY_VARIABLE]) if os.environ.get(SUMMARY_VARIABLE) else None)
    if target is not None:
        # Other steps of a job write to the same file.
        with target.open("a", encoding="utf-8") as file:
            file.write(markdown(run))
    if as_json:
        click.echo(json.dumps(run.to_dict(), ensure_ascii=False, indent=1))
    else:
        for line in report_lines(run, quiet=quiet):
            click.echo(line)
    if run.failed:
        return PROBLEMS
    return FINE if run.ok else COULD_NOT


def report_lines(run: GateRun, *, quiet: bool = False) -> list[str]:
    """A run as a person reads it: a line for each package, what was measured and what was found below it."""
    from linnet.registry.gate_output import nothing_changed

    if not run.reports:
        return [] if quiet else [nothing_changed(run)]
    return [line for report in run.reports for line in _package_lines(report, quiet)]


def _package_lines(report: GateReport, quiet: bool) -> Iterator[str]:
    from linnet.registry.gate_output import QUANTITIES, change, result, values

    if quiet and report.ok:
        return
    against = f" against {report.published}" if report.published and report.published != report.version else ""
    title = click.style(f"{report.name} {report.version or '(no version)'}{against}", bold=True)
    yield f"{title}: {click.style(result(report), fg=COLOURS[report.status])}"
    rows = []
    for item in report.judged:
        before, after = values(item)
        verdict = "" if item.verdict == "fine" else item.verdict
        allowed = f"{item.limit:.1%} allowed"
        rows.append((QUANTITIES[item.quantity].lower(), before, "->", after, change(item), allowed, verdict))
    if rows and not quiet:
        yield from (f"  {line}" for line in table(rows))
    for finding in report.findings:
        grave = finding.severity == "regression"
        if quiet and not grave:
            continue
        place = finding.place
        at = f" ({place.file}{f':{place.line}' if place.line else ''})" if place else ""
        yield f"  {click.style(finding.severity, fg='red' if grave else 'yellow')} {finding.id}{at}"
        yield f"    {finding.message}"
        if finding.help:
            yield f"    {finding.help}"
    for problem in report.undone:
        yield f"  {click.style('could not be done', fg='yellow')} {problem}"
    if not quiet:
        for reason in dict.fromkeys(report.skipped.values()):
            parts = ", ".join(part for part, other in report.skipped.items() if other == reason)
            yield f"  {click.style('-', fg='blue')} {parts}: {reason}"
