"""One registry as a client reads it: which version a name means there, and nothing older than what was seen before."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from linnet.registry.cache import Cache, write_whole
from linnet.registry.configured import default_registry
from linnet.registry.errors import PATH_CHARACTERS, PackageError, Problem, RegistryError, bare, nearest, shown
from linnet.registry.layout import generation_path, object_path, package_path, version_path
from linnet.registry.memory import Memory, SeenPackage, is_local, registry_key
from linnet.registry.package_state import Reader, fold_package
from linnet.registry.record_reader import RecordError, alias_fault
from linnet.registry.records import (
    INDEX_BYTES,
    PACKAGE_BYTES,
    VERSION_BYTES,
    IndexRecord,
    PackageRecord,
    VersionEntry,
    VersionRecord,
)
from linnet.registry.registry import NO_GENERATION, Generation, Registry
from linnet.registry.semver import version_fault
from linnet.registry.signing import trust_root, trusted
from linnet.registry.store.base import AbsentError, StoreError

# Which generation of the index was the newest; no package has a name that begins with a dot.
INDEX_NAME = ".index"
# Names less alike than this were hardly meant.
ALIKE = 0.5


class UnresolvedError(PackageError):
    """A registry has the package, and not what was asked of it: no such version or alias, or none that may be used."""


class RefusedError(RegistryError):
    """What a registry gives must not be used: a package in quarantine, a state older than one that was seen, a version
    that was changed. No other registry is asked then."""


class UnreachableError(RegistryError):
    """No registry could answer, or offline is set and what is asked for is not on this machine."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """A version of a package in a registry.

    `sha256` is that of the record's bytes. `package` is what the registry says of the package now, or said last; None
    where it was never asked. `notes` are what the user should know before going on.
    """

    registry: str
    record: VersionRecord
    sha256: str
    package: PackageRecord | None = None
    notes: tuple[Problem, ...] = ()


class Source:
    """A registry by its address. With `offline`, one that is not a folder of this machine is not asked.

    Raises SignatureError where a trust root is named and cannot be read.
    """

    def __init__(self, url: str, cache: Cache, *, offline: bool = False) -> None:
        self.url = url
        self.cache = cache
        root = trust_root(url)
        under = root.key if root is not None else ""
        self.memory = Memory(url, under)
        self._kept = cache.root / "registries" / registry_key(url) / under
        self.asked = is_local(url) or not offline
        self._registry: Registry | None = None

    @property
    def registry(self) -> Registry:
        """The registry itself. Raises StoreError for an address that is none, and for a folder that is not there."""
        if self._registry is None:
            # Imported where it is needed: what is pinned and here is spared the HTTP stack.
            from linnet.registry.store.open import open_store

            store = open_store(self.url)
            if is_local(self.url) and self.url != str(default_registry()):
                folder = getattr(store, "folder", None)
                if isinstance(folder, Path) and not folder.is_dir():
                    message = f"There is no registry {shown(self.url, PATH_CHARACTERS)}: that folder does not exist."
                    help = "Correct --registry or LINNET_REGISTRY; nest publish makes one."
                    raise StoreError([Problem("registry.absent", bare(self.url), message, help)])
            self._registry = Registry(trusted(store, self.url))
        return self._registry

    def resolve(self, name: str, wanted: str | None, pinned: str | None = None) -> Resolved | None:
        """The version that `name@wanted` means here; None where the registry has no package of that name.

        `pinned` is the sha256 that the version's record must have. A version that is wanted by its number, was seen
        before and is on this machine is not asked for, unless the registry is a folder. Raises UnresolvedError,
        RefusedError, UnreachableError, RecordError, StoreError.
        """
        exact = wanted is not None and version_fault(wanted) is None
        if exact and wanted is not None and not is_local(self.url):
            digest = pinned or self.memory.package(name).versions.get(wanted)
            data = self.cache.read(digest) if digest else None
            if digest and data is not None:
                return self._resolved(_version(name, wanted, data, digest), digest, self.last_said(name))
        package = self.package(name)
        if package is None:
            return self._unlisted(name, wanted, None, pinned) if exact and wanted and self.asked else None
        self._refuse_quarantined(package)
        entry = package.entry(wanted) if exact and wanted is not None else self._chosen(package, wanted)
        if entry is None:
            assert wanted is not None
            found = self._unlisted(name, wanted, package, pinned) if self.asked else None
            if found is None:
                raise self._no_version(package, wanted)
            return found
        if not entry.usable:
            raise self._unusable(package, entry)
        return self._resolved(self.record(name, entry.version, pinned or entry.sha256), pinned or entry.sha256, package)

    def package(self, name: str) -> PackageRecord | None:
        """What the registry says of a package, brought up to what was seen before; None where it has none.

        Offline it is what it said last. Raises RefusedError, RecordError, StoreError.
        """
        seen = self.memory.package(name)
        if not self.asked:
            return self.last_said(name)
        package = self._caught_up(name, self._fetched(name), seen)
        if package is not None:
            known = {entry.version: entry.sha256 for entry in package.versions}
            self.memory.saw_package(name, known, package.events)
        return package

    def record(self, name: str, version: str, sha256: str) -> VersionRecord:
        """The record of a version, whose bytes have that digest. Raises UnreachableError, RecordError, StoreError."""
        path = version_path(name, version)
        data = self.cache.read(sha256)
        if data is None:
            if not self.asked:
                raise not_here(f"{name} {version}", f"{name}@{version}")
            data = self.registry.read(path, VERSION_BYTES)
            got = hashlib.sha256(data).hexdigest()
            if got != sha256:
                message = f"{path} in {self.url} has the sha256 {got} instead of {sha256}, and was not used."
                help = "Ask another registry, or tell whoever keeps this one (nest verify --registry)."
                raise RecordError([Problem("registry.wrong-bytes", path, message, help)])
            self.cache.add(data)
        return _version(name, version, data, sha256)

    def index(self) -> Generation:
        """The newest index; offline and of a registry that is not a folder, the newest that is on this machine.

        Raises RefusedError where it is older than one that was seen, RecordError, StoreError, UnreachableError.
        """
        if not self.asked:
            return self._kept_index()
        found = self._cached_generation() or self._hinted_generation()
        seen = self.memory.generation()
        if found.number < seen:
            message = (
                f"{self.url} shows generation {found.number} of its index, and this machine has seen generation {seen}."
            )
            raise self._gone_back("index", message)
        self.memory.saw_generation(found.number)
        with contextlib.suppress(OSError):
            write_whole(self._kept / INDEX_NAME, json.dumps([found.number, found.sha256]).encode())
        return found

    def stream(self, sha256: str, start: int) -> Iterator[bytes]:
        """The bytes of an object from `start` on, as the registry has them. Raises StoreError."""
        return self.registry.store.stream(object_path(sha256), start)

    def _cached_generation(self) -> Generation | None:
        """The newest index, where it is the one that the registry's hint names and is here; None otherwise."""
        hint = self.registry.latest()
        if hint is None:
            return None
        data = self.cache.read(hint.sha256)
        if data is None:
            with contextlib.suppress(AbsentError):
                data = self.registry.read(generation_path(hint.generation), INDEX_BYTES)
        if data is None or hashlib.sha256(data).hexdigest() != hint.sha256:
            return None
        try:
            self.registry.read(generation_path(hint.generation + 1), INDEX_BYTES)
        except AbsentError:
            with contextlib.suppress(OSError):
                self.cache.add(data)
            return Generation(hint.generation, hint.sha256, IndexRecord.from_bytes(data, self.url))
        return None

    def _hinted_generation(self) -> Generation:
        """The newest index, as the registry finds it; what its hint says of the same generation must be true."""
        hint, found = self.registry.latest(), self.registry.index()
        if hint is not None and hint.generation == found.number and hint.sha256 != found.sha256:
            path = generation_path(found.number)
            message = f"{path} in {self.url} does not have the sha256 {hint.sha256} that index/latest.json gives."
            help = "Whoever keeps it can make the index anew: nest index rebuild."
            raise RecordError([Problem("registry.wrong-bytes", path, message, help)])
        return found

    def _kept_index(self) -> Generation:
        try:
            number, sha256 = json.loads((self._kept / INDEX_NAME).read_bytes())
            data = self.cache.read(str(sha256))
            if data is not None:
                return Generation(int(number), str(sha256), IndexRecord.from_bytes(data, self.url))
        except (OSError, ValueError, TypeError, RecursionError):
            # A file that is not as it was written counts as none.
            return NO_GENERATION
        return NO_GENERATION

    def _resolved(self, record: VersionRecord, sha256: str, package: PackageRecord | None) -> Resolved:
        notes = []
        name, version = record.name, record.version
        if package is not None:
            self._refuse_quarantined(package)
            entry = package.entry(version)
            if entry is not None and entry.yanked:
                newest = package.newest()
                message = f"{name} {version} was yanked{_because(entry.reason)}."
                help = f"Move to {newest.version}, the newest." if newest else "No other version of it can be used."
                notes.append(Problem("package.yanked", name, message, help))
            if package.status in ("archived", "deprecated"):
                message = f"{name} is {package.status}{_because(package.status_reason)}."
                notes.append(Problem(f"package.{package.status}", name, message, "It loads all the same."))
        self.memory.saw_package(name, {version: sha256}, 0)
        return Resolved(self.url, record, sha256, package, tuple(notes))

    def _refuse_quarantined(self, package: PackageRecord) -> None:
        if package.status == "quarantined":
            message = f"{package.name} is in quarantine in {self.url}{_because(package.status_reason)}."
            help = "It cannot be loaded until that is lifted; ask whoever keeps the registry."
            raise RefusedError([Problem("package.quarantined", package.name, message, help)])

    def _chosen(self, package: PackageRecord, wanted: str | None) -> VersionEntry | None:
        """The version that a bare name or an alias means; None for what is no alias."""
        newest = package.newest()
        if wanted is None:
            if newest is not None:
                return newest
            message = f"No version of {package.name} in {self.url} can be taken for the name alone: all are yanked."
            help = f"Name one with its number to take it all the same: {_names(package)}."
            if any(not entry.usable for entry in package.versions):
                message = f"No version of {package.name} in {self.url} can be read by this program."
                help = "Install a newer linnet-nest."
            raise UnresolvedError([Problem("package.no-version", package.name, message, help)])
        version = package.aliases.get(wanted)
        entry = package.entry(version) if version is not None else None
        if version is not None and entry is None:
            message = f"{package.name}@{wanted} means {version} in {self.url}, which has no such version."
            raise UnresolvedError(
                [Problem("package.unknown-version", package.name, message, f"It has {_names(package)}.")]
            )
        if entry is not None and entry.yanked:
            message = f"{package.name}@{wanted} means {entry.version}, which was yanked{_because(entry.reason)}."
            help = f"Name {package.name}@{newest.version}, the newest." if newest else "Name a version by its number."
            raise UnresolvedError([Problem("package.yanked", package.name, message, help)])
        return entry

    def _unlisted(self, name: str, version: str, package: PackageRecord | None, pinned: str | None) -> Resolved | None:
        """A version that the package's small file does not list, since that lags behind or has no room; else None."""
        if version_fault(version) is not None:
            return None
        try:
            data = self.registry.read(version_path(name, version), VERSION_BYTES)
        except AbsentError:
            return None
        sha256 = hashlib.sha256(data).hexdigest()
        # Also of a version that the small file has no room for, what was seen holds.
        seen = self.memory.package(name).versions.get(version)
        if (pinned or seen or sha256) != sha256:
            raise self._changed(name, version)
        record = _version(name, version, data, sha256)
        with contextlib.suppress(OSError):
            self.cache.add(data)
        return self._resolved(record, sha256, package)

    def _no_version(self, package: PackageRecord, wanted: str) -> UnresolvedError:
        names = [entry.version for entry in package.versions if not entry.yanked] + list(package.aliases)
        close = nearest(wanted, names, alike=ALIKE)
        help = f"The nearest is {close}; " if close else ""
        what = "version or alias"
        if version_fault(wanted) is None:
            what = "version"
        elif alias_fault(wanted) is None:
            what = "alias"
        message = f"{package.name} has no {what} {shown(wanted)} in {self.url}."
        help += f"it has {_names(package)}."
        help = help[0].upper() + help[1:]
        return UnresolvedError([Problem(f"package.unknown-{what.split()[0]}", package.name, message, help)])

    def _unusable(self, package: PackageRecord, entry: VersionEntry) -> UnresolvedError:
        message = f"{package.name} {entry.version} in {self.url} was written by a newer program, or is damaged."
        help = "Install a newer linnet-nest, or name another version."
        return UnresolvedError([Problem("package.unusable-version", package.name, message, help)])

    # What was seen before

    def _caught_up(self, name: str, package: PackageRecord | None, seen: SeenPackage) -> PackageRecord | None:
        """The package with all that was seen of it: its small file may lag behind, a registry may not."""
        known = {entry.version: entry.sha256 for entry in package.versions} if package is not None else {}
        for version, sha256 in known.items():
            if seen.versions.get(version, sha256) != sha256:
                raise self._changed(name, version)
        missing = {version: sha256 for version, sha256 in seen.versions.items() if version not in known}
        omitted, events = (package.omitted, package.events) if package is not None else (0, 0)
        if len(missing) <= omitted and events >= seen.events:
            return package
        reader = Reader(self.registry)
        for version, sha256 in missing.items():
            entry = reader.entry(name, version)
            if entry is None:
                message = f"{self.url} no longer has {name} {version}, which this machine has seen there."
                raise self._gone_back(name, message)
            if entry.sha256 != sha256:
                raise self._changed(name, version)
        last = max(events, seen.events)
        if any(not self._has_event(name, number) for number in range(events + 1, last + 1)):
            message = f"{self.url} no longer has event {last} of {name}, which this machine has seen there."
            raise self._gone_back(name, message)
        return fold_package(reader, name, {**known, **missing}, last, package)

    def _has_event(self, name: str, number: int) -> bool:
        try:
            self.registry.event(name, number)
        except AbsentError:
            return False
        except RecordError:
            # There, though not for this program.
            return True
        return True

    def _changed(self, name: str, version: str) -> RefusedError:
        message = f"{name} {version} in {self.url} is not what it was: a published version never changes."
        return self._gone_back(name, message, "package.changed")

    def _gone_back(self, where: str, message: str, kind: str = "registry.older") -> RefusedError:
        help = (
            "Ask whoever keeps it; if it was made anew on purpose, forget what was seen: "
            f"nest verify --registry {self.url} --forget."
        )
        return RefusedError([Problem(kind, where, message, help)])

    # The package's small file, as it was read last

    def _fetched(self, name: str) -> PackageRecord | None:
        path = package_path(name)
        tag, kept = self._read_kept(name)
        try:
            fetched = self.registry.store.read(path, limit=PACKAGE_BYTES, tag=tag if kept is not None else None)
        except AbsentError:
            return None
        data = kept if fetched is None else fetched.data
        assert data is not None
        package = _package(name, data, path)
        if fetched is not None:
            head = json.dumps([fetched.tag, hashlib.sha256(data).hexdigest()]).encode()
            with contextlib.suppress(OSError):
                write_whole(self._kept_path(name), head + b"\n" + data)
        return package

    def last_said(self, name: str) -> PackageRecord | None:
        """What the registry said of a package when it was last asked; None where it never was."""
        data = self._read_kept(name)[1]
        return _package(name, data, package_path(name)) if data is not None else None

    def _read_kept(self, name: str) -> tuple[str | None, bytes | None]:
        """Tag and bytes; a file that is not as it was written counts as none."""
        try:
            head, _, data = self._kept_path(name).read_bytes().partition(b"\n")
            tag, sha256 = json.loads(head)
        except (OSError, ValueError, TypeError, RecursionError):
            return None, None
        if hashlib.sha256(data).hexdigest() != sha256:
            self.cache.set_aside(self._kept_path(name))
            return None, None
        return tag, data

    def _kept_path(self, name: str) -> Path:
        return self._kept / f"{name}.json"


