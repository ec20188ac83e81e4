"""Where the store tests run: each kind of store in a fresh place, and processes that write to one at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import hub_server
import s3_server

from linnet.registry.store.base import Store
from linnet.registry.store.open import open_store

KINDS = ("directory", "s3", "hub")


@dataclass(frozen=True)
class Place:
    """A fresh registry: how it is opened, and the environment that it needs."""

    kind: str
    url: str
    environment: Mapping[str, str] = field(default_factory=dict)

    def open(self) -> Store:
        return open_store(self.url)


@contextmanager
def s3_place() -> Iterator[Callable[[], Place]]:
    """Makes places in a bucket of a running S3 server."""
    with s3_server.running() as endpoint:
        environment = s3_server.environment(endpoint)
        yield lambda: Place("s3", f"s3://{s3_server.BUCKET}/{uuid.uuid4().hex}/nested", environment)


@contextmanager
def hub_place(root: Path) -> Iterator[Callable[[], Place]]:
    """Makes places in a running Hub."""
    with hub_server.running(root) as hub:

        def make() -> Place:
            repo = f"owner/registry-{uuid.uuid4().hex[:8]}"
            hub.create_repo(repo)
            environment = {"HF_ENDPOINT": hub.endpoint, "HF_TOKEN": "hf_writer"}
            return Place("hub", f"hf://{repo}", environment)

        yield make


class StaticHandler(SimpleHTTPRequestHandler):
    """A static host: files, ETag and 304, single ranges."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = Path(self.translate_path(self.path))
        if not path.is_file():
            return self.send_error(404)
        data = path.read_bytes()
        tag = f'"{path.stat().st_ino}-{path.stat().st_mtime_ns}"'
        if self.headers.get("If-None-Match") == tag:
            return self.send(304, b"", {"ETag": tag})
        wanted = self.headers.get("Range")
        if wanted is None:
            return self.send(200, data, {"ETag": tag})
        start = int(wanted.removeprefix("bytes=").rstrip("-"))
        if start >= len(data):
            return self.send(416, b"", {"Content-Range": f"bytes */{len(data)}"})
        return self.send(
            206, data[start:], {"ETag": tag, "Content-Range": f"bytes {start}-{len(data) - 1}/{len(data)}"}
        )

    def send(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Tests read answers, not the terminal."""


@contextmanager
def static_host(folder: Path) -> Iterator[str]:
    """A folder served over http: its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(StaticHandler, directory=str(folder)))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def directory_place(folder: Path) -> Place:
    return Place("directory", str(folder / uuid.uuid4().hex / "registry"))


def racing(place: Place, processes: int, paths: list[str]) -> dict[int, list[str]]:
    """The paths that each of so many processes, which all create all of them at once, was told it made."""
    command = [sys.executable, str(Path(__file__).with_name("store_writer.py")), place.url, *paths]
    environment = os.environ | dict(place.environment)
    with ExitStack() as running:
        started = []
        for _ in range(processes):
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
            running.enter_context(process)
            running.callback(process.kill)
            started.append(process)
        assert [_line(process) for process in started] == [b"ready\n"] * processes
        for process in started:
            assert process.stdin is not None
            process.stdin.write(b"go\n")
            process.stdin.flush()
        answers = {process.pid: process.communicate()[0] for process in started}
        assert [process.returncode for process in started] == [0] * processes
    return {number: json.loads(answer) for number, answer in answers.items()}


def _line(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    return process.stdout.readline()
