"""Packages with their real checkpoints on MLX against torch, in f32."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("mlx.core", reason="MLX is not installed")

from linnet import nest
from linnet.runner.mlx.dtypes import to_torch

pytestmark = pytest.mark.checkpoint

PROMPT = "The lighthouse keeper climbed the stairs one last time. In 1923 the lamp had"


def test_smollm2_equals_torch_and_writes_the_same_text(root: Path, smollm2_folder: Path) -> None:
    package = root / "nests" / "smollm2-135m-instruct"
    options: dict[str, Any] = {"weights": smollm2_folder, "dtype": "f32", "generics": {"MaxSeq": 48}}
    expected = nest.load(package, device="cpu", **options)
    model: Any = nest.load(package, backend="mlx", numerics="engine", **options)
    tokens = torch.tensor([expected.tokenizer.encode(PROMPT)])
    logits = to_torch(model.run_entry("prefill", [tokens, 0]))
    assert (logits - expected.run_entry("prefill", [tokens, 0])).abs().max() <= 1e-4
    assert model.generate(PROMPT, max_new_tokens=12) == expected.generate(PROMPT, max_new_tokens=12)


def test_minilm_equals_torch(root: Path, minilm_checkpoint: Path) -> None:
    package = root / "nests" / "all-minilm-l6-v2"
    tokens = torch.randint(1000, 20000, (2, 12), generator=torch.Generator().manual_seed(1))
    mask = torch.ones(2, 12, dtype=torch.bool)
    mask[1, 7:] = False
    inputs = [tokens, torch.zeros_like(tokens), mask]
    expected = nest.load(package, weights=minilm_checkpoint, numerics="exact", device="cpu")(*inputs)
    model: Any = nest.load(package, weights=minilm_checkpoint, backend="mlx")
    assert (to_torch(model(*inputs)) - expected).abs().max() <= 1e-4 * expected.abs().max()
