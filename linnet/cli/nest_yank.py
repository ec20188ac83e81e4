"""`nest yank`: a version is no longer what a name means."""

from __future__ import annotations

import click

from linnet.cli.codes import FINE
from linnet.cli.frame import quiet_option
from linnet.cli.registry_options import target_option, tell_event, versioned


@click.command("yank")
@click.argument("version", metavar="NAME@VERSION", callback=versioned)
@click.option("--reason", required=True, help="Why, for those who use it; one line.")
@target_option
@quiet_option
def command(version: tuple[str, str], reason: str, registry: str | None, quiet: bool) -> int:
    """Take a version out of use: a bare name no longer means it. Who names it exactly still gets it, and is warned.

    Example: nest yank qwen3-tiny@0.1.0 --reason "wrong bindings"
    """
    from linnet.publishing import open_registry
    from linnet.registry.events import yank

    name, number = version
    opened = open_registry(registry)
    event = yank(opened, name, number, reason)
    tell_event(event, f"{name} {number} is yanked", opened.url, quiet=quiet)
    return FINE
