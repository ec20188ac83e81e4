"""`nest.lock` and `nest verify`: names that mean what they meant, and everything that is kept hashed again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from published import Web, as_client, opened, overwrite, publish, served
from tiny_package import MakePackage

from linnet.cli.nest_verify import command as verify_command
from linnet.registry.cache import Cache
from linnet.registry.client import Client
from linnet.registry.errors import RegistryError
from linnet.registry.events import set_status, yank
from linnet.registry.generations import rebuild_index
from linnet.registry.layout import event_path, object_path, package_path, version_path
from linnet.registry.locate import Located, find_package
from linnet.registry.lock import Lock, LockError, active_lock, read_lock
from linnet.registry.pull import lock_packages, pull_package
from linnet.registry.records import PackageRecord
from linnet.registry.resolve import UnreachableError
from linnet.registry.verify import Verified, verify_cache, verify_lock, verify_package, verify_registry


@pytest.fixture
def registry(tmp_path: Path, make_package: MakePackage, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A registry with `tiny` 1.0.0, a client that has never asked it, and an empty working folder."""
    folder = tmp_path / "registry"
    publish(folder, make_package(), "1.0.0")
    as_client(tmp_path / "client", monkeypatch)
    monkeypatch.setenv("LINNET_REGISTRY", str(folder))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return folder


@pytest.fixture
def web(registry: Path) -> Iterator[Web]:
    with served(registry) as server:
        yield server


def publish_next(registry: Path, make_package: MakePackage) -> None:
    publish(registry, make_package(readme="# Newer\n"), "2.0.0")


def kinds(found: Verified) -> list[str]:
    return [problem.kind.removeprefix("verify.") for problem in found.problems]


# The lock


def test_a_lock_pins_what_a_name_means(registry: Path, make_package: MakePackage) -> None:
    path = lock_packages([find_package("tiny")])
    assert path == Path("nest.lock")
    publish_next(registry, make_package)
    assert find_package("tiny").version == "1.0.0"
    assert find_package("tiny@1.0.0").version == "1.0.0"
    assert find_package("tiny", locked=False).version == "2.0.0"
    with pytest.raises(LockError, match=r"nest\.lock pins tiny to 1\.0\.0, and tiny@2\.0\.0 was asked for\."):
        find_package("tiny@2.0.0")
    lock_packages([find_package("tiny", locked=False)])
    assert find_package("tiny").version == "2.0.0"


