"""The folder where downloads are kept: files under the digest of their bytes, safe for any number of processes.

Every file is written under a name of its own and renamed when its bytes have the digest, so that nobody sees a part of
one; nothing is synced, because whoever asks for a file has it hashed again, and a wrong one is set aside and fetched
anew. Locks save work here, and nothing depends on them: where they do nothing, processes fetch the same file twice.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import stat
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from linnet.registry.errors import Problem, RegistryError
from linnet.registry.package import digest_file

# Below this a broken download is begun anew rather than resumed, and nobody waits for another's.
RESUMED_BYTES = 1 << 20
# How long, in seconds, a process waits for another's download that does not grow before it fetches for itself.
PATIENCE = 20.0
# How a store says that a file has fewer bytes than an earlier try left of it.
BEYOND_END = "store.beyond-end"


class WrongBytesError(RegistryError):
    """Bytes that were asked for by their digest and have another. Nothing of them is kept."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A file by its sha256; `size` in bytes where it is known; `what` names it in messages."""

    sha256: str
    what: str
    size: int | None = None


def cache_folder() -> Path:
    """Where downloads are kept: `LINNET_CACHE`, else the user's cache folder."""
    named = os.environ.get("LINNET_CACHE")
    if named:
        return Path(os.path.expanduser(named))
    import platformdirs

    return Path(platformdirs.user_cache_dir("linnet"))


def kept_weights(sha256: str) -> Path | None:
    """The weight file of that digest, from wherever it came; None where none was kept. Its bytes are not read here."""
    for path in (_link(sha256), Cache().path(sha256)):
        if path.is_file():
            return path
    return None


def keep_weights(file: Path, sha256: str) -> None:
    """Let every package whose card gives that digest find `file`, whose bytes have it. Nothing is copied.

    Where the cache cannot hold a link, nothing is kept: who needs the file names its folder.
    """
    path = _link(sha256)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink() and not path.exists():
            path.unlink()
        if not path.exists():
            path.symlink_to(file.resolve())


