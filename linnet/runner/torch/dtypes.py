"""Linnet's dtypes in torch.

torch has few kernels for u16, u32 and u64, so a value of those is carried as its bits in the signed dtype of the same
width. Everything that only moves or wraps (add, mul, and, shl, gather, eq) is the same on the bits; `primitives`
treats apart what is not (comparison, division, shr, casts). At the edges of a graph the bits are viewed as torch's
own unsigned dtypes, without a copy.
"""

from __future__ import annotations

import torch
from torch import Tensor

from linnet.language.program.core import TensorSpec
from linnet.language.program.fold import wrap
from linnet.language.program.types import FLOATS

# dtype -> how its values are carried inside a graph.
CARRIED: dict[str, torch.dtype] = {
    "bool": torch.bool,
    "i8": torch.int8,
    "i16": torch.int16,
    "i32": torch.int32,
    "i64": torch.int64,
    "u8": torch.uint8,
    "u16": torch.int16,
    "u32": torch.int32,
    "u64": torch.int64,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f32": torch.float32,
    "f64": torch.float64,
}
# dtypes carried as the bits of a signed one, and the dtype that users see.
BITS: dict[str, torch.dtype] = {"u16": torch.uint16, "u32": torch.uint32, "u64": torch.uint64}
# dtype -> the dtype of weights, inputs and results.
NATIVE: dict[str, torch.dtype] = {**CARRIED, **BITS}
NAMES: dict[torch.dtype, str] = {native: name for name, native in NATIVE.items()}

WIDTH: dict[str, int] = {name: dtype.itemsize * 8 for name, dtype in CARRIED.items()}


def is_too_large(spec: TensorSpec) -> bool:
    """Whether torch, which counts elements and bytes in 64 signed bits, cannot say how large the tensor is."""
    return max(spec.size * NATIVE[spec.dtype].itemsize, *spec.shape, 0) >= 2**63


def integer_range(dtype: str) -> tuple[int, int]:
    """The least and greatest value of an integer dtype."""
    width = WIDTH[dtype]
    return (0, 2**width - 1) if dtype.startswith("u") else (-(2 ** (width - 1)), 2 ** (width - 1) - 1)


def wrap_carried(value: int, dtype: str) -> int:
    """`value` as the Python int that the carried tensor of `dtype` holds."""
    return wrap(value, f"i{WIDTH[dtype]}" if dtype in BITS else dtype)


def to_carried(x: Tensor, dtype: str) -> Tensor:
    """A native tensor of `dtype` as a graph carries it; shares its memory."""
    return x.view(CARRIED[dtype]) if dtype in BITS else x


def to_native(x: Tensor, dtype: str) -> Tensor:
    """A carried tensor of `dtype` as users see it; shares its memory."""
    return x.view(BITS[dtype]) if dtype in BITS else x


def scalar(value: float, dtype: str, device: torch.device) -> Tensor:
    """A carried rank-0 tensor."""
    if dtype in FLOATS or dtype == "bool":
        return torch.tensor(value, dtype=CARRIED[dtype], device=device)
    return torch.tensor(wrap_carried(int(value), dtype), dtype=CARRIED[dtype], device=device)
