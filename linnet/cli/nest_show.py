"""`nest show`: what a package is."""

from __future__ import annotations

from typing import Any

import click

from linnet.cli.codes import FINE
from linnet.cli.frame import json_option
from linnet.cli.output import table


@click.command("show")
@click.argument("package", metavar="NAME")
@json_option
def command(package: str, as_json: bool) -> int:
    """Show a package: its card, parameters, entries and files.

    NAME is a package's folder, org/name on the Hub, or the name of a package that ships with this distribution.

    Example: nest show qwen3-8b-fp8
    """
    from linnet.registry.index import index_text, package_record
    from linnet.registry.locate import find_package

    record = package_record(find_package(package))
    click.echo(index_text(record), nl=False) if as_json else _show(record)
    return FINE


def _show(record: dict[str, Any]) -> None:
    from linnet.registry.package import human_size
    from linnet.registry.parameters import human_count

    model, weights = record["card"]["model"], record["weights"]
    click.echo(
        click.style(model["title"], bold=True) + f"  ({record['name']} {record['version'] or ''})".replace(" )", ")")
    )
    click.echo(f"{model['summary']}\n")
    place = f"{weights['repo']} at {weights['revision']}" if weights["repo"] else "beside the card"
    facts = [
        ("parameters", human_count(record["parameter_count"])),
        ("family", model["family"]),
        ("licence", model["license"]),
        ("tags", ", ".join(model.get("tags", []))),
        ("weights", place),
        *[("", file) for file in weights["files"]],
        ("generics", ", ".join(f"{name} = {value}" for name, value in record["generics"].items())),
        ("entries", ", ".join(entry["name"] for entry in record["entries"])),
        *[("files" if i == 0 else "", f"{f['path']}  {human_size(f['size'])}") for i, f in enumerate(record["files"])],
    ]
    for line in table([fact for fact in facts if fact[1]]):
        click.echo(line)
