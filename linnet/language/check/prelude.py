"""The prelude: functions that need no import."""

from __future__ import annotations

from linnet.language.check import operators
from linnet.language.check.context import Context
from linnet.language.check.dims import Clause, Dim
from linnet.language.check.literals import FLOAT_FLEX, INT_FLEX, coerce, is_flex, settle, settle_default
from linnet.language.check.operators import agree, broadcast, is_float, is_integer, is_numeric, tensor
from linnet.language.check.substitute import same_element, same_type
from linnet.language.check.type_nodes import describe, dimension, dtype, plural, shape, where_help
from linnet.language.program.checked import DimValue, Primitive, Typed
from linnet.language.program.types import DType, OptionalType, Pack, Shape, ShapeElement, TensorType, Type
from linnet.language.syntax import tree

FLOAT_UNARY = frozenset("exp log sqrt rsqrt sin cos tanh".split())
# Functions that make or rearrange whole tensors, so they have no place inside index notation.
WHOLE = frozenset("reshape permute broadcast_to concat cumsum iota fill".split())

INSTEAD = {
    "gather": "index notation gathers: `let y[i, h] = table[ids[i], h]`",
    "scatter": "where each element comes from is a choice: `select(mask, new, old)` in index notation",
    "pad": "join it with a constant: `concat(x, fill<f32>([..], 0), axis = k)`",
}
"""What does the work of each reserved name."""


def call(ctx: Context, name: str, node: tree.CallExpr, expected: Type | None) -> Typed:
    """A call of the prelude function `name`."""
    if name in INSTEAD:
        ctx.fail("E2190", f"`{name}` is reserved and not implemented", node.callee.span, help=INSTEAD[name])
    if name in WHOLE and ctx.indices is not None:
        ctx.fail(
            "E3104",
            f"`{name}` works on whole tensors, not inside index notation",
            node.span,
            help="bind its result with `let` first, then index it",
        )
    if name not in ("cast", "iota", "fill") and node.generics is not None:
        ctx.fail("E2111", f"`{name}` takes no generic arguments", node.span)
    if name in FLOAT_UNARY or name == "abs":
        return _unary(ctx, name, node)
    match name:
        case "cast":
            return _cast(ctx, node)
        case "min" | "max":
            return _min_max(ctx, name, node)
        case "shl" | "shr":
            return _shift(ctx, name, node)
        case "select":
            return _select(ctx, node)
        case "reshape":
            return _reshape(ctx, node)
        case "permute":
            return _permute(ctx, node)
        case "broadcast_to":
            return _broadcast_to(ctx, node)
        case "concat":
            return _concat(ctx, node)
        case "cumsum":
            return _cumsum(ctx, node)
        case "iota":
            return _iota(ctx, node)
    return _fill(ctx, node, expected)


def _positional(ctx: Context, name: str, node: tree.CallExpr, *parameters: str) -> tuple[tree.Expr, ...]:
    if node.named:
        ctx.fail("E2102", f"`{name}` takes no named arguments", node.named[0].span)
    if len(node.args) != len(parameters):
        ctx.fail(
            "E2102",
            f"`{name}` takes {plural(len(parameters), 'argument')} ({', '.join(parameters)}), found {len(node.args)}",
            node.span,
            help=f"over an axis it is a reduction: `{name}[i] x[i]`" if name in ("min", "max") else None,
        )
    return node.args


def _generic_dtype(ctx: Context, name: str, node: tree.CallExpr) -> DType | None:
    if node.generics is None:
        return None
    (first, *rest) = node.generics or (None,)
    if rest or not isinstance(first, tree.NameExpr):
        ctx.fail("E2111", f"`{name}` takes one element type: `{name}<f32>(..)`", node.span)
    return dtype(ctx, tree.NamedType(first.span, (tree.Name(first.span, first.name),), None))


def _unary(ctx: Context, name: str, node: tree.CallExpr) -> Typed:
    (arg,) = _positional(ctx, name, node, "x")
    value = ctx.expr(arg)
    type = tensor(ctx, value, f"`{name}`")
    if is_flex(type):
        value = settle_default(ctx, value) if name == "abs" else operators.as_float_literal(ctx, value)
        return Primitive(value.type, node.span, name, (value,))
    if name == "abs" and not is_numeric(type.dtype):
        ctx.fail("E2104", f"`abs` is not defined for `{type.dtype}`", node.span)
    if name != "abs" and not is_float(type.dtype):
        ctx.fail("E2104", f"`{name}` takes floats, found `{type.dtype}`", node.span, help="convert it: `cast<f32>(..)`")
    return Primitive(type, node.span, name, (value,))


