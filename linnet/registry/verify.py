"""Hashing again what is kept: the cache of this machine, the versions that a lock pins, a registry as it is served."""

from __future__ import annotations

import contextlib
import hashlib
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from linnet.language.words import counted
from linnet.registry.cache import Cache, Wanted
from linnet.registry.client import Client, holds, package_wanted
from linnet.registry.errors import Problem, RegistryError, listed
from linnet.registry.fetch import fetch_weights, wrong_digests
from linnet.registry.generations import rebuild_index
from linnet.registry.layout import VERSIONS, listed_versions, object_path, version_path
from linnet.registry.locate import locate
from linnet.registry.lock import Lock
from linnet.registry.package import digest_file
from linnet.registry.package_state import Reader, fold_package
from linnet.registry.record_reader import RecordError
from linnet.registry.records import VERSION_BYTES, IndexPackage, PackageRecord, VersionRecord
from linnet.registry.registry import Registry
from linnet.registry.resolve import Resolved
from linnet.registry.semver import in_order
from linnet.registry.store.base import AbsentError, Store, StoreError
from linnet.registry.weights import locate_weights

Watch = Callable[[Sequence[Any]], Iterable[Any]]


@dataclass(frozen=True, slots=True)
class Verified:
    """What was hashed, `files` and their `size` in bytes, and what was found; `repaired` of the `problems` are gone."""

    what: str
    files: int
    size: int
    problems: tuple[Problem, ...]
    repaired: int = 0

    @property
    def ok(self) -> bool:
        """Whether all is as it should be now."""
        return self.repaired == len(self.problems)

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        problems = [{"kind": p.kind, "where": p.where, "message": p.message, "help": p.help} for p in self.problems]
        return {
            "what": self.what,
            "files": self.files,
            "size": self.size,
            "problems": problems,
            "repaired": self.repaired,
        }


