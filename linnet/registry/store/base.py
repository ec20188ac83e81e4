"""What a registry asks of the place where it is kept.

Correctness rests on one primitive, create-if-absent; nothing here locks. Paths are the registry's own: relative, with
`/`, of ASCII letters, digits, `.`, `-`, `_` and `@`, with no empty part and none that begins with a dot.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from linnet.registry.errors import Problem, RegistryError


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

    `url` is what a user writes to name it, and is shown in messages; it holds no secrets.
    """

    url: str
    writable: bool

    def create(self, path: str, data: bytes | Path) -> bool:
        """Write a file that is not there: True if this call made it, False if it was there, with whatever content.

        Whole or not at all, durable when True is returned. `data` is the content or a local file that holds it.
        Of many calls at once for one path exactly one gets True.
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
        """The bytes of a file from `start` on, in pieces; raises where it ends before its declared length."""
        ...

    def list(self, prefix: str) -> Iterator[str]:
        """Every path below a folder (`versions/`, `versions/<name>/`), in any order. May lag behind writes of others
        on stores that say so; never shows what was not written."""
        ...

    def remove(self, path: str) -> None:
        """Delete a file that `nest prune` names (an old generation, an object nobody refers to); absent is fine."""
        ...
