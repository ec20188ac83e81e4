"""The registries as a client uses them: one name to one version, its files on this machine, mirrors for each other."""

from __future__ import annotations

import os
import shutil
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from linnet.registry.cache import Cache, Wanted
from linnet.registry.configured import configured_registries
from linnet.registry.errors import Problem, RegistryError
from linnet.registry.lock import Lock, LockError
from linnet.registry.package import digest_file
from linnet.registry.record_reader import RecordError
from linnet.registry.records import VersionRecord
from linnet.registry.resolve import Resolved, Source, UnreachableError, UnresolvedError, not_here
from linnet.registry.store.base import AbsentError, StoreError

# Small files of a package that are fetched at once.
THREADS = 4
# A larger file is linked into a package's folder rather than copied.
LINKED_BYTES = 1 << 20


class Client:
    """Registries in the order in which they are asked; the first that has a package says what it is.

    Whatever comes from any of them is used only under the digest that was asked for. With `offline` those that are not
    folders of this machine are not asked, and no socket is opened.
    """

    def __init__(
        self,
        registries: str | os.PathLike[str] | None = None,
        *,
        offline: bool | None = None,
        cache: Cache | None = None,
    ) -> None:
        self.cache = cache if cache is not None else Cache()
        self.offline = is_offline(offline)
        self.sources = [Source(url, self.cache, offline=self.offline) for url in configured_registries(registries)]

    def resolve(self, name: str, wanted: str | None = None, lock: Lock | None = None) -> Resolved | None:
        """What `name@wanted` means; None where no registry has a package of that name.

        `lock` pins it, where it has the name. Raises UnresolvedError where the package has no such version,
        RefusedError, LockError, and UnreachableError where some registry could not say and no other has it.
        """
        pinned = lock.pinned(name, wanted) if lock is not None else None
        sources = self.sources
        if pinned is not None:
            wanted = pinned.version
            sources = self.sources_with(pinned.registry)
        unresolved: UnresolvedError | None = None
        failures: list[Problem] = []
        for source in sources:
            try:
                found = source.resolve(name, wanted, pinned.sha256 if pinned is not None else None)
            except UnresolvedError as error:
                unresolved = unresolved or error
                continue
            except (StoreError, RecordError, UnreachableError) as error:
                if error.problems[0].kind == "store.address":
                    raise
                failures += error.problems
                continue
            if found is not None:
                passed = [
                    replace(item, kind="registry.passed-over", help=f"{found.registry} was taken.") for item in failures
                ]
                return replace(found, notes=(*found.notes, *passed))
        if unresolved is not None:
            raise unresolved
        if pinned is not None and not failures:
            message = f"{name} {pinned.version}, which {lock.path if lock else ''} pins, is in no configured registry."
            help = f"It came from {pinned.registry or 'another one'}; name that with --registry or LINNET_REGISTRY."
            raise LockError([Problem("lock.absent", name, message, help)])
        if failures:
            raise UnreachableError(failures)
        return None

    def sources_with(self, registry: str | None) -> list[Source]:
        """The registries, and at their end the one of that address, if it is none of them."""
        if not registry or registry in {source.url for source in self.sources}:
            return self.sources
        return [*self.sources, Source(registry, self.cache, offline=self.offline)]

    def names(self) -> list[str]:
        """The names of all packages, as far as the registries tell: for a user who mistyped one."""
        found: dict[str, None] = {}
        for source in self.sources:
            with suppress(RegistryError):
                found.update(dict.fromkeys(item.package.name for item in source.index().index.packages))
        return list(found)

    def folder(self, resolved: Resolved) -> Path:
        """The package as a folder that nobody writes to, named after the model; what is missing is fetched.

        Every byte of it has been hashed when this returns. Raises WrongBytesError, UnreachableError, OSError.
        """
        files = package_wanted(resolved)
        folder = self.folder_path(resolved)
        if folder.is_dir():
            if holds(folder, files):
                return folder
            self.cache.set_aside(folder.parent)
        scratch = self.cache.root / "versions" / f".new-{uuid.uuid4().hex}"
        made = scratch / folder.name
        try:
            made.mkdir(parents=True)
            with ThreadPoolExecutor(min(THREADS, len(files)) or 1) as pool:
                objects = list(pool.map(lambda wanted: self.fetch(wanted, resolved.registry), files.values()))
            for path, source in zip(files, objects, strict=True):
                _put(source, made / path)
            _make_read_only(made)
            folder.parent.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.rename(scratch, folder.parent)
            except OSError:
                # Another process made the same meanwhile; what else lies there was never made in one piece.
                if not folder.is_dir():
                    self.cache.set_aside(folder.parent)
                    os.rename(scratch, folder.parent)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(folder)) from None
        finally:
            _remove(scratch)
        return folder

    def folder_path(self, resolved: Resolved) -> Path:
        """Where the folder of a version is, once it is made."""
        sha256 = resolved.sha256
        return self.cache.root / "versions" / sha256[:2] / sha256 / resolved.record.name

    def fetch(self, wanted: Wanted, first: str | None = None) -> Path:
        """A file by its digest, from the cache or from any registry that has it, `first` before the others.

        Raises what the first registry said, with what the others did. OSError names the file in the cache.
        """
        found = self.cache.get(wanted.sha256, wanted.size)
        if found is not None:
            return found
        sources = sorted(self.sources_with(first), key=lambda source: source.url != first)
        failures: list[RegistryError] = []
        for source in sources:
            if not source.asked:
                continue
            try:
                return self.cache.fetch(wanted, lambda start, source=source: source.stream(wanted.sha256, start))  # type: ignore[misc]
            except AbsentError:
                message = f"{source.url} has no {wanted.what}, or not any more (sha256 {wanted.sha256})."
                help = "Use another mirror of the registry, or tell whoever keeps it (nest verify --registry)."
                failures.append(StoreError([Problem("registry.missing-object", wanted.what, message, help)]))
            except RegistryError as error:
                failures.append(error)
        if not failures:
            raise not_here(wanted.what, "NAME")
        # Wrong bytes are worth more words than a registry that never had it.
        failures.sort(key=lambda error: isinstance(error, StoreError))
        raise type(failures[0])(problem for error in failures for problem in error.problems)


