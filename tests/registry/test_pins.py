"""Weights as a publish pins them: size and sha256 of every file, on the Hub or beside the card."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path

import pytest
from hub_server import HubServer
from tiny_package import CARD, COMMIT, TENSORS, MakePackage

from linnet.registry import pins
from linnet.registry.card import parse_card
from linnet.registry.errors import HubError, PackageError
from linnet.registry.pins import pin_weights

ON_HUB = CARD.replace("[weights]\n", f'[weights]\nrepo = "owner/tiny"\nrevision = "{COMMIT}"\n')


def digest_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_weights_beside_the_card_become_objects(make_package: MakePackage) -> None:
    package = make_package()
    found = pin_weights(package, parse_card(CARD.encode()))
    digest = digest_of(package / "model.safetensors")
    (file,) = found.pin.files
    assert (found.pin.repo, found.pin.revision) == (None, None)
    assert (file.path, file.sha256, file.object) == ("model.safetensors", digest, True)
    assert file.size == (package / "model.safetensors").stat().st_size
    assert found.objects == {digest: package / "model.safetensors"}


def test_large_weights_beside_the_card_are_refused(make_package: MakePackage, monkeypatch: pytest.MonkeyPatch) -> None:
    assert pins.OBJECT_BYTES == 64 << 20
    package = make_package()
    size = (package / "model.safetensors").stat().st_size
    monkeypatch.setattr(pins, "OBJECT_BYTES", size)
    assert pin_weights(package, parse_card(CARD.encode())).pin.files
    monkeypatch.setattr(pins, "OBJECT_BYTES", size - 1)
    with pytest.raises(PackageError) as caught:
        pin_weights(package, parse_card(CARD.encode()))
    assert str(caught.value) == (
        f"model.safetensors: The weights file model.safetensors has {size} B, and a registry holds at most "
        f"{size - 1} B of one. Put the weights into a repository on the Hub, and name it and its commit in the card's "
        "[weights]."
    )


def test_weights_on_the_hub_stay_there(make_package: MakePackage, hub: HubServer) -> None:
    package = make_package(tensors=None)
    found = pin_weights(package, parse_card(ON_HUB.encode()))
    served = hub.root / "owner" / "tiny" / COMMIT / "model.safetensors"
    (file,) = found.pin.files
    assert (found.pin.repo, found.pin.revision) == ("owner/tiny", COMMIT)
    assert (file.sha256, file.size, file.object) == (digest_of(served), served.stat().st_size, False)
    assert found.objects == {}
    # The digest is the Hub's own: not a byte of the weights was fetched.
    assert hub.traffic.requests == [f"POST /api/models/owner/tiny/paths-info/{COMMIT}"]


def test_a_small_file_that_the_hub_has_no_digest_of_is_computed(
    make_package: MakePackage, hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hub_server.large_file", lambda path: {})
    found = pin_weights(make_package(tensors=None), parse_card(ON_HUB.encode()))
    assert found.pin.files[0].sha256 == digest_of(hub.root / "owner" / "tiny" / COMMIT / "model.safetensors")


def test_a_digest_of_the_card_that_the_hub_does_not_have_is_refused(make_package: MakePackage, hub: HubServer) -> None:
    card = parse_card(ON_HUB.encode())
    card = dataclasses.replace(card, weights=dataclasses.replace(card.weights, sha256={"model.safetensors": "0" * 64}))
    with pytest.raises(PackageError, match=r"owner/tiny has it with the sha256 [0-9a-f]{64}, but the card pins 0000"):
        pin_weights(make_package(tensors=None), card)


def test_a_file_that_lies_about_and_is_another_is_refused(make_package: MakePackage, hub: HubServer) -> None:
    package = make_package(tensors=[("layer.weight", "F16", (4, 4))])
    with pytest.raises(PackageError, match=r"is not the model\.safetensors of owner/tiny, whose sha256 is"):
        pin_weights(package, parse_card(ON_HUB.encode()))
    same = make_package(tensors=TENSORS)
    assert pin_weights(same, parse_card(ON_HUB.encode())).pin.files


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("model.safetensors", "other.safetensors", "owner/tiny has no other.safetensors at 0123456789"),
        ("owner/tiny", "owner/none", "it has no repository owner/none"),
        (COMMIT, "f" * 40, "owner/tiny has no commit ffffffffff"),
    ],
)
def test_what_the_hub_does_not_have_is_named(
    make_package: MakePackage, hub: HubServer, old: str, new: str, sentence: str
) -> None:
    with pytest.raises(HubError) as caught:
        pin_weights(make_package(tensors=None), parse_card(ON_HUB.replace(old, new).encode()))
    assert sentence in str(caught.value)


def test_a_hub_out_of_reach_is_told(make_package: MakePackage) -> None:
    with pytest.raises(HubError, match="No connection to"):
        pin_weights(make_package(tensors=None), parse_card(ON_HUB.encode()))
