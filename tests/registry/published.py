"""A registry in a folder with the package `tiny` in it, a client's own places, and a web server that counts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from linnet.registry.check import check_package
from linnet.registry.locate import Located
from linnet.registry.publish import Published, make_publication, publish_version
from linnet.registry.registry import Registry
from linnet.registry.store.open import open_store


def publish(registry: Path, package: Path, version: str) -> Published:
    """Publish a package folder, which has been checked without the Hub."""
    located = Located(package)
    publication = make_publication(located, version, check_package(located, hub=False))
    return publish_version(opened(registry), publication)


def opened(registry: Path | str) -> Registry:
    return Registry(open_store(registry))


def as_client(folder: Path, monkeypatch: Any) -> None:
    """A machine that has never asked anything: cache and memory of its own below `folder`."""
    monkeypatch.setenv("LINNET_CACHE", str(folder / "cache"))
    monkeypatch.setenv("LINNET_DATA", str(folder / "data"))


def overwrite(path: Path, data: bytes) -> None:
    """Change a file that is read-only, as one who may do anything would."""
    path.chmod(0o644)
    path.write_bytes(data)


@dataclass(slots=True)
class Web:
    """A static host: `url`; `bytes` sent, heads and bodies; `paths` asked for; `edit` may change what is sent."""

    url: str = ""
    bytes: int = 0
    paths: list[str] = field(default_factory=list)
    edit: Callable[[str, bytes], bytes] | None = None


@contextmanager
def served(folder: Path) -> Iterator[Web]:
    """`folder` over HTTP, without ranges, for as long as the context lasts."""
    web = Web()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, web, directory=str(folder)))
    web.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield web
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(SimpleHTTPRequestHandler):
    def __init__(self, web: Web, *arguments: Any, **named: Any) -> None:
        self.web = web
        super().__init__(*arguments, **named)

    def do_GET(self) -> None:
        self.web.paths.append(self.path)
        path = Path(self.translate_path(self.path))
        if not path.is_file():
            self.send_error(404)
            return
        data = path.read_bytes()
        if self.web.edit is not None:
            data = self.web.edit(self.path, data)
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.web.bytes += sum(map(len, self._headers_buffer)) + len(data)  # type: ignore[attr-defined]
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Tests read `Web`, not the terminal."""
