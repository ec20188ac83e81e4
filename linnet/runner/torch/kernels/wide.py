"""Kernels of `engine` on a CPU, which take sums and exponentials in f64: see `linnet.runner.wide`."""

from __future__ import annotations

import torch
from torch import Tensor

from linnet.runner.torch.kernels.attention import attend

# So many weights are widened at a time, which a processor's cache holds.
PIECE = 2**18


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x [.., In], weight [Out, In], bias [Out] -> [.., Out]: the sum is rounded to f32, the bias added there."""
    wide = x.double()
    # As under `equivalent`, what is f64 stays so.
    between = torch.promote_types(x.dtype, torch.float32)
    rows = max(1, PIECE // max(1, weight.shape[1]))
    starts = range(0, max(1, len(weight)), rows)
    product = torch.cat([(wide @ weight[i : i + rows].double().mT).to(between) for i in starts], dim=-1)
    return (product if bias is None else product + bias.to(between)).to(x.dtype)


def attention(query: Tensor, key: Tensor, value: Tensor, scale: Tensor, mask: Tensor | None = None) -> Tensor:
    """query [B, H, Q, D]; key, value [B, Hk, K, D]; mask [Q, K] or [B, Q, K]; `Hk` equals `H` when not grouped."""
    return attend(query, key, value, scale, mask, None, torch.float64)


def sink_attention(query: Tensor, key: Tensor, value: Tensor, sinks: Tensor, scale: Tensor, mask: Tensor) -> Tensor:
    """As grouped attention by rows, with one more logit per query head, sinks [Hq], in the denominator."""
    return attend(query, key, value, scale, mask, sinks, torch.float64)
