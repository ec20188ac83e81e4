"""Products with FP8 E4M3 weights, decoded for each product and never rounded afterwards.

weight [Out, In] u8 holds E4M3 bytes. Scales multiply: `Fp8Linear` has one for each output, [Out, 1] f32,
`Fp8BlockLinear` one for each block, [Out / Block, In / Block] in x's dtype. Products and sums are in f32, the result
is rounded once.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from linnet.runner.torch.kernels import kernel


@kernel("std.quant::decode_fp8")
def decode_fp8(bits: Tensor) -> Tensor:
    """E4M3 bytes [..] u8 -> their values [..] f32, exact. The NaN bytes, which loading refuses, give NaN."""
    return bits.view(torch.float8_e4m3fn).float()


@kernel("std.quant::dequantize_fp8")
def dequantize_fp8(weight: Tensor, scale: Tensor) -> Tensor:
    """weight [Out, In] u8, scale [Out, 1] f32 -> [Out, In] f32."""
    return decode_fp8(weight) * scale


@kernel("std.quant::dequantize_fp8_block")
def dequantize_fp8_block(weight: Tensor, scale: Tensor) -> Tensor:
    """weight [Out, In] u8, scale [Out / Block, In / Block] -> [Out, In] f32."""
    (rows, columns), (out, inner) = scale.shape, weight.shape
    if not weight.numel():
        return decode_fp8(weight)
    blocks = decode_fp8(weight).view(rows, out // rows, columns, inner // columns)
    return (blocks * scale.float().view(rows, 1, columns, 1)).view(out, inner)


@kernel("std.quant::fp8_linear")
def fp8_linear(x: Tensor, weight: Tensor, scale: Tensor, bias: Tensor | None = None) -> Tensor:
    """x [.., In] -> [.., Out]."""
    return _wide_linear(x, dequantize_fp8(weight, scale), bias)


@kernel("std.quant::fp8_block_linear")
def fp8_block_linear(x: Tensor, weight: Tensor, scale: Tensor, bias: Tensor | None = None) -> Tensor:
    """x [.., In] -> [.., Out]."""
    return _wide_linear(x, dequantize_fp8_block(weight, scale), bias)


def _wide_linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return functional.linear(x.float(), weight, None if bias is None else bias.float()).to(x.dtype)
