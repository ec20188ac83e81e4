"""What each kernel computes, in plain torch: the oracle of its tests, at the precision of `dtype`.

E4M3_MAX is the largest E4M3 number. Casting to E4M3 in torch does not saturate, so values are clamped before.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from linnet.runner.torch.kernels.triton.checks import BLOCK, E4M3

E4M3_MAX = 448.0
# Stands for the largest input of 128 zeros.
SMALLEST = 1e-12


def decode_weight(weight: Tensor, scale: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
    """weight [Out, In] u8, scale [ceil(Out / 128), In / 128] or [Out, 1] -> [Out, In] in `dtype`.

    For dtypes below f32 the product is taken in f32 and rounded once.
    """
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    out = weight.shape[0]
    values = weight.view(E4M3).to(wide)
    scales = scale.to(wide)
    if tuple(scale.shape) != (out, 1):
        scales = scales.repeat_interleave(BLOCK, 0)[:out].repeat_interleave(BLOCK, 1)
    return (values * scales).to(dtype)


def linear(x: Tensor, weight: Tensor, scale: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
    """x [.., In] -> [.., Out]: decoded weights, products and sums in `dtype`."""
    return functional.linear(x.to(dtype), decode_weight(weight, scale, dtype))


def gated(x: Tensor, weight: Tensor, scale: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
    """x [.., In], weight [2 * Inner, In] -> silu(gate) * up, [.., Inner]."""
    return silu_mul(linear(x, weight, scale, dtype), dtype)


def silu_mul(x: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
    """x [.., 2 * Inner], gate before up -> [.., Inner]."""
    gate, up = x.to(dtype).chunk(2, dim=-1)
    return functional.silu(gate) * up


def rms_norm(x: Tensor, weight: Tensor, eps: float, dtype: torch.dtype = torch.float64) -> Tensor:
    """x [.., H], weight [H]."""
    wide = x.to(dtype)
    return wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.to(dtype)


def scaled(x: Tensor, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """x [rows, In] -> what is rounded to E4M3, [padded, In], and scales [padded, In / 128], strides (1, padded).

    A scale is the largest magnitude of 128 inputs over 448. Rows are padded with zeros to a multiple of 4.
    """
    rows, inner = x.shape
    grouped = functional.pad(x.to(dtype), (0, 0, 0, -rows % 4)).view(-1, inner // BLOCK, BLOCK)
    scales = grouped.abs().amax(-1).clamp(min=SMALLEST) / E4M3_MAX
    values = (grouped / scales[:, :, None]).clamp(-E4M3_MAX, E4M3_MAX)
    return values.view(-1, inner), scales.t().contiguous().t()


def quantise(x: Tensor, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """`scaled` with its values rounded to E4M3."""
    values, scales = scaled(x, dtype)
    return values.float().to(E4M3), scales


def dequantise(q: Tensor, scales: Tensor, rows: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """q [padded, In] E4M3 and its scales -> [rows, In]."""
    return (q.to(dtype) * scales.to(dtype).repeat_interleave(BLOCK, 1))[:rows]
