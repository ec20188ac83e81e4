"""Packed weights on MLX: products, rows, what reads them otherwise, and what they cost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

pytest.importorskip("mlx.core", reason="MLX is not installed")

import mlx.core as mx

from linnet.language.program.binding import BoundProgram
from linnet.runner.errors import IndexRangeError, UnknownEntryError
from linnet.runner.mlx.dtypes import to_torch
from linnet.runner.mlx.module import Model, load_model
from linnet.runner.mlx.quantised import QuantisedWeight, joined, quantised_weight
from linnet.runner.packed import PackedTensor, Packing, pack
from linnet.runner.torch import module as reference
from linnet.runner.torch.weights import PackedLocation, TensorLocation, WeightSource

SOURCE = """\
module small

use std.nn.embedding::{Embedding}
use std.nn.linear::{Linear, linear}

/// A table, tied to the head, and layers; `probe` reads a weight by itself.
pub block Model<Vocab: Dim, H: Dim, T: Float> where H > 1 {
    sub tokens: Embedding<Vocab, H, T>
    sub up: Linear<H, 2 * H, T>
    sub side: Linear<H, H, T>
    sub down: Linear<2 * H, H, T>

    pub entry forward<B: Dim, S: Dim>(ids: Tensor[B, S; i32]) -> Tensor[B, S, Vocab; T] {
        let x = tokens.forward(ids)
        return linear(down.forward(up.forward(x)) + side.forward(x), tokens.weight)
    }

    pub entry probe() -> Tensor[H; T] {
        return up.weight[0, :] + side.weight[1, :]
    }
}
"""
VOCABULARY, H = 40, 64
Bind = Callable[..., BoundProgram]


@pytest.fixture
def bound(bind_source: Bind) -> BoundProgram:
    return bind_source(SOURCE, Vocab=VOCABULARY, H=H, T="bf16")


@pytest.fixture
def source(tmp_path: Path, bound: BoundProgram) -> WeightSource:
    """All matrices but `down` packed in 4 bits, with a bias for `up`."""
    generator = torch.Generator().manual_seed(5)
    file = tmp_path / "model.safetensors"
    tensors: dict[str, torch.Tensor] = {}
    places: dict[str, TensorLocation] = {}
    for entry in bound.manifest.entries:
        if entry.optional and entry.path != "up.bias":
            continue
        drawn = (torch.randn(entry.shape, generator=generator) * 0.1).bfloat16()
        location = TensorLocation(file, entry.path, "BF16", entry.shape)
        if len(entry.shape) == 2 and entry.path != "down.weight":
            packed = pack(drawn, Packing(4, 32))
            parts = {"scales": packed.scales, "biases": packed.biases}
            named = {part: f"{entry.path}.{part}" for part in parts}
            tensors |= {named[part]: tensor for part, tensor in parts.items()}
            scales, biases = (
                TensorLocation(file, named[part], "BF16", tuple(tensor.shape)) for part, tensor in parts.items()
            )
            drawn = packed.words.view(torch.uint32)
            packed_location = PackedLocation(Packing(4, 32), scales, biases)
            location = TensorLocation(file, entry.path, "BF16", entry.shape, packed_location)
        tensors[entry.path], places[entry.path] = drawn, location
    save_file(tensors, file)
    return WeightSource({}, places)


def on_mlx(bound: BoundProgram, source: WeightSource, numerics: str = "equivalent", **options: Any) -> Model:
    return load_model(bound, source, entry="forward", numerics=numerics, device="cpu", **options)


IDS = torch.tensor([[1, 5, 39], [0, 7, 7]])


@pytest.mark.parametrize(
    ("numerics", "compiled"),
    [("exact", False), ("equivalent", False), ("equivalent", True), ("engine", False), ("fast", False)],
)
def test_a_packed_model_is_torchs_with_decoded_weights(
    bind_source: Bind, source: WeightSource, numerics: str, compiled: bool
) -> None:
    wide = bind_source(SOURCE, Vocab=VOCABULARY, H=H, T="f32")
    expected = reference.load_model(wide, source, entry="forward", device="cpu", convert=True)(IDS)
    model = on_mlx(wide, source, numerics, convert=True, compile=compiled)
    assert (to_torch(model(IDS)) - expected).abs().max() <= 1e-5 * expected.abs().max()
    assert not model.fallbacks


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_engine_gives_the_same_bits_as_torch(bind_source: Bind, source: WeightSource, dtype: str) -> None:
    bound = bind_source(SOURCE, Vocab=VOCABULARY, H=H, T=dtype)
    expected = reference.load_model(bound, source, entry="forward", numerics="engine", device="cpu", convert=True)(IDS)
    assert torch.equal(to_torch(on_mlx(bound, source, "engine", convert=True)(IDS)), expected)


def test_bf16_is_as_near_as_the_decoded_weights_are(bind_source: Bind, source: WeightSource) -> None:
    wide = bind_source(SOURCE, Vocab=VOCABULARY, H=H, T="f32")
    narrow = bind_source(SOURCE, Vocab=VOCABULARY, H=H, T="bf16")
    truth = reference.load_model(wide, source, entry="forward", device="cpu", convert=True)(IDS)
    decoded = reference.load_model(narrow, source, entry="forward", device="cpu")(IDS).float()
    packed = to_torch(on_mlx(narrow, source)(IDS)).float()
    assert packed.isfinite().all()
    # Decoded weights are rounded to bf16, and packed ones are not.
    assert (packed - truth).square().mean() <= 1.5 * (decoded - truth).square().mean()


def test_what_reads_a_weight_by_itself_is_given_it_decoded(bound: BoundProgram, source: WeightSource) -> None:
    model = on_mlx(bound, source)
    weights = model.state_dict()
    expected = to_torch(weights["up.weight"])[0] + to_torch(weights["side.weight"])[1]
    assert torch.equal(to_torch(model.run_entry("probe")), expected)
    assert torch.equal(to_torch(model.run_entry("probe")), reference.load_model(bound, source).run_entry("probe"))


def test_the_weights_stay_packed_but_under_exact(bound: BoundProgram, source: WeightSource) -> None:
    packed, dense = on_mlx(bound, source), on_mlx(bound, source, "exact")
    # 4 bits and two f32 for each 32 weights on the CPU; words and bf16 are what is read from the file.
    assert packed.weights_report.converted == sum(
        rows * columns * 4 // 8 + 2 * 2 * rows * columns // 32
        for rows, columns in ((VOCABULARY, H), (2 * H, H), (H, H))
    )
    assert dense.weights_report.converted == 2 * H * (VOCABULARY + 2 * H + H)
    shapes = {path: tuple(x.shape) for path, x in packed.state_dict().items()}
    assert shapes == {path: tuple(x.shape) for path, x in dense.state_dict().items()}


def test_ids_past_a_packed_table_are_refused(bound: BoundProgram, source: WeightSource) -> None:
    with pytest.raises(IndexRangeError, match="40"):
        on_mlx(bound, source)(torch.tensor([[VOCABULARY]]))


def test_a_model_that_decodes_nothing_has_no_bytes_a_token(bound: BoundProgram, source: WeightSource) -> None:
    with pytest.raises(UnknownEntryError):
        on_mlx(bound, source).bytes_per_token()


def packed_pair() -> tuple[PackedTensor, PackedTensor]:
    drawn = torch.randn(2, 6, 64, generator=torch.Generator().manual_seed(1)).bfloat16()
    return pack(drawn[0], Packing(8, 64)), pack(drawn[1], Packing(8, 64))


def test_joined_rows_are_those_of_the_parts() -> None:
    parts = [quantised_weight(part, "bf16", "cpu") for part in packed_pair()]
    whole = joined(parts)
    assert whole.shape == (12, 64)
    x = mx.array([[0.5] * 64]).astype(mx.bfloat16)
    expected = mx.concatenate([part.product(x) for part in parts], axis=-1)
    assert mx.array_equal(whole.product(x), expected)
    assert mx.array_equal(whole.dense()[6:], parts[1].dense())


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_scales_lie_in_what_the_device_multiplies_fastest(device: str) -> None:
    packed = packed_pair()[0]
    made = quantised_weight(packed, "bf16", device)
    assert made.scales.dtype == (mx.float32 if device == "cpu" else mx.bfloat16)
    assert isinstance(made, QuantisedWeight)
    assert (made.dtype, made.shape) == (mx.bfloat16, (6, 64))
    assert torch.equal(to_torch(made.dense()), packed.dense(torch.bfloat16))
    assert made.rows(mx.zeros((2, 0), dtype=mx.int32)).shape == (2, 0, made.shape[1])
    rows = made.rows(mx.array([[5], [0]]))
    assert (rows.shape, rows.dtype) == ((2, 1, 64), mx.bfloat16)
    assert torch.equal(to_torch(rows)[0, 0], packed.dense(torch.bfloat16)[5])
