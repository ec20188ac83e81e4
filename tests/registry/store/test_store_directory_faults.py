"""A file system that fails in every way: whole or not at all, and no temporary file left."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from linnet.registry.store.base import ReadOnlyError, StoreError
from linnet.registry.store.directory import LEFTOVER_SECONDS, DirectoryStore
from linnet.registry.store.open import open_store

VERSION = "versions/tiny/1.json"


@pytest.fixture
def store(tmp_path: Path) -> DirectoryStore:
    return DirectoryStore(tmp_path / "registry")


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """Mounts small file systems in memory; skips where that is not allowed."""
    points: list[Path] = []

    def mount(name: str, options: str = "size=1m") -> Path:
        point = tmp_path / name
        point.mkdir(parents=True, exist_ok=True)
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(point)]
        if subprocess.run(command, capture_output=True, check=False).returncode != 0:
            pytest.skip("this account may not mount a file system")
        points.append(point)
        return point

    yield mount
    for point in reversed(points):
        subprocess.run(["umount", "-l", str(point)], check=True)


def kind_of(act: Callable[[], object]) -> str:
    with pytest.raises(StoreError) as error:
        act()
    assert error.value.problems[0].help
    return error.value.problems[0].kind


def left(folder: Path) -> list[str]:
    """Every file that is there, also hidden ones."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_a_full_disk(mounted: Callable[..., Path]) -> None:
    folder = mounted("disk")
    store = DirectoryStore(folder / "registry")
    assert store.create(VERSION, b"small")
    store.replace("index/latest.json", b"old")
    large = b"x" * (2 << 20)
    for act in (
        lambda: store.create("objects/large", large),
        lambda: store.create_all({"objects/large": large}),
        lambda: store.replace("index/latest.json", large),
    ):
        assert kind_of(act) == "store.full"
    assert left(folder) == ["registry/index/latest.json", f"registry/{VERSION}"]
    assert b"".join(store.stream("index/latest.json")) == b"old"
    assert store.create("objects/small", b"fits")


def test_a_limit_on_the_size_of_files(store: DirectoryStore) -> None:
    """As a full disk, where no file system can be mounted."""
    code = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from linnet.registry.store.base import StoreError\n"
        "from linnet.registry.store.directory import DirectoryStore\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "try:\n"
        "    DirectoryStore(Path(sys.argv[1])).create('objects/large', b'x' * 1001)\n"
        "except StoreError as error:\n"
        "    sys.exit(error.problems[0].kind)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(store.folder)], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == "store.full"
    assert left(store.folder) == []


def test_a_file_system_that_is_read_only(mounted: Callable[..., Path]) -> None:
    folder = mounted("disk")
    store = DirectoryStore(folder / "registry")
    assert store.writable
    assert store.create(VERSION, b"here")
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
    assert not store.writable
    for act in (
        lambda: store.create("versions/tiny/2.json", b""),
        lambda: store.create("events/tiny/000001.json", b""),
        lambda: store.replace(VERSION, b""),
        lambda: store.remove(VERSION),
    ):
        with pytest.raises(ReadOnlyError, match="Name a registry that you may write to"):
            act()
    # What is there is found to be there, which needs no writing.
    assert not store.create(VERSION, b"other")
    assert b"".join(store.stream(VERSION)) == b"here"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write in any folder")
def test_a_folder_that_is_read_only(store: DirectoryStore) -> None:
    store.create(VERSION, b"here")
    store.folder.chmod(0o500)
    try:
        assert not store.writable
        with pytest.raises(ReadOnlyError):
            store.create("events/tiny/000001.json", b"")
    finally:
        store.folder.chmod(0o700)


def test_parts_of_a_registry_may_lie_on_other_devices(mounted: Callable[..., Path], tmp_path: Path) -> None:
    """Nothing is renamed or linked from one device to another: a temporary file is beside its target."""
    store = DirectoryStore(tmp_path / "registry")
    mounted("registry/objects")
    mounted("registry/index")
    assert os.stat(tmp_path / "registry/objects").st_dev != os.stat(tmp_path).st_dev
    assert store.create("objects/sha256/ab/abcdef", b"object")
    assert store.create(VERSION, b"version")
    store.replace("index/latest.json", b"latest")
    assert left(store.folder) == ["index/latest.json", "objects/sha256/ab/abcdef", VERSION]