def _cast(ctx: Context, node: tree.CallExpr) -> Typed:
    target = _generic_dtype(ctx, "cast", node)
    if target is None:
        ctx.fail("E2110", "`cast` needs its element type", node.span, help="write `cast<f32>(..)`")
    (arg,) = _positional(ctx, "cast", node, "x")
    value = ctx.expr(arg)
    type = tensor(ctx, value, "`cast`")
    if is_flex(type):
        # A float takes any dimension; an integer cast wraps, which only an operation can do.
        if isinstance(value, DimValue) and value.dim.constant is None and (is_float(target) or target == "i64"):
            return DimValue(TensorType((), target), node.span, value.dim)
        value = settle_default(ctx, value)
    return Primitive(TensorType(type.shape, target), node.span, "cast", (value,))


def _min_max(ctx: Context, name: str, node: tree.CallExpr) -> Typed:
    a, b = _positional(ctx, name, node, "a", "b")
    left, right = agree(ctx, (a, b), f"`{name}`", node.span)
    if isinstance(left, DimValue) and isinstance(right, DimValue) and left.type == right.type == INT_FLEX:
        combine = Dim.minimum if name == "min" else Dim.maximum
        truncated = left.truncated or right.truncated
        return DimValue(INT_FLEX, node.span, combine(left.dim, right.dim), truncated)
    x, y = tensor(ctx, left, f"`{name}`"), tensor(ctx, right, f"`{name}`")
    if is_flex(x):
        return Primitive(
            FLOAT_FLEX, node.span, name, tuple(operators.as_float_literal(ctx, side) for side in (left, right))
        )
    if not is_numeric(x.dtype):
        ctx.fail("E2104", f"`{name}` is not defined for `{x.dtype}`", node.span)
    return Primitive(TensorType(broadcast(ctx, x.shape, y.shape, node.span), x.dtype), node.span, name, (left, right))


def _shift(ctx: Context, name: str, node: tree.CallExpr) -> Typed:
    a, b = _positional(ctx, name, node, "x", "n")
    left, right = agree(ctx, (a, b), f"`{name}`", node.span)
    left, right = settle_default(ctx, left), settle_default(ctx, right)
    x, y = tensor(ctx, left, f"`{name}`"), tensor(ctx, right, f"`{name}`")
    if not is_integer(x.dtype):
        ctx.fail("E2104", f"`{name}` takes integers, found `{x.dtype}`", node.span)
    return Primitive(TensorType(broadcast(ctx, x.shape, y.shape, node.span), x.dtype), node.span, name, (left, right))


def _select(ctx: Context, node: tree.CallExpr) -> Typed:
    cond, a, b = _positional(ctx, "select", node, "cond", "a", "b")
    condition = ctx.expr(cond)
    c = tensor(ctx, condition, "`select`")
    if c.dtype != "bool":
        ctx.fail("E2103", f"`select` chooses by a bool tensor, found {describe(c)}", cond.span)
    left, right = agree(ctx, (a, b), "`select`", node.span)
    if FLOAT_FLEX in (left.type, right.type):
        left, right = operators.as_float_literal(ctx, left), operators.as_float_literal(ctx, right)
    left, right = settle_default(ctx, left), settle_default(ctx, right)
    x, y = tensor(ctx, left, "`select`"), tensor(ctx, right, "`select`")
    whole = broadcast(ctx, c.shape, broadcast(ctx, x.shape, y.shape, node.span), node.span)
    return Primitive(TensorType(whole, x.dtype), node.span, "select", (condition, left, right))


def _target_shape(ctx: Context, name: str, node: tree.Expr) -> Shape:
    if not isinstance(node, tree.ListExpr):
        ctx.fail("E2101", f"`{name}` takes a shape: `[A, B]`", node.span)
    return shape(ctx, node.items)


