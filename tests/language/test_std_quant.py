"""Integer and MXFP4 weights against values decoded by hand, their layers against f64."""

from __future__ import annotations

import math

import pytest
import torch
from std_harness import DTYPES, NUMERICS, assert_within_one_rounding, random, run_std
from torch import Tensor

from linnet.runner.errors import IndexRangeError

both = pytest.mark.parametrize("numerics", NUMERICS)
floats = pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
biased = pytest.mark.parametrize("with_bias", [False, True])

E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def draw_bytes(*shape: int, seed: int = 0, low: int = 0, high: int = 256) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(low, high, shape, generator=generator).to(torch.uint8)


def halves(data: Tensor) -> Tensor:
    """The four-bit codes of bytes along the last axis, low bits first."""
    codes = [[code for byte in row for code in (byte % 16, byte // 16)] for row in data.flatten(0, -2).tolist()]
    return torch.tensor(codes).reshape(*data.shape[:-1], -1)


def integers(data: Tensor) -> Tensor:
    codes = halves(data)
    return torch.where(codes > 7, codes - 16, codes).double()


def mxfp4(blocks: Tensor, scales: Tensor) -> Tensor:
    values = torch.tensor([*E2M1, *(-value for value in E2M1)], dtype=torch.float64)[halves(blocks)]
    sizes = torch.tensor([2.0 ** (byte - 127) for byte in scales.flatten().tolist()], dtype=torch.float64)
    return (values * sizes.reshape(*scales.shape, 1)).flatten(-2)


def test_every_byte_holds_two_integers_low_bits_first() -> None:
    entry = "(b: Tensor[256, 1; u8]) -> Tensor[256, 2; i32] { return decode_int4(b) }"
    found = run_std("use std.quant::{decode_int4}", entry, torch.arange(256, dtype=torch.uint8).reshape(256, 1))
    assert found[0x8F].tolist() == [-1, -8]
    assert found[0x71].tolist() == [1, 7]
    assert torch.equal(found, integers(torch.arange(256).reshape(256, 1)).int())


def test_every_byte_holds_two_e2m1_values_low_bits_first() -> None:
    entry = "(b: Tensor[256, 1; u8]) -> Tensor[256, 2; f32] { return decode_fp4(b) }"
    found = run_std("use std.quant::{decode_fp4}", entry, torch.arange(256, dtype=torch.uint8).reshape(256, 1))
    assert found[0x2F].tolist() == [-6.0, 1.0]
    values = [*E2M1, *(-value for value in E2M1)]
    assert found.tolist() == [[values[byte % 16], values[byte // 16]] for byte in range(256)]
    assert torch.signbit(found[8, 0])


def test_decode_e8m0_is_exact_for_every_byte() -> None:
    entry = "<N: Dim>(b: Tensor[N; u8]) -> Tensor[N; f32] { return decode_e8m0(b) }"
    found = run_std("use std.quant::{decode_e8m0}", entry, torch.arange(256, dtype=torch.uint8)).tolist()
    assert found[:255] == [2.0 ** (byte - 127) for byte in range(255)]
    assert math.isnan(found[255])


@both
def test_dequantized_weights_are_rounded_to_f32_once(numerics: str) -> None:
    uses = "use std.quant::{dequantize_int4, dequantize_int4_group, dequantize_int8}"
    packed, scale = draw_bytes(6, 4), random(6, 1, seed=1)
    int8 = draw_bytes(6, 8).view(torch.int8)

    def run(weight_type: str, call: str, weight: Tensor, scale: Tensor, scale_type: str, dtype: str = "f32") -> Tensor:
        entry = f"(w: Tensor[{weight_type}], s: Tensor[{scale_type}]) -> Tensor[6, 8; f32] {{ return {call}(w, s) }}"
        return run_std(uses, entry, weight, scale, dtype=dtype, numerics=numerics)

    found = run("6, 8; i8", "dequantize_int8", int8, scale, "6, 1; f32")
    assert torch.equal(found, (int8.double() * scale.double()).float())
    found = run("6, 4; u8", "dequantize_int4<6, 8>", packed, scale, "6, 1; f32")
    assert torch.equal(found, (integers(packed) * scale.double()).float())
    grouped = random(6, 2, dtype="bf16", seed=2)
    found = run("6, 4; u8", "dequantize_int4_group<6, 8, 4, T>", packed, grouped, "6, 2; T", "bf16")
    assert torch.equal(found, (integers(packed) * grouped.double().repeat_interleave(4, 1)).float())


def test_dequantize_mxfp4_is_exact_and_nan_where_the_scale_is() -> None:
    blocks, scales = draw_bytes(3, 2, 16), draw_bytes(3, 2, seed=1, low=1, high=250)
    entry = "(b: Tensor[3, 2, 16; u8], s: Tensor[3, 2; u8]) -> Tensor[3, 64; f32] {"
    entry += " return dequantize_mxfp4<[3], 64>(b, s) }"
    scales[0, 1] = 0
    found = run_std("use std.quant::{dequantize_mxfp4}", entry, blocks, scales)
    assert torch.equal(found.double(), mxfp4(blocks, scales))
    scales[1, 0] = 255
    found = run_std("use std.quant::{dequantize_mxfp4}", entry, blocks, scales)
    assert found.isnan().nonzero().tolist() == [[1, i] for i in range(32)]


@both
@floats
@biased
@pytest.mark.parametrize("kind", ["Int8Linear", "Int4Linear", "Int4GroupLinear"])
def test_integer_layers_round_the_sum_and_the_bias_once(numerics: str, dtype: str, with_bias: bool, kind: str) -> None:
    x, bias = random(2, 3, 12, dtype=dtype), random(5, dtype=dtype, seed=3)
    weight = draw_bytes(5, 12).view(torch.int8) if kind == "Int8Linear" else draw_bytes(5, 6)
    scale = random(5, 3, dtype=dtype, seed=1) if kind == "Int4GroupLinear" else random(5, 1, seed=1)
    decoded = (weight.double() if kind == "Int8Linear" else integers(weight)) * scale.double().repeat_interleave(
        12 // scale.shape[1], 1
    )
    arguments = "12, 5, 4, T" if kind == "Int4GroupLinear" else "12, 5, T"
    found = run_std(
        f"use std.quant::{{{kind}}}",
        "<A: Dim, B: Dim>(x: Tensor[A, B, 12; T]) -> Tensor[A, B, 5; T] { return layer.forward(x) }",
        x,
        dtype=dtype,
        members=f"sub layer: {kind}<{arguments}>",
        weights={"layer.weight": weight, "layer.scale": scale} | ({"layer.bias": bias} if with_bias else {}),
        numerics=numerics,
    )
    assert found.dtype == DTYPES[dtype]
    wide = x.double() @ decoded.T + (bias.double() if with_bias else 0.0)
    if dtype == "f32":
        # The sum's own error in f32 is relative to its terms, which cancel.
        torch.testing.assert_close(found.double(), wide, rtol=1e-5, atol=1e-6 * decoded.abs().max().item() * 12)
    else:
        assert_within_one_rounding(found, wide)


@both
@floats
@biased
@pytest.mark.parametrize("shared", [False, True])
def test_mxfp4_experts_read_their_own_weights(numerics: str, dtype: str, with_bias: bool, shared: bool) -> None:
    blocks, scales = draw_bytes(3, 5, 2, 16), draw_bytes(3, 5, 2, seed=1, low=120, high=128)
    bias = random(3, 5, dtype=dtype, seed=2)
    experts = torch.tensor([[0, 2], [1, 1], [2, 0], [0, 1]])
    x = random(4, 2, 64, dtype=dtype)
    given = x[:, 0] if shared else x
    shape, call = ("4, 64", "forward_shared") if shared else ("4, 2, 64", "forward")

    def run(experts: Tensor) -> Tensor:
        return run_std(
            "use std.quant::{Mxfp4Experts}",
            f"(x: Tensor[{shape}; T], e: Tensor[4, 2; i64]) -> Tensor[4, 2, 5; T] {{ return layer.{call}(x, e) }}",
            given,
            experts,
            dtype=dtype,
            members="sub layer: Mxfp4Experts<3, 64, 5, T>",
            weights={"layer.blocks": blocks, "layer.scales": scales} | ({"layer.bias": bias} if with_bias else {}),
            numerics=numerics,
        )

    wide = given.double().reshape(4, -1, 1, 64).expand(4, 2, 1, 64) @ mxfp4(blocks, scales)[experts].mT
    wanted = wide.squeeze(2) + (bias.double()[experts] if with_bias else 0.0)
    found = run(experts)
    assert found.dtype == DTYPES[dtype]
    if dtype == "f32":
        torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=2e-5)
    else:
        assert_within_one_rounding(found, wanted)
    with pytest.raises(IndexRangeError):
        run(experts + 1)
