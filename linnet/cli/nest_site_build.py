"""`nest site build`: a catalogue and one page for each package."""

from __future__ import annotations

from pathlib import Path

import click

from linnet.cli.codes import FINE, PROBLEMS
from linnet.cli.frame import nests_option, output_option, quiet_option
from linnet.cli.output import progress


@click.command("build")
@nests_option
@output_option("site", "The folder to write: an empty one, a new one, or an earlier site.", folder=True)
@click.option("--base-url", metavar="URL", help="Where the site will be published; pages then name their addresses.")
@quiet_option
def command(nests: Path | None, output: Path, base_url: str | None, quiet: bool) -> int:
    """Write a site of static pages, which opens from the file system.

    Example: nest site build --nests nests -o site
    """
    from linnet.language.words import counted
    from linnet.registry.index_build import build_index
    from linnet.registry.locate import BUNDLED
    from linnet.site_builder.build import build_site
    from linnet.site_builder.collect import PackageSource

    folder = nests or BUNDLED
    records = build_index(folder, progress("reading", quiet=quiet))["packages"]
    report = build_site(
        [PackageSource(folder / record["name"], record) for record in records], output, base_url=base_url
    )
    for problem in report.problems:
        click.echo(click.style(str(problem), fg="red"), err=True)
    if not quiet:
        for problem in report.unresolved:
            click.echo(click.style(f"{problem} (shown as text)", fg="yellow"), err=True)
        click.echo(f"{counted(len(report.pages), 'page')}: {report.output / 'index.html'}")
    return FINE if report.ok else PROBLEMS
