"""What must hold of a Core IR graph, before and after every pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from linnet.language.program.core import (
    ARITHMETIC,
    COMPARISON,
    PRIMITIVES,
    REDUCTIONS,
    UNARY,
    CoreNode,
    Graph,
    TensorSpec,
    Value,
)
from linnet.language.program.types import DTYPES, FLOATS, INTEGERS

Shape = tuple[int, ...]
FLOAT_ONLY = frozenset({"exp", "log", "sqrt", "rsqrt", "sin", "cos", "tanh"})
BITWISE = frozenset({"and", "or", "xor"})


class VerifyError(Exception):
    """A graph that is not well formed. `node` is where, None for the graph's own outputs."""

    def __init__(self, node: CoreNode | None, position: int, problem: str) -> None:
        self.node = node
        if node is None:
            super().__init__(problem)
        else:
            where = f" ({node.span.location()})" if node.span else ""
            super().__init__(f"node {position}, {node.op}{where}: {problem}")


class _ProblemError(Exception):
    """What is wrong with a node, before it is known where the node stands."""


def verify(graph: Graph) -> None:
    """Check an entry's graph with all its regions and op bodies: single assignment, definition before use, closed
    regions, arity, attributes, shapes and dtypes. Raises VerifyError."""
    _Verifier().graph(graph, entry=True)


class _Verifier:
    def __init__(self) -> None:
        self.bodies: set[Graph] = set()
        self.defined: set[Value] = set()

    def graph(self, graph: Graph, *, entry: bool) -> None:
        visible: set[Value] = set()
        for value in graph.inputs:
            self.define(value, visible, None, 0)
        for position, node in enumerate(graph.nodes):
            try:
                self.node(node, visible, entry=entry)
            except _ProblemError as problem:
                raise VerifyError(node, position, str(problem)) from None
            for output in node.outputs:
                self.define(output, visible, node, position)
        for k, value in enumerate(graph.outputs):
            if value not in visible:
                raise VerifyError(None, 0, f"output {k}, {_value(value)}, is not a value of its graph")

    def define(self, value: Value, visible: set[Value], node: CoreNode | None, position: int) -> None:
        if value in self.defined:
            raise VerifyError(node, position, f"{_value(value)} is defined twice")
        if value.spec.dtype not in DTYPES or any(n < 0 for n in value.spec.shape):
            raise VerifyError(node, position, f"{_value(value)} has no valid shape and dtype")
        self.defined.add(value)
        visible.add(value)

    def node(self, node: CoreNode, visible: set[Value], *, entry: bool) -> None:
        if node.op not in PRIMITIVES:
            raise _ProblemError("there is no such operation")
        for k, value in enumerate(node.inputs):
            if value not in visible:
                raise _ProblemError(f"input {k}, {_value(value)}, is not defined before it in its graph")
        if node.op in ("param", "state.read", "state.write") and not entry:
            raise _ProblemError("only an entry's own graph reads weights and touches states")
        for region in node.regions:
            if node.op != "call":
                self.graph(region, entry=False)
            elif region not in self.bodies:
                self.bodies.add(region)
                self.graph(region, entry=False)
        try:
            expected = RULES[node.op](node)
        except KeyError as error:
            raise _ProblemError(f"attribute {error} is missing") from None
        given = [value.spec for value in node.outputs]
        if expected != given:
            raise _ProblemError(f"outputs should be {_specs(expected)} but are {_specs(given)}")


def _value(value: Value) -> str:
    return f"`{value.name}` {value.spec}" if value.name else str(value.spec)


def _specs(specs: Sequence[TensorSpec]) -> str:
    return ", ".join(map(str, specs)) or "none"


def _require(condition: bool, problem: str) -> None:
    if not condition:
        raise _ProblemError(problem)


def _inputs(node: CoreNode, count: int) -> list[TensorSpec]:
    _require(len(node.inputs) == count, f"takes {count} inputs and has {len(node.inputs)}")
    return [value.spec for value in node.inputs]


