"""The index of a registry: made of `versions/` and `events/` alone, kept as numbered generations, the newest few.

A generation is created under the number after the newest, if that is free: of two writers one gets it, and the other
begins again from what is there now. What a generation holds depends on nothing but the versions and events that were
published, so writers that saw the same write the same bytes.
"""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from linnet.registry.errors import Problem
from linnet.registry.layout import (
    EVENTS,
    LATEST,
    VERSIONS,
    generation_path,
    listed_events,
    listed_versions,
    name_path,
    package_path,
)
from linnet.registry.package_state import Reader, fold_package
from linnet.registry.record_reader import SCHEMA, RecordError, UnknownSchemaError, canonical
from linnet.registry.records import PACKAGE_BYTES, IndexPackage, IndexRecord, Latest, PackageRecord
from linnet.registry.registry import NO_GENERATION, Generation, Registry
from linnet.registry.store.base import AbsentError, StoreError

KEPT_GENERATIONS = 5
# Removing is a request each, or on the Hub a commit: only who writes every so manieth generation removes, and several.
MOST_GENERATIONS = 2 * KEPT_GENERATIONS
TRIES = 200
PAUSE_SECONDS = (0.01, 0.2)
THREADS = 8
Watch = Callable[[Sequence[Any]], Iterable[Any]]


class BusyError(StoreError):
    """Others wrote so often that this writer never came through; what it published before is published."""


