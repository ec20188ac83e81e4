"""What a registry can do without: old generations of its index, and objects that no version has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from linnet.registry.bench_reader import mapping, sha256, utc_time
from linnet.registry.errors import Problem, RegistryError
from linnet.registry.generations import KEPT_GENERATIONS
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
    written is an orphan until its version is there. Raises StoreError, PruneError where a version's record cannot be
    read, since its objects would be taken for orphans.
    """
    generations = tuple(registry.generations()[: -max(keep, 1)])
    removed: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    if orphans is not None:
        moment = now or datetime.now(UTC)
        marks = _marks(registry)
        seen = {digest: marks.get(digest, _written(moment)) for digest in _orphans(registry)}
        removed = tuple(digest for digest, first in sorted(seen.items()) if moment - _read(first) >= orphans)
        waiting = tuple(sorted(seen.keys() - set(removed)))
        if not dry_run:
            # What is still unseen by the versions' list now, not only when the objects were listed.
            gone = set(removed) & _orphans(registry)
            for digest in sorted(gone):
                registry.store.remove(object_path(digest))
            removed = tuple(sorted(gone))
            left = {digest: first for digest, first in seen.items() if digest not in gone}
            if left != marks:
                registry.store.replace(MARKS, canonical({"schema": SCHEMA, "seen": left}))
    if not dry_run:
        for number in generations:
            registry.store.remove(generation_path(number))
    return Pruned(generations, removed, waiting)


def _orphans(registry: Registry) -> set[str]:
    """Objects that no version has. Objects are listed first: one whose version comes between is no orphan."""
    objects = {digest for path in registry.store.list(OBJECTS) if (digest := object_digest(path)) is not None}
    used: set[str] = set()
    problems: list[Problem] = []
    for name, versions in listed_versions(registry.store.list(VERSIONS)).items():
        for version in versions:
            try:
                used.update(registry.version(name, version).document.objects())
            except RecordError as error:
                problems += error.problems
    if problems:
        message = "The record of a version cannot be read, so its objects would be taken for orphans."
        raise PruneError([Problem("prune.unreadable", registry.url, message, "Nothing was removed."), *problems])
    return objects - used


def _marks(registry: Registry) -> Mapping[str, str]:
    try:
        table = open_document(registry.read(MARKS, INDEX_BYTES), MARKS)
        seen: Mapping[str, str] = table.take("seen", mapping, NO_MARKS)
        return {sha256(digest): utc_time(first) for digest, first in seen.items()}
    except (AbsentError, RecordError):
        return {}


def _written(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _read(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
