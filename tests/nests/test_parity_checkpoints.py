"""Packages with their real weights on both engines: strict f32, and the text that they write."""

from __future__ import annotations

from math import hypot
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mlx.core", reason="MLX is not installed")

from linnet import nest
from linnet.parity import ParityReport

PROMPT = "The lighthouse keeper climbed the stairs one last time. In 1923 the lamp had"
# What the issue of the second engine asks of f32.
STRICT = 1e-4


def strict(package: Path, **options: Any) -> ParityReport:
    """Alike to 1e-4, and every likeliest token the same: greedy texts are equal then."""
    found = nest.parity(package, tolerance=STRICT, device="cpu", **options)
    assert found.ok, found.output
    assert found.first_other_token is None
    return found


@pytest.mark.parametrize("name", ["qwen3-tiny", "qwen3-tiny-fp8"])
def test_tiny_packages_are_alike_and_write_the_same_text(root: Path, name: str) -> None:
    found = strict(root / "nests" / name, prompt=PROMPT, steps=64)
    assert len(found.layers) == 4
    options: dict[str, Any] = {"dtype": "f32", "capacity": 128, "device": "cpu"}
    first = nest.load(root / "nests" / name, **options)
    second = nest.load(root / "nests" / name, backend="mlx", numerics="engine", **options)
    assert first.generate(PROMPT, max_new_tokens=32) == second.generate(PROMPT, max_new_tokens=32)


@pytest.mark.parametrize("name", ["qwen3-tiny", "qwen3-tiny-fp8"])
def test_bf16_engines_are_no_further_apart_than_from_f32(root: Path, name: str) -> None:
    found = nest.parity(root / "nests" / name, prompt=PROMPT, steps=64, dtype="bf16", device="cpu")
    assert found.from_f32 is not None
    assert found.output.mean <= min(apart.mean for apart in found.from_f32)
    assert found.output.largest <= max(apart.largest for apart in found.from_f32)


def test_packed_weights_in_bf16_are_within_the_tolerance(root: Path, tmp_path: Path) -> None:
    made = nest.quantize(root / "nests" / "qwen3-tiny", tmp_path / "packed", mlx_bits=4, group=32)
    found = nest.parity(made.folder, steps=32, dtype="bf16", device="cpu")
    assert found.ok, found.output


@pytest.mark.checkpoint
@pytest.mark.parametrize("prompt", [PROMPT, None], ids=["text", "drawn ids"])
def test_smollm2_is_alike(root: Path, smollm2_folder: Path, prompt: str | None) -> None:
    found = strict(root / "nests" / "smollm2-135m-instruct", weights=smollm2_folder, prompt=prompt, steps=12)
    assert len(found.layers) == 30


@pytest.mark.checkpoint
def test_smollm2_in_bf16_is_no_further_apart_than_unrelated_roundings(root: Path, smollm2_folder: Path) -> None:
    """Over thirty layers a tie that falls otherwise becomes as much as rounding itself (docs/parity.md)."""
    package = root / "nests" / "smollm2-135m-instruct"
    found = nest.parity(package, weights=smollm2_folder, prompt=PROMPT, steps=12, dtype="bf16", device="cpu")
    assert found.from_f32 is not None
    first, second = (apart.mean for apart in found.from_f32)
    assert found.output.mean <= hypot(first, second)
    assert found.ok, found.output
    # Neither engine rounds more often than the other.
    assert 2 / 3 < first / second < 3 / 2


@pytest.mark.checkpoint
def test_minilm_is_alike(root: Path, minilm_checkpoint: Path) -> None:
    strict(root / "nests" / "all-minilm-l6-v2", weights=minilm_checkpoint)


@pytest.mark.checkpoint
def test_packed_weights_are_alike_too(smollm2_folder: Path, tmp_path: Path) -> None:
    """Torch decodes what MLX multiplies by as it is."""
    made = nest.quantize(smollm2_folder, tmp_path / "smollm2-4bit", mlx_bits=4, group=64)
    assert made.after < 0.3 * made.before
    strict(made.folder, prompt=PROMPT, steps=8)
