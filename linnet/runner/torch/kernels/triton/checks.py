"""What every kernel takes, checked before it starts: an access outside a tensor ends the process on a GPU.

BLOCK is the side of a weight block that has one scale. ALIGNMENT is what a 128-bit load needs, in bytes and, for E4M3,
in columns.
"""

from __future__ import annotations

import torch
from torch import Tensor

from linnet.runner.torch.kernels.triton.errors import KernelInputError

BLOCK = 128
ALIGNMENT = 16
FLOATS = (torch.bfloat16, torch.float16, torch.float32)
SCALES = (torch.bfloat16, torch.float32)
E4M3 = torch.float8_e4m3fn


def ceil_div(value: int, divisor: int) -> int:
    return -(-value // divisor)


def shape_text(tensor: Tensor) -> str:
    return f"{tensor.dtype} {list(tensor.shape)}"


def require(kernel: str, holds: bool, problem: str) -> None:
    if not holds:
        raise KernelInputError(kernel, problem)


def check_layout(kernel: str, name: str, tensor: Tensor) -> None:
    """Rows without gaps that start at a multiple of ALIGNMENT bytes."""
    strides = tuple(tensor.stride())
    require(kernel, tensor.is_contiguous(), f"{name} is not contiguous (strides {strides}): pass {name}.contiguous()")
    aligned = tensor.data_ptr() % ALIGNMENT == 0
    require(kernel, aligned, f"{name} does not start at a multiple of {ALIGNMENT} bytes: pass a copy of it")


def check_weight(kernel: str, weight: Tensor, scale: Tensor, *, rowwise: bool = False) -> None:
    """weight [Out, In] u8, In % 128 == 0, Out % 16 == 0; scale [ceil(Out / 128), In / 128] bf16 or f32, or [Out, 1].

    Raises KernelInputError.
    """
    require(
        kernel,
        weight.dtype == torch.uint8 and weight.dim() == 2,
        f"weight must be u8 [Out, In], not {shape_text(weight)}",
    )
    out, inner = weight.shape
    require(kernel, inner > 0 and inner % BLOCK == 0, f"weight's In, {inner}, must be a multiple of {BLOCK}")
    require(kernel, out > 0 and out % ALIGNMENT == 0, f"weight's Out, {out}, must be a multiple of {ALIGNMENT}")
    wanted = (out, 1) if rowwise else (ceil_div(out, BLOCK), inner // BLOCK)
    require(
        kernel,
        scale.dtype in SCALES and tuple(scale.shape) == wanted,
        f"scale must be bf16 or f32 {list(wanted)} for a weight of {[out, inner]}, not {shape_text(scale)}",
    )


def check_gated(kernel: str, weight: Tensor) -> None:
    """Gate and up rows, [2 * Inner, In], with no block of scales across the border."""
    out = weight.shape[0]
    require(
        kernel,
        out % (2 * BLOCK) == 0,
        f"weight holds gate rows and as many up rows, a multiple of {BLOCK} each: {out} rows are not",
    )


def check_input(kernel: str, x: Tensor, inner: int) -> None:
    """x [.., inner] in bf16, f16 or f32."""
    require(
        kernel,
        x.dtype in FLOATS and x.dim() > 0 and x.shape[-1] == inner,
        f"x must be bf16, f16 or f32 [.., {inner}], not {shape_text(x)}",
    )


def check_device(kernel: str, **tensors: Tensor) -> None:
    first = next(iter(tensors))
    place = tensors[first].device
    for name, tensor in tensors.items():
        require(kernel, tensor.device == place, f"{first} is on {place} and {name} on {tensor.device}")


def check_quantised(kernel: str, q: Tensor, scales: Tensor, rows: int) -> None:
    """q [padded, In] E4M3; scales [padded, In / 128] f32, strides (1, padded); rows <= padded, a multiple of 4."""
    require(kernel, q.dtype == E4M3 and q.dim() == 2, f"q must be E4M3 [rows, In], not {shape_text(q)}")
    padded, inner = q.shape
    require(kernel, inner > 0 and inner % BLOCK == 0, f"q's In, {inner}, must be a multiple of {BLOCK}")
    require(kernel, padded % 4 == 0, f"q must be padded to a multiple of 4 rows, not {padded}")
    require(kernel, 0 <= rows <= padded, f"rows must be 0 to {padded}, not {rows}")
    wanted = (padded, inner // BLOCK)
    require(
        kernel,
        scales.dtype == torch.float32 and tuple(scales.shape) == wanted,
        f"scales must be f32 {list(wanted)}, not {shape_text(scales)}",
    )
    # The stride of an axis of one says nothing.
    columns = scales.numel() == 0 or (scales.stride(0) == 1 and (inner == BLOCK or scales.stride(1) == padded))
    require(kernel, columns, f"scales must have strides (1, {padded}), not {tuple(scales.stride())}")
    check_layout(kernel, "q", q)
