"""A small package to break in every way, and a hub to serve it from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hub_server import HubServer, running, write_sparse
from hypothesis import HealthCheck, settings
from tiny_package import CARD, COMMIT, SOURCE, TENSORS, MakePackage

# How long an example takes says more about the machine than about the code.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")


@pytest.fixture
def make_package(tmp_path: Path) -> MakePackage:
    """Writes the package `tiny`; keywords replace its parts, None leaves one out."""

    def make(
        *,
        card: str | bytes | None = CARD,
        readme: str | None = "# Tiny\n",
        source: str | None = SOURCE,
        bindings: object = {"weight": "layer.weight"},
        tensors: list[tuple[str, str, tuple[int, ...]]] | None = TENSORS,
    ) -> Path:
        folder = tmp_path / "tiny"
        (folder / "src").mkdir(parents=True, exist_ok=True)
        parts = {"nest.toml": card, "README.md": readme, "src/lib.linnet": source}
        for name, text in parts.items():
            if text is not None:
                (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        if bindings is not None:
            (folder / "bindings.json").write_text(bindings if isinstance(bindings, str) else json.dumps(bindings))
        if tensors is not None:
            write_sparse(folder / "model.safetensors", tensors)
        return folder

    return make


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    """A hub that has `owner/tiny` at COMMIT, and HF_ENDPOINT set to it."""
    root = tmp_path / "hub"
    write_sparse(root / "owner" / "tiny" / COMMIT / "model.safetensors", TENSORS)
    with running(root) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        yield server