def element_count(of: Shape) -> Dim:
    """The product of a shape; a pack counts as one unknown factor (`*` cannot begin a generic's name)."""
    total = Dim.of(1)
    for element in of:
        total = total * (Dim.symbol(f"*{element.name}") if isinstance(element, Pack) else element)
    return total


def _reshape(ctx: Context, node: tree.CallExpr) -> Typed:
    arg, target = _positional(ctx, "reshape", node, "x", "[..]")
    value = settle_default(ctx, ctx.expr(arg))
    type = tensor(ctx, value, "`reshape`")
    wanted = _target_shape(ctx, "reshape", target)
    have, want = element_count(type.shape), element_count(wanted)
    if not ctx.facts.equal(have, want):
        notes = [
            f"  from [{', '.join(map(str, type.shape))}], {have} elements",
            f"    to [{', '.join(map(str, wanted))}], {want} elements",
        ]
        both = have.constant is not None and want.constant is not None
        ctx.fail(
            "E2203",
            f"reshape changes the number of elements from {have} to {want}"
            if both
            else "cannot prove that reshape keeps the number of elements",
            node.span,
            notes,
            where_help(ctx, Clause("==", have, want)),
        )
    return Primitive(TensorType(wanted, type.dtype), node.span, "reshape", (value,))


def _permute(ctx: Context, node: tree.CallExpr) -> Typed:
    arg, order = _positional(ctx, "permute", node, "x", "[..]")
    value = ctx.expr(arg)
    type = tensor(ctx, value, "`permute`")
    if not isinstance(order, tree.ListExpr):
        ctx.fail("E2210", "`permute` takes a list of axes: `[1, 0]`", order.span)
    if any(isinstance(element, Pack) for element in type.shape):
        ctx.fail("E2210", f"`permute` needs a known rank, found {describe(type)}", node.span)
    axes = []
    for item in order.items:
        if isinstance(item, tree.PackAxis):
            ctx.fail("E2210", "a permutation lists axis numbers", item.span)
        axes.append(_constant(ctx, item, "an axis number"))
    if sorted(axes) != list(range(len(type.shape))):
        ctx.fail("E2210", f"{axes} is not a permutation of the {len(type.shape)} axes of {describe(type)}", order.span)
    permuted = tuple(type.shape[axis] for axis in axes)
    return Primitive(TensorType(permuted, type.dtype), node.span, "permute", (value,), tuple(axes))


def _constant(ctx: Context, node: tree.Expr, what: str) -> int:
    value = dimension(ctx, node, nonnegative=False).constant
    if value is None:
        ctx.fail("E2123", f"expected {what} known without its generics", node.span)
    return value


def _broadcast_to(ctx: Context, node: tree.CallExpr) -> Typed:
    arg, target = _positional(ctx, "broadcast_to", node, "x", "[..]")
    value = settle_default(ctx, ctx.expr(arg))
    type = tensor(ctx, value, "`broadcast_to`")
    wanted = _target_shape(ctx, "broadcast_to", target)
    # Only the value stretches: an axis of 1 in the target does not shrink the value's.
    reached = broadcast(ctx, type.shape, wanted, node.span) if len(type.shape) <= len(wanted) else ()
    if len(reached) != len(wanted) or not all(
        same_element(a, b, ctx.facts) for a, b in zip(reached, wanted, strict=True)
    ):
        shown = f"[{', '.join(map(str, wanted))}]"
        ctx.fail("E2207", f"{describe(type)} does not broadcast to {shown}", node.span)
    return Primitive(TensorType(wanted, type.dtype), node.span, "broadcast", (value,))


def _axis(ctx: Context, name: str, node: tree.CallExpr, of: Shape) -> int:
    """The `axis = k` argument: a position counted from the side where no pack stands before it (E2210)."""
    given = [named for named in node.named if named.name.text == "axis"]
    if len(given) != 1 or len(node.named) != 1:
        last = (
            node.args[-1].span.text
            if node.args and isinstance(node.args[-1], (tree.IntLiteral, tree.UnaryExpr))
            else "k"
        )
        where = node.named[0].span if node.named else node.span
        ctx.fail("E2102", f"`{name}` takes `axis = k`", where, help=f"name the axis: `{name}(.., axis = {last})`")
    axis = _constant(ctx, given[0].value, "an axis number")
    position = axis if axis >= 0 else len(of) + axis
    reach = of[: axis + 1] if axis >= 0 else of[axis:]
    if not 0 <= position < len(of) and not any(isinstance(element, Pack) for element in of):
        ctx.fail("E2210", f"axis {axis} is outside the {len(of)} axes of the tensor", given[0].span)
    if not 0 <= position < len(of) or any(isinstance(element, Pack) for element in reach):
        ctx.fail(
            "E2210",
            f"axis {axis} lies in or behind a pack of unknown rank",
            given[0].span,
            help="count from the other side",
        )
    return axis


