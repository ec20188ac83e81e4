"""A Hub that fails in every way: one commit, or none, and a sentence that says what to do."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest
from hub_server import Fault, HubServer, running
from huggingface_hub import close_session

from linnet.registry.store import http, hub
from linnet.registry.store.base import AbsentError, ReadOnlyError, StoreError, UncertainError
from linnet.registry.store.hub import HubStore
from linnet.registry.store.open import open_store

REPO = "owner/registry"
VERSION = "versions/tiny/1.json"
MINE = b"published by me"
BINARY = bytes(range(256)) * 1000


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "RETRY_DELAYS", (0.01, 0.01, 0.01))
    monkeypatch.setattr(hub, "SERVER_PAUSE", 0.01)
    monkeypatch.setenv("HF_TOKEN", "hf_writer")
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    with running(tmp_path / "hub") as started:
        started.create_repo(REPO)
        monkeypatch.setenv("HF_ENDPOINT", started.endpoint)
        yield started


@pytest.fixture
def store(server: HubServer) -> HubStore:
    opened = open_store(f"hf://{REPO}")
    assert isinstance(opened, HubStore)
    return opened


def commits(server: HubServer) -> int:
    return len(server.repositories.history(REPO))


def kind_of(act: Callable[[], object], kind: type[StoreError] = StoreError) -> str:
    with pytest.raises(kind) as error:
        act()
    assert len(error.value.problems) == 1
    assert error.value.problems[0].help
    assert "hf_" not in str(error.value).replace("hf_hub", "")
    return error.value.problems[0].kind


@pytest.mark.parametrize("kind", ["500", "drop"])
def test_a_commit_that_landed_without_an_answer_is_mine(store: HubStore, server: HubServer, kind: str) -> None:
    server.faults["api/commit-answer"] = Fault(kind, 1)
    assert store.create(VERSION, MINE)
    assert commits(server) == 1
    server.faults["api/commit-answer"] = Fault(kind, 1)
    assert store.create_all({"objects/a": b"a", "objects/b": BINARY, VERSION: b"other"}) == {VERSION}
    assert commits(server) == 2


@pytest.mark.parametrize("kind", ["500", "drop"])
def test_a_lost_answer_beside_anothers_commit_is_not_mine(
    store: HubStore, server: HubServer, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit fails before it lands, and before it is tried again another makes the path."""
    server.faults["api/commit"] = Fault("500", 1)
    other = open_store(store.url)
    present = HubStore._present
    calls: list[int] = []

    def overtaken(self: HubStore, commit: str, paths: list[str]) -> set[str]:
        calls.append(len(calls))
        if len(calls) == 2:
            assert present(self, commit, paths) == set()
            assert other.create(VERSION, b"published by another")
            return set()
        return present(self, commit, paths)

    monkeypatch.setattr(HubStore, "_present", overtaken)
    assert not store.create(VERSION, MINE)
    assert b"".join(store.stream(VERSION)) == b"published by another"
    assert commits(server) == 1


@pytest.mark.parametrize("call", ["revision", "paths-info", "preupload", "commit"])
@pytest.mark.parametrize("kind", ["500", "503", "429"])
def test_what_passes_is_waited_out(
    store: HubStore, server: HubServer, call: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The library's own pauses before it sends again, too.
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda seconds: None)
    server.faults[f"api/{call}"] = Fault(kind, 2)
    assert store.create(VERSION, MINE)
    assert commits(server) == 1


