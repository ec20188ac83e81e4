"""Writes into a key/value cache [B, H, S, D] by index instead of by comparing every position.

MLX writes in place where nothing else holds the old cache, which the model sees to.
"""

from __future__ import annotations

import mlx.core as mx

from linnet.runner.bounds import Bound, Shapes
from linnet.runner.mlx.kernels import EVERY, kernel


def _span(shapes: Shapes) -> list[Bound]:
    return [Bound("at", shapes["cache"][2], "cache", shapes["value"][2])]


def _rows(shapes: Shapes) -> list[Bound]:
    return [Bound("at", shapes["cache"][2], "cache")]


@kernel("std.nn.cache::write_at", policies=EVERY, bounds=_span)
@kernel("std.nn.cache::write_span", policies=EVERY, bounds=_span)
def write_span(cache: mx.array, value: mx.array, at: mx.array) -> mx.array:
    """value [B, H, N, D] at positions at .. at + N of every row; `at` i32 scalar."""
    fits = value.size and value.shape[2] <= cache.shape[2]
    return mx.slice_update(cache, value, at.reshape(1), axes=(2,)) if fits else cache


@kernel("std.nn.cache::write_rows", policies=EVERY, bounds=_rows)
def write_rows(cache: mx.array, value: mx.array, at: mx.array) -> mx.array:
    """value [B, H, 1, D]: row b at its own position, at [B] i32."""
    if not value.size or not cache.size:
        return cache
    places = mx.broadcast_to(at.reshape(-1, 1, 1, 1), value.shape)
    return mx.put_along_axis(cache, places, value, axis=2)
