"""`nest list`: which packages there are."""

from __future__ import annotations

import json
from pathlib import Path

import click

from linnet.cli.codes import FINE
from linnet.cli.frame import json_option, nests_option
from linnet.cli.output import table


@click.command("list")
@nests_option
@json_option
def command(nests: Path | None, as_json: bool) -> int:
    """List packages, one a line: name, family, licence and title.

    Example: nest list
    """
    from linnet.registry.card import read_card
    from linnet.registry.locate import BUNDLED, package_folders

    cards = [read_card(folder) for folder in package_folders(nests or BUNDLED)]
    if as_json:
        click.echo(json.dumps([card.to_dict()["model"] for card in cards], indent=1, ensure_ascii=False))
    elif cards:
        for line in table([(c.model.name, c.model.family, c.model.license, c.model.title) for c in cards]):
            click.echo(line)
    return FINE
