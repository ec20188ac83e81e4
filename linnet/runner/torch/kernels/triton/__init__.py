"""Products with FP8 E4M3 weights on a GPU: one row, a few, many; rounding inputs; decoding weights.

Weights are E4M3 bytes, u8 [Out, In], row-major, In a multiple of 128. `scale` multiplies: bf16 or f32
[ceil(Out / 128), In / 128], one for each block of 128 by 128, or [Out, 1], one for each output. Weights that read one
input (q, k and v; gate and up) may lie side by side as one, each part a multiple of 128 rows, and their scales as well.

Importing this needs torch alone. On an NVIDIA GPU of compute capability 9.0 or later the kernels are Triton's, which
torch brings there; `available` tells. Up to 32 rows are multiplied as they are; longer inputs are rounded to E4M3, 128
inputs at a time. Results are in x's dtype, summed in f32, rounded once. Nothing here has gradients.
"""

from __future__ import annotations

import torch
from torch import Tensor

import linnet.runner.torch.kernels.triton.ops  # noqa: F401  (registers the operators)
from linnet.runner.torch.kernels.triton import dispatch, launch, reference
from linnet.runner.torch.kernels.triton.checks import E4M3, FLOATS, check_weight, require
from linnet.runner.torch.kernels.triton.errors import KernelInputError, KernelUnavailableError

__all__ = [
    "KernelInputError",
    "KernelUnavailableError",
    "available",
    "block_linear",
    "decode_weight",
    "gated",
    "prepare",
    "product",
    "quantise",
    "rms_norm_quantise",
    "row_linear",
    "silu_mul_quantise",
    "unavailable",
    "validate",
]

# Rows of a weight that are decoded or looked at together on a CPU, where each makes temporary copies.
CHUNK = 1024
_call = torch.ops.linnet


def available(device: torch.device | str) -> bool:
    """Whether the kernels run on `device`."""
    return unavailable(device) is None


def unavailable(device: torch.device | str) -> str | None:
    """Why the kernels cannot run on `device`, as the end of a sentence; None where they can."""
    return dispatch.missing(torch.device(device))


def prepare(device: torch.device | str) -> None:
    """Settle what is probed once for a device (block scales in cuBLASLt), before anything is captured."""
    dispatch.block_scales(torch.device(device), torch.bfloat16)


def block_linear(x: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
    """x [.., In], weight [Out, In] u8, scale by blocks -> [.., Out] in x's dtype.

    Raises KernelInputError, KernelUnavailableError.
    """
    _no_gradient("block_linear", x)
    result: Tensor = _call.fp8_linear(x, weight, scale, False)
    return result


def row_linear(x: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
    """x [.., In], weight [Out, In] u8, scale [Out, 1] f32 -> [.., Out] in x's dtype.

    More than 32 rows: bf16 inputs are rounded to E4M3 row by row; for others the weight is decoded to their dtype.
    Raises KernelInputError, KernelUnavailableError.
    """
    _no_gradient("row_linear", x)
    result: Tensor = _call.fp8_linear(x, weight, scale, True)
    return result


def gated(x: Tensor, gate_up: Tensor, scale: Tensor) -> Tensor:
    """x [.., In], gate_up [2 * Inner, In] u8, the gate's rows before up's -> silu(gate) * up, [.., Inner].

    Up to 32 rows round once, longer inputs at each step. Raises KernelInputError, KernelUnavailableError.
    """
    _no_gradient("gated", x)
    result: Tensor = _call.fp8_gated(x, gate_up, scale)
    return result


def quantise(x: Tensor) -> tuple[Tensor, Tensor]:
    """x [.., In] -> q [padded, In] E4M3 and scales [padded, In / 128] f32 with strides (1, padded).

    Leading axes are flattened to rows and padded with zeros to a multiple of 4. Raises KernelInputError,
    KernelUnavailableError.
    """
    _no_gradient("quantise", x)
    q, scales = _call.fp8_quantise(x)
    return q, scales


def rms_norm_quantise(x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """`quantise` of x * rsqrt(mean(x^2) + eps) * weight, weight [In], with no rounding between."""
    _no_gradient("rms_norm_quantise", x)
    q, scales = _call.fp8_rms_norm_quantise(x, weight, eps)
    return q, scales


def silu_mul_quantise(x: Tensor) -> tuple[Tensor, Tensor]:
    """`quantise` of silu(gate) * up, x [.., 2 * In], gate before up, with no rounding between."""
    _no_gradient("silu_mul_quantise", x)
    q, scales = _call.fp8_silu_mul_quantise(x)
    return q, scales


def product(
    q: Tensor, q_scale: Tensor, rows: int, weight: Tensor, scale: Tensor, dtype: torch.dtype = torch.bfloat16
) -> Tensor:
    """`rows` rounded inputs (`quantise` and its kin) by a weight with block scales -> [rows, Out] in `dtype`."""
    result: Tensor = _call.fp8_product(q, q_scale, rows, weight, scale, dtype)
    return result


def decode_weight(weight: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
    """weight [Out, In] u8 with scales by blocks or [Out, 1] -> [Out, In] in `dtype` (bf16, f16, f32).

    The product is taken in f32 and rounded once. On any device: by a kernel where they are available. Raises
    KernelInputError.
    """
    rowwise = weight.dim() == 2 and tuple(scale.shape) == (weight.shape[0], 1)
    if available(weight.device):
        return launch.decode_weight(weight, scale, dtype, rowwise=rowwise)
    check_weight("decode_weight", weight, scale, rowwise=rowwise)
    require("decode_weight", dtype in FLOATS, f"weights are decoded to bf16, f16 or f32, not {dtype}")
    result = torch.empty(weight.shape, dtype=dtype, device=weight.device)
    for first in range(0, weight.shape[0], CHUNK):
        rows = slice(first, first + CHUNK)
        scales = scale[rows] if rowwise else scale[first // 128 : (first + CHUNK) // 128]
        result[rows] = reference.decode_weight(weight[rows], scales, dtype)
    return result


def validate(weight: Tensor) -> None:
    """Raise KernelInputError if `weight`, E4M3 as u8, holds one of the two NaN bytes, 0x7f and 0xff."""
    fits = weight.dtype in (torch.uint8, E4M3)
    require("validate", fits, f"weight must be u8 or E4M3, not {weight.dtype}")
    codes = weight.view(torch.uint8).reshape(-1)
    for chunk in torch.split(codes, CHUNK * CHUNK * 16):
        count = int(((chunk & 0x7F) == 0x7F).sum())
        require("validate", not count, f"weight holds NaN bytes, 0x7f or 0xff ({count} or more): it is damaged")


def _no_gradient(kernel: str, x: Tensor) -> None:
    traced = torch.is_grad_enabled() and x.requires_grad
    require(kernel, not traced, 'x needs a gradient, which FP8 kernels do not have: train with numerics="equivalent"')