class _Findings:
    """What a verification counts up."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.files = 0
        self.size = 0
        self.problems: list[Problem] = []
        self.left: list[Problem] = []
        self.repaired = 0

    def hashed(self, size: int) -> None:
        self.files += 1
        self.size += size

    def found(self, kind: str, where: str, message: str, help: str, *, repaired: bool = False) -> None:
        problem = Problem(f"verify.{kind}", where, message, "That is repaired." if repaired else help)
        self.problems.append(problem)
        self.repaired += repaired
        if not repaired:
            self.left.append(problem)

    def result(self) -> Verified:
        return Verified(self.what, self.files, self.size, tuple(self.problems), self.repaired)


def verify_cache(client: Client, *, repair: bool = False, watch: Watch = iter) -> Verified:
    """Every file of the cache, and every package's folder made of them.

    With `repair` what is wrong is set aside, and fetched again where a registry has it. `watch` is handed what is to be
    hashed, and hands it on.
    """
    cache = client.cache
    aside = len(list(cache.quarantine.glob("*")))
    found = _Findings(f"the cache {cache.root}" + (f" ({counted(aside, 'file')} set aside before)" if aside else ""))
    help = "Set it aside and fetch it again: nest verify --repair."
    for sha256 in watch(cache.digests()):
        path = cache.path(sha256)
        with contextlib.suppress(FileNotFoundError):
            plain = stat.S_ISREG(path.stat().st_mode)
            size, got = digest_file(path) if plain else (0, "")
            found.hashed(size)
            if got != sha256:
                repaired = repair and _refetched(client, path, Wanted(sha256, f"the object {sha256}"))
                message = f"{path} has the sha256 {got}." if plain else f"{path} is no file."
                found.found("object", sha256, message, help, repaired=repaired)
    for folder in sorted(cache.root.glob("versions/[0-9a-f][0-9a-f]/*/*")):
        resolved = _kept_version(cache, folder.parent.name)
        right = resolved is not None and holds(folder, package_wanted(resolved))
        found.files += len(package_wanted(resolved)) if resolved is not None else 0
        if not right:
            message = f"{folder} is not what its version's record says."
            if repair:
                # It is made again when it is next asked for.
                cache.set_aside(folder.parent)
            found.found("folder", folder.name, message, help, repaired=repair)
    return found.result()


def verify_package(client: Client, resolved: Resolved, *, repair: bool = False) -> Verified:
    """A version on this machine: its folder and its weights, as far as they are here."""
    record = resolved.record
    found = _Findings(f"{record.name} {record.version}")
    wanted = package_wanted(resolved)
    folder = client.folder_path(resolved)
    help = f"Fetch it again: nest verify {record.name}@{record.version} --repair."
    if folder.is_dir():
        found.files += len(wanted)
        found.size += sum(file.size or 0 for file in wanted.values())
        if not holds(folder, wanted):
            found.found("folder", record.name, f"{folder} is not what the record says.", help, repaired=repair)
    elif not repair:
        help = f"Fetch it: nest pull {record.name}@{record.version}."
        found.found("absent", record.name, f"{record.name} {record.version} is not on this machine.", help)
        return found.result()
    if repair:
        located = locate(client, resolved)
        fetch_weights(located.folder, located.card(), offline=client.offline)
    if not folder.is_dir() or not holds(folder, wanted):
        return found.result()
    located = locate(client, resolved)
    card = located.card()
    here = locate_weights(located.folder, card).local
    for path in here.values():
        found.hashed(path.stat().st_size)
    for problem in wrong_digests(card, here):
        found.found("weights", problem.where, problem.message, help)
    return found.result()


def verify_lock(client: Client, lock: Lock) -> Verified:
    """That every version that a lock pins is still published as it was; what is asked are its registries."""
    found = _Findings(str(lock.path))
    for name, pinned in lock.packages.items():
        path, served = version_path(name, pinned.version), False
        for source in client.sources_with(pinned.registry):
            if not source.asked:
                continue
            with contextlib.suppress(AbsentError):
                try:
                    data = source.registry.read(path, VERSION_BYTES)
                except (StoreError, RecordError) as error:
                    if isinstance(error, AbsentError):
                        raise
                    found.problems += error.problems
                    continue
                found.hashed(len(data))
                served = True
                got = hashlib.sha256(data).hexdigest()
                if got != pinned.sha256:
                    pins = f"{lock.path} pins {pinned.sha256}"
                    message = f"{name} {pinned.version} in {source.url} has the sha256 {got}; {pins}."
                    found.found("lock", name, message, "Do not load it from there: a published version never changes.")
        if not served and client.cache.read(pinned.sha256) is None:
            message = f"{name} {pinned.version}, which {lock.path} pins, is in no registry that answers, nor here."
            found.found("lock-absent", name, message, f"It came from {pinned.registry}; name that with --registry.")
    return found.result()


def verify_registry(registry: Registry, client: Client, *, repair: bool = False, watch: Watch = iter) -> Verified:
    """Everything that a registry serves: records, objects, index and small files.

    With `repair` (of one that takes writes) damaged files are written again from the cache of this machine or from
    other registries that have their digest, and index and small files are made anew. Raises StoreError.
    """
    found = _Findings(registry.url)
    known = _indexed(registry)
    versions_of = _all_versions(registry, known)
    objects: dict[str, tuple[int, str]] = {}
    for name, versions in sorted(versions_of.items()):
        for version in versions:
            package = known[name].package if name in known else None
            record = _checked_record(registry, package, name, version, client, found, repair)
            if record is not None:
                what = f"{name} {version}"
                objects.update({digest: (size, what) for digest, size in record.objects().items()})
    for sha256, (size, what) in watch(list(objects.items())):
        _check_object(registry.store, Wanted(sha256, f"a file of {what}", size), client, found, repair)
    stale = _stale(registry, versions_of, known, found)
    if stale:
        where = f"index and small files of {registry.url}"
        message = f"The {where} are not what versions and events give, for {listed(stale)}."
        if repair:
            rebuild_index(registry)
        found.found("index", registry.url, message, f"nest index rebuild --registry {registry.url}", repaired=repair)
    return found.result()


def _stale(
    registry: Registry, versions_of: Mapping[str, Sequence[str]], known: Mapping[str, IndexPackage], found: _Findings
) -> list[str]:
    """The packages of which index or small file do not say what their versions and events do."""
    damaged = {problem.where for problem in found.left}
    reader = Reader(registry)
    stale = []
    for name, versions in versions_of.items():
        if any(version_path(name, version) in damaged for version in versions):
            continue
        try:
            last = max(registry.event_numbers(name), default=0)
        except StoreError:
            # A static host does not tell what there is: there the index is believed.
            last = known[name].package.events
        package = fold_package(reader, name, versions, last, None)
        if known.get(name) != IndexPackage(package, reader.summary(package, None)) or not _says(registry, package):
            stale.append(name)
    for problem in reader.warnings:
        if problem.kind == "store.absent":
            # Events have no gaps: what it said, of a yank or a quarantine, is no longer said.
            message = f"{problem.where} in {registry.url} is gone, and later ones are there."
            found.found(
                "event", problem.where, message, "Restore it from a mirror or a backup, then rebuild the index."
            )
    return stale


def _indexed(registry: Registry) -> dict[str, IndexPackage]:
    """The packages of the index by name; none where it is damaged."""
    try:
        return {item.package.name: item for item in registry.index().index.packages}
    except (RecordError, AbsentError):
        return {}


def _all_versions(registry: Registry, known: Mapping[str, IndexPackage]) -> dict[str, list[str]]:
    """The versions that are listed, and those that the index has: a lost one is still missed."""
    indexed = {name: [entry.version for entry in item.package.versions] for name, item in known.items()}
    try:
        there = listed_versions(registry.store.list(VERSIONS))
    except StoreError:
        # A static host lists nothing; its index says what there is.
        there = {}
    return {name: in_order({*there.get(name, ()), *indexed.get(name, ())}) for name in sorted({*there, *indexed})}


def _checked_record(
    registry: Registry,
    package: PackageRecord | None,
    name: str,
    version: str,
    client: Client,
    found: _Findings,
    repair: bool,
) -> VersionRecord | None:
    path = version_path(name, version)
    entry = package.entry(version) if package is not None else None
    fault = ""
    try:
        data = registry.read(path, VERSION_BYTES)
        found.hashed(len(data))
        if entry is None or hashlib.sha256(data).hexdigest() == entry.sha256:
            return VersionRecord.from_bytes(data, path)
        fault = f"does not have the sha256 {entry.sha256} that the index says"
    except AbsentError:
        fault = "is gone"
    except RecordError as error:
        fault = f"cannot be read ({error.problems[0].message.rstrip('.')})"
    kept = client.cache.read(entry.sha256) if entry is not None else None
    if kept is None and entry is not None:
        kept = _record_elsewhere(client, registry, path, entry.sha256)
    if repair and kept is not None:
        registry.store.replace(path, kept)
    help = "Restore it from a mirror or a backup: nest verify --repair does where this machine can get it."
    message = f"{path} in {registry.url} {fault}."
    found.found("record", path, message, help, repaired=repair and kept is not None)
    return VersionRecord.from_bytes(kept, path) if kept is not None else None


def _record_elsewhere(client: Client, registry: Registry, path: str, sha256: str) -> bytes | None:
    for source in client.sources:
        if source.asked and source.url != registry.url:
            with contextlib.suppress(RegistryError):
                data = source.registry.read(path, VERSION_BYTES)
                if hashlib.sha256(data).hexdigest() == sha256:
                    return data
    return None


def _check_object(store: Store, wanted: Wanted, client: Client, found: _Findings, repair: bool) -> None:
    path = object_path(wanted.sha256)
    digest, got, fault = hashlib.sha256(), 0, ""
    try:
        for block in _at_most(store.stream(path), wanted.size or 0):
            digest.update(block)
            got += len(block)
        found.hashed(got)
        if digest.hexdigest() != wanted.sha256:
            fault = f"has the sha256 {digest.hexdigest()}"
    except AbsentError:
        fault = "is gone"
    if not fault:
        return
    repaired = False
    if repair:
        with contextlib.suppress(RegistryError):
            store.replace(path, client.fetch(wanted).read_bytes())
            repaired = True
    help = "Restore it from a mirror or a backup: nest verify --repair does where this machine can get it."
    found.found("object", path, f"{path} in {store.url}, {wanted.what}, {fault}.", help, repaired=repaired)


def _at_most(blocks: Iterator[bytes], size: int) -> Iterator[bytes]:
    """A stream, to the block that goes beyond `size`."""
    got = 0
    for block in blocks:
        yield block
        got += len(block)
        if got > size:
            return


def _says(registry: Registry, package: PackageRecord) -> bool:
    """Whether the small file of a package is there and says what the index does."""
    try:
        there = registry.package(package.name)
    except RecordError:
        return False
    return there is not None and there.to_bytes() == package.to_bytes()


def _kept_version(cache: Cache, sha256: str) -> Resolved | None:
    try:
        # Not by way of what sets wrong files aside: without `repair` nothing changes.
        path = cache.path(sha256)
        data = path.read_bytes() if path.is_file() else b""
        record = VersionRecord.from_bytes(data, sha256)
    except (OSError, RecordError):
        return None
    return Resolved("", record, sha256) if hashlib.sha256(data).hexdigest() == sha256 else None


def _refetched(client: Client, path: Path, wanted: Wanted) -> bool:
    client.cache.set_aside(path)
    with contextlib.suppress(RegistryError):
        client.fetch(wanted)
    return True
