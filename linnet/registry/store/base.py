"""What a registry asks of the place where it is kept.

Correctness rests on one primitive, create-if-absent; nothing here locks. Paths are the registry's own: relative, with
`/`, of ASCII letters, digits, `.`, `-`, `_`, `+` and `@`, with no empty part and none that begins with a dot.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from linnet.registry.errors import Problem, RegistryError, bare, shown

PATH_CHARACTERS = 512
_PART = r"[A-Za-z0-9_@+-][A-Za-z0-9._@+-]{0,199}"
_PATH = re.compile(rf"{_PART}(/{_PART})*")

AnyStoreError = TypeVar("AnyStoreError", bound="StoreError")


class StoreError(RegistryError):
    """A store that could not do what was asked; what was there before is still there."""


class AbsentError(StoreError):
    """A path that the store does not hold."""

    def __init__(self, store: str, path: str) -> None:
        message = f"{store} holds no {path}."
        super().__init__([Problem("store.absent", path, message, "Check the name and the version.")])


class ReadOnlyError(StoreError):
    """A store that takes no writes, or whose token may not write."""


class UncertainError(StoreError):
    """A write whose outcome nobody can tell: the answer was lost, and so was the question about it. Try again."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """A small file as read: its bytes, and what the server calls this state of it (an ETag; None where it has none)."""

    data: bytes
    tag: str | None = None


class Store(Protocol):
    """A place for a registry. All methods raise StoreError (AbsentError, ReadOnlyError, UncertainError).

    `url` is what a user writes to name it, and is shown in messages; it holds no secrets. `writable` is False where it
    is known before any try that no write can succeed.
    """

    @property
    def url(self) -> str: ...

    @property
    def writable(self) -> bool: ...

    def create(self, path: str, data: bytes | Path) -> bool:
        """Write a file that is not there: True if this call made it, False if it was there, with whatever content.

        Whole or not at all, durable when True is returned. `data` is the content or a local file that holds it.
        Of many calls at once for one path with different contents exactly one gets True. A call whose answer is lost
        finds out by reading back, so where two calls write the same bytes at once both may get True: what must have
        one winner holds something unique, such as a publish id.
        """
        ...

    def create_all(self, files: Mapping[str, bytes | Path]) -> set[str]:
        """`create` for each, in any order, as cheaply as the store can; the paths that were there already.

        Not atomic as a whole: after a failure some may be there. For objects, whose path is their content.
        """
        ...

    def replace(self, path: str, data: bytes) -> None:
        """Write a hint (`index/latest.json`, `packages/<name>.json`) over whatever is there, whole or not at all."""
        ...

    def read(self, path: str, *, limit: int, tag: str | None = None) -> Fetched | None:
        """A small file, whole; None where `tag` is still what the store has. Refuses one of over `limit` bytes."""
        ...

    def stream(self, path: str, start: int = 0) -> Iterator[bytes]:
        """The bytes of a file from `start` on, in pieces; raises where it ends before its declared length.

        `start` at the end gives nothing, beyond it StoreError. Failures are raised while iterating.
        """
        ...

    def list(self, prefix: str) -> Iterator[str]:
        """Every path below a folder (`versions/`, `versions/<name>/`; empty: all), in any order.

        None where there is no such folder. May lag behind writes of others on stores that say so; never shows what was
        not written.
        """
        ...

    def remove(self, path: str) -> None:
        """Delete a file that `nest prune` names (an old generation, an object nobody refers to); absent is fine."""
        ...


def store_error(kind: type[AnyStoreError], word: str, where: str, message: str, help: str) -> AnyStoreError:
    """An error of one problem; `word` is what scripts read, after `store.`."""
    error = kind.__new__(kind)
    StoreError.__init__(error, [Problem(f"store.{word}", where, message, help)])
    return error


def is_path(text: str) -> bool:
    """Whether a store takes it as a path: what else lies in a store is not the registry's."""
    return len(text) <= PATH_CHARACTERS and _PATH.fullmatch(text) is not None


def checked_path(path: str) -> str:
    """The path, where it is one that a store takes. Raises StoreError."""
    if is_path(path):
        return path
    message = f"{shown(path)} is no path of a registry."
    help = "Use letters, digits and . - _ + @ between slashes, and no part that begins with a dot."
    raise store_error(StoreError, "path", bare(path), message, help)


def checked_prefix(prefix: str) -> str:
    """The prefix, where it is empty or a path with a slash at its end. Raises StoreError."""
    if not prefix or (prefix.endswith("/") and is_path(prefix[:-1])):
        return prefix
    message = f"{shown(prefix)} is no folder of a registry."
    raise store_error(StoreError, "path", bare(prefix), message, "Write it as a path with a slash at its end.")


def too_large(store: str, path: str, limit: int) -> StoreError:
    """A file of over `limit` bytes where a small one was wanted."""
    message = f"{path} in {store} has more than {limit} bytes, which no such file of a registry has."
    return store_error(StoreError, "too-large", path, message, "Check who wrote it; nothing of it was used.")


def no_file(store: str, path: str) -> StoreError:
    """A pipe, a device or a socket where a file was wanted."""
    message = f"{path} in {store} is no plain file."
    return store_error(StoreError, "no-file", path, message, "Remove it: nothing of it was used.")


def ended_early(store: str, path: str, got: int, wanted: int) -> StoreError:
    """A body of `got` bytes where `wanted` were declared."""
    message = f"{store} broke off {path} after {got} of {wanted} bytes."
    return store_error(StoreError, "truncated", path, message, "Try again; what was read so far is resumed.")


def beyond_end(store: str, path: str, start: int, size: int) -> StoreError:
    """A read that was to begin after the end."""
    message = f"{path} in {store} has {size} bytes, and reading was to begin after {start}."
    return store_error(StoreError, "beyond-end", path, message, "Delete the partial download and fetch it again.")
