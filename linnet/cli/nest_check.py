"""`nest check`: is a package what it says it is?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from linnet.cli.codes import COULD_NOT, FINE, PROBLEMS
from linnet.cli.frame import json_option, quiet_option, registry_option
from linnet.cli.output import progress
from linnet.runner.levels import SMOKE_LEVELS

if TYPE_CHECKING:
    from linnet.registry.report import CheckReport, Finding

MARKS = {"ok": ("ok", "green"), "warning": ("warning", "yellow"), "error": ("error", "red"), "skipped": ("-", "blue")}


@click.command("check")
@click.argument("packages", nargs=-1, required=True, metavar="PATH...")
@click.option(
    "--no-hub", is_flag=True, help="Ask the Hub nothing: weights that are not on this machine are not compared."
)
@click.option(
    "--smoke",
    type=click.Choice(SMOKE_LEVELS),
    help="How much is run: nothing; shapes at full size; also every entry at small generics; also the real weights. "
    "By default small, and full where the weights are on this machine.",
)
@click.option(
    "--weights",
    type=click.Path(exists=True, path_type=Path),
    help="A folder that holds the weight files, or the one file.",
)
@click.option("--strict", is_flag=True, help="Treat warnings as errors.")
@registry_option
@json_option
@quiet_option
def command(
    packages: tuple[str, ...],
    no_hub: bool,
    smoke: str | None,
    weights: Path | None,
    strict: bool,
    registry: str | None,
    as_json: bool,
    quiet: bool,
) -> int:
    """Check packages: card, README, source, generics, bindings, weights, and a smoke test.

    A PATH is a package's folder, org/name on the Hub, name[@version] of a registry, or one that ships here.

    Example: nest check --no-hub nests/qwen3-8b-fp8
    """
    from linnet import nest
    from linnet.registry.errors import RegistryError
    from linnet.registry.report import CheckReport, make_section

    if weights is not None and len(packages) > 1:
        raise click.UsageError("--weights belongs to one package: name one PATH, or check the others without it.")
    reports: list[CheckReport] = []
    for name in progress("checking", quiet=quiet)(packages):
        try:
            settings: dict[str, Any] = {
                "hub": not no_hub,
                "smoke": smoke,
                "weights": weights,
                "strict": strict,
                "registry": registry,
            }
            reports.append(nest.check(name, **settings))
        except RegistryError as error:
            # Alone it is the command's own error; among others it is one report, and they are checked.
            if len(packages) == 1 and not as_json:
                raise
            reports.append(CheckReport(name, "", (make_section("package", "no package", error.problems),)))
    if as_json:
        click.echo(json.dumps([report.to_dict() for report in reports], indent=1, ensure_ascii=False))
    else:
        for report in reports:
            for line in report_lines(report, quiet=quiet):
                click.echo(line)
    if all(report.ok for report in reports):
        return FINE
    return COULD_NOT if all(report.ok or report.undone for report in reports) else PROBLEMS


def report_lines(report: CheckReport, *, quiet: bool = False) -> list[str]:
    """A report as a person reads it: a line for each section, and its findings below."""
    lines = [] if quiet and report.ok else [click.style(f"{report.name or report.package}", bold=True)]
    width = max(len(section.name) for section in report.sections)
    for section in report.sections:
        word, colour = MARKS[section.status]
        if not quiet or section.status == "error":
            lines.append(f"  {click.style(f'{word:8}', fg=colour)}{section.name:{width}}  {section.summary}")
        for finding in section.findings:
            if not quiet or finding.severity == "error":
                lines += _finding_lines(finding)
    return lines


def _finding_lines(finding: Finding) -> list[str]:
    colour = MARKS[finding.severity][1]
    lines = [f"    {click.style(finding.where, fg=colour)}: {finding.message}"]
    return [*lines, f"      {finding.help}"] if finding.help else lines
