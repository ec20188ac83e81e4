"""Packages from registries: what a name means, what is fetched for it, and that nothing wrong or older is taken."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from published import Web, as_client, opened, overwrite, publish, served
from tiny_package import CARD, MakePackage

from linnet.registry.cache import Cache, WrongBytesError
from linnet.registry.client import Client
from linnet.registry.errors import PackageError, RegistryError, RegistryWarning
from linnet.registry.events import set_alias, set_status, yank
from linnet.registry.layout import object_path, package_path, version_path
from linnet.registry.locate import BUNDLED, Located, find_package
from linnet.registry.records import PACKAGE_BYTES, Latest, PackageRecord, VersionEntry
from linnet.registry.registry import NO_GENERATION
from linnet.registry.resolve import RefusedError, UnreachableError, UnresolvedError
from linnet.registry.store.base import StoreError

UNREACHABLE = "http://127.0.0.1:9/registry"


@pytest.fixture
def registry(tmp_path: Path, make_package: MakePackage, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A registry with `tiny` 1.0.0 and 1.1.0, and a client that has never asked it."""
    folder = tmp_path / "registry"
    for version in ("1.0.0", "1.1.0"):
        publish(folder, make_package(readme=f"# Tiny {version}\n"), version)
    as_client(tmp_path / "client", monkeypatch)
    monkeypatch.setenv("LINNET_REGISTRY", str(folder))
    return folder


@pytest.fixture(autouse=True)
def somewhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder in which no name is a folder's."""
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")


@pytest.fixture
def web(registry: Path) -> Iterator[Web]:
    """The registry behind a web server."""
    with served(registry) as server:
        yield server


def readme(located: Located) -> str:
    return (located.folder / "README.md").read_text().strip()


def refusal(name: str, registry: str | None = None, kind: type[RegistryError] = RegistryError) -> str:
    with pytest.raises(kind) as caught:
        find_package(name, registry=registry)
    return str(caught.value)


# What a name means


def test_a_name_a_version_and_an_alias(registry: Path) -> None:
    assert readme(find_package("tiny")) == "# Tiny 1.1.0"
    assert readme(find_package("tiny@1.0.0")) == "# Tiny 1.0.0"
    set_alias(opened(registry), "tiny", "stable", "1.0.0")
    located = find_package("tiny@stable")
    assert (located.version, located.registry, located.reference) == ("1.0.0", str(registry), "tiny@1.0.0")
    assert located.card().weights.sha256.keys() == {"model.safetensors"}


def test_a_package_of_a_registry_is_a_read_only_folder_of_its_own(registry: Path) -> None:
    located = find_package("tiny")
    assert located.folder.name == "tiny"
    assert located.shared
    assert sorted(path.name for path in located.folder.rglob("*") if path.is_file()) == [
        "README.md",
        "bindings.json",
        "lib.linnet",
        "model.safetensors",
        "nest.toml",
    ]
    assert {path.stat().st_mode & 0o222 for path in (located.folder, *located.folder.rglob("*"))} == {0}


def test_a_yanked_version_is_taken_by_its_number_alone(registry: Path) -> None:
    yank(opened(registry), "tiny", "1.1.0", "wrong bindings")
    assert readme(find_package("tiny")) == "# Tiny 1.0.0"
    with pytest.warns(
        RegistryWarning, match=r"tiny 1\.1\.0 was yanked \(wrong bindings\)\. Move to 1\.0\.0, the newest"
    ):
        assert readme(find_package("tiny@1.1.0")) == "# Tiny 1.1.0"
    set_alias(opened(registry), "tiny", "stable", "1.0.0")
    yank(opened(registry), "tiny", "1.0.0", "worse")
    assert "tiny@stable means 1.0.0, which was yanked (worse)." in refusal("tiny@stable", kind=UnresolvedError)
    assert "all are yanked. Name one with its number to take it all the same: 1.1.0, 1.0.0, @stable (1.0.0)" in refusal(
        "tiny", kind=UnresolvedError
    )


