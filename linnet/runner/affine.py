"""What integer tensors of a graph hold, where it is a sum of positions: `2 * i - j + 3 + pos` for the element [i, j].

Masks and positions are written as arithmetic on `iota`; knowing what it comes to tells a causal mask from any other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from linnet.language.program.core import CoreNode, Graph, Value

FLIPPED = {"le": "ge", "lt": "gt", "ge": "le", "gt": "lt"}


@dataclass(frozen=True)
class Affine:
    """`sum(steps[axis] * index[axis]) + constant`, plus the one element of `symbol` where there is one.

    Axes of length 1 have no step.
    """

    steps: Mapping[int, int]
    constant: int = 0
    symbol: Value | None = None

    def plus(self, other: Affine, sign: int) -> Affine | None:
        if other.symbol is not None and (self.symbol is not None or sign < 0):
            return None
        steps = {
            axis: self.steps.get(axis, 0) + sign * other.steps.get(axis, 0) for axis in {*self.steps, *other.steps}
        }
        kept = {axis: step for axis, step in steps.items() if step}
        return Affine(kept, self.constant + sign * other.constant, self.symbol or other.symbol)

    def moved(self, axes: Mapping[int, int]) -> Affine:
        return replace(self, steps={axes[axis]: step for axis, step in self.steps.items()})


@dataclass(frozen=True)
class Prefix:
    """A mask [Q, K] that is true where `k <= q + constant + symbol`: each query sees one position more."""

    constant: int
    symbol: Value | None


class Indices:
    """Reads the integer values of one graph."""

    def __init__(self, graph: Graph) -> None:
        self._producers = {value: node for node in graph.nodes for value in node.outputs}
        self._known: dict[Value, Affine | None] = {}

    def of(self, value: Value) -> Affine | None:
        """What `value` holds; None where that is no sum of positions."""
        if value not in self._known:
            self._known[value] = self._read(value)
        return self._known[value]

    def counts_up(self, value: Value) -> bool:
        """Whether a vector holds 0, 1, 2, .."""
        found = self.of(value)
        length = value.spec.shape[0]
        return found is not None and found == Affine({0: 1} if length > 1 else {})

    def prefix(self, mask: Value) -> Prefix | None:
        """The mask as a prefix of each query's keys, if that is what it is."""
        node = self._producers.get(mask)
        while node is not None and node.op in ("reshape", "broadcast") and _same_matrix(node):
            node = self._producers.get(node.inputs[0])
        if node is None or node.op not in FLIPPED:
            return None
        op, (a, b) = node.op, node.inputs
        if op in ("ge", "gt"):
            op, a, b = FLIPPED[op], b, a
        shape = node.outputs[0].spec.shape
        if len(shape) < 2 or any(n != 1 for n in shape[:-2]):
            return None
        left, right = self._aligned(a, shape), self._aligned(b, shape)
        # a <= b  where  b - a = q - k + constant + symbol
        distance = right.plus(left, -1) if left is not None and right is not None else None
        if distance is None:
            return None
        q, k = len(shape) - 2, len(shape) - 1
        wanted = {axis: step for axis, step in ((q, 1), (k, -1)) if shape[axis] > 1}
        if dict(distance.steps) != wanted:
            return None
        return Prefix(distance.constant - (op == "lt"), distance.symbol)

    def _aligned(self, value: Value, shape: Sequence[int]) -> Affine | None:
        """`value` broadcast to `shape`."""
        found = self.of(value)
        offset = len(shape) - len(value.spec.shape)
        return found.moved({axis: axis + offset for axis in found.steps}) if found is not None else None

    def _read(self, value: Value) -> Affine | None:
        if value.spec.dtype not in ("i32", "i64"):
            return None
        node = self._producers.get(value)
        found = self._of_node(node) if node is not None else None
        if found is None and value.spec.size == 1:
            return Affine({}, symbol=value)
        return found

    def _of_node(self, node: CoreNode) -> Affine | None:
        spec = node.outputs[0].spec
        match node.op:
            case "constant":
                return Affine({}, int(node.attributes["value"]))
            case "iota":
                return Affine({0: 1} if spec.shape[0] > 1 else {})
            case "cast":
                return self.of(node.inputs[0])
            case "add" | "sub":
                a, b = (self._aligned(value, spec.shape) for value in node.inputs)
                return a.plus(b, 1 if node.op == "add" else -1) if a is not None and b is not None else None
            case "broadcast":
                return self._aligned(node.inputs[0], spec.shape)
            case "reshape":
                found = self.of(node.inputs[0])
                axes = _unit_axes_apart(node.inputs[0].spec.shape, spec.shape)
                return found.moved(axes) if found is not None and axes is not None else None
        return None


def _unit_axes_apart(source: Sequence[int], result: Sequence[int]) -> dict[int, int] | None:
    """Where each longer axis goes in a reshape that only adds or drops axes of length 1."""
    long = [axis for axis, n in enumerate(source) if n != 1]
    kept = [axis for axis, n in enumerate(result) if n != 1]
    if [source[axis] for axis in long] != [result[axis] for axis in kept]:
        return None
    return dict(zip(long, kept, strict=True))


def _same_matrix(node: CoreNode) -> bool:
    """Whether a reshape or broadcast leaves the last two axes as they are and only adds or drops axes of length 1."""
    a, b = node.inputs[0].spec.shape, node.outputs[0].spec.shape
    return a[-2:] == b[-2:] and all(n == 1 for n in (*a[:-2], *b[:-2]))
