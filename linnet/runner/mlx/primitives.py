"""Each Core IR primitive in MLX: `primitive(node, target)` prepares a function of the run and the input arrays.

The choices are those of the torch backend, which the tests hold this one against: shift counts are read as unsigned,
integer division truncates, `rem` of floats is C's fmod, and functions, sums and products of f16 and bf16 are taken in
f32 and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import mlx.core as mx
import numpy as np

from linnet.language.program.core import REDUCTIONS, CoreNode, Value
from linnet.language.program.types import FLOATS
from linnet.runner.mlx import functions
from linnet.runner.mlx.checks import Check, DivisorCheck, PositionCheck, positions
from linnet.runner.mlx.dtypes import DTYPES, HALVES, scalar, width
from linnet.runner.torch.dtypes import integer_range


class Run(Protocol):
    """What a step may ask of the run that it is part of."""

    op: str | None

    def range_of(self, index: mx.array) -> tuple[int, int] | None: ...
    def position(self, index: mx.array) -> tuple[int | None, int | None]: ...
    def check(self, check: Check, facts: mx.array) -> None: ...


Operation = Callable[..., mx.array]


@dataclass(frozen=True)
class Target:
    """What preparation knows: the scalars that are constants, and the values that depend on nothing that a run is
    given, whose arrays hold numbers as soon as a step is handed them."""

    constants: Mapping[Value, float] = field(default_factory=dict)
    fixed: frozenset[Value] = frozenset()


def on_host(node: CoreNode) -> bool:
    """Whether the node is computed outside MLX, so that no graph with it can be compiled: a sine or cosine of f64,
    whose last bits neither MLX nor `functions` has for every number."""
    return node.op in ("sin", "cos") and node.inputs[0].spec.dtype == "f64" and not node.attributes.get("narrow")


def primitive(node: CoreNode, target: Target) -> Operation:
    """The function of a primitive node. Raises KeyError for an op that is none of these."""
    return BUILDERS[node.op](node, target)


# Elementwise


def _constant(node: CoreNode, target: Target) -> Operation:
    value = scalar(node.attributes["value"], node.outputs[0].spec.dtype)
    return lambda run: value


def _iota(node: CoreNode, target: Target) -> Operation:
    spec = node.outputs[0].spec
    return lambda run: mx.arange(spec.shape[0], dtype=mx.int64).astype(DTYPES[spec.dtype])


def _function(name: str) -> Callable[[CoreNode, Target], Operation]:
    function: Callable[[mx.array], mx.array] = getattr(mx, name)

    def build(node: CoreNode, target: Target) -> Operation:
        dtype = node.inputs[0].spec.dtype
        if dtype in HALVES:
            return lambda run, x: function(x.astype(mx.float32)).astype(DTYPES[dtype])
        if on_host(node):
            return lambda run, x: _on_numpy(name, x)
        if dtype == "f64" and name in ("exp", "sin", "cos"):
            wide = getattr(functions, name)
            return lambda run, x: wide(x)
        return lambda run, x: function(x)

    return build


def _not(node: CoreNode, target: Target) -> Operation:
    flip: Any = mx.logical_not if node.inputs[0].spec.dtype == "bool" else mx.bitwise_invert
    return lambda run, x: flip(x)


def _same(function: Callable[..., Any]) -> Callable[[CoreNode, Target], Operation]:
    return lambda node, target: lambda run, *inputs: function(*inputs)


def _truncated(a: mx.array, b: mx.array, quotient: bool) -> mx.array:
    """Integer division toward zero, where no `b` is zero."""
    if mx.issubdtype(a.dtype, mx.unsignedinteger):
        found = a // b
    else:
        # The least value over -1 traps in hardware, so -1 never reaches the divider.
        minus = b == -1
        safe = mx.where(minus, mx.array(1, dtype=b.dtype), b)
        floor = a // safe
        up = (a - floor * safe != 0) & ((a < 0) != (safe < 0))
        found = mx.where(minus, -a, floor + up.astype(a.dtype))
    return found if quotient else a - found * b


def _fmod(a: mx.array, b: mx.array) -> mx.array:
    """C's fmod, exact, with the sign of `a`; of magnitudes MLX's remainder is the same."""
    dtype = a.dtype
    if dtype in (mx.float16, mx.bfloat16):
        a, b = a.astype(mx.float32), b.astype(mx.float32)
    size = mx.remainder(mx.abs(a), mx.abs(b))
    return mx.where(a < 0, -size, mx.where(a == 0, a + 0 * size, size)).astype(dtype)


def _division(quotient: bool) -> Callable[[CoreNode, Target], Operation]:
    def build(node: CoreNode, target: Target) -> Operation:
        dtype = node.inputs[0].spec.dtype
        if dtype in FLOATS:
            function = mx.divide if quotient else _fmod
            return lambda run, a, b: function(a, b)
        if target.constants.get(node.inputs[1]) or not node.inputs[1].spec.size:
            return lambda run, a, b: _truncated(a, b, quotient)
        where = f" ({node.span.location()})" if node.span else ""
        check = DivisorCheck("division" if quotient else "remainder", where)

        def checked(run: Run, a: mx.array, b: mx.array) -> mx.array:
            zero = b == 0
            run.check(check, mx.any(zero).astype(mx.int64).reshape(1))
            return _truncated(a, mx.where(zero, mx.array(1, dtype=b.dtype), b), quotient)

        return checked

    return build


def _shift(left: bool) -> Callable[[CoreNode, Target], Operation]:
    function = mx.left_shift if left else mx.right_shift

    def build(node: CoreNode, target: Target) -> Operation:
        dtype = node.inputs[0].spec.dtype
        bits = width(dtype)
        count = target.constants.get(node.inputs[1])
        if count is not None and 0 <= count < bits:
            return lambda run, x, n: function(x, n)

        def shifted(run: Run, x: mx.array, n: mx.array) -> mx.array:
            inside = n < bits if dtype.startswith("u") else (n >= 0) & (n < bits)
            if left or dtype.startswith("u"):
                moved = function(x, mx.where(inside, n, mx.array(0, dtype=n.dtype)))
                return mx.where(inside, moved, mx.array(0, dtype=x.dtype))
            return function(x, mx.where(inside, n, mx.array(bits - 1, dtype=n.dtype)))

        return shifted

    return build


def _cast(node: CoreNode, target: Target) -> Operation:
    source, result = node.inputs[0].spec.dtype, node.outputs[0].spec.dtype
    native = DTYPES[result]
    if source in FLOATS and result == "u64":
        half, bit = 2.0**63, scalar(2**63, "u64")

        def to_u64(run: Run, x: mx.array) -> mx.array:
            wide = x.astype(mx.float32) if source in HALVES else x
            high = (wide - half).astype(mx.int64).astype(mx.uint64) + bit
            return mx.where(wide >= half, high, wide.astype(mx.int64).astype(mx.uint64))

        return to_u64
    if source in FLOATS and result not in FLOATS and result not in ("bool", "i64"):
        return lambda run, x: x.astype(mx.int64).astype(native)
    return lambda run, x: x.astype(native)


def _on_numpy(name: str, x: mx.array) -> mx.array:
    """Sine or cosine of f64, computed for it."""
    with np.errstate(invalid="ignore"):
        return mx.array(getattr(np, name)(np.array(x)), dtype=mx.float64)


# Structure


def _reshape(node: CoreNode, target: Target) -> Operation:
    shape = node.outputs[0].spec.shape
    return lambda run, x: x.reshape(shape)


def _broadcast(node: CoreNode, target: Target) -> Operation:
    shape = node.outputs[0].spec.shape
    return lambda run, x: mx.broadcast_to(x, shape)


def _permute(node: CoreNode, target: Target) -> Operation:
    axes = tuple(node.attributes["axes"])
    return lambda run, x: x.transpose(axes) if axes else x


def _slice(node: CoreNode, target: Target) -> Operation:
    a = node.attributes
    ranges = tuple(slice(*part) for part in zip(a["starts"], a["stops"], a["steps"], strict=True))
    shape = node.outputs[0].spec.shape
    return lambda run, x: x[ranges].reshape(shape) if ranges else x


def _concat(node: CoreNode, target: Target) -> Operation:
    axis = node.attributes["axis"]
    return lambda run, *parts: mx.concatenate(list(parts), axis=axis)


def _cumsum(node: CoreNode, target: Target) -> Operation:
    axis, dtype = node.attributes["axis"], node.outputs[0].spec.dtype
    if not node.outputs[0].spec.size:
        return lambda run, x: x
    if dtype in HALVES:
        return lambda run, x: mx.cumsum(x.astype(mx.float32), axis=axis).astype(DTYPES[dtype])
    return lambda run, x: mx.cumsum(x, axis=axis).astype(DTYPES[dtype])


def _gather(node: CoreNode, target: Target) -> Operation:
    axes = tuple(node.attributes["axes"])
    label, within = str(node.attributes.get("label", "")), node.attributes.get("within")
    shape, result = node.inputs[0].spec.shape, node.outputs[0].spec
    sizes = [shape[axis] for axis in axes]
    order = (*axes, *(axis for axis in range(len(shape)) if axis not in axes))
    if not node.inputs[1].spec.size:
        return lambda run, x, *indices: mx.zeros(result.shape, dtype=x.dtype)

    def place(run: Run, index: mx.array, size: int) -> mx.array:
        check = PositionCheck(label, size, run.op or within)
        known = run.range_of(index)
        if known is not None:
            check.settle(known)
            return index
        run.check(check, positions(index))
        wide = index.astype(mx.int64)
        return mx.clip(wide, mx.array(0, dtype=mx.int64), mx.array(size - 1, dtype=mx.int64))

    def gather(run: Run, x: mx.array, *indices: mx.array) -> mx.array:
        places = [place(run, index, size) for index, size in zip(indices, sizes, strict=True)]
        if 0 in sizes:
            # The check refuses every position; what is computed meanwhile must only have the right shape.
            return mx.zeros(result.shape, dtype=x.dtype)
        flat = places[0].reshape(-1)
        for i, size in zip(places[1:], sizes[1:], strict=True):
            flat = flat * size + i.reshape(-1)
        if len(axes) == 1:
            rows = mx.take(x, flat, axis=axes[0])
            return (mx.moveaxis(rows, axes[0], 0) if axes[0] else rows).reshape(result.shape)
        others = [shape[axis] for axis in order[len(axes) :]]
        return mx.take(x.transpose(order).reshape(-1, *others), flat, axis=0).reshape(result.shape)

    return gather


# Reductions


def _lowest(dtype: str, negate: bool) -> float:
    """The value that `max` has over nothing (its opposite, for `min`)."""
    if dtype in FLOATS:
        return float("inf") if negate else float("-inf")
    if dtype == "bool":
        return negate
    least, greatest = integer_range(dtype)
    return greatest if negate else least


def _reduce(node: CoreNode, target: Target) -> Operation:
    kind, axes = node.attributes["kind"], tuple(node.attributes["axes"])
    spec, result = node.inputs[0].spec, node.outputs[0].spec
    if kind not in REDUCTIONS:
        raise KeyError(kind)
    if not axes:
        return lambda run, x: x
    native = DTYPES[spec.dtype]
    if any(spec.shape[axis] == 0 for axis in axes):
        # MLX runs over what lies behind an empty array.
        empty = {"sum": 0, "prod": 1, "any": False, "all": True}
        nothing = scalar(empty[kind] if kind in empty else _lowest(spec.dtype, kind == "min"), spec.dtype)
        return lambda run, x: mx.broadcast_to(nothing, result.shape)
    if not spec.size:
        return lambda run, x: mx.zeros(result.shape, dtype=native)
    if kind in ("any", "all"):
        test = mx.any if kind == "any" else mx.all
        return lambda run, x: test(x, axis=axes)
    if kind in ("sum", "prod"):
        total: Callable[..., mx.array] = mx.sum if kind == "sum" else mx.prod
        wide = mx.float32 if spec.dtype in HALVES else native
        return lambda run, x: total(x.astype(wide), axis=axes).astype(native)
    best: Callable[..., mx.array] = mx.max if kind == "max" else mx.min
    return lambda run, x: best(x, axis=axes)


def _contract(node: CoreNode, target: Target) -> Operation:
    spec, dtype = node.attributes["spec"], node.outputs[0].spec.dtype
    if not all(value.spec.size for value in node.inputs):
        result = node.outputs[0].spec
        return lambda run, a, b: mx.zeros(result.shape, dtype=DTYPES[dtype])
    if dtype in FLOATS:
        return lambda run, a, b: mx.einsum(spec, a, b)
    return lambda run, a, b: _integer_contract(spec, a, b)


def _integer_contract(spec: str, a: mx.array, b: mx.array) -> mx.array:
    """A contraction by products and sums, since MLX's matrix product takes floats only."""
    operands, output = spec.split("->")
    left, right = operands.split(",")
    summed = [label for label in dict.fromkeys(left + right) if label not in output]
    labels = output + "".join(summed)
    sizes = {label: size for own, x in ((left, a), (right, b)) for label, size in zip(own, x.shape, strict=True)}

    def aligned(x: mx.array, own: str) -> mx.array:
        kept = [label for label in labels if label in own]
        moved = x.transpose([own.index(label) for label in kept]) if kept else x
        return moved.reshape([sizes[label] if label in own else 1 for label in labels])

    product = aligned(a, left) * aligned(b, right)
    axes = tuple(range(len(output), len(labels)))
    return product.sum(axis=axes).astype(a.dtype) if summed else product


