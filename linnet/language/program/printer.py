"""Core IR as stable text: what golden tests compare and what people read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from linnet.language.program.core import CoreNode, EntryGraph, Graph, ResultTree, Value

# What the regions of control flow are called; an op's body is printed apart.
REGION_TITLES = {"while": ("condition", "body"), "for": ("body",), "if": ("then", "otherwise")}


def print_entry(entry: EntryGraph) -> str:
    """The entry, then the body of every op that it calls, each once and numbered in order of first call.

    Values are numbered in order; a name that the source gives follows in a comment. Spans are left out, so that the
    text changes only when the computation does.
    """
    printer = _Printer()
    generics = _generics(entry.generics)
    printer.graph(f"entry {entry.name}{generics}", entry.graph, 0, _result(entry.result))
    return printer.finish()


def print_graph(graph: Graph) -> str:
    """A graph that stands alone, in the same form."""
    printer = _Printer()
    printer.graph("graph", graph, 0, None)
    return printer.finish()


class _Printer:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[Value, str] = {}
        self.bodies: dict[Graph, int] = {}
        self.waiting: list[tuple[CoreNode, Graph]] = []

    def finish(self) -> str:
        """Print the bodies seen so far, and those seen on the way."""
        for node, body in self.waiting:
            title = f"op #{self.bodies[body]} {node.attributes['op']}{_generics(node.attributes['generics'])}"
            self.lines.append("")
            self.names.clear()
            self.graph(title, body, 0, None)
        return "\n".join(self.lines) + "\n"

    def graph(self, title: str, graph: Graph, depth: int, result: str | None) -> None:
        margin = "  " * depth
        inputs = ", ".join(f"{self.define(value)}: {value.spec}" for value in graph.inputs)
        labels = [f" {value.name}" for value in graph.inputs if value.name]
        comment = f"  //{','.join(labels)}" if labels else ""
        self.lines.append(f"{margin}{title}({inputs}) {{{comment}}}".removesuffix("}"))
        for node in graph.nodes:
            self.node(node, depth + 1)
        arranged = f"  // {result}" if result is not None and result != "0" else ""
        outputs = ", ".join(self.names.get(value, "?") for value in graph.outputs)
        self.lines.append(f"{margin}  return {outputs}{arranged}")
        self.lines.append(f"{margin}}}")

    def define(self, value: Value) -> str:
        name = self.names[value] = f"%{len(self.names)}"
        return name

    def node(self, node: CoreNode, depth: int) -> None:
        margin = "  " * depth
        inputs = [self.names.get(value, "?") for value in node.inputs]
        outputs = ", ".join(self.define(value) for value in node.outputs)
        specs = ", ".join(str(value.spec) for value in node.outputs)
        if node.op == "call":
            names = node.attributes["parameters"]
            enums = node.attributes.get("enums", {})
            given = [*zip(names, inputs, strict=True), *enums.items()]
            passed = ", ".join(f"{name} = {value}" for name, value in given)
            text = f"call #{self.body(node)} {node.attributes['op']}({passed})"
        else:
            attributes = "".join(f" {name}={_plain(value)}" for name, value in node.attributes.items())
            text = f"{node.op}{attributes}({', '.join(inputs)})" if inputs else f"{node.op}{attributes}"
        left = f"{outputs} = " if outputs else ""
        right = f" : {specs}" if specs else ""
        labels = [value.name for value in node.outputs if value.name and node.op not in ("param", "state.read")]
        comment = f"  // {', '.join(labels)}" if labels else ""
        self.lines.append(f"{margin}{left}{text}{right}{comment}")
        for title, region in zip(REGION_TITLES.get(node.op, ()), node.regions, strict=False):
            self.graph(title, region, depth + 1, None)

    def body(self, node: CoreNode) -> int:
        (graph,) = node.regions
        if graph not in self.bodies:
            self.bodies[graph] = len(self.bodies) + 1
            self.waiting.append((node, graph))
        return self.bodies[graph]


def _plain(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, float) else str(value)


def _generics(values: Mapping[str, Any]) -> str:
    return f"<{', '.join(f'{name} = {_plain(value)}' for name, value in values.items())}>" if values else ""


def _result(tree: ResultTree) -> str:
    if isinstance(tree, tuple):
        return f"({', '.join(map(_result, tree))})"
    if isinstance(tree, dict):
        return "{" + ", ".join(f"{name}: {_result(item)}" for name, item in tree.items()) + "}"
    return "none" if tree is None else str(tree)
