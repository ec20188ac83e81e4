"""A local server that speaks the Hub's file protocol, for tests and for trying things by hand.

    python tests/hub_server.py FOLDER [--port 8080]

`FOLDER/<owner>/<name>/<commit>/<file>` is served as `/<owner>/<name>/resolve/<commit>/<file>`: a redirect to another
port, as the Hub redirects to its content network, with ETag, commit and size headers; the other port answers ranges.
Set HF_ENDPOINT to the address it prints. Faults can be set for each file; bytes and requests are counted.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

DTYPE_BYTES = {"BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "BF16": 2, "F16": 2, "I32": 4, "F32": 4, "I64": 8, "F64": 8}
BLOCK = 1 << 16

# What a fault answers: status and headers. The others are acted out by the handlers.
STATUS_FAULTS: dict[str, tuple[int, dict[str, str]]] = {
    "401": (401, {"X-Error-Message": "Invalid username or password."}),
    "401-bad-token": (401, {"X-Error-Message": "Invalid credentials in Authorization header"}),
    "401-gated": (401, {"X-Error-Code": "GatedRepo"}),
    "403": (403, {}),
    "403-gated": (403, {"X-Error-Code": "GatedRepo"}),
    "404-repo": (404, {"X-Error-Code": "RepoNotFound"}),
    "404-revision": (404, {"X-Error-Code": "RevisionNotFound"}),
    "404-file": (404, {"X-Error-Code": "EntryNotFound"}),
    "429": (429, {"Retry-After": "1"}),
    "429-long": (429, {"Retry-After": "600"}),
    "500": (500, {}),
    "503": (503, {}),
    "418": (418, {}),
}
ACTED_FAULTS = (
    "ignore-range", "truncate", "stall", "redirect-loop", "redirect-nowhere", "wrong-commit", "wrong-range", "too-much",
)  # fmt: skip


@dataclass(slots=True)
class Fault:
    """`kind` is a key of STATUS_FAULTS or one of ACTED_FAULTS; it is acted out `times` times (None: always)."""

    kind: str
    times: int | None = None


@dataclass(slots=True)
class Traffic:
    """What crossed the wire: header and body bytes of both directions, and the requests in order."""

    bytes: int = 0
    requests: list[str] = field(default_factory=list)
    tokens_at_content: int = 0


class HubServer:
    """The server. `endpoint` is what HF_ENDPOINT is set to; `faults` maps a file's name to its fault."""

    def __init__(self, root: Path, port: int = 0) -> None:
        self.root = root
        self.faults: dict[str, Fault] = {}
        self.traffic = Traffic()
        self._lock = threading.Lock()
        self._content = _Listener(self, _ContentHandler, 0)
        self._front = _Listener(self, _FrontHandler, port)
        self.endpoint = f"http://127.0.0.1:{self._front.server_port}"
        self.content_endpoint = f"http://127.0.0.1:{self._content.server_port}"

    def __enter__(self) -> HubServer:
        for listener in (self._content, self._front):
            threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for listener in (self._front, self._content):
            listener.shutdown()
            listener.server_close()

    def serve_forever(self) -> None:
        """Serve until interrupted."""
        with self:
            threading.Event().wait()

    def count(self, amount: int) -> None:
        with self._lock:
            self.traffic.bytes += amount

    def saw(self, line: str) -> None:
        with self._lock:
            self.traffic.requests.append(line)

    def fault(self, file: str) -> str | None:
        """The fault to act out now for a file, used up by one."""
        with self._lock:
            fault = self.faults.get(file)
            if fault is None or fault.times == 0:
                return None
            if fault.times is not None:
                fault.times -= 1
            return fault.kind

    def reset(self) -> None:
        """Forget faults and traffic."""
        self.faults, self.traffic = {}, Traffic()


