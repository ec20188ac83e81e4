"""Building graphs: one method for each primitive, which works out the result's spec and drops what does nothing."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from string import ascii_letters
from typing import Any

from linnet.language.program.core import COMPARISON, CoreNode, Graph, TensorSpec, Value
from linnet.language.program.fold import Number, fold_binary, fold_cast, fold_unary
from linnet.language.program.lower_values import LowerError
from linnet.language.source import Span

Shape = tuple[int, ...]
# What torch takes; no model comes near it.
MAX_RANK = 64


def broadcast_shape(a: Shape, b: Shape) -> Shape:
    """The right-aligned broadcast of two shapes that the checker has proven to fit."""
    if a == b or not b:
        return a
    if len(a) < len(b):
        a, b = b, a
    lead = len(a) - len(b)
    return a[:lead] + tuple(n if m == 1 else m for m, n in zip(a[lead:], b, strict=True))


class Builder:
    """The nodes of one graph in the making. Subclasses decide what a value from outside means."""

    def __init__(self, numbers: dict[Value, Number], producers: dict[Value, CoreNode]) -> None:
        self.nodes: list[CoreNode] = []
        self.span: Span | None = None
        # The scalars known at compile time, and what made each value; shared by all builders of a lowering.
        self.numbers = numbers
        self.producers = producers
        self._constants: dict[Hashable, Value] = {}

    def use(self, value: Value) -> Value:
        """The value as this graph sees it."""
        return value

    def parameter(self, path: str, spec: TensorSpec) -> Value:
        """The weight at `path`."""
        raise AssertionError("only an entry's own graph reads weights")

    def read_state(self, path: str, spec: TensorSpec) -> Value:
        """The state's current value."""
        raise AssertionError("only an entry's own graph and its control flow read states")

    def write_state(self, path: str, value: Value) -> None:
        """Make `value` the state's current value."""
        raise AssertionError("only an entry's own graph and its control flow write states")

    def emit(
        self,
        op: str,
        inputs: Sequence[Value],
        specs: Sequence[TensorSpec],
        attributes: Mapping[str, Any] | None = None,
        regions: tuple[Graph, ...] = (),
    ) -> tuple[Value, ...]:
        """Append a node and return its outputs."""
        outputs = tuple(Value(spec) for spec in specs)
        used = tuple(self.use(value) for value in inputs)
        node = CoreNode(op, used, outputs, {} if attributes is None else attributes, regions, self.span)
        self.nodes.append(node)
        for output in outputs:
            self.producers[output] = node
        return outputs

    def _one(
        self, op: str, inputs: Sequence[Value], shape: Shape, dtype: str, attributes: Mapping[str, Any] | None = None
    ) -> Value:
        if len(shape) > MAX_RANK:
            raise LowerError(f"a tensor of {len(shape)} axes; this version takes {MAX_RANK} at most", self.span)
        return self.emit(op, inputs, (TensorSpec(shape, dtype),), attributes)[0]

    def constant(self, value: Number, dtype: str) -> Value:
        # repr tells -0.0 from 0.0 and a bool from an integer.
        key = (repr(value), dtype)
        known = self._constants.get(key)
        if known is None:
            known = self._constants[key] = self._one("constant", (), (), dtype, {"value": value})
            self.numbers[known] = value
        return known

    def iota(self, n: int, dtype: str) -> Value:
        return self._one("iota", (), (n,), dtype)

    def unary(self, op: str, x: Value) -> Value:
        number = self.numbers.get(x)
        if number is not None and (folded := fold_unary(op, number, x.spec.dtype)) is not None:
            return self.constant(folded, x.spec.dtype)
        return self._one(op, (x,), x.spec.shape, x.spec.dtype)

    def binary(self, op: str, a: Value, b: Value) -> Value:
        dtype = "bool" if op in COMPARISON else a.spec.dtype
        left, right = self.numbers.get(a), self.numbers.get(b)
        if left is not None and right is not None:
            folded = fold_binary(op, left, right, a.spec.dtype)
            if folded is not None:
                return self.constant(folded, dtype)
        return self._one(op, (a, b), broadcast_shape(a.spec.shape, b.spec.shape), dtype)

    def cast(self, x: Value, dtype: str) -> Value:
        if x.spec.dtype == dtype:
            return x
        number = self.numbers.get(x)
        if number is not None and (folded := fold_cast(number, dtype)) is not None:
            return self.constant(folded, dtype)
        return self._one("cast", (x,), x.spec.shape, dtype)

    def select(self, condition: Value, a: Value, b: Value) -> Value:
        shape = broadcast_shape(broadcast_shape(condition.spec.shape, a.spec.shape), b.spec.shape)
        chosen = self.numbers.get(condition)
        if chosen is not None:
            return self.broadcast(a if chosen else b, shape)
        return self._one("select", (condition, a, b), shape, a.spec.dtype)

    def reshape(self, x: Value, shape: Shape) -> Value:
        source = self.producers.get(x)
        if source is not None and source.op == "reshape":
            x = source.inputs[0]
        if x.spec.shape == shape:
            return x
        return self._one("reshape", (x,), shape, x.spec.dtype)

    def broadcast(self, x: Value, shape: Shape) -> Value:
        if x.spec.shape == shape:
            return x
        return self._one("broadcast", (x,), shape, x.spec.dtype)

    def permute(self, x: Value, axes: tuple[int, ...]) -> Value:
        if axes == tuple(range(len(axes))):
            return x
        source = self.producers.get(x)
        if source is not None and source.op == "permute":
            inner = source.attributes["axes"]
            return self.permute(source.inputs[0], tuple(inner[axis] for axis in axes))
        shape = x.spec.shape
        return self._one("permute", (x,), tuple(shape[axis] for axis in axes), x.spec.dtype, {"axes": axes})

    def slice(self, x: Value, starts: Shape, stops: Shape, steps: Shape) -> Value:
        shape = x.spec.shape
        if stops == shape and not any(starts) and all(step == 1 for step in steps):
            return x
        lengths = tuple(
            max(0, -((start - stop) // step)) for start, stop, step in zip(starts, stops, steps, strict=True)
        )
        attributes = {"starts": starts, "stops": stops, "steps": steps}
        return self._one("slice", (x,), lengths, x.spec.dtype, attributes)

    def concat(self, values: Sequence[Value], axis: int) -> Value:
        if len(values) == 1:
            return values[0]
        shape = list(values[0].spec.shape)
        shape[axis] = sum(value.spec.shape[axis] for value in values)
        return self._one("concat", values, tuple(shape), values[0].spec.dtype, {"axis": axis})

    def cumsum(self, x: Value, axis: int) -> Value:
        return self._one("cumsum", (x,), x.spec.shape, x.spec.dtype, {"axis": axis})

    def gather(self, x: Value, axes: tuple[int, ...], indices: Sequence[Value], label: str) -> Value:
        kept = tuple(n for axis, n in enumerate(x.spec.shape) if axis not in axes)
        shape = indices[0].spec.shape + kept
        return self._one("gather", (x, *indices), shape, x.spec.dtype, {"axes": axes, "label": label})

    def reduce(self, kind: str, x: Value, axes: tuple[int, ...]) -> Value:
        if not axes:
            return x
        kept = tuple(n for axis, n in enumerate(x.spec.shape) if axis not in axes)
        return self._one("reduce", (x,), kept, x.spec.dtype, {"kind": kind, "axes": axes})

    def contract(
        self,
        a: Value,
        a_axes: Sequence[Hashable],
        b: Value,
        b_axes: Sequence[Hashable],
        result: Sequence[Hashable],
    ) -> Value:
        """The sum of products over the named axes that `result` lacks."""
        sizes = dict(zip([*a_axes, *b_axes], a.spec.shape + b.spec.shape, strict=True))
        letters = dict(zip(sizes, ascii_letters, strict=False))
        left, right, out = ("".join(letters[axis] for axis in axes) for axes in (a_axes, b_axes, result))
        shape = tuple(sizes[axis] for axis in result)
        return self._one("contract", (a, b), shape, a.spec.dtype, {"spec": f"{left},{right}->{out}"})


class EntryBuilder(Builder):
    """An entry's own graph: the one that reads weights and states."""

    def __init__(self, numbers: dict[Value, Number], producers: dict[Value, CoreNode]) -> None:
        super().__init__(numbers, producers)
        self._parameters: dict[str, Value] = {}
        self._states: dict[str, Value] = {}
        self._initial: dict[str, Value] = {}

    def parameter(self, path: str, spec: TensorSpec) -> Value:
        known = self._parameters.get(path)
        if known is None:
            known = self._parameters[path] = self._one("param", (), spec.shape, spec.dtype, {"path": path})
            known.name = path
        return known

    def read_state(self, path: str, spec: TensorSpec) -> Value:
        if path not in self._states:
            value = self._one("state.read", (), spec.shape, spec.dtype, {"path": path})
            value.name = path
            self._states[path] = self._initial[path] = value
        return self._states[path]

    def write_state(self, path: str, value: Value) -> None:
        self._states[path] = value

    def finish_states(self) -> None:
        """One write for each state that has another value than it started with."""
        self.span = None
        for path, value in self._states.items():
            if value is not self._initial.get(path):
                self.emit("state.write", (value,), (), {"path": path})


class RegionBuilder(Builder):
    """A closed region of a control-flow node: what it uses from outside becomes an input."""

    def __init__(self, parent: Builder) -> None:
        super().__init__(parent.numbers, parent.producers)
        self.parent = parent
        self.span = parent.span
        # Values as seen here: its own stand for themselves, captured ones for their stand-ins.
        self._seen: dict[Value, Value] = {}
        self.captured: dict[Value, Value] = {}
        self.states: dict[str, Value] = {}
        self.initial_states: dict[str, Value] = {}

    def placeholder(self, outer: Value) -> Value:
        """A fresh input with the spec and name of `outer`."""
        return self.own(Value(outer.spec, outer.name))

    def own(self, value: Value) -> Value:
        self._seen[value] = value
        return value

    def use(self, value: Value) -> Value:
        seen = self._seen.get(value)
        if seen is not None:
            return seen
        number = self.numbers.get(value)
        if number is not None:
            return self.constant(number, value.spec.dtype)
        return self.capture(value)

    def capture(self, value: Value) -> Value:
        """The input that stands for the outer `value`."""
        seen = self._seen.get(value)
        if seen is None:
            seen = self._seen[value] = self.captured[value] = self.placeholder(value)
        return seen

    def emit(
        self,
        op: str,
        inputs: Sequence[Value],
        specs: Sequence[TensorSpec],
        attributes: Mapping[str, Any] | None = None,
        regions: tuple[Graph, ...] = (),
    ) -> tuple[Value, ...]:
        outputs = super().emit(op, inputs, specs, attributes, regions)
        for output in outputs:
            self._seen[output] = output
        return outputs

    def parameter(self, path: str, spec: TensorSpec) -> Value:
        return self.use(self.parent.parameter(path, spec))

    def read_state(self, path: str, spec: TensorSpec) -> Value:
        if path not in self.states:
            self.states[path] = self.initial_state(path, spec)
        return self.states[path]

    def write_state(self, path: str, value: Value) -> None:
        self.initial_state(path, value.spec)
        self.states[path] = value

    def initial_state(self, path: str, spec: TensorSpec) -> Value:
        """The input that holds the state when the region starts."""
        known = self.initial_states.get(path)
        if known is None:
            known = self.initial_states[path] = self.own(Value(spec, path))
            self.states.setdefault(path, known)
        return known

    def written_states(self) -> list[str]:
        return [path for path, value in self.states.items() if value is not self.initial_states[path]]
