"""`nest show`: what a package is."""

from __future__ import annotations

import textwrap
from typing import Any

import click

from linnet.cli.codes import FINE
from linnet.cli.frame import json_option
from linnet.cli.output import table

WIDTH = 88


@click.command("show")
@click.argument("package", metavar="NAME")
@json_option
def command(package: str, as_json: bool) -> int:
    """Show a package: its title and summary, then name, version, count of parameters, family, licence, tags,
    generics, the signatures of its entries, where its weights are, and its files with their sizes.

    NAME is a package's folder, org/name on the Hub, or the name of a package that ships with this distribution.

    Example: nest show qwen3-8b-fp8
    """
    from linnet.registry.index import index_text, package_record
    from linnet.registry.locate import find_package

    record = package_record(find_package(package))
    if as_json:
        click.echo(index_text(record), nl=False)
        return FINE
    model = record["card"]["model"]
    click.echo(click.style(model["title"], bold=True))
    click.echo(textwrap.fill(model["summary"], WIDTH) + "\n")
    rows = [
        (label if first else "", line)
        for label, values in _facts(record)
        for i, value in enumerate(values)
        for first, line in ((i == 0 and j == 0, text) for j, text in enumerate(textwrap.wrap(value, WIDTH)))
    ]
    for line in table(rows):
        click.echo(line)
    return FINE


def _facts(record: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """What is shown: labels, each with its values, one below the other."""
    from linnet.language.words import counted
    from linnet.registry.package import human_size
    from linnet.registry.parameters import human_count

    tensors = {item["tensor"] for item in record["parameters"] if item["present"]}
    model, weights = record["card"]["model"], record["weights"]
    place = f"{weights['repo']} at {weights['revision']}" if weights["repo"] else "beside the card"
    return [
        ("name", [record["name"]]),
        ("version", [record["version"] or "none"]),
        ("parameters", [f"{human_count(record['parameter_count'])} in {counted(len(tensors), 'tensor')}"]),
        ("family", [model["family"]]),
        ("licence", [model["license"]]),
        ("tags", [", ".join(model.get("tags", []))]),
        ("generics", [", ".join(f"{name} = {value}" for name, value in record["generics"].items())]),
        ("entries", [entry["signature"] for entry in record["entries"]]),
        ("weights", [place, *weights["files"]]),
        ("files", [f"{file['path']}, {human_size(file['size'])}" for file in record["files"]]),
    ]
