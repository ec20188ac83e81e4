"""Kernels of the `engine` policy: the rounding points of a serving engine, where they are not those of the bodies.

An engine keeps rotary arithmetic in f32 on a table that is stored in the model's dtype, and rounds once. Its other
points are those of `equivalent`: residual adds round once, RMS norms twice, attention and SiLU once, from f32.
"""

from __future__ import annotations

import torch
from torch import Tensor

from linnet.runner.torch.kernels import Kernel


def rope(x: Tensor, cos_table: Tensor, sin_table: Tensor) -> Tensor:
    """x [B, H, S, D], tables [S, D] in x's dtype: x * cos + rotate_half(x) * sin in f32, rounded once."""
    return _rotated_once(x, cos_table, sin_table)


def rope_rows(x: Tensor, cos_table: Tensor, sin_table: Tensor) -> Tensor:
    """x [B, H, S, D], tables [B, S, D]."""
    return _rotated_once(x, cos_table.unsqueeze(1), sin_table.unsqueeze(1))


def _rotated_once(x: Tensor, cos_table: Tensor, sin_table: Tensor) -> Tensor:
    wide = torch.promote_types(x.dtype, torch.float32)
    first, second = x.to(wide).chunk(2, dim=-1)
    (cos_low, cos_high), (sin_low, sin_high) = cos_table.to(wide).chunk(2, dim=-1), sin_table.to(wide).chunk(2, dim=-1)
    low = first * cos_low - second * sin_low
    high = second * cos_high + first * sin_high
    return torch.cat((low, high), dim=-1).to(x.dtype)


ENGINE = {f"std.nn.rope::{f.__name__}": Kernel(f"std.nn.rope::{f.__name__}", f) for f in (rope, rope_rows)}
