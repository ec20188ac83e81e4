"""Where one layer of a model ends and the next begins, as an entry's graph tells.

A layer is an element of a block array that the root block holds: the weights below `layers.3.` are those of `layers.3`.
A value belongs to the last layer whose weights it is computed from. What the next one reads of those is what the layer
gives: the residual stream, in most models.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from linnet.language.program.core import CoreNode, Graph, Value
from linnet.language.program.types import FLOATS

_LAYER = re.compile(r"((?:[A-Za-z_]\w*\.)*?[A-Za-z_]\w*)\.(\d+)\.")


@dataclass(frozen=True, slots=True)
class Boundary:
    """What a layer gives the next: `name` is its path (`layers.3`)."""

    name: str
    value: Value


def boundaries(graph: Graph) -> list[Boundary]:
    """What each layer gives to what follows it, in the order of the layers; empty where there are none."""
    order: dict[str, int] = {}
    level: dict[Value, int] = {}
    for node in graph.nodes:
        own = _own_layer(node, order)
        reached = own if own is not None else max((level[value] for value in node.inputs if value in level), default=-1)
        level.update(dict.fromkeys(node.outputs, reached))
    weights = {value for node in graph.nodes if node.op == "param" for value in node.outputs}
    given: dict[int, Value] = {}
    for node in graph.nodes:
        after = max((level[value] for value in node.outputs), default=-1)
        for value in node.inputs:
            if 0 <= level.get(value, -1) < after and value not in weights and _is_stream(value):
                given.setdefault(level[value], value)
    last = len(order) - 1
    if last >= 0 and (final := _before_tail(graph, level, last)) is not None:
        given[last] = final
    names = list(order)
    return [Boundary(names[i], value) for i, value in sorted(given.items())]


def _own_layer(node: CoreNode, order: dict[str, int]) -> int | None:
    """The layer of a weight, numbered as they are met; None of other nodes, and of weights outside layers."""
    found = _LAYER.match(node.attributes["path"]) if node.op == "param" else None
    return order.setdefault(f"{found[1]}.{found[2]}", len(order)) if found is not None else None


def _before_tail(graph: Graph, level: dict[Value, int], last: int) -> Value | None:
    """What the last layer gives: the first of its values that a weight outside the layers is applied to."""
    params = {value for node in graph.nodes if node.op == "param" for value in node.outputs}
    for node in graph.nodes:
        if any(value in params and level[value] < 0 for value in node.inputs):
            for value in node.inputs:
                if level.get(value) == last and _is_stream(value):
                    return value
    return None


def _is_stream(value: Value) -> bool:
    return value.spec.dtype in FLOATS and len(value.spec.shape) > 0
