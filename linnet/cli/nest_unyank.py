"""`nest unyank`: a yank is taken back."""

from __future__ import annotations

import click

from linnet.cli.codes import FINE
from linnet.cli.frame import quiet_option
from linnet.cli.registry_options import target_option, tell_event, versioned


@click.command("unyank")
@click.argument("version", metavar="NAME@VERSION", callback=versioned)
@click.option("--reason", default="", help="Why; one line.")
@target_option
@quiet_option
def command(version: tuple[str, str], reason: str, registry: str | None, quiet: bool) -> int:
    """Take a yank back.

    Example: nest unyank qwen3-tiny@0.1.0
    """
    from linnet.publishing import open_registry
    from linnet.registry.events import unyank

    name, number = version
    opened = open_registry(registry)
    event = unyank(opened, name, number, reason)
    tell_event(event, f"{name} {number} is not yanked", opened.url, quiet=quiet)
    return FINE
