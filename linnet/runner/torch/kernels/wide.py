"""Kernels of `engine` on a CPU, which take sums and exponentials in f64: see `linnet.runner.wide`."""

from __future__ import annotations

import torch
from torch import Tensor

from linnet.runner.torch.kernels.attention import attend

# So many weights are widened at a time, which a processor's cache holds, and so many scores are.
PIECE = 2**18
SCORES = 2**20


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x [.., In], weight [Out, In], bias [Out] -> [.., Out]: the sum is rounded to f32, the bias added there."""
    wide = x.double()
    # As under `equivalent`, what is f64 stays so.
    between = torch.promote_types(x.dtype, torch.float32)
    rows = max(1, PIECE // max(1, weight.shape[1]))
    starts = range(0, max(1, len(weight)), rows)
    product = torch.cat([(wide @ weight[i : i + rows].double().mT).to(between) for i in starts], dim=-1)
    return (product if bias is None else product + bias.to(between)).to(x.dtype)


def rows_at_once(query: Tensor, key: Tensor) -> int:
    """How many queries of each head attend in one piece, so that long prompts take no more memory than short ones."""
    return max(1, SCORES // max(1, query.shape[0] * query.shape[1] * key.shape[2]))


def _attend(
    query: Tensor, key: Tensor, value: Tensor, scale: Tensor, mask: Tensor | None, sinks: Tensor | None
) -> Tensor:
    """`kernels.attention.attend` in f64, some queries at a time."""
    rows, queries = rows_at_once(query, key), query.shape[2]
    if rows >= queries:
        return attend(query, key, value, scale, mask, sinks, torch.float64)
    key, value = key.double(), value.double()

    def piece(chosen: slice) -> Tensor:
        seen = None if mask is None else mask[..., chosen, :]
        return attend(query[:, :, chosen], key, value, scale, seen, sinks, torch.float64)

    return torch.cat([piece(slice(i, i + rows)) for i in range(0, queries, rows)], dim=2)


def attention(query: Tensor, key: Tensor, value: Tensor, scale: Tensor, mask: Tensor | None = None) -> Tensor:
    """query [B, H, Q, D]; key, value [B, Hk, K, D]; mask [Q, K] or [B, Q, K]; `Hk` equals `H` when not grouped."""
    return _attend(query, key, value, scale, mask, None)


def sink_attention(query: Tensor, key: Tensor, value: Tensor, sinks: Tensor, scale: Tensor, mask: Tensor) -> Tensor:
    """As grouped attention by rows, with one more logit per query head, sinks [Hq], in the denominator."""
    return _attend(query, key, value, scale, mask, sinks)
