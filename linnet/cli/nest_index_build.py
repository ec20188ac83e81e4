"""`nest index build`: find packages, check what changed and write the index."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from linnet.cli.codes import FINE, PROBLEMS
from linnet.cli.frame import output_option, quiet_option
from linnet.cli.output import progress


class Root(click.Path):
    """A folder that is there, or an organisation on the Hub."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, str) and value.startswith("hf://"):
            return value
        return super().convert(value, param, ctx)


@click.command("build")
@click.argument("roots", nargs=-1, metavar="[ROOT...]", default=["nests"], type=Root(exists=True, file_okay=False))
@output_option("index.json", "The file to write.")
@click.option("--keep-going", is_flag=True, help="Write the index of the packages that pass, though others do not.")
@click.option(
    "--processes",
    type=click.IntRange(min=1),
    metavar="N",
    help="How many processes check packages; by default as many as there are processors.",
)
@click.option("--no-cache", is_flag=True, help="Check every package, also those that have not changed.")
@quiet_option
def command(
    roots: tuple[str, ...], output: Path, keep_going: bool, processes: int | None, no_cache: bool, quiet: bool
) -> int:
    """Write the index of every package under each ROOT, by default those in nests.

    A ROOT is a folder, which is searched to its end, or hf://org, an organisation on the Hub. Of a git checkout, what
    git ignores is passed over. A package that has not changed since it was last indexed here is not checked again.
    Nothing is written where a package does not pass the static check, unless with --keep-going; the exit code is 1
    then too. The Hub is not asked for weights.

    Example: nest index build nests -o index.json
    """
    from linnet.language.words import counted
    from linnet.registry.errors import PackageError
    from linnet.registry.index_build import crawl

    watch = progress("reading", quiet=quiet)
    with crawl(roots, processes=processes, cache=not no_cache, watch=watch) as found:
        if found.problems and not (keep_going and found.jobs):
            raise PackageError(found.problems)
        found.write(output)
    for problem in found.problems:
        click.echo(click.style(str(problem), fg="red"), err=True)
    if not quiet:
        unchanged = len(found.jobs) - found.made
        left = f" {counted(len(found.problems), 'problem')}, so that packages are missing." if found.problems else ""
        again = f" {counted(found.damaged, 'damaged record')} of the cache made again." if found.damaged else ""
        kept = f", {unchanged:,} unchanged" if unchanged > 0 else ""
        click.echo(f"{output}: {counted(len(found.jobs), 'package')}{kept}.{again}{left}")
    return PROBLEMS if found.problems else FINE
