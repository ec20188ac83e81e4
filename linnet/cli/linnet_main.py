"""`linnet`: the language's own commands."""

from __future__ import annotations

from typing import NoReturn

import click

from linnet.cli.frame import LazyGroup, run

COMMANDS = {
    "check": "linnet.cli.linnet_check",
    "fmt": "linnet.cli.linnet_fmt",
    "inspect": "linnet.cli.linnet_inspect",
    "explain": "linnet.cli.linnet_explain",
    "doc": "linnet.cli.linnet_doc",
    "lsp": "linnet.cli.linnet_lsp",
}


@click.group(cls=LazyGroup, modules=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="linnet-nest", prog_name="linnet")
def linnet() -> None:
    """Linnet, a small typed language for neural networks.

    Exit codes: 0 fine, 1 problems found, 2 wrong usage, 3 could not be done.

    Example: linnet check src/lib.linnet
    """


def main() -> NoReturn:
    run(linnet)