class Cache:
    """Files by digest below `root`, and what was found wrong there, which `set_aside` lists for this object."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = root if root is not None else cache_folder()
        self.wrong: list[Path] = []

    def path(self, sha256: str) -> Path:
        """Where the file of that digest lies, if it is here."""
        return self.root / "objects" / "sha256" / sha256[:2] / sha256

    def get(self, sha256: str, size: int | None = None) -> Path | None:
        """The file of that digest, its bytes hashed now; None where it is not here. A wrong one is set aside."""
        path = self.path(sha256)
        try:
            # Opening a pipe waits for ever, and a device that a link leads to may not end.
            before = path.lstat()
            right = stat.S_ISREG(before.st_mode) and (size is None or before.st_size == size)
            right = right and digest_file(path)[1] == sha256
        except FileNotFoundError:
            return None
        if right:
            return path
        # Another process may have replaced it by a right one meanwhile.
        with contextlib.suppress(FileNotFoundError):
            if path.lstat().st_ino == before.st_ino:
                self.set_aside(path)
        return None

    def read(self, sha256: str) -> bytes | None:
        """The bytes of a small file, of that digest for certain; None where it is not here."""
        try:
            path = self.path(sha256)
            data = path.read_bytes() if stat.S_ISREG(path.lstat().st_mode) else b""
        except FileNotFoundError:
            return None
        if hashlib.sha256(data).hexdigest() == sha256:
            return data
        self.get(sha256)
        return None

    def add(self, data: bytes) -> str:
        """Keep a small file. Returns its digest. Raises OSError that names the file in the cache."""
        sha256 = hashlib.sha256(data).hexdigest()
        if self.get(sha256) is None:
            with self._naming(sha256), self._own(sha256) as part:
                part.write_bytes(data)
                self._name(part, self.path(sha256))
        return sha256

    def fetch(self, wanted: Wanted, stream: Callable[[int], Iterator[bytes]]) -> Path:
        """The file, from here or from `stream(start)`, which gives its bytes from `start` on and may raise.

        A large file that breaks off is resumed by the next call, in whatever process. Raises
        WrongBytesError, OSError that names the file in the cache, and what `stream` raises.
        """
        large = wanted.size is None or wanted.size >= RESUMED_BYTES
        with (
            self._naming(wanted.sha256),
            self._turn(wanted.sha256) if large else contextlib.nullcontext(False) as alone,
        ):
            try:
                return self._fetch_once(wanted, stream, take_over=alone, keep=large)
            except FileNotFoundError:
                # Where locks do nothing, another process took this one's part for abandoned.
                return self._fetch_once(wanted, stream, take_over=False, keep=False)

    @contextlib.contextmanager
    def _naming(self, sha256: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            # The system names the temporary file, or none, which says nothing to a user.
            raise OSError(error.errno, error.strerror, str(self.path(sha256))) from None

    def set_aside(self, path: Path) -> None:
        """Move a wrong file or folder of the cache to where nothing looks for it, for whoever wants to know why."""
        now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        target = self.quarantine / f"{path.name}.{now}.{uuid.uuid4().hex[:8]}"
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            if path.is_dir() and not path.is_symlink():
                # A folder that may not be written to cannot be moved elsewhere.
                path.chmod(0o755)
            os.rename(path, target)
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            path.unlink(missing_ok=True)
        self.wrong.append(target)

    @property
    def quarantine(self) -> Path:
        """Where wrong files are."""
        return self.root / "quarantine"

    def digests(self) -> list[str]:
        """Every digest that there is a file of."""
        found = (path.name for path in self.root.glob("objects/sha256/*/*"))
        return sorted(name for name in found if re.fullmatch("[0-9a-f]{64}", name))

    def parts(self, sha256: str = "*") -> list[Path]:
        """Downloads that are not finished, the largest first."""
        found = []
        for path in self.root.glob(f"partial/{sha256}.*"):
            with contextlib.suppress(FileNotFoundError):
                found.append((path.stat().st_size, path))
        return [path for _, path in sorted(found, reverse=True)]

    def _fetch_once(
        self, wanted: Wanted, stream: Callable[[int], Iterator[bytes]], *, take_over: bool, keep: bool
    ) -> Path:
        found = self.get(wanted.sha256, wanted.size)
        if found is not None:
            return found
        with self._own(wanted.sha256, take_over=take_over, keep=keep) as part:
            self._fill(part, wanted, stream)
            return self._name(part, self.path(wanted.sha256))

    def _fill(self, part: Path, wanted: Wanted, stream: Callable[[int], Iterator[bytes]]) -> None:
        """Bring `part` to the wanted bytes. Bytes of an earlier try that turn out wrong are dropped."""
        kept, digest = _digest_so_far(part)
        for start in dict.fromkeys((kept, 0)):
            got = start
            digest = digest if start else hashlib.sha256()
            try:
                with part.open("r+b") as file:
                    for block in stream(start):
                        if got == start:
                            # Not before there is something else: what an earlier try left is worth keeping.
                            file.seek(start)
                            file.truncate()
                        file.write(block)
                        digest.update(block)
                        got += len(block)
                        if wanted.size is not None and got > wanted.size:
                            break
            except RegistryError as error:
                if start and error.problems[0].kind == BEYOND_END:
                    continue
                raise
            if digest.hexdigest() == wanted.sha256:
                return
        part.unlink()
        raise wrong_bytes(wanted, got, digest.hexdigest())

    @contextlib.contextmanager
    def _own(self, sha256: str, *, take_over: bool = False, keep: bool = False) -> Iterator[Path]:
        """A file that this call writes, with `take_over` what an earlier one left.

        With `keep` it outlives a failure, for the next call to take over; else nobody does.
        """
        name = f"{sha256}.{uuid.uuid4().hex}" if keep else uuid.uuid4().hex
        part = self.root / "partial" / name
        part.parent.mkdir(parents=True, exist_ok=True)
        if take_over:
            for left in self.parts(sha256):
                # Of many that try, one gets it.
                with contextlib.suppress(FileNotFoundError):
                    if part.exists():
                        left.unlink()
                    else:
                        os.rename(left, part)
        part.touch()
        try:
            yield part
        except BaseException:
            if not keep or (part.exists() and part.stat().st_size < RESUMED_BYTES):
                part.unlink(missing_ok=True)
            raise

    def _name(self, part: Path, path: Path) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.chmod(0o444)
        os.replace(part, path)
        return path

    @contextlib.contextmanager
    def _turn(self, sha256: str) -> Iterator[bool]:
        """Wait while another process fetches that file; True where this one holds the lock."""
        lock = self.root / "locks" / sha256
        lock.parent.mkdir(parents=True, exist_ok=True)
        with lock.open("a") as file:
            yield self._wait(file.fileno(), sha256)

    def _wait(self, descriptor: int, sha256: str) -> bool:
        size, since = -1, time.monotonic()
        while not _locked(descriptor):
            if self.path(sha256).is_file():
                return False
            parts = self.parts(sha256)
            now = sum(path.stat().st_size for path in parts if path.exists())
            if now != size:
                size, since = now, time.monotonic()
            if time.monotonic() - since > PATIENCE:
                return False
            time.sleep(0.05)
        return True


def write_whole(path: Path, data: bytes) -> None:
    """Write a file, whole or not at all. Raises OSError that names it."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            temporary.write_bytes(data)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


def _digest_so_far(path: Path) -> tuple[int, hashlib._Hash]:
    """How many bytes a file has, and their digest, which more bytes can be added to."""
    size, digest = 0, hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            size += len(block)
            digest.update(block)
    return size, digest


def wrong_bytes(wanted: Wanted, size: int, got: str) -> WrongBytesError:
    """Bytes of another digest than was asked for."""
    if wanted.size is None or size == wanted.size:
        fault = f"has the sha256 {got} instead of {wanted.sha256}"
    elif size < wanted.size:
        fault = f"has {size} bytes instead of {wanted.size}"
    else:
        fault = f"has more than {wanted.size} bytes"
    message = f"What was served as {wanted.what} {fault}, and was thrown away."
    help = "Ask another registry, or tell whoever keeps this one (nest verify --registry)."
    return WrongBytesError([Problem("registry.wrong-bytes", wanted.what, message, help)])


def _locked(descriptor: int) -> bool:
    """Whether this process has the lock now, or locks are not to be had."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _link(sha256: str) -> Path:
    return cache_folder() / "weights" / f"{sha256}.safetensors"
