"""Which integer inputs are safe: the values for which no position leaves its axis.

The smoke test draws its random tokens, positions, slots and lengths from these bounds.
"""

from __future__ import annotations

from collections.abc import Sequence

from linnet.language.program.core import COMPARISON, CoreNode, EntryGraph, Graph, Value
from linnet.language.program.intervals import (
    Add,
    Carried,
    Clipped,
    Expression,
    Extremum,
    Input,
    InputBoundsError,
    Interval,
    Known,
    Product,
    Quotient,
    Remainder,
    Scale,
    Solver,
    Union,
    Wrapped,
    dtype_interval,
)
from linnet.language.program.types import INTEGERS

# What an input that indexes nothing is drawn from.
DEFAULT_BOUNDS = (0, 1)
# Sums of inputs are shared out once the inputs that stand alone are known; later rounds see what earlier ones fixed.
MAX_ROUNDS = 4
PASS_THROUGH = frozenset({"reshape", "broadcast", "permute", "slice"})
SWAPPED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}

__all__ = ["DEFAULT_BOUNDS", "InputBoundsError", "input_bounds"]


def input_bounds(entry: EntryGraph) -> dict[str, tuple[int, int]]:
    """For each integer input the inclusive range of safe values, by name.

    Whatever is drawn from them, every `gather` stays inside its axis, op bodies and regions included, except where a
    position comes from the model's own results (the `argmax` of its logits) or from stored integers. The ranges are
    conservative: safe values may lie outside them. Raises InputBoundsError where no value is safe, as when a prompt is
    longer than the cache.
    """
    walk = _Walk()
    inputs = [value for value in entry.graph.inputs if value.spec.dtype in INTEGERS]
    known = {value: Input(value.name) for value in inputs}
    walk.run(entry.graph, dict(known), {})
    solver = Solver({value.name: dtype_interval(value.spec.dtype) for value in inputs})
    for _ in range(MAX_ROUNDS):
        before = dict(solver.bounds)
        for position, size in walk.positions:
            solver.require(position, 0, size - 1)
        if solver.split and solver.bounds == before:
            break
        solver.split = True
    return {value.name: _drawn(solver.bounds[value.name], dtype_interval(value.spec.dtype)) for value in inputs}


def _drawn(bounds: Interval, free: Interval) -> Interval:
    """Bounds to draw from: an open end is replaced by one near zero or near the other end."""
    low, high = bounds
    if high == free[1]:
        high = max(low, DEFAULT_BOUNDS[1])
    if low == free[0]:
        low = min(high, DEFAULT_BOUNDS[0])
    return low, high


Values = dict[Value, Expression]
# A comparison, as what it says of a value: `value op other`.
Conditions = dict[Value, list[tuple[str, Value, Expression]]]


