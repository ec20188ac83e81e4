"""Linnet's dtypes in MLX, which has all of them, and the way of tensors between torch and MLX.

What users give and what checkpoints hold is read by the code that the torch backend reads it with, so that both refuse
the same things; here it is handed over.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import torch
from torch import Tensor

from linnet.language.program.types import FLOATS
from linnet.runner.torch.dtypes import NATIVE

DTYPES: dict[str, mx.Dtype] = {
    "bool": mx.bool_,
    "i8": mx.int8,
    "i16": mx.int16,
    "i32": mx.int32,
    "i64": mx.int64,
    "u8": mx.uint8,
    "u16": mx.uint16,
    "u32": mx.uint32,
    "u64": mx.uint64,
    "f16": mx.float16,
    "bf16": mx.bfloat16,
    "f32": mx.float32,
    "f64": mx.float64,
}
NAMES: dict[mx.Dtype, str] = {dtype: name for name, dtype in DTYPES.items()}
# Those that sums, products and functions are taken of in f32, and rounded to once.
HALVES = ("f16", "bf16")


def width(dtype: str) -> int:
    """Bits of an integer dtype."""
    return int(dtype[1:])


def scalar(value: float, dtype: str) -> mx.array:
    """A rank-0 array. MLX itself takes no Python integer from 2**63 up, and rounds Python floats to f32 first."""
    if dtype == "f64":
        return mx.array(np.array(value, dtype=np.float64), dtype=mx.float64)
    if dtype in FLOATS:
        return mx.array(float(value), dtype=DTYPES[dtype])
    if dtype == "bool":
        return mx.array(bool(value))
    unsigned = int(value) % 2 ** width(dtype)
    return mx.array(np.array(unsigned, dtype=f"u{width(dtype) // 8}")).view(DTYPES[dtype])


def element(x: mx.array) -> int:
    """The one element of an integer array, computed if it has not been."""
    return int(x.item())  # type: ignore[arg-type]


def from_torch(x: Tensor, dtype: str) -> mx.array:
    """A torch tensor of `dtype`, as users see it or as a torch graph carries it, copied."""
    x = x.detach().cpu().contiguous()
    if dtype == "bf16":
        return mx.array(x.view(torch.int16).numpy()).view(mx.bfloat16)
    host = x.numpy()
    if dtype == "f64":
        return mx.array(host, dtype=mx.float64)
    made = mx.array(host)
    return made if made.dtype == DTYPES[dtype] else made.view(DTYPES[dtype])


def to_torch(x: mx.array) -> Tensor:
    """An array as a torch tensor on the CPU, copied."""
    name = NAMES[x.dtype]
    # NumPy has no bf16, and MLX's u64 is a C type that torch does not know under that name.
    same = {"bf16": mx.int16, "u64": mx.int64}.get(name, x.dtype)
    return torch.from_numpy(np.array(x.view(same))).view(NATIVE[name])


def host(value: Any) -> Any:
    """What a user gives, with MLX arrays, also in tuples and mappings, as torch tensors."""
    if isinstance(value, mx.array):
        return to_torch(value)
    if isinstance(value, dict):
        return {name: host(part) for name, part in value.items()}
    if isinstance(value, list | tuple) and any(isinstance(part, mx.array | dict | list | tuple) for part in value):
        return type(value)(host(part) for part in value)
    return value