def not_here(what: str, name: str) -> UnreachableError:
    """Something that offline forbids to fetch."""
    message = f"{what} is not on this machine whole, and offline is set."
    return UnreachableError(
        [Problem("registry.offline", name, message, f"Fetch it once while online: nest pull {name}.")]
    )


def _version(name: str, version: str, data: bytes, sha256: str) -> VersionRecord:
    """The record in `data`, which has that digest and must be that of the version."""
    where = version_path(name, version)
    record = VersionRecord.from_bytes(data, where)
    if (record.name, record.version) != (name, version):
        message = f"{where} with the sha256 {sha256} is the record of {record.name} {record.version}."
        help = f"Correct whatever gives {name} {version} that digest: a lock, or the registry's small file."
        raise RecordError([Problem("registry.misplaced", where, message, help)])
    return record


def _package(name: str, data: bytes, where: str) -> PackageRecord:
    record = PackageRecord.from_bytes(data, where)
    if record.name != name:
        message = f"{where} is the document of {record.name}."
        raise RecordError([Problem("registry.misplaced", where, message, "The registry's copy is damaged.")])
    return record


def _because(reason: str) -> str:
    return f" ({reason.rstrip('.')})" if reason else ""


def _names(package: PackageRecord, most: int = 8) -> str:
    """Versions, the newest first, and aliases, as a sentence may name them."""
    versions = [entry.version for entry in reversed(package.versions)]
    names = ", ".join(versions[:most]) + (f" and {len(versions) - most} more" if len(versions) > most else "")
    return names + "".join(f", @{alias} ({version})" for alias, version in sorted(package.aliases.items())[:most])