def _broadcast(*shapes: Shape) -> Shape:
    result: Shape = ()
    for shape in shapes:
        a, b = (result, shape) if len(result) >= len(shape) else (shape, result)
        lead = len(a) - len(b)
        merged = list(a)
        for k, n in enumerate(b, lead):
            _require(a[k] == n or 1 in (a[k], n), f"shapes {list(result)} and {list(shape)} do not broadcast")
            merged[k] = n if a[k] == 1 else a[k]
        result = tuple(merged)
    return result


def _declared(node: CoreNode) -> list[TensorSpec]:
    """The spec a source or conversion declares itself."""
    _require(len(node.outputs) == 1, f"has one output, not {len(node.outputs)}")
    return [node.outputs[0].spec]


def _constant(node: CoreNode) -> list[TensorSpec]:
    _inputs(node, 0)
    (spec,) = _declared(node)
    value = node.attributes["value"]
    _require(spec.shape == (), "a constant has rank 0")
    kind = bool if spec.dtype == "bool" else float if spec.dtype in FLOATS else int
    _require(type(value) is kind, f"{value!r} is no {spec.dtype}")
    return [spec]


def _iota(node: CoreNode) -> list[TensorSpec]:
    _inputs(node, 0)
    (spec,) = _declared(node)
    _require(len(spec.shape) == 1 and spec.dtype != "bool", "counts along one axis, in numbers")
    return [spec]


def _from_path(node: CoreNode) -> list[TensorSpec]:
    _inputs(node, 0)
    _require(isinstance(node.attributes["path"], str), "path is text")
    return _declared(node)


def _state_write(node: CoreNode) -> list[TensorSpec]:
    _inputs(node, 1)
    _require(isinstance(node.attributes["path"], str), "path is text")
    return []


def _unary(node: CoreNode) -> list[TensorSpec]:
    (x,) = _inputs(node, 1)
    if node.op in FLOAT_ONLY:
        _require(x.dtype in FLOATS, f"takes floats, not {x.dtype}")
    elif node.op == "not":
        _require(x.dtype not in FLOATS, f"takes bools and integers, not {x.dtype}")
    else:
        _require(x.dtype != "bool", "takes numbers, not bool")
    return [x]


def _cast(node: CoreNode) -> list[TensorSpec]:
    (x,) = _inputs(node, 1)
    (spec,) = _declared(node)
    _require(spec.dtype != x.dtype, "converts to the dtype that it is given")
    return [TensorSpec(x.shape, spec.dtype)]


def _binary(node: CoreNode) -> list[TensorSpec]:
    a, b = _inputs(node, 2)
    _require(a.dtype == b.dtype, f"dtypes differ: {a} and {b}")
    if node.op in BITWISE:
        _require(a.dtype not in FLOATS, f"takes bools and integers, not {a.dtype}")
    elif node.op in ("shl", "shr"):
        _require(a.dtype in INTEGERS, f"takes integers, not {a.dtype}")
    elif node.op in ARITHMETIC:
        _require(a.dtype != "bool", "takes numbers, not bool")
    return [TensorSpec(_broadcast(a.shape, b.shape), "bool" if node.op in COMPARISON else a.dtype)]


def _select(node: CoreNode) -> list[TensorSpec]:
    condition, a, b = _inputs(node, 3)
    _require(condition.dtype == "bool", f"the condition is {condition.dtype}, not bool")
    _require(a.dtype == b.dtype, f"dtypes differ: {a} and {b}")
    return [TensorSpec(_broadcast(condition.shape, a.shape, b.shape), a.dtype)]


def _reshape(node: CoreNode) -> list[TensorSpec]:
    (x,) = _inputs(node, 1)
    (spec,) = _declared(node)
    _require(x.size == spec.size, f"{x} has another number of elements than {spec}")
    return [TensorSpec(spec.shape, x.dtype)]


def _broadcast_to(node: CoreNode) -> list[TensorSpec]:
    (x,) = _inputs(node, 1)
    (spec,) = _declared(node)
    fits = len(x.shape) <= len(spec.shape) and _broadcast(x.shape, spec.shape) == spec.shape
    _require(fits, f"{x} does not broadcast to {list(spec.shape)}")
    return [TensorSpec(spec.shape, x.dtype)]


