"""Attention of a graph that is being compiled: what no query sees is never read.

A mask that lets query `q` see the keys up to `q + start` is recognised from its arithmetic. Then only the filled part
of a cache is read, and under `fast` torch's fused attention runs causally, or without a mask at all for one query. Its
scores are in f32 inside, with one rounding at the end, and the weights may be rounded on the way; query heads that
share a key/value head are laid side by side, so that keys and values are not repeated.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from linnet.language.program.core import CoreNode, Graph, TensorSpec, Value
from linnet.runner.affine import Indices
from linnet.runner.rewriting import Rewriter, is_call, named, native, replace_nodes
from linnet.runner.torch.dtypes import CARRIED
from linnet.runner.torch.kernels import Policy
from linnet.runner.torch.kernels.attention import MASKED, attend
from linnet.runner.torch.kernels.wide import rows_at_once

DENSE = (
    "std.nn.attention::attention",
    "std.nn.attention::grouped_attention",
    "std.nn.attention::attention_rows",
    "std.nn.attention::grouped_attention_rows",
)


def read_prefixes(graph: Graph, policy: Policy, on_host: bool) -> None:
    """Replace dense attention by one that reads what its mask lets through; under `fast`, by torch's own.

    With `on_host`, where a prefix ends is a Python number; without, shapes stay the same whatever the position.
    """
    indices = Indices(graph)
    biases: dict[Value, Value] = {}
    replace_nodes(graph, lambda node, pass_: _attention(node, pass_, indices, biases, policy, on_host))


def _attention(
    node: CoreNode, graph: Rewriter, indices: Indices, biases: dict[Value, Value], policy: Policy, on_host: bool
) -> CoreNode | None:
    if not is_call(node, *DENSE):
        return None
    inputs = named(node)
    query, key, value, scale = (inputs[name] for name in ("query", "key", "value", "scale"))
    mask = inputs.get("mask")
    spec = node.outputs[0].spec
    if not query.spec.size or not key.spec.size:
        return None
    prefix = indices.prefix(mask) if mask is not None else None
    if prefix is not None and (prefix.symbol is None or on_host):
        # A constant prefix that begins before the first key leaves a query without any: the definition averages.
        if prefix.symbol is None and prefix.constant < 0:
            return None
        function = fused_prefix if policy.fast else wide_prefix if policy.wide else plain_prefix
        symbols = (prefix.symbol,) if prefix.symbol is not None else ()
        values = (query, key, value, scale, *symbols)
        numbers = [3, 4] if symbols else [3]
        start = (prefix.constant,) if symbols else (0, prefix.constant)
        return native(function, values, (spec,), constants=start, numbers=numbers, like=node)
    if not policy.fast:
        return None
    if mask is None:
        return native(fused_all, (query, key, value, scale), (spec,), numbers=[3], like=node)
    if query.spec.dtype == "f16":
        # No f16 number is low enough that scores vanish beside it where a query sees nothing.
        return None
    bias = biases.get(mask)
    if bias is None:
        made = native(bias_of, (mask,), (TensorSpec(mask.spec.shape, spec.dtype),), constants=(query.spec.dtype,))
        bias = biases[mask] = graph.emit(made).outputs[0]
    return native(fused_masked, (query, key, value, scale, bias), (spec,), numbers=[3], like=node)


def plain_prefix(query: Tensor, key: Tensor, value: Tensor, scale: float, start: int, constant: int) -> Tensor:
    """As the op's kernel, over the keys that some query sees: query q sees k <= q + start + constant.

    query [B, H, Q, D]; key, value [B, Hk, K, D] -> [B, H, Q, D].
    """
    return _prefix(query, key, value, scale, start + constant, torch.float32)


def wide_prefix(query: Tensor, key: Tensor, value: Tensor, scale: float, start: int, constant: int) -> Tensor:
    """`plain_prefix` in f64, some queries at a time."""
    start += constant
    rows, queries = rows_at_once(query, key), query.shape[2]
    if rows >= queries:
        return _prefix(query, key, value, scale, start, torch.float64)
    key, value = key.double(), value.double()
    pieces = [
        _prefix(query[:, :, i : i + rows], key, value, scale, start + i, torch.float64) for i in range(0, queries, rows)
    ]
    return torch.cat(pieces, dim=2)


def _prefix(query: Tensor, key: Tensor, value: Tensor, scale: float, start: int, wide: torch.dtype) -> Tensor:
    if start < 0:
        mask = _triangle(query.shape[2], key.shape[2], start, query.device)
        return attend(query, key, value, scale, mask, None, wide)
    length = _visible(query, key, start)
    prefix = _triangle(query.shape[2], length, start, query.device) if query.shape[2] > 1 else None
    return attend(query, key[:, :, :length], value[:, :, :length], scale, prefix, None, wide)


def fused_prefix(query: Tensor, key: Tensor, value: Tensor, scale: float, start: int, constant: int) -> Tensor:
    """`plain_prefix` by torch's fused attention."""
    if start + constant < 0:
        return plain_prefix(query, key, value, scale, start, constant)
    start += constant
    b, h, q, d = query.shape
    length, hk = _visible(query, key, start), key.shape[1]
    key, value = key[:, :, :length], value[:, :, :length]
    attention = functional.scaled_dot_product_attention
    if q == 1:
        return attention(query.reshape(b, hk, h // hk, d), key, value, scale=scale).view(b, h, 1, d)
    causal = start == 0 and length == q
    mask = None if causal else _triangle(q, length, start, query.device)
    if h == hk or mask is None or query.device.type == "cpu":
        return attention(query, key, value, attn_mask=mask, is_causal=causal, scale=scale, enable_gqa=h != hk)
    # A GPU's kernel for masks would repeat the keys. One call for each query head of a group reads them where they are.
    groups = query.reshape(b, hk, h // hk, q, d)
    heads = [attention(group, key, value, attn_mask=mask, is_causal=causal, scale=scale) for group in groups.unbind(2)]
    return torch.stack(heads, dim=2).view(b, h, q, d)


def fused_all(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
    """Attention without a mask: query [B, H, Q, D]; key, value [B, Hk, K, D] -> [B, H, Q, D]."""
    return _folded(query, key, value, None, scale)


def fused_masked(query: Tensor, key: Tensor, value: Tensor, scale: float, bias: Tensor) -> Tensor:
    """Attention with a bias [Q, K] or [B, Q, K] on the scores."""
    return _folded(query, key, value, bias, scale)


def bias_of(mask: Tensor, dtype: str) -> Tensor:
    """A mask [.., Q, K] as a bias: 0 where a key is seen; elsewhere so low that it weighs nothing beside one that is,
    yet finite, so that a query that sees nothing averages."""
    return torch.zeros(mask.shape, dtype=CARRIED[dtype], device=mask.device).masked_fill_(~mask, MASKED)


def _folded(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, scale: float) -> Tensor:
    """The query heads of one key/value head as more queries of it."""
    b, h, q, d = query.shape
    hk = key.shape[1]
    if bias is not None:
        bias = bias[:, None] if bias.dim() == 3 else bias
        bias = bias.repeat(*[1] * (bias.dim() - 2), h // hk, 1)
    folded = query.reshape(b, hk, h // hk * q, d)
    return functional.scaled_dot_product_attention(folded, key, value, attn_mask=bias, scale=scale).view(b, h, q, d)


def _visible(query: Tensor, key: Tensor, start: int) -> int:
    """How many keys the last query sees, that is, any query."""
    return min(key.shape[2], start + query.shape[2])


def _triangle(queries: int, keys: int, start: int, device: torch.device) -> Tensor:
    """[queries, keys]: k <= q + start."""
    return torch.ones(queries, keys, dtype=torch.bool, device=device).tril_(start)