def test_statuses(registry: Path) -> None:
    set_status(opened(registry), "tiny", "deprecated", "use small")
    with pytest.warns(RegistryWarning, match=r"tiny is deprecated \(use small\)\. It loads all the same\."):
        find_package("tiny")
    set_status(opened(registry), "tiny", "quarantined", "it bites")
    for name in ("tiny", "tiny@1.0.0"):
        assert "tiny is in quarantine in" in refusal(name, kind=RefusedError)
    set_status(opened(registry), "tiny", "active", "")
    find_package("tiny")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "tiny@1.0.1",
            'tiny has no version "1.0.1" in {}. The nearest is 1.0.0; it has 1.1.0, 1.0.0, @stable (1.1.0).',
        ),
        (
            "tiny@stabel",
            'tiny has no alias "stabel" in {}. The nearest is stable; it has 1.1.0, 1.0.0, @stable (1.1.0).',
        ),
        ("tiny@1.0", 'tiny has no version or alias "1.0" in {}. The nearest is 1.1.0; it has 1.1.0, 1.0.0, '),
        ("tny", "no package of that name in the registry {}. The nearest is tiny; all-minilm-l6-v2, "),
        (
            "qwen3-8b@9.9.9",
            "qwen3-8b@9.9.9 is in no registry, and the qwen3-8b that ships here has the version 0.1.0. "
            "Name qwen3-8b alone to take it.",
        ),
        ("tiny@", 'There is no folder "tiny@", and no package of that name.'),
    ],
)
def test_what_is_not_there_gets_the_nearest(registry: Path, name: str, said: str) -> None:
    set_alias(opened(registry), "tiny", "stable", "1.1.0")
    assert said.format(registry) in refusal(name, kind=PackageError)


def test_addresses_that_are_none(registry: Path, tmp_path: Path) -> None:
    nowhere = str(tmp_path / "nowhere")
    assert f'There is no registry "{nowhere}": that folder does not exist.' in refusal("tiny", nowhere)
    other = tmp_path / "sources"
    (other / "module").mkdir(parents=True)
    said = f"{other} holds other things and is no registry. Name its folder, or a new one."
    assert said in refusal("tiny", str(other), StoreError)
    assert said.replace(str(other), other.as_uri()) in refusal("tiny", other.as_uri(), StoreError)
    assert "names no kind of registry. Use https:// instead." in refusal("tiny", "htps://example.org", StoreError)
    assert "--registry names a registry by an empty text" in refusal("tiny", "")
    assert f"No connection to {UNREACHABLE}" in refusal("tiny", UNREACHABLE, UnreachableError)


def test_the_default_registry_need_not_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    as_client(tmp_path / "client", monkeypatch)
    assert find_package("qwen3-8b") == Located(BUNDLED / "qwen3-8b")
    assert "no package of that name in your registry." in refusal("tiny")


def test_what_ships_here_comes_last(registry: Path, make_package: MakePackage) -> None:
    assert find_package("gpt2") == Located(BUNDLED / "gpt2") == find_package("gpt2@0.1.0")
    with pytest.warns(RegistryWarning, match="No connection to .* The gpt2 that ships here was taken"):
        assert find_package("gpt2", registry=UNREACHABLE) == Located(BUNDLED / "gpt2")
    package = make_package(card=CARD.replace('"tiny"', '"gpt2"'))
    publish(registry, package.rename(package.with_name("gpt2")), "1.0.0")
    assert find_package("gpt2").version == "1.0.0"


# What is fetched


def test_a_name_costs_under_50_kb_however_large_the_registry(
    registry: Path, root: Path, tmp_path: Path, web: Web
) -> None:
    """Ten thousand packages, and one with as many versions as its small file has room for."""
    publish(registry, root / "nests" / "qwen3-tiny-fp8", "0.1.0")
    name = "qwen3-tiny-fp8"
    entry = opened(registry).version(name, "0.1.0")
    versions = [VersionEntry(f"0.0.{i}", f"{i:064x}", "2026-01-31T12:00:00Z") for i in range(3000)]
    versions.append(VersionEntry("0.1.0", entry.sha256, entry.document.published))
    full = PackageRecord(name, tuple(versions), events=10_000).to_bytes()
    assert PACKAGE_BYTES - 500 < len(full) <= PACKAGE_BYTES
    (registry / package_path(name)).write_bytes(full)
    for i in range(10_000):
        (registry / package_path(f"p{i}")).write_bytes(b"{}")
    client = Client(web.url)
    resolved = client.resolve(name)
    assert resolved is not None
    assert resolved.record.version == "0.1.0"
    assert web.paths == [f"/{package_path(name)}", f"/{version_path(name, '0.1.0')}"]
    assert web.bytes < 50_000
    # The second time what is here is not fetched again.
    before = len(web.paths)
    assert client.resolve(name) is not None
    assert len(web.paths) == before + 1


