"""A registry in a directory of a local or shared file system.

A file is written beside its target under a hidden name, synced, and given its name by `link`, which fails where the
name is taken: that is create-if-absent, and never shows a part of a file under a name. Being beside the target, it is
on the same file system. Where a file system has no hard links, no other way leaves a crash without traces (an
exclusive `open` of the target shows it half-written, a claim beside it outlives its owner), so it is refused.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import stat
import uuid
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

from linnet.registry.store.base import (
    AbsentError,
    Fetched,
    ReadOnlyError,
    StoreError,
    beyond_end,
    checked_path,
    checked_prefix,
    ended_early,
    is_path,
    no_file,
    store_error,
    too_large,
)

BLOCK = 1 << 20
# Syncs that wait at once share the disk's commits.
SYNC_THREADS = 8
TEMPORARY_PREFIX = ".new-"
# After which a temporary file is what a killed writer left.
LEFTOVER_SECONDS = 24 * 3600.0
_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_READ_ONLY = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})


class DirectoryStore:
    """A directory; it is made by the first write. `url` is the path as the user gave it."""

    def __init__(self, folder: Path, url: str | None = None) -> None:
        self.folder = folder
        self.url = url if url is not None else str(folder)
        self._swept: set[Path] = set()

    @property
    def writable(self) -> bool:
        there = next((path for path in (self.folder, *self.folder.absolute().parents) if path.exists()), None)
        return there is not None and os.access(there, os.W_OK | os.X_OK)

    def create(self, path: str, data: bytes | Path) -> bool:
        return not self.create_all({path: data})

    def create_all(self, files: Mapping[str, bytes | Path]) -> set[str]:
        targets = {path: self.folder / checked_path(path) for path in files}
        there = {path for path, target in targets.items() if target.exists()}
        waiting = [(path, targets[path], files[path]) for path in files if path not in there]
        if waiting:
            with ThreadPoolExecutor(min(SYNC_THREADS, len(waiting))) as pool:
                made = pool.map(lambda item: self._create(*item), waiting)
                there |= {path for (path, _, _), mine in zip(waiting, made, strict=True) if not mine}
        # Also where another made the file: it may not have come to this yet, and what is there must stay there.
        self._sync_folders(target.parent for target in targets.values())
        return there

    def replace(self, path: str, data: bytes) -> None:
        target = self.folder / checked_path(path)
        with self._writing(path), self._temporary(target, data) as temporary:
            os.replace(temporary, target)
        self._sync_folders([target.parent])

    def read(self, path: str, *, limit: int, tag: str | None = None) -> Fetched | None:
        with self._reading(path), self._open(path) as file:
            data = file.read(limit + 1)
        if len(data) > limit:
            raise too_large(self.url, path, limit)
        now = hashlib.sha256(data).hexdigest()
        return None if now == tag else Fetched(data, now)

    def stream(self, path: str, start: int = 0) -> Iterator[bytes]:
        with self._reading(path), self._open(path) as file:
            size = os.fstat(file.fileno()).st_size
            if start > size:
                raise beyond_end(self.url, path, start, size)
            file.seek(start)
            while start < size:
                block = file.read(min(BLOCK, size - start))
                if not block:
                    raise ended_early(self.url, path, start, size)
                start += len(block)
                yield block

    def list(self, prefix: str) -> Iterator[str]:
        folder = checked_prefix(prefix)
        with self._reading(prefix or "."):
            yield from self._below(folder, set())

    def remove(self, path: str) -> None:
        with self._writing(path):
            (self.folder / checked_path(path)).unlink(missing_ok=True)

    def _open(self, path: str) -> BinaryIO:
        """A plain file, opened to be read. Whoever opened a pipe would wait for ever, and a device never ends."""
        number = os.open(self.folder / checked_path(path), os.O_RDONLY | os.O_NONBLOCK)
        mode = os.fstat(number).st_mode
        if stat.S_ISREG(mode):
            return open(number, "rb")
        os.close(number)
        raise AbsentError(self.url, path) if stat.S_ISDIR(mode) else no_file(self.url, path)

    def _create(self, path: str, target: Path, data: bytes | Path) -> bool:
        with self._writing(path), self._temporary(target, data) as temporary:
            try:
                os.link(temporary, target)
            except OSError as error:
                # A network file system may have linked, lost its answer, and failed the repetition.
                if _same_file(temporary, target):
                    return True
                if isinstance(error, FileExistsError):
                    return False
                if error.errno in _NO_LINKS:
                    raise self._no_links(path) from None
                raise
            return True

    @contextlib.contextmanager
    def _temporary(self, target: Path, data: bytes | Path) -> Iterator[Path]:
        """A synced file beside the target; whatever happens, it is gone afterwards."""
        self._make_folder(target.parent)
        temporary = target.parent / f"{TEMPORARY_PREFIX}{uuid.uuid4().hex}"
        try:
            with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb") as file:
                if isinstance(data, bytes):
                    file.write(data)
                else:
                    with data.open("rb") as source:
                        shutil.copyfileobj(source, file, BLOCK)
                file.flush()
                os.fsync(file.fileno())
                now = os.fstat(file.fileno()).st_mtime
            self._sweep(target.parent, now)
            yield temporary
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink()

    def _sweep(self, folder: Path, now: float) -> None:
        """Delete old temporary files from a folder, at the first write to it. `now` is by the clock that dates them."""
        if folder in self._swept:
            return
        self._swept.add(folder)
        leftovers: list[os.DirEntry[str]] = []
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            leftovers = [entry for entry in entries if entry.name.startswith(TEMPORARY_PREFIX)]
        for entry in leftovers:
            # Those of writers at work vanish meanwhile.
            with contextlib.suppress(OSError):
                if now - entry.stat().st_mtime > LEFTOVER_SECONDS:
                    os.unlink(entry.path)

    def _make_folder(self, folder: Path) -> None:
        """The folder and its parents; a new one is synced into its parent, or a crash could take it with its files."""
        if folder.is_dir():
            return
        self._make_folder(folder.parent)
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
        self._sync_folders([folder.parent])

    def _sync_folders(self, folders: Iterable[Path]) -> None:
        for folder in dict.fromkeys(folders):
            with self._writing(str(folder)):
                number = os.open(folder, os.O_RDONLY)
                try:
                    os.fsync(number)
                finally:
                    os.close(number)

    def _below(self, prefix: str, seen: set[tuple[int, int]]) -> Iterator[str]:
        """Every folder once: links may lead in circles."""
        try:
            status = os.stat(self.folder / prefix)
            if (status.st_dev, status.st_ino) in seen:
                return
            seen.add((status.st_dev, status.st_ino))
            entries = sorted(os.scandir(self.folder / prefix), key=lambda entry: entry.name)
        except (FileNotFoundError, NotADirectoryError):
            return
        for entry in entries:
            path = prefix + entry.name
            if not is_path(path):
                continue
            if entry.is_dir():
                yield from self._below(path + "/", seen)
            else:
                yield path

    @contextlib.contextmanager
    def _reading(self, path: str) -> Iterator[None]:
        try:
            yield
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise AbsentError(self.url, path) from None
        except OSError as error:
            message = f"{path} in {self.url} cannot be read: {error.strerror}."
            raise store_error(StoreError, "unreadable", path, message, "Check the disk and the permissions.") from None

    @contextlib.contextmanager
    def _writing(self, path: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._write_error(path, error) from None

    def _write_error(self, path: str, error: OSError) -> StoreError:
        if error.errno in _FULL:
            message = f"There is no room for {path} in {self.url}: {error.strerror}."
            return store_error(StoreError, "full", path, message, "Free some, then do the same again.")
        if error.errno in _READ_ONLY:
            message = f"{self.url} takes no {path}: {error.strerror}."
            help = "Name a registry that you may write to (--registry, LINNET_REGISTRY)."
            return store_error(ReadOnlyError, "read-only", path, message, help)
        named = f" ({error.filename})" if error.filename else ""
        message = f"{path} could not be written in {self.url}: {error.strerror}{named}."
        return store_error(StoreError, "unwritable", path, message, "Check the folder and the disk, then do it again.")

    def _no_links(self, path: str) -> StoreError:
        message = f"The file system of {self.url} has no hard links, without which two publishers cannot be kept apart."
        help = "Keep the registry on another file system, in an object store or on the Hub."
        return store_error(StoreError, "no-links", path, message, help)


def _same_file(one: Path, other: Path) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False
