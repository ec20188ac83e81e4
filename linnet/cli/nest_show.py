"""`nest show`: what a package is."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import click

from linnet.cli.codes import FINE
from linnet.cli.frame import json_option, offline_option, registry_option
from linnet.cli.output import table

WIDTH = 88


@click.command("show")
@click.argument("package", metavar="NAME")
@registry_option
@offline_option
@json_option
def command(package: str, registry: str | None, offline: bool, as_json: bool) -> int:
    """Show a package: its title and summary, then name, version, count of parameters, family, licence, tags,
    generics, the signatures of its entries, where its weights are, and its files with their sizes; of one in a registry
    also its versions, aliases, status and results.

    NAME is a package's folder, org/name on the Hub, name[@version] of a registry, or one that ships here.

    Example: nest show qwen3-8b-fp8
    """
    from linnet.registry.client import describe
    from linnet.registry.index import index_text, package_record
    from linnet.registry.locate import find_package

    located = find_package(package, offline=offline or None, registry=registry)
    record = package_record(located)
    published = describe(located.registry, located.sha256) if located.registry and located.sha256 else None
    if as_json:
        click.echo(index_text({**record, "registry": published} if published else record), nl=False)
        return FINE
    model = record["card"]["model"]
    click.echo(click.style(model["title"], bold=True))
    click.echo(textwrap.fill(model["summary"], WIDTH) + "\n")
    rows = [
        (label if first else "", line)
        for label, values in [*_facts(record), *(_published(published) if published else [])]
        for i, value in enumerate(values)
        for first, line in ((i == 0 and j == 0, text) for j, text in enumerate(_lines(value)))
    ]
    for line in table(rows):
        click.echo(line)
    if published is not None and published["bench"] is not None:
        for line in _measured(located.folder):
            click.echo(line)
    return FINE


def _lines(value: str) -> list[str]:
    """A value on lines that fit, without what would steer the terminal: a registry's documents are a stranger's."""
    from linnet.registry.listing import terminal_text

    return textwrap.wrap(terminal_text(value), WIDTH)


def _facts(record: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """What is shown: labels, each with its values, one below the other."""
    from linnet.language.words import counted
    from linnet.registry.index import one_line
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
        ("entries", [one_line(entry["signature"]) for entry in record["entries"]]),
        ("weights", [place, *weights["files"]]),
        ("files", [f"{file['path']}, {human_size(file['size'])}" for file in record["files"]]),
    ]


def _published(found: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """What a registry says of the package and of this version."""
    yanked = {item["version"]: f", yanked: {item.get('reason', '')}" for item in found["versions"] if item["yanked"]}
    rows = [("registry", [found["url"], f"record {found['sha256']}, published {found['published']}"])]
    versions = [f"{item['version']}{yanked.get(item['version'], '')}" for item in reversed(found["versions"])]
    if versions:
        rows.append(("versions", versions))
    if found["aliases"]:
        rows.append(("aliases", [f"{alias} = {version}" for alias, version in found["aliases"].items()]))
    if found["status"] != "active":
        rows.append(("status", [": ".join(filter(None, (found["status"], found["status_reason"])))]))
    sections = [item for item in found["check"].get("sections", []) if item.get("status") != "skipped"]
    return [*rows, ("checked", [f"{item['name']}: {item['summary']}" for item in sections])]


def _measured(folder: Path) -> list[str]:
    """The figures that were published with a version, beside those of its baseline."""
    from linnet.cli.nest_bench import report_lines
    from linnet.registry.bench import read_bench

    report = read_bench(folder)
    return ["", *report_lines(report)] if report is not None else []
