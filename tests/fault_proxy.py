"""A proxy between a client and any HTTP server that acts out faults: answers lost, cut, held up or made up."""

from __future__ import annotations

import http.client
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

HELD_SECONDS = 5.0
# What a proxy sets itself.
_FRAMING = frozenset({"connection", "content-length", "transfer-encoding", "keep-alive"})


@dataclass(slots=True)
class ProxyFault:
    """What happens to the next `times` requests (None: to all) whose line, as in `GET /path?query`, matches `where`.

    - an integer: that status is answered, with `headers` and `body`, and the server is not asked
    - `drop`: no answer, and the server is not asked; `lose`: the server is asked, and its answer is lost
    - `late`: the server is asked, and the answer is `status`, 500
    - `truncate`, `stall`: half of the body, then the end of the connection, at once or after a while
    - `damage`: one byte of the body is another; `wrong-etag`: the ETag is always the same
    - `no-range`, `no-condition`: the server is not told of Range, or of If-None-Match and If-Match
    - `stale`: the first answer, again and again
    - `loop`: a redirect to the same place; `nowhere`: a redirect to what is no address
    - `encoded`: the body is said to be gzip, and is not
    """

    kind: str | int
    where: str = ""
    times: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes


class FaultProxy:
    """The proxy. `endpoint` is its address; `faults` are looked through in order; `requests` are the lines it saw."""

    def __init__(self, target: str) -> None:
        self.target = urlsplit(target)
        self.faults: list[ProxyFault] = []
        self.requests: list[str] = []
        self.stale: dict[str, Answer] = {}
        self._lock = threading.Lock()
        self._server = _Server(self)
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> FaultProxy:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def seen(self, line: str) -> ProxyFault | None:
        """Notes a request; the fault to act out, used up by one."""
        with self._lock:
            self.requests.append(line)
            for fault in self.faults:
                if fault.times != 0 and re.search(fault.where, line):
                    if fault.times is not None:
                        fault.times -= 1
                    return fault
            return None


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, proxy: FaultProxy) -> None:
        self.proxy = proxy
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up early is what some tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        """Tests read `requests`, not the terminal."""

    def handle_any(self) -> None:
        sent = self._body()
        fault = self.server.proxy.seen(line := f"{self.command} {self.path}")
        kind = fault.kind if fault else None
        if fault is not None and isinstance(kind, int):
            return self._answer(Answer(kind, fault.headers, fault.body))
        if kind == "drop":
            return self._hang_up()
        if kind == "loop":
            return self._answer(Answer(302, {"Location": self.path}, b""))
        if kind == "nowhere":
            return self._answer(Answer(302, {"Location": "ftp://127.0.0.1/nothing"}, b""))
        if kind == "stale":
            if line not in self.server.proxy.stale:
                self.server.proxy.stale[line] = self._ask(sent, ())
            return self._answer(self.server.proxy.stale[line])
        hidden = {"no-range": ("range",), "no-condition": ("if-none-match", "if-match")}.get(str(kind), ())
        answer = self._ask(sent, hidden)
        if kind == "lose":
            return self._hang_up()
        if kind == "late":
            return self._answer(Answer(500, {}, b""))
        if kind == "wrong-etag":
            answer = Answer(answer.status, {**answer.headers, "ETag": '"always"'}, answer.body)
        if kind == "encoded":
            answer = Answer(answer.status, {**answer.headers, "Content-Encoding": "gzip"}, answer.body)
        if kind == "damage" and answer.body:
            middle = len(answer.body) // 2
            changed = bytes([answer.body[middle] ^ 1])
            answer = Answer(answer.status, answer.headers, answer.body[:middle] + changed + answer.body[middle + 1 :])
        if kind in ("truncate", "stall"):
            return self._break_off(answer, HELD_SECONDS if kind == "stall" else 0.0)
        return self._answer(answer)

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length", "0")))
        data = bytearray()
        while size := int(self.rfile.readline(), 16):
            data += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return bytes(data)

    def _ask(self, sent: bytes, hidden: tuple[str, ...]) -> Answer:
        target = self.server.proxy.target
        assert target.hostname is not None
        connection = http.client.HTTPConnection(target.hostname, target.port, timeout=60)
        left_out = _FRAMING | set(hidden)
        headers = {name: value for name, value in self.headers.items() if name.lower() not in left_out}
        try:
            connection.request(self.command, self.path, sent or None, headers | {"Content-Length": str(len(sent))})
            answer = connection.getresponse()
            kept = {name: value for name, value in answer.getheaders() if name.lower() not in _FRAMING}
            if self.command == "HEAD":
                kept["Content-Length"] = answer.headers.get("Content-Length", "0")
            return Answer(answer.status, kept, answer.read())
        finally:
            connection.close()

    def _answer(self, answer: Answer) -> None:
        self._begin(answer)
        self.wfile.write(answer.body)

    def _begin(self, answer: Answer) -> None:
        self.send_response_only(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        if answer.status not in (204, 304) and "Content-Length" not in answer.headers:
            self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()

    def _break_off(self, answer: Answer, seconds: float) -> None:
        self._begin(answer)
        self.wfile.write(answer.body[: len(answer.body) // 2])
        self.wfile.flush()
        threading.Event().wait(seconds)
        self._hang_up()

    def _hang_up(self) -> None:
        self.close_connection = True


for _verb in ("GET", "HEAD", "PUT", "POST", "DELETE"):
    setattr(_Handler, f"do_{_verb}", _Handler.handle_any)


@contextmanager
def proxied(target: str) -> Iterator[FaultProxy]:
    """A proxy before a server, stopped at the end."""
    with FaultProxy(target) as proxy:
        yield proxy
