"""Kernels of the `engine` policy: the rounding points of a serving engine, where they are not those of the bodies.

An engine keeps rotary arithmetic in f32 on a table that is stored in the model's dtype, and rounds once. Its other
points are those of `equivalent`: residual adds round once, RMS norms twice, attention and SiLU once, from f32.

On a CPU sums and functions are taken in f64 (`linnet.runner.wide`): of the kernels of `equivalent` only those are used
that take none, and ops without a kernel run by their bodies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from linnet.runner.torch.kernels import Kernel, wide


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
_WIDE: dict[str, Callable[..., Tensor]] = {
    "std.nn.linear::linear": wide.linear,
    "std.nn.attention::attention": wide.attention,
    "std.nn.attention::attention_rows": wide.attention,
    "std.nn.attention::grouped_attention": wide.attention,
    "std.nn.attention::grouped_attention_rows": wide.attention,
    "std.nn.attention::sink_attention": wide.sink_attention,
}
WIDE = {identity: Kernel(identity, function) for identity, function in _WIDE.items()}
# Ops, or modules of them, whose kernels move numbers or decode them, and sum none.
MOVING = (
    "std.nn.cache::",
    "std.nn.decoding::argmax",
    "std.nn.embedding::",
    "std.nn.parallel::",
    "std.quant::decode_fp8",
    "std.quant::dequantize_fp8",
)


def engine_kernels(equivalent: Mapping[str, Kernel], *, on_cpu: bool) -> Mapping[str, Kernel]:
    """The kernels of `engine` among those of `equivalent`, by identity."""
    if not on_cpu:
        return {**equivalent, **ENGINE}
    moving = {identity: kernel for identity, kernel in equivalent.items() if identity.startswith(MOVING)}
    return {**moving, **ENGINE, **WIDE}
