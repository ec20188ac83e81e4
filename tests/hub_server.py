"""A local server that speaks the Hub's file protocol, for tests and for trying things by hand.

    python tests/hub_server.py FOLDER [--port 8080]

`FOLDER/<owner>/<name>/<commit>/<file>` is served as `/<owner>/<name>/resolve/<commit>/<file>`: a redirect to another
port, as the Hub redirects to its content network, with ETag, commit and size headers; the other port answers ranges.
Commits over the API move the branch `main`; large files go to the other port by LFS. Set HF_ENDPOINT to the address it
prints (and HF_HUB_DISABLE_XET=1). Faults can be set for each file and each call; bytes and requests are counted.
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
from urllib.parse import parse_qs, quote, unquote, urlsplit

from hub_commits import BLOBS, Commit, Overtaken, Repositories, etag, tree_entries

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
    "412": (412, {}),
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
    """`kind` is a key of STATUS_FAULTS or one of ACTED_FAULTS; acted out `times` times (None: always).

    Of a call: a key of STATUS_FAULTS or "stall"; of `api/commit-answer`, after the commit was made, "500" or "drop".
    """

    kind: str
    times: int | None = None


@dataclass(slots=True)
class Traffic:
    """What crossed the wire: header and body bytes of both directions, and the requests in order."""

    bytes: int = 0
    requests: list[str] = field(default_factory=list)
    tokens_at_content: int = 0


class HubServer:
    """The server. `endpoint` is what HF_ENDPOINT is set to.

    `faults` maps a file's path to its fault, and `api/` with a call: models, create, revision, tree, paths-info,
    preupload, batch, lfs, commit, commit-answer. `tokens` say who may write; `closed` repositories are "private" or
    "gated".
    """

    def __init__(self, root: Path, port: int = 0) -> None:
        self.root = root
        self.faults: dict[str, Fault] = {}
        self.traffic = Traffic()
        self.repositories = Repositories(root)
        self.tokens = {"hf_writer": "write", "hf_reader": "read"}
        self.expired = {"hf_expired"}
        self.closed: dict[str, str] = {}
        self.entries_a_page = 1000
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

    def create_repo(self, repo: str) -> None:
        """An empty repository, for a registry."""
        self.repositories.create(repo)

    def reset(self) -> None:
        """Forget faults and traffic."""
        self.faults, self.traffic = {}, Traffic()


class _Listener(ThreadingHTTPServer):
    # Dozens of processes may connect at once.
    request_queue_size = 256
    daemon_threads = True

    def __init__(self, hub: HubServer, handler: type[BaseHTTPRequestHandler], port: int) -> None:
        self.hub = hub
        super().__init__(("127.0.0.1", port), handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up early is what some tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Headers and body are written apart, and would wait for each other.
    disable_nagle_algorithm = True
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
        raise AssertionError("each port answers in its own way")

    def body(self) -> bytes:
        """What was sent, counted."""
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            data = bytearray()
            while size := int(self.rfile.readline(), 16):
                data += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            data = bytearray(self.rfile.read(int(self.headers.get("Content-Length", "0"))))
        self.hub.count(len(data))
        return bytes(data)

    def token(self) -> str | None:
        return self.headers.get("Authorization", "").removeprefix("Bearer ") or None

    def send_file(self, path: Path, fault: str, extra: dict[str, str]) -> None:
        """A file or the range of it that was asked for."""
        if self.headers.get("If-None-Match") == f'"{etag(path)}"':
            return self.answer(304, extra)
        size = path.stat().st_size
        start, stop = 0, size
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if asked and fault != "ignore-range":
            start, stop = int(asked[1]), min(int(asked[2] or size) + 1, size)
            if start >= size:
                return self.answer(416, {"Content-Range": f"bytes */{size}"})
        headers = {**extra, "Accept-Ranges": "bytes", "Content-Length": str(stop - start)}
        headers |= {"ETag": f'"{etag(path)}"'}
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
            while start < stop and (block := file.read(min(BLOCK, stop - start))):
                self.wfile.write(block)
                self.hub.count(len(block))
                start += len(block)

    def answer_json(self, value: object, headers: dict[str, str] | None = None) -> None:
        self.answer(200, {"Content-Type": "application/json", **(headers or {})}, json.dumps(value).encode())


class _FrontHandler(_Handler):
    """The Hub itself: knows repositories, takes commits, and redirects to the bytes."""

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        if found := re.fullmatch(r"/(.+)/resolve/([^/]+)/(.+)", path):
            self.resolve(*found.groups())
        elif path == "/api/models":
            self.models(parse_qs(urlsplit(self.path).query).get("author", [""])[0])
        elif found := re.fullmatch(r"/api/models/([^/]+/[^/]+)", path):
            self.revision(found[1], "main")
        elif found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/revision/([^/]+)", path):
            self.revision(*found.groups())
        elif found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/tree/([^/]+)(?:/(.+))?", path):
            self.tree(*found.groups())
        else:
            self.answer(404, {"X-Error-Code": "EntryNotFound"})

    def do_POST(self) -> None:
        data, path = self.body(), unquote(urlsplit(self.path).path)
        if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/paths-info/([^/]+)", path):
            self.paths_info(*found.groups(), parse_qs(data.decode())["paths"])
        elif found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/preupload/([^/]+)", path):
            self.preupload(*found.groups(), json.loads(data))
        elif found := re.fullmatch(r"/([^/]+/[^/]+)\.git/info/lfs/objects/batch", path):
            self.batch(found[1], json.loads(data))
        elif found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/commit/main", path):
            self.make_commit(found[1], data)
        elif path == "/api/repos/create":
            self.create(json.loads(data))
        elif path == "/api/validate-yaml":
            self.answer_json({"errors": [], "warnings": []})
        else:
            self.answer(404, {"X-Error-Code": "EntryNotFound"})

    def resolve(self, repo: str, revision: str, file: str) -> None:
        fault = self.hub.fault(file)
        if fault in STATUS_FAULTS:
            status, headers = STATUS_FAULTS[fault]
            return self.answer(status, headers)
        if self.refused(repo):
            return None
        # A commit that lies in a folder is not walked for one of its files.
        path = self.hub.root / repo / revision / file
        oid, direct = revision, False
        if not path.is_file():
            commit = self.commit(repo, revision)
            if commit is None:
                return None
            if file not in commit.files:
                return self.answer(404, {"X-Error-Code": "EntryNotFound"})
            oid, path = commit.oid, commit.files[file]
            direct = path.parent.name == BLOBS and fault not in ("redirect-loop", "redirect-nowhere")
        extra = {"X-Repo-Commit": "0" * 40 if fault == "wrong-commit" else oid}
        if direct:
            return self.send_file(path, fault or "", extra)
        where = f"{self.hub.content_endpoint}/content/{quote(path.relative_to(self.hub.root).as_posix())}"
        where += f"?fault={fault or ''}"
        if fault == "redirect-loop":
            where = self.path
        if fault == "redirect-nowhere":
            where = "ftp://127.0.0.1/nothing"
        return self.answer(
            302,
            {
                **extra,
                "Location": where,
                "ETag": f'"{etag(path)}"',
                "X-Linked-Size": str(path.stat().st_size),
                "X-Linked-Etag": f'"{etag(path)}"',
                "Accept-Ranges": "bytes",
            },
        )

    def models(self, author: str) -> None:
        """An organisation's repositories that the token may see, with the names of their files."""
        if not self.called("models", f"{author}/"):
            return
        told = []
        for repo in self.hub.repositories.names(author):
            commit = self.hub.repositories.find(repo, "main")
            if commit is not None and (self.token() in self.hub.tokens or self.hub.closed.get(repo) != "private"):
                siblings = [{"rfilename": path} for path in sorted(commit.files)]
                told.append({"id": repo, "modelId": repo, "sha": commit.oid, "siblings": siblings})
        self.answer_json(told)

    def create(self, asked: dict[str, Any]) -> None:
        repo = f"{asked['organization']}/{asked['name']}" if asked.get("organization") else asked["name"]
        if not self.called("create", repo, writing=True):
            return None
        url = f"{self.hub.endpoint}/{repo}"
        if self.hub.repositories.known(repo):
            body = json.dumps({"url": url, "error": "You already created this model repo"}).encode()
            return self.answer(409, {"Content-Type": "application/json"}, body)
        self.hub.repositories.create(repo)
        if asked.get("private") or asked.get("visibility") == "private":
            self.hub.closed[repo] = "private"
        return self.answer_json({"url": url, "id": repo, "name": repo})

    def revision(self, repo: str, revision: str) -> None:
        if self.called("revision", repo) and (commit := self.commit(repo, revision)) is not None:
            private = self.hub.closed.get(repo) == "private"
            body: dict[str, Any] = {"id": repo, "modelId": repo, "sha": commit.oid, "private": private}
            if "expand" not in urlsplit(self.path).query:
                body["siblings"] = [{"rfilename": entry["path"]} for entry in tree_entries(commit)]
            self.answer_json(body)

    def tree(self, repo: str, revision: str, below: str | None) -> None:
        if not self.called("tree", repo) or (commit := self.commit(repo, revision)) is None:
            return None
        entries = tree_entries(commit, below or "")
        if below and not entries:
            return self.answer(404, {"X-Error-Code": "EntryNotFound"})
        parts = urlsplit(self.path)
        start = int(parse_qs(parts.query).get("cursor", ["0"])[0])
        stop = start + self.hub.entries_a_page
        more = f'<{self.hub.endpoint}{parts.path}?recursive=True&cursor={stop}>; rel="next"'
        return self.answer_json(entries[start:stop], {"Link": more} if stop < len(entries) else {})

    def paths_info(self, repo: str, revision: str, paths: list[str]) -> None:
        if self.called("paths-info", repo) and (commit := self.commit(repo, revision)) is not None:
            there = {path: commit.files[path] for path in paths if path in commit.files}
            entries = tree_entries(Commit(commit.oid, there))
            self.answer_json([entry | large_file(commit.files[entry["path"]]) for entry in entries])

    def preupload(self, repo: str, revision: str, asked: dict[str, Any]) -> None:
        if self.called("preupload", repo, writing=True) and self.commit(repo, revision) is not None:
            self.answer_json({"files": self.hub.repositories.upload_modes(repo, revision, asked)})

    def batch(self, repo: str, asked: dict[str, Any]) -> None:
        if self.called("batch", repo, writing=True):
            where = f"{self.hub.content_endpoint}/lfs/"
            objects = [{"oid": item["oid"], "size": item["size"]} for item in asked["objects"]]
            for item in objects:
                if not self.hub.repositories.has_large(item["oid"]):
                    item["actions"] = {"upload": {"href": where + item["oid"]}}
            self.answer_json({"transfer": "basic", "objects": objects})

    def make_commit(self, repo: str, lines: bytes) -> None:
        if not self.called("commit", repo, writing=True):
            return None
        fault = self.hub.fault("api/commit-answer")
        try:
            made = self.hub.repositories.commit(repo, lines)
        except Overtaken:
            return self.answer(412, {"X-Error-Message": "A commit has happened since. Please refresh and try again."})
        if fault == "500":
            return self.answer(500, {})
        if fault == "drop":
            self.close_connection = True
            return None
        return self.answer_json({"commitOid": made.oid, "commitUrl": f"{self.hub.endpoint}/{repo}/commit/{made.oid}"})

    def called(self, call: str, repo: str, *, writing: bool = False) -> bool:
        """Whether a call may go on; where not, that is answered."""
        fault = self.hub.fault(f"api/{call}")
        if fault == "stall":
            threading.Event().wait(3)
            self.close_connection = True
            return False
        if fault in STATUS_FAULTS:
            self.answer(*STATUS_FAULTS[fault])
            return False
        return not self.refused(repo, writing=writing)

    def refused(self, repo: str, *, writing: bool = False) -> bool:
        """Whether the token may not do it; then that is answered."""
        token, closed = self.token(), self.hub.closed.get(repo)
        role = self.hub.tokens.get(token or "")
        if token in self.hub.expired or (token and role is None and (writing or closed)):
            self.answer(401, {"X-Error-Message": "Invalid credentials in Authorization header"})
        elif closed == "gated":
            self.answer(403 if token else 401, {"X-Error-Code": "GatedRepo"})
        elif (writing or closed == "private") and token is None:
            self.answer(401, {"X-Error-Message": "Invalid username or password."})
        elif writing and role != "write":
            self.answer(403, {"X-Error-Message": "You don't have the rights to write to this repository."})
        else:
            return False
        return True

    def commit(self, repo: str, revision: str) -> Commit | None:
        """A revision, `main` being the last commit; where there is none, that is answered."""
        found = self.hub.repositories.find(repo, revision)
        if found is None:
            known = self.hub.repositories.known(repo)
            self.answer(404, {"X-Error-Code": "RevisionNotFound" if known else "RepoNotFound"})
        return found


def large_file(path: Path) -> dict[str, Any]:
    """What the Hub says of a file that it keeps by its sha256: safetensors, as `.gitattributes` has it."""
    if path.suffix != ".safetensors":
        return {}
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return {"lfs": {"oid": digest, "size": path.stat().st_size, "pointerSize": 134}}


class _ContentHandler(_Handler):
    """The content network: answers ranges, takes large files, and should never see a token."""

    def do_GET(self) -> None:
        if "Authorization" in self.headers:
            self.hub.traffic.tokens_at_content += 1
        parts = urlsplit(self.path)
        path = self.hub.root / unquote(parts.path).removeprefix("/content/")
        self.send_file(path, parts.query.removeprefix("fault="), {})

    def do_PUT(self) -> None:
        data = self.body()
        fault = self.hub.fault("api/lfs")
        if fault in STATUS_FAULTS:
            return self.answer(*STATUS_FAULTS[fault])
        good = hashlib.sha256(data).hexdigest() == self.path.rpartition("/")[2]
        if good:
            self.hub.repositories.keep(data)
        return self.answer(200 if good else 400, {})


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
