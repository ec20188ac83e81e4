"""An object store that fails in every way, and one that does not do what a registry needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import s3_server
from fault_proxy import FaultProxy, ProxyFault, proxied
from store_places import Place

from linnet.registry.store import objects
from linnet.registry.store.base import AbsentError, ReadOnlyError, StoreError, UncertainError
from linnet.registry.store.objects import ObjectStore
from linnet.registry.store.open import open_store

VERSION = "versions/tiny/1.json"
MINE = b"published by me"
LARGE = bytes(range(256)) * 8000
PUT = r"^PUT .*/versions/"


@pytest.fixture(scope="module")
def faulty(s3_places: Callable[[], Place]) -> Iterator[tuple[FaultProxy, Callable[[], Place]]]:
    with proxied(s3_places().environment["AWS_ENDPOINT_URL"]) as proxy:
        yield proxy, s3_places


@pytest.fixture
def proxy(faulty: tuple[FaultProxy, Callable[[], Place]]) -> Iterator[FaultProxy]:
    proxy = faulty[0]
    proxy.faults, proxy.requests, proxy.stale = [], [], {}
    yield proxy
    proxy.faults = []


@pytest.fixture
def store(
    proxy: FaultProxy, faulty: tuple[FaultProxy, Callable[[], Place]], monkeypatch: pytest.MonkeyPatch
) -> ObjectStore:
    for name, value in s3_server.environment(proxy.endpoint).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(objects, "RETRIES", {**objects.RETRIES, "max_retries": 1})
    opened = open_store(faulty[1]().url)
    assert isinstance(opened, ObjectStore)
    return opened


def kind_of(act: Callable[[], object], kind: type[StoreError] = StoreError) -> str:
    with pytest.raises(kind) as error:
        act()
    assert error.value.problems[0].help
    assert "secret" not in str(error.value)
    return error.value.problems[0].kind


@pytest.mark.parametrize("kind", ["lose", "late"])
def test_a_write_whose_answer_was_lost_is_mine(store: ObjectStore, proxy: FaultProxy, kind: str) -> None:
    """The repetition finds the path taken, by the first try."""
    proxy.faults = [ProxyFault(kind, PUT, times=1)]
    assert store.create(VERSION, MINE)
    assert b"".join(store.stream(VERSION)) == MINE


@pytest.mark.parametrize("kind", ["lose", "late"])
def test_a_write_whose_answers_were_all_lost_is_mine(store: ObjectStore, proxy: FaultProxy, kind: str) -> None:
    proxy.faults = [ProxyFault(kind, PUT)]
    assert store.create(VERSION, MINE)


@pytest.mark.parametrize("kind", ["lose", "late"])
def test_a_write_that_lost_to_another_is_not_mine(store: ObjectStore, proxy: FaultProxy, kind: str) -> None:
    assert store.create(VERSION, b"published by another")
    proxy.faults = [ProxyFault(kind, PUT, times=2)]
    assert not store.create(VERSION, MINE)
    assert b"".join(store.stream(VERSION)) == b"published by another"


@pytest.mark.parametrize("kind", ["drop", 500, 503])
def test_what_passes_is_waited_out(store: ObjectStore, proxy: FaultProxy, kind: str | int) -> None:
    proxy.faults = [ProxyFault(kind, PUT, times=1)]
    assert store.create(VERSION, MINE)
    proxy.faults = [ProxyFault(kind, "^GET", times=1)]
    assert store.read(VERSION, limit=100).data == MINE  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", ["drop", 500])
def test_a_write_of_which_nobody_can_tell(store: ObjectStore, proxy: FaultProxy, kind: str | int) -> None:
    store.create("versions/tiny/0.json", b"")
    proxy.faults = [ProxyFault(kind)]
    assert kind_of(lambda: store.create(VERSION, MINE), UncertainError) == "store.uncertain"
    with pytest.raises(StoreError) as error:
        ObjectStore(store.url).create(VERSION, MINE)
    assert not isinstance(error.value, UncertainError)
    proxy.faults = []
    assert store.create(VERSION, MINE)


@pytest.mark.parametrize(
    ("kind", "word"),
    [("drop", "unreachable"), (500, "server-error"), (503, "server-error"), (429, "server-error"), (418, "unexpected")],
)
def test_what_does_not_pass_is_told(store: ObjectStore, proxy: FaultProxy, kind: str | int, word: str) -> None:
    proxy.faults = [ProxyFault(kind)]
    for act in (
        lambda: store.read(VERSION, limit=100),
        lambda: list(store.stream(VERSION)),
        lambda: list(store.list("versions/")),
        lambda: store.replace("index/latest.json", b"1"),
    ):
        assert kind_of(act) == f"store.{word}"


@pytest.mark.parametrize("kind", ["truncate", "stall"])
def test_a_body_that_breaks_off(
    store: ObjectStore, proxy: FaultProxy, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is fetched again from where it broke, or it is an error: never a part."""
    store.create("objects/large", LARGE)
    monkeypatch.setattr(objects, "TIMES", {**objects.TIMES, "read_timeout": "2s"})
    store = ObjectStore(store.url)
    proxy.faults = [ProxyFault(kind, "^GET .*/objects/", times=1)]
    try:
        assert b"".join(store.stream("objects/large")) == LARGE
    except StoreError as error:
        assert error.problems[0].kind in ("store.unreachable", "store.truncated")  # noqa: PT017
    proxy.faults = [ProxyFault(kind, "^GET .*/objects/")]
    assert kind_of(lambda: list(store.stream("objects/large"))) in ("store.unreachable", "store.truncated")
    assert kind_of(lambda: store.read("objects/large", limit=len(LARGE))) in ("store.unreachable", "store.truncated")


