"""What every store does alike: one suite over a directory, an S3 server, a Hub, and by half over a static host."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from store_places import Place, racing, static_host

from linnet.registry.store.base import AbsentError, ReadOnlyError, Store, StoreError
from linnet.registry.store.directory import DirectoryStore
from linnet.registry.store.open import open_store

VERSION = "versions/tiny/1.0.0.json"
TEXT = b'{"name": "tiny"}\n'
BINARY = bytes(range(256)) * 1000
PATHS = (VERSION, "objects/sha256/ab/abcdef", "index/gen-00000001.json", "a", "aliases/@stable", "v/1.0+cpu.json")


def kind_of(error: pytest.ExceptionInfo[StoreError]) -> str:
    return error.value.problems[0].kind


def test_what_was_created_is_read(store: Store) -> None:
    for path in PATHS:
        assert store.create(path, path.encode())
    assert {path: store.read(path, limit=100).data for path in PATHS} == {path: path.encode() for path in PATHS}  # type: ignore[union-attr]


def test_the_first_content_stays(store: Store) -> None:
    assert store.create(VERSION, TEXT)
    assert not store.create(VERSION, b"other")
    assert b"".join(store.stream(VERSION)) == TEXT


def test_a_file_that_was_seen_by_one_is_there_for_all(place: Place) -> None:
    assert place.open().create(VERSION, TEXT)
    assert not place.open().create(VERSION, b"other")
    assert list(place.open().list("")) == [VERSION]


@pytest.mark.parametrize(
    "content", [b"", b"x", TEXT, BINARY, BINARY * 30], ids=["none", "one", "text", "250kB", "7.5MB"]
)
def test_content_of_any_size_comes_back(store: Store, tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "weights.bin"
    file.write_bytes(content)
    assert store.create("objects/from-bytes", content)
    assert store.create("objects/from-file", file)
    for path in ("objects/from-bytes", "objects/from-file"):
        assert b"".join(store.stream(path)) == content
        assert store.read(path, limit=len(content)).data == content  # type: ignore[union-attr]


def test_many_are_created_in_one_call(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(BINARY)
    assert store.create("objects/3", b"3")
    files: dict[str, bytes | Path] = {f"objects/{number}": str(number).encode() for number in range(30)}
    assert store.create_all({**files, "objects/file": file}) == {"objects/3"}
    assert store.create_all(files) == set(files)
    assert set(store.list("objects/")) == {*files, "objects/file"}
    assert b"".join(store.stream("objects/file")) == BINARY
    assert store.create_all({}) == set()


def test_hints_are_replaced(store: Store) -> None:
    for content in (b"1", b"22", b"22", b"", b"333"):
        store.replace("index/latest.json", content)
        assert store.read("index/latest.json", limit=10).data == content  # type: ignore[union-attr]


def test_a_tag_saves_reading_what_is_still_so(store: Store) -> None:
    store.replace("index/latest.json", b"1")
    first = store.read("index/latest.json", limit=10)
    assert first is not None
    assert first.tag is not None
    assert store.read("index/latest.json", limit=10, tag=first.tag) is None
    store.replace("index/latest.json", b"2")
    second = store.read("index/latest.json", limit=10, tag=first.tag)
    assert second is not None
    assert second.data == b"2"
    assert second.tag != first.tag


def test_files_are_listed_by_folder(store: Store) -> None:
    for path in ("versions/a/1.json", "versions/a/2.json", "versions/ab/1.json", "events/a/000001.json"):
        store.create(path, path.encode())
    assert set(store.list("versions/a/")) == {"versions/a/1.json", "versions/a/2.json"}
    assert len(set(store.list("versions/"))) == 3
    assert len(list(store.list(""))) == 4
    assert list(store.list("objects/")) == []
    # A file is no folder.
    assert list(store.list("versions/a/1.json/")) == []


def test_a_removed_file_is_gone_and_may_be_made_again(store: Store) -> None:
    store.create("index/gen-00000001.json", b"1")
    store.remove("index/gen-00000001.json")
    store.remove("index/gen-00000001.json")
    assert list(store.list("")) == []
    with pytest.raises(AbsentError):
        store.read("index/gen-00000001.json", limit=10)
    assert store.create("index/gen-00000001.json", b"2")


def test_what_is_absent_is_named(store: Store) -> None:
    store.create(VERSION, TEXT)
    for path in ("versions/tiny/2.0.0.json", "versions/tiny", f"{VERSION}/below"):
        with pytest.raises(AbsentError, match=path):
            store.read(path, limit=10)
        with pytest.raises(AbsentError, match=path):
            list(store.stream(path))


BAD_PATHS = (
    "",
    "/a",
    "a/",
    "../a",
    "a//b",
    "a/./b",
    "a/../b",
    ".hidden",
    "a/.new-1",
    "a b",
    "ä",
    "a\\b",
    "a\0",
    "a?b",
    "x" * 600,
)


@pytest.mark.parametrize("path", BAD_PATHS)
def test_other_paths_are_refused(store: Store, path: str) -> None:
    for act in (
        lambda: store.create(path, b""),
        lambda: store.create_all({path: b""}),
        lambda: store.replace(path, b""),
        lambda: store.read(path, limit=1),
        lambda: list(store.stream(path)),
        lambda: store.remove(path),
        lambda: list(store.list(f"{path}/x")),
    ):
        with pytest.raises(StoreError) as error:
            act()
        assert kind_of(error) == "store.path"


def test_each_of_many_paths_has_one_winner(place: Place) -> None:
    """Of 32 processes that create the same 50 paths each path has one winner, whose content is there.

    Over the network fewer of both, but for LINNET_STRESS=1: it is minutes.
    """
    full = place.kind == "directory" or os.environ.get("LINNET_STRESS") == "1"
    paths = [f"versions/tiny/{number}.json" for number in range(50 if full else 15)]
    made = racing(place, 32 if full else 8, paths)
    assert Counter(path for mine in made.values() for path in mine) == Counter(paths)
    store = place.open()
    assert sorted(store.list("")) == sorted(paths)
    contents = {path: b"".join(store.stream(path)).decode() for path in paths}
    assert contents == {path: f"{path} by {process}" for process, mine in made.items() for path in mine}


class TestReading:
    """The reading half, which a static host has as well."""

    @pytest.fixture(params=["directory", "s3", "hub", "web"])
    def filled(
        self, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[Store]:
        if request.param == "web":
            written: Store = DirectoryStore(tmp_path / "site" / "some" / "prefix")
            with static_host(tmp_path / "site") as address:
                self.fill(written)
                yield open_store(f"{address}/some/prefix/")
            return
        if request.param == "directory":
            store = open_store(tmp_path / "registry")
        else:
            place: Place = request.getfixturevalue(f"{request.param}_places")()
            for name, value in place.environment.items():
                monkeypatch.setenv(name, value)
            store = place.open()
        self.fill(store)
        yield store

    @staticmethod
    def fill(store: Store) -> None:
        store.create(VERSION, TEXT)
        store.create("objects/sha256/ab/abcdef", BINARY)
        store.create("objects/empty", b"")
        store.create("v/1.0+cpu@x.json", b"plus")

    def test_small_files_are_read_whole(self, filled: Store) -> None:
        assert filled.read(VERSION, limit=len(TEXT)).data == TEXT  # type: ignore[union-attr]
        assert filled.read("v/1.0+cpu@x.json", limit=100).data == b"plus"  # type: ignore[union-attr]
        assert filled.read("objects/empty", limit=0).data == b""  # type: ignore[union-attr]

    def test_what_is_too_large_is_refused(self, filled: Store) -> None:
        with pytest.raises(StoreError) as error:
            filled.read(VERSION, limit=len(TEXT) - 1)
        assert kind_of(error) == "store.too-large"

    @pytest.mark.parametrize("start", [0, 1, 255_000, len(BINARY) - 1, len(BINARY)])
    def test_a_stream_begins_where_it_should(self, filled: Store, start: int) -> None:
        assert b"".join(filled.stream("objects/sha256/ab/abcdef", start)) == BINARY[start:]

    def test_an_empty_file_streams_nothing(self, filled: Store) -> None:
        assert list(filled.stream("objects/empty")) in ([], [b""])

    def test_a_stream_cannot_begin_after_the_end(self, filled: Store) -> None:
        with pytest.raises(StoreError) as error:
            list(filled.stream("objects/sha256/ab/abcdef", len(BINARY) + 1))
        assert kind_of(error) == "store.beyond-end"

    def test_what_is_absent_is_named(self, filled: Store) -> None:
        for act in (
            lambda: filled.read("versions/b/1.json", limit=1),
            lambda: list(filled.stream("versions/b/1.json")),
        ):
            with pytest.raises(AbsentError, match=r"versions/b/1\.json"):
                act()

    def test_a_tag_saves_reading_what_is_still_so(self, filled: Store) -> None:
        first = filled.read(VERSION, limit=100)
        assert first is not None
        assert first.tag is not None
        assert filled.read(VERSION, limit=100, tag=first.tag) is None
        assert filled.read(VERSION, limit=100, tag='"other"') == first


def test_a_web_server_takes_no_writes_and_lists_nothing(tmp_path: Path) -> None:
    with static_host(tmp_path) as address:
        store = open_store(address)
        assert not store.writable
        for act in (
            lambda: store.create(VERSION, TEXT),
            lambda: store.create_all({VERSION: TEXT}),
            lambda: store.replace(VERSION, TEXT),
            lambda: store.remove(VERSION),
        ):
            with pytest.raises(ReadOnlyError):
                act()
        with pytest.raises(StoreError) as error:
            store.list("versions/")
        assert kind_of(error) == "store.no-list"