class _Walk:
    """Reads a graph into expressions and collects every position that indexes an axis."""

    def __init__(self) -> None:
        self.positions: list[tuple[Expression, int]] = []
        self._indexing: dict[Graph, bool] = {}

    def run(self, graph: Graph, values: Values, conditions: Conditions) -> list[Expression]:
        """The expressions of the graph's outputs; `values` and `conditions` hold what is known of its inputs."""
        for node in graph.nodes:
            if node.op == "call":
                self._call(node, values)
            elif node.op in ("while", "for"):
                self._loop(node, values)
            elif node.op == "if":
                self._branches(node, values)
            elif node.op == "gather":
                self._gather(node, values)
            elif node.op in COMPARISON or node.op == "and":
                self._condition(node, values, conditions)
            elif node.outputs and node.outputs[0].spec.dtype in INTEGERS:
                values[node.outputs[0]] = self._arithmetic(node, values, conditions)
        return [self._of(value, values) for value in graph.outputs]

    def _of(self, value: Value, values: Values) -> Expression:
        known = values.get(value)
        if known is None:
            # Floats never become positions: only their dtype's place is needed.
            free = dtype_interval(value.spec.dtype) if value.spec.dtype in INTEGERS else (0, 0)
            known = values[value] = Known(free)
        return known

    def _condition(self, node: CoreNode, values: Values, conditions: Conditions) -> None:
        a, b = node.inputs
        (output,) = node.outputs
        if node.op == "and":
            conditions[output] = conditions.get(a, []) + conditions.get(b, [])
        elif a.spec.dtype in INTEGERS:
            conditions[output] = [
                (node.op, a, self._of(b, values)),
                (SWAPPED[node.op], b, self._of(a, values)),
            ]

    def _where(self, value: Value, values: Values, said: Sequence[tuple[str, Value, Expression]]) -> Expression:
        """The value where a condition holds."""
        expression = self._of(value, values)
        for op, subject, other in said:
            if subject is not value or not isinstance(other, Known):
                continue
            low, high = other.range
            free = dtype_interval(value.spec.dtype)
            allowed = {
                "lt": (free[0], high - 1),
                "le": (free[0], high),
                "gt": (low + 1, free[1]),
                "ge": (low, free[1]),
                "eq": (low, high),
                "ne": free,
            }[op]
            expression = Clipped(expression, allowed)
        return expression

    def _gather(self, node: CoreNode, values: Values) -> None:
        x, *indices = node.inputs
        places = [self._of(index, values) for index in indices]
        for place, axis in zip(places, node.attributes["axes"], strict=True):
            self.positions.append((place, x.spec.shape[axis]))
        (output,) = node.outputs
        if output.spec.dtype in INTEGERS:
            source = self._of(x, values)
            if isinstance(source, Known) and source.counts:
                values[output] = Clipped(places[0], source.range)
            else:
                values[output] = Union(source)

    def _arithmetic(self, node: CoreNode, values: Values, conditions: Conditions) -> Expression:
        (output,) = node.outputs
        free = dtype_interval(output.spec.dtype)
        args = [self._of(value, values) for value in node.inputs if value.spec.dtype in INTEGERS]
        match node.op:
            case "constant":
                value = node.attributes["value"]
                return Known((value, value))
            case "iota":
                return Known((0, max(0, output.spec.shape[0] - 1)), counts=True)
            case "cast" if args:
                return _fit(args[0], free)
            case "select":
                condition, a, b = node.inputs
                holds = conditions.get(condition, [])
                fails = [(_NEGATED[op], subject, other) for op, subject, other in holds[:2]] if len(holds) == 2 else []
                return Union(self._where(a, values, holds), self._where(b, values, fails))
            case "concat":
                return Union(*args)
            case "reduce":
                return _reduced(node, args[0], free)
            case "cumsum":
                return _fit(Scale(args[0], node.inputs[0].spec.shape[node.attributes["axis"]], partial=True), free)
            case op if op in PASS_THROUGH:
                return Union(args[0])
        return _fit(_operation(node.op, args) or Known(free), free)

    def _call(self, node: CoreNode, values: Values) -> None:
        (body,) = node.regions
        integers = any(output.spec.dtype in INTEGERS for output in node.outputs)
        if not integers and not self._indexes(body):
            return
        inside = {
            inner: self._of(outer, values)
            for inner, outer in zip(body.inputs, node.inputs, strict=True)
            if inner.spec.dtype in INTEGERS
        }
        for output, result in zip(node.outputs, self.run(body, inside, {}), strict=True):
            values[output] = result

    def _indexes(self, graph: Graph) -> bool:
        """Whether anything is indexed in the graph or below it."""
        known = self._indexing.get(graph)
        if known is None:
            known = any(node.op == "gather" or any(map(self._indexes, node.regions)) for node in graph.nodes)
            self._indexing[graph] = known
        return known

    def _loop(self, node: CoreNode, values: Values) -> None:
        count = node.attributes["carried"]
        outer = [self._of(value, values) for value in node.inputs]
        carried = [
            Carried(first, dtype_interval(value.spec.dtype) if value.spec.dtype in INTEGERS else (0, 0))
            for first, value in zip(outer[:count], node.inputs, strict=False)
        ]
        inside: list[Expression] = [*carried, *outer[count:]]
        body = node.regions[-1]
        said: list[tuple[int, str, Expression]] = []
        if node.op == "for":
            inside.insert(
                0, Known((node.attributes["start"], max(node.attributes["start"], node.attributes["stop"] - 1)))
            )
        else:
            said = self._loop_condition(node.regions[0], inside)
        known = dict(zip(body.inputs, inside, strict=True))
        for position, op, other in said:
            value = body.inputs[position]
            known[value] = self._where(value, known, [(op, value, other)])
        results = self.run(body, known, {})
        for expression, step in zip(carried, results, strict=False):
            expression.close(step)
        for output, result in zip(node.outputs, [*carried, *results[count:]], strict=True):
            values[output] = result

    def _loop_condition(self, condition: Graph, inside: list[Expression]) -> list[tuple[int, str, Expression]]:
        """What the condition says of the region's inputs, by position, whenever the body runs."""
        known = dict(zip(condition.inputs, inside, strict=True))
        conditions: Conditions = {}
        self.run(condition, known, conditions)
        places = {value: position for position, value in enumerate(condition.inputs)}
        return [
            (places[subject], op, other)
            for op, subject, other in conditions.get(condition.outputs[0], [])
            if subject in places
        ]

    def _branches(self, node: CoreNode, values: Values) -> None:
        outer = [self._of(value, values) for value in node.inputs[1:]]
        results = [self.run(region, dict(zip(region.inputs, outer, strict=True)), {}) for region in node.regions]
        for output, then, otherwise in zip(node.outputs, *results, strict=True):
            values[output] = Union(then, otherwise)


# What a failed comparison says.
_NEGATED = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt", "eq": "ne", "ne": "eq"}


def _fit(expression: Expression, free: Interval) -> Expression:
    """The expression in its dtype, where it may wrap."""
    return Wrapped(expression, free)


def _constant(expression: Expression) -> int | None:
    if isinstance(expression, Known) and expression.range[0] == expression.range[1]:
        return expression.range[0]
    return None


def _reduced(node: CoreNode, arg: Expression, free: Interval) -> Expression:
    shape = node.inputs[0].spec.shape
    size = 1
    for axis in node.attributes["axes"]:
        size *= shape[axis]
    kind = node.attributes["kind"]
    if size == 0 or kind == "prod":
        return Known(free)
    return _fit(Scale(arg, size), free) if kind == "sum" else Union(arg)


def _operation(op: str, args: list[Expression]) -> Expression | None:
    """The expression of an elementwise operation, None where nothing but the dtype is known of it."""
    a = args[0] if args else None
    b = args[1] if len(args) > 1 else None
    if a is None:
        return None
    if op == "neg":
        return Scale(a, -1)
    if b is None:
        return None
    left, right = _constant(a), _constant(b)
    if op == "add":
        return Add(a, b)
    if op == "sub":
        return Add(a, Scale(b, -1))
    if op in ("min", "max"):
        return Extremum(op, a, b)
    if op == "mul":
        if right is not None:
            return Scale(a, right)
        return Scale(b, left) if left is not None else Product(a, b)
    if op == "and" and right is not None and right >= 0:
        return Known((0, right))
    if right is not None and 0 <= right < 63 and op == "shl":
        return Scale(a, 1 << right)
    if right is not None and right > 0:
        if op == "div":
            return Quotient(a, right)
        if op == "rem":
            return Remainder(a, right)
    return None
