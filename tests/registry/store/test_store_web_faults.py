"""A static host that fails in every way: the right bytes come, or a sentence that says what happened."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from email.utils import formatdate
from pathlib import Path

import httpx2
import pytest
from fault_proxy import FaultProxy, ProxyFault, proxied
from store_places import static_host

from linnet.registry.store import http
from linnet.registry.store.base import AbsentError, Fetched, StoreError
from linnet.registry.store.open import open_store
from linnet.registry.store.web import WebStore

HINT = "packages/tiny.json"
OBJECT = "objects/sha256/ab/abcdef"
SMALL = b'{"name": "tiny"}'
LARGE = bytes(range(256)) * 4000


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    monkeypatch.setattr(http, "RETRY_DELAYS", (0.01, 0.01, 0.01))
    if "stall" in request.node.name:
        monkeypatch.setattr(http, "READ_SECONDS", 2.5)


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[FaultProxy]:
    site = tmp_path / "site"
    for path, content in {HINT: SMALL, OBJECT: LARGE}.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_bytes(content)
    with static_host(site) as address, proxied(address) as server:
        yield server


@pytest.fixture
def store(proxy: FaultProxy) -> WebStore:
    opened = open_store(proxy.endpoint)
    assert isinstance(opened, WebStore)
    return opened


def read(store: WebStore) -> bytes:
    fetched = store.read(HINT, limit=1000)
    assert fetched is not None
    return fetched.data


def streamed(store: WebStore, start: int = 0) -> bytes:
    return b"".join(store.stream(OBJECT, start))


def kinds(act: Callable[[], object]) -> str:
    with pytest.raises(StoreError) as error:
        act()
    assert len(error.value.problems) == 1
    assert error.value.problems[0].help
    return error.value.problems[0].kind


@pytest.mark.parametrize("kind", ["drop", "lose", "truncate", "stall", 429, 500, 502, 503])
def test_what_passes_is_waited_out(store: WebStore, proxy: FaultProxy, kind: str | int) -> None:
    proxy.faults = [ProxyFault(kind, times=2)]
    assert read(store) == SMALL
    proxy.faults = [ProxyFault(kind, times=2)]
    assert streamed(store) == LARGE


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        ("drop", "truncated"),
        ("lose", "truncated"),
        ("truncate", "truncated"),
        ("stall", "timeout"),
        ("encoded", "garbled"),
        ("loop", "redirects"),
        ("nowhere", "redirects"),
        (401, "forbidden"),
        (403, "forbidden"),
        (404, "absent"),
        (410, "absent"),
        (418, "unexpected"),
        (206, "unexpected"),
        (429, "rate-limited"),
        (500, "server-error"),
        (503, "server-error"),
    ],
)
def test_what_does_not_pass_is_told(store: WebStore, proxy: FaultProxy, kind: str | int, word: str) -> None:
    proxy.faults = [ProxyFault(kind)]
    assert kinds(lambda: read(store)) == f"store.{word}"
    assert len(proxy.requests) <= 21


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        ("drop", "truncated"),
        ("encoded", "protocol"),
        ("loop", "redirects"),
        (403, "forbidden"),
        (404, "absent"),
        (500, "server-error"),
    ],
)
def test_streams_tell_it_too(store: WebStore, proxy: FaultProxy, kind: str | int, word: str) -> None:
    proxy.faults = [ProxyFault(kind)]
    assert kinds(lambda: streamed(store)) == f"store.{word}"


def test_a_stream_that_breaks_goes_on_where_it_broke(store: WebStore, proxy: FaultProxy) -> None:
    """Each answer brings half of what is left; as long as something comes it goes on."""
    proxy.faults = [ProxyFault("truncate", times=10)]
    assert streamed(store) == LARGE
    assert len(proxy.requests) == 11


def test_a_stream_of_which_no_more_comes_ends_with_an_error(store: WebStore, proxy: FaultProxy) -> None:
    proxy.faults = [ProxyFault("truncate", times=1), ProxyFault("drop")]
    assert kinds(lambda: streamed(store)) == "store.truncated"


@pytest.mark.parametrize("start", [0, 1, 500_000, len(LARGE)])
def test_a_server_that_ignores_ranges_is_read_from_its_beginning(
    store: WebStore, proxy: FaultProxy, start: int
) -> None:
    proxy.faults = [ProxyFault("no-range")]
    assert streamed(store, start) == LARGE[start:]


def test_a_break_where_ranges_are_ignored(store: WebStore, proxy: FaultProxy) -> None:
    proxy.faults = [ProxyFault("truncate", times=1), ProxyFault("no-range")]
    assert streamed(store) == LARGE
    assert kinds(lambda: streamed(store, len(LARGE) + 1)) == "store.beyond-end"


@pytest.mark.parametrize(
    "told",
    ["bytes 0-9/1024000", "bytes 101-110/1024000", "bytes 100-99/1024000", "bytes 100-109", "items 1-2/3", ""],
)
def test_another_range_than_was_asked_for_is_refused(store: WebStore, proxy: FaultProxy, told: str) -> None:
    proxy.faults = [ProxyFault(206, headers={"Content-Range": told}, body=b"0123456789")]
    assert kinds(lambda: streamed(store, 100)) == "store.protocol"


def test_a_refused_range_is_the_end_only_where_the_file_ends(store: WebStore, proxy: FaultProxy) -> None:
    assert streamed(store, len(LARGE)) == b""
    for told, word in {"": "protocol", "bytes */50": "beyond-end", "bytes */1024000": "protocol"}.items():
        proxy.faults = [ProxyFault(416, headers={"Content-Range": told})]
        assert kinds(lambda: streamed(store, 100)) == f"store.{word}"


def test_a_file_that_changes_while_it_is_read_is_refused(store: WebStore, proxy: FaultProxy) -> None:
    proxy.faults = [
        ProxyFault("truncate", times=1),
        ProxyFault(206, headers={"Content-Range": "bytes 512000-512009/512010"}, body=b"0123456789"),
    ]
    assert kinds(lambda: streamed(store)) == "store.protocol"


def test_a_wrong_etag_does_no_harm(store: WebStore, proxy: FaultProxy, tmp_path: Path) -> None:
    proxy.faults = [ProxyFault("wrong-etag")]
    assert store.read(HINT, limit=1000) == Fetched(SMALL, '"always"')
    (tmp_path / "site" / HINT).write_bytes(b"new")
    assert store.read(HINT, limit=1000, tag='"always"') == Fetched(b"new", '"always"')


def test_304_is_no_answer_to_a_question_without_a_tag(store: WebStore, proxy: FaultProxy) -> None:
    proxy.faults = [ProxyFault(304)]
    assert kinds(lambda: read(store)) == "store.unexpected"
    assert store.read(HINT, limit=1000, tag='"x"') is None


def test_retry_after_is_kept_to(store: WebStore, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(http.time, "sleep", slept.append)
    # The server's clock is a day ahead: its date is read by that clock.
    ahead = 86_400.0 + 1_000_000_000
    dated = {"Retry-After": formatdate(ahead + 3, usegmt=True), "Date": formatdate(ahead, usegmt=True)}
    proxy.faults = [
        ProxyFault(429, times=1, headers={"Retry-After": "2"}),
        ProxyFault(503, times=1, headers=dated),
        ProxyFault(503, times=1, headers={"Retry-After": "soon"}),
    ]
    assert read(store) == SMALL
    assert slept[:2] == [2.0, 3.0]
    assert slept[2] < 1


def test_a_long_retry_after_is_told_instead(store: WebStore, proxy: FaultProxy) -> None:
    proxy.faults = [ProxyFault(429, headers={"Retry-After": "600"})]
    with pytest.raises(StoreError, match="Try again in 600 s"):
        read(store)
    assert len(proxy.requests) == 1
    with pytest.raises(StoreError, match="429 for objects/"):
        streamed(store)


def test_an_encoding_that_is_none_is_tried_again(store: WebStore, proxy: FaultProxy) -> None:
    proxy.faults = [ProxyFault("encoded", times=1)]
    assert read(store) == SMALL


def test_small_files_may_be_zipped(store: WebStore, proxy: FaultProxy) -> None:
    zipped = gzip.compress(SMALL)
    proxy.faults = [ProxyFault(200, headers={"Content-Encoding": "gzip"}, body=zipped)]
    assert read(store) == SMALL
    proxy.faults = [ProxyFault(200, headers={"Content-Encoding": "gzip"}, body=gzip.compress(b"x" * 10_000_000))]
    assert kinds(lambda: read(store)) == "store.too-large"
    for encoding in ("zstd", "br", "gzip, gzip", "deflate"):
        proxy.faults = [ProxyFault(200, headers={"Content-Encoding": encoding}, body=zipped)]
        assert kinds(lambda: read(store)) == "store.protocol"


def test_a_small_file_that_never_ends_is_not_read_to_its_end(store: WebStore, proxy: FaultProxy) -> None:
    proxy.faults = [ProxyFault(200, body=b"x" * 10_000_000)]
    assert kinds(lambda: read(store)) == "store.too-large"


@pytest.mark.parametrize("answer", [200, 302])
def test_https_is_never_left(answer: int) -> None:
    """A mirror that redirects to http is refused, whatever comes from there."""

    def respond(request: httpx2.Request) -> httpx2.Response:
        if request.url.scheme == "https":
            return httpx2.Response(302, headers={"Location": "http://example.org/"})
        back = {"Location": "https://example.org/back"} if answer == 302 else {}
        return httpx2.Response(answer, headers=back, content=SMALL)

    with httpx2.Client(transport=httpx2.MockTransport(respond)) as client:
        reader = http.HttpReader("a mirror", "https://example.org/{}".format, lambda: client, dict, not_asked)
        word = "protocol" if answer == 200 else "redirects"
        assert kinds(lambda: reader.read(HINT, limit=100)) == f"store.{word}"
        assert kinds(lambda: list(reader.stream(HINT))) == f"store.{word}"


def not_asked(response: httpx2.Response, path: str) -> StoreError:
    raise AssertionError(response)


def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    with static_host(tmp_path) as address:
        pass
    store = open_store(address)
    for act in (lambda: store.read(HINT, limit=9), lambda: list(store.stream(HINT))):
        assert kinds(act) == "store.unreachable"


def test_a_base_with_a_prefix(tmp_path: Path) -> None:
    (tmp_path / "a b" / "packages").mkdir(parents=True)
    (tmp_path / "a b" / HINT).write_bytes(SMALL)
    with static_host(tmp_path) as address:
        for url in (f"{address}/a%20b", f"{address}/a%20b/"):
            assert open_store(url).read(HINT, limit=100).data == SMALL  # type: ignore[union-attr]
        with pytest.raises(AbsentError, match=r"other holds no packages/tiny\.json"):
            open_store(f"{address}/other").read(HINT, limit=100)


def test_a_stream_that_drips_is_given_up(store: WebStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """No single wait is long, and no bytes are missing: it would go on for years."""
    monkeypatch.setattr(http, "SLOW_SECONDS", 0.0)
    monkeypatch.setattr(http, "SLOW_BYTES", len(LARGE) + 1)
    with pytest.raises(StoreError, match=rf"sends {OBJECT} so slowly that it would not end. Use another mirror"):
        streamed(store)
    monkeypatch.setattr(http, "SLOW_BYTES", 1)
    assert streamed(store) == LARGE
