"""Linear maps, lookups, normalisations, activations and elementwise ops.

Shapes are the ops' own: `x` is [.., In], weights are [Out, In], norms and softmax work on the last axis. Matrix
products of f16 and bf16 accumulate in f32 inside torch and round once, as the bodies do (on a GPU because a run asks
for it: `full_precision`); statistics are taken in f32.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from linnet.runner.bounds import Bound
from linnet.runner.torch.dtypes import BITS
from linnet.runner.torch.kernels import Call, kernel
from linnet.runner.torch.primitives import ordered


@kernel("std.nn.linear::linear")
def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x [.., In], weight [Out, In], bias [Out] -> [.., Out]."""
    return functional.linear(x, weight, bias)


@kernel("std.nn.mlp::swiglu")
def swiglu(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    """x [.., H], gate and up [Inner, H], down [H, Inner] -> [.., H]; each of five steps rounds to x's dtype."""
    inner = functional.silu(functional.linear(x, gate)) * functional.linear(x, up)
    return functional.linear(inner, down)


@kernel("std.nn.embedding::embedding", lambda shapes: [Bound("ids", shapes["table"][0], "table")])
def embedding(ids: Tensor, table: Tensor) -> Tensor:
    """ids [..] i32, table [Vocab, H] -> [.., H]."""
    return functional.embedding(ids, table)


@kernel("std.nn.norm::rms_norm")
def rms_norm(x: Tensor, weight: Tensor, eps: Tensor) -> Tensor:
    """x [.., H], weight [H], eps f32: the normalised value is rounded to x's dtype, then multiplied by weight."""
    wide = x.float()
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (wide * scale).to(x.dtype) * weight


@kernel("std.nn.norm::layer_norm")
def layer_norm(x: Tensor, weight: Tensor, eps: Tensor, bias: Tensor | None = None) -> Tensor:
    """x [.., H], weight and bias [H], eps f32: normalised in f32, rounded, then weighted and shifted in x's dtype."""
    wide = x.float()
    centred = wide - wide.mean(-1, keepdim=True)
    scale = torch.rsqrt(centred.square().mean(-1, keepdim=True) + eps)
    normal = (centred * scale).to(x.dtype) * weight
    return normal if bias is None else normal + bias


@kernel("std.nn.softmax::softmax")
def softmax(x: Tensor) -> Tensor:
    """Over the last axis, in f32, rounded once."""
    return torch.softmax(x, dim=-1, dtype=torch.float32).to(x.dtype)


@kernel("std.nn.activations::relu")
def relu(x: Tensor) -> Tensor:
    return functional.relu(x)


@kernel("std.nn.activations::sigmoid")
def sigmoid(x: Tensor) -> Tensor:
    """torch computes f16 and bf16 in f32 and rounds once, as here and in the two below the body says."""
    return torch.sigmoid(x)


@kernel("std.nn.activations::silu")
def silu(x: Tensor) -> Tensor:
    return functional.silu(x)


@kernel("std.nn.activations::gelu")
def gelu(x: Tensor) -> Tensor:
    """The tanh form."""
    return functional.gelu(x, approximate="tanh")


@kernel("std.nn.activations::gelu_erf")
def gelu_erf(x: Tensor) -> Tensor:
    """The erf form, with torch's erf where the body has its approximation.

    At the edge of f32 the two differ, except in f64: on a CPU torch gives inf from 1.71e38 up, where the body gives x,
    and NaN for inf, where the body gives inf. For -inf both give NaN.
    """
    return functional.gelu(x)


def _rotated(x: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


@kernel("std.nn.rope::rope")
def rope(x: Tensor, cos_table: Tensor, sin_table: Tensor) -> Tensor:
    """x [B, H, S, D], tables [S, D]: x * cos + rotate_half(x) * sin, each step rounded to x's dtype."""
    return x * cos_table + _rotated(x) * sin_table


@kernel("std.nn.rope::rope_rows")
def rope_rows(x: Tensor, cos_table: Tensor, sin_table: Tensor) -> Tensor:
    """x [B, H, S, D], tables [B, S, D]."""
    return x * cos_table.unsqueeze(1) + _rotated(x) * sin_table.unsqueeze(1)


@kernel("std.nn.decoding::argmax")
def argmax(x: Tensor, *, call: Call) -> Tensor:
    """x [.., N] -> [..] i32, the first of equals; a row that holds NaN gives N."""
    size = x.shape[-1]
    if not size:
        return torch.full(x.shape[:-1], torch.iinfo(torch.int32).max, dtype=torch.int32, device=x.device)
    top, place = torch.max(ordered(x) if call.generics["T"] in BITS else x, dim=-1)
    return torch.where(top == top, place, size).to(torch.int32)


@kernel("std.nn.parallel::all_reduce")
@kernel("std.nn.parallel::shared")
def identity(x: Tensor) -> Tensor:
    """One process holds every shard, so there is nothing to exchange."""
    return x