def test_which_lock_holds(
    registry: Path, tmp_path: Path, make_package: MakePackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert active_lock() is None
    lock_packages([find_package("tiny")])
    publish_next(registry, make_package)
    Path("nest.lock").rename(tmp_path / "other.lock")
    assert find_package("tiny").version == "2.0.0"
    monkeypatch.setenv("LINNET_LOCK", str(tmp_path / "other.lock"))
    assert find_package("tiny").version == "1.0.0"
    monkeypatch.setenv("LINNET_LOCK", "off")
    assert find_package("tiny").version == "2.0.0"
    with pytest.raises(LockError, match="LINNET_LOCK is off, so no lock is used"):
        lock_packages([find_package("tiny")])
    monkeypatch.setenv("LINNET_LOCK", str(tmp_path / "none.lock"))
    with pytest.raises(LockError, match=r"LINNET_LOCK names .*none\.lock, which is no file"):
        find_package("tiny")


def test_a_locked_version_that_changed_upstream_is_refused(
    registry: Path, make_package: MakePackage, tmp_path: Path
) -> None:
    """Another machine made the lock, so that this one has seen nothing."""
    located = find_package("tiny")
    other = tmp_path / "other"
    publish(other, make_package(readme="# Evil\n"), "1.0.0")
    lock_packages([located])
    for folder in (tmp_path / "client" / "cache", tmp_path / "client" / "data"):
        folder.rename(folder.with_name(f"old-{folder.name}"))
    (registry / version_path("tiny", "1.0.0")).rename(registry / "gone")
    (registry / package_path("tiny")).unlink()
    with pytest.raises(RegistryError, match=r"instead of|is not what it was"):
        find_package("tiny", registry=other)
    (registry / "gone").rename(registry / version_path("tiny", "1.0.0"))
    # Its own registry is asked last, though it is not configured.
    with pytest.warns(UserWarning, match="was not used"):
        assert find_package("tiny", registry=other).sha256 == located.sha256


def test_a_lock_that_gives_a_version_the_digest_of_another_is_told(registry: Path, web: Web, tmp_path: Path) -> None:
    located = find_package("tiny", registry=web.url)
    text = lock_packages([located]).read_text()
    Path("nest.lock").write_text(text.replace("tiny", "toy"))
    for url in (web.url, registry):
        with pytest.raises(RegistryError, match=r"is the record of tiny 1\.0\.0\. Correct whatever gives toy 1\.0\.0"):
            find_package("toy", registry=url)


def test_a_locked_and_cached_version_is_not_asked_for(web: Web) -> None:
    lock_packages([find_package("tiny", registry=web.url)])
    web.paths.clear()
    assert find_package("tiny", registry=web.url).version == "1.0.0"
    assert find_package("tiny", registry=web.url, offline=True).version == "1.0.0"
    assert web.paths == []


def test_a_lock_reads_back_and_keeps_the_rest(registry: Path) -> None:
    located = find_package("tiny")
    lock_packages([located])
    text = Path("nest.lock").read_text()
    lock = read_lock(Path("nest.lock"))
    assert lock.packages["tiny"].sha256 == located.sha256
    lock.write()
    assert Path("nest.lock").read_text() == text
    document = json.loads(text)
    document["packages"]["other"] = document["packages"]["tiny"]
    Path("nest.lock").write_text(json.dumps(document))
    lock_packages([located])
    assert read_lock(Path("nest.lock")).packages.keys() == {"tiny", "other"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "nest.lock is not JSON at line 1"),
        ("[]", "nest.lock is no lock of this program (schema None)."),
        ('{"schema": 2, "packages": {}}', "nest.lock is no lock of this program (schema 2)."),
        ('{"schema": 1}', "packages is missing."),
        ('{"schema": 1, "packages": {"tiny": 1}}', "packages.tiny must be an object."),
        ('{"schema": 1, "packages": {"Tiny": {}}}', "packages.Tiny is not the name of a package."),
        ('{"schema": 1, "packages": {"tiny": {}}}', "packages.tiny.sha256 is missing."),
        ('{"schema": 1, "packages": {}, "more": 1}', "more is not a key of the schema"),
        ('{"schema": 1, "packages": {"tiny": {}, "tiny": {}}}', "packages.tiny is there more than once."),
    ],
)
def test_a_damaged_lock_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("nest.lock").write_text(text)
    with pytest.raises(LockError) as caught:
        find_package("tiny")
    assert said in str(caught.value)
    assert "Restore it from version control, or write it anew: nest pull --lock NAME" in str(caught.value)


