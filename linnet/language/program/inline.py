"""A graph with the bodies of op calls in their places: what a backend compiles, where the interpreter would call."""

from __future__ import annotations

from collections.abc import Callable

from linnet.language.program.core import CoreNode, Graph, Value
from linnet.language.program.passes import simplify


def inline_calls(graph: Graph, keep: Callable[[CoreNode], bool]) -> Graph:
    """A copy of `graph` in which the body of each call that `keep` refuses stands in the call's place, simplified.

    The copy shares no value or node with `graph`, so that passes may change it in place; the bodies of kept calls are
    shared. Regions of control flow are copied and inlined likewise. A gather has the identity of the op it stood in as
    its attribute `within`, for what an error says.
    """
    copied = _copy(graph, keep, None)
    simplify(copied)
    return copied


def _copy(graph: Graph, keep: Callable[[CoreNode], bool], within: str | None) -> Graph:
    values = {value: Value(value.spec, value.name) for value in graph.inputs}
    nodes: list[CoreNode] = []
    _append(graph, values, nodes, keep, within)
    return Graph(tuple(values[value] for value in graph.inputs), nodes, tuple(values[value] for value in graph.outputs))


def _append(
    graph: Graph,
    values: dict[Value, Value],
    nodes: list[CoreNode],
    keep: Callable[[CoreNode], bool],
    within: str | None,
) -> None:
    """Append copies of the nodes of `graph` to `nodes`; `values` maps its inputs, and then all its values, to the
    copy's."""
    for node in graph.nodes:
        inputs = tuple(values[value] for value in node.inputs)
        if node.op == "call" and not keep(node):
            body = node.regions[0]
            inner = dict(zip(body.inputs, inputs, strict=True))
            _append(body, inner, nodes, keep, node.attributes["op"])
            values.update(zip(node.outputs, (inner[value] for value in body.outputs), strict=True))
            continue
        outputs = tuple(Value(value.spec, value.name) for value in node.outputs)
        values.update(zip(node.outputs, outputs, strict=True))
        regions = node.regions if node.op == "call" else tuple(_copy(region, keep, within) for region in node.regions)
        attributes = {**node.attributes, "within": within} if node.op == "gather" else node.attributes
        nodes.append(CoreNode(node.op, inputs, outputs, attributes, regions, node.span))
