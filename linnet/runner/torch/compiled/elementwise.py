"""Norms, rotary embeddings and gates of a graph compiled under `fast`: fewer passes, and one rounding at the end."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from linnet.language.program.core import CoreNode, Graph, TensorSpec, Value
from linnet.runner.rewriting import Rewriter, is_call, named, native, replace_nodes


def fuse_elementwise(graph: Graph) -> None:
    """Replace `rms_norm`, `rope` and `silu(a) * b` by forms that read and write less."""
    signed: dict[Value, Value] = {}
    replace_nodes(graph, lambda node, pass_: _faster(node, pass_, signed))


def _faster(node: CoreNode, graph: Rewriter, signed: dict[Value, Value]) -> CoreNode | None:
    spec = node.outputs[0].spec if node.outputs else TensorSpec((), "bool")
    if not spec.size:
        return None
    if is_call(node, "std.nn.norm::rms_norm") and spec.dtype != "f64":
        inputs = named(node)
        eps = graph.producers.get(inputs["eps"]) if "eps" in inputs else None
        if eps is None or eps.op != "constant":
            return None
        values = (inputs["x"], inputs["weight"], inputs["eps"])
        return native(rms_norm, values, (spec,), numbers=[2], like=node)
    if is_call(node, "std.nn.rope::rope"):
        inputs = named(node)
        table = inputs["sin_table"]
        if table not in signed:
            signed[table] = graph.emit(native(signed_sines, (table,), (table.spec,))).outputs[0]
        return native(rotate, (inputs["x"], inputs["cos_table"], signed[table]), (spec,), like=node)
    if node.op == "mul":
        gate = graph.producers.get(node.inputs[0])
        unspread = all(value.spec == spec for value in node.inputs)
        if gate is not None and is_call(gate, "std.nn.activations::silu") and unspread:
            return native(gated, (gate.inputs[0], node.inputs[1]), (spec,), like=node)
    return None


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x [.., H], weight [H] -> [.., H] in x's dtype; the norm is in f32, and rounded before the scaling.

    x beside -x has mean 0, so their variance is x's mean square, and torch has layer norm as one kernel.
    """
    width = x.shape[-1]
    doubled = functional.layer_norm(torch.cat((x, -x), dim=-1), (2 * width,), None, None, eps)
    return doubled.narrow(-1, 0, width) * weight


def signed_sines(table: Tensor) -> Tensor:
    """The sine table [.., D] with its first half negated: the signs that `rotate_half` gives to what it swaps."""
    first, second = table.chunk(2, dim=-1)
    return torch.cat((-first, second), dim=-1)


def rotate(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """x [B, H, S, D] rotated: `x * cos + swap(x) * signed sin`, where swap exchanges the halves of the last axis."""
    return torch.addcmul(x * cosines, x.roll(x.shape[-1] // 2, -1), sines)


def gated(gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate) * up."""
    return functional.silu(gate).mul_(up)
