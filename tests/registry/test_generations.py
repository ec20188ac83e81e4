"""The index: a function of versions and events alone, in numbered generations of which one writer gets each."""

from __future__ import annotations

import hashlib
import itertools
import random
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from publishing import tiny_publication
from watched_store import WatchedStore

from linnet.registry.events import set_alias, set_status, unyank, yank
from linnet.registry.generations import KEPT_GENERATIONS, MOST_GENERATIONS, rebuild_index, update_index, update_package
from linnet.registry.layout import LATEST, generation_path, object_path, package_path, version_path
from linnet.registry.prune import MARKS, PruneError, prune
from linnet.registry.publish import Publication, publish_version
from linnet.registry.record_reader import RecordError, UnknownSchemaError
from linnet.registry.records import Latest
from linnet.registry.registry import Registry
from linnet.registry.store.directory import DirectoryStore

Publish = Callable[..., None]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "registry"


@pytest.fixture
def registry(folder: Path) -> Registry:
    return Registry(DirectoryStore(folder))


@pytest.fixture
def publish(registry: Registry, tmp_path: Path) -> Publish:
    (tmp_path / "package").mkdir()

    def one(name: str, version: str = "0.1.0") -> None:
        publish_version(registry, tiny_publication(tmp_path / "package", name, version))

    return one


@pytest.fixture
def lively(registry: Registry, publish: Publish) -> Registry:
    """A registry with three packages and some events."""
    for name, version in itertools.product(("b", "a", "c"), ("0.1.0", "0.10.0", "0.9.0-rc.1")):
        publish(name, version)
    yank(registry, "a", "0.10.0", "wrong")
    set_alias(registry, "a", "stable", "0.1.0")
    set_status(registry, "b", "deprecated", "use a")
    yank(registry, "c", "0.1.0", "wrong")
    unyank(registry, "c", "0.1.0")
    return registry


def publication_files(publication: Publication) -> dict[str, bytes | Path]:
    """Its objects, as a publisher writes them."""
    return {object_path(digest): data for digest, data in publication.objects.items()}


def newest(registry: Registry) -> bytes:
    return registry.read(generation_path(registry.index().number), 1 << 20)


def test_a_rebuild_of_what_is_right_writes_nothing(lively: Registry) -> None:
    before = {path: lively.read(path, 1 << 20) for path in lively.store.list("")}
    rebuilt = rebuild_index(lively)
    assert (rebuilt.changed, rebuilt.hints, rebuilt.warnings) == (False, (), ())
    assert {path: lively.read(path, 1 << 20) for path in lively.store.list("")} == before


def test_a_rebuild_from_nothing_is_the_same_byte_for_byte(lively: Registry, folder: Path) -> None:
    index = newest(lively)
    hints = {path: lively.read(path, 1 << 20) for path in lively.store.list("packages/")}
    names = set(lively.store.list("names/"))
    for part in ("index", "packages", "names"):
        shutil.rmtree(folder / part)
    rebuilt = rebuild_index(lively)
    assert (rebuilt.changed, rebuilt.hints) == (True, ("a", "b", "c"))
    assert newest(lively) == index
    assert {path: lively.read(path, 1 << 20) for path in lively.store.list("packages/")} == hints
    assert set(lively.store.list("names/")) == names


def test_the_index_does_not_depend_on_the_order_of_what_happened(tmp_path: Path, lively: Registry) -> None:
    """The same versions and events, arriving in any order, some of them together, make the same bytes."""
    wanted = newest(lively)
    facts = [path for path in lively.store.list("") if path.startswith(("versions/", "events/"))]
    for seed in range(8):
        chance = random.Random(seed)
        other = Registry(DirectoryStore(tmp_path / f"other-{seed}"))
        arriving = facts[:]
        chance.shuffle(arriving)
        # Events come in their order, and may come before the versions that they are about.
        for name in "abc":
            places = [n for n, path in enumerate(arriving) if path.startswith(f"events/{name}/")]
            for place, path in zip(places, sorted(arriving[n] for n in places), strict=True):
                arriving[place] = path
        for path in arriving:
            other.store.create(path, lively.read(path, 1 << 20))
            if chance.random() < 0.5:
                update_index(other)
        update_index(other)
        assert newest(other) == wanted
        assert not rebuild_index(other).changed


def test_of_two_writers_of_a_generation_one_begins_again(registry: Registry, publish: Publish) -> None:
    publish("a")
    met: list[str] = []

    def tell(when: str, what: str, path: str) -> None:
        if (when, what, path) == ("before", "create", generation_path(2)) and not met:
            met.append(path)
            other(path)

    def other(path: str) -> None:
        # One that had listed the versions before this one's was there; then one that lists it too.
        registry.store.create(path, newest(registry))
        publish("b")

    registry.store.create(version_path("a", "0.2.0"), _version(registry, "0.2.0"))
    generation = update_index(Registry(WatchedStore(registry.store, tell)))
    assert met == [generation_path(2)]
    assert generation.number == 3
    assert {item.package.name: len(item.package.versions) for item in generation.index.packages} == {"a": 2, "b": 1}
    assert registry.generations() == [1, 2, 3]


