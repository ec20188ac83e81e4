"""What a package's versions and events come to: which are yanked, what aliases mean, its status."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from linnet.registry.errors import Problem
from linnet.registry.layout import MOST_UNLISTED, event_path, version_path
from linnet.registry.record_reader import RecordError, UnknownSchemaError
from linnet.registry.records import (
    VERSION_BYTES,
    EventRecord,
    PackageRecord,
    VersionEntry,
    VersionRecord,
)
from linnet.registry.registry import Registry
from linnet.registry.semver import in_order
from linnet.registry.store.base import AbsentError


class Reader:
    """Reads what an index is made of. `warnings` gathers what this program cannot read, each once."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self._summaries: dict[tuple[str, str], Mapping[str, Any]] = {}
        self._warnings: dict[str, Problem] = {}

    @property
    def warnings(self) -> list[Problem]:
        return list(self._warnings.values())

    def entry(self, name: str, version: str) -> VersionEntry | None:
        """A version as its package lists it; None where it is not there after all."""
        path = version_path(name, version)
        try:
            data = self.registry.read(path, VERSION_BYTES)
        except AbsentError:
            return None
        digest = hashlib.sha256(data).hexdigest()
        try:
            record = VersionRecord.from_bytes(data, path)
        except UnknownSchemaError as error:
            self._warn(path, error)
            return VersionEntry(version, digest, "", schema=error.schema)
        except RecordError as error:
            self._warn(path, error)
            return VersionEntry(version, digest, "", schema=0)
        if (record.name, record.version) != (name, version):
            message = f"{path} is the record of {record.name} {record.version}, and is passed over."
            self._warnings[path] = Problem("registry.misplaced", path, message, "The registry's copy is damaged.")
            return VersionEntry(version, digest, "", schema=0)
        self._summaries[name, version] = summary_of(record)
        return VersionEntry(version, digest, record.published)

    def event(self, name: str, number: int) -> EventRecord | None:
        """An event; None where this program cannot read it."""
        try:
            return self.registry.event(name, number)
        except (RecordError, AbsentError) as error:
            self._warn(event_path(name, number), error)
            return None

    def summary(self, package: PackageRecord, known: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """What the index says of a package's newest version; `known` is what it said before."""
        usable = [entry for entry in package.versions if entry.usable]
        entry = package.newest() or (usable[-1] if usable else None)
        if entry is None:
            return None
        if known is not None and known.get("version") == entry.version:
            return known
        found = self._summaries.get((package.name, entry.version))
        return found if found is not None else summary_of(self.registry.version(package.name, entry.version).document)

    def _warn(self, path: str, error: RecordError | AbsentError) -> None:
        first = error.problems[0]
        message = f"{first.message.rstrip('.')}; it is passed over, and kept."
        self._warnings[path] = dataclasses.replace(first, message=message)


def summary_of(record: VersionRecord) -> dict[str, Any]:
    """What the index says of a version: see `IndexPackage`."""
    return {
        "version": record.version,
        "model": record.card.get("model", {}),
        "parameter_count": record.record.get("parameter_count"),
        "files_size": sum(file.size for file in record.files),
        "weights_size": sum(file.size for file in record.weights.files),
    }


def fold_package(
    reader: Reader, name: str, versions: Iterable[str], last_event: int, known: PackageRecord | None
) -> PackageRecord:
    """A package as its versions and its events 1 to `last_event` make it.

    The records of versions that `known` lists are not read again: they never change. Raises RecordError where more
    than MOST_UNLISTED of the events are not there.
    """
    before = {entry.version: entry for entry in known.versions if entry.usable} if known is not None else {}
    entries: dict[str, VersionEntry] = {}
    for version in in_order(set(versions)):
        entry = before.get(version) or reader.entry(name, version)
        if entry is not None:
            entries[version] = dataclasses.replace(entry, yanked=False, reason="")
    aliases: dict[str, str] = {}
    status, status_reason, unknown = "active", "", []
    for number in range(1, last_event + 1):
        event = reader.event(name, number)
        if event is None:
            unknown.append(number)
            if len(unknown) > MOST_UNLISTED:
                raise _unbelievable(reader.registry, name, last_event)
        elif event.kind == "status":
            status, status_reason = event.status or status, event.reason
        elif event.kind == "alias":
            aliases.pop(event.alias or "", None)
            if event.alias and event.version is not None:
                aliases[event.alias] = event.version
        elif event.version in entries:
            yanked = event.kind == "yank"
            entry = entries[event.version]
            entries[event.version] = dataclasses.replace(entry, yanked=yanked, reason=event.reason if yanked else "")
    return PackageRecord(
        name=name,
        versions=tuple(entries.values()),
        aliases=dict(sorted(aliases.items())),
        status=status,
        status_reason=status_reason,
        events=last_event,
        unknown_events=tuple(unknown),
    )


def _unbelievable(registry: Registry, name: str, last_event: int) -> RecordError:
    message = f"{registry.url} says that {name} has {last_event} events, and more than {MOST_UNLISTED} are not there."
    help = "The registry's copy is damaged: tell whoever keeps it (nest verify --registry)."
    return RecordError([Problem("registry.damaged", name, message, help)])
