"""Publishing into a store: immutable versions, names for good, what goes wrong on the way and is healed."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from publishing import tiny_publication
from watched_store import WatchedStore

from linnet.registry.events import set_status
from linnet.registry.generations import rebuild_index
from linnet.registry.layout import name_path, object_path, package_path, version_path
from linnet.registry.package import PackageFile
from linnet.registry.publish import Publication, PublishError, publish_version
from linnet.registry.record_reader import UnknownSchemaError
from linnet.registry.registry import Registry
from linnet.registry.store.base import StoreError, UncertainError
from linnet.registry.store.directory import DirectoryStore

Make = Callable[..., Publication]


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(DirectoryStore(tmp_path / "registry"))


@pytest.fixture
def make(tmp_path: Path) -> Make:
    (tmp_path / "package").mkdir()

    def publication(name: str = "a", version: str = "0.1.0", content: str = "") -> Publication:
        return tiny_publication(tmp_path / "package", name, version, content)

    return publication


def files(registry: Registry) -> dict[str, bytes]:
    """All that the registry holds."""
    return {path: registry.read(path, 1 << 20) for path in registry.store.list("")}


def test_a_version_is_published(registry: Registry, make: Make) -> None:
    steps: list[str] = []
    publication = make()
    published = publish_version(registry, publication, steps.append)
    assert steps == ["objects", "version", "index", "reading back"]
    assert (published.created, published.record, published.generation) == (True, publication.record, 1)
    held = registry.version("a", "0.1.0")
    assert (held.document, held.sha256) == (publication.record, published.sha256)
    for digest, path in publication.objects.items():
        assert isinstance(path, Path)
        assert registry.read(object_path(digest), 1 << 20) == path.read_bytes()
    package = registry.package("a")
    assert package is not None
    assert [(entry.version, entry.sha256) for entry in package.versions] == [("0.1.0", published.sha256)]
    item = registry.index().index.get("a")
    assert item is not None
    assert item.package == package
    assert item.summary is not None
    assert item.summary["model"]["title"] == "A"
    # Everything that it made is where docs/registry.md says.
    assert {path.split("/")[0] for path in files(registry)} == {"objects", "versions", "packages", "names", "index"}


def test_the_same_content_again_is_success_and_changes_nothing(registry: Registry, make: Make) -> None:
    first = publish_version(registry, make())
    before = files(registry)
    again = publish_version(registry, make())
    assert again == dataclasses.replace(first, created=False)
    assert files(registry) == before


def test_results_are_no_content(registry: Registry, make: Make) -> None:
    first = publish_version(registry, make())
    other = make()
    other = dataclasses.replace(
        other, record=dataclasses.replace(other.record, check={"ok": True}, gate={"status": "x"})
    )
    again = publish_version(registry, other)
    assert not again.created
    # What was there stays.
    assert again.record == first.record


def test_other_content_is_refused_with_the_version_to_use(registry: Registry, make: Make) -> None:
    for version in ("0.1.0", "0.2.0"):
        publish_version(registry, make(version=version))
    before = files(registry)
    with pytest.raises(PublishError) as caught:
        publish_version(registry, make(content="other"))
    assert str(caught.value) == (
        'a 0.1.0 is published already, on 2026-01-31T12:00:00Z, with another content of "nest.toml". '
        "A published version never changes: give this one another number; 0.2.1 is free."
    )
    assert files(registry) == before
    assert publish_version(registry, make(version="0.2.1", content="other")).created


def test_other_weights_are_other_content(registry: Registry, make: Make) -> None:
    publish_version(registry, make())
    other = make()
    (file,) = other.record.weights.files
    digest = next(iter(other.record.objects()))
    weights = dataclasses.replace(other.record.weights, files=(dataclasses.replace(file, sha256=digest),))
    other = dataclasses.replace(other, record=dataclasses.replace(other.record, weights=weights))
    with pytest.raises(PublishError, match="with other weights"):
        publish_version(registry, other)


@pytest.mark.parametrize(("one", "other"), [("a-b", "a.b"), ("a.b", "a-b"), ("a--b", "a-b"), ("x1-y.z", "x1.y-z")])
def test_names_spelled_alike_belong_to_the_first(registry: Registry, make: Make, one: str, other: str) -> None:
    publish_version(registry, make(one))
    with pytest.raises(PublishError) as caught:
        publish_version(registry, make(other))
    assert f'"{other}" is spelled too much like "{one}"' in str(caught.value)
    assert registry.versions(other) == []
    assert publish_version(registry, make(one, "0.2.0")).created


@pytest.mark.parametrize("name", ["con", "nul.a", "Abc", "a_b", "-a", "a" * 65])
def test_names_that_are_none_are_refused(registry: Registry, make: Make, name: str) -> None:
    with pytest.raises(PublishError, match="The name"):
        publish_version(registry, make(name))
    assert files(registry) == {}


@pytest.mark.parametrize("status", ["archived", "quarantined"])
def test_a_closed_package_takes_no_new_versions(registry: Registry, make: Make, status: str) -> None:
    publish_version(registry, make())
    set_status(registry, "a", status)
    with pytest.raises(PublishError) as caught:
        publish_version(registry, make(version="0.2.0"))
    assert str(caught.value) == f"a is {status} and takes no new versions. To go on with it: nest status a active."
    assert not publish_version(registry, make()).created
    set_status(registry, "a", "deprecated")
    assert publish_version(registry, make(version="0.2.0")).created


def test_what_nobody_could_read_is_not_published(registry: Registry, make: Make) -> None:
    """Weights beside the card, and a file whose name differs from theirs in case only."""
    publication = make("a", "0.1.0")
    record = publication.record
    (weights,) = record.weights.files
    twin = PackageFile(weights.path.upper(), weights.size, weights.sha256)
    publication = dataclasses.replace(publication, record=dataclasses.replace(record, files=(*record.files, twin)))
    with pytest.raises(PublishError, match=r"since nobody could read it: files and weights must be a list without two"):
        publish_version(registry, publication)
    assert list(registry.store.list("")) == []


def test_a_file_that_changes_meanwhile_is_noticed(registry: Registry, make: Make) -> None:
    publication = make()
    path = publication.objects[publication.record.files[0].sha256]
    assert isinstance(path, Path)
    path.write_text("changed")
    with pytest.raises(PublishError, match="changed while it was published"):
        publish_version(registry, publication)
    assert registry.versions("a") == []


def test_a_file_that_became_a_pipe_is_noticed(registry: Registry, make: Make) -> None:
    publication = make()
    path = publication.objects[publication.record.files[0].sha256]
    assert isinstance(path, Path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(PublishError, match="changed while it was published"):
        publish_version(registry, publication)
    assert registry.versions("a") == []


@pytest.mark.parametrize("damage", [b"other bytes", b"", None])
def test_an_object_that_is_not_what_it_should_be_is_written_again(
    registry: Registry, make: Make, damage: bytes | None
) -> None:
    publication = make()
    digest = publication.record.files[0].sha256
    publish_version(registry, publication)
    assert isinstance(registry.store, DirectoryStore)
    path = registry.store.folder / object_path(digest)
    good = path.read_bytes()
    path.unlink()
    if damage is not None:
        path.write_bytes(damage)
    publish_version(registry, make(version="0.2.0") if damage == b"" else make())
    if damage == b"":
        # The README is the same in both versions.
        assert digest in registry.version("a", "0.2.0").document.objects()
    assert path.read_bytes() == good


def failing(registry: Registry, operation: str, prefix: str, moment: str, error: StoreError) -> Registry:
    """The registry whose first such operation fails, before or after it is done."""
    waiting = [True]

    def tell(when: str, what: str, path: str) -> None:
        if waiting and when == moment and what == operation and path.startswith(prefix):
            waiting.clear()
            raise error

    return Registry(WatchedStore(registry.store, tell))


LOST = UncertainError([])


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize(
    ("operation", "prefix"),
    [
        ("create", "names/"), ("create", "objects/"), ("create", "versions/"), ("create", "index/gen"),
        ("replace", "index/latest"), ("replace", "packages/"), ("stream", "objects/"), ("list", "versions/"),
        ("read", "index/"), ("read", "packages/"),
    ],
)  # fmt: skip
def test_after_any_failure_publishing_again_ends_it(
    registry: Registry, make: Make, operation: str, prefix: str, moment: str
) -> None:
    publish_version(registry, make("b"))
    publication = make()
    with pytest.raises(StoreError):
        publish_version(failing(registry, operation, prefix, moment, LOST), publication)
    for name in registry.index().index.packages:
        assert registry.versions(name.package.name)
    again = publish_version(registry, publication)
    # Also where the answer to the first try was lost: it finds its own record.
    assert again.created
    assert not rebuild_index(registry).changed


class LyingStore(WatchedStore):
    """A store that makes a file and says that it was there: the answer to a first try was lost."""

    def create(self, path: str, data: bytes | Path) -> bool:
        super().create(path, data)
        return False


def test_a_lost_answer_is_no_clash(registry: Registry, make: Make) -> None:
    lying = Registry(LyingStore(registry.store, lambda *_: None))
    published = publish_version(lying, make())
    assert published.created
    assert not rebuild_index(registry).changed


def test_a_loser_is_told_though_its_first_look_saw_nothing(registry: Registry, make: Make) -> None:
    winner = make(content="winner")

    def tell(when: str, what: str, path: str) -> None:
        if (when, what, path) == ("before", "create", version_path("a", "0.1.0")):
            publish_version(registry, winner)

    with pytest.raises(PublishError, match=r"0\.1\.1 is free"):
        publish_version(Registry(WatchedStore(registry.store, tell)), make(content="loser"))
    assert registry.version("a", "0.1.0").document == winner.record


def test_of_two_names_spelled_alike_at_once_one_wins(registry: Registry, make: Make) -> None:
    def tell(when: str, what: str, path: str) -> None:
        if (when, what, path) == ("before", "create", name_path("a-b")):
            publish_version(registry, make("a.b"))

    with pytest.raises(PublishError, match=r"spelled too much like \"a\.b\""):
        publish_version(Registry(WatchedStore(registry.store, tell)), make("a-b"))
    assert registry.versions("a-b") == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_is_read_only_is_told_before_anything(registry: Registry, make: Make, tmp_path: Path) -> None:
    folder = tmp_path / "registry"
    folder.mkdir()
    folder.chmod(0o555)
    with pytest.raises(StoreError, match="takes no writes"):
        publish_version(registry, make())


class ReadOnlyStore(WatchedStore):
    @property
    def writable(self) -> bool:
        return False


def test_a_registry_that_takes_no_writes_is_told_before_anything(registry: Registry, make: Make) -> None:
    with pytest.raises(StoreError, match="takes no writes") as caught:
        publish_version(Registry(ReadOnlyStore(registry.store, lambda *_: None)), make())
    assert "--registry" in str(caught.value)
    assert files(registry) == {}


@pytest.mark.parametrize("which", ["index/gen-00000002.json", package_path("a")])
def test_what_a_newer_program_keeps_is_not_written_over(registry: Registry, make: Make, which: str) -> None:
    publish_version(registry, make())
    registry.store.replace(which, b'{"schema":2,"new":[]}\n')
    before = files(registry)
    with pytest.raises(UnknownSchemaError, match="Install a newer linnet-nest"):
        publish_version(registry, make(version="0.2.0"))
    assert files(registry) == before


def test_a_version_of_a_newer_program_is_taken_and_kept(registry: Registry, make: Make) -> None:
    publish_version(registry, make())
    newer = json.dumps({**json.loads(registry.read(version_path("a", "0.1.0"), 1 << 20)), "schema": 2}).encode()
    registry.store.create(version_path("a", "0.5.0"), newer)
    with pytest.raises(PublishError, match=r"0\.5\.1 is free") as caught:
        publish_version(registry, make(version="0.5.0"))
    assert "its record cannot be read" in str(caught.value)
    publish_version(registry, make(version="0.2.0"))
    package = registry.package("a")
    assert package is not None
    assert [(entry.version, entry.schema) for entry in package.versions] == [("0.1.0", 1), ("0.2.0", 1), ("0.5.0", 2)]
    newest = package.newest()
    assert newest is not None
    assert newest.version == "0.2.0"
    rebuilt = rebuild_index(registry)
    assert not rebuilt.changed
    assert [warning.where for warning in rebuilt.warnings] == ["versions/a/0.5.0.json"]


def test_a_version_that_is_listed_late_is_not_lost(registry: Registry, make: Make) -> None:
    """A list that lags behind shows the registry as it was."""
    publish_version(registry, make())
    stale = list(registry.store.list(""))

    class StaleStore(WatchedStore):
        def list(self, prefix: str):  # type: ignore[no-untyped-def]
            return iter([path for path in stale if path.startswith(prefix)])

    publish_version(registry, make(version="0.2.0"))
    publish_version(registry, make("b"))
    lagging = Registry(StaleStore(registry.store, lambda *_: None))
    publish_version(lagging, make("c"))
    rebuild_index(lagging)
    index = Registry(registry.store).index().index
    known = {item.package.name: [entry.version for entry in item.package.versions] for item in index.packages}
    assert known["a"] == ["0.1.0", "0.2.0"]
    assert known["b"] == ["0.1.0"]
