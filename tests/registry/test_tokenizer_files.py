"""Where a tokenizer is taken from, in which order, and what is said where it is nowhere."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hub_server import Fault, HubServer, running

from linnet.registry.card import Card, parse_card
from linnet.registry.errors import HubError, PackageError
from linnet.registry.tokenizer_files import fetch_tokenizer

COMMIT = "0123456789abcdef0123456789abcdef01234567"
CARD = """\
[model]
name = "tiny"
title = "Tiny"
summary = "Text."
license = "Apache-2.0"
family = "tiny"
tags = ["test"]

[source]
path = "lib.linnet"
entry = "forward"

[weights]
files = ["model.safetensors"]
"""
PINNED = f'[tokenizer]\nrepo = "org/words"\nrevision = "{COMMIT}"\nfile = "tokenizer.json"\n'


def card(tokenizer: str) -> Card:
    assert tomllib.loads(CARD)
    return parse_card((CARD + tokenizer).encode())


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HubServer:
    folder = tmp_path / "hub" / "org" / "words" / COMMIT
    folder.mkdir(parents=True)
    (folder / "tokenizer.json").write_text("of the hub")
    (folder / "chat.jinja").write_text("template of the hub")
    with running(tmp_path / "hub") as server:
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
        yield server  # type: ignore[misc]


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "tiny"
    folder.mkdir()
    return folder


def test_files_of_the_package_are_taken_first(package: Path) -> None:
    (package / "tokenizer.json").write_text("of the package")
    (package / "chat.jinja").write_text("template of the package")
    # The address that tests have answers nobody.
    found = fetch_tokenizer(package, card(f'{PINNED}chat_template = "chat.jinja"\n'))
    assert found.file.read_text() == "of the package"
    assert found.chat_template is not None
    assert found.chat_template.read_text() == "template of the package"
    assert fetch_tokenizer(package, card('[tokenizer]\nfile = "tokenizer.json"\n')).chat_template is None


def test_files_beside_given_weights_are_theirs(package: Path, tmp_path: Path) -> None:
    (package / "tokenizer.json").write_text("of the package")
    beside = tmp_path / "weights"
    beside.mkdir()
    assert fetch_tokenizer(package, card(PINNED), beside).file.read_text() == "of the package"
    (beside / "tokenizer.json").write_text("of the weights")
    assert fetch_tokenizer(package, card(PINNED), beside).file.read_text() == "of the weights"


def test_the_hub_is_asked_last_and_once(package: Path, hub: HubServer) -> None:
    named = card(f'{PINNED}chat_template = "chat.jinja"\n')
    found = fetch_tokenizer(package, named)
    assert found.file.read_text() == "of the hub"
    assert found.chat_template is not None
    assert found.chat_template.read_text() == "template of the hub"
    asked = len(hub.traffic.requests)
    assert asked > 0
    assert all(COMMIT in line for line in hub.traffic.requests if "/resolve/" in line)
    assert fetch_tokenizer(package, named, offline=True).file == found.file
    assert fetch_tokenizer(package, named).file == found.file
    assert len(hub.traffic.requests) == asked


def test_offline_opens_no_socket(package: Path, hub: HubServer) -> None:
    with pytest.raises(PackageError, match=r"tokenizer\.json of org/words is not on this machine, and offline is set"):
        fetch_tokenizer(package, card(PINNED), offline=True)
    assert hub.traffic.requests == []


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("404-file", r"has no tokenizer\.json at 0123.* Check tokenizer\.file"),
        ("404-repo", r"has no repository org/words .* Check tokenizer\.repo"),
        ("404-revision", r"has no commit 0123.* Check tokenizer\.revision"),
        ("401-gated", "gated"),
    ],
)
def test_what_the_hub_refuses_is_said_of_the_tokenizer(package: Path, hub: HubServer, fault: str, words: str) -> None:
    hub.faults["tokenizer.json"] = Fault(fault)
    with pytest.raises(HubError, match=words):
        fetch_tokenizer(package, card(PINNED))


def test_no_hub_is_said_with_the_next_step(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The Hub's client waits between its attempts.
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    with pytest.raises(HubError, match=r"No connection to .* give a folder that holds tokenizer\.json \(--weights\)"):
        fetch_tokenizer(package, card(PINNED))


def test_a_card_without_tokenizer_and_a_file_that_is_absent(package: Path) -> None:
    with pytest.raises(PackageError, match=r"The card of tiny has no \[tokenizer\], so text cannot become tokens"):
        fetch_tokenizer(package, card(""))
    with pytest.raises(PackageError, match=r"The file tokenizer\.json of the tokenizer is not in .*tiny"):
        fetch_tokenizer(package, card('[tokenizer]\nfile = "tokenizer.json"\n'))
