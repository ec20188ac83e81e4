"""Processes that publish, read and rebuild, each a fresh one from a server that has imported what they need."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, TypeVar

from publishing import tiny_publication
from store_places import Place
from watched_store import WatchedStore

from linnet.registry.events import yank
from linnet.registry.generations import rebuild_index
from linnet.registry.layout import object_path, parse_version_path
from linnet.registry.publish import PublishError, publish_version
from linnet.registry.registry import Registry
from linnet.registry.store.base import StoreError

Result = TypeVar("Result")
TRIES = 6
_SERVER = multiprocessing.get_context("forkserver")
# What the server can import: it does not have the path of the tests.
_SERVER.set_forkserver_preload(["linnet.registry.publish", "linnet.registry.store.hub", "obstore.store"])


def start(place: Place, work: Callable[..., None], *arguments: Any) -> BaseProcess:
    """`work(registry, *arguments)` in a process of its own."""
    process = _SERVER.Process(target=_run, args=(place, work, arguments), daemon=True)
    process.start()
    return process


def _run(place: Place, work: Callable[..., None], arguments: Sequence[Any]) -> None:
    # The server was started before the place was made.
    os.environ.update(place.environment)
    work(Registry(place.open()), *arguments)


def publish(registry: Registry, folder: Path, name: str, version: str) -> None:
    """Publish a tiny package."""
    publish_version(registry, tiny_publication(folder, name, version))


def yank_version(registry: Registry, folder: Path, name: str, version: str) -> None:
    """Yank a version."""
    yank(registry, name, version, "killed for it")


def killed_at(registry: Registry, work: Callable[..., None], arguments: Sequence[Any], at: int) -> None:
    """`work`, killed by SIGKILL before its operation number `at` on the store, from 0; where it has fewer, it ends."""
    count = 0

    def tell(when: str, operation: str, path: str) -> None:
        nonlocal count
        if when == "before":
            if count == at:
                os.kill(os.getpid(), signal.SIGKILL)
            count += 1

    work(Registry(WatchedStore(registry.store, tell)), *arguments)


def patiently(work: Callable[[], Result]) -> Result:
    """What a user does whom a registry tells to try again: a machine with so many processes is slow to answer."""
    for _ in range(TRIES - 1):
        try:
            return work()
        except StoreError as error:
            if "again" not in str(error):
                raise
    return work()


def publish_jobs(
    registry: Registry, folder: Path, jobs: Sequence[tuple[str, str, str]], begin: Any, answer: Path
) -> None:
    """Publish every `(name, version, content)`, and write to `answer` which were made, there already, or another's."""
    folder.mkdir()
    begin.wait()
    outcomes: list[tuple[str, str, str, str]] = []
    for name, version, content in jobs:
        publication = tiny_publication(folder, name, version, content)
        try:
            made = patiently(lambda publication=publication: publish_version(registry, publication))
            outcomes.append((name, version, content, "created" if made.created else "there"))
        except PublishError:
            outcomes.append((name, version, content, "taken"))
    answer.write_text(json.dumps(outcomes))


def read_all(registry: Registry, begin: Any, end: Any, answer: Path) -> None:
    """Read index, small files and records again and again: generations never go back, and nothing is lost."""
    begin.wait()
    rounds, generation, known = 0, 0, set[tuple[str, str]]()
    while not end.is_set() or rounds == 0:
        found = patiently(registry.index)
        now = {(item.package.name, entry.version) for item in found.index.packages for entry in item.package.versions}
        assert found.number >= generation, f"generation {found.number} after {generation}"
        assert known <= now, f"generation {found.number} lost {known - now}"
        generation, known = found.number, now
        for name in sorted({name for name, _ in now})[rounds % 7 :: 7]:
            package = patiently(lambda name=name: registry.package(name))
            for entry in package.versions if package is not None else ():
                held = patiently(lambda name=name, entry=entry: registry.version(name, entry.version))
                assert held.sha256 == entry.sha256
        rounds += 1
    answer.write_text(json.dumps(rounds))


def rebuild_again_and_again(registry: Registry, begin: Any, end: Any, answer: Path) -> None:
    """Rebuild the index while others publish."""
    begin.wait()
    rounds = 0
    while not end.is_set() or rounds == 0:
        patiently(lambda: rebuild_index(registry))
        rounds += 1
    answer.write_text(json.dumps(rounds))


def versions_there(registry: Registry) -> dict[tuple[str, str], str]:
    """Every version that the store lists, with its record's sha256. All that it needs must be there, and right."""
    found: dict[tuple[str, str], str] = {}
    listed = set(registry.store.list(""))
    for path in listed:
        named = parse_version_path(path)
        if named is None:
            continue
        held = registry.version(*named)
        found[named] = held.sha256
        assert {object_path(digest) for digest in held.document.objects()} <= listed, f"{path} without its objects"
    return found


def indexed(registry: Registry) -> dict[tuple[str, str], str]:
    """Every version that the newest generation lists, with its record's sha256."""
    packages = [item.package for item in registry.index().index.packages]
    return {(package.name, entry.version): entry.sha256 for package in packages for entry in package.versions}


def settled(registry: Registry) -> None:
    """The index is what a rebuild makes of the versions and events, and so is every small file."""
    rebuilt = rebuild_index(registry)
    again = rebuild_index(registry)
    assert (again.changed, again.hints, again.generation.sha256) == (False, (), rebuilt.generation.sha256)
    assert indexed(registry) == versions_there(registry)


def environment_flag(name: str, default: int, stress: int) -> int:
    """`default`, or `stress` under LINNET_STRESS=1, or what the variable `name` says."""
    stressed = os.environ.get("LINNET_STRESS") == "1"
    return int(os.environ.get(name, stress if stressed else default))
