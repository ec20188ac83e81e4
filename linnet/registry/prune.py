"""What a registry can do without: old generations of its index, and objects that no version has."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from linnet.registry.bench_reader import WrongValueError, mapping, sha256, utc_time
from linnet.registry.errors import Problem, RegistryError
from linnet.registry.generations import KEPT_GENERATIONS, point_at
from linnet.registry.layout import (
    INDEX,
    OBJECTS,
    VERSIONS,
    generation_path,
    listed_versions,
    object_digest,
    object_path,
)
from linnet.registry.record_reader import SCHEMA, RecordError, canonical, open_document
from linnet.registry.records import INDEX_BYTES
from linnet.registry.registry import Registry
from linnet.registry.store.base import AbsentError

# When each orphan was first seen as one: stores do not tell how old a file is, and clocks differ.
MARKS = f"{INDEX}orphans.json"
NO_MARKS: Mapping[str, str] = {}
# Objects that are removed before versions are listed once more, and are kept here until then.
BATCH = 32


class PruneError(RegistryError):
    """A registry of which it cannot be told what it can do without."""


@dataclass(frozen=True, slots=True)
class Pruned:
    """What was removed, or would be: `generations` by number, `objects` by digest; `waiting` are orphans too young."""

    generations: tuple[int, ...]
    objects: tuple[str, ...]
    waiting: tuple[str, ...]


def prune(
    registry: Registry,
    *,
    keep: int = KEPT_GENERATIONS,
    orphans: timedelta | None = None,
    dry_run: bool = False,
    now: datetime | None = None,
) -> Pruned:
    """Remove all generations but the newest `keep`, at least 1; with `orphans` also objects that no version has.

    An orphan is removed by a prune at least `orphans` after the one that first saw it: what a publish under way has
    written is an orphan until its version is there. One that a version has by the time it is gone is put back. Raises
    StoreError, RecordError where the newest generation is damaged, PruneError where a version's record cannot be read,
    since its objects would be taken for orphans.
    """
    generations = tuple(registry.generations()[: -max(keep, 1)])
    removed: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    if orphans is not None:
        moment = now or datetime.now(UTC)
        marks, needed = _marks(registry), _Needed(registry)
        seen = {digest: marks.get(digest, _written(moment)) for digest in _orphans(registry, needed)}
        removed = tuple(digest for digest, first in sorted(seen.items()) if moment - _read(first) >= orphans)
        waiting = tuple(sorted(seen.keys() - set(removed)))
        if not dry_run:
            gone: set[str] = set()
            for start in range(0, len(removed), BATCH):
                gone |= _removed(registry, removed[start : start + BATCH], needed)
            removed = tuple(sorted(gone))
            left = {digest: first for digest, first in seen.items() if digest not in gone}
            if left != marks:
                registry.store.replace(MARKS, canonical({"schema": SCHEMA, "seen": left}))
    if generations and not dry_run:
        # A writer that was killed may have left the hint at one of those that go.
        point_at(registry, registry.index())
        for number in generations:
            registry.store.remove(generation_path(number))
    return Pruned(generations, removed, waiting)


class _Needed:
    """The objects that versions have. A version's record, which never changes, is read once."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self._objects: dict[tuple[str, str], frozenset[str]] = {}

    def digests(self) -> frozenset[str]:
        """Those of all versions that are listed now. Raises PruneError."""
        problems: list[Problem] = []
        for name, versions in listed_versions(self.registry.store.list(VERSIONS)).items():
            for version in versions:
                if (name, version) in self._objects:
                    continue
                try:
                    self._objects[name, version] = frozenset(self.registry.version(name, version).document.objects())
                except RecordError as error:
                    problems += error.problems
        if problems:
            message = "The record of a version cannot be read, so its objects would be taken for orphans."
            help = "No object that it may have was removed."
            raise PruneError([Problem("prune.unreadable", self.registry.url, message, help), *problems])
        return frozenset().union(*self._objects.values())


def _orphans(registry: Registry, needed: _Needed) -> set[str]:
    """Objects that no version has. Objects are listed first: one whose version comes between is no orphan."""
    objects = {digest for path in registry.store.list(OBJECTS) if (digest := object_digest(path)) is not None}
    return objects - needed.digests()


def _removed(registry: Registry, digests: tuple[str, ...], needed: _Needed) -> set[str]:
    """Remove objects, and put back those that a version has come to have meanwhile: its publisher may have read them
    back before they went. Returns those that are gone.
    """
    gone: dict[str, Path] = {}
    with tempfile.TemporaryDirectory(prefix="linnet-prune-") as scratch:
        back = gone
        try:
            for digest in sorted(set(digests) - needed.digests()):
                path, copy = object_path(digest), Path(scratch) / digest
                # Of two that prune at once one removes it.
                with contextlib.suppress(AbsentError):
                    with copy.open("wb") as file:
                        file.writelines(registry.store.stream(path))
                    gone[digest] = copy
                    registry.store.remove(path)
            back = {digest: gone[digest] for digest in gone.keys() & needed.digests()}
        finally:
            if back:
                registry.store.create_all({object_path(digest): copy for digest, copy in back.items()})
    return gone.keys() - back.keys()


def _marks(registry: Registry) -> Mapping[str, str]:
    try:
        table = open_document(registry.read(MARKS, INDEX_BYTES), MARKS)
        seen: Mapping[str, str] = table.take("seen", mapping, NO_MARKS)
        return {sha256(digest): utc_time(first) for digest, first in seen.items()}
    except (AbsentError, RecordError, WrongValueError):
        return {}


def _written(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _read(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
