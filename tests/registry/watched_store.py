"""A store that tells of every operation before and after it, for tests that fail it, delay it or end the process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from linnet.registry.store.base import Fetched, Store

# Told the moment ("before" or "after"), the operation and its path; what it raises is what the operation raises.
Tell = Callable[[str, str, str], None]


class WatchedStore:
    """`store`, with `create_all` taken apart into its files, since it promises no more than that."""

    def __init__(self, store: Store, tell: Tell) -> None:
        self.store, self.tell = store, tell

    @property
    def url(self) -> str:
        return self.store.url

    @property
    def writable(self) -> bool:
        return self.store.writable

    def create(self, path: str, data: bytes | Path) -> bool:
        self.tell("before", "create", path)
        made = self.store.create(path, data)
        self.tell("after", "create", path)
        return made

    def create_all(self, files: Mapping[str, bytes | Path]) -> set[str]:
        return {path for path, data in files.items() if not self.create(path, data)}

    def replace(self, path: str, data: bytes) -> None:
        self.tell("before", "replace", path)
        self.store.replace(path, data)
        self.tell("after", "replace", path)

    def read(self, path: str, *, limit: int, tag: str | None = None) -> Fetched | None:
        self.tell("before", "read", path)
        found = self.store.read(path, limit=limit, tag=tag)
        self.tell("after", "read", path)
        return found

    def stream(self, path: str, start: int = 0) -> Iterator[bytes]:
        self.tell("before", "stream", path)
        yield from self.store.stream(path, start)
        self.tell("after", "stream", path)

    def list(self, prefix: str) -> Iterator[str]:
        self.tell("before", "list", prefix)
        yield from self.store.list(prefix)
        self.tell("after", "list", prefix)

    def remove(self, path: str) -> None:
        self.tell("before", "remove", path)
        self.store.remove(path)
        self.tell("after", "remove", path)
