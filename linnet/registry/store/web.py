"""A registry that any static host serves: read-only, over https."""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import quote

import httpx2

from linnet.registry.store.base import (
    AbsentError,
    Fetched,
    ReadOnlyError,
    StoreError,
    checked_path,
    checked_prefix,
    store_error,
)
from linnet.registry.store.http import HttpReader

_clients: dict[int, httpx2.Client] = {}


class WebStore:
    """A folder of files below `url`. A static host lists no folders: readers go by the index and the package files."""

    writable = False

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._reader = HttpReader(self.url, self._address, _client, dict, self._status_error)

    def create(self, path: str, data: bytes | Path) -> bool:
        raise self._read_only(path)

    def create_all(self, files: Mapping[str, bytes | Path]) -> set[str]:
        raise self._read_only(next(iter(files), "files"))

    def replace(self, path: str, data: bytes) -> None:
        raise self._read_only(path)

    def remove(self, path: str) -> None:
        raise self._read_only(path)

    def read(self, path: str, *, limit: int, tag: str | None = None) -> Fetched | None:
        return self._reader.read(checked_path(path), limit=limit, tag=tag)

    def stream(self, path: str, start: int = 0) -> Iterator[bytes]:
        return self._reader.stream(checked_path(path), start)

    def list(self, prefix: str) -> Iterator[str]:
        folder = checked_prefix(prefix)
        message = f"{self.url} is a web server, which does not tell what is in {folder or 'it'}."
        help = "Ask for a name that the index has, or use the registry's own address (a path, hf://, s3://)."
        raise store_error(StoreError, "no-list", folder or self.url, message, help)

    def _address(self, path: str) -> str:
        return f"{self.url}/{quote(path)}"

    def _read_only(self, path: str) -> ReadOnlyError:
        message = f"{self.url} is a web server, which takes no {path}."
        help = "Name a registry that can be written to: a path, hf://, s3:// (--registry, LINNET_REGISTRY)."
        return store_error(ReadOnlyError, "read-only", path, message, help)

    def _status_error(self, response: httpx2.Response, path: str) -> StoreError:
        status = response.status_code
        if status in (404, 410):
            return AbsentError(self.url, path)
        if status in (401, 403):
            message = f"{self.url} answered {status} for {path}: it is not public, or not there."
            return store_error(StoreError, "forbidden", path, message, "Check the address, or use another mirror.")
        message = f"{self.url} answered {status} for {path}, which is outside the protocol."
        return store_error(StoreError, "unexpected", path, message, "Check the registry's address.")


def _client() -> httpx2.Client:
    """One client a process: connections are not shared with a child."""
    if (client := _clients.get(os.getpid())) is None:
        client = _clients.setdefault(os.getpid(), httpx2.Client(headers={"User-Agent": "linnet-nest"}))
        atexit.register(client.close)
    return client
