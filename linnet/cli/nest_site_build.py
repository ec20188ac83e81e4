"""`nest site build`: packages as pages, in a folder."""

from __future__ import annotations

from pathlib import Path

import click

from linnet.cli.codes import FINE, PROBLEMS
from linnet.cli.frame import nests_option, output_option, quiet_option
from linnet.cli.output import progress
from linnet.cli.site_options import guide_option, jobs_option, registry_option, site_sources


@click.command("build")
@registry_option
@nests_option
@output_option("site", "The folder to write: an empty one, a new one, or an earlier site.", folder=True)
@click.option("--base-url", metavar="URL", help="Where the site will be published; pages then name their addresses.")
@click.option(
    "--strict",
    is_flag=True,
    help="Write nothing where a link or an anchor leads nowhere, a licence is unknown, or a page is too large.",
)
@guide_option
@jobs_option
@click.option("--fresh", is_flag=True, help="Draw every model again, also those that did not change.")
@quiet_option
def command(
    registry: str | None,
    nests: Path | None,
    output: Path,
    base_url: str | None,
    strict: bool,
    guide: Path | None,
    jobs: int | None,
    fresh: bool,
    quiet: bool,
) -> int:
    """Write a site of static pages, which opens from the file system.

    Only what changed since the site was last built here is drawn; the same packages give the same bytes.

    Example: nest site build --nests nests -o site --strict
    """
    from linnet.language.words import counted
    from linnet.site_builder.build import build_site

    report = build_site(
        site_sources(registry, nests),
        output,
        base_url=base_url,
        strict=strict,
        jobs=jobs,
        fresh=fresh,
        guide=guide,
        watch=progress("drawing", quiet=quiet),
    )
    for problem in report.problems:
        click.echo(click.style(str(problem), fg="red"), err=True)
    if not report.ok:
        if strict:
            click.echo(f"{report.output} was not written: {counted(len(report.problems), 'problem')}.", err=True)
        return PROBLEMS
    if not quiet:
        for problem in report.unresolved:
            click.echo(click.style(f"{problem} (shown as text)", fg="yellow"), err=True)
        drawn = counted(len(report.rendered), "model")
        click.echo(f"{counted(len(report.pages), 'page')}, {drawn} drawn: {report.output / 'index.html'}")
    return FINE
