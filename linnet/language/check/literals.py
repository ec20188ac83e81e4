"""Literals in context: an unsettled literal takes the dtype that its use asks for."""

from __future__ import annotations

import math
import struct
from typing import NoReturn

from linnet.language.check.context import Context
from linnet.language.check.dims import Clause, Dim
from linnet.language.check.substitute import FLEX, FLEX_FLOAT, FLEX_INT, same_element, same_shape, same_type
from linnet.language.check.type_nodes import describe, where_help
from linnet.language.program.checked import DimValue, IfValue, Literal, MatchEnum, MatchOptional, Primitive, Typed
from linnet.language.program.types import (
    FLOATS,
    INTEGERS,
    DType,
    DTypeVar,
    OptionalType,
    Pack,
    Shape,
    TensorType,
    Type,
)
from linnet.language.source import Span

INT_FLEX = TensorType((), FLEX_INT)
FLOAT_FLEX = TensorType((), FLEX_FLOAT)
# The largest finite value of each float dtype, and the most that rounds to it.
FLOAT_MAX = {"f16": 65504.0, "bf16": 3.3895313892515355e38, "f32": 3.4028234663852886e38, "f64": math.inf}


def integer_range(dtype: str) -> tuple[int, int]:
    """The least and the greatest value of an integer dtype."""
    bits = int(dtype[1:])
    return (0, 2**bits - 1) if dtype[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def is_flex(type: Type) -> bool:
    return isinstance(type, TensorType) and type.dtype in FLEX


def default_dtype(node: Typed) -> str:
    return "i64" if node.type == INT_FLEX else "f64"


def settle_default(ctx: Context, node: Typed) -> Typed:
    """A value without context: integers become i64, floats f64."""
    return settle(ctx, node, default_dtype(node)) if is_flex(node.type) else node


def settle(ctx: Context, node: Typed, dtype: DType) -> Typed:
    """Give an unsettled literal expression its dtype (E2105 where it does not fit, E2103 for another kind)."""
    if not is_flex(node.type):
        return node
    assert isinstance(node.type, TensorType)
    if node.type.dtype == FLEX_FLOAT and not _is_float(dtype):
        wanted = "write `true` or `false`" if dtype == "bool" else "write an integer literal"
        ctx.fail("E2103", f"a float literal cannot be `{dtype}`", node.span, help=wanted)
    if dtype == "bool" or (isinstance(dtype, DTypeVar) and dtype.kind == "DType"):
        help = "write `true` or `false`" if dtype == "bool" else None
        ctx.fail("E2103", f"{describe(node.type)} cannot be `{dtype}`", node.span, help=help)
    settled = TensorType((), dtype)
    match node:
        case DimValue():
            if _is_float(dtype):
                warn_truncated(ctx, node, dtype)
            if node.dim.constant is None:
                return DimValue(settled, node.span, node.dim)
            _fits(ctx, node.dim.constant, dtype, node.span)
            return Literal(settled, node.span, node.dim.constant)
        case Literal():
            assert not isinstance(node.value, str)
            _fits(ctx, node.value, dtype, node.span)
            return Literal(settled, node.span, node.value)
        case Primitive():
            args = tuple(settle(ctx, arg, dtype) for arg in node.args)
            return Primitive(settled, node.span, node.op, args, node.axes)
        case IfValue():
            return IfValue(
                settled, node.span, node.condition, settle(ctx, node.then, dtype), settle(ctx, node.otherwise, dtype)
            )
        case MatchOptional():
            some, none = settle(ctx, node.some, dtype), settle(ctx, node.none, dtype)
            return MatchOptional(settled, node.span, node.subject, node.var, some, none)
        case MatchEnum():
            arms = {name: settle(ctx, arm, dtype) for name, arm in node.arms.items()}
            return MatchEnum(settled, node.span, node.subject, arms)
    raise AssertionError(f"no literal: {type(node).__name__}")


def warn_truncated(ctx: Context, node: DimValue, dtype: DType = "f32") -> None:
    """A dimension that becomes a float behind an integer division has lost what remained (W1005)."""
    if node.truncated is None:
        return
    dividend, divisor = node.truncated
    whole = dividend.to(divisor)
    ctx.checker.diagnostics.warning(
        "W1005",
        f"`{whole.text}` is an integer division: what remains is lost before it becomes a float",
        whole,
        help=f"write `{_as_float(dividend, dtype)} / {_as_float(divisor, dtype)}`,"
        f" or `cast<{dtype}>({whole.text})` where the integer is meant",
    )


def _as_float(written: Span, dtype: DType) -> str:
    return f"{written.text}.0" if written.text.isdecimal() else f"cast<{dtype}>({written.text})"


def _is_float(dtype: DType) -> bool:
    return dtype.kind == "Float" if isinstance(dtype, DTypeVar) else dtype in FLOATS


def _fits(ctx: Context, value: float, dtype: DType, span: Span) -> None:
    """Whether the dtype holds the literal: integers exactly in range, floats without overflow."""
    if isinstance(dtype, DTypeVar):
        return
    if dtype in INTEGERS:
        low, high = integer_range(dtype)
        if not low <= value <= high:
            ctx.fail("E2105", f"{value} does not fit `{dtype}` ({low} to {high})", span)
    elif abs(value) > FLOAT_MAX[dtype] and not _rounds_into(float(value), dtype):
        ctx.fail("E2105", f"{value} overflows `{dtype}`", span)


def _rounds_into(value: float, dtype: str) -> bool:
    if math.isinf(value) or dtype in ("f64", "bf16"):
        return False
    try:
        struct.pack("<f" if dtype == "f32" else "<e", value)
    except OverflowError:
        return False
    return True


def coerce(ctx: Context, node: Typed, expected: Type, what: str = "", declared: Type | None = None) -> Typed:
    """`node` as a value of `expected`: literals settle, everything else must already have that type.

    `declared` is that type before the generics in it were replaced.
    """
    if is_flex(node.type) and isinstance(expected, TensorType):
        if expected.shape:
            ctx.fail(
                "E2202",
                f"expected `{expected}`{what}, found {describe(node.type)}",
                node.span,
                help=f"make a tensor of it: `fill<{expected.dtype}>([..], value)`",
            )
        return settle(ctx, node, expected.dtype)
    if same_type(node.type, expected, ctx.facts):
        return node
    mismatch(ctx, node.type, expected, node.span, what, declared)


def mismatch(
    ctx: Context, found: Type, expected: Type, span: Span, what: str = "", declared: Type | None = None
) -> NoReturn:
    """Say in which way two types disagree: dtype, shape or kind."""
    notes = [f"expected {describe(expected)}", f"   found {describe(found)}"]
    if declared is not None and describe(declared) != describe(expected):
        notes.insert(0, f"declared {describe(declared)}")
    if isinstance(found, TensorType) and isinstance(expected, TensorType):
        if not same_shape(found.shape, expected.shape, ctx.facts):
            _shape_mismatch(ctx, found, expected, span, what, notes, declared)
        ctx.fail(
            "E2103",
            f"expected dtype `{expected.dtype}`{what}, found {_dtype_text(found.dtype)}",
            span,
            notes,
            f"convert it: `cast<{expected.dtype}>(..)`",
        )
    help = None
    if isinstance(expected, OptionalType) and same_type(found, expected.inner, ctx.facts):
        written = span.text if len(span.text) <= 40 and "\n" not in span.text else ".."
        help = f"a bare value is not an optional: write `some({written})`"
    elif isinstance(found, OptionalType) and same_type(found.inner, expected, ctx.facts):
        help = "take it apart: `match v { some(x) => .. none => .. }`"
    ctx.fail("E2101", f"expected {describe(expected)}{what}, found {describe(found)}", span, notes, help)


def _dtype_text(dtype: DType) -> str:
    return {FLEX_INT: "an integer literal", FLEX_FLOAT: "a float literal"}.get(str(dtype), f"`{dtype}`")


def _shape_mismatch(
    ctx: Context,
    found: TensorType,
    expected: TensorType,
    span: Span,
    what: str,
    notes: list[str],
    declared: Type | None,
) -> NoReturn:
    if len(found.shape) != len(expected.shape):
        ctx.fail("E2202", f"expected `{expected}`{what}, found `{found}`: their ranks differ", span, notes)
    for position, (a, b) in enumerate(zip(found.shape, expected.shape, strict=True)):
        if not same_element(a, b, ctx.facts):
            help = None
            order = permutation(ctx, found.shape, expected.shape)
            if order is not None:
                help = f"the axes are in another order: `permute(.., {order})` gives the one expected"
            elif isinstance(a, Dim) and isinstance(b, Dim):
                help = where_help(ctx, Clause("==", a, b))
                turned = _transposed(ctx, found, b, position, declared)
                if turned is not None:
                    swap = f"axis {turned} of it is `{b}`: are its axes in the right order?"
                    help = f"{swap} Or {help}" if help else swap
            ctx.fail("E2202", f"axis {position}: expected `{b}`{what}, found `{a}`", span, notes, help)
    raise AssertionError("the shapes are equal")


def permutation(ctx: Context, found: Shape, expected: Shape) -> list[int] | None:
    """The one order of `found`'s axes that makes it `expected`, if there is one."""
    order: list[int] = []
    for wanted in expected:
        fits = [at for at, element in enumerate(found) if same_element(element, wanted, ctx.facts)]
        if len(fits) != 1 or fits[0] in order or isinstance(found[fits[0]], Pack):
            return None
        order += fits
    return order


def _transposed(ctx: Context, found: TensorType, wanted: Dim, position: int, declared: Type | None) -> int | None:
    """The axis of `found` that is as long as that at `position` should be, where the declaration tells them apart."""
    if not isinstance(declared, TensorType) or len(declared.shape) != len(found.shape):
        return None
    for at, element in enumerate(found.shape):
        if declared.shape[at] != declared.shape[position] and same_element(element, wanted, ctx.facts):
            return at
    return None
