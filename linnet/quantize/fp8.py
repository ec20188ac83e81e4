"""Weights as E4M3 bytes with one scale for each square block, the scheme of DeepSeek-V3 (arXiv:2412.19437)."""

from __future__ import annotations

import torch
from torch import Tensor

E4M3_MAX = 448.0


def quantize_blocks(weight: Tensor, block: int) -> tuple[Tensor, Tensor]:
    """Floating `weight` [Out, In], sides multiples of `block`, as float8_e4m3fn [Out, In] and scales that multiply,
    [Out / block, In / block] in the weight's dtype.

    A scale is the block's largest magnitude over 448, rounded to its dtype, and no smaller than the smallest normal
    number there. A weight over its scale is rounded to the nearest E4M3 number, ties to even, and held to 448, so that
    no byte is a NaN. A block of zeros has the scale 1. The weight must be finite.
    """
    outputs, inputs = weight.shape
    wide = weight if weight.dtype == torch.float64 else weight.float()
    blocks = wide.view(outputs // block, block, inputs // block, block)
    largest = blocks.abs().amax(dim=(1, 3))
    # Below the dtype's normal numbers a scale would lose its precision, or be 0.
    scale = (largest / E4M3_MAX).to(weight.dtype).clamp(min=torch.finfo(weight.dtype).tiny)
    scale = torch.where(largest > 0, scale, 1).to(weight.dtype)
    # torch's own cast gives NaN for what is too large.
    ratio = (blocks / scale.to(wide.dtype)[:, None, :, None]).clamp(-E4M3_MAX, E4M3_MAX)
    return ratio.to(torch.float8_e4m3fn).view(outputs, inputs), scale


def dequantize_blocks(quantized: Tensor, scale: Tensor) -> Tensor:
    """What float8_e4m3fn [Out, In] and scales [Out / block, In / block] stand for, in f32 (f64 for f64 scales)."""
    outputs, inputs = quantized.shape
    rows, columns = scale.shape
    wide = scale if scale.dtype == torch.float64 else scale.float()
    blocks = quantized.to(wide.dtype).view(rows, outputs // rows, columns, inputs // columns)
    return (blocks * wide[:, None, :, None]).view(outputs, inputs)
