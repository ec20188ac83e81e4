"""Nodes of a backend's own in a graph that is being compiled, and the edits that passes make to it.

A `native` node holds a torch function, its `function`, and trailing Python arguments, `constants`. Its inputs come
first. An input listed in `numbers` is handed over as a Python number. What it reads that is not in the graph (a weight
in a layout of the backend's own) is a `packed` node, whose `weight` says what it is made of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from linnet.language.program.core import CoreNode, Graph, TensorSpec, Value


def native(
    function: Callable[..., Any],
    inputs: Sequence[Value],
    specs: Sequence[TensorSpec],
    *,
    constants: Sequence[Any] = (),
    numbers: Sequence[int] = (),
    like: CoreNode | None = None,
) -> CoreNode:
    """A node that calls `function(*inputs, *constants)`; with several `specs` the function gives a sequence."""
    attributes = {"function": function, "constants": tuple(constants), "numbers": tuple(numbers)}
    outputs = tuple(Value(spec) for spec in specs)
    return CoreNode("native", tuple(inputs), outputs, attributes, span=like.span if like else None)


class Rewriter:
    """One pass over a graph in order: `emit` appends, `replace` says what stands for an old value from there on."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes: list[CoreNode] = []
        self._replaced: dict[Value, Value] = {}
        self.producers: dict[Value, CoreNode] = {value: node for node in graph.nodes for value in node.outputs}
        self.readers: dict[Value, list[CoreNode]] = {}
        for node in graph.nodes:
            for value in node.inputs:
                self.readers.setdefault(value, []).append(node)
        self.results = set(graph.outputs)

    def only_reader(self, value: Value) -> CoreNode | None:
        """The one node that reads `value`, once, where nothing else does."""
        readers = self.readers.get(value, [])
        return readers[0] if len(readers) == 1 and value not in self.results else None

    def emit(self, node: CoreNode) -> CoreNode:
        node.inputs = tuple(self._replaced.get(value, value) for value in node.inputs)
        self.nodes.append(node)
        return node

    def replace(self, old: Value, new: Value) -> None:
        self._replaced[old] = self._replaced.get(new, new)

    def finish(self) -> None:
        """Put the emitted nodes in the graph's place."""
        self.graph.nodes = self.nodes
        self.graph.outputs = tuple(self._replaced.get(value, value) for value in self.graph.outputs)


def replace_nodes(graph: Graph, replacement: Callable[[CoreNode, Rewriter], CoreNode | None]) -> None:
    """One pass that puts what `replacement` makes of a node of one output in its place; None leaves the node. By
    the rewriter that it is handed, `replacement` may emit what its node reads."""
    pass_ = Rewriter(graph)
    for node in graph.nodes:
        made = replacement(node, pass_)
        pass_.emit(node if made is None else made)
        if made is not None:
            pass_.replace(node.outputs[0], made.outputs[0])
    pass_.finish()


def named(node: CoreNode) -> Mapping[str, Value]:
    """The inputs of an op call by their parameters' names."""
    return dict(zip(node.attributes["parameters"], node.inputs, strict=True))


def is_call(node: CoreNode | None, *identities: str) -> bool:
    return node is not None and node.op == "call" and node.attributes["op"] in identities


def live(nodes: Iterable[CoreNode], outputs: Iterable[Value]) -> list[CoreNode]:
    """The nodes that `outputs` need, in their order."""
    needed = set(outputs)
    kept = []
    for node in reversed(list(nodes)):
        if needed.isdisjoint(node.outputs):
            continue
        needed.update(node.inputs)
        kept.append(node)
    return kept[::-1]
