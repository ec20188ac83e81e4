"""A publisher that is killed leaves the registry as before, or as after; publishing again ends what it began."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

from publishers import environment_flag, indexed, killed_at, publish, settled, start, versions_there, yank_version
from publishing import tiny_publication
from store_places import Place

from linnet.registry.events import package_now
from linnet.registry.publish import publish_version
from linnet.registry.registry import Registry

MOST_OPERATIONS = 200
NewPlace = Callable[[], Place]


def every(place: Place) -> int:
    """Each operation of a directory; of the others, which differ in how they create a file, every fourth, and each
    under `make registry-stress`.
    """
    return 1 if place.kind == "directory" else environment_flag("LINNET_EVERY", 4, 1)


def test_killed_at_every_operation_of_a_publish(new_place: NewPlace, place: Place, tmp_path: Path) -> None:
    """Before each in turn, which is after the one before it."""
    landed = []
    for at in range(0, MOST_OPERATIONS, every(place)):
        place = new_place()
        registry = Registry(place.open())
        publish(registry, tmp_path, "first", "0.1.0")
        before = versions_there(registry)
        process = start(place, killed_at, publish, (tmp_path, "a", "0.1.0"), at)
        process.join()
        after = versions_there(registry)
        assert before.items() <= after.items()
        assert before.items() <= indexed(registry).items() <= after.items()
        if at % 2:
            # Of the others publishing again is the first to see what was left.
            settled(registry)
        again = publish_version(registry, tiny_publication(tmp_path, "a", "0.1.0"))
        assert again.created == (len(after) == len(before))
        assert indexed(registry) == versions_there(registry) == before | {("a", "0.1.0"): again.sha256}
        settled(registry)
        landed.append(len(after) > len(before))
        if process.exitcode == 0:
            break
        assert process.exitcode == -signal.SIGKILL
    # It came to its end at last. There was one moment, neither early nor late, from which on the version was there.
    assert process.exitcode == 0
    assert landed == sorted(landed)
    assert sum(landed) >= 10 // every(place)
    assert len(landed) - sum(landed) >= 10 // every(place)


def test_killed_at_every_operation_of_a_yank(new_place: NewPlace, place: Place, tmp_path: Path) -> None:
    said = []
    for at in range(0, MOST_OPERATIONS, every(place)):
        place = new_place()
        registry = Registry(place.open())
        publish(registry, tmp_path, "a", "0.1.0")
        process = start(place, killed_at, yank_version, (tmp_path, "a", "0.1.0"), at)
        process.join()
        said.append(registry.event_numbers("a") == [1])
        yank_version(registry, tmp_path, "a", "0.1.0")
        # Nothing is said twice.
        assert registry.event_numbers("a") == [1]
        package = package_now(registry, "a")
        assert package is not None
        assert [entry.yanked for entry in package.versions] == [True]
        settled(registry)
        assert registry.package("a") == package
        if process.exitcode == 0:
            break
        assert process.exitcode == -signal.SIGKILL
    assert process.exitcode == 0
    assert said == sorted(said)
    assert 5 // every(place) <= sum(said) <= len(said) - 1


def test_killed_at_random_moments(place: Place, tmp_path: Path) -> None:
    kills = environment_flag("LINNET_KILLS", 10 if place.kind == "directory" else 3, 100)
    registry = Registry(place.open())
    publish(registry, tmp_path, "first", "0.1.0")
    process = start(place, publish, tmp_path, "first", "0.2.0")
    began = time.monotonic()
    process.join()
    usual = time.monotonic() - began
    killed = number = 0
    while killed < kills:
        name = f"a{number}"
        before = versions_there(registry)
        process = start(place, publish, tmp_path, name, "0.1.0")
        process.join(random.uniform(0, usual))
        process.kill()
        process.join()
        if process.exitcode == -signal.SIGKILL:
            killed += 1
        else:
            # It is done sooner than it was, on a machine that has less to do.
            usual *= 0.8
        after = versions_there(registry)
        assert after.keys() - before.keys() <= {(name, "0.1.0")}
        assert before.items() <= after.items()
        assert before.items() <= indexed(registry).items()
        if number % 10 == 0:
            settled(registry)
        assert publish_version(registry, tiny_publication(tmp_path, name, "0.1.0")).created == (after == before)
        number += 1
    settled(registry)