class _Listener(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, hub: HubServer, handler: type[BaseHTTPRequestHandler], port: int) -> None:
        self.hub = hub
        super().__init__(("127.0.0.1", port), handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up early is what some tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Listener

    @property
    def hub(self) -> HubServer:
        return self.server.hub

    def parse_request(self) -> bool:
        parsed = super().parse_request()
        if parsed:
            self.hub.count(len(self.raw_requestline) + len(bytes(self.headers)))
            self.hub.saw(f"{self.command} {self.path} {self.headers.get('Range', '')}".rstrip())
        return parsed

    def log_message(self, format: str, *args: Any) -> None:
        """Tests read `traffic`, not the terminal."""

    def answer(self, status: int, headers: dict[str, str], body: bytes = b"") -> None:
        self.begin(status, {**headers, "Content-Length": str(len(body))})
        if self.command != "HEAD":
            self.wfile.write(body)
            self.hub.count(len(body))

    def begin(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.hub.count(sum(map(len, self._headers_buffer)))  # type: ignore[attr-defined]
        self.end_headers()

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        raise NotImplementedError


class _FrontHandler(_Handler):
    """The Hub itself: knows repositories and redirects to the bytes."""

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        if found := re.fullmatch(r"/(.+)/resolve/([^/]+)/(.+)", path):
            self.resolve(*found.groups())
        elif found := re.fullmatch(r"/api/models/(.+)/revision/([^/]+)", path):
            self.revision(*found.groups())
        elif found := re.fullmatch(r"/api/models/(.+)/tree/([^/]+)", path):
            self.tree(*found.groups())
        else:
            self.answer(404, {"X-Error-Code": "EntryNotFound"})

    def resolve(self, repo: str, revision: str, file: str) -> None:
        fault = self.hub.fault(file)
        if fault in STATUS_FAULTS:
            status, headers = STATUS_FAULTS[fault]
            return self.answer(status, headers)
        path = self.hub.root / repo / revision / file
        if not (self.hub.root / repo).is_dir():
            return self.answer(404, {"X-Error-Code": "RepoNotFound"})
        if not (self.hub.root / repo / revision).is_dir():
            return self.answer(404, {"X-Error-Code": "RevisionNotFound"})
        if not path.is_file():
            return self.answer(404, {"X-Error-Code": "EntryNotFound"})
        where = f"{self.hub.content_endpoint}/content/{quote(f'{repo}/{revision}/{file}')}?fault={fault or ''}"
        if fault == "redirect-loop":
            where = self.path
        if fault == "redirect-nowhere":
            where = "ftp://127.0.0.1/nothing"
        return self.answer(
            302,
            {
                "Location": where,
                "ETag": f'"{etag(path)}"',
                "X-Repo-Commit": "0" * 40 if fault == "wrong-commit" else revision,
                "X-Linked-Size": str(path.stat().st_size),
                "X-Linked-Etag": f'"{etag(path)}"',
                "Accept-Ranges": "bytes",
            },
        )

    def revision(self, repo: str, revision: str) -> None:
        if (folder := self.commit(repo, revision)) is not None:
            siblings = [{"rfilename": entry["path"]} for entry in tree_entries(folder)]
            body = {"id": repo, "modelId": repo, "sha": folder.name, "siblings": siblings}
            self.answer(200, {"Content-Type": "application/json"}, json.dumps(body).encode())

    def tree(self, repo: str, revision: str) -> None:
        if (folder := self.commit(repo, revision)) is not None:
            self.answer(200, {"Content-Type": "application/json"}, json.dumps(tree_entries(folder)).encode())

    def commit(self, repo: str, revision: str) -> Path | None:
        """The folder of a revision, `main` being the last commit; where there is none, that is answered."""
        commits = sorted(self.hub.root.joinpath(repo).glob("*"))
        named = [folder for folder in commits if folder.name == revision]
        found = named or (commits[-1:] if revision == "main" else [])
        if not found:
            self.answer(404, {"X-Error-Code": "RevisionNotFound" if commits else "RepoNotFound"})
        return found[0] if found else None


def tree_entries(folder: Path) -> list[dict[str, Any]]:
    """The files below a commit's folder, as the Hub lists them."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return [
        {"type": "file", "path": path.relative_to(folder).as_posix(), "size": path.stat().st_size, "oid": etag(path)}
        for path in files
    ]


class _ContentHandler(_Handler):
    """The content network: answers ranges, and should never see a token."""

    def do_GET(self) -> None:
        if "Authorization" in self.headers:
            self.hub.traffic.tokens_at_content += 1
        parts = urlsplit(self.path)
        fault = parts.query.removeprefix("fault=")
        path = self.hub.root / unquote(parts.path).removeprefix("/content/")
        size = path.stat().st_size
        start, stop = 0, size
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if asked and fault != "ignore-range":
            start, stop = int(asked[1]), min(int(asked[2]) + 1, size)
            if start >= size:
                return self.answer(416, {"Content-Range": f"bytes */{size}"})
        headers = {"ETag": f'"{etag(path)}"', "Accept-Ranges": "bytes", "Content-Length": str(stop - start)}
        if fault == "wrong-range":
            start, stop = start + 1, stop + 1
        if asked and fault != "ignore-range":
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
        if fault == "too-much":
            headers["Content-Length"] = str(stop - start + 1)
            stop += 1
        self.begin(206 if asked and fault != "ignore-range" else 200, headers)
        if fault == "stall":
            threading.Event().wait(3)
        if self.command != "HEAD":
            self.send_body(path, start, stop - 1 if fault == "truncate" else stop)
        if fault in ("truncate", "stall"):
            self.close_connection = True
        return None

    def send_body(self, path: Path, start: int, stop: int) -> None:
        with path.open("rb") as file:
            file.seek(start)
            while start < stop:
                block = file.read(min(BLOCK, stop - start))
                self.wfile.write(block)
                self.hub.count(len(block))
                start += len(block)


def etag(path: Path) -> str:
    """An identity of a file that does not need its bytes read: sparse files are large."""
    return hashlib.sha256(f"{path.name}:{path.stat().st_size}".encode()).hexdigest()


def header_bytes(
    tensors: Iterable[tuple[str, str, Sequence[int]]], metadata: dict[str, str] | None = None
) -> tuple[bytes, int]:
    """The first bytes of a safetensors file that holds `(name, dtype, shape)` in order, and the whole file's size."""
    header: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    offset = 0
    for name, dtype, shape in tensors:
        end = offset + math.prod(shape) * DTYPE_BYTES[dtype]
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text, 8 + len(text) + offset


def write_sparse(path: Path, tensors: Iterable[tuple[str, str, Sequence[int]]]) -> None:
    """A safetensors file with a real header over bytes that take no room on the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    start, size = header_bytes(tensors, {"format": "pt"})
    with path.open("wb") as file:
        file.write(start)
        file.truncate(size)


@contextmanager
def running(root: Path) -> Iterator[HubServer]:
    """A server over `root`, stopped at the end."""
    with HubServer(root) as hub:
        yield hub


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--port", type=int, default=0)
    options = parser.parse_args()
    hub = HubServer(options.folder, options.port)
    print(f"HF_ENDPOINT={hub.endpoint}", flush=True)
    try:
        hub.serve_forever()
    except KeyboardInterrupt:
        print(f"{len(hub.traffic.requests)} requests, {hub.traffic.bytes} bytes")


if __name__ == "__main__":
    main()
