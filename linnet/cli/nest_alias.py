"""`nest alias`: a word that means a version."""

from __future__ import annotations

import click

from linnet.cli.codes import FINE
from linnet.cli.frame import quiet_option
from linnet.cli.registry_options import target_option, tell_event, versioned


@click.command("alias")
@click.argument("alias", metavar="NAME@ALIAS", callback=versioned)
@click.argument("version", required=False)
@click.option("--remove", is_flag=True, help="Let the alias mean nothing.")
@target_option
@quiet_option
def command(alias: tuple[str, str], version: str | None, remove: bool, registry: str | None, quiet: bool) -> int:
    """Let NAME@ALIAS mean a version: stable, say. It may mean another one later, unlike a version.

    Example: nest alias qwen3-tiny@stable 0.1.0
    """
    from linnet.publishing import open_registry
    from linnet.registry.events import set_alias

    name, word = alias
    if remove == (version is not None):
        raise click.UsageError(f"Give the version that {name}@{word} means, or --remove.")
    opened = open_registry(registry)
    event = set_alias(opened, name, word, version)
    said = f"{name}@{word} means nothing" if version is None else f"{name}@{word} means {version}"
    tell_event(event, said, opened.url, quiet=quiet)
    return FINE
