"""Yanks, aliases and statuses: what they come to, and that their numbers have no gaps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from publishing import tiny_publication
from watched_store import WatchedStore

from linnet.registry.events import EventError, package_now, set_alias, set_status, unyank, yank
from linnet.registry.generations import rebuild_index
from linnet.registry.layout import event_path
from linnet.registry.package_state import Reader, fold_package
from linnet.registry.publish import publish_version
from linnet.registry.record_reader import RecordError
from linnet.registry.records import EventRecord, PackageRecord
from linnet.registry.registry import Registry
from linnet.registry.store.base import UncertainError
from linnet.registry.store.directory import DirectoryStore


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    """A registry with a 0.1.0 and a 0.2.0."""
    (tmp_path / "package").mkdir()
    made = Registry(DirectoryStore(tmp_path / "registry"))
    for version in ("0.1.0", "0.2.0"):
        publish_version(made, tiny_publication(tmp_path / "package", "a", version))
    return made


def now(registry: Registry) -> PackageRecord:
    """The package as all that says something of it says alike."""
    package = registry.package("a")
    assert package is not None
    item = registry.index().index.get("a")
    assert item is not None
    assert package == item.package == package_now(registry, "a")
    return package


def test_a_yank_and_its_end(registry: Registry) -> None:
    event = yank(registry, "a", "0.2.0", "wrong bindings")
    assert event is not None
    assert (event.number, event.kind, event.version, event.reason) == (1, "yank", "0.2.0", "wrong bindings")
    assert [(entry.version, entry.yanked, entry.reason) for entry in now(registry).versions] == [
        ("0.1.0", False, ""),
        ("0.2.0", True, "wrong bindings"),
    ]
    newest = now(registry).newest()
    assert newest is not None
    assert newest.version == "0.1.0"
    item = registry.index().index.get("a")
    assert item is not None
    assert item.summary is not None
    assert item.summary["version"] == "0.1.0"
    # Said once.
    assert yank(registry, "a", "0.2.0", "again") is None
    event = unyank(registry, "a", "0.2.0")
    assert event is not None
    assert event.number == 2
    assert not any(entry.yanked or entry.reason for entry in now(registry).versions)
    assert unyank(registry, "a", "0.2.0") is None
    assert registry.event_numbers("a") == [1, 2]


def test_where_all_are_yanked_the_last_describes_the_package(registry: Registry) -> None:
    for version in ("0.1.0", "0.2.0"):
        yank(registry, "a", version, "wrong")
    assert now(registry).newest() is None
    item = registry.index().index.get("a")
    assert item is not None
    assert item.summary is not None
    assert item.summary["version"] == "0.2.0"


def test_an_alias_moves_and_goes(registry: Registry) -> None:
    assert set_alias(registry, "a", "stable", "0.1.0") is not None
    assert set_alias(registry, "a", "stable", "0.1.0") is None
    assert set_alias(registry, "a", "latest-good", "0.1.0") is not None
    assert now(registry).aliases == {"latest-good": "0.1.0", "stable": "0.1.0"}
    assert set_alias(registry, "a", "stable", "0.2.0") is not None
    assert now(registry).aliases["stable"] == "0.2.0"
    assert set_alias(registry, "a", "stable", None) is not None
    assert now(registry).aliases == {"latest-good": "0.1.0"}


def test_a_status_and_its_reason(registry: Registry) -> None:
    assert set_status(registry, "a", "active") is None
    assert set_status(registry, "a", "deprecated", "use b") is not None
    assert (now(registry).status, now(registry).status_reason) == ("deprecated", "use b")
    assert set_status(registry, "a", "deprecated", "use b") is None
    assert set_status(registry, "a", "active") is not None
    assert (now(registry).status, now(registry).status_reason) == ("active", "")


@pytest.mark.parametrize(
    ("say", "sentence"),
    [
        (lambda r: yank(r, "b", "0.1.0", "x"), 'has no package "b". nest list shows what it has.'),
        (lambda r: yank(r, "../b", "0.1.0", "x"), 'has no package "../b".'),
        (lambda r: yank(r, "a", "0.1.1", "x"), 'a has no version "0.1.1". The nearest is 0.1.0.'),
        (lambda r: yank(r, "a", "stable", "x"), 'a has no version "stable".'),
        (lambda r: yank(r, "a", "0.1.0", ""), "A yank of a 0.1.0 needs a reason, for those who use it."),
        (lambda r: yank(r, "a", "0.1.0", "x\ny"), "The reason must be one line of at most 200 characters."),
        (lambda r: yank(r, "a", "0.1.0", "x" * 201), "The reason must be one line of at most 200 characters."),
        (lambda r: set_alias(r, "a", "1.0.0", "0.1.0"), 'The alias "1.0.0" must begin with a letter'),
        (lambda r: set_alias(r, "a", "a" * 33, "0.1.0"), "has 33 characters, more than 32."),
        (lambda r: set_alias(r, "a", "stable", "0.9.0"), 'a has no version "0.9.0".'),
        (lambda r: set_alias(r, "a", "stable", None), 'a has no alias "stable". Its aliases: none.'),
        (lambda r: set_status(r, "a", "archive"), '"archive" is no status; the nearest is archived.'),
    ],
)
def test_what_cannot_be_said_is_refused(registry: Registry, say: Callable[[Registry], object], sentence: str) -> None:
    with pytest.raises(EventError) as caught:
        say(registry)
    assert sentence in str(caught.value)
    assert registry.event_numbers("a") == []


def test_two_events_at_once_get_two_numbers(registry: Registry) -> None:
    once = [True]

    def tell(when: str, what: str, path: str) -> None:
        if once and (when, what, path) == ("before", "create", event_path("a", 1)):
            once.clear()
            set_alias(registry, "a", "stable", "0.1.0")

    event = yank(Registry(WatchedStore(registry.store, tell)), "a", "0.2.0", "wrong")
    assert event is not None
    assert event.number == 2
    assert [registry.event("a", number).kind for number in registry.event_numbers("a")] == ["alias", "yank"]
    package = now(registry)
    assert package.aliases == {"stable": "0.1.0"}
    assert [entry.yanked for entry in package.versions] == [False, True]


class LyingStore(WatchedStore):
    """A store that makes a file and says that it was there: the answer to a first try was lost."""

    def create(self, path: str, data: bytes | Path) -> bool:
        super().create(path, data)
        return False


def test_a_lost_answer_makes_no_second_event(registry: Registry) -> None:
    event = yank(Registry(LyingStore(registry.store, lambda *_: None)), "a", "0.2.0", "wrong")
    assert event is not None
    assert registry.event_numbers("a") == [1]
    assert registry.event("a", 1) == event


def test_after_an_uncertain_answer_saying_it_again_is_fine(registry: Registry) -> None:
    def tell(when: str, what: str, path: str) -> None:
        if (when, what, path) == ("after", "create", event_path("a", 1)):
            raise UncertainError([])

    with pytest.raises(UncertainError):
        yank(Registry(WatchedStore(registry.store, tell)), "a", "0.2.0", "wrong")
    assert yank(registry, "a", "0.2.0", "wrong") is None
    assert registry.event_numbers("a") == [1]
    rebuild_index(registry)
    assert [entry.yanked for entry in now(registry).versions] == [False, True]


def test_an_event_that_cannot_be_read_is_kept_and_told(registry: Registry) -> None:
    registry.store.create(event_path("a", 1), b'{"schema":2,"kind":"rename"}\n')
    event = yank(registry, "a", "0.2.0", "wrong")
    assert event is not None
    assert event.number == 2
    package = now(registry)
    assert (package.events, package.unknown_events) == (2, (1,))
    assert [entry.yanked for entry in package.versions] == [False, True]
    rebuilt = rebuild_index(registry)
    assert not rebuilt.changed
    assert [str(warning) for warning in rebuilt.warnings] == [
        "events/a/000001.json has the schema 2, and this version reads 1; it is passed over, and kept. "
        "Install a newer linnet-nest."
    ]
    # A program that can read it gives it its due: as if this one had learned to.
    assert isinstance(registry.store, DirectoryStore)
    path = registry.store.folder / event_path("a", 1)
    path.write_bytes(EventRecord("a", 1, "alias", event.at, event.event_id, version="0.1.0", alias="old").to_bytes())
    set_status(registry, "a", "deprecated")
    assert now(registry).unknown_events == ()
    assert now(registry).aliases == {"old": "0.1.0"}


def test_a_number_far_beyond_the_others_is_no_event(registry: Registry) -> None:
    """Who believed it would ask for a billion events."""
    stray = event_path("a", 999_999_999)
    registry.store.create(stray, b"{}")
    event = yank(registry, "a", "0.2.0", "wrong bindings")
    assert event is not None
    assert event.number == 1
    assert not rebuild_index(registry).changed
    assert now(registry).events == 1
    assert stray in list(registry.store.list("events/"))


def test_a_number_of_events_that_cannot_be_is_no_reason_to_ask_for_each(registry: Registry) -> None:
    with pytest.raises(RecordError, match=r"says that a has 1000000000 events, and more than 1000 are not there"):
        fold_package(Reader(registry), "a", ["0.1.0"], 10**9, None)
