"""`nest status`: what a package as a whole is to its users."""

from __future__ import annotations

import click

from linnet.cli.codes import FINE
from linnet.cli.frame import quiet_option
from linnet.cli.registry_options import target_option, tell_event

# As `linnet.registry.records` has them, which is not imported for the sake of a usage line.
STATUSES = ("active", "archived", "deprecated", "quarantined")


@click.command("status")
@click.argument("name")
@click.argument("status", type=click.Choice(STATUSES))
@click.option("--reason", default="", help="Why, for those who use it; one line.")
@target_option
@quiet_option
def command(name: str, status: str, reason: str, registry: str | None, quiet: bool) -> int:
    """Say of a package that it is active, archived (no new versions), deprecated (use another) or quarantined (do not
    use it; loading it is refused).

    Example: nest status qwen3-tiny deprecated --reason "use qwen3-tiny-fp8"
    """
    from linnet.publishing import open_registry
    from linnet.registry.events import set_status

    opened = open_registry(registry)
    tell_event(set_status(opened, name, status, reason), f"{name} is {status}", opened.url, quiet=quiet)
    return FINE