def _concat(ctx: Context, node: tree.CallExpr) -> Typed:
    if not node.args:
        ctx.fail("E2102", "`concat` takes at least one tensor", node.span)
    values = [ctx.expr(arg) for arg in node.args]
    types = [tensor(ctx, value, "`concat`") for value in values]
    first = types[0]
    axis = _axis(ctx, "concat", node, first.shape)
    total = first.shape[axis]
    assert isinstance(total, Dim)
    for value, type in zip(values[1:], types[1:], strict=True):
        if type.dtype != first.dtype:
            ctx.fail(
                "E2103",
                f"`concat` needs one dtype, found `{first.dtype}` and `{type.dtype}`",
                value.span,
                [f"first: {describe(first)}", f" here: {describe(type)}"],
                f"convert it: `cast<{first.dtype}>(..)`",
            )
        other = type.shape[axis] if len(type.shape) == len(first.shape) else None
        if not isinstance(other, Dim) or not same_type(_without(first, axis), _without(type, axis), ctx.facts):
            ctx.fail(
                "E2202",
                f"`concat` along axis {axis}: the other axes differ",
                value.span,
                [f"first: {describe(first)}", f" here: {describe(type)}"],
            )
        total = total + other
    position = axis % len(first.shape)
    elements: list[ShapeElement] = [*first.shape]
    elements[position] = total
    return Primitive(TensorType(tuple(elements), first.dtype), node.span, "concat", tuple(values), (axis,))


def _without(type: TensorType, axis: int) -> TensorType:
    position = axis % len(type.shape)
    return TensorType(type.shape[:position] + type.shape[position + 1 :], type.dtype)


def _cumsum(ctx: Context, node: tree.CallExpr) -> Typed:
    if len(node.args) != 1:
        help = "write `cumsum(x, axis = k)`"
        ctx.fail("E2102", "`cumsum` takes one tensor and `axis = k`", node.span, help=help)
    value = ctx.expr(node.args[0])
    type = tensor(ctx, value, "`cumsum`")
    if not is_numeric(type.dtype) or is_flex(type):
        ctx.fail("E2104", f"`cumsum` takes a numeric tensor, found {describe(type)}", node.span)
    return Primitive(type, node.span, "cumsum", (value,), (_axis(ctx, "cumsum", node, type.shape),))


def _iota(ctx: Context, node: tree.CallExpr) -> Typed:
    target = _generic_dtype(ctx, "iota", node) or "i64"
    if not is_numeric(target):
        ctx.fail("E2112", f"`iota` counts in a numeric type, found `{target}`", node.span)
    (count,) = _positional(ctx, "iota", node, "n")
    return Primitive(TensorType((dimension(ctx, count),), target), node.span, "iota", ())


def _fill(ctx: Context, node: tree.CallExpr, expected: Type | None) -> Typed:
    target = _generic_dtype(ctx, "fill", node)
    where, what = _positional(ctx, "fill", node, "[..]", "value")
    wanted = _target_shape(ctx, "fill", where)
    value = ctx.expr(what)
    if isinstance(value.type, OptionalType) or tensor(ctx, value, "`fill`").shape:
        ctx.fail("E2202", f"`fill` takes a scalar value, found {describe(value.type)}", what.span)
    if target is not None:
        value = coerce(ctx, value, TensorType((), target), " for `value` of `fill`")
    elif is_flex(value.type) and isinstance(expected, TensorType):
        value = settle(ctx, value, expected.dtype)
    value = settle_default(ctx, value)
    return Primitive(TensorType(wanted, tensor(ctx, value, "`fill`").dtype), node.span, "fill", (value,))
