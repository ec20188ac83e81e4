"""What is said of a package after its publish: yanked versions, aliases, its status. Each is an event with a number.

Numbers have no gaps: an event is created under the number after the last, if that is free; a writer that meets another
there takes the next.
"""

from __future__ import annotations

import dataclasses
import uuid
from datetime import UTC, datetime

from linnet.registry.bench_reader import WrongValueError
from linnet.registry.errors import Problem, RegistryError, bare, nearest, shown
from linnet.registry.generations import Written, check_writable, publicize
from linnet.registry.layout import event_path
from linnet.registry.package import name_fault
from linnet.registry.package_state import Reader, fold_package
from linnet.registry.record_reader import RecordError, alias_fault
from linnet.registry.record_reader import reason as one_line
from linnet.registry.records import STATUSES, EventRecord, PackageRecord
from linnet.registry.registry import Registry
from linnet.registry.semver import version_fault
from linnet.registry.store.base import AbsentError

MOST_ALIASES = 64


class EventError(RegistryError):
    """Something that cannot be said of a package: the version, alias or status is none."""


def yank(registry: Registry, name: str, version: str, reason: str) -> EventRecord | None:
    """Take a version out of what a bare name or a range may mean; who pins it still gets it.

    Returns None where it is yanked already. Raises EventError, StoreError.
    """
    if not reason:
        message = f"A yank of {name} {version} needs a reason, for those who use it."
        raise EventError([Problem("event.reason", "reason", message, "Give one with --reason.")])
    package = _package(registry, name)
    entry = package.entry(_known_version(package, version))
    if entry is not None and entry.yanked:
        return None
    return _say(registry, package, EventRecord(name, 0, "yank", "", "", _reason(reason), version=version))


def unyank(registry: Registry, name: str, version: str, reason: str = "") -> EventRecord | None:
    """Take a yank back; None where there is none. Raises EventError, StoreError."""
    package = _package(registry, name)
    entry = package.entry(_known_version(package, version))
    if entry is not None and not entry.yanked:
        return None
    return _say(registry, package, EventRecord(name, 0, "unyank", "", "", _reason(reason), version=version))


def set_alias(registry: Registry, name: str, alias: str, version: str | None, reason: str = "") -> EventRecord | None:
    """Let `name@alias` mean a version, or nothing where that is None; None where it does already.

    Raises EventError, StoreError.
    """
    if fault := alias_fault(alias):
        message = f"The alias {shown(alias)} {fault}."
        raise EventError([Problem("event.alias", "alias", message, "Write a word such as stable.")])
    package = _package(registry, name)
    if version is not None:
        _known_version(package, version)
        if len(package.aliases) >= MOST_ALIASES and alias not in package.aliases:
            message = f"{name} has {len(package.aliases)} aliases, the most that a package may have."
            raise EventError([Problem("event.alias", "alias", message, "Remove one with nest alias --remove.")])
    elif alias not in package.aliases:
        known = ", ".join(package.aliases) or "none"
        message = f"{name} has no alias {shown(alias)}."
        raise EventError([Problem("event.alias", "alias", message, f"Its aliases: {known}.")])
    if package.aliases.get(alias) == version:
        return None
    event = EventRecord(name, 0, "alias", "", "", _reason(reason), version=version, alias=alias)
    return _say(registry, package, event)


def set_status(registry: Registry, name: str, status: str, reason: str = "") -> EventRecord | None:
    """Say what the package is to its users: one of STATUSES. None where it is that, for that reason, already.

    Raises EventError, StoreError.
    """
    if status not in STATUSES:
        message = f"{shown(status)} is no status; the nearest is {nearest(status, STATUSES)}."
        raise EventError([Problem("event.status", "status", message, f"Write one of {', '.join(STATUSES)}.")])
    package = _package(registry, name)
    if (package.status, package.status_reason) == (status, reason):
        return None
    return _say(registry, package, EventRecord(name, 0, "status", "", "", _reason(reason), status=status))


def package_now(registry: Registry, name: str) -> PackageRecord | None:
    """A package as its versions and events are listed at this moment; None where none are. Raises StoreError."""
    versions = registry.versions(name)
    if not versions:
        return None
    try:
        known = registry.package(name)
    except RecordError:
        known = None
    return fold_package(Reader(registry), name, versions, max(registry.event_numbers(name), default=0), known)


def _package(registry: Registry, name: str) -> PackageRecord:
    package = package_now(registry, name) if name_fault(name) is None else None
    if package is None:
        message = f"{registry.url} has no package {shown(name)}."
        raise EventError([Problem("registry.unknown", bare(name), message, "nest list shows what it has.")])
    return package


def _known_version(package: PackageRecord, version: str) -> str:
    if version_fault(version) is None and package.entry(version) is not None:
        return version
    known = [entry.version for entry in package.versions]
    close = nearest(version, known)
    message = f"{package.name} has no version {shown(version)}."
    raise EventError([Problem("registry.unknown", package.name, message, f"The nearest is {close}.")])


def _reason(text: str) -> str:
    try:
        return one_line(text)
    except WrongValueError as wrong:
        help = "Say it shorter, on one line."
        raise EventError([Problem("event.reason", "reason", f"The reason must be {wrong}.", help)]) from None


def _say(registry: Registry, package: PackageRecord, event: EventRecord) -> EventRecord:
    """Write the event under the next number, then the index and the package's small file."""
    check_writable(registry, package.name)
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    event = dataclasses.replace(event, number=package.events + 1, at=now, event_id=uuid.uuid4().hex)
    while not _create(registry, event):
        event = dataclasses.replace(event, number=event.number + 1)
    publicize(registry, Written(package.name, event=event.number))
    return event


def _create(registry: Registry, event: EventRecord) -> bool:
    """Whether the event has its number now: created, or found there from a try whose answer was lost."""
    path = event_path(event.name, event.number)
    if registry.store.create(path, event.to_bytes()):
        return True
    try:
        return registry.event(event.name, event.number).event_id == event.event_id
    except (AbsentError, RecordError):
        return False
