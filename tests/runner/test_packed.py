"""Matrices in few bits: what they stand for, and that the layout is MLX's."""

from __future__ import annotations

import pytest
import torch

from linnet.runner.packed import Packing, pack

FORMS = [(bits, group) for bits in (4, 8) for group in (32, 64, 128)]


def draw(dtype: torch.dtype, rows: int = 24, columns: int = 256) -> torch.Tensor:
    return (torch.randn(rows, columns, generator=torch.Generator().manual_seed(3)) * 0.05).to(dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize(("bits", "group"), FORMS)
def test_a_weight_is_within_half_a_step_or_beyond_the_last(bits: int, group: int, dtype: torch.dtype) -> None:
    weight = draw(dtype)
    packed = pack(weight, Packing(bits, group))
    assert packed.words.shape == (24, 256 * bits // 32)
    assert packed.scales.shape == packed.biases.shape == (24, 256 // group)
    assert (packed.words.dtype, packed.scales.dtype) == (torch.int32, dtype)
    scale, bias = (part.float().repeat_interleave(group, 1) for part in (packed.scales, packed.biases))
    found = packed.dense(torch.float32)
    steps = ((found - weight.float()) / scale).abs()
    last = ((found - bias) / scale).round() == 2**bits - 1
    assert steps[~last].max() <= 0.5 + 1e-4
    # 0 and the larger end are numbers, so that the other end may lie a step beyond the last one.
    assert steps[last].max() <= 1 + 2**bits * torch.finfo(dtype).eps


def test_groups_of_one_value_and_of_zeros_are_exact() -> None:
    weight = torch.zeros(3, 64, dtype=torch.bfloat16)
    weight[1] = 0.375
    weight[2, :32] = -2.0
    assert torch.equal(pack(weight, Packing(4, 32)).dense(torch.bfloat16), weight)


def test_the_larger_end_of_a_range_is_kept() -> None:
    weight = torch.linspace(-3, 1.5, 32).reshape(1, 32)
    packed = pack(weight, Packing(4, 32))
    assert packed.dense(torch.float32)[0, 0] == -3
    assert pack(-weight, Packing(4, 32)).dense(torch.float32)[0, 0] == 3


@pytest.mark.parametrize(("bits", "group"), FORMS)
def test_mlx_reads_the_same_numbers_and_packs_no_better(bits: int, group: int) -> None:
    mx = pytest.importorskip("mlx.core", reason="MLX is not installed")
    from linnet.runner.mlx.dtypes import from_torch, to_torch

    weight = draw(torch.bfloat16)
    packed = pack(weight, Packing(bits, group))
    words = from_torch(packed.words, "u32")
    scales, biases = (from_torch(x.float(), "f32") for x in (packed.scales, packed.biases))
    theirs = to_torch(mx.dequantize(words, scales, biases, group_size=group, bits=bits))
    assert torch.equal(theirs, packed.dense(torch.float32))

    _, mlx_scales, mlx_biases = made = mx.quantize(from_torch(weight, "bf16"), group_size=group, bits=bits)
    assert torch.equal(to_torch(mlx_scales), packed.scales)
    assert torch.equal(to_torch(mlx_biases), packed.biases)
    wide = (made[0], *(part.astype(mx.float32) for part in made[1:]))
    other = to_torch(mx.dequantize(*wide, group_size=group, bits=bits))
    assert (theirs - weight).square().mean() <= (other - weight).square().mean()
