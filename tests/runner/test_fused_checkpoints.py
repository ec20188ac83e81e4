"""Checkpoints that store q|k|v and gate|up as one tensor each, on both backends."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from fused_checkpoint import fuse
from safetensors.torch import load_file, save_file

from linnet import nest
from linnet.registry.errors import RegistryError

PACKAGES = ("qwen3-tiny", "qwen3-tiny-fp8")
TOKENS = [[5, 9, 1, 300, 77, 2]]


def logits(model: Any) -> torch.Tensor:
    found = model.run_entry("prefill", [TOKENS, 0])
    if isinstance(found, torch.Tensor):
        return found
    from linnet.runner.mlx.dtypes import to_torch

    return to_torch(found)


@pytest.mark.parametrize("name", PACKAGES)
def test_parts_are_rows_of_what_is_fused(name: str, backend: str, root: Path, tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    fused = fuse(root / "nests" / name / "model.safetensors", file)
    assert len(fused) == 4 * 2 * (2 if name.endswith("fp8") else 1)
    split, whole = (
        nest.load(name, backend=backend, numerics="engine", device="cpu", weights=weights) for weights in (None, file)
    )
    assert torch.equal(logits(whole), logits(split))
    assert whole.state_dict().keys() == split.state_dict().keys()
    assert not {"model.layers.0.self_attn.q_proj.weight", "model.layers.3.mlp.up_proj.weight"} & load_file(file).keys()


def test_packed_projections_may_be_fused(backend: str, root: Path, tmp_path: Path) -> None:
    made = nest.quantize("qwen3-tiny", tmp_path / "packed", mlx_bits=4, group=64).folder
    copy = shutil.copytree(made, tmp_path / "fused/packed")
    (copy / "model.safetensors").unlink()
    fuse(made / "model.safetensors", copy / "model.safetensors")
    recipe = json.loads((made / "recipe.json").read_text())
    kept = {
        name: value
        for name, value in recipe["tensors"].items()
        if not name.endswith(("k_proj.weight", "up_proj.weight"))
    }
    for whole, part in (("qkv_proj", "q_proj"), ("gate_up_proj", "gate_proj")):
        kept = {name.replace(part, whole): value for name, value in kept.items() if ".v_proj." not in name}
    (copy / "recipe.json").write_text(json.dumps({**recipe, "tensors": kept}))
    found, expected = (nest.load(f, backend=backend, numerics="engine", device="cpu") for f in (copy, made))
    assert torch.equal(logits(found), logits(expected))


def test_both_forms_at_once_are_refused_by_name(backend: str, root: Path, tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    part = "model.layers.2.self_attn.k_proj.weight"
    fuse(root / "nests/qwen3-tiny/model.safetensors", file, keep=part)
    with pytest.raises(RegistryError) as caught:
        nest.load("qwen3-tiny", backend=backend, device="cpu", weights=file)
    first = str(caught.value.problems[0])
    assert (
        f'"{part}" in model.safetensors, and "model.layers.2.self_attn.qkv_proj.weight" in model.safetensors' in first
    )
    assert "Keep one of the two forms" in first


def test_a_fused_tensor_of_another_size_is_refused(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    fuse(root / "nests/qwen3-tiny/model.safetensors", file)
    tensors = load_file(file)
    name = "model.layers.1.mlp.gate_up_proj.weight"
    tensors[name] = tensors[name][:-1].clone()
    save_file(tensors, file)
    with pytest.raises(
        RegistryError, match=r"gate_up_proj.weight.* BF16 \[1023, 256\], and not as large as its parts: "
    ):
        nest.load("qwen3-tiny", device="cpu", weights=file)


def test_a_fused_checkpoint_is_not_quantised(root: Path, tmp_path: Path) -> None:
    from linnet.quantize.errors import QuantizeError

    file = tmp_path / "model.safetensors"
    fuse(root / "nests/qwen3-tiny/model.safetensors", file)
    for form in ({"fp8_block": 64}, {"mlx_bits": 4}):
        arguments: dict[str, Any] = {**form, "weights": file}
        with pytest.raises(QuantizeError, match=r"in one tensor \(model\.layers\.\d\..*\.weight\)"):
            nest.quantize("qwen3-tiny", tmp_path / "out", **arguments)