def describe(registry: str, sha256: str, cache: Cache | None = None) -> dict[str, Any]:
    """What the record of a fetched version says, and what its registry last said of the package; JSON-able."""
    cache = cache if cache is not None else Cache()
    data = cache.read(sha256)
    if data is None:
        raise not_here(f"The record {sha256}", "NAME")
    record = VersionRecord.from_bytes(data, sha256)
    package = Source(registry, cache).last_said(record.name)
    said = package.to_dict() if package is not None else {}
    return {
        "url": registry,
        "version": record.version,
        "sha256": sha256,
        "published": record.published,
        "weights": [asdict(file) for file in record.weights.files],
        "check": dict(record.check),
        "bench": record.bench,
        "gate": record.gate,
        "versions": said.get("versions", []),
        "aliases": said.get("aliases", {}),
        "status": said.get("status", "active"),
        "status_reason": said.get("status_reason", ""),
    }


def package_wanted(resolved: Resolved) -> dict[str, Wanted]:
    """The files of a version's folder: those of the package, and the weights that the registry holds."""
    record = resolved.record
    what = f"{record.name} {record.version}"
    files = [(file.path, file.size, file.sha256) for file in record.files]
    files += [(file.path, file.size, file.sha256) for file in record.weights.files if file.object]
    return {path: Wanted(sha256, f"{path} of {what}", size) for path, size, sha256 in files}


def holds(folder: Path, files: dict[str, Wanted]) -> bool:
    """Whether a folder has exactly these files, every byte of them hashed."""
    found = {}
    for path in folder.rglob("*"):
        if path.is_symlink() or not path.is_dir():
            found[path.relative_to(folder).as_posix()] = path
    if found.keys() != files.keys() or any(path.is_symlink() or not path.is_file() for path in found.values()):
        return False
    try:
        return all(digest_file(found[name]) == (wanted.size, wanted.sha256) for name, wanted in files.items())
    except OSError:
        return False


def is_offline(offline: bool | None) -> bool:
    """Whether nothing may be asked over the network: as given, else as HF_HUB_OFFLINE says."""
    if offline is not None:
        return offline
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")


def _put(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.stat().st_size >= LINKED_BYTES:
        with suppress(OSError):
            os.link(source, target)
            return
    shutil.copyfile(source, target)


def _make_read_only(folder: Path) -> None:
    for path in (*folder.rglob("*"), folder):
        path.chmod(0o555 if path.is_dir() else 0o444)


def _remove(folder: Path) -> None:
    """Delete a folder that may have been made read-only."""
    if not folder.is_dir():
        return
    for path in (folder, *(path for path in folder.rglob("*") if path.is_dir())):
        path.chmod(0o755)
    shutil.rmtree(folder, ignore_errors=True)
