"""E4M3 blocks against what the format says, number by number."""

from __future__ import annotations

import pytest
import torch

from linnet.quantize.fp8 import E4M3_MAX, dequantize_blocks, quantize_blocks

FINITE = [byte for byte in range(256) if byte not in (0x7F, 0xFF)]


def e4m3_values() -> torch.Tensor:
    """The value of each finite byte, by the format's definition: 1 sign, 4 exponent bits with bias 7, 3 mantissa."""
    values = []
    for byte in FINITE:
        exponent, mantissa = byte >> 3 & 15, byte & 7
        size = mantissa / 8 * 2.0**-6 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7)
        values.append(-size if byte & 128 else size)
    return torch.tensor(values, dtype=torch.float64)


def nearest_even(x: torch.Tensor) -> torch.Tensor:
    """The finite E4M3 number nearest to each of x, and of two equally near the one with an even mantissa."""
    values = e4m3_values()
    even = torch.tensor([byte & 1 == 0 for byte in FINITE])
    distance = (x.double()[..., None] - values).abs()
    tied = distance == distance.min(dim=-1, keepdim=True).values
    return values[(tied * (1 + even.int())).argmax(dim=-1)]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("block", [1, 4, 128])
def test_weights_are_the_nearest_numbers_over_their_scale(dtype: torch.dtype, block: int) -> None:
    generator = torch.Generator().manual_seed(block)
    outputs, inputs = 2 * block, 3 * block
    weight = torch.randn(outputs, inputs, generator=generator).mul(0.02).to(dtype)
    encoded, scale = quantize_blocks(weight, block)
    assert encoded.dtype == torch.float8_e4m3fn
    assert (scale.dtype, scale.shape) == (dtype, (2, 3))
    for row in range(2):
        for column in range(3):
            part = (slice(row * block, (row + 1) * block), slice(column * block, (column + 1) * block))
            expected = (weight[part].double().abs().max() / E4M3_MAX).to(dtype).clamp(min=torch.finfo(dtype).tiny)
            assert scale[row, column] == expected
            wide = weight[part].double() if dtype == torch.float64 else weight[part].float()
            ratio = (wide / expected.to(wide.dtype)).clamp(-E4M3_MAX, E4M3_MAX)
            torch.testing.assert_close(encoded[part].double(), nearest_even(ratio), rtol=0, atol=0)


def test_ties_go_to_even_and_nothing_becomes_nan() -> None:
    # 448 makes the scale 1, so that the others are rounded as they stand.
    row = torch.tensor([[448.0, 17.0, 19.0, 2.0**-10, 3 * 2.0**-10, -17.0, -0.0, 447.9]])
    encoded, scale = quantize_blocks(torch.cat([row, row.new_zeros(7, 8)]), 8)
    assert scale.tolist() == [[1.0]]
    assert encoded[0].float().tolist() == [448.0, 16.0, 20.0, 0.0, 2.0**-8, -16.0, -0.0, 448.0]


def test_a_weight_past_the_largest_number_is_held_there() -> None:
    # 460 / 448 rounds down to 1.0234375 in bf16, over which 460 is 449.47.
    weight = torch.tensor([[460.0, -460.0], [448.0, 1.0]])
    encoded, scale = quantize_blocks(weight.bfloat16(), 2)
    assert scale.item() == 1.0234375
    assert encoded.float().tolist() == [[448.0, -448.0], [448.0, 1.0]]


def test_zeros_and_the_smallest_numbers() -> None:
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        smallest = torch.finfo(dtype).smallest_normal
        weight = torch.zeros(4, 4, dtype=dtype)
        weight[2, 2] = smallest
        encoded, scale = quantize_blocks(weight, 2)
        assert scale[0].tolist() == [1.0, 1.0]
        assert bool(torch.isfinite(scale).all())
        assert bool((scale > 0).all())
        assert not bool(encoded.float().isnan().any())
        assert encoded[:2].float().abs().max() == 0
        decoded = dequantize_blocks(encoded, scale)
        assert decoded[2, 2] == pytest.approx(smallest, rel=0.07)


def test_no_byte_is_nan_over_every_bf16_number() -> None:
    bits = torch.arange(2**16, dtype=torch.int32).to(torch.int16)
    numbers = bits.view(torch.bfloat16)
    numbers = torch.where(numbers.isfinite(), numbers, 0).view(256, 256)
    encoded, scale = quantize_blocks(numbers, 128)
    assert not set(encoded.view(torch.uint8).unique().tolist()) & {0x7F, 0xFF}
    assert bool(torch.isfinite(dequantize_blocks(encoded, scale)).all())


def test_relative_error_of_normal_weights() -> None:
    weight = torch.randn(512, 512, generator=torch.Generator().manual_seed(1))
    error = dequantize_blocks(*quantize_blocks(weight, 128)) - weight
    assert 0.02 < float(error.square().mean().sqrt() / weight.square().mean().sqrt()) < 0.03
