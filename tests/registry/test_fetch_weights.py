"""Weights: from the Hub, from the caches and from mirrors, by the digests that a card or a record pins."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from hub_server import Fault, HubServer
from published import as_client, opened, overwrite, publish
from tiny_package import CARD, COMMIT, MakePackage

from linnet.registry.cache import Cache, WrongBytesError
from linnet.registry.card import Card
from linnet.registry.errors import HubError, PackageError, RegistryWarning
from linnet.registry.fetch import fetch_weights
from linnet.registry.layout import object_path
from linnet.registry.locate import Located, find_package
from linnet.registry.package import digest_file

FILE = "model.safetensors"
PINNED = CARD.replace("[weights]\n", f'[weights]\nrepo = "owner/tiny"\nrevision = "{COMMIT}"\n')


@pytest.fixture(autouse=True)
def own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    as_client(tmp_path / "client", monkeypatch)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub-cache"))


@pytest.fixture
def served_file(tmp_path: Path, hub: HubServer) -> Path:
    """The weights as the Hub has them."""
    return hub.root / "owner" / "tiny" / COMMIT / FILE


@pytest.fixture
def package(make_package: MakePackage, served_file: Path) -> Path:
    """A card that pins a commit and a digest, without weights beside it."""
    sha256 = digest_file(served_file)[1]
    return make_package(card=f'{PINNED}\n[weights.sha256]\n"{FILE}" = "{sha256}"\n', tensors=None)


def card_of(package: Path) -> Card:
    return Located(package).card()


def fetched(package: Path, **settings: object) -> bytes:
    return fetch_weights(package, card_of(package), **settings)[FILE].read_bytes()  # type: ignore[arg-type]


def mirror(registry: Path, data: bytes, sha256: str) -> Path:
    """A registry that holds one object and nothing else."""
    path = registry / object_path(sha256)
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    return registry


@pytest.mark.parametrize("cache", ["the Hub's", "ours"])
def test_a_poisoned_file_of_a_cache_is_fetched_again(package: Path, served_file: Path, cache: str) -> None:
    from huggingface_hub import hf_hub_download

    right = served_file.read_bytes()
    path = fetch_weights(package, card_of(package))[FILE]
    assert path == Cache().path(digest_file_of(right))
    if cache == "the Hub's":
        path = Path(hf_hub_download("owner/tiny", FILE, revision=COMMIT, endpoint=os.environ["HF_ENDPOINT"]))
        assert fetch_weights(package, card_of(package))[FILE] == path
    overwrite(path.resolve(), right[:-1] + b"!")
    with pytest.warns(RegistryWarning, match="did not have the bytes that its digest promises; it was set aside as"):
        assert fetched(package) == right
    assert [aside.read_bytes() for aside in Cache().quarantine.iterdir()] == [right[:-1] + b"!"]
    assert fetched(package) == right


def test_a_poisoned_file_is_not_used_offline(package: Path, served_file: Path) -> None:
    path = fetch_weights(package, card_of(package))[FILE]
    overwrite(path.resolve(), b"poison")
    with (
        pytest.warns(RegistryWarning, match="set aside"),
        pytest.raises(PackageError, match="is not on this machine, and offline is set"),
    ):
        fetched(package, offline=True)


def test_a_hub_that_serves_other_bytes_is_refused(package: Path, served_file: Path, tmp_path: Path) -> None:
    right = served_file.read_bytes()
    served_file.write_bytes(right[:-1] + b"!")
    with pytest.raises(WrongBytesError, match=f"model.safetensors of tiny has .* instead of {digest_file_of(right)}"):
        fetched(package)
    assert Cache().digests() == []
    registry = mirror(tmp_path / "mirror", right, digest_file_of(right))
    assert fetched(package, registry=registry) == right


def digest_file_of(data: bytes) -> str:
    import hashlib

    return hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("lost", ["repository", "commit", "file"])
def test_what_is_gone_upstream_is_had_from_a_mirror(
    package: Path, served_file: Path, tmp_path: Path, lost: str
) -> None:
    right = served_file.read_bytes()
    commit = served_file.parent
    if lost == "file":
        served_file.unlink()
    elif lost == "commit":
        commit.rename(commit.with_name("f" * 40))
    else:
        shutil.rmtree(commit.parent)
    with pytest.raises(HubError, match=r"model\.safetensors of tiny is gone upstream: .* answered 404") as caught:
        fetched(package)
    assert "no configured registry holds it under its digest. Find a file with the sha256" in str(caught.value)
    registry = mirror(tmp_path / "mirror", right, digest_file_of(right))
    assert fetched(package, registry=registry) == right
    # From now on it is here, whoever has it.
    shutil.rmtree(registry)
    assert fetched(package, offline=True) == right


def test_a_hub_that_does_not_answer_is_told_as_such(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(HubError, match=r"No connection to http://127\.0\.0\.1:9"):
        fetched(package)


@pytest.fixture
def large(make_package: MakePackage, served_file: Path) -> tuple[Path, bytes]:
    """A package whose weights are large enough to be resumed, and those."""
    data = os.urandom(3 << 20)
    served_file.write_bytes(data)
    return make_package(card=f'{PINNED}\n[weights.sha256]\n"{FILE}" = "{digest_file_of(data)}"\n', tensors=None), data


def test_a_download_that_breaks_off_goes_on_where_it_was(large: tuple[Path, bytes], hub: HubServer) -> None:
    package, data = large
    hub.faults[FILE] = Fault("truncate", times=2)
    assert fetched(package) == data
    assert any(f"bytes={len(data) - 1}-" in line for line in hub.traffic.requests)


def test_a_download_that_was_given_up_goes_on_in_the_next_process(large: tuple[Path, bytes], hub: HubServer) -> None:
    package, data = large
    part = Cache().root / "partial" / f"{digest_file_of(data)}.{'0' * 32}"
    part.parent.mkdir(parents=True)
    part.write_bytes(data[: 2 << 20])
    assert fetched(package) == data
    assert any(f"bytes={2 << 20}-" in line for line in hub.traffic.requests)


@pytest.mark.parametrize(
    ("fault", "reason"), [("500", "server-error"), ("429-long", "rate-limited"), ("403-gated", "gated")]
)
def test_failures_of_the_hub_keep_their_reasons(
    package: Path, hub: HubServer, monkeypatch: pytest.MonkeyPatch, fault: str, reason: str
) -> None:
    from linnet.registry.store import http

    monkeypatch.setattr(http, "RETRY_DELAYS", ())
    hub.faults[FILE] = Fault(fault)
    with pytest.raises(HubError) as caught:
        fetched(package)
    assert caught.value.reasons == (reason,)
    assert not list(Cache().root.glob("partial/*"))


def test_a_file_of_the_users_own_is_told_and_left(package: Path, tmp_path: Path, served_file: Path) -> None:
    (tmp_path / "mine").mkdir()
    mine = tmp_path / "mine" / FILE
    mine.write_bytes(b"mine")
    with pytest.raises(PackageError, match=r"mine/model\.safetensors has the sha256 .* but the card pins"):
        fetched(package, folder=mine.parent)
    assert mine.read_bytes() == b"mine"
    (package / FILE).write_bytes(b"beside")
    with pytest.raises(PackageError, match=r"tiny/model\.safetensors has the sha256"):
        fetched(package)
    assert (package / FILE).read_bytes() == b"beside"


def test_the_record_pins_what_the_card_does_not(make_package: MakePackage, served_file: Path, tmp_path: Path) -> None:
    """The digests in a version's record hold though the card gives none."""
    registry = tmp_path / "registry"
    publish(registry, make_package(card=PINNED, tensors=None), "1.0.0")
    (pin,) = opened(registry).version("tiny", "1.0.0").document.weights.files
    right = served_file.read_bytes()
    assert (pin.path, pin.sha256, pin.object) == (FILE, digest_file_of(right), False)
    located = find_package("tiny", registry=registry)
    assert located.card().weights.sha256 == {FILE: digest_file_of(right)}
    assert fetch_weights(located.folder, located.card(), registry=registry)[FILE].read_bytes() == right
    served_file.write_bytes(right[:-1] + b"!")
    shutil.rmtree(tmp_path / "client" / "cache" / "objects")
    with pytest.raises(WrongBytesError, match="was thrown away"):
        fetch_weights(located.folder, located.card(), registry=registry)


def test_a_card_and_a_record_that_pin_different_bytes(package: Path) -> None:
    located = Located(package, registry="r", version="1.0.0", sha256="0" * 64, pins={FILE: "1" * 64})
    with pytest.raises(PackageError, match=r"The card pins model\.safetensors to the sha256 .* record to 1{64}"):
        located.card()
