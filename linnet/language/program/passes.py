"""Passes over Core IR graphs, each in place. Scalars known at compile time are folded while the graph is built.

Both passes descend into control-flow regions. The bodies of op calls are shared between calls and were simplified
when they were built, so they are left alone.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from linnet.language.program.core import CoreNode, Graph, Value


def simplify(graph: Graph) -> None:
    """Common subexpressions, then dead code."""
    merge_common_subexpressions(graph)
    eliminate_dead_code(graph)


def merge_common_subexpressions(graph: Graph) -> None:
    """Compute equal values once. Nodes without effects are equal when their op, inputs and attributes are; a call's
    body stands for its op and generics."""
    first: dict[Hashable, CoreNode] = {}
    replaced: dict[Value, Value] = {}
    kept: list[CoreNode] = []
    for node in graph.nodes:
        if replaced:
            node.inputs = tuple(replaced.get(value, value) for value in node.inputs)
        if node.op == "state.write":
            kept.append(node)
            continue
        if node.regions and node.op != "call":
            for region in node.regions:
                merge_common_subexpressions(region)
            kept.append(node)
            continue
        known = first.setdefault(_key(node), node)
        if known is node:
            kept.append(node)
            continue
        for output, same in zip(node.outputs, known.outputs, strict=True):
            replaced[output] = same
            same.name = same.name or output.name
    graph.nodes = kept
    graph.outputs = tuple(replaced.get(value, value) for value in graph.outputs)


def _key(node: CoreNode) -> Hashable:
    if node.op == "call":
        return ("call", node.attributes["op"], node.inputs, node.regions)
    attributes = tuple(_attribute(item) for item in node.attributes.items())
    return (node.op, node.inputs, node.outputs[0].spec, attributes)


def _attribute(item: tuple[str, Any]) -> Hashable:
    name, value = item
    # repr tells 1 from 1.0 and True, and -0.0 from 0.0.
    return (name, repr(value)) if name == "value" else item


def eliminate_dead_code(graph: Graph) -> None:
    """Drop nodes whose results nothing reads. State writes are always read."""
    live: set[Value] = set(graph.outputs)
    kept: list[CoreNode] = []
    for node in reversed(graph.nodes):
        if node.op != "state.write" and live.isdisjoint(node.outputs):
            continue
        live.update(node.inputs)
        kept.append(node)
        if node.op != "call":
            for region in node.regions:
                eliminate_dead_code(region)
    kept.reverse()
    graph.nodes = kept