@dataclass(frozen=True, slots=True)
class Written:
    """What this writer knows to be there, whatever lists show: a version, or an event of that number."""

    name: str
    version: str | None = None
    event: int = 0


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What a rebuild found: `changed` is whether the newest generation was not what `versions/` and `events/` give;
    `hints` are the names whose small file was not."""

    generation: Generation
    changed: bool
    hints: tuple[str, ...]
    warnings: tuple[Problem, ...]


def publicize(registry: Registry, written: Written) -> Generation:
    """Let the index and the package's small file say what was written. Returns a generation that has it.

    Raises as `update_index` does.
    """
    generation = update_index(registry, written)
    item = generation.index.get(written.name)
    update_package(registry, written.name, item.package if item is not None else None, written)
    return generation


def update_index(registry: Registry, written: Written | None = None) -> Generation:
    """See to it that the newest generation holds everything that is listed now, and `written`; return it.

    Only what the newest does not know is read. Raises BusyError, StoreError, and UnknownSchemaError where a newer
    version of this program writes the index.
    """
    return _advance(registry, written, afresh=False, watch=iter)[0]


def rebuild_index(registry: Registry, watch: Watch = iter) -> Rebuilt:
    """Make the index anew from every version and event, and every package's small file.

    `watch` is handed the packages' names, and hands them on. Raises as `update_index` does.
    """
    generation, changed, warnings = _advance(registry, None, afresh=True, watch=watch)
    packages = [item.package for item in generation.index.packages]
    if registry.store.writable:
        registry.store.create_all({name_path(package.name): name_document(package.name) for package in packages})
    with ThreadPoolExecutor(THREADS) as pool:
        written = list(pool.map(lambda package: update_package(registry, package.name, package), packages))
    hints = tuple(package.name for package, wrote in zip(packages, written, strict=True) if wrote)
    return Rebuilt(generation, changed, hints, tuple(warnings))


def update_package(
    registry: Registry, name: str, known: PackageRecord | None = None, written: Written | None = None
) -> bool:
    """See to it that `packages/<name>.json` holds all that is listed of a package, and `written`; whether it had to be
    written anew.

    `known` spares reading versions that it lists. Lists again after writing, until nothing was missed. Raises as
    `update_index` does.
    """
    wrote, reader = False, Reader(registry)
    for attempt in range(TRIES):
        versions, last = registry.versions(name), max(registry.event_numbers(name), default=0)
        if written is not None:
            versions, last = _with(written, versions, last)
        if known is None or not _covers(known, versions, last):
            known = fold_package(reader, name, versions, last, known)
        data = known.to_bytes()
        if _small_file(registry, name) == data:
            return wrote
        _pause(attempt)
        registry.store.replace(package_path(name), data)
        wrote = True
    raise _busy(registry, package_path(name))


def check_writable(registry: Registry, name: str) -> None:
    """Ask, before anything of a package is written, for what would only be found out after. Raises StoreError where the
    registry takes no writes, UnknownSchemaError where a newer version of this program keeps its index.
    """
    if not registry.store.writable:
        message = f"The registry {registry.url} takes no writes."
        help = "Name one that you may write to with --registry, or put it first in LINNET_REGISTRY."
        raise StoreError([Problem("registry.read-only", registry.url, message, help)])
    _newest(registry)
    _small_file(registry, name)


def point_at(registry: Registry, generation: Generation) -> None:
    """Let `index/latest.json` name a generation. Raises StoreError."""
    wanted = Latest(generation.number, generation.sha256)
    if generation.number and registry.latest() != wanted:
        registry.store.replace(LATEST, wanted.to_bytes())


def name_document(name: str) -> bytes:
    """The file that gives a name to one package."""
    return canonical({"schema": SCHEMA, "name": name})


def _advance(
    registry: Registry, written: Written | None, *, afresh: bool, watch: Watch
) -> tuple[Generation, bool, list[Problem]]:
    reader, wrote = Reader(registry), False
    for attempt in range(TRIES):
        # Before the lists: what is published after them finds this number taken.
        previous = _newest(registry)
        everything = afresh or previous.sha256 == ""
        record = _build(reader, previous.index, written, everything, watch if attempt == 0 else iter)
        data = record.to_bytes()
        digest = hashlib.sha256(data).hexdigest()
        if digest == previous.sha256:
            point_at(registry, previous)
            return previous, wrote, reader.warnings
        made = Generation(previous.number + 1, digest, record)
        if registry.store.create(generation_path(made.number), data):
            wrote = True
            point_at(registry, made)
            numbers = registry.generations()
            if max(numbers, default=0) <= made.number:
                _remove_old(registry, made.number, numbers)
                return made, True, reader.warnings
        _pause(attempt)
    raise _busy(registry, generation_path(previous.number + 1))


def _newest(registry: Registry) -> Generation:
    """The newest generation; with no digest and no packages where it is damaged, so that it is made anew."""
    try:
        return registry.index()
    except UnknownSchemaError:
        raise
    except (RecordError, AbsentError):
        return Generation(registry.newest_generation(), "", NO_GENERATION.index)


def _build(reader: Reader, previous: IndexRecord, written: Written | None, afresh: bool, watch: Watch) -> IndexRecord:
    """The index of all that is listed, of what `previous` knows, should the lists lag behind, and of `written`.

    With `afresh` nothing is taken from `previous` but the names of versions, and each is looked up.
    """
    known = {item.package.name: item for item in previous.packages}
    versions = listed_versions(reader.registry.store.list(VERSIONS))
    events = listed_events(reader.registry.store.list(EVENTS))

    def build(name: str) -> IndexPackage | None:
        before, listed = known.get(name), versions.get(name, [])
        last = max(events.get(name, ()), default=0)
        if before is not None:
            listed = [*listed, *(entry.version for entry in before.package.versions)]
            last = max(last, before.package.events)
        if written is not None and written.name == name:
            listed, last = _with(written, listed, last)
        if before is not None and not afresh and _covers(before.package, listed, last):
            return before
        package = fold_package(reader, name, listed, last, None if afresh or before is None else before.package)
        summary = None if afresh or before is None else before.summary
        return IndexPackage(package, reader.summary(package, summary)) if package.versions else None

    names = sorted({*known, *versions, *((written.name,) if written is not None else ())})
    with ThreadPoolExecutor(THREADS) as pool:
        packages = list(watch(_Sized(pool.map(build, names), len(names))))
    return IndexRecord(tuple(package for package in packages if package is not None))


def _with(written: Written, versions: list[str], last_event: int) -> tuple[list[str], int]:
    more = [written.version] if written.version is not None else []
    return [*versions, *more], max(last_event, written.event)


class _Sized(Sequence[Any]):
    """Results as they come, with their number, for who shows progress; walked through once."""

    def __init__(self, results: Iterable[Any], length: int) -> None:
        self.results, self.length = results, length

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Any:
        return iter(self.results)

    def __getitem__(self, index: Any) -> Any:
        raise TypeError("results come in order")


def _covers(package: PackageRecord, versions: Iterable[str], last_event: int) -> bool:
    """Whether nothing need be read to know the package: what an unknown schema hid may be readable by now."""
    if package.omitted or package.unknown_events or not all(entry.usable for entry in package.versions):
        return False
    return last_event <= package.events and {entry.version for entry in package.versions}.issuperset(versions)


def _remove_old(registry: Registry, made: int, numbers: Sequence[int]) -> None:
    if made % KEPT_GENERATIONS == 0 and len(numbers) >= MOST_GENERATIONS:
        for number in numbers[:-KEPT_GENERATIONS]:
            registry.store.remove(generation_path(number))


def _small_file(registry: Registry, name: str) -> bytes | None:
    """The bytes of a package's small file; None where there is none, or where it is damaged and may be replaced."""
    try:
        data = registry.read(package_path(name), PACKAGE_BYTES)
        PackageRecord.from_bytes(data, package_path(name))
    except UnknownSchemaError:
        raise
    except (AbsentError, RecordError):
        return None
    return data


def _pause(attempt: int) -> None:
    """Wait a little, and by chance, so that writers that met do not meet again."""
    if attempt:
        shortest, longest = PAUSE_SECONDS
        time.sleep(random.uniform(0, min(longest, shortest * 2 ** min(attempt, 10))))


def _busy(registry: Registry, path: str) -> BusyError:
    message = f"Others wrote {path} in {registry.url} each time that this program was about to."
    help = "Do the same again, or nest index rebuild once they have finished."
    return BusyError([Problem("registry.busy", path, message, help)])