def test_temporary_files_are_beside_their_targets(store: DirectoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same, where nothing can be mounted."""
    moves: list[tuple[Path, Path]] = []

    def noted(act: Callable[..., None]) -> Callable[..., None]:
        def move(source: Path, target: Path) -> None:
            moves.append((Path(source).parent, Path(target).parent))
            act(source, target)

        return move

    monkeypatch.setattr(os, "link", noted(os.link))
    monkeypatch.setattr(os, "replace", noted(os.replace))
    store.create("objects/sha256/ab/abcdef", b"object")
    store.replace("index/latest.json", b"latest")
    assert moves == [(store.folder / "objects/sha256/ab",) * 2, (store.folder / "index",) * 2]


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_system_without_hard_links_is_refused(
    store: DirectoryStore, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def no_links(source: Path, target: Path) -> None:
        raise OSError(number, os.strerror(number), str(source))

    monkeypatch.setattr(os, "link", no_links)
    assert kind_of(lambda: store.create(VERSION, b"here")) == "store.no-links"
    assert left(store.folder) == []


@pytest.mark.parametrize("number", [errno.EEXIST, errno.EIO, errno.ESTALE])
def test_a_link_whose_answer_was_lost_was_made(
    store: DirectoryStore, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """A network file system links, loses the answer, and fails the repetition."""
    link = os.link

    def lost(source: Path, target: Path) -> None:
        link(source, target)
        raise OSError(number, os.strerror(number), str(source))

    monkeypatch.setattr(os, "link", lost)
    assert store.create(VERSION, b"mine")
    assert left(store.folder) == [VERSION]
    monkeypatch.setattr(os, "link", link)
    assert not store.create(VERSION, b"mine")


def test_locks_are_not_used(store: DirectoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some network file systems let everyone lock: nothing may rest on it, so nothing asks."""

    def asked(*_: object) -> None:
        raise AssertionError("a lock was taken")

    for name in ("flock", "lockf"):
        monkeypatch.setattr(fcntl, name, asked)
    assert store.create(VERSION, b"1")
    assert store.create_all({"objects/a": b"a", VERSION: b"2"}) == {VERSION}
    store.replace("index/latest.json", b"3")
    store.remove("index/latest.json")


KILLED_AT = {
    "open": "os.open",
    "sync": "os.fsync",
    "link": "os.link",
    "replace": "os.replace",
}


@pytest.mark.parametrize("call", KILLED_AT)
def test_a_writer_that_is_killed_leaves_the_old_state(store: DirectoryStore, call: str) -> None:
    """Killed at each call to the system: nothing under a path, and what was begun can be done."""
    store.replace("index/latest.json", b"old")
    code = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from linnet.registry.store.directory import DirectoryStore\n"
        "store = DirectoryStore(Path(sys.argv[1]))\n"
        f"{KILLED_AT[call]} = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "if sys.argv[2] == 'replace':\n"
        "    store.replace('index/latest.json', b'new')\n"
        "store.create(sys.argv[3], b'new')\n"
    )
    command = [sys.executable, "-c", code, str(store.folder), call, VERSION]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert list(store.list("")) == ["index/latest.json"]
    assert b"".join(store.stream("index/latest.json")) == b"old"
    assert store.create(VERSION, b"again")
    store.replace("index/latest.json", b"again")
    assert sorted(store.list("")) == ["index/latest.json", VERSION]


def test_what_killed_writers_left_is_deleted_the_next_day(store: DirectoryStore) -> None:
    store.create("versions/tiny/1.json", b"")
    folder = store.folder / "versions/tiny"
    for name in (".new-old", ".new-young", ".other"):
        (folder / name).write_bytes(b"half")
    yesterday = (folder / ".new-young").stat().st_mtime - LEFTOVER_SECONDS - 60
    for name in (".new-old", ".other", "1.json"):
        os.utime(folder / name, (yesterday, yesterday))
    # Each process looks once into each folder that it writes to.
    assert DirectoryStore(store.folder).create("versions/tiny/2.json", b"")
    assert left(folder) == [".new-young", ".other", "1.json", "2.json"]


def test_a_folder_where_a_file_should_be(store: DirectoryStore) -> None:
    store.create("versions/tiny/1.json", b"")
    assert kind_of(lambda: store.create("versions/tiny/1.json/below", b"")) == "store.unwritable"
    assert kind_of(lambda: store.replace("versions/tiny", b"")) == "store.unwritable"
    assert not store.create("versions/tiny", b"")


