"""Documents of a registry: one form, strict readers, unknown schemas told apart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from publishing import tiny_publication

from linnet.registry import layout
from linnet.registry.record_reader import RecordError, UnknownSchemaError
from linnet.registry.records import (
    PACKAGE_BYTES,
    EventRecord,
    IndexPackage,
    IndexRecord,
    Latest,
    PackageRecord,
    VersionEntry,
    VersionRecord,
)

DIGEST, WHEN, SOME_ID = "a" * 64, "2026-01-31T12:00:00Z", "0" * 32
EVENT = EventRecord("a", 1, "yank", WHEN, SOME_ID, "wrong", version="0.1.0")
PACKAGE = PackageRecord(
    "a",
    (VersionEntry("0.1.0", DIGEST, WHEN, True, "wrong"), VersionEntry("0.2.0-rc.1", DIGEST, WHEN)),
    {"stable": "0.1.0"},
    "deprecated",
    "use b",
    3,
)


@pytest.fixture
def version(tmp_path: Path) -> VersionRecord:
    return tiny_publication(tmp_path, "a", "0.1.0").record


def test_a_version_comes_back_as_it_was_written(version: VersionRecord) -> None:
    data = version.to_bytes()
    assert VersionRecord.from_bytes(data, "x") == version
    assert VersionRecord.from_bytes(data, "x").to_bytes() == data
    # One form: keys sorted, no spaces, a newline at the end.
    assert data == (json.dumps(json.loads(data), sort_keys=True, separators=(",", ":")) + "\n").encode()


@pytest.mark.parametrize(
    "event",
    [
        EVENT,
        EventRecord("a", 2, "unyank", WHEN, SOME_ID, version="0.1.0"),
        EventRecord("a", 3, "alias", WHEN, SOME_ID, version=None, alias="stable"),
        EventRecord("a", 4, "alias", WHEN, SOME_ID, version="1.0.0", alias="stable"),
        EventRecord("a", 5, "status", WHEN, SOME_ID, "use b", status="deprecated"),
    ],
    ids=lambda event: event.kind,
)
def test_an_event_comes_back_as_it_was_written(event: EventRecord) -> None:
    assert EventRecord.from_bytes(event.to_bytes(), "x") == event


def test_an_index_comes_back_as_it_was_written() -> None:
    index = IndexRecord((IndexPackage(PACKAGE, {"version": "0.1.0"}), IndexPackage(PackageRecord("b", ()), None)))
    assert IndexRecord.from_bytes(index.to_bytes(), "x") == index
    assert index.get("b") is not None
    assert index.get("c") is None
    assert Latest.from_bytes(Latest(7, DIGEST).to_bytes(), "x") == Latest(7, DIGEST)
    assert PackageRecord.from_bytes(PACKAGE.to_bytes(), "x") == PACKAGE


def changed(record: VersionRecord, /, **changes: Any) -> bytes:
    return json.dumps({**json.loads(record.to_bytes()), **changes}).encode()


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"extra": 1}, "extra is not a key of the schema"),
        ({"name": "A"}, "name must be the name of a package"),
        ({"version": "1"}, "version must be a version"),
        ({"publish_id": "1"}, "publish_id must be 32 hexadecimal digits"),
        ({"published": "yesterday"}, "published must be a time in UTC"),
        ({"files": [{"path": "../up", "size": 1, "sha256": DIGEST}]}, "files must be a list of files inside"),
        ({"files": [{"path": "/etc/passwd", "size": 1, "sha256": DIGEST}]}, "files must be a list of files inside"),
        ({"files": [{"path": p, "size": 1, "sha256": DIGEST} for p in ("A", "a")]}, "without two files of one name"),
        ({"files": [{"path": "a", "size": -1, "sha256": DIGEST}]}, "files must be a whole number"),
        ({"files": [{"path": "a", "size": 1, "sha256": "../../x"}]}, "files must be a sha256"),
        ({"weights": {"repo": None, "revision": None, "files": [
            {"path": "w", "size": 1, "sha256": DIGEST, "object": False}]}}, "neither objects nor in a repository"),
        ({"weights": {"repo": "a/b", "revision": None, "files": []}}, "must come with a repo"),
        ({"manifest": {"sha256": DIGEST}}, "manifest.size is missing"),
        ({"published": "2026-02-30T12:00:00Z"}, "published must be a time in UTC"),
        ({"files": [{"path": p, "size": 1, "sha256": DIGEST} for p in ("a", "A/b")]}, "a folder of another"),
        ({"files": [{"path": "Model.safetensors", "size": 1, "sha256": DIGEST}]}, "without two files of one name"),
        ({"card": {"model": "a"}}, "card must be an object of objects"),
        ({"card": {"model": {"title": "\ud800"}}}, "card must be an object without infinities and halves"),
        ({"record": {"entries": [{"name": "forward"}]}}, "record must be an object whose entries have name, signature"),
        ({"check": {"sections": ["smoke"]}}, "check must be a list of objects"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_version_that_is_not_one_is_refused(version: VersionRecord, changes: dict[str, Any], fault: str) -> None:
    with pytest.raises(RecordError, match=r"versions/a/0\.1\.0\.json is damaged") as caught:
        VersionRecord.from_bytes(changed(version, **changes), "versions/a/0.1.0.json")
    assert fault in str(caught.value)


def test_numbers_that_json_has_no_way_to_write_again_are_refused(version: VersionRecord) -> None:
    """What a version says goes into the index, which must be written."""
    data = version.to_bytes().replace(b'"parameter_count":7', b'"parameter_count":1e999')
    with pytest.raises(RecordError, match="record must be an object without infinities"):
        VersionRecord.from_bytes(data, "x")
    package = IndexPackage(PACKAGE, {"version": "0.1.0", "parameter_count": 7})
    data = IndexRecord((package,)).to_bytes().replace(b'"parameter_count":7', b'"parameter_count":1e999')
    with pytest.raises(RecordError, match="summary must be an object without infinities"):
        IndexRecord.from_bytes(data, "x")


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"schema": "1"}', b'{"schema": true}', b"\xff", b"[" * 100_000])
def test_what_is_no_document_is_refused(data: bytes) -> None:
    for read in (VersionRecord, EventRecord, PackageRecord, IndexRecord, Latest):
        with pytest.raises(RecordError) as caught:
            read.from_bytes(data, "there")
        assert not isinstance(caught.value, UnknownSchemaError)
        assert "there" in str(caught.value)


def test_a_newer_schema_is_told_apart(version: VersionRecord) -> None:
    with pytest.raises(UnknownSchemaError, match="Install a newer linnet-nest") as caught:
        VersionRecord.from_bytes(changed(version, schema=7, surprise=[]), "there")
    assert caught.value.schema == 7


@pytest.mark.parametrize(
    "change", [{"kind": "explode"}, {"reason": "a\nb"}, {"reason": "x" * 201}, {"status": "active"}]
)
def test_an_event_that_is_not_one_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(RecordError):
        EventRecord.from_bytes(json.dumps({**json.loads(EVENT.to_bytes()), **change}).encode(), "there")


def test_what_a_bare_name_means() -> None:
    entries = [VersionEntry(v, DIGEST, WHEN) for v in ("0.1.0", "0.2.0", "0.3.0-rc.1")]
    newest = PackageRecord("a", tuple(entries)).newest()
    assert newest is not None
    assert newest.version == "0.2.0"
    yanked = VersionEntry("0.2.0", DIGEST, WHEN, yanked=True)
    newest = PackageRecord("a", (entries[0], yanked, entries[2])).newest()
    assert newest is not None
    assert newest.version == "0.1.0"
    newest = PackageRecord("a", (yanked, entries[2])).newest()
    assert newest is not None
    assert newest.version == "0.3.0-rc.1"
    assert PackageRecord("a", (yanked, VersionEntry("0.3.0", DIGEST, "", schema=2))).newest() is None


def test_the_small_file_of_a_package_stays_small() -> None:
    versions = tuple(VersionEntry(f"0.{i}.0", DIGEST, WHEN, yanked=i % 2 == 0) for i in range(3000))
    data = PackageRecord("a", versions, {"stable": "0.5.0", "old": "0.2.0"}, events=9).to_bytes()
    assert len(data) <= PACKAGE_BYTES
    read = PackageRecord.from_bytes(data, "x")
    listed = {entry.version for entry in read.versions}
    # What an alias means, and the newest that are not yanked.
    assert {"0.5.0", "0.2.0", "0.2999.0", "0.2997.0"} <= listed
    assert "0.2998.0" not in listed
    assert read.omitted == 3000 - len(read.versions)
    assert len(read.versions) > 200


@pytest.mark.parametrize("name", ["a", "qwen3-8b", "all-minilm-l6-v2", "qwen3.8b"])
def test_paths_lead_back(name: str) -> None:
    assert layout.parse_version_path(layout.version_path(name, "1.0.0-rc.1")) == (name, "1.0.0-rc.1")
    assert layout.parse_event_path(layout.event_path(name, 12)) == (name, 12)
    assert layout.object_digest(layout.object_path(DIGEST)) == DIGEST
    assert layout.generation_number(layout.generation_path(7)) == 7


@pytest.mark.parametrize(
    "path",
    [
        "versions/a/b/1.0.0.json", "versions/A/1.0.0.json", "versions/a/1.0.json", "versions/a/1.0.0.txt",
        "events/a/1.json", "events/a/000000.json", "index/gen-1.json", "index/gen-000000012.json", "index/latest.json",
        f"objects/sha256/bb/{DIGEST}",
    ],
)  # fmt: skip
def test_other_paths_mean_nothing(path: str) -> None:
    assert layout.parse_version_path(path) is None
    assert layout.parse_event_path(path) is None
    assert layout.generation_number(path) is None
    assert layout.object_digest(path) is None


def test_names_that_are_spelled_alike_are_one() -> None:
    assert len({layout.name_path(name) for name in ("qwen3-8b", "qwen3.8b", "qwen3--8b", "qwen3_8b", "Qwen3-8B")}) == 1
    assert layout.name_path("qwen3-8b") != layout.name_path("qwen38b")


@pytest.mark.parametrize("path", [".git/config", "a/.hidden"])
@pytest.mark.parametrize("place", ["files", "weights"])
def test_no_file_of_a_version_is_hidden(version: VersionRecord, place: str, path: str) -> None:
    table = json.loads(version.to_bytes())
    file = {"path": path, "size": 1, "sha256": DIGEST}
    if place == "files":
        table["files"].append(file)
    else:
        table["weights"]["files"].append({**file, "object": True})
    with pytest.raises(RecordError, match="files must be a list of files inside the package"):
        VersionRecord.from_bytes(json.dumps(table).encode(), "x")


@pytest.mark.parametrize("key", ["record", "check", "bench", "gate"])
@pytest.mark.parametrize(
    ("value", "message"),
    [(f"[{10**40}]", "without numbers of more than 63 bits"), ("[" * 300 + "]" * 300, "of at most 64 levels")],
    ids=["large", "deep"],
)
def test_values_that_are_beyond_all_measure(version: VersionRecord, key: str, value: str, message: str) -> None:
    text = json.dumps({**json.loads(version.to_bytes()), key: {"a": "VALUE"}}).replace('"VALUE"', value)
    with pytest.raises(RecordError, match=f"{key} must be an object {message}"):
        VersionRecord.from_bytes(text.encode(), "x")


def test_sizes_and_counts_are_below_any_bound(version: VersionRecord) -> None:
    table = json.loads(version.to_bytes())
    table["files"][0]["size"] = 10**400
    with pytest.raises(RecordError, match="files must be a whole number"):
        VersionRecord.from_bytes(json.dumps(table).encode(), "x")
    with pytest.raises(RecordError, match="generation must be a whole number"):
        Latest.from_bytes(json.dumps({"schema": 1, "generation": 10**250, "sha256": DIGEST}).encode(), "x")
