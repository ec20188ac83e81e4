"""Many publishers at once, while others read and rebuild: nothing is lost, nothing doubled, each clash has one winner.

`make registry-stress` runs the full number: 32 processes with 200 different and 50 clashing versions, 8 that read and 2
that rebuild.
"""

from __future__ import annotations

import json
import multiprocessing
import random
from collections import Counter
from pathlib import Path

from publishers import (
    environment_flag,
    indexed,
    publish_jobs,
    read_all,
    rebuild_again_and_again,
    settled,
    start,
    versions_there,
)
from store_places import Place

from linnet.registry.registry import Registry

CONTENDERS = 3
PATIENCE_SECONDS = 1800


def test_many_publish_while_others_read_and_rebuild(place: Place, tmp_path: Path) -> None:
    writers = environment_flag("LINNET_WRITERS", 6, 32)
    different = environment_flag("LINNET_DIFFERENT", 18, 200)
    clashing = environment_flag("LINNET_CLASHING", 6, 50)
    readers, rebuilders = environment_flag("LINNET_READERS", 2, 8), environment_flag("LINNET_REBUILDERS", 1, 2)
    # Several versions of a package, so that one small file has many writers too.
    alone = [(f"pack-{n % (different // 4)}", f"0.{n}.0") for n in range(different)]
    fought = [(f"clash-{n % 5}", f"1.{n}.0") for n in range(clashing)]
    jobs: list[list[tuple[str, str, str]]] = [[] for _ in range(writers)]
    for n, (name, version) in enumerate(alone):
        jobs[n % writers].append((name, version, ""))
    for n, (name, version) in enumerate(fought):
        for turn in range(CONTENDERS):
            jobs[(n + turn) % writers].append((name, version, f"content {turn}"))
    for own in jobs:
        random.Random(1).shuffle(own)

    server = multiprocessing.get_context("forkserver")
    begin, end = server.Event(), server.Event()
    working = [
        start(place, publish_jobs, tmp_path / f"writer-{n}", own, begin, tmp_path / f"writer-{n}.json")
        for n, own in enumerate(jobs)
    ]
    watching = [start(place, read_all, begin, end, tmp_path / f"reader-{n}.json") for n in range(readers)]
    watching += [
        start(place, rebuild_again_and_again, begin, end, tmp_path / f"rebuilder-{n}.json") for n in range(rebuilders)
    ]
    begin.set()
    for process in working:
        process.join(PATIENCE_SECONDS)
    end.set()
    for process in watching:
        process.join(PATIENCE_SECONDS)
    assert [process.exitcode for process in (*working, *watching)] == [0] * (writers + readers + rebuilders)

    outcomes = [item for n in range(writers) for item in json.loads((tmp_path / f"writer-{n}.json").read_text())]
    made = Counter((name, version) for name, version, _, outcome in outcomes if outcome == "created")
    assert made == Counter([*alone, *fought])
    lost = Counter((name, version) for name, version, _, outcome in outcomes if outcome == "taken")
    assert lost == Counter(fought * (CONTENDERS - 1))
    registry = Registry(place.open())
    assert versions_there(registry).keys() == made.keys()
    # Before any rebuild: the last publisher left an index that has them all.
    assert indexed(registry) == versions_there(registry)
    for name in {name for name, _ in made}:
        package = registry.package(name)
        assert package is not None
        assert [(name, entry.version) for entry in package.versions] == sorted(
            (pair for pair in made if pair[0] == name), key=lambda pair: int(pair[1].split(".")[1])
        )
    for name, version, content, outcome in outcomes:
        if outcome == "created":
            record = registry.version(name, version).document
            card = next(file.sha256 for file in record.files if file.path == "nest.toml")
            text = b"".join(registry.store.stream(f"objects/sha256/{card[:2]}/{card}")).decode()
            assert f'content = "{content}"' in text
    settled(registry)
