"""`nest publish`: a package becomes a version of a registry, for good."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from linnet.cli.codes import COULD_NOT, FINE, PROBLEMS
from linnet.cli.frame import json_option, quiet_option
from linnet.cli.nest_check import report_lines
from linnet.cli.output import progress, table
from linnet.cli.registry_options import target_option, telling
from linnet.runner.levels import SMOKE_LEVELS

if TYPE_CHECKING:
    from linnet.publishing import Plan


@click.command("publish")
@click.argument("package", metavar="NAME|DIR")
@target_option
@click.option("--dry-run", is_flag=True, help="Do all that writes nothing to the registry, and print the plan.")
@click.option("--bench", is_flag=True, help="Measure first, as nest bench does, and publish bench.json with the rest.")
@click.option("--no-gate", is_flag=True, help="Publish even where the last version was better.")
@click.option(
    "--smoke",
    type=click.Choice(SMOKE_LEVELS),
    help="How much is run, as for nest check; by default small, and full where the weights are on this machine.",
)
@click.option(
    "--weights",
    type=click.Path(exists=True, path_type=Path),
    help="A folder that holds the weight files, or the one file.",
)
@json_option
@quiet_option
def command(
    package: str,
    registry: str | None,
    dry_run: bool,
    bench: bool,
    no_gate: bool,
    smoke: str | None,
    weights: Path | None,
    as_json: bool,
    quiet: bool,
) -> int:
    """Check a package, run it, compare it with its last version, and publish it.

    NAME is a folder of ./nests or any other. The version is that of linnet.toml, or of the card. A published version
    never changes: the same content again is fine, other content needs another version.

    Example: nest publish qwen3-tiny-fp8 --dry-run
    """
    from linnet.publishing import CheckFailedError, GateFailedError, carry_out, plan_publish

    say = telling(quiet=quiet)
    try:
        plan = plan_publish(
            package,
            registry=registry,
            weights=weights,
            smoke=smoke,
            bench=bench,
            gate=not no_gate,
            say=say,
            watch=progress("measuring", quiet=quiet),
        )
    except CheckFailedError as error:
        for line in report_lines(error.report, quiet=True):
            click.echo(line, err=True)
        click.echo(f"{error}.", err=True)
        return COULD_NOT if error.report.undone else PROBLEMS
    except GateFailedError as error:
        regressions = error.report.regressions()
        for finding in regressions:
            click.echo(f"  {finding.id}: {finding.message}\n    {finding.help}", err=True)
        for problem in error.report.undone:
            click.echo(f"  {problem}", err=True)
        click.echo(f"{error}; accept it in the card's [gate] allow, or publish with --no-gate.", err=True)
        return PROBLEMS if regressions else COULD_NOT
    if dry_run:
        _show_plan(plan, as_json=as_json)
        return FINE
    published = carry_out(plan, say)
    record = published.record
    if as_json:
        outcome = {"created": published.created, "sha256": published.sha256, "generation": published.generation}
        outcome |= {"published": record.published}
        click.echo(json.dumps({**plan.to_dict(), **outcome}, indent=1, ensure_ascii=False))
    elif published.created:
        click.echo(f"Published {record.name} {record.version} to {plan.registry}.")
    else:
        click.echo(
            f"{record.name} {record.version} is in {plan.registry} with this content, since {record.published}: "
            "nothing to do."
        )
    return FINE


def _show_plan(plan: Plan, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(plan.to_dict(), indent=1, ensure_ascii=False))
        return
    from linnet.language.words import counted
    from linnet.registry.package import human_size

    record = plan.publication.record
    held = record.objects()
    gate = record.gate["status"] if record.gate is not None else "nothing to compare with"
    if plan.there:
        gate = "not needed"
    checks = ", ".join(f"{section['name']} {section['status']}" for section in record.check["sections"])
    place = f"stay in {record.weights.repo} at {record.weights.revision}" if record.weights.repo else "in the registry"
    weights = [
        (f"{file.path}, {human_size(file.size)}", f"sha256 {file.sha256[:12]}...") for file in record.weights.files
    ]
    rows = [
        ("registry", plan.registry),
        ("version", f"{record.name} {record.version}" + (", which is there with this content" if plan.there else "")),
        ("check", checks),
        ("bench", "bench.json" if record.bench is not None else "no figures of this very package"),
        ("gate", gate),
        ("weights", f"{counted(len(weights), 'file')} that {place}" if record.weights.repo else place),
        *(("", f"{name}  {digest}") for name, digest in weights),
        ("objects", f"{counted(len(held), 'object')}, {human_size(sum(held.values()))}, as far as they are not there"),
        ("then", "the version, the index, the package's small file; all is read back"),
    ]
    for line in table(rows):
        click.echo(line)
    click.echo("Nothing was written.")
