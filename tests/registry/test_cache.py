"""The cache: nothing wrong is handed on, nothing half-fetched is lost, and any number of processes may share it."""

from __future__ import annotations

import errno
import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from linnet.registry import cache as cache_module
from linnet.registry.cache import (
    RESUMED_BYTES,
    Cache,
    Wanted,
    WrongBytesError,
    cache_folder,
    keep_weights,
    kept_weights,
)
from linnet.registry.errors import Problem, RegistryError

DATA = bytes(range(256)) * (RESUMED_BYTES // 64)
SHA256 = hashlib.sha256(DATA).hexdigest()
WANTED = Wanted(SHA256, "weights of tiny", len(DATA))
BLOCK = 1 << 16


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cache:
    monkeypatch.setenv("LINNET_CACHE", str(tmp_path / "cache"))
    return Cache()


class Server:
    """Streams of DATA, or of `data`, that break after `stop` bytes once each time it is set."""

    def __init__(self, data: bytes = DATA, stop: int | None = None) -> None:
        self.data, self.stop = data, stop
        self.starts: list[int] = []

    def __call__(self, start: int) -> Iterator[bytes]:
        self.starts.append(start)
        if start > len(self.data):
            raise RegistryError([Problem("store.beyond-end", "x", "It is shorter.", "")])
        for at in range(start, len(self.data), BLOCK):
            if self.stop is not None and at >= self.stop:
                self.stop = None
                raise RegistryError([Problem("store.truncated", "x", "It broke off.", "Try again.")])
            yield self.data[at : at + BLOCK]


def fetched(cache: Cache, stream: Callable[[int], Iterator[bytes]]) -> bytes:
    return cache.fetch(WANTED, stream).read_bytes()


def test_a_file_is_fetched_once_and_is_read_only(cache: Cache) -> None:
    server = Server()
    path = cache.fetch(WANTED, server)
    assert path == cache.path(SHA256) == cache.get(SHA256)
    assert cache.fetch(WANTED, server).read_bytes() == DATA
    assert server.starts == [0]
    assert path.stat().st_mode & 0o777 == 0o444
    assert cache.digests() == [SHA256]
    assert cache.parts() == []


def test_a_wrong_file_is_set_aside_and_fetched_again(cache: Cache) -> None:
    server = Server()
    path = cache.fetch(WANTED, server)
    path.chmod(0o644)
    for poison in (DATA[:-1] + b"!", DATA[:-5], b""):
        path.chmod(0o644)
        path.write_bytes(poison)
        assert fetched(cache, server) == DATA
    assert [aside.parent for aside in cache.wrong] == [cache.quarantine] * 3
    assert all(aside.name.startswith(f"{SHA256}.20") for aside in cache.wrong)
    assert {aside.read_bytes() for aside in cache.wrong} == {DATA[:-1] + b"!", DATA[:-5], b""}
    assert server.starts == [0] * 4


def test_what_is_no_file_is_set_aside(cache: Cache) -> None:
    server = Server()
    cache.path(SHA256).mkdir(parents=True)
    assert cache.read(SHA256) is None
    cache.path(SHA256).mkdir(parents=True)
    assert fetched(cache, server) == DATA
    assert [aside.is_dir() for aside in cache.wrong] == [True, True]
    for make in (os.mkfifo, lambda path: path.symlink_to("/dev/zero")):
        cache.path(SHA256).unlink(missing_ok=True)
        make(cache.path(SHA256))
        assert cache.read(SHA256) is None
        make(cache.path(SHA256))
        assert fetched(cache, server) == DATA
    assert len(cache.wrong) == 6


def test_small_documents_are_hashed_as_they_are_read(cache: Cache) -> None:
    sha256 = cache.add(b"{}\n")
    assert cache.read(sha256) == b"{}\n"
    cache.path(sha256).chmod(0o644)
    cache.path(sha256).write_bytes(b"[]\n")
    assert cache.read(sha256) is None
    assert len(cache.wrong) == 1
    cache.add(b"{}\n")
    assert cache.read(sha256) == b"{}\n"
    assert cache.read("0" * 64) is None


@pytest.mark.parametrize("data", [DATA[:-1] + b"!", DATA + b"more", DATA[:-BLOCK], b""])
def test_wrong_bytes_are_never_kept(cache: Cache, data: bytes) -> None:
    with pytest.raises(WrongBytesError) as caught:
        cache.fetch(WANTED, Server(data))
    (problem,) = caught.value.problems
    assert problem.message.startswith("What was served as weights of tiny has ")
    assert problem.message.endswith(", and was thrown away.")
    assert cache.get(SHA256) is None
    assert cache.parts() == []


def test_a_stream_that_does_not_end_is_cut(cache: Cache) -> None:
    def endless(start: int) -> Iterator[bytes]:
        while True:
            yield bytes(BLOCK)

    with pytest.raises(WrongBytesError, match=f"more than {len(DATA)} bytes"):
        cache.fetch(WANTED, endless)


def test_what_broke_off_is_resumed_by_the_next_call(cache: Cache) -> None:
    server = Server(stop=2 * RESUMED_BYTES)
    with pytest.raises(RegistryError, match="It broke off"):
        cache.fetch(WANTED, server)
    assert [path.stat().st_size for path in cache.parts()] == [2 * RESUMED_BYTES]
    assert fetched(cache, server) == DATA
    assert server.starts == [0, 2 * RESUMED_BYTES]
    assert cache.parts() == []


def test_a_little_that_broke_off_is_not_kept(cache: Cache) -> None:
    with pytest.raises(RegistryError, match="It broke off"):
        cache.fetch(WANTED, Server(stop=BLOCK))
    assert cache.parts() == []


def leave_part(cache: Cache, data: bytes) -> None:
    part = cache.root / "partial" / f"{SHA256}.{'0' * 32}"
    part.parent.mkdir(parents=True)
    part.write_bytes(data)


@pytest.mark.parametrize("left", [b"!" * RESUMED_BYTES, DATA + b"more", DATA[: RESUMED_BYTES - 1] + b"!"])
def test_a_wrong_part_is_begun_anew(cache: Cache, left: bytes) -> None:
    leave_part(cache, left)
    server = Server()
    assert fetched(cache, server) == DATA
    assert server.starts == [len(left), 0]


def test_a_mirror_that_fails_costs_nothing_of_what_there_is(cache: Cache) -> None:
    leave_part(cache, DATA[:-BLOCK])

    def absent(start: int) -> Iterator[bytes]:
        raise RegistryError([Problem("store.absent", "x", "It has no such file.", "")])

    with pytest.raises(RegistryError, match="no such file"):
        cache.fetch(WANTED, absent)
    server = Server()
    assert fetched(cache, server) == DATA
    assert server.starts == [len(DATA) - BLOCK]


def test_a_full_disk_is_told_by_the_name_of_the_file(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/somewhere/temporary")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        with pytest.raises(OSError, match="No space left") as caught:
            cache.fetch(WANTED, Server())
    assert caught.value.filename == str(cache.path(SHA256))
    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        with pytest.raises(OSError, match="No space left") as caught:
            cache.add(DATA)
    assert caught.value.filename == str(cache.path(SHA256))
    # What came before the disk was full need not come again.
    server = Server()
    assert fetched(cache, server) == DATA
    assert server.starts == [len(DATA)]


def test_a_folder_that_cannot_be_moved_across_devices_is_removed(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    path = cache.fetch(WANTED, Server())

    def other_device(*_: object) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", other_device)
        cache.set_aside(path)
    assert not path.exists()


def test_weights_are_found_under_their_digest_wherever_they_came_from(cache: Cache, tmp_path: Path) -> None:
    assert kept_weights(SHA256) is None
    mine = tmp_path / "mine.safetensors"
    mine.write_bytes(DATA)
    keep_weights(mine, SHA256)
    assert kept_weights(SHA256) == cache_folder() / "weights" / f"{SHA256}.safetensors"
    mine.unlink()
    assert kept_weights(SHA256) is None
    assert kept_weights(cache.fetch(WANTED, Server()).name) == cache.path(SHA256)


# Processes

WORKER = """
import hashlib, os, sys, time
from linnet.registry import cache as module
from linnet.registry.cache import Cache, Wanted
locks, log, pause = sys.argv[1] == "locks", sys.argv[2], float(sys.argv[3])
if not locks:
    module._locked = lambda descriptor: True
data = bytes(range(256)) * (module.RESUMED_BYTES // 64)
def stream(start):
    with open(log, "a") as file:
        file.write(f"{start}\\n")
    for at in range(start, len(data), 1 << 16):
        time.sleep(pause)
        yield data[at : at + (1 << 16)]
wanted = Wanted(hashlib.sha256(data).hexdigest(), "weights", len(data))
print("ready", flush=True)
sys.stdin.readline()
path = Cache().fetch(wanted, stream)
assert hashlib.sha256(path.read_bytes()).hexdigest() == wanted.sha256
"""


def start_worker(log: Path, locks: bool, pause: float) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", WORKER, "locks" if locks else "no-op", str(log), str(pause)]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def release(workers: list[subprocess.Popen[str]]) -> None:
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()


@pytest.mark.parametrize("locks", [True, False], ids=["locks", "no-op locks"])
def test_many_processes_fetch_one_file_at_once(cache: Cache, tmp_path: Path, locks: bool) -> None:
    """With locks one fetches for all; where locks do nothing all may, and the file is right all the same."""
    log = tmp_path / "log"
    workers = [start_worker(log, locks, 0.002) for _ in range(6)]
    release(workers)
    for worker in workers:
        assert worker.communicate()[1] == ""
        assert worker.returncode == 0
    assert cache.get(SHA256) is not None
    assert cache.wrong == []
    assert not list(cache.quarantine.glob("*"))
    if locks:
        assert log.read_text() == "0\n"
        assert cache.parts() == []


def test_a_killed_download_is_resumed_by_another_process(cache: Cache, tmp_path: Path) -> None:
    log = tmp_path / "log"
    worker = start_worker(log, True, 0.01)
    release([worker])
    while not cache.parts() or cache.parts()[0].stat().st_size < 2 * RESUMED_BYTES:
        assert worker.poll() is None
    worker.send_signal(signal.SIGKILL)
    worker.communicate()
    (left,) = cache.parts()
    size = left.stat().st_size
    server = Server()
    assert fetched(cache, server) == DATA
    assert server.starts == [size]
    assert cache.parts() == []


def test_nobody_waits_for_a_download_that_stands_still(
    cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = start_worker(tmp_path / "log", True, 0.01)
    release([worker])
    while not cache.parts():
        assert worker.poll() is None
    worker.send_signal(signal.SIGSTOP)
    monkeypatch.setattr(cache_module, "PATIENCE", 0.2)
    try:
        server = Server()
        assert fetched(cache, server) == DATA
        assert server.starts == [0]
    finally:
        worker.send_signal(signal.SIGCONT)
    assert worker.communicate()[1] == ""
    assert cache.get(SHA256) is not None