def _version(registry: Registry, version: str) -> bytes:
    return registry.read(version_path("a", "0.1.0"), 1 << 20).replace(
        b'"version":"0.1.0"', f'"version":"{version}"'.encode()
    )


def test_a_writer_that_slept_does_not_hide_what_is_newer(registry: Registry, publish: Publish, folder: Path) -> None:
    """Its generation's number may be free again, the one that was there having been removed."""
    publish("a")
    slept: list[str] = []

    def tell(when: str, what: str, path: str) -> None:
        if (when, what) == ("before", "create") and path == generation_path(2) and not slept:
            slept.append(path)
            for n in range(4):
                publish("b", f"0.{n}.0")
            prune(registry, keep=1)

    registry.store.create(version_path("a", "0.2.0"), _version(registry, "0.2.0"))
    generation = update_index(Registry(WatchedStore(registry.store, tell)))
    assert generation.number >= 5
    assert registry.index() == generation
    assert registry.latest() == Latest(generation.number, generation.sha256)
    assert {item.package.name: len(item.package.versions) for item in generation.index.packages} == {"a": 2, "b": 4}


def test_the_small_file_is_written_until_it_has_all(registry: Registry, publish: Publish) -> None:
    publish("a")
    met: list[str] = []

    def tell(when: str, what: str, path: str) -> None:
        # Another publishes after this one has looked, and this one writes over the other's small file.
        if (when, what, path) == ("before", "replace", package_path("a")) and not met:
            met.append(path)
            publish("a", "0.3.0")

    registry.store.create(version_path("a", "0.2.0"), _version(registry, "0.2.0"))
    assert update_package(Registry(WatchedStore(registry.store, tell)), "a")
    package = registry.package("a")
    assert package is not None
    assert [entry.version for entry in package.versions] == ["0.1.0", "0.2.0", "0.3.0"]


@pytest.mark.parametrize("damage", [b"", b"{}", b'{"schema":1,"packages":[{}]}', b"\xff"])
def test_a_damaged_index_is_made_anew_under_the_next_number(
    registry: Registry, publish: Publish, folder: Path, damage: bytes
) -> None:
    publish("a")
    publish("b")
    right = newest(registry)
    (folder / generation_path(2)).write_bytes(damage)
    with pytest.raises(RecordError):
        registry.index()
    publish("a")
    assert registry.index().number == 3
    assert newest(registry) == right


@pytest.mark.parametrize(
    "damage", [b"", b"x" * 60_000, b"{}", b'{"schema":1,"generation":99,"sha256":"' + b"0" * 64 + b'"}\n', None]
)
def test_a_damaged_hint_misleads_nobody(
    registry: Registry, publish: Publish, folder: Path, damage: bytes | None
) -> None:
    publish("a")
    publish("b")
    for path in (LATEST, package_path("a")):
        (folder / path).unlink()
        if damage is not None:
            (folder / path).write_bytes(damage)
    prune(registry, keep=1)
    assert registry.index().number == 2
    publish("a")
    package = registry.package("a")
    assert package is not None
    assert rebuild_index(registry).hints == ()
    found = registry.index()
    assert registry.latest() == Latest(found.number, found.sha256)


def test_an_index_of_a_newer_program_is_not_written_over(registry: Registry, publish: Publish) -> None:
    publish("a")
    registry.store.create(generation_path(2), b'{"schema":2}\n')
    for work in (update_index, rebuild_index):
        with pytest.raises(UnknownSchemaError, match="Install a newer linnet-nest"):
            work(registry)
    assert registry.generations() == [1, 2]


def test_generations_do_not_pile_up(registry: Registry, publish: Publish) -> None:
    last = 2 * MOST_GENERATIONS + 2
    for n in range(last):
        publish("a", f"0.{n}.0")
        assert len(registry.generations()) <= MOST_GENERATIONS
    assert registry.index().number == last
    found = prune(registry)
    assert registry.generations() == list(range(last - KEPT_GENERATIONS + 1, last + 1))
    assert found.generations == (last - KEPT_GENERATIONS - 1, last - KEPT_GENERATIONS)
    prune(registry, keep=1)
    assert registry.generations() == [last]
    assert not rebuild_index(registry).changed


NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)


