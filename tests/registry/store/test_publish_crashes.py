"""A publisher that is killed: afterwards the registry is as before, or as after; publishing again ends what was begun."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest
from publishers import environment_flag, indexed, killed_at, publish, settled, start, versions_there, yank_version
from publishing import tiny_publication
from store_places import Place

from linnet.registry.events import package_now
from linnet.registry.publish import publish_version
from linnet.registry.registry import Registry

MOST_OPERATIONS = 200


@pytest.mark.parametrize("moment", ["before", "after"])
def test_killed_at_every_operation_of_a_publish(place: Place, tmp_path: Path, moment: str) -> None:
    registry = Registry(place.open())
    publish(registry, tmp_path, "first", "0.1.0")
    landed = 0
    for at in range(MOST_OPERATIONS):
        name = f"a{at}"
        before = versions_there(registry)
        process = start(place, killed_at, publish, (tmp_path, name, "0.1.0"), at, moment)
        process.join()
        after = versions_there(registry)
        assert after.keys() - before.keys() <= {(name, "0.1.0")}
        assert before.items() <= after.items()
        assert before.items() <= indexed(registry).items()
        landed += len(after) > len(before)
        if at % 3 == 0:
            # Of the others publishing again is the first to see what was left.
            settled(registry)
        again = publish_version(registry, tiny_publication(tmp_path, name, "0.1.0"))
        assert again.created == (len(after) == len(before))
        assert indexed(registry) == versions_there(registry) == after | {(name, "0.1.0"): again.sha256}
        if process.exitcode == 0:
            break
        assert process.exitcode == -signal.SIGKILL
    # It came to its end at last, having been killed on both sides of the moment that counts.
    assert process.exitcode == 0
    assert at >= 20
    assert 5 <= landed <= at - 5
    settled(registry)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_killed_at_every_operation_of_a_yank(place: Place, tmp_path: Path, moment: str) -> None:
    registry = Registry(place.open())
    for at in range(MOST_OPERATIONS):
        version = f"0.{at}.0"
        publish(registry, tmp_path, "a", version)
        process = start(place, killed_at, yank_version, (tmp_path, "a", version), at, moment)
        process.join()
        yank_version(registry, tmp_path, "a", version)
        package = package_now(registry, "a")
        assert package is not None
        assert all(entry.yanked for entry in package.versions)
        # One event each, whatever was killed: numbers have no gaps, and nothing is said twice.
        assert registry.event_numbers("a") == list(range(1, at + 2)) == list(range(1, package.events + 1))
        assert registry.package("a") == package
        if process.exitcode == 0:
            break
        assert process.exitcode == -signal.SIGKILL
    assert process.exitcode == 0
    assert at >= 8
    settled(registry)


def test_killed_at_random_moments(place: Place, tmp_path: Path) -> None:
    kills = environment_flag("LINNET_KILLS", 10 if place.kind == "directory" else 3, 100)
    registry = Registry(place.open())
    publish(registry, tmp_path, "first", "0.1.0")
    process = start(place, publish, tmp_path, "first", "0.2.0")
    began = time.monotonic()
    process.join()
    usual = time.monotonic() - began
    killed = landed = 0
    for number in range(kills):
        name = f"a{number}"
        before = versions_there(registry)
        process = start(place, publish, tmp_path, name, "0.1.0")
        process.join(random.uniform(0, usual))
        process.kill()
        process.join()
        killed += process.exitcode == -signal.SIGKILL
        after = versions_there(registry)
        assert after.keys() - before.keys() <= {(name, "0.1.0")}
        assert before.items() <= after.items()
        assert before.items() <= indexed(registry).items()
        landed += len(after) > len(before)
        if number % 10 == 0:
            settled(registry)
        assert publish_version(registry, tiny_publication(tmp_path, name, "0.1.0")).created == (after == before)
    settled(registry)
    # Moments, not ends: most came while it worked.
    assert killed > kills // 3
