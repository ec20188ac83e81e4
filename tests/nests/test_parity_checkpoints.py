"""Packages with their real weights on both engines: the same numbers, and the text that they write."""

from __future__ import annotations

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
    found = nest.parity(package, tolerance=STRICT, **options)
    assert found.ok, found.output
    assert found.first_other_token is None
    return found


def no_further_than_from_f32(package: Path, **options: Any) -> ParityReport:
    """In bf16 the engines are no further apart than either is from f32, which is not at all."""
    found = nest.parity(package, dtype="bf16", **options)
    assert found.from_f32 is not None
    assert found.output.mean <= min(apart.mean for apart in found.from_f32)
    assert found.output.largest <= min(apart.largest for apart in found.from_f32)
    assert found.ok
    assert found.first_other_token is None
    assert found.from_f32[0].mean > 0
    return found


@pytest.mark.parametrize("name", ["qwen3-tiny", "qwen3-tiny-fp8"])
def test_tiny_packages_are_alike_and_write_the_same_text(root: Path, name: str) -> None:
    found = strict(root / "nests" / name, prompt=PROMPT, steps=64)
    assert len(found.layers) == 4
    options: dict[str, Any] = {"dtype": "f32", "capacity": 128, "device": "cpu"}
    first = nest.load(root / "nests" / name, **options)
    second = nest.load(root / "nests" / name, backend="mlx", numerics="engine", **options)
    assert first.generate(PROMPT, max_new_tokens=32) == second.generate(PROMPT, max_new_tokens=32)


@pytest.mark.parametrize("prompt", [PROMPT, None], ids=["text", "drawn ids"])
@pytest.mark.parametrize("name", ["qwen3-tiny", "qwen3-tiny-fp8"])
def test_tiny_packages_in_bf16(root: Path, name: str, prompt: str | None) -> None:
    no_further_than_from_f32(root / "nests" / name, prompt=prompt, steps=64)


@pytest.mark.parametrize("bits", [4, 8])
def test_packed_weights_in_bf16(root: Path, tmp_path: Path, bits: int) -> None:
    made = nest.quantize(root / "nests" / "qwen3-tiny", tmp_path / "packed", mlx_bits=bits, group=32)
    no_further_than_from_f32(made.folder, prompt=PROMPT, steps=32)


@pytest.mark.checkpoint
@pytest.mark.parametrize(("prompt", "steps"), [(PROMPT, 64), (None, 12)], ids=["text", "drawn ids"])
def test_smollm2_is_alike(root: Path, smollm2_folder: Path, prompt: str | None, steps: int) -> None:
    found = strict(root / "nests" / "smollm2-135m-instruct", weights=smollm2_folder, prompt=prompt, steps=steps)
    assert len(found.layers) == 30


@pytest.mark.checkpoint
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_smollm2_writes_the_same_text(root: Path, smollm2_folder: Path, dtype: str) -> None:
    options: dict[str, Any] = {"weights": smollm2_folder, "numerics": "engine", "dtype": dtype, "capacity": 48}
    texts = [
        nest.load(root / "nests" / "smollm2-135m-instruct", backend=name, device="cpu", **options).generate(
            PROMPT, max_new_tokens=16
        )
        for name in ("torch", "mlx")
    ]
    assert texts[0] == texts[1] != ""


@pytest.mark.checkpoint
@pytest.mark.parametrize(("prompt", "steps"), [(PROMPT, 64), (None, 12)], ids=["text", "drawn ids"])
def test_smollm2_in_bf16(root: Path, smollm2_folder: Path, prompt: str | None, steps: int) -> None:
    """Through thirty layers, where one number that was rounded otherwise would become as much as rounding itself."""
    package = root / "nests" / "smollm2-135m-instruct"
    found = no_further_than_from_f32(package, weights=smollm2_folder, prompt=prompt, steps=steps)
    assert len(found.layers) == 30


@pytest.mark.checkpoint
def test_minilm_in_bf16(root: Path, minilm_checkpoint: Path) -> None:
    package = root / "nests" / "all-minilm-l6-v2"
    found = nest.parity(package, weights=minilm_checkpoint, dtype="bf16")
    assert found.from_f32 is not None
    assert found.output.largest <= min(apart.largest for apart in found.from_f32)
    assert found.from_f32[0].mean > 0


@pytest.mark.checkpoint
def test_minilm_is_alike(root: Path, minilm_checkpoint: Path) -> None:
    strict(root / "nests" / "all-minilm-l6-v2", weights=minilm_checkpoint)


@pytest.mark.checkpoint
def test_packed_weights_are_alike_too(smollm2_folder: Path, tmp_path: Path) -> None:
    """Torch decodes what MLX multiplies by as it is."""
    made = nest.quantize(smollm2_folder, tmp_path / "smollm2-4bit", mlx_bits=4, group=64)
    assert made.after < 0.3 * made.before
    strict(made.folder, prompt=PROMPT, steps=8)