def _permute(node: CoreNode) -> list[TensorSpec]:
    (x,) = _inputs(node, 1)
    axes = node.attributes["axes"]
    _require(sorted(axes) == list(range(len(x.shape))), f"axes {list(axes)} do not permute {x}")
    return [TensorSpec(tuple(x.shape[axis] for axis in axes), x.dtype)]


def _slice(node: CoreNode) -> list[TensorSpec]:
    (x,) = _inputs(node, 1)
    starts, stops, steps = (node.attributes[name] for name in ("starts", "stops", "steps"))
    _require(len(starts) == len(stops) == len(steps) == len(x.shape), "needs a start, stop and step for each axis")
    lengths: list[int] = []
    for n, start, stop, step in zip(x.shape, starts, stops, steps, strict=True):
        _require(0 <= start <= stop <= n and step > 0, f"{start}:{stop}:{step} does not lie in an axis of {n}")
        lengths.append(-((start - stop) // step))
    return [TensorSpec(tuple(lengths), x.dtype)]


def _axis(node: CoreNode, x: TensorSpec) -> int:
    axis = node.attributes["axis"]
    _require(isinstance(axis, int) and 0 <= axis < len(x.shape), f"axis {axis} is none of {x}")
    return int(axis)


def _concat(node: CoreNode) -> list[TensorSpec]:
    _require(bool(node.inputs), "takes at least one input")
    first = node.inputs[0].spec
    axis = _axis(node, first)
    total = 0
    for value in node.inputs:
        spec = value.spec
        fits = spec.dtype == first.dtype and len(spec.shape) == len(first.shape)
        fits = fits and all(k == axis or n == m for k, (n, m) in enumerate(zip(spec.shape, first.shape, strict=True)))
        _require(fits, f"{spec} does not stand beside {first} along axis {axis}")
        total += spec.shape[axis]
    return [TensorSpec((*first.shape[:axis], total, *first.shape[axis + 1 :]), first.dtype)]


def _cumsum(node: CoreNode) -> list[TensorSpec]:
    (x,) = _inputs(node, 1)
    _axis(node, x)
    return [x]


def _axes(node: CoreNode, x: TensorSpec) -> list[int]:
    axes = list(node.attributes["axes"])
    valid = axes == sorted(set(axes)) and all(0 <= axis < len(x.shape) for axis in axes)
    _require(valid and bool(axes), f"axes {axes} are not ascending axes of {x}")
    return axes


def _gather(node: CoreNode) -> list[TensorSpec]:
    _require(bool(node.inputs), "takes a tensor and indices")
    x = node.inputs[0].spec
    axes = _axes(node, x)
    indices = _inputs(node, len(axes) + 1)[1:]
    _require(all(i.dtype in INTEGERS for i in indices), "indices are integers")
    _require(len({i.shape for i in indices}) == 1, f"indices have different shapes: {_specs(indices)}")
    _require(isinstance(node.attributes["label"], str), "label is text")
    kept = tuple(n for axis, n in enumerate(x.shape) if axis not in axes)
    return [TensorSpec(indices[0].shape + kept, x.dtype)]


def _reduce(node: CoreNode) -> list[TensorSpec]:
    (x,) = _inputs(node, 1)
    kind = node.attributes["kind"]
    axes = _axes(node, x)
    _require(kind in REDUCTIONS, f"there is no reduction {kind!r}")
    _require((kind in ("any", "all")) == (x.dtype == "bool"), f"{kind} does not reduce {x.dtype}")
    return [TensorSpec(tuple(n for axis, n in enumerate(x.shape) if axis not in axes), x.dtype)]


def _contract(node: CoreNode) -> list[TensorSpec]:
    a, b = _inputs(node, 2)
    spec = node.attributes["spec"]
    operands, _, result = spec.partition("->")
    left, _, right = operands.partition(",")
    _require(a.dtype == b.dtype != "bool", f"cannot multiply {a} and {b}")
    fits = len(left) == len(set(left)) == len(a.shape) and len(right) == len(set(right)) == len(b.shape)
    _require(fits and len(result) == len(set(result)), f"{spec!r} does not name the axes of {a} and {b}")
    sizes = dict(zip(left, a.shape, strict=True))
    for name, n in zip(right, b.shape, strict=True):
        _require(sizes.setdefault(name, n) == n, f"axis {name} of {spec!r} is both {sizes[name]} and {n}")
    _require(set(result) <= sizes.keys(), f"{spec!r} returns an axis that it does not take")
    return [TensorSpec(tuple(sizes[name] for name in result), a.dtype)]


def _region(node: CoreNode, k: int, inputs: Sequence[TensorSpec]) -> list[TensorSpec]:
    """What region `k` returns, its inputs checked."""
    taken = [value.spec for value in node.regions[k].inputs]
    _require(taken == list(inputs), f"region {k} takes {_specs(taken)} and is given {_specs(inputs)}")
    return [value.spec for value in node.regions[k].outputs]


def _regions(node: CoreNode, count: int) -> None:
    _require(len(node.regions) == count, f"has {count} regions, not {len(node.regions)}")


def _call(node: CoreNode) -> list[TensorSpec]:
    _regions(node, 1)
    _require(isinstance(node.attributes["op"], str), "op is an identity")
    _require(isinstance(node.attributes["generics"], dict), "generics is a mapping")
    names = node.attributes["parameters"]
    _require(len(names) == len(node.inputs), f"names {len(names)} parameters for {len(node.inputs)} inputs")
    return _region(node, 0, _inputs(node, len(node.inputs)))


def _carried(node: CoreNode) -> list[TensorSpec]:
    carried = node.attributes["carried"]
    _require(0 <= carried <= len(node.inputs), f"cannot carry {carried} of {len(node.inputs)} inputs")
    return [value.spec for value in node.inputs[:carried]]


def _while(node: CoreNode) -> list[TensorSpec]:
    _regions(node, 2)
    carried, inputs = _carried(node), [value.spec for value in node.inputs]
    condition, body = _region(node, 0, inputs), _region(node, 1, inputs)
    _require(condition == [TensorSpec((), "bool")], f"the condition is {_specs(condition)}, not one bool")
    _require(body == carried, f"the body returns {_specs(body)} and carries {_specs(carried)}")
    return carried


def _for(node: CoreNode) -> list[TensorSpec]:
    _regions(node, 1)
    carried = _carried(node)
    steps = node.attributes["stop"] - node.attributes["start"]
    _require(steps >= 0, "stops before it starts")
    body = _region(node, 0, [TensorSpec((), "i64"), *(value.spec for value in node.inputs)])
    count = len(carried)
    _require(body[:count] == carried, f"the body returns {_specs(body)} and carries {_specs(carried)}")
    return carried + [TensorSpec((steps, *spec.shape), spec.dtype) for spec in body[count:]]


def _if(node: CoreNode) -> list[TensorSpec]:
    _regions(node, 2)
    _require(bool(node.inputs) and node.inputs[0].spec == TensorSpec((), "bool"), "the condition is one bool")
    inputs = [value.spec for value in node.inputs[1:]]
    then, otherwise = _region(node, 0, inputs), _region(node, 1, inputs)
    _require(then == otherwise, f"the branches return {_specs(then)} and {_specs(otherwise)}")
    return then


RULES: dict[str, Callable[[CoreNode], list[TensorSpec]]] = {
    "constant": _constant,
    "iota": _iota,
    "param": _from_path,
    "state.read": _from_path,
    "state.write": _state_write,
    **dict.fromkeys(UNARY, _unary),
    "cast": _cast,
    **dict.fromkeys(ARITHMETIC | COMPARISON, _binary),
    "select": _select,
    "reshape": _reshape,
    "broadcast": _broadcast_to,
    "permute": _permute,
    "slice": _slice,
    "concat": _concat,
    "cumsum": _cumsum,
    "gather": _gather,
    "reduce": _reduce,
    "contract": _contract,
    "call": _call,
    "while": _while,
    "for": _for,
    "if": _if,
}
