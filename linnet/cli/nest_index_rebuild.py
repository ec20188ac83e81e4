"""`nest index rebuild`: the index of a registry, anew from its versions and events."""

from __future__ import annotations

import json

import click

from linnet.cli.codes import FINE
from linnet.cli.frame import json_option, quiet_option
from linnet.cli.output import progress
from linnet.cli.registry_options import target_option


@click.command("rebuild")
@target_option
@json_option
@quiet_option
def command(registry: str | None, as_json: bool, quiet: bool) -> int:
    """Make a registry's index, and every package's small file, anew from its versions and events.

    Nothing is written where they agree already. What this program cannot read is passed over, named and kept.

    Example: nest index rebuild --registry ~/registry
    """
    from linnet.language.words import counted
    from linnet.publishing import open_registry
    from linnet.registry.generations import rebuild_index

    opened = open_registry(registry)
    found = rebuild_index(opened, progress("reading", quiet=quiet))
    packages = found.generation.index.packages
    versions = sum(len(item.package.versions) for item in packages)
    for warning in found.warnings:
        click.echo(click.style("Warning: ", fg="yellow") + str(warning), err=True)
    if as_json:
        result = {
            "registry": opened.url,
            "generation": found.generation.number,
            "sha256": found.generation.sha256,
            "changed": found.changed,
            "packages": len(packages),
            "versions": versions,
            "rewritten": list(found.hints),
            "warnings": [warning.message for warning in found.warnings],
        }
        click.echo(json.dumps(result, indent=1, ensure_ascii=False))
    elif not quiet:
        size = f"{counted(len(packages), 'package')} with {counted(versions, 'version')}"
        number = found.generation.number
        said = f"generation {number} is new" if found.changed else f"generation {number} was right"
        files = f", {counted(len(found.hints), 'small file')} written anew" if found.hints else ""
        click.echo(f"{opened.url}: {size}; {said}{files}.")
    return FINE
