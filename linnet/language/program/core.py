"""Core IR: a typed, backend-neutral graph of one entry, with every shape and dtype concrete.

Values are in single-assignment form. A node is a primitive, an op call (which keeps its identity and
carries its body) or a control-flow node with regions. Regions and bodies are closed: they see only their
own inputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from linnet.language.source import Span

UNARY = frozenset("neg not abs exp log sqrt rsqrt sin cos tanh".split())
ARITHMETIC = frozenset("add sub mul div rem min max and or xor shl shr".split())
COMPARISON = frozenset("eq ne lt le gt ge".split())
BINARY = ARITHMETIC | COMPARISON
REDUCTIONS = frozenset("sum prod min max any all".split())

# name -> what its attributes and inputs are.
PRIMITIVES: Mapping[str, str] = {
    "constant": "no inputs; value: int, float or bool; a rank-0 result",
    "iota": "no inputs; [n] holding 0 .. n-1",
    "param": "no inputs; path: the weight's path (params and buffers)",
    "state.read": "no inputs; path; the state's value when the entry starts",
    "state.write": "one input, no outputs; path; the state's value when the entry ends",
    **dict.fromkeys(sorted(UNARY), "one input, same shape and dtype"),
    "cast": "one input, another dtype; float to integer truncates toward zero, as torch's .to()",
    **dict.fromkeys(sorted(ARITHMETIC), "two inputs of one dtype, broadcast (right-aligned)"),
    **dict.fromkeys(sorted(COMPARISON), "two inputs of one dtype, broadcast; bool"),
    "select": "bool condition, a, b, all broadcast",
    "reshape": "row-major order kept",
    "broadcast": "to the result's shape, right-aligned",
    "permute": "axes: result axis i is input axis axes[i]",
    "slice": "starts, stops, steps: one for each axis",
    "concat": "axis; one or more inputs",
    "cumsum": "axis; in the input's dtype",
    "gather": "x, then one integer tensor for each axis of `axes` (ascending), all of one shape I; "
    "result shape I + x's other axes in order; a position outside its axis is an error, never wrapped; "
    "label: how errors name x",
    "reduce": "kind (REDUCTIONS), axes; the axes are dropped; accumulates in the input's dtype; over no elements: "
    "sum 0, prod 1, any false, all true, max the dtype's lowest value (-inf for floats), min its highest",
    "contract": "a, b; spec: an einsum string such as 'ijk,lk->ijl'; sums products, accumulating in the inputs' dtype",
    "call": "op: identity; parameters: each input's name; generics: name -> int, dtype or shape; enums (where there "
    "are any): parameter -> variant; regions: the body",
    "while": "inputs: carried values, then captured ones; carried: how many are carried; regions: condition, body; "
    "both take all inputs; the condition returns one bool, the body the carried values; outputs: the carried values",
    "for": "as while, with start, stop (ints): one region, whose first input is the i64 counter, before carried and "
    "captured; it returns carried values, then yielded ones; outputs: carried, then each yield stacked (a new axis 0)",
    "if": "inputs: bool condition, captured values; regions: then, otherwise; both take the captured values",
}


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A concrete shape and dtype ("bf16", "i32", "bool", ...)."""

    shape: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        return f"[{', '.join(map(str, self.shape))}; {self.dtype}]" if self.shape else self.dtype

    @property
    def size(self) -> int:
        """Number of elements."""
        total = 1
        for n in self.shape:
            total *= n
        return total


@dataclass(slots=True, eq=False)
class Value:
    """One tensor. `name` is for people: a local's name where it has one."""

    spec: TensorSpec
    name: str = ""


@dataclass(slots=True, eq=False)
class CoreNode:
    op: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    regions: tuple[Graph, ...] = ()
    span: Span | None = None


@dataclass(slots=True, eq=False)
class Graph:
    inputs: tuple[Value, ...]
    nodes: list[CoreNode]
    outputs: tuple[Value, ...]

    def walk(self) -> Iterator[CoreNode]:
        """Every node, those of regions and op bodies included."""
        for node in self.nodes:
            yield node
            for region in node.regions:
                yield from region.walk()


# How a result is put together from a graph's flat outputs: an int is an output's position.
ResultTree = int | tuple["ResultTree", ...] | dict[str, "ResultTree"] | None


@dataclass(frozen=True, slots=True)
class EntryInput:
    name: str
    spec: TensorSpec


@dataclass(slots=True, eq=False)
class EntryGraph:
    """One entry with all its generics bound. `result` arranges `graph.outputs`: tuples as tuples, structs as dicts,
    an absent optional as None."""

    name: str
    generics: dict[str, int | str]
    inputs: tuple[EntryInput, ...]
    result: ResultTree
    graph: Graph
