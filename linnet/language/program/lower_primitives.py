"""Operators, prelude functions and slices outside index notation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from linnet.language.check.dims import Dim
from linnet.language.program.checked import Keep, Primitive, Range, Slice
from linnet.language.program.core import BINARY, UNARY, Value
from linnet.language.program.types import TensorType

if TYPE_CHECKING:
    from linnet.language.program.environment import Environment
    from linnet.language.program.lower import Lowerer


def lower_primitive(lowerer: Lowerer, node: Primitive) -> Value:
    args = [lowerer.tensor(arg) for arg in node.args]
    builder, env, op = lowerer.builder, lowerer.frame.env, node.op
    builder.span = node.span
    if op in BINARY:
        return builder.binary(op, args[0], args[1])
    if op == "cast":
        return builder.cast(args[0], env.node_spec(node).dtype)
    if op in UNARY:
        return builder.unary(op, args[0])
    if op == "select":
        return builder.select(args[0], args[1], args[2])
    if op == "reshape":
        return builder.reshape(args[0], env.node_spec(node).shape)
    if op in ("broadcast", "fill"):
        return builder.broadcast(args[0], env.node_spec(node).shape)
    if op == "iota":
        spec = env.node_spec(node)
        return builder.iota(spec.shape[0], spec.dtype)
    axes = concrete_axes(node, env)
    if op == "permute":
        return builder.permute(args[0], tuple(axis for element in node.axes for axis in axes[element]))
    (axis,) = axes[node.axes[0]]
    if op == "concat":
        return builder.concat(args, axis)
    assert op == "cumsum", op
    return builder.cumsum(args[0], axis)


def concrete_axes(node: Primitive, env: Environment) -> list[range]:
    """The concrete axes of each element of the first argument's symbolic shape."""
    type = node.args[0].type
    assert isinstance(type, TensorType)
    found: list[range] = []
    start = 0
    for width in env.widths(type.shape):
        found.append(range(start, start + width))
        start += width
    return found


def lower_slice(lowerer: Lowerer, node: Slice) -> Value:
    """Constant positions and ranges first, in one slice, then the run-time positions in one gather."""
    env = lowerer.frame.env
    x = lowerer.tensor(node.value)
    type = node.value.type
    assert isinstance(type, TensorType)
    shape = x.spec.shape
    starts, stops, steps = [0] * len(shape), list(shape), [1] * len(shape)
    dropped: set[int] = set()
    gathered: dict[int, Value] = {}
    axis = 0
    for item, width in zip(node.items, env.widths(type.shape), strict=True):
        if isinstance(item, Keep):
            axis += width
            continue
        if isinstance(item, Range):
            starts[axis], stops[axis], steps[axis] = env.dim(item.start), env.dim(item.stop), item.step
        else:
            position: int | Value
            if isinstance(item.index, Dim):
                position = env.dim(item.index)
            else:
                position = lowerer.tensor(item.index)
                number = lowerer.builder.numbers.get(position)
                if number is not None and 0 <= number < shape[axis]:
                    position = int(number)
            if isinstance(position, int):
                starts[axis], stops[axis] = position, position + 1
                dropped.add(axis)
            else:
                gathered[axis] = position
        axis += 1
    builder = lowerer.builder
    builder.span = node.span
    part = builder.slice(x, tuple(starts), tuple(stops), tuple(steps))
    part = builder.reshape(part, tuple(n for k, n in enumerate(part.spec.shape) if k not in dropped))
    if not gathered:
        return part
    places = tuple(k - sum(d < k for d in dropped) for k in gathered)
    return builder.gather(part, places, list(gathered.values()), x.name or "the indexed tensor")
