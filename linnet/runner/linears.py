"""Linear layers of a graph: which nodes are one, and which of them read the same value.

A linear layer here is a call of `linear`, `fp8_linear` or `fp8_block_linear` whose weight, scale and bias are weights
of the model as they are. Those of one kind that read the same value can be one product: their weights lie one below the
other, and each takes its columns. What a product rounds is unchanged: every output column is its own sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from linnet.language.program.core import CoreNode, Graph
from linnet.runner.rewriting import Rewriter, named

KINDS = {
    "std.nn.linear::linear": "plain",
    "std.quant::fp8_linear": "fp8_row",
    "std.quant::fp8_block_linear": "fp8_block",
}


@dataclass(frozen=True, slots=True)
class LinearWeight:
    """One linear layer, or several side by side: paths of weights, scales and biases, and the outputs of each.

    `kind` is plain, fp8_row or fp8_block; `dtype` is the activations' ("bf16"), `width` the number of inputs, `block`
    the side of the blocks that have a scale.
    """

    kind: str
    dtype: str
    width: int
    block: int
    sizes: tuple[int, ...]
    weights: tuple[str, ...]
    scales: tuple[str, ...] = ()
    biases: tuple[str, ...] = ()


def linear_groups(graph: Graph, rewriter: Rewriter) -> list[tuple[list[CoreNode], list[LinearWeight]]]:
    """The linear layers of a graph, in order, those together that can be one product."""
    groups: dict[tuple[Any, ...], tuple[list[CoreNode], list[LinearWeight]]] = {}
    for node in graph.nodes:
        part = _weight_of(node, rewriter)
        if part is not None:
            key = (node.inputs[0], part.kind, part.dtype, bool(part.biases), part.block)
            nodes, parts = groups.setdefault(key, ([], []))
            nodes.append(node)
            parts.append(part)
    return list(groups.values())


def _weight_of(node: CoreNode, graph: Rewriter) -> LinearWeight | None:
    """The linear layer that a node is, where its tensors are weights of the model and its input has rows."""
    kind = KINDS.get(node.attributes.get("op", "")) if node.op == "call" else None
    if kind is None or len(node.inputs[0].spec.shape) < 2 or node.outputs[0].spec.size == 0:
        return None
    inputs = named(node)
    if not inputs["x"].spec.size:
        return None
    paths: dict[str, str] = {}
    for name, value in inputs.items():
        if name == "x":
            continue
        producer = graph.producers.get(value)
        if producer is None or producer.op != "param":
            return None
        paths[name] = producer.attributes["path"]
    scale = (paths["scale"],) if "scale" in paths else ()
    bias = (paths["bias"],) if "bias" in paths else ()
    out, width = inputs["weight"].spec.shape
    block = int(node.attributes["generics"]["Block"]) if kind == "fp8_block" else 0
    return LinearWeight(kind, inputs["x"].spec.dtype, width, block, (out,), (paths["weight"],), scale, bias)


def side_by_side(parts: Sequence[LinearWeight]) -> LinearWeight:
    """Several layers as one."""
    first = parts[0]
    return LinearWeight(
        first.kind,
        first.dtype,
        first.width,
        first.block,
        tuple(part.sizes[0] for part in parts),
        tuple(part.weights[0] for part in parts),
        tuple(scale for part in parts for scale in part.scales),
        tuple(bias for part in parts for bias in part.biases),
    )