def test_orphans_go_once_they_have_been_seen_for_long_enough(registry: Registry, publish: Publish) -> None:
    publish("a")
    orphan = hashlib.sha256(b"orphan").hexdigest()
    registry.store.create(object_path(orphan), b"orphan")
    objects = set(registry.store.list("objects/"))
    week = timedelta(days=7)
    assert prune(registry).objects == ()
    assert prune(registry, orphans=week, dry_run=True, now=NOW).waiting == (orphan,)
    assert list(registry.store.list(MARKS[: MARKS.rindex("/") + 1])) == [LATEST, generation_path(1)][::-1]
    assert prune(registry, orphans=week, now=NOW).waiting == (orphan,)
    assert prune(registry, orphans=week, now=NOW + timedelta(days=6)).waiting == (orphan,)
    assert prune(registry, orphans=week, dry_run=True, now=NOW + week).objects == (orphan,)
    assert set(registry.store.list("objects/")) == objects
    found = prune(registry, orphans=week, now=NOW + week)
    assert (found.objects, found.waiting) == ((orphan,), ())
    assert set(registry.store.list("objects/")) == objects - {object_path(orphan)}
    # Seen anew, it waits anew.
    registry.store.create(object_path(orphan), b"orphan")
    assert prune(registry, orphans=week, now=NOW + 2 * week).waiting == (orphan,)


def test_a_publish_that_met_a_prune_writes_its_objects_again(
    registry: Registry, publish: Publish, tmp_path: Path
) -> None:
    publish("a")
    publication = tiny_publication(tmp_path / "package", "b", "0.1.0")

    def tell(when: str, what: str, path: str) -> None:
        if (when, what, path) == ("before", "create", version_path("b", "0.1.0")):
            assert prune(registry, orphans=timedelta(0)).objects

    publish_version(Registry(WatchedStore(registry.store, tell)), publication)
    there = set(registry.store.list("objects/"))
    assert {object_path(digest) for digest in publication.record.objects()} <= there


def test_an_object_that_a_publish_needs_by_the_time_it_is_gone_is_put_back(
    registry: Registry, publish: Publish, tmp_path: Path
) -> None:
    """Its publisher finds them there, commits and reads back while the prune is between its list and a removal."""
    publish("a")
    publication = tiny_publication(tmp_path / "package", "b", "0.1.0")
    wanted = {object_path(digest) for digest in publication.record.objects()}
    orphan = hashlib.sha256(b"orphan").hexdigest()
    registry.store.create_all({object_path(orphan): b"orphan", **publication_files(publication)})
    published = []

    def tell(when: str, what: str, path: str) -> None:
        if (when, what) == ("before", "remove") and not published:
            published.append(publish_version(registry, publication))

    watched = Registry(WatchedStore(registry.store, tell))
    found = prune(watched, orphans=timedelta(0))
    assert published
    assert found.objects == (orphan,)
    there = set(registry.store.list("objects/"))
    assert wanted <= there
    assert object_path(orphan) not in there
    for digest in publication.record.objects():
        assert hashlib.sha256(b"".join(registry.store.stream(object_path(digest)))).hexdigest() == digest


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_prune_that_fails_puts_back_what_it_removed_last(registry: Registry, publish: Publish, moment: str) -> None:
    publish("a")
    for text in (b"one", b"two"):
        registry.store.create(object_path(hashlib.sha256(text).hexdigest()), text)
    objects = set(registry.store.list("objects/"))
    removals = itertools.count()

    def tell(when: str, what: str, path: str) -> None:
        if what == "remove" and when == moment and next(removals) == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prune(Registry(WatchedStore(registry.store, tell)), orphans=timedelta(0))
    assert set(registry.store.list("objects/")) == objects


def test_a_prune_leaves_no_hint_at_what_it_removes(registry: Registry, publish: Publish) -> None:
    """A writer was killed before it pointed at what it had made; a web server shows its readers the hint alone."""
    for name in ("a", "b", "c"):
        publish(name)
    old = Latest(1, hashlib.sha256(registry.read(generation_path(1), 1 << 20)).hexdigest())
    registry.store.replace(LATEST, old.to_bytes())
    prune(registry, keep=1)
    assert registry.generations() == [3]
    assert registry.latest() == Latest(3, registry.index().sha256)


@pytest.mark.parametrize(
    "seen", ['{"nothing":"2026-01-01T00:00:00Z"}', f'{{"{"a" * 64}":"2026-13-01T00:00:00Z"}}', "[]"]
)
def test_damaged_marks_of_orphans_count_as_none(registry: Registry, publish: Publish, seen: str) -> None:
    publish("a")
    orphan = hashlib.sha256(b"orphan").hexdigest()
    registry.store.create(object_path(orphan), b"orphan")
    registry.store.replace(MARKS, f'{{"schema":1,"seen":{seen}}}\n'.encode())
    assert prune(registry, orphans=timedelta(days=7), now=NOW).waiting == (orphan,)


def test_where_a_version_cannot_be_read_no_orphan_is_removed(registry: Registry, publish: Publish) -> None:
    publish("a")
    registry.store.create(version_path("a", "0.2.0"), b'{"schema":2}\n')
    objects = set(registry.store.list("objects/"))
    with pytest.raises(PruneError, match="No object that it may have was removed"):
        prune(registry, orphans=timedelta(0))
    assert set(registry.store.list("objects/")) == objects
