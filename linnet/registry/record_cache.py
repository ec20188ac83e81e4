"""Index records kept by the digest of what they were made of: data, checked when it is read."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import time
from pathlib import Path

FORMAT = "linnet-record-1"
# Records that other code made are of no use to this one, but perhaps to another environment.
FORGET_SECONDS = 30 * 24 * 3600.0


class DamagedError(Exception):
    """An entry whose bytes are not those that were written under its digest."""


class RecordCache:
    """A folder of records, each named by the digest of its package.

    Any number of processes may share it: an entry appears whole or not at all, and two that write one write the same.
    What is read is compared with the digest that was written with it, so that a torn, changed or exchanged file is
    noticed. Whoever may write to the folder can still forge an entry: it is the user's own.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def has(self, digest: str) -> bool:
        """Whether there is an entry; `read` says whether it is a good one."""
        return self.path(digest).is_file()

    def read(self, digest: str) -> bytes | None:
        """The record of a package; None where there is none. Raises DamagedError, and removes the entry then."""
        path = self.path(digest)
        try:
            first, _, body = path.read_bytes().partition(b"\n")
        except FileNotFoundError:
            return None
        if first != _first_line(digest, body):
            path.unlink(missing_ok=True)
            raise DamagedError(str(path))
        return body

    def write(self, digest: str, body: bytes) -> None:
        """Keep a record. Raises OSError."""
        path = self.path(digest)
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".record-")
        try:
            # Not synchronised: what a crash leaves behind is read as damaged.
            with os.fdopen(handle, "wb") as file:
                file.write(_first_line(digest, body) + b"\n" + body)
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise

    def path(self, digest: str) -> Path:
        """Where the entry of a digest is."""
        return self.folder / digest[:2] / digest


def open_cache(folder: Path, code: str) -> RecordCache:
    """The records in `folder` that the code of the digest `code` made; those unused for a month are removed.

    Raises OSError where the folder cannot be written to.
    """
    own = folder / code
    own.mkdir(parents=True, exist_ok=True)
    os.utime(own)
    for other in folder.iterdir():
        if other != own and other.is_dir() and time.time() - other.stat().st_mtime > FORGET_SECONDS:
            shutil.rmtree(other, ignore_errors=True)
    return RecordCache(own)


def _first_line(digest: str, body: bytes) -> bytes:
    return f"{FORMAT} {digest} {hashlib.sha256(body).hexdigest()}".encode()
