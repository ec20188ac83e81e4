"""Scaled dot-product attention by `mx.fast`: grouped heads as they are, keys and values not repeated.

Under `equivalent` and `engine` scores, softmax and the weighted sum are in f32 and rounded once; under `fast` MLX is
given the inputs' own dtype, and rounds between where the device's kernel does.
"""

from __future__ import annotations

import mlx.core as mx

from linnet.runner.mlx.kernels import kernel

OPS = tuple(
    f"std.nn.attention::{name}"
    for name in ("attention", "attention_rows", "grouped_attention", "grouped_attention_rows")
)


def attend(
    query: mx.array, key: mx.array, value: mx.array, scale: float, mask: mx.array | None, sinks: mx.array | None
) -> mx.array:
    """query [B, H, Q, D]; key, value [B, Hk, K, D]; mask [Q, K] or [B, Q, K] bool; sinks [H] -> [B, H, Q, D]."""
    if not query.size or not key.size:
        return mx.zeros(query.shape, dtype=query.dtype)
    if mask is not None and mask.ndim == 3:
        mask = mask[:, None]
    return mx.fast.scaled_dot_product_attention(query, key, value, scale=scale, mask=mask, sinks=sinks)


def _wide(
    query: mx.array, key: mx.array, value: mx.array, scale: mx.array, mask: mx.array | None, sinks: mx.array | None
) -> mx.array:
    """In f32, where queries may be scaled beforehand by a number that only a run knows."""
    q, k, v = (x.astype(mx.float32) for x in (query, key, value))
    wide = None if sinks is None else sinks.astype(mx.float32)
    return attend(q * scale, k, v, 1.0, mask, wide).astype(query.dtype)


def attention(
    query: mx.array, key: mx.array, value: mx.array, scale: mx.array, mask: mx.array | None = None
) -> mx.array:
    """query [B, H, Q, D]; key, value [B, Hk, K, D]; mask [Q, K] or [B, Q, K]; `Hk` equals `H` when not grouped."""
    return _wide(query, key, value, scale, mask, None)


def attention_in_dtype(
    query: mx.array, key: mx.array, value: mx.array, scale: float, mask: mx.array | None = None
) -> mx.array:
    """As `attention`, in the inputs' dtype."""
    return attend(query, key, value, scale, mask, None)


for _op in OPS:
    kernel(_op, policies=("equivalent", "engine"))(attention)
    kernel(_op, policies=("fast",), numbers=("scale",))(attention_in_dtype)


@kernel("std.nn.attention::sink_attention")
def sink_attention(
    query: mx.array, key: mx.array, value: mx.array, sinks: mx.array, scale: mx.array, mask: mx.array
) -> mx.array:
    """As grouped attention by rows, with one more logit per query head, sinks [Hq], in the denominator."""
    return _wide(query, key, value, scale, mask, sinks)
