"""Scaled dot-product attention with scores, softmax and the weighted sum in f32 or wider, and one rounding at the end.

Every kernel sees queries as [B, Hk, G * Q, D]: the G = H / Hk query heads that share a key/value head side by side,
so that keys and values are not repeated. A masked score is MASKED, finite as in the bodies: a query that sees nothing
averages.
"""

from __future__ import annotations

import torch
from torch import Tensor

from linnet.runner.bounds import Bound
from linnet.runner.torch.kernels import Call, kernel
from linnet.runner.torch.primitives import check_positions

MASKED = -1e30


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: float | Tensor,
    mask: Tensor | None,
    sinks: Tensor | None,
    wide: torch.dtype = torch.float32,
) -> Tensor:
    """query [B, H, Q, D]; key, value [B, Hk, K, D]; mask [Q, K] or [B, Q, K] bool; sinks [H] -> [B, H, Q, D]. `wide` is
    what all of it is computed in."""
    b, h, q, d = query.shape
    hk, k = key.shape[1], key.shape[2]
    if not hk:
        return torch.empty_like(query)
    groups = query.to(wide).reshape(b, hk, h // hk * q, d)
    scores = (groups @ key.to(wide).mT).view(b, hk, h // hk, q, k) * scale
    if mask is not None:
        scores = torch.where(mask[:, None, None] if mask.dim() == 3 else mask, scores, MASKED)
    if sinks is not None:
        extra = sinks.to(wide).view(1, hk, h // hk, 1, 1).expand(b, hk, h // hk, q, 1)
        scores = torch.cat((scores, extra), dim=-1)
    weights = torch.softmax(scores, dim=-1)[..., :k]
    mixed = weights.reshape(b, hk, h // hk * q, k) @ value.to(wide)
    return mixed.view(b, h, q, d).to(query.dtype)


@kernel("std.nn.attention::attention")
@kernel("std.nn.attention::attention_rows")
@kernel("std.nn.attention::grouped_attention")
@kernel("std.nn.attention::grouped_attention_rows")
def attention(query: Tensor, key: Tensor, value: Tensor, scale: Tensor, mask: Tensor | None = None) -> Tensor:
    """query [B, H, Q, D]; key, value [B, Hk, K, D]; mask [Q, K] or [B, Q, K]; `Hk` equals `H` when not grouped."""
    return attend(query, key, value, scale, mask, None)


@kernel("std.nn.attention::sink_attention")
def sink_attention(query: Tensor, key: Tensor, value: Tensor, sinks: Tensor, scale: Tensor, mask: Tensor) -> Tensor:
    """As grouped attention by rows, with one more logit per query head, sinks [Hq], in the denominator."""
    return attend(query, key, value, scale, mask, sinks)


@kernel("std.nn.attention::paged_attention", raises=True)
def paged_attention(
    query: Tensor, key: Tensor, value: Tensor, table: Tensor, positions: Tensor, scale: Tensor, *, call: Call
) -> Tensor:
    """query [B, Hq, 1, D]; key, value [1, Hk, N, D], a pool in pages of `Size`; table [B, Pages] i32; positions [B]
    i32.

    Raises IndexRangeError where a page that is read lies outside the pool.
    """
    return _paged(query, key, value, table, positions, scale, call.generics["Size"])


@kernel(
    "std.nn.attention::paged_prefill_attention",
    lambda shapes: [Bound("rows", shapes["table"][0], "table")],
    raises=True,
)
def paged_prefill_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    table: Tensor,
    rows: Tensor,
    positions: Tensor,
    scale: Tensor,
    *,
    call: Call,
) -> Tensor:
    """query [1, Hq, P, D]; token p attends as row `rows[p]` of table [Rows, Pages] does at `positions[p]`."""
    tokens = query.permute(2, 1, 0, 3)
    pages = table.index_select(0, rows)
    return _paged(tokens, key, value, pages, positions, scale, call.generics["Size"]).permute(2, 1, 0, 3)


def _paged(
    query: Tensor, key: Tensor, value: Tensor, table: Tensor, positions: Tensor, scale: Tensor, size: int
) -> Tensor:
    b, pages = table.shape
    hk, n, d = key.shape[1:]
    order = torch.arange(pages * size, device=table.device).view(1, pages, size)
    seen = order <= positions.view(b, 1, 1)
    at = torch.where(seen, table[:, :, None] * size + order[:, 0:1], 0).reshape(-1)
    check_positions(at, n, "key", "std.nn.attention::paged_attention")

    def pooled(x: Tensor) -> Tensor:
        return x[0].index_select(1, at).view(hk, b, pages * size, d).transpose(0, 1)

    return attend(query, pooled(key), pooled(value), scale, seen.view(b, 1, pages * size), None)
