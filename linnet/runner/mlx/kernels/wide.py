"""Kernels of `engine` on a CPU, which take sums and exponentials in f64: see `linnet.runner.wide`."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np

from linnet.runner.mlx import functions
from linnet.runner.mlx.kernels import kernel
from linnet.runner.mlx.kernels.attention import OPS, prefix
from linnet.runner.mlx.primitives import Run
from linnet.runner.mlx.products import wide_product
from linnet.runner.mlx.quantised import QuantisedWeight, Weight

# So many scores are computed at a time.
SCORES = 2**20
MASKED = mx.array(np.array(-1e30), dtype=mx.float64)


@kernel("std.nn.linear::linear", policies=("wide",))
def linear(x: mx.array, weight: Weight, bias: mx.array | None = None) -> mx.array:
    """x [.., In], weight [Out, In], bias [Out] -> [.., Out]: the sum is rounded to f32, the bias added there.

    A packed weight is rounded as it is decoded, as the bodies and torch have it.
    """
    result = weight.wide_product(x) if isinstance(weight, QuantisedWeight) else wide_product(x, weight)
    return (result if bias is None else result + bias.astype(mx.float32)).astype(x.dtype)


def attend(
    query: mx.array,
    key: mx.array,
    value: mx.array,
    scale: mx.array,
    mask: mx.array | str | None,
    sinks: mx.array | None,
) -> mx.array:
    """As `kernels.attention.attend`, with scores, softmax and the weighted sum in f64, some queries at a time, so that
    long prompts take no more memory than short ones."""
    if not query.size or not key.size:
        return mx.zeros(query.shape, dtype=query.dtype)
    queries, keys = query.shape[2], key.shape[2]
    rows = max(1, SCORES // (query.shape[0] * query.shape[1] * keys))
    if rows >= queries:
        return _attend(query, key, value, scale, mask, sinks)
    key, value = key.astype(mx.float64), value.astype(mx.float64)
    pieces: list[mx.array] = []
    for start in range(0, queries, rows):
        stop = min(start + rows, queries)
        piece = query[:, :, start:stop]
        if pieces:
            # One after another, else MLX begins with many.
            (piece,) = mx.depends([piece], [pieces[-1]])
        seen = keys - queries + stop if isinstance(mask, str) else keys
        part = mask[..., start:stop, :] if isinstance(mask, mx.array) else mask
        pieces.append(_attend(piece, key[:, :, :seen], value[:, :, :seen], scale, part, sinks))
    return mx.concatenate(pieces, axis=2)


def _attend(
    query: mx.array,
    key: mx.array,
    value: mx.array,
    scale: mx.array,
    mask: mx.array | str | None,
    sinks: mx.array | None,
) -> mx.array:
    (b, h, q, d), (hk, k) = query.shape, key.shape[1:3]
    groups = query.astype(mx.float64).reshape(b, hk, h // hk * q, d)
    scores = mx.matmul(groups, key.astype(mx.float64).swapaxes(2, 3)).reshape(b, hk, h // hk, q, k)
    scores = scores * scale.astype(mx.float64)
    if isinstance(mask, str):
        mask = mx.arange(k) <= mx.arange(q)[:, None] + (k - q)
    if mask is not None:
        scores = mx.where(mask[:, None, None] if mask.ndim == 3 else mask, scores, MASKED)
    if sinks is not None:
        extra = mx.broadcast_to(sinks.astype(mx.float64).reshape(1, hk, h // hk, 1, 1), (b, hk, h // hk, q, 1))
        scores = mx.concatenate([scores, extra], axis=-1)
    powers = functions.exp(scores - mx.max(scores, axis=-1, keepdims=True))
    weights = (powers / mx.sum(powers, axis=-1, keepdims=True))[..., :k].reshape(b, hk, h // hk * q, k)
    return mx.matmul(weights, value.astype(mx.float64)).reshape(b, h, q, d).astype(query.dtype)


def attention(
    query: mx.array, key: mx.array, value: mx.array, scale: mx.array, mask: mx.array | None = None
) -> mx.array:
    """query [B, H, Q, D]; key, value [B, Hk, K, D]; mask [Q, K] or [B, Q, K]; `Hk` equals `H` when not grouped."""
    return attend(query, key, value, scale, mask, None)


for _op in OPS:
    kernel(_op, policies=("wide",))(attention)


@kernel("std.nn.attention::sink_attention", policies=("wide",))
def sink_attention(
    query: mx.array, key: mx.array, value: mx.array, sinks: mx.array, scale: mx.array, mask: mx.array
) -> mx.array:
    """As grouped attention by rows, with one more logit per query head, sinks [Hq], in the denominator."""
    return attend(query, key, value, scale, mask, sinks)


def attend_prefix(run: Run, query: mx.array, key: mx.array, value: mx.array, scale: mx.array, *start: Any) -> mx.array:
    """As `kernels.attention.attend_prefix`."""
    keys, mask = prefix(run, query.shape[2], key.shape[2], *start)
    return attend(query, key[:, :, :keys], value[:, :, :keys], scale, mask, None)