def test_a_second_version_fetches_what_differs(registry: Path, web: Web) -> None:
    find_package("tiny@1.0.0", registry=web.url)
    web.paths.clear()
    find_package("tiny@1.1.0", registry=web.url)
    assert sum(path.startswith("/objects/") for path in web.paths) == 1


FORBID_SOCKETS = """
import socket, sys
def forbidden(*arguments, **named):
    raise AssertionError("a socket was opened")
socket.socket.connect = socket.socket.connect_ex = socket.create_connection = socket.getaddrinfo = forbidden
class Forbidden(socket.socket):
    __init__ = forbidden
socket.socket = Forbidden
from linnet import nest
name, registry, offline = sys.argv[1], sys.argv[2], {"None": None, "True": True}[sys.argv[3]]
model = nest.load(name, registry=registry, offline=offline, device="cpu")
import torch
print(model(torch.ones(1, 4)).shape)
"""


def load_without_sockets(name: str, registry: str, offline: bool | None) -> str:
    words = [sys.executable, "-c", FORBID_SOCKETS, name, registry, str(offline)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else done.stderr


def test_a_pinned_and_cached_load_opens_no_socket(web: Web) -> None:
    assert "was opened" in load_without_sockets("tiny@1.1.0", web.url, None)
    find_package("tiny", registry=web.url)
    web.paths.clear()
    assert load_without_sockets("tiny@1.1.0", web.url, None) == "torch.Size([1, 4])\n"
    assert load_without_sockets("tiny", web.url, True) == "torch.Size([1, 4])\n"
    # Not pinned, the name may mean something else by now.
    assert "was opened" in load_without_sockets("tiny", web.url, None)
    assert web.paths == []


def test_offline_knows_what_was_fetched_and_no_more(web: Web) -> None:
    offline = Client(web.url, offline=True)
    assert offline.resolve("tiny") is None
    assert offline.resolve("tiny", "1.0.0") is None
    find_package("tiny@1.0.0", registry=web.url)
    web.paths.clear()
    assert find_package("tiny@1.0.0", registry=web.url, offline=True).version == "1.0.0"
    with pytest.raises(UnreachableError, match=r"tiny 1\.1\.0 is not on this machine .* nest pull tiny@1\.1\.0"):
        find_package("tiny", registry=web.url, offline=True)
    assert web.paths == []


def test_offline_follows_the_hubs_variable(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert Client(web.url).offline
    assert not Client(web.url, offline=False).offline


# Mirrors


def test_a_registry_that_does_not_answer_is_passed_over(registry: Path) -> None:
    with pytest.warns(RegistryWarning, match=f"No connection to {UNREACHABLE}: .* {registry} was taken"):
        assert find_package("tiny", registry=f"{UNREACHABLE},{registry}").registry == str(registry)


def test_the_first_that_has_a_package_says_what_it_is(
    registry: Path, tmp_path: Path, make_package: MakePackage
) -> None:
    other = tmp_path / "other"
    publish(other, make_package(readme="# Another\n"), "2.0.0")
    assert readme(find_package("tiny", registry=f"{registry},{other}")) == "# Tiny 1.1.0"
    assert readme(find_package("tiny", registry=f"{other},{registry}")) == "# Another"
    assert readme(find_package("tiny@2.0.0", registry=f"{registry},{other}")) == "# Another"


@pytest.mark.parametrize("what", ["object", "record"])
def test_a_mirror_that_serves_wrong_bytes_never_reaches_the_loader(registry: Path, web: Web, what: str) -> None:
    prefix = "/objects/" if what == "object" else "/versions/"
    web.edit = lambda path, data: data.replace(b"Tiny", b"Evil") if path.startswith(prefix) else data
    said = refusal("tiny", web.url)
    assert "instead of" in said
    assert ("What was served as README.md of tiny 1.1.0 has the sha256" if what == "object" else web.url) in said
    assert not list(Cache().root.glob("versions/*/*/tiny"))
    assert not any(b"Evil" in Cache().path(digest).read_bytes() for digest in Cache().digests())
    # Another mirror makes up for it.
    if what == "object":
        assert readme(find_package("tiny", registry=f"{web.url},{registry}")) == "# Tiny 1.1.0"
    else:
        with pytest.warns(RegistryWarning, match="was not used"):
            assert readme(find_package("tiny", registry=f"{web.url},{registry}")) == "# Tiny 1.1.0"


def test_wrong_bytes_are_told_as_such(web: Web) -> None:
    web.edit = lambda path, data: data + b"!" if path.startswith("/objects/") else data
    assert "bytes, and was thrown away." in refusal("tiny", web.url, WrongBytesError)


def test_an_object_that_is_gone_is_had_from_a_mirror(registry: Path, tmp_path: Path, web: Web) -> None:
    record = opened(registry).version("tiny", "1.1.0").document
    lost = next(file for file in record.files if file.path == "README.md")
    kept = tmp_path / "mirror"
    kept.mkdir()
    (kept / object_path(lost.sha256)).parent.mkdir(parents=True)
    (registry / object_path(lost.sha256)).rename(kept / object_path(lost.sha256))
    assert "has no README.md of tiny 1.1.0, or not any more" in refusal("tiny", web.url)
    assert readme(find_package("tiny", registry=f"{web.url},{kept}")) == "# Tiny 1.1.0"


# Poison in the cache


def test_a_poisoned_folder_is_set_aside_and_made_again(registry: Path) -> None:
    located = find_package("tiny")
    overwrite(located.folder / "README.md", b"# Evil\n")
    with pytest.warns(RegistryWarning, match="was not what it should be; it was set aside as .*quarantine"):
        assert readme(find_package("tiny")) == "# Tiny 1.1.0"
    located.folder.chmod(0o755)
    (located.folder / "more.linnet").write_text("pub block Evil {}\n")
    with pytest.warns(RegistryWarning, match="set aside"):
        assert not (find_package("tiny").folder / "more.linnet").exists()
    located.folder.chmod(0o755)
    (located.folder / "bindings.json").unlink()
    (located.folder / "bindings.json").symlink_to("/etc/hostname")
    with pytest.warns(RegistryWarning, match="set aside"):
        assert not (find_package("tiny").folder / "bindings.json").is_symlink()
    place = located.folder.parent
    located.folder.chmod(0o755)
    located.folder.rename(place / "another")
    with pytest.warns(RegistryWarning, match="set aside"):
        assert readme(find_package("tiny")) == "# Tiny 1.1.0"
    Cache().set_aside(place)
    place.write_bytes(b"no folder at all")
    with pytest.warns(RegistryWarning, match="set aside"):
        assert readme(find_package("tiny")) == "# Tiny 1.1.0"
    assert len(list(Cache().quarantine.iterdir())) == 6


def test_poisoned_objects_and_folders_together_are_fetched_again(registry: Path, web: Web) -> None:
    located = find_package("tiny@1.0.0", registry=web.url)
    cache = Cache()
    for digest in cache.digests():
        overwrite(cache.path(digest), b"# Evil\n")
    overwrite(located.folder / "README.md", b"# Evil\n")
    with pytest.warns(RegistryWarning, match="set aside"):
        assert readme(find_package("tiny@1.0.0", registry=web.url)) == "# Tiny 1.0.0"
    assert all(cache.get(digest) for digest in cache.digests())


def test_a_poisoned_small_file_is_not_believed_offline(web: Web) -> None:
    find_package("tiny", registry=web.url)
    (kept,) = Cache().root.glob("registries/*/tiny.json")
    kept.write_bytes(kept.read_bytes().replace(b"1.1.0", b"1.1.9"))
    assert Client(web.url, offline=True).resolve("tiny") is None
    assert [path.name.split(".")[0] for path in Cache().quarantine.iterdir()] == ["tiny"]
    assert find_package("tiny", registry=web.url).version == "1.1.0"


# Nothing goes back


def package_of(registry: Path) -> tuple[Path, PackageRecord]:
    path = registry / package_path("tiny")
    return path, PackageRecord.from_bytes(path.read_bytes(), "x")


def test_a_small_file_that_lags_behind_is_made_up_for(registry: Path, web: Web) -> None:
    """A slow publisher may write an older one over a newer: what was seen is still there, and is asked for itself."""
    path, _ = package_of(registry)
    before = path.read_bytes()
    yank(opened(registry), "tiny", "1.1.0", "bad")
    assert find_package("tiny", registry=web.url).version == "1.0.0"
    path.write_bytes(before)
    assert find_package("tiny", registry=web.url).version == "1.0.0"
    _, package = package_of(registry)
    path.write_bytes(PackageRecord("tiny", package.versions[:1]).to_bytes())
    assert find_package("tiny", registry=web.url).version == "1.0.0"
    with pytest.warns(RegistryWarning, match="was yanked"):
        assert find_package("tiny@1.1.0", registry=web.url).version == "1.1.0"
    path.unlink()
    assert find_package("tiny", registry=web.url).version == "1.0.0"


def test_a_version_that_the_small_file_does_not_list_is_asked_for_itself(registry: Path) -> None:
    path, package = package_of(registry)
    path.write_bytes(PackageRecord("tiny", package.versions[1:], omitted=1).to_bytes())
    assert find_package("tiny@1.0.0").version == "1.0.0"
    path.unlink()
    assert find_package("tiny@1.1.0").version == "1.1.0"


def test_a_registry_that_lost_a_version_is_refused(registry: Path, web: Web) -> None:
    find_package("tiny", registry=web.url)
    path, package = package_of(registry)
    path.write_bytes(PackageRecord("tiny", package.versions[:1]).to_bytes())
    (registry / version_path("tiny", "1.1.0")).unlink()
    said = refusal("tiny", web.url, RefusedError)
    assert f"{web.url} no longer has tiny 1.1.0, which this machine has seen there." in said
    assert f"forget what was seen: nest verify --registry {web.url} --forget." in said
    # Who never saw it has nothing to compare with.
    Client(web.url).sources[0].memory.forget()
    assert find_package("tiny", registry=web.url).version == "1.0.0"


def test_a_registry_that_lost_an_event_is_refused(registry: Path) -> None:
    path, _ = package_of(registry)
    before = path.read_bytes()
    yank(opened(registry), "tiny", "1.1.0", "bad")
    find_package("tiny")
    (registry / "events" / "tiny" / "000001.json").unlink()
    path.write_bytes(before)
    assert "no longer has event 1 of tiny" in refusal("tiny", kind=RefusedError)


def test_a_version_that_changed_is_refused(registry: Path) -> None:
    find_package("tiny")
    path, package = package_of(registry)
    entries = [VersionEntry(entry.version, "0" * 64, entry.published) for entry in package.versions]
    path.write_bytes(PackageRecord("tiny", tuple(entries)).to_bytes())
    assert "is not what it was: a published version never changes." in refusal("tiny", kind=RefusedError)


def test_a_version_that_changed_where_the_small_file_has_no_room_is_refused(registry: Path) -> None:
    find_package("tiny@1.0.0")
    path, package = package_of(registry)
    path.write_bytes(PackageRecord("tiny", package.versions[1:], omitted=1).to_bytes())
    assert readme(find_package("tiny@1.0.0")) == "# Tiny 1.0.0"
    record = registry / version_path("tiny", "1.0.0")
    overwrite(record, json.dumps({**json.loads(record.read_bytes()), "publish_id": "0" * 32}).encode())
    assert "is not what it was: a published version never changes." in refusal("tiny@1.0.0", kind=RefusedError)


def test_memory_that_was_damaged_is_read_as_far_as_it_goes(registry: Path, tmp_path: Path) -> None:
    find_package("tiny")
    (seen,) = (tmp_path / "client" / "data" / "seen").rglob("tiny")
    with seen.open("a") as file:
        file.write(f"events {'9' * 5000}\nversion ../x {'0' * 64}\nversion 1.0.0")
    assert readme(find_package("tiny")) == "# Tiny 1.1.0"


def test_an_older_generation_of_the_index_is_refused(registry: Path, web: Web) -> None:
    source = Client(web.url).sources[0]
    first = source.index()
    hint = (registry / "index" / "latest.json").read_bytes()
    yank(opened(registry), "tiny", "1.1.0", "bad")
    second = source.index()
    assert second.number == first.number + 1
    (registry / "index" / "latest.json").write_bytes(hint)
    # The hint alone says nothing: the next number is asked for.
    assert source.index().number == second.number
    (registry / "index" / f"gen-{second.number:08}.json").unlink()
    with pytest.raises(RefusedError, match=f"shows generation {first.number} .* has seen generation {second.number}"):
        source.index()


def test_an_index_is_fetched_once(registry: Path, web: Web) -> None:
    source = Client(web.url).sources[0]
    first = source.index()
    web.paths.clear()
    assert source.index() == first
    assert [path for path in web.paths if path.endswith(f"gen-{first.number:08}.json")] == []
    assert Client(web.url, offline=True).sources[0].index() == first
    digest = Latest.from_bytes((registry / "index" / "latest.json").read_bytes(), "x").sha256
    overwrite(Cache().path(digest), b"poison")
    assert source.index() == first


@pytest.mark.parametrize("poison", ["", "5", "null", '["x", "y"]', '{"a": 1, "b": 2}'])
def test_what_is_not_as_it_was_kept_counts_as_no_index_offline(web: Web, poison: str) -> None:
    Client(web.url).sources[0].index()
    (kept,) = Cache().root.glob("registries/*/.index")
    kept.write_text(poison)
    assert Client(web.url, offline=True).sources[0].index() == NO_GENERATION


def test_a_poisoned_index_is_not_believed(registry: Path, web: Web) -> None:
    source = Client(web.url).sources[0]
    web.edit = lambda path, data: data.replace(b"One linear", b"Evil layer") if "/gen-" in path else data
    with pytest.raises(RegistryError, match=r"gen-\d+\.json in http.* does not have the sha256"):
        source.index()
    web.edit = lambda path, data: b"{}" if "/gen-" in path else data
    with pytest.raises(RegistryError, match=r"is no document of a registry"):
        source.index()
    web.edit = None
    assert source.index().index.packages[0].summary is not None


def test_where_nothing_can_be_remembered_nothing_fails(
    registry: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "seen").write_text("")
    monkeypatch.setenv("LINNET_DATA", str(tmp_path / "data"))
    assert find_package("tiny").version == "1.1.0"


# Processes

WORKER = """
import sys
from linnet.registry.locate import find_package
print("ready", flush=True)
sys.stdin.readline()
located = find_package("tiny@1.0.0", registry=sys.argv[1])
print((located.folder / "README.md").read_text().strip())
"""


def test_many_processes_share_a_cold_cache(web: Web) -> None:
    words = [sys.executable, "-c", WORKER, web.url]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    workers = [subprocess.Popen(words, text=True, **pipes) for _ in range(6)]  # type: ignore[call-overload]
    for worker in workers:
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        worker.stdin.write("go\n")
        worker.stdin.flush()
    for worker in workers:
        assert worker.communicate() == ("# Tiny 1.0.0\n", "")
    assert not Cache().quarantine.exists()
    assert [path.name for path in Cache().root.glob("versions/*") if path.name.startswith(".")] == []


def test_records_in_the_cache_are_json_as_published(registry: Path) -> None:
    located = find_package("tiny")
    assert located.sha256 is not None
    record = Cache().read(located.sha256)
    assert record is not None
    assert record == (registry / version_path("tiny", "1.1.0")).read_bytes()
    assert json.loads(record)["name"] == "tiny"


def test_an_alias_of_a_version_that_is_not_there(registry: Path) -> None:
    path, package = package_of(registry)
    path.write_bytes(PackageRecord("tiny", package.versions, {"stable": "9.9.9"}).to_bytes())
    said = refusal("tiny@stable", kind=UnresolvedError)
    assert f"tiny@stable means 9.9.9 in {registry}, which has no such version. It has 1.1.0, 1.0.0" in said


def test_the_home_of_a_user_there_is_not(registry: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert 'There is no registry "~nobody-of-that-name/r"' in refusal("tiny", "~nobody-of-that-name/r")
    # As the shell does: what is no user's home is a name like any other.
    monkeypatch.setenv("LINNET_CACHE", "~nobody-of-that-name")
    assert find_package("tiny").version == "1.1.0"


def test_offline_says_who_was_not_asked(web: Web) -> None:
    with pytest.raises(PackageError) as caught:
        find_package("tiny", registry=web.url, offline=True)
    assert f'on this machine (offline is set, so "{web.url}" was not asked)' in str(caught.value)
