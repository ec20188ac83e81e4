"""`nest verify`: is what is kept still what it was?"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from linnet.cli.codes import FINE, PROBLEMS
from linnet.cli.frame import json_option, offline_option, quiet_option
from linnet.cli.output import progress

if TYPE_CHECKING:
    from linnet.registry.client import Client
    from linnet.registry.verify import Verified, Watch


@click.command("verify")
@click.argument("packages", nargs=-1, metavar="[NAME...]")
@click.option("--registry", metavar="URL", help="Hash all that this registry serves; with NAME where it is looked up.")
@click.option("--repair", is_flag=True, help="Set aside what is wrong, and fetch or write it again.")
@click.option(
    "--forget", is_flag=True, help="Forget what was seen of --registry: for one that was made anew on purpose."
)
@offline_option
@json_option
@quiet_option
def command(
    packages: tuple[str, ...],
    registry: str | None,
    repair: bool,
    forget: bool,
    offline: bool,
    as_json: bool,
    quiet: bool,
) -> int:
    """Hash again what is kept: the cache and nest.lock, or the packages NAME, or a whole registry.

    Example: nest verify --registry ~/registry --repair
    """
    from linnet.registry.client import Client

    watch: Watch = progress("hashing", quiet=quiet)
    if forget:
        return _forget(registry, packages, quiet)
    if registry is not None and not packages:
        results = _verify_registries(registry, offline, repair, watch)
    elif packages:
        client = Client(registry, offline=offline or None)
        results = [_verify_package(client, name, repair) for name in packages]
    else:
        results = _verify_here(Client(offline=offline or None), repair, watch)
    if as_json:
        click.echo(json.dumps([item.to_dict() for item in results], indent=1, ensure_ascii=False))
    else:
        for item in results:
            for line in report_lines(item, quiet=quiet):
                click.echo(line)
        if registry is not None and not quiet:
            _tell_trust(registry)
    return FINE if all(item.ok for item in results) else PROBLEMS


def report_lines(item: Verified, *, quiet: bool = False) -> list[str]:
    """A result as a person reads it: what was hashed, then a line for each finding."""
    from linnet.language.words import counted
    from linnet.registry.package import human_size

    lines = [str(problem) for problem in item.problems]
    if item.ok and quiet:
        return []
    state = "all as it should be" if not item.problems else counted(len(item.problems), "problem")
    repaired = f", {item.repaired} repaired" if item.repaired else ""
    head = f"{item.what}: {counted(item.files, 'file')} hashed, {human_size(item.size)}; {state}{repaired}"
    return [head, *(f"  {line}" for line in lines)]


def _tell_trust(registry: str) -> None:
    from linnet.registry.configured import configured_registries
    from linnet.registry.signing import trust_words

    for url in configured_registries(registry):
        click.echo(f"{url}: {trust_words(url)}")


def _verify_registries(registry: str, offline: bool, repair: bool, watch: Watch) -> list[Verified]:
    from linnet.registry.client import Client
    from linnet.registry.configured import configured_registries
    from linnet.registry.resolve import UnreachableError, not_here
    from linnet.registry.signing import checked
    from linnet.registry.verify import verify_registry

    named = Client(registry, offline=offline or None)
    # What is damaged in one may be whole in another that is configured.
    urls = dict.fromkeys((*configured_registries(registry), *configured_registries()))
    others = Client(",".join(urls), offline=offline or None)
    results = []
    for source in named.sources:
        if not source.asked:
            error: UnreachableError = not_here(source.url, source.url)
            raise error
        results.append(verify_registry(checked(source.registry), others, repair=repair, watch=watch))
    return results


def _verify_package(client: Client, name: str, repair: bool) -> Verified:
    from linnet.registry.errors import PackageError, Problem
    from linnet.registry.lock import active_lock
    from linnet.registry.package import name_fault
    from linnet.registry.verify import verify_package

    plain, _, wanted = name.partition("@")
    resolved = client.resolve(plain, wanted or None, active_lock()) if name_fault(plain) is None else None
    if resolved is None:
        message = f"No registry has a package {name!r}."
        help = "Name one of nest list; folders are checked with nest check."
        raise PackageError([Problem("package.unknown", name, message, help)])
    return verify_package(client, resolved, repair=repair)


def _verify_here(client: Client, repair: bool, watch: Watch) -> list[Verified]:
    from linnet.registry.lock import active_lock
    from linnet.registry.verify import verify_cache, verify_lock

    lock = active_lock()
    results = [verify_cache(client, repair=repair, watch=watch)]
    return [*results, verify_lock(client, lock)] if lock is not None else results


def _forget(registry: str | None, packages: tuple[str, ...], quiet: bool) -> int:
    from linnet.registry.configured import configured_registries
    from linnet.registry.memory import Memory

    if registry is None or packages:
        raise click.UsageError("--forget is for one registry: name it with --registry, and no NAME.")
    for url in configured_registries(registry):
        Memory(url).forget()
        if not quiet:
            click.echo(f"What was seen of {url} is forgotten.")
    return FINE
