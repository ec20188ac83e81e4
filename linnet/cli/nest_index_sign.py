"""`nest index sign`: signatures over what a registry holds."""

from __future__ import annotations

import json
from pathlib import Path

import click

from linnet.cli.codes import FINE
from linnet.cli.frame import json_option, quiet_option
from linnet.cli.registry_options import target_option, telling

SHOWN = 20


@click.command("sign")
@target_option
@click.option(
    "--keys",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    help="The folder of the private keys, and of root.json, the trust root that users are given.",
)
@click.option("--init", is_flag=True, help="Begin: make the keys and the first root.")
@click.option("--refresh", "only_refresh", is_flag=True, help="Only say that what was signed last is still the newest.")
@click.option("--renew-root", "renew", is_flag=True, help="Sign a new root for the keys in the folder, then the rest.")
@click.option(
    "--days",
    type=click.IntRange(min=1, max=365),
    default=7,
    show_default=True,
    help="After how many days clients refuse what was not signed again.",
)
@json_option
@quiet_option
def command(
    registry: str | None,
    keys: Path,
    init: bool,
    only_refresh: bool,
    renew: bool,
    days: int,
    as_json: bool,
    quiet: bool,
) -> int:
    """Sign what a registry holds now, with metadata of The Update Framework.

    --init makes three keys: root.pem, which belongs offline, targets.pem, which signs what is published, and
    refresh.pem, which --refresh needs alone. Look at the changes that are shown: they are what your signature vouches
    for. Needs the extra sign.

    Example: nest index sign --registry ~/registry --keys keys --init
    """
    from linnet.publishing import open_registry
    from linnet.registry import sign

    if init + only_refresh + renew > 1:
        raise click.UsageError("--init, --refresh and --renew-root are three things: name one.")
    opened = open_registry(registry)
    sign.require_tuf()
    say = telling(quiet=quiet)
    if renew:
        sign.renew_root(opened, keys)
    if init:
        done = sign.start_signing(opened, keys, days=days, say=say)
    elif only_refresh:
        done = sign.refresh(opened, keys, days=days)
    else:
        done = sign.sign(opened, keys, days=days, say=say)
    if as_json:
        told = {"registry": done.registry, "timestamp": done.timestamp, "snapshot": done.snapshot}
        click.echo(json.dumps({**told, "expires": done.expires.isoformat(), "changed": list(done.changed)}, indent=1))
    elif not quiet:
        for path in done.changed[:SHOWN]:
            click.echo(f"  {path}")
        if len(done.changed) > SHOWN:
            click.echo(f"  and {len(done.changed) - SHOWN:,} more")
        click.echo(f"{done.registry}: signed until {done.expires:%Y-%m-%d %H:%M} UTC.")
        if init:
            click.echo(f"Give {keys / 'root.json'} to your users, and keep {keys / 'root.pem'} offline.")
    return FINE