def test_retry_after_is_kept_to(store: HubStore, server: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(hub.time, "sleep", slept.append)
    server.faults["api/commit"] = Fault("429", 2)
    assert store.create(VERSION, MINE)
    assert slept == [1.0, 1.0]


def test_overtaken_commits_are_made_again(store: HubStore, server: HubServer) -> None:
    server.faults["api/commit"] = Fault("412", 5)
    assert store.create(VERSION, MINE)
    assert len([line for line in server.traffic.requests if "/commit/" in line]) == 6
    server.faults["api/commit"] = Fault("412", 5)
    store.replace("index/latest.json", b"1")
    server.faults["api/commit"] = Fault("412", 5)
    store.remove("index/latest.json")
    assert commits(server) == 3


def test_a_branch_that_never_rests(store: HubStore, server: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "COMMIT_ATTEMPTS", 3)
    server.faults["api/commit"] = Fault("412")
    assert kind_of(lambda: store.create(VERSION, MINE)) == "store.overtaken"


def test_a_write_of_which_nobody_can_tell(store: HubStore, server: HubServer) -> None:
    server.faults["api/commit"] = Fault("500")
    assert kind_of(lambda: store.create(VERSION, MINE), UncertainError) == "store.uncertain"
    assert commits(server) == 0
    server.reset()
    assert store.create(VERSION, MINE)


def test_a_hub_that_goes_away_after_an_uncertain_commit(
    store: HubStore, server: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.faults["api/commit"] = Fault("500", 1)
    head, calls = HubStore._head, iter([False, True])

    def gone(self: HubStore, path: str) -> str:
        if next(calls):
            raise httpx2.ConnectError("refused")
        return head(self, path)

    monkeypatch.setattr(HubStore, "_head", lambda self, path: reported(self, path, gone))
    assert kind_of(lambda: store.create(VERSION, MINE), UncertainError) == "store.uncertain"


def reported(store: HubStore, path: str, act: Callable[[HubStore, str], str]) -> str:
    """`act`, its failures told as the store tells those of its own."""
    with store._errors(path):
        return act(store, path)


def test_large_files_are_sent_once(store: HubStore, server: HubServer) -> None:
    server.faults["api/commit"] = Fault("412", 3)
    assert store.create("objects/binary", BINARY)
    assert len([line for line in server.traffic.requests if line.startswith("PUT")]) == 1


def test_a_long_retry_after_is_told_instead(store: HubStore, server: HubServer) -> None:
    server.faults["api/commit"] = Fault("429-long")
    with pytest.raises(StoreError, match=r"429 for versions/tiny/1\.json: too many requests\. Try again in 600 s"):
        store.create(VERSION, MINE)
    assert len([line for line in server.traffic.requests if "/commit/" in line]) == 1


@pytest.mark.parametrize("call", ["revision", "paths-info", "preupload", "commit"])
def test_a_call_that_stalls_is_given_up_and_made_again(
    store: HubStore, server: HubServer, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda seconds: None)
    monkeypatch.setattr(hub, "CALL_SECONDS", 2.0)
    monkeypatch.setattr(hub, "CONNECT_SECONDS", 2.0)
    close_session()
    try:
        server.faults[f"api/{call}"] = Fault("stall", 1)
        assert store.create(VERSION, MINE)
        assert commits(server) == 1
    finally:
        close_session()


def test_no_token(store: HubStore, monkeypatch: pytest.MonkeyPatch) -> None:
    assert store.writable
    store.create(VERSION, MINE)
    monkeypatch.delenv("HF_TOKEN")
    assert not store.writable
    assert kind_of(lambda: store.create("objects/a", b""), ReadOnlyError) == "store.no-token"
    assert kind_of(lambda: store.replace("index/latest.json", b""), ReadOnlyError) == "store.no-token"
    assert kind_of(lambda: store.remove(VERSION), ReadOnlyError) == "store.no-token"
    assert not store.create(VERSION, b"other")


@pytest.mark.parametrize(
    ("token", "kind", "help"),
    [
        ("hf_reader", "store.read-only", "Use a token with write access"),
        ("hf_expired", "store.bad-token", "Log in again with: hf auth login"),
        ("hf_unknown", "store.bad-token", "Log in again with: hf auth login"),
    ],
)
def test_tokens_that_may_not_write(
    store: HubStore, monkeypatch: pytest.MonkeyPatch, token: str, kind: str, help: str
) -> None:
    monkeypatch.setenv("HF_TOKEN", token)
    for act in (lambda: store.create(VERSION, MINE), lambda: store.replace(VERSION, MINE)):
        with pytest.raises(StoreError, match=help) as error:
            act()
        assert error.value.problems[0].kind == kind
        assert isinstance(error.value, ReadOnlyError) == (token == "hf_reader")


@pytest.mark.parametrize(
    ("closed", "token", "kind"),
    [
        ("private", None, "no-token"),
        ("private", "hf_expired", "bad-token"),
        ("gated", None, "gated"),
        ("gated", "hf_reader", "gated"),
    ],
)
def test_closed_repositories(
    store: HubStore, server: HubServer, monkeypatch: pytest.MonkeyPatch, closed: str, token: str | None, kind: str
) -> None:
    store.create(VERSION, MINE)
    server.closed[REPO] = closed
    # As a user's machine has it: a token that is there is sent.
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_IMPLICIT_TOKEN", False)
    monkeypatch.delenv("HF_TOKEN")
    if token is not None:
        monkeypatch.setenv("HF_TOKEN", token)
    for act in (
        lambda: store.read(VERSION, limit=100),
        lambda: list(store.stream(VERSION)),
        lambda: list(store.list("")),
        lambda: store.create("objects/a", b""),
    ):
        assert kind_of(act) == f"store.{kind}"


def test_a_private_repository_with_its_token(
    store: HubStore, server: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.closed[REPO] = "private"
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_IMPLICIT_TOKEN", False)
    assert store.create(VERSION, MINE)
    assert list(store.list("versions/")) == [VERSION]
    assert b"".join(store.stream(VERSION)) == MINE


def test_a_repository_that_does_not_exist(server: HubServer) -> None:
    store = open_store("hf://owner/absent")
    for act in (
        lambda: store.read(VERSION, limit=100),
        lambda: list(store.list("")),
        lambda: store.create(VERSION, MINE),
    ):
        with pytest.raises(StoreError, match="hf repo create owner/absent") as error:
            act()
        assert error.value.problems[0].kind == "store.no-repository"


def test_a_gitignore_leaves_nothing_out(store: HubStore, server: HubServer) -> None:
    server.repositories.commit(
        REPO, b'{"key": "header", "value": {}}\n{"key": "file", "value": {"path": ".gitignore", "content": "Kgo="}}\n'
    )
    assert store.create_all({VERSION: MINE, "objects/binary": BINARY}) == set()
    assert set(store.list("")) == {VERSION, "objects/binary"}


def test_large_files_that_cannot_be_sent(store: HubStore, server: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda seconds: None)
    server.faults["api/lfs"] = Fault("500", 2)
    assert store.create("objects/binary", BINARY)
    server.faults["api/lfs"] = Fault("403")
    assert kind_of(lambda: store.create("objects/other", BINARY + b"x")) == "store.read-only"
    assert list(store.list("objects/")) == ["objects/binary"]


def test_lists_go_on_over_pages_of_one_commit(store: HubStore, server: HubServer) -> None:
    paths = {f"versions/tiny/{number}.json" for number in range(10)}
    store.create_all(dict.fromkeys(paths, b""))
    server.entries_a_page = 3
    listed = store.list("versions/")
    first = next(listed)
    store.create_all({f"versions/tiny/{number}.json": b"" for number in range(10, 20)})
    assert {first, *listed} == paths


def test_reading_has_no_stale_cache(store: HubStore) -> None:
    """Also where another writes: nothing is kept between two readings."""
    other = open_store(store.url)
    for content in (b"1", b"2", b"3"):
        store.replace("index/latest.json", content)
        assert other.read("index/latest.json", limit=10).data == content  # type: ignore[union-attr]
        other.replace("index/latest.json", content * 2)
        assert store.read("index/latest.json", limit=10).data == content * 2  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", ["truncate", "500", "503", "429"])
def test_reading_waits_out_what_passes(store: HubStore, server: HubServer, kind: str) -> None:
    store.create(VERSION, BINARY)
    for read in (lambda: store.read(VERSION, limit=len(BINARY)).data, lambda: b"".join(store.stream(VERSION))):  # type: ignore[union-attr]
        server.faults[VERSION] = Fault(kind, 1)
        assert read() == BINARY


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        ("truncate", "truncated"),
        ("redirect-loop", "redirects"),
        ("redirect-nowhere", "redirects"),
        ("401-bad-token", "no-token"),
        ("401-gated", "gated"),
        ("403", "forbidden"),
        ("404-repo", "no-repository"),
        ("404-revision", "no-commit"),
        ("404-file", "absent"),
        ("429-long", "rate-limited"),
        ("500", "server-error"),
        ("418", "unexpected"),
    ],
)
def test_reading_tells_what_does_not_pass(store: HubStore, server: HubServer, kind: str, word: str) -> None:
    store.create(VERSION, BINARY)
    server.faults[VERSION] = Fault(kind)
    assert kind_of(lambda: store.read(VERSION, limit=len(BINARY))) == f"store.{word}"


def test_ranges_that_are_ignored_or_wrong(store: HubStore, server: HubServer) -> None:
    store.create("objects/binary", BINARY)
    server.faults["objects/binary"] = Fault("ignore-range")
    assert b"".join(store.stream("objects/binary", 100)) == BINARY[100:]
    server.faults["objects/binary"] = Fault("wrong-range")
    assert kind_of(lambda: list(store.stream("objects/binary", 100))) == "store.protocol"


def test_the_content_network_sees_no_token(store: HubStore, server: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_IMPLICIT_TOKEN", False)
    (server.root / REPO / ("f" * 40)).mkdir()
    (server.root / REPO / ("f" * 40) / "a").write_bytes(b"content")
    assert b"".join(store.stream("a")) == b"content"
    assert any("/content/" in line for line in server.traffic.requests)
    assert server.traffic.tokens_at_content == 0


def test_offline_mode(store: HubStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    for act in (
        lambda: store.read(VERSION, limit=10),
        lambda: list(store.stream(VERSION)),
        lambda: list(store.list("")),
        lambda: store.create(VERSION, MINE),
    ):
        assert kind_of(act) == "store.offline"


def test_a_hub_that_is_not_there(store: HubStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    store = HubStore(REPO, store.url)
    for act in (
        lambda: store.read(VERSION, limit=10),
        lambda: store.create(VERSION, MINE),
        lambda: store.replace(VERSION, MINE),
    ):
        assert kind_of(act) == "store.unreachable"


def test_absent_files_of_a_folder_commit(store: HubStore, server: HubServer) -> None:
    with pytest.raises(AbsentError):
        store.read(VERSION, limit=10)
    assert list(store.list("versions/")) == []