BUILDERS: Mapping[str, Callable[[CoreNode, Target], Operation]] = {
    "constant": _constant,
    "iota": _iota,
    "neg": _same(mx.negative),
    "not": _not,
    "abs": _same(mx.abs),
    **{name: _function(name) for name in ("exp", "log", "sqrt", "rsqrt", "sin", "cos", "tanh")},
    "cast": _cast,
    "add": _same(mx.add),
    "sub": _same(mx.subtract),
    "mul": _same(mx.multiply),
    "div": _division(quotient=True),
    "rem": _division(quotient=False),
    "min": _same(mx.minimum),
    "max": _same(mx.maximum),
    "and": _same(mx.bitwise_and),
    "or": _same(mx.bitwise_or),
    "xor": _same(mx.bitwise_xor),
    "shl": _shift(left=True),
    "shr": _shift(left=False),
    "eq": _same(mx.equal),
    "ne": _same(mx.not_equal),
    "lt": _same(mx.less),
    "le": _same(mx.less_equal),
    "gt": _same(mx.greater),
    "ge": _same(mx.greater_equal),
    "select": _same(mx.where),
    "reshape": _reshape,
    "broadcast": _broadcast,
    "permute": _permute,
    "slice": _slice,
    "concat": _concat,
    "cumsum": _cumsum,
    "gather": _gather,
    "reduce": _reduce,
    "contract": _contract,
}
