"""`linnet lsp`: the language server, for editors."""

from __future__ import annotations

import logging
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import click

from linnet.cli.codes import COULD_NOT, FINE
from linnet.cli.package_card import card_of

if TYPE_CHECKING:
    from linnet.language.server.concrete import PackageGenerics


@click.command("lsp")
@click.option("--log", type=click.Path(dir_okay=False, path_type=Path), help="Write what the server does to a file.")
def command(log: Path | None) -> int:
    """Serve an editor over stdin and stdout, by the Language Server Protocol.

    Editors start it themselves: diagnostics as you type, types and concrete shapes, definitions, outline, formatting,
    completion. It needs the extra `lsp`.

    Example: linnet lsp --log /tmp/linnet-lsp.log
    """
    try:
        from linnet.language.server.server import create_server
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("pygls", "lsprotocol"):
            raise
        how = "pip install '.[lsp]' in a checkout of Nest"
        click.echo(f"The language server needs pygls, which is not installed: {how}.", err=True)
        return COULD_NOT
    if log is not None:
        logging.basicConfig(filename=log, level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    create_server(version("linnet-nest"), package_generics).start_io()
    return FINE


def package_generics(file: Path) -> PackageGenerics | None:
    """The generics in the card of the package that `file` belongs to; None where there is no card, or a bad one."""
    from linnet.language.server.concrete import PackageGenerics
    from linnet.registry.errors import RegistryError

    try:
        found = card_of(file)
    except (RegistryError, OSError):
        return None
    if found is None:
        return None
    folder, card = found
    source = card.source
    return PackageGenerics(folder / source.path, source.root, card.generics, source.entry, card.check)
