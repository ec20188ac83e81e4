"""Linear maps, lookups, normalisation, softmax and rotary embedding.

Shapes are the ops' own: `x` is [.., In], weights are [Out, In], norms and softmax work on the last axis. MLX sums
products of f16 and bf16 in f32 and rounds once, as the bodies do.
"""

from __future__ import annotations

import mlx.core as mx

from linnet.runner.bounds import Bound
from linnet.runner.mlx.kernels import EVERY, kernel
from linnet.runner.mlx.primitives import Run
from linnet.runner.mlx.products import on_cpu, product
from linnet.runner.mlx.quantised import QuantisedWeight, Weight


@kernel("std.nn.linear::linear")
def linear(x: mx.array, weight: Weight, bias: mx.array | None = None) -> mx.array:
    """x [.., In], weight [Out, In], bias [Out] -> [.., Out]."""
    result = weight.product(x) if isinstance(weight, QuantisedWeight) else product(x, weight)
    return result if bias is None else result + bias


@kernel(
    "std.nn.embedding::embedding",
    policies=EVERY,
    bounds=lambda shapes: [Bound("ids", shapes["table"][0], "table")],
)
def embedding(ids: mx.array, table: Weight) -> mx.array:
    """ids [..] i32, table [Vocab, H] -> [.., H]."""
    if isinstance(table, QuantisedWeight):
        return table.rows(ids)
    return mx.take(table, ids, axis=0) if table.size else mx.zeros((*ids.shape, table.shape[1]), dtype=table.dtype)


@kernel("std.nn.norm::rms_norm", numbers=("eps",))
def rms_norm(x: mx.array, weight: mx.array, eps: float) -> mx.array:
    """x [.., H], weight [H]: the normalised value is rounded to x's dtype, then multiplied by weight and rounded."""
    if not x.size:
        return x
    if x.dtype != mx.float32 or not on_cpu():
        return mx.fast.rms_norm(x, weight, eps)
    square = mx.mean(mx.square(x.astype(mx.float64)), axis=-1, keepdims=True).astype(mx.float32)
    return x * mx.rsqrt(square + eps) * weight


@kernel("std.nn.softmax::softmax")
def softmax(x: mx.array) -> mx.array:
    """Over the last axis, in f32, rounded once."""
    return mx.softmax(x, axis=-1, precise=True) if x.size else x


Halves = tuple[mx.array, mx.array, mx.array, mx.array]


def wide_halves(run: Run | None, cos_table: mx.array, sin_table: mx.array) -> Halves:
    """Tables [.., D] -> the halves of the cosines, then of the sines, [.., D / 2] f32."""
    cos_low, cos_high = mx.split(cos_table.astype(mx.float32), 2, axis=-1)
    sin_low, sin_high = mx.split(sin_table.astype(mx.float32), 2, axis=-1)
    return cos_low, cos_high, sin_low, sin_high


def rotate(
    run: Run | None,
    x: mx.array,
    cos_low: mx.array,
    cos_high: mx.array,
    sin_low: mx.array,
    sin_high: mx.array,
    by_row: bool,
) -> mx.array:
    """x [B, H, S, D] by halves of tables [S, D / 2] f32, or [B, S, D / 2] with `by_row`: in f32, rounded once."""
    if by_row:
        cos_low, cos_high, sin_low, sin_high = (t[:, None] for t in (cos_low, cos_high, sin_low, sin_high))
    first, second = mx.split(x.astype(mx.float32), 2, axis=-1)
    low = first * cos_low - second * sin_low
    high = second * cos_high + first * sin_high
    return mx.concatenate([low, high], axis=-1).astype(x.dtype)


@kernel("std.nn.rope::rope", policies=("engine", "wide"))
def rope(x: mx.array, cos_table: mx.array, sin_table: mx.array) -> mx.array:
    """x [B, H, S, D], tables [S, D] in x's dtype: x * cos + rotate_half(x) * sin in f32, rounded once."""
    return rotate(None, x, *wide_halves(None, cos_table, sin_table), False)


@kernel("std.nn.rope::rope_rows", policies=("engine", "wide"))
def rope_rows(x: mx.array, cos_table: mx.array, sin_table: mx.array) -> mx.array:
    """x [B, H, S, D], tables [B, S, D]."""
    return rotate(None, x, *wide_halves(None, cos_table, sin_table), True)


@kernel("std.nn.parallel::all_reduce", policies=EVERY)
@kernel("std.nn.parallel::shared", policies=EVERY)
def identity(x: mx.array) -> mx.array:
    """One process holds every shard, so there is nothing to exchange."""
    return x
