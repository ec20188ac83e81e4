"""Scaled dot-product attention by `mx.fast`: grouped heads as they are, keys and values not repeated.

Under `equivalent` and `engine` scores, softmax and the weighted sum are in f32 and rounded once; under `fast` MLX is
given the inputs' own dtype, and rounds between where the device's kernel does.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from linnet.runner.mlx.kernels import kernel
from linnet.runner.mlx.primitives import Run

OPS = tuple(
    f"std.nn.attention::{name}"
    for name in ("attention", "attention_rows", "grouped_attention", "grouped_attention_rows")
)


def attend(
    query: mx.array, key: mx.array, value: mx.array, scale: float, mask: mx.array | str | None, sinks: mx.array | None
) -> mx.array:
    """query [B, H, Q, D]; key, value [B, Hk, K, D]; mask [Q, K] or [B, Q, K] bool, or "causal" (the last query sees
    the last key); sinks [H] -> [B, H, Q, D]."""
    if not query.size or not key.size:
        return mx.zeros(query.shape, dtype=query.dtype)
    if isinstance(mask, mx.array) and mask.ndim == 3:
        mask = mask[:, None]
    return mx.fast.scaled_dot_product_attention(query, key, value, scale=scale, mask=mask, sinks=sinks)


def _wide(
    query: mx.array,
    key: mx.array,
    value: mx.array,
    scale: mx.array,
    mask: mx.array | str | None,
    sinks: mx.array | None,
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


def attend_prefix(run: Run, query: mx.array, key: mx.array, value: mx.array, scale: mx.array, *start: Any) -> mx.array:
    """As `attention` by a mask that lets query q see the keys up to `q + start`, which alone are read: `start` is an
    integer scalar where it is not known beforehand, and a number to add."""
    keys, mask = prefix(run, query.shape[2], key.shape[2], *start)
    return _wide(query, key[:, :, :keys], value[:, :, :keys], scale, mask, None)


def attend_prefix_in_dtype(
    run: Run, query: mx.array, key: mx.array, value: mx.array, scale: mx.array, *start: Any
) -> mx.array:
    """As `attend_prefix`, in the inputs' dtype; `scale` does not depend on a run."""
    keys, mask = prefix(run, query.shape[2], key.shape[2], *start)
    return attend(query, key[:, :, :keys], value[:, :, :keys], float(scale.item()), mask, None)  # type: ignore[arg-type]


def prefix(run: Run, queries: int, keys: int, *start: Any) -> tuple[int, mx.array | str | None]:
    """How many of the keys some query may see, and the mask over those."""
    *symbol, constant = start
    first: int | None = constant
    last = first
    if symbol:
        at, most = run.position(symbol[0])
        first = None if at is None else at + constant
        last = None if most is None else most + constant
    # A query that sees nothing sees all alike.
    seen = keys if last is None or (first is not None and first < 0) else min(last + queries, keys)
    if first == seen - queries:
        return seen, "causal" if queries > 1 else None
    begin = symbol[0].astype(mx.int32) + constant if symbol else constant
    return seen, mx.arange(seen) <= mx.arange(queries)[:, None] + begin


@kernel("std.nn.attention::sink_attention")
def sink_attention(
    query: mx.array, key: mx.array, value: mx.array, sinks: mx.array, scale: mx.array, mask: mx.array
) -> mx.array:
    """As grouped attention by rows, with one more logit per query head, sinks [Hq], in the denominator."""
    return _wide(query, key, value, scale, mask, sinks)