def test_a_store_that_ignores_conditions_is_refused_before_anything_is_written(
    store: ObjectStore, proxy: FaultProxy
) -> None:
    proxy.faults = [ProxyFault("no-condition")]
    assert kind_of(lambda: store.create(VERSION, MINE)) == "store.no-conditions"
    assert kind_of(lambda: store.create_all({"objects/a": b"a"})) == "store.no-conditions"
    assert list(store.list("")) == []
    assert not [line for line in proxy.requests if line.startswith("PUT") and "/probes/" not in line]


def test_the_question_is_asked_once(store: ObjectStore, proxy: FaultProxy) -> None:
    for number in range(3):
        store.create(f"versions/tiny/{number}.json", b"")
    assert len([line for line in proxy.requests if line.startswith("PUT") and "/probes/" in line]) == 2
    assert list(store.list("probes/")) == []


def test_a_list_that_lags_behind_misleads_nobody(store: ObjectStore, proxy: FaultProxy) -> None:
    proxy.faults = [ProxyFault("stale", "list-type=2")]
    assert list(store.list("versions/")) == []
    assert store.create(VERSION, MINE)
    assert list(store.list("versions/")) == []
    assert not store.create(VERSION, b"other")
    assert b"".join(store.stream(VERSION)) == MINE


def test_a_wrong_etag_does_no_harm(store: ObjectStore, proxy: FaultProxy) -> None:
    store.replace("index/latest.json", b"1")
    proxy.faults = [ProxyFault("wrong-etag", "^(GET|HEAD)")]
    first = store.read("index/latest.json", limit=10)
    assert first is not None
    assert first.data == b"1"
    store.replace("index/latest.json", b"2")
    second = store.read("index/latest.json", limit=10, tag=first.tag)
    assert second is not None
    assert second.data == b"2"


def test_a_store_that_ignores_ranges_is_refused(store: ObjectStore, proxy: FaultProxy) -> None:
    store.create("objects/large", LARGE)
    proxy.faults = [ProxyFault("no-range", "^GET")]
    assert b"".join(store.stream("objects/large")) == LARGE
    assert kind_of(lambda: list(store.stream("objects/large", 100))) == "store.protocol"


@pytest.mark.parametrize(("kind", "word"), [("loop", "redirects"), ("nowhere", "unreachable")])
def test_redirects_that_lead_nowhere(store: ObjectStore, proxy: FaultProxy, kind: str, word: str) -> None:
    proxy.faults = [ProxyFault(kind)]
    assert kind_of(lambda: store.read(VERSION, limit=10)) == f"store.{word}"
    assert len(proxy.requests) < 40


def error_body(code: str) -> bytes:
    return f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>No.</Message></Error>".encode()


@pytest.mark.parametrize(
    ("status", "code", "reading", "writing"),
    [
        (400, "ExpiredToken", "expired-token", "expired-token"),
        (403, "InvalidAccessKeyId", "bad-token", "bad-token"),
        (403, "SignatureDoesNotMatch", "bad-token", "bad-token"),
        (403, "RequestTimeTooSkewed", "clock", "clock"),
        (403, "AccessDenied", "forbidden", "read-only"),
        (404, "NoSuchBucket", "no-bucket", "no-bucket"),
    ],
)
def test_refusals_are_told_apart(
    store: ObjectStore, proxy: FaultProxy, status: int, code: str, reading: str, writing: str
) -> None:
    proxy.faults = [ProxyFault(status, body=error_body(code))]
    assert kind_of(lambda: store.read(VERSION, limit=10)) == f"store.{reading}"
    assert kind_of(lambda: list(store.list(""))) == f"store.{reading}"
    assert kind_of(lambda: store.create(VERSION, MINE)) == f"store.{writing}"
    assert kind_of(lambda: store.replace(VERSION, MINE)) == f"store.{writing}"


def test_keys_that_may_only_read(store: ObjectStore, proxy: FaultProxy) -> None:
    proxy.faults = [ProxyFault(403, "^PUT", body=error_body("AccessDenied"))]
    with pytest.raises(ReadOnlyError, match="these keys may not write"):
        store.create(VERSION, MINE)
    with pytest.raises(AbsentError):
        store.read(VERSION, limit=10)


def test_no_keys(store: ObjectStore, monkeypatch: pytest.MonkeyPatch, proxy: FaultProxy) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    # Where a machine of the cloud would hand out keys.
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", proxy.endpoint)
    proxy.faults = [ProxyFault(404, "meta-data|/latest/")]
    assert kind_of(lambda: open_store(store.url).read(VERSION, limit=10)) == "store.no-token"


def test_a_bucket_that_does_not_exist(store: ObjectStore) -> None:
    other = open_store("s3://no-such-bucket/prefix")
    for act in (
        lambda: other.read(VERSION, limit=10),
        lambda: list(other.stream(VERSION)),
        lambda: list(other.list("")),
        lambda: other.create(VERSION, MINE),
        lambda: other.replace(VERSION, MINE),
    ):
        assert kind_of(act) == "store.no-bucket"


def test_an_account_of_azure_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(StoreError, match="set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY"):
        open_store("az://container/prefix")


def test_without_the_extra_it_is_named(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "obstore", None)
    with pytest.raises(StoreError, match=r"which is not installed\. Install it: pip install obstore"):
        open_store("s3://bucket")
