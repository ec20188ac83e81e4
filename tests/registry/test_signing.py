"""Signed registries: what is signed is used, and what is not, is old, or is mixed never reaches the client."""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner
from published import Web, as_client, opened, overwrite, publish, served
from tiny_package import MakePackage

from linnet.cli.nest_index_sign import command as sign_command
from linnet.cli.nest_index_trust import command as trust_command
from linnet.cli.nest_verify import command as verify_command
from linnet.registry import sign as signing_room
from linnet.registry.client import Client
from linnet.registry.events import yank
from linnet.registry.layout import LATEST, object_path, package_path, version_path
from linnet.registry.locate import find_package
from linnet.registry.records import VERSION_BYTES
from linnet.registry.registry import Registry
from linnet.registry.sign import make_keys, refresh, renew_root, require_tuf, sign, start_signing
from linnet.registry.signing import SignatureError, SignedStore, distrust, trust, trust_root, trust_words
from linnet.registry.store.base import AbsentError, ReadOnlyError, Store, StoreError
from linnet.registry.store.open import open_store

NOW = datetime.now(UTC).replace(microsecond=0)
DAY = timedelta(days=1)


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return tmp_path / "keys"


@pytest.fixture
def registry(tmp_path: Path, keys: Path, make_package: MakePackage, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A signed registry with `tiny` 1.0.0, and a client that trusts its root and has never asked it."""
    folder = tmp_path / "registry"
    publish(folder, make_package(), "1.0.0")
    start_signing(opened(folder), keys)
    as_client(tmp_path / "client", monkeypatch)
    monkeypatch.setenv("LINNET_REGISTRY", str(folder))
    monkeypatch.setenv("LINNET_TRUST_ROOT", str(keys / "root.json"))
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    return folder


@pytest.fixture
def web(registry: Path) -> Iterator[Web]:
    with served(registry) as server:
        yield server


def version(wanted: str | None = None) -> str:
    found = Client().resolve("tiny", wanted)
    assert found is not None
    return found.record.version


def refusal(wanted: str | None = None) -> tuple[str, str]:
    with pytest.raises(SignatureError) as caught:
        Client().resolve("tiny", wanted)
    (problem,) = caught.value.problems
    return problem.kind.removeprefix("signature."), str(problem)


def clock(monkeypatch: pytest.MonkeyPatch, ahead: timedelta) -> None:
    """Let the framework's clock differ from the machine's."""
    import tuf.ngclient._internal.trusted_metadata_set as module

    class Clock(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:
            return datetime.now(UTC) + ahead

    monkeypatch.setattr(module.datetime, "datetime", Clock)


def snapshot_of(registry: Path, to: Path) -> Path:
    return shutil.copytree(registry, to)


def put_back(copy: Path, registry: Path) -> None:
    """The registry as it was once, as somebody between it and its clients could show it."""
    shutil.rmtree(registry)
    shutil.copytree(copy, registry)


def test_what_is_signed_is_loaded(registry: Path, web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    located = find_package("tiny")
    assert (located.folder / "README.md").read_text() == "# Tiny\n"
    monkeypatch.setenv("LINNET_REGISTRY", web.url)
    assert version() == "1.0.0"
    assert Client().sources[0].index().index.get("tiny") is not None
    # Root, timestamp, snapshot, targets, one bin: little, besides what an unsigned registry costs.
    assert web.bytes < 50_000


def test_what_was_published_since_is_not_there_until_it_is_signed(
    registry: Path, keys: Path, make_package: MakePackage
) -> None:
    assert version() == "1.0.0"
    publish(registry, make_package(readme="# Newer\n"), "1.1.0")
    # The file of the package has changed in place: what was signed is read from its copy.
    assert version() == "1.0.0"
    with pytest.raises(Exception, match="tiny has no version"):
        version("1.1.0")
    done = sign(opened(registry), keys)
    assert [path for path in done.changed if not path.startswith("index/gen-")] == [LATEST, package_path("tiny")]
    assert version() == version("1.1.0") == "1.1.0"
    yank(opened(registry), "tiny", "1.1.0", "bad")
    assert version() == "1.1.0"
    sign(opened(registry), keys)
    assert version() == "1.0.0"


def test_signing_again_without_a_change_writes_little(registry: Path, keys: Path) -> None:
    before = set(open_store(registry).list("trust/"))
    done = sign(opened(registry), keys)
    assert (done.changed, done.timestamp, done.snapshot) == ((), 2, 2)
    assert set(open_store(registry).list("trust/")) - before == {"trust/2.snapshot.json"}


def test_a_change_that_nobody_signed_is_not_used(
    registry: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = registry / package_path("tiny")
    overwrite(path, path.read_bytes().replace(b"1.0.0", b"9.9.9"))
    assert version() == "1.0.0"
    for copy in (registry / "trust" / "targets").iterdir():
        overwrite(copy, b"{}")
    # What this machine has read is as good as it was; another one is refused.
    assert version() == "1.0.0"
    as_client(tmp_path / "other", monkeypatch)
    kind, said = refusal()
    assert kind == "refused"
    assert "has no packages/tiny.json with the sha256" in said
    assert said.endswith("which is signed. Ask whoever keeps the registry to sign it anew: nest index sign.")


def test_a_record_and_an_object_that_were_changed_are_not_used(registry: Path) -> None:
    record = registry / version_path("tiny", "1.0.0")
    overwrite(record, record.read_bytes().replace(b'"MIT"', b'"GPL"'))
    with pytest.raises(Exception, match=r"has another sha256 than [0-9a-f]{64}, which is signed"):
        version()


def test_a_package_that_nobody_signed_is_absent(registry: Path, keys: Path, make_package: MakePackage) -> None:
    package = make_package()
    other = package.rename(package.with_name("other"))
    card = (other / "nest.toml").read_text().replace('name = "tiny"', 'name = "other"')
    (other / "nest.toml").write_text(card)
    publish(registry, other, "1.0.0")
    assert Client().resolve("other") is None
    assert Client().resolve("other", "1.0.0") is None
    sign(opened(registry), keys)
    assert Client().resolve("other") is not None


def test_keys_that_the_root_does_not_name(registry: Path, keys: Path, tmp_path: Path) -> None:
    shutil.rmtree(registry / "trust")
    start_signing(opened(registry), tmp_path / "others")
    kind, said = refusal()
    assert kind == "wrong-key"
    assert said.startswith(f"{registry} is not signed by the keys of {keys / 'root.json'}: ")
    assert said.endswith(
        "Ask whoever keeps the registry for its trust root, and never take it from the registry itself."
    )


def test_a_key_that_signs_what_is_not_its_own(registry: Path, keys: Path, make_package: MakePackage) -> None:
    publish(registry, make_package(readme="# Newer\n"), "1.1.0")
    shutil.copy(keys / "refresh.pem", keys / "targets.pem")
    sign(opened(registry), keys)
    assert refusal()[0] == "wrong-key"


def test_a_day_more_or_less_on_the_clock_is_borne(registry: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for ahead in (DAY, -DAY):
        clock(monkeypatch, ahead)
        assert version() == "1.0.0"


def test_a_registry_that_is_frozen_is_noticed(registry: Path, keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert version() == "1.0.0"
    clock(monkeypatch, 7 * DAY + timedelta(minutes=1))
    kind, said = refusal()
    assert kind == "expired"
    assert said.startswith(f"{registry}: The signatures of {registry} have expired: ")
    assert "Check the clock; if it is right, somebody may be keeping back newer ones." in said
    refresh(opened(registry), keys, datetime.now(UTC).replace(microsecond=0) + 6 * DAY)
    assert version() == "1.0.0"


def test_an_expired_timestamp_and_an_expired_root(registry: Path, keys: Path, tmp_path: Path) -> None:
    for ago, expired in ((8 * DAY, "timestamp"), (366 * DAY, "root")):
        shutil.rmtree(registry / "trust")
        shutil.rmtree(keys)
        start_signing(opened(registry), keys, NOW - ago)
        kind, said = refusal()
        assert kind == "expired"
        assert expired in said


def test_an_older_state_is_noticed(
    registry: Path, keys: Path, tmp_path: Path, make_package: MakePackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = snapshot_of(registry, tmp_path / "copy")
    publish(registry, make_package(readme="# Newer\n"), "1.1.0")
    sign(opened(registry), keys)
    assert version() == "1.1.0"
    put_back(copy, registry)
    kind, said = refusal()
    assert kind == "rollback"
    assert "shows older or other signatures than this machine has seen" in said
    # Who has not seen the newer one cannot tell.
    as_client(tmp_path / "other", monkeypatch)
    assert version() == "1.0.0"


def test_parts_of_two_states_are_no_state(
    registry: Path, keys: Path, tmp_path: Path, make_package: MakePackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = snapshot_of(registry, tmp_path / "old")
    publish(registry, make_package(readme="# Newer\n"), "1.1.0")
    sign(opened(registry), keys)
    new = snapshot_of(registry, tmp_path / "new")
    names = sorted(path.name for path in (new / "trust").glob("2.*.json"))
    used: set[str] = set()

    def both() -> None:
        # The index is in one bin, the package in another.
        version()
        Client().sources[0].index()

    assert "2.snapshot.json" in names
    for name in names:
        put_back(new, registry)
        overwrite(registry / "trust" / name, (old / "trust" / f"1.{name.partition('.')[2]}").read_bytes())
        as_client(tmp_path / f"client-{name}", monkeypatch)
        with contextlib.suppress(SignatureError):
            both()
            used.add(name)
    # A bin of neither the index nor the package is not asked for.
    assert "2.snapshot.json" not in used
    assert len(set(names) - used) >= 3


@pytest.mark.parametrize("name", ["timestamp.json", "1.snapshot.json", "1.targets.json"])
def test_metadata_that_are_missing_or_damaged(
    registry: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = registry / "trust" / name
    data = path.read_bytes()
    for bad in (b"", b"{}", data[:-9], data.replace(b"expires", b"expired"), b"[" * 50_000):
        overwrite(path, bad)
        as_client(tmp_path / f"client{len(bad)}", monkeypatch)
        assert refusal()[0] in ("damaged", "mixed", "wrong-key")
    path.unlink()
    kind, said = refusal()
    assert kind == "missing"
    assert said.endswith(
        f"{registry} is not signed, or not wholly: there is no trust/{name}. "
        "Ask whoever keeps the registry to sign it: nest index sign."
    )


def test_all_metadata_are_missing(registry: Path) -> None:
    shutil.rmtree(registry / "trust")
    assert refusal()[0] == "missing"


def test_a_registry_that_does_not_answer_is_no_forgery(registry: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINNET_REGISTRY", "http://127.0.0.1:9/registry")
    with pytest.raises(Exception, match=r"127\.0\.0\.1:9") as caught:
        Client().resolve("tiny")
    assert not isinstance(caught.value, SignatureError)
    # The next one is asked then, and must be signed as well.
    monkeypatch.setenv("LINNET_REGISTRY", f"http://127.0.0.1:9/registry,{registry}")
    assert version() == "1.0.0"
    shutil.rmtree(registry / "trust")
    assert refusal()[0] == "missing"


def test_a_forgery_is_not_made_good_by_the_next_registry(registry: Path, tmp_path: Path) -> None:
    good = snapshot_of(registry, tmp_path / "mirror")
    shutil.rmtree(registry / "trust")
    with pytest.raises(SignatureError):
        Client(f"{registry},{good}").resolve("tiny")


def test_a_root_that_is_not_there(registry: Path, keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINNET_TRUST_ROOT", str(keys / "none.json"))
    assert refusal() == (
        "refused",
        f"{keys / 'none.json'}: There is no trust root {keys / 'none.json'}. Correct or unset LINNET_TRUST_ROOT.",
    )
    (keys / "none.json").write_text("{}")
    assert refusal()[0] == "damaged"


def test_what_is_pinned_and_here_asks_for_no_signature(
    registry: Path, web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LINNET_REGISTRY", web.url)
    find_package("tiny@1.0.0")
    before = len(web.paths)
    find_package("tiny@1.0.0")
    find_package("tiny", offline=True)
    assert len(web.paths) == before


def test_keys_are_replaced_under_the_same_root(registry: Path, keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert version() == "1.0.0"
    trusted = keys.with_name("trusted.json")
    shutil.copy(keys / "root.json", trusted)
    monkeypatch.setenv("LINNET_TRUST_ROOT", str(trusted))
    old = shutil.copytree(keys, keys.with_name("old"))
    for name in ("targets.pem", "refresh.pem"):
        (keys / name).unlink()
    assert renew_root(opened(registry), keys) == 2
    sign(opened(registry), keys)
    assert version() == "1.0.0"
    assert (keys / "targets.pem").read_bytes() != (old / "targets.pem").read_bytes()
    # What the old keys sign is worth nothing any more.
    shutil.copy(keys / "root.json", old / "root.json")
    sign(opened(registry), old)
    assert refusal()[0] == "wrong-key"
    stranger = keys.with_name("stranger")
    make_keys(stranger)
    shutil.copy(keys / "root.json", stranger)
    with pytest.raises(SignatureError, match="is not the key of the root"):
        renew_root(opened(registry), stranger)


def test_after_keys_were_replaced_an_older_state_is_still_noticed(
    registry: Path, keys: Path, tmp_path: Path, make_package: MakePackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new keys number their timestamps from the beginning, below what was seen under the old ones."""
    trusted = shutil.copy(keys / "root.json", tmp_path / "trusted.json")
    monkeypatch.setenv("LINNET_TRUST_ROOT", str(trusted))
    for _ in range(3):
        refresh(opened(registry), keys)
    assert version() == "1.0.0"
    (keys / "refresh.pem").unlink()
    renew_root(opened(registry), keys)
    assert sign(opened(registry), keys).timestamp == 1
    copy = snapshot_of(registry, tmp_path / "copy")
    publish(registry, make_package(readme="# Newer\n"), "1.1.0")
    sign(opened(registry), keys)
    assert version() == "1.1.0"
    put_back(copy, registry)
    assert refusal()[0] == "rollback"


def test_what_came_before_a_root_was_trusted_is_verified_like_all_else(
    registry: Path, web: Web, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LINNET_REGISTRY", web.url)
    shutil.move(registry / "trust", registry / "away")
    monkeypatch.delenv("LINNET_TRUST_ROOT")
    find_package("tiny@1.0.0")
    monkeypatch.setenv("LINNET_TRUST_ROOT", str(keys / "root.json"))
    assert refusal("1.0.0")[0] == "missing"
    assert Client(offline=True).resolve("tiny", "1.0.0") is None
    shutil.move(registry / "away", registry / "trust")
    assert version("1.0.0") == "1.0.0"
    web.paths.clear()
    find_package("tiny@1.0.0")
    assert web.paths == []


def test_refreshing_needs_one_key_and_signatures_that_hold(
    registry: Path, keys: Path, make_package: MakePackage
) -> None:
    alone = keys.with_name("alone")
    alone.mkdir()
    for name in ("refresh.pem", "root.json"):
        shutil.copy(keys / name, alone / name)
    publish(registry, make_package(readme="# Newer\n"), "1.1.0")
    done = refresh(opened(registry), alone)
    assert (done.timestamp, done.snapshot, done.changed) == (2, 2, ())
    assert version() == "1.0.0"
    with pytest.raises(SignatureError, match="There is no key"):
        sign(opened(registry), alone)
    with pytest.raises(SignatureError, match="Sign anew without --refresh, with the key targets"):
        refresh(opened(registry), alone, NOW + 8 * DAY)
    sign(opened(registry), keys)
    # Somebody who changes what is refreshed does not get it signed.
    path = registry / "trust" / f"{done.snapshot + 1}.snapshot.json"
    overwrite(path, path.read_bytes().replace(b'"version":', b'"version" :'))
    refresh(opened(registry), alone)
    overwrite(path, b"{}")


def test_two_that_sign_at_once_do_not_mix(registry: Path, keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    once = signing_room._sign_once
    calls: list[int] = []

    def interrupted(*arguments: object) -> object:
        calls.append(1)
        if len(calls) == 1:
            # Another has taken the next number of the snapshot.
            opened(registry).store.create("trust/2.snapshot.json", b"{}")
        return once(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(signing_room, "_sign_once", interrupted)
    assert sign(opened(registry), keys).snapshot == 3
    assert version() == "1.0.0"


class Killed(Exception):  # noqa: N818 (it stands for a signal)
    pass


class KilledStore:
    """A store whose writer is killed before its write of number `at`."""

    def __init__(self, store: Store, at: int) -> None:
        self.store, self.left = store, at

    def __getattr__(self, name: str) -> object:
        found = getattr(self.store, name)
        if name in ("create", "create_all", "replace", "remove"):
            self.left -= 1
            if self.left < 0:
                raise Killed
        return found


def test_killed_at_any_write_then_signed_again(registry: Path, keys: Path, make_package: MakePackage) -> None:
    for at in range(20):
        name = f"1.{at + 1}.0"
        before = version()
        publish(registry, make_package(readme=f"# Tiny {name}\n"), name)
        killed: Store = KilledStore(open_store(registry), at)  # type: ignore[assignment]
        try:
            sign(Registry(killed), keys)
        except Killed:
            assert version() == before
            sign(opened(registry), keys)
            assert version() == name
        else:
            assert version() == name
            break
    # Copies, bins, snapshot, timestamp.
    assert at == 4


def test_versions_without_room_in_the_small_file_are_signed(
    registry: Path, keys: Path, make_package: MakePackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("linnet.registry.records.PACKAGE_BYTES", 500)
    for number in range(1, 4):
        publish(registry, make_package(readme=f"# Tiny {number}\n"), f"1.{number}.0")
    done = sign(opened(registry), keys)
    left_out = version_path("tiny", "1.0.0")
    assert left_out in done.changed
    assert version() == "1.3.0"
    assert version("1.0.0") == "1.0.0"
    overwrite(registry / left_out, (registry / left_out).read_bytes() + b" ")
    with pytest.raises(SignatureError, match="has other bytes than the index says"):
        sign(opened(registry), keys)


def test_the_store_behind_its_signatures(registry: Path, keys: Path) -> None:
    root = trust_root(str(registry))
    assert root is not None
    store = SignedStore(open_store(registry), root)
    first = store.read(package_path("tiny"), limit=1 << 20)
    assert first is not None
    assert store.read(package_path("tiny"), limit=1 << 20, tag=first.tag) is None
    assert store.read(version_path("tiny", "1.0.0"), limit=VERSION_BYTES) is not None
    for path in ("packages/none.json", "events/tiny/000001.json", version_path("tiny", "2.0.0")):
        with pytest.raises(AbsentError):
            store.read(path, limit=VERSION_BYTES)
    with pytest.raises(SignatureError, match="more than 10"):
        store.read(package_path("tiny"), limit=10)
    digest = next((registry / "objects" / "sha256").rglob("[0-9a-f]" * 64)).name
    assert b"".join(store.stream(object_path(digest)))
    with pytest.raises(SignatureError, match="is not read in pieces"):
        store.stream("versions/tiny/1.0.0.json")
    with pytest.raises(StoreError, match="lists are not"):
        store.list("versions/")
    for write in (
        lambda: store.create("a", b""),
        lambda: store.create_all({"a": b""}),
        lambda: store.replace("a", b""),
        lambda: store.remove("a"),
    ):
        with pytest.raises(ReadOnlyError):
            write()


def test_many_files_of_old_signatures_are_removed(
    registry: Path, keys: Path, make_package: MakePackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signing_room, "MOST_STALE", 3)
    for number in range(1, 5):
        publish(registry, make_package(readme=f"# Tiny {number}\n"), f"1.{number}.0")
        sign(opened(registry), keys)
        assert version() == f"1.{number}.0"
    names = [path.name for path in (registry / "trust").glob("*.json")]
    assert "1.root.json" in names
    assert not {"1.snapshot.json", "2.snapshot.json"} & set(names)


def test_trust_is_given_and_taken(registry: Path, keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LINNET_TRUST_ROOT")
    url = str(registry)
    assert trust_words(url).startswith("trusted on first use: ")
    make_keys(tmp_path / "others")
    with pytest.raises(SignatureError):
        trust(url, tmp_path / "others" / "root.pem")
    assert trust_root(url) is None
    trust(url, keys / "root.json")
    assert trust_words(url).startswith("must be signed by the keys of ")
    assert version() == "1.0.0"
    shutil.rmtree(registry / "trust")
    assert refusal()[0] == "missing"
    distrust(url)
    assert version() == "1.0.0"


def test_the_commands(registry: Path, keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = CliRunner().invoke
    monkeypatch.delenv("LINNET_TRUST_ROOT")
    again = run(sign_command, ["--keys", str(keys)], standalone_mode=False)
    assert again.stdout.startswith(f"{registry}: signed until ")
    told = json.loads(run(sign_command, ["--keys", str(keys), "--refresh", "--json"], standalone_mode=False).stdout)
    assert (told["registry"], told["timestamp"], told["changed"]) == (str(registry), 3, [])
    with pytest.raises(SignatureError, match="is signed already"):
        run(sign_command, ["--keys", str(keys), "--init"], standalone_mode=False, catch_exceptions=False)
    shutil.rmtree(registry / "trust")
    fresh = keys.with_name("fresh")
    begun = run(sign_command, ["--keys", str(fresh), "--init", "--days", "30"], standalone_mode=False)
    lines = begun.stdout.splitlines()
    assert f"  {package_path('tiny')}" in lines
    assert lines[-1] == f"Give {fresh / 'root.json'} to your users, and keep {fresh / 'root.pem'} offline."
    assert (fresh / "root.pem").stat().st_mode & 0o777 == 0o600
    assert "renewed" not in run(sign_command, ["--keys", str(fresh), "--renew-root"], standalone_mode=False).stdout
    shown = run(trust_command, [], standalone_mode=False).stdout
    assert shown.startswith(f"{registry}: trusted on first use: ")
    given = run(trust_command, [str(fresh / "root.json")], standalone_mode=False).stdout
    assert given.startswith(f"{registry}: must be signed by the keys of ")
    assert version() == "1.0.0"
    assert run(trust_command, ["--remove"], standalone_mode=False).stdout == shown
    both = run(sign_command, ["--keys", str(fresh), "--init", "--refresh"])
    assert both.exit_code == 2


def test_verify_says_what_is_trusted(registry: Path, keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = CliRunner().invoke
    done = run(verify_command, ["--registry", str(registry)], standalone_mode=False)
    assert done.return_value == 0, done.output
    assert done.stdout.splitlines()[-1] == f"{registry}: must be signed by the keys of {keys / 'root.json'}"
    shutil.rmtree(registry / "trust")
    refused = run(verify_command, ["--registry", str(registry)], standalone_mode=False)
    assert isinstance(refused.exception, SignatureError)
    monkeypatch.delenv("LINNET_TRUST_ROOT")
    plain = run(verify_command, ["--registry", str(registry)], standalone_mode=False)
    assert plain.return_value == 0
    assert plain.stdout.splitlines()[-1].startswith(f"{registry}: trusted on first use: ")


def test_without_the_extra_it_is_named(registry: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(sys.modules):
        if name == "tuf" or name.startswith("tuf."):
            monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "tuf", None)
    assert refusal()[1].endswith(
        "and what checks signatures is not installed. "
        "Install it: pip install cryptography 'securesystemslib[crypto]' tuf."
    )
    with pytest.raises(SignatureError, match=r"is not installed\. Install it: pip install cryptography "):
        require_tuf()
