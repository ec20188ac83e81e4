"""`nest pull`: packages brought to this machine, with their weights."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from linnet.cli.codes import FINE
from linnet.cli.frame import json_option, offline_option, quiet_option, registry_option
from linnet.cli.output import progress

if TYPE_CHECKING:
    from linnet.registry.pull import Pulled


@click.command("pull")
@click.argument("packages", nargs=-1, metavar="[NAME...]")
@click.option("--lock", is_flag=True, help="Write into ./nest.lock which versions these are, with their digests.")
@click.option("--no-weights", is_flag=True, help="Fetch the package alone: its weights come when they are needed.")
@registry_option
@offline_option
@json_option
@quiet_option
def command(
    packages: tuple[str, ...],
    lock: bool,
    no_weights: bool,
    registry: str | None,
    offline: bool,
    as_json: bool,
    quiet: bool,
) -> int:
    """Fetch packages with their weights and tokenizers, so that they load without a network.

    NAME is name, name[@version] or name[@alias] of a registry, or org/name[@revision] on the Hub. Without one, all that
    nest.lock pins are fetched.

    Example: nest pull qwen3-tiny-fp8 --lock
    """
    from linnet.registry.lock import active_lock
    from linnet.registry.pull import lock_packages, pull_package

    if not packages:
        pinned = None if lock else active_lock()
        if pinned is None or not pinned.packages:
            raise click.UsageError("There is no nest.lock here that pins anything: name what to pull.")
        packages = tuple(pinned.packages)
    settings: dict[str, Any] = {"registry": registry, "offline": offline or None, "weights": not no_weights}
    pulled = [pull_package(name, locked=not lock, **settings) for name in progress("pulling", quiet=quiet)(packages)]
    written = lock_packages([item.located for item in pulled]) if lock else None
    if as_json:
        click.echo(json.dumps([to_dict(item) for item in pulled], indent=1, ensure_ascii=False))
    else:
        for item in pulled:
            click.echo(line(item))
    if written is not None and not quiet:
        click.echo(f"Pinned in {written}.", err=as_json)
    return FINE


def line(item: Pulled) -> str:
    """What was pulled, as a person reads it."""
    from linnet.language.words import counted
    from linnet.registry.package import human_size

    found = item.located
    version = found.version or found.revision or item.card.model.version or ""
    weights = (
        f", {counted(len(item.weights), 'weight file')} of {human_size(item.weights_size)}" if item.weights else ""
    )
    place = f" from {found.registry or found.repo}" if found.registry or found.repo else ""
    files = f"{counted(item.files, 'file')} of {human_size(item.size)}"
    return f"{' '.join(filter(None, (item.card.model.name, version)))}{place}: {files}{weights}, in {found.folder}"


def to_dict(item: Pulled) -> dict[str, Any]:
    """What was pulled, JSON-able."""
    found = item.located
    return {
        "name": item.card.model.name,
        "version": found.version,
        "sha256": found.sha256,
        "registry": found.registry,
        "repo": found.repo,
        "revision": found.revision,
        "folder": str(found.folder),
        "size": item.size,
        "weights": {file: str(path) for file, path in item.weights.items()},
        "weights_size": item.weights_size,
    }
