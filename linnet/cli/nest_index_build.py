"""`nest index build`: read every package and write the index."""

from __future__ import annotations

from pathlib import Path

import click

from linnet.cli.codes import FINE
from linnet.cli.frame import output_option, quiet_option
from linnet.cli.output import progress


@click.command("build")
@click.argument(
    "folder", metavar="[DIR]", default="nests", type=click.Path(exists=True, file_okay=False, path_type=Path)
)
@output_option("index.json", "The file to write.")
@quiet_option
def command(folder: Path, output: Path, quiet: bool) -> int:
    """Write the index of the packages in DIR, by default those in nests.

    Nothing is written where a package does not pass the static check. The Hub is not asked.

    Example: nest index build nests -o index.json
    """
    from linnet.language.words import counted
    from linnet.registry.index import build_index, write_index

    index = build_index(folder, progress("reading", quiet=quiet))
    write_index(index, output)
    if not quiet:
        click.echo(f"{output}: {counted(len(index['packages']), 'package')}.")
    return FINE