@pytest.mark.parametrize("kind", ["folder", "link"])
def test_a_lock_that_is_no_file_pins_nothing_silently(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    if kind == "folder":
        Path("nest.lock").mkdir()
    else:
        Path("nest.lock").symlink_to("nowhere")
    with pytest.raises(LockError, match=r"^nest\.lock is no file\. Restore it from version control"):
        find_package("tiny")


def test_what_comes_from_no_registry_cannot_be_pinned(make_package: MakePackage) -> None:
    with pytest.raises(LockError, match="tiny comes from no registry, so it cannot be pinned"):
        lock_packages([Located(make_package())])


def test_a_locked_version_that_is_nowhere(registry: Path) -> None:
    lock_packages([find_package("tiny")])
    lock = read_lock(Path("nest.lock"))
    gone = {"none": lock.packages["tiny"]}
    Lock(lock.path, gone).write()
    with pytest.raises(LockError, match=r"none 1\.0\.0, which nest\.lock pins, is in no configured registry"):
        find_package("none")


def test_pulling_brings_all_that_loading_needs(registry: Path) -> None:
    pulled = pull_package("tiny")
    assert pulled.weights["model.safetensors"].is_file()
    assert (pulled.files, pulled.weights_size) == (4, pulled.weights["model.safetensors"].stat().st_size)
    assert pull_package("tiny", weights=False).weights == {}
    with pytest.raises(UnreachableError):
        pull_package("tiny", registry="http://127.0.0.1:9")


# Verifying


def test_a_cache_that_is_whole(registry: Path) -> None:
    find_package("tiny")
    found = verify_cache(Client())
    assert found.ok
    assert found.files == 5 + 1 + 5
    assert found.to_dict()["problems"] == []


@pytest.mark.parametrize("poison", [b"poison", None])
def test_looking_at_a_poisoned_record_changes_nothing(registry: Path, poison: bytes | None) -> None:
    """The digests of records are another each time: that of this one may come first or last."""
    located = find_package("tiny")
    client, cache = Client(), Cache()
    assert located.sha256 is not None
    record = cache.path(located.sha256)
    if poison is None:
        record.chmod(0o644)
        record.unlink()
        record.mkdir()
    else:
        overwrite(record, poison)
    for _ in range(2):
        assert sorted(kinds(verify_cache(client))) == ["folder", "object"]
    assert list(cache.quarantine.glob("*")) == []
    assert verify_cache(client, repair=True).ok
    assert find_package("tiny").sha256 == located.sha256
    assert verify_cache(client).problems == ()


def test_poison_is_found_and_repaired_on_request(registry: Path) -> None:
    located = find_package("tiny")
    client, cache = Client(), Cache()
    # Not the version's record, without which the folder's files are not known.
    digests = [digest for digest in cache.digests() if digest != located.sha256]
    overwrite(cache.path(digests[0]), b"poison")
    overwrite(located.folder / "README.md", b"poison")
    found = verify_cache(client)
    assert sorted(kinds(found)) == ["folder", "object"]
    assert not found.ok
    assert verify_cache(client).repaired == 0
    repaired = verify_cache(client, repair=True)
    assert (repaired.repaired, repaired.ok) == (2, True)
    assert verify_cache(client).ok
    assert find_package("tiny") == located
    assert verify_cache(client).ok
    assert len(list(cache.quarantine.iterdir())) == 2


def test_a_package_is_verified_with_its_weights(registry: Path) -> None:
    client = Client()
    resolved = client.resolve("tiny")
    assert resolved is not None
    assert kinds(verify_package(client, resolved)) == ["absent"]
    located = find_package("tiny")
    assert verify_package(client, resolved).ok
    overwrite(located.folder / "model.safetensors", b"poison")
    assert kinds(verify_package(client, resolved)) == ["folder"]
    with pytest.warns(UserWarning, match="set aside"):
        assert verify_package(client, resolved, repair=True).ok
    assert verify_package(client, resolved).ok


def test_a_lock_is_compared_with_what_is_served(registry: Path, tmp_path: Path) -> None:
    lock_packages([find_package("tiny")])
    lock = read_lock(Path("nest.lock"))
    assert verify_lock(Client(), lock).ok
    path = registry / version_path("tiny", "1.0.0")
    record = path.read_bytes()
    path.write_bytes(record.replace(b"One linear layer", b"Another layer!!!"))
    assert kinds(verify_lock(Client(), lock)) == ["lock"]
    path.unlink()
    # It is still here.
    assert verify_lock(Client(), lock).ok
    (tmp_path / "client" / "cache").rename(tmp_path / "client" / "old")
    assert kinds(verify_lock(Client(), lock)) == ["lock-absent"]


@pytest.fixture
def mirror(registry: Path, tmp_path: Path) -> Path:
    """A copy of the registry."""
    import shutil

    return Path(shutil.copytree(registry, tmp_path / "mirror"))


def verified(registry: Path | str, *others: Path, repair: bool = False) -> Verified:
    client = Client(",".join(map(str, (registry, *others))))
    return verify_registry(opened(registry), client, repair=repair)


def test_a_registry_that_is_whole(registry: Path, web: Web, make_package: MakePackage) -> None:
    publish_next(registry, make_package)
    yank(opened(registry), "tiny", "1.0.0", "old")
    found = verified(registry)
    assert (found.ok, found.files) == (True, 2 + 7)
    assert verified(web.url).ok


@pytest.mark.parametrize("what", ["object", "lost object", "record", "lost record", "small file", "index"])
def test_damage_is_found_and_repaired_from_a_mirror(registry: Path, mirror: Path, what: str) -> None:
    record = opened(registry).version("tiny", "1.0.0").document
    readme = next(file for file in record.files if file.path == "README.md")
    path = {
        "object": registry / object_path(readme.sha256),
        "record": registry / version_path("tiny", "1.0.0"),
        "small file": registry / package_path("tiny"),
        "index": registry / "index" / "gen-00000001.json",
    }[what.removeprefix("lost ")]
    right = path.read_bytes()
    if what.startswith("lost"):
        path.unlink()
    elif what == "small file":
        path.write_bytes(PackageRecord("tiny", ()).to_bytes())
    elif what == "index":
        path.write_bytes(right.replace(b"One linear layer", b"Another layer!!!"))
    else:
        path.write_bytes(right[:-2] + b"!\n")
    expected = what.removeprefix("lost ") if what not in ("small file", "index") else "index"
    found = verified(registry)
    assert kinds(found) == [expected]
    assert not found.ok
    # Alone it cannot make up for what is lost; an index and small files it can make itself.
    repaired = verified(registry, mirror, repair=True)
    assert (kinds(repaired), repaired.ok) == ([expected], True)
    # A generation is never written again; another one follows it.
    assert (path.read_bytes() == right) == (what != "index")
    assert verified(registry).ok


def test_offline_no_mirror_is_asked_to_repair(
    registry: Path, mirror: Path, web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`web` serves the mirror's twin: what it could give is as good as not there."""
    digest = next(iter(opened(registry).version("tiny", "1.0.0").document.objects()))
    whole = (registry / object_path(digest)).read_bytes()
    monkeypatch.setenv("LINNET_REGISTRY", web.url)
    overwrite(mirror / object_path(digest), b"poison")
    command = ["--registry", str(mirror), "--repair", "--quiet"]
    done = CliRunner().invoke(verify_command, [*command, "--offline"], standalone_mode=False)
    assert (done.exception, done.return_value) == (None, 1)
    assert web.paths == []
    done = CliRunner().invoke(verify_command, command, standalone_mode=False)
    assert (done.exception, done.return_value) == (None, 0)
    assert (mirror / object_path(digest)).read_bytes() == whole


def test_what_no_mirror_has_is_not_called_repaired(registry: Path) -> None:
    record = opened(registry).version("tiny", "1.0.0").document
    (registry / object_path(record.files[0].sha256)).write_bytes(b"poison")
    found = verified(registry, repair=True)
    assert (found.repaired, found.ok) == (0, False)


def test_an_event_that_was_lost_is_missed(registry: Path) -> None:
    yank(opened(registry), "tiny", "1.0.0", "bad")
    set_status(opened(registry), "tiny", "deprecated")
    assert verify_registry(opened(registry), Client()).ok
    (registry / event_path("tiny", 1)).unlink()
    rebuild_index(opened(registry))
    (problem,) = verify_registry(opened(registry), Client()).problems
    assert problem.kind == "verify.event"
    assert problem.message == f"events/tiny/000001.json in {registry} is gone, and later ones are there."