def test_a_pipe_or_a_device_where_a_file_should_be(store: DirectoryStore) -> None:
    store.create("objects/a", b"x")
    os.mkfifo(store.folder / "objects/pipe")
    (store.folder / "objects/zeros").symlink_to("/dev/zero")
    for path in ("objects/pipe", "objects/zeros"):
        for read in (lambda path=path: store.read(path, limit=9), lambda path=path: list(store.stream(path))):
            with pytest.raises(StoreError, match=f"^{path} in .* is no plain file. Remove it: nothing of it was used"):
                read()


def test_links_that_lead_in_circles(store: DirectoryStore) -> None:
    store.create("versions/tiny/1.json", b"{}")
    for name in "abcd":
        # A walk that followed them would have 4 ** 250 folders before it.
        (store.folder / "versions" / name).symlink_to(".")
        (store.folder / "versions" / f"{name}-tiny").symlink_to("tiny")
    assert len(list(store.list("versions/"))) == 1


def test_files_that_are_not_the_registrys_are_not_listed(store: DirectoryStore) -> None:
    store.create(VERSION, b"")
    for name in (".new-0123", ".DS_Store", "with space", "ä.json"):
        (store.folder / "versions/tiny" / name).write_bytes(b"")
    (store.folder / ".git/objects").mkdir(parents=True)
    (store.folder / ".git/objects/a").write_bytes(b"")
    assert list(store.list("")) == [VERSION]


def test_new_files_follow_the_umask(store: DirectoryStore) -> None:
    before = os.umask(0o002)
    try:
        store.create(VERSION, b"")
    finally:
        os.umask(before)
    assert (store.folder / VERSION).stat().st_mode & 0o777 == 0o664


def test_a_file_that_cannot_be_copied(store: DirectoryStore, tmp_path: Path) -> None:
    assert kind_of(lambda: store.create("objects/a", tmp_path / "absent")) == "store.unwritable"
    assert left(store.folder) == []


def test_what_grows_or_shrinks_while_it_is_read(store: DirectoryStore) -> None:
    path = store.folder / "objects/a"
    store.create("objects/a", b"x" * (3 << 20))
    pieces = store.stream("objects/a")
    next(pieces)
    os.truncate(path, 2 << 20)
    with pytest.raises(StoreError) as error:
        list(pieces)
    assert error.value.problems[0].kind == "store.truncated"


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("s4://bucket/prefix", '"s4://bucket/prefix" names no kind of registry. Use s3:// instead.'),
        ("", "The registry's address is empty. Write a path"),
        ("ftp://host/x", "names no kind of registry. Use"),
        ("://x", '"://x" names no kind of registry.'),
        ("3s://bucket/prefix", '"3s://bucket/prefix" names no kind of registry. Write a path or an address'),
        ("http://example.org/registry", "is not encrypted: anyone on the way could change what it says. Use https"),
        ("https://user:secret@example.org/x", "https://…@example.org holds a user name or a password. Leave them out"),
        ("https://example.org/x?version=1", "holds a ? or #"),
        ("https:///x", "names no host"),
        ("https://example.org:port/x", "is no address"),
        ("hf://registry", "names no repository of the Hub. Write hf://owner/name."),
        ("hf://owner/name/extra", "names no repository of the Hub"),
        ("hf://../name", "names no repository of the Hub"),
        ("s3://", "names no bucket. Write s3://bucket/prefix."),
        ("file://elsewhere/x", "names no folder of this machine. Write file:///path/to/registry."),
    ],
)
def test_addresses_that_name_no_store(address: str, message: str) -> None:
    with pytest.raises(StoreError) as error:
        open_store(address)
    assert error.value.problems[0].kind == "store.address"
    assert message in str(error.value)
    assert "secret" not in str(error.value)


def test_a_directory_is_named_by_a_path_or_an_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    open_store(tmp_path / "a b").create(VERSION, b"here")
    for address in (f"file://{tmp_path}/a%20b", f"file://localhost{tmp_path}/a b", "~/a b", "a b", "./a b/"):
        assert b"".join(open_store(address).stream(VERSION)) == b"here"
        assert open_store(address).url == address
    relative = open_store("a b")
    monkeypatch.chdir("/")
    assert list(relative.list("")) == [VERSION]
