"""Weights on MLX: what is joined and decoded for products, and tensors that are missing or left over."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

pytest.importorskip("mlx.core", reason="MLX is not installed")

import mlx.core as mx

from linnet import nest
from linnet.registry.errors import RegistryError
from linnet.runner.mlx import module, products, quantised
from linnet.runner.mlx.dtypes import to_torch
from linnet.runner.mlx.kernels import dense, quant, wide

TOKENS = [[5, 9, 1, 300, 77, 2]]


@pytest.mark.parametrize("name", ["qwen3-tiny", "qwen3-tiny-fp8"])
@pytest.mark.parametrize("numerics", ["equivalent", "engine", "fast"])
def test_projections_that_read_one_value_are_one_product(
    name: str, numerics: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model: Any = nest.load(name, backend="mlx", numerics=numerics, device="cpu")
    shapes: list[tuple[int, ...]] = []

    def counting(product: Callable[..., mx.array]) -> Callable[..., mx.array]:
        def counted(x: mx.array, weight: mx.array) -> mx.array:
            shapes.append(weight.shape)
            return product(x, weight)

        return counted

    for kernels, function in ((dense, "product"), (quant, "product"), (wide, "wide_product")):
        monkeypatch.setattr(kernels, function, counting(getattr(products, function)))
    model.run_entry("prefill", [TOKENS, 0])
    # q|k|v, o, gate|up and down of each layer, and the head.
    assert shapes == [*[(512, 256), (256, 256), (1024, 256), (256, 512)] * 4, (2048, 256)]
    # Another entry takes the same wholes.
    held = set(model._weights)
    model.run_entry("decode", [[[3]], 6])
    assert set(model._weights) == held


@pytest.mark.parametrize("numerics", ["equivalent", "engine", "fast"])
def test_packed_projections_are_one_product_where_they_are_packed_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, numerics: str
) -> None:
    made = nest.quantize("qwen3-tiny", tmp_path / "packed", mlx_bits=4, group=64, keep=["layers.2.attention.v_proj"])
    model: Any = nest.load(made.folder, backend="mlx", numerics=numerics, device="cpu")
    rows: list[int] = []

    def product(x: mx.array, words: mx.array, *rest: Any) -> mx.array:
        rows.append(words.shape[0])
        return products.packed_product(x, words, *rest)

    def in_pieces(x: mx.array, shape: tuple[int, ...], rows_of: Any) -> mx.array:
        rows.append(shape[0])
        return products.product_in_pieces(x, shape, rows_of)

    monkeypatch.setattr(quantised, "packed_product", product)
    monkeypatch.setattr(quantised, "product_in_pieces", in_pieces)
    model.run_entry("prefill", [TOKENS, 0])
    whole, apart = [512, 256, 1024, 256], [256, 128, 256, 1024, 256]
    assert rows == [*whole, *whole, *apart, *whole, 2048]


def test_what_is_joined_is_kept_once() -> None:
    model: Any = nest.load("qwen3-tiny", backend="mlx", numerics="engine")
    before = model.state_dict()
    model.run_entry("prefill", [TOKENS, 0])
    after = model.state_dict()
    assert list(after) == list(before)
    assert all(mx.array_equal(after[path], before[path]) for path in before)
    whole = " | ".join(f"layers.0.attention.{n}_proj.weight" for n in "qkv")
    starts = [_address(model._weights[path]) for path in whole.split(" | ")]
    assert starts == [_address(model._weights[whole]) + rows * 256 * 2 for rows in (0, 256, 384)]


def _address(x: mx.array) -> int:
    """Where an array's elements lie; NumPy knows no bf16."""
    import numpy as np

    return int(np.asarray(x.view(mx.uint16)).__array_interface__["data"][0])


def test_fp8_weights_are_decoded_once_where_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {}
    for free in (2**40, 1):
        monkeypatch.setattr(module, "free_bytes", lambda device, free=free: free)
        for numerics in ("engine", "fast"):
            model: Any = nest.load("qwen3-tiny-fp8", backend="mlx", numerics=numerics)
            logits = to_torch(model.run_entry("prefill", [TOKENS, 0])).float()
            decoded = {path: value for path, value in model._weights.items() if path.endswith("(decoded)")}
            found[free, numerics] = logits, model.bytes_per_token(), decoded
    for numerics, dtype in (("engine", mx.float32), ("fast", mx.bfloat16)):
        (once, read, decoded), (each, packed, none) = found[2**40, numerics], found[1, numerics]
        assert not none
        assert {value.dtype for value in decoded.values()} == {dtype}
        assert len(decoded) == 4 * 4
        assert torch.equal(once, each)
        # The layers' 2,359,296 weights, decoded, instead of a byte for each and the scales.
        scales = sum(value.nbytes for path, value in model.state_dict().items() if path.endswith(".scale"))
        assert read - packed == (dtype.size - 1) * 2_359_296 - scales


@pytest.fixture
def weights(root: Path, tmp_path: Path) -> tuple[dict[str, torch.Tensor], Path]:
    return load_file(root / "nests/qwen3-tiny/model.safetensors"), tmp_path / "model.safetensors"


def test_tensors_left_over_are_listed_and_counted(weights: tuple[dict[str, torch.Tensor], Path]) -> None:
    tensors, file = weights
    save_file({**tensors, **{f"extra.{i}": torch.zeros(1) for i in range(7)}}, file)
    said = re.escape('Nothing reads 7 tensors of "model.safetensors": "extra.0", "extra.1", "extra.2", "extra.3", ')
    with pytest.raises(RegistryError, match=said + '"extra.4" and 2 more'):
        nest.load("qwen3-tiny", backend="mlx", weights=file)
    # No weight depends on the length of a cache.
    for arguments in ({"capacity": 64}, {"generics": {"MaxSeq": 64}}):
        with pytest.raises(RegistryError, match=said):
            nest.load("qwen3-tiny", backend="mlx", weights=file, **arguments)
    # A smaller model leaves tensors over, and torch takes what it needs.
    nest.load("qwen3-tiny", backend="mlx", weights=file, generics={"Layers": 2})
    nest.load("qwen3-tiny", weights=file, device="cpu")


@pytest.mark.parametrize("backend", ["torch", "mlx"])
def test_missing_tensors_are_listed_and_counted(backend: str, weights: tuple[dict[str, torch.Tensor], Path]) -> None:
    tensors, file = weights
    save_file({name: tensor for name, tensor in tensors.items() if ".mlp." not in name}, file)
    with pytest.raises(RegistryError) as caught:
        nest.load("qwen3-tiny", backend=backend, weights=file)
    *first, last = map(str, caught.value.problems)
    assert len(first) == 5
    assert all("which is not in" in problem for problem in first)
    assert "So it is with 7 more" in last
