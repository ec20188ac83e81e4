"""`nest site serve`: the site on this machine, built again when a package changes, with pages that notice."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from io import BytesIO
from pathlib import Path
from urllib.parse import unquote, urlsplit

from linnet.site_builder.build import SiteReport
from linnet.site_builder.sources import ModelSource
from linnet.site_builder.state import MARKER, site_code

SCRIPT, CHANGES = "/.nest-reload.js", "/.nest-changes"
# How long a page that waits for a change is left without a word: proxies and browsers give up on silence.
PATIENCE_SECONDS = 15.0
_POLICY = b"default-src 'none';"
_SOURCE = b"new EventSource('" + CHANGES.encode() + b"').onmessage = () => location.reload();\n"


class Changes:
    """How often the site was built anew; who waits is woken."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.count = 0

    def tell(self) -> None:
        with self._changed:
            self.count += 1
            self._changed.notify_all()

    def wait(self, seen: int, seconds: float) -> int:
        """The count as soon as it is not `seen`, or as it is after `seconds`."""
        with self._changed:
            self._changed.wait_for(lambda: self.count != seen, seconds)
            return self.count


class SiteServer(http.server.ThreadingHTTPServer):
    """Serves the folder of a site on this machine alone; port 0 takes a free one."""

    daemon_threads = True

    def __init__(self, folder: Path, port: int) -> None:
        self.changes = Changes()
        super().__init__(("127.0.0.1", port), partial(_Handler, directory=str(folder)))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"


class Rebuilder:
    """Builds the site whenever the models that it is made of are others than before."""

    def __init__(
        self, sources: Callable[[], Sequence[ModelSource]], build: Callable[[Sequence[ModelSource]], SiteReport]
    ) -> None:
        self._sources, self._build = sources, build
        self._seen: tuple[str, list[tuple[str, str | None]]] | None = None

    def step(self) -> SiteReport | None:
        """Build if something changed; None where nothing did. Raises what reading and building raise, once for each
        change."""
        sources = self._sources()
        now = (site_code(), [(source.name, source.key) for source in sources])
        if now == self._seen:
            return None
        self._seen = now
        return self._build(sources)


class _Handler(http.server.SimpleHTTPRequestHandler):
    server: SiteServer

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        if path == CHANGES:
            self._tell_changes()
        elif path == SCRIPT:
            self._send(_SOURCE, "text/javascript; charset=utf-8")
        else:
            super().do_GET()

    def send_head(self) -> BytesIO | None:
        """The file as it is; a page with a script that asks for changes, which the file itself does not have."""
        path = Path(self.translate_path(self.path))
        if path.is_dir():
            if not urlsplit(self.path).path.endswith("/"):
                self.send_response(HTTPStatus.MOVED_PERMANENTLY)
                # A path that begins with two slashes would name another host.
                self.send_header("Location", f"/{urlsplit(self.path).path.strip('/')}/")
                self.end_headers()
                return None
            path /= "index.html"
        try:
            data = path.read_bytes() if path.name != MARKER else None
        except OSError:
            data = None
        if data is None:
            self.send_error(HTTPStatus.NOT_FOUND)
            return None
        if path.suffix == ".html":
            data = data.replace(_POLICY, _POLICY + b" connect-src 'self';", 1)
            data = data.replace(b"</head>", f'<script src="{SCRIPT}" defer></script></head>'.encode(), 1)
        kind = self.guess_type(str(path))
        text = kind.startswith("text/") or kind.endswith(("/json", "xml", "javascript"))
        self._head(len(data), f"{kind}; charset=utf-8" if text else kind)
        return BytesIO(data)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: what the site is asked for is nobody's concern."""

    def _send(self, data: bytes, kind: str) -> None:
        self._head(len(data), kind)
        self.wfile.write(data)

    def _head(self, length: int, kind: str) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(length))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()

    def _tell_changes(self) -> None:
        """An event for each build, until the page goes away."""
        changes = self.server.changes
        seen = changes.count  # before the answer begins, so that no build after that is missed
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        with suppress(OSError):
            while True:
                now = changes.wait(seen, PATIENCE_SECONDS)
                self.wfile.write(b"data: built\n\n" if now != seen else b": still here\n\n")
                self.wfile.flush()
                seen = now
