"""The site served on this machine: what it answers, that pages notice a change, that faults end nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from email.message import Message
from http.client import HTTPConnection
from pathlib import Path

import pytest

from linnet.registry.errors import PackageError
from linnet.site_builder.build import SiteReport, build_site
from linnet.site_builder.collect import PackageSource
from linnet.site_builder.serve import CHANGES, SCRIPT, Rebuilder, SiteServer
from linnet.site_builder.sources import folder_sources


@pytest.fixture
def server(make_package: Callable[..., PackageSource], build: Callable[..., SiteReport]) -> Iterator[SiteServer]:
    report = build(make_package(files={"evil.html": "<script>alert(1)</script>"}))
    with SiteServer(report.output, 0) as found:
        threading.Thread(target=found.serve_forever, daemon=True).start()
        yield found
        found.shutdown()


def ask(server: SiteServer, path: str) -> tuple[int, Message, bytes]:
    """Status, headers and body."""
    with closing(HTTPConnection("127.0.0.1", server.server_port, timeout=30)) as connection:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()


def test_pages_are_served_with_a_script_that_waits(server: SiteServer) -> None:
    for path in ("/", "/models/tiny-wren/", "/models/tiny-wren/index.html"):
        status, headers, data = ask(server, path)
        body = data.decode()
        assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert "default-src 'none'; connect-src 'self';" in body
        assert f'<script src="{SCRIPT}" defer></script></head>' in body
    assert b"EventSource" in ask(server, SCRIPT)[2]


def test_other_files_are_served_as_they_are(server: SiteServer) -> None:
    for path, kind in (
        ("/static/site.css", "text/css; charset=utf-8"),
        ("/static/site.js", "text/javascript; charset=utf-8"),
        ("/models/tiny-wren/model.json", "application/json; charset=utf-8"),
        ("/models/tiny-wren/files/raw/evil.html.txt", "text/plain; charset=utf-8"),
    ):
        status, headers, _ = ask(server, path)
        assert (status, headers["Content-Type"]) == (200, kind)
    assert ask(server, "/models/tiny-wren/files/raw/evil.html.txt")[2] == b"<script>alert(1)</script>"


@pytest.mark.parametrize(
    "path",
    [
        "/nothing",
        "/.nest-site",
        "/models",
        "/../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "//example.org",
        "/static/",
    ],
)
def test_nothing_else_is_served(server: SiteServer, path: str) -> None:
    status, headers, body = ask(server, path)
    assert status in (301, 404)
    # A path may look like another host's address; where it leads must not be one.
    assert not (headers["Location"] or "/").startswith("//")
    assert b"root:" not in body


def test_a_page_that_waits_hears_of_a_build(server: SiteServer) -> None:
    with closing(HTTPConnection("127.0.0.1", server.server_port, timeout=30)) as connection:
        connection.request("GET", CHANGES)
        with closing(connection.getresponse()) as answer:
            assert answer.headers["Content-Type"] == "text/event-stream"
            before = server.changes.count
            server.changes.tell()
            assert answer.readline() == b"data: built\n"
    assert server.changes.count == before + 1


def test_it_is_built_when_a_package_changes(make_package: Callable[..., PackageSource], tmp_path: Path) -> None:
    make_package("tiny-wren")
    nests = tmp_path / "nests"
    rebuilder = Rebuilder(lambda: folder_sources(nests), lambda sources: build_site(sources, tmp_path / "site"))
    first = rebuilder.step()
    assert first is not None
    assert first.rendered == ("tiny-wren",)
    assert rebuilder.step() is None
    source = nests / "tiny-wren" / "src" / "lib.linnet"
    right = source.read_text(encoding="utf-8")
    source.write_text("module wren\n\nlet\n", encoding="utf-8")
    with pytest.raises(PackageError):
        rebuilder.step()
    # The same fault is told once.
    assert rebuilder.step() is None
    source.write_text(right, encoding="utf-8")
    again = rebuilder.step()
    assert again is not None
    assert again.ok
