"""`nest prune`: what a registry can do without."""

from __future__ import annotations

import json

import click

from linnet.cli.codes import FINE
from linnet.cli.frame import json_option, quiet_option
from linnet.cli.registry_options import target_option


@click.command("prune")
@target_option
@click.option(
    "--keep", type=click.IntRange(min=1), default=5, show_default=True, help="Generations of the index that stay."
)
@click.option("--orphans", is_flag=True, help="Also remove objects that no version has, once they are old enough.")
@click.option(
    "--days",
    type=click.FloatRange(min=0),
    default=7,
    show_default=True,
    help="How long before an earlier prune must have seen an orphan, for this one to remove it.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@json_option
@quiet_option
def command(
    registry: str | None, keep: int, orphans: bool, days: float, dry_run: bool, as_json: bool, quiet: bool
) -> int:
    """Remove old generations of a registry's index, and on request objects that no version has.

    Versions, events and what they need are never removed. An object that no version has may belong to a publish that
    is under way: it is remembered, and removed by a later prune.

    Example: nest prune --registry ~/registry --orphans
    """
    from datetime import timedelta

    from linnet.language.words import counted
    from linnet.publishing import open_registry
    from linnet.registry.prune import prune

    opened = open_registry(registry)
    found = prune(opened, keep=keep, orphans=timedelta(days=days) if orphans else None, dry_run=dry_run)
    if as_json:
        result = {
            "registry": opened.url,
            "generations": list(found.generations),
            "objects": list(found.objects),
            "waiting": list(found.waiting),
        }
        click.echo(json.dumps(result, indent=1))
    elif not quiet:
        what = [counted(len(found.generations), "old generation")]
        what += [counted(len(found.objects), "orphan")] if orphans else []
        waiting = f"; {counted(len(found.waiting), 'orphan')} wait for a later prune" if found.waiting else ""
        verb = "would be removed" if dry_run else "removed"
        click.echo(f"{opened.url}: {' and '.join(what)} {verb}{waiting}.")
    return FINE
