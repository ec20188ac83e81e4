"""`nest list`: which packages there are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from linnet.cli.codes import FINE
from linnet.cli.frame import json_option, nests_option, offline_option, registry_option
from linnet.cli.output import table

if TYPE_CHECKING:
    from linnet.registry.listing import Listed


@click.command("list")
@nests_option
@registry_option
@offline_option
@json_option
def command(nests: Path | None, registry: str | None, offline: bool, as_json: bool) -> int:
    """List packages, one a line: name, newest version, family, licence, title and where it is.

    Those of the registries come first, then those that ship with this distribution.

    Example: nest list
    """
    if nests is not None:
        if registry is not None:
            raise click.UsageError(
                "--nests is a folder and --registry is none of its packages' place: give one of them."
            )
        return _list_folder(nests, as_json)
    from linnet.registry.client import Client
    from linnet.registry.listing import list_packages

    packages = list_packages(Client(registry, offline=offline or None), bundled=registry is None)
    show_listed(packages, as_json)
    return FINE


def show_listed(packages: list[Listed], as_json: bool) -> None:
    """Print packages, for people or for scripts."""
    if as_json:
        click.echo(json.dumps([item.to_dict() for item in packages], indent=1, ensure_ascii=False))
    elif packages:
        rows = [
            (
                item.name,
                item.version or "-",
                item.family,
                item.license,
                item.title + "".join(f" ({word})" for word in _against(item)),
                item.registry or "ships here",
            )
            for item in packages
        ]
        for line in table(rows):
            click.echo(line)


def _against(item: Listed) -> list[str]:
    """What keeps its newest version from being taken, or from being the thing to take."""
    words = [item.status] if item.status != "active" else []
    return [*words, "yanked"] if item.yanked else words


def _list_folder(nests: Path, as_json: bool) -> int:
    from linnet.registry.card import read_card
    from linnet.registry.locate import package_folders

    cards = [read_card(folder) for folder in package_folders(nests)]
    if as_json:
        click.echo(json.dumps([card.to_dict()["model"] for card in cards], indent=1, ensure_ascii=False))
    else:
        for line in table([(c.model.name, c.model.family, c.model.license, c.model.title) for c in cards]):
            click.echo(line)
    return FINE
