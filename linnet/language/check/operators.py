"""Operators: dtypes must agree, shapes must broadcast, `&& || !` take scalar bools."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable

from linnet.language.check.context import Context
from linnet.language.check.dims import Clause, Dim, DimError
from linnet.language.check.literals import FLOAT_FLEX, INT_FLEX, is_flex, settle, settle_default, warn_truncated
from linnet.language.check.substitute import FLEX_FLOAT, same_element
from linnet.language.check.type_nodes import describe, prove, where_help
from linnet.language.program.checked import DimValue, Literal, Primitive, Typed
from linnet.language.program.types import (
    FLOATS,
    INTEGERS,
    KINDS,
    DType,
    DTypeVar,
    OptionalType,
    Shape,
    ShapeElement,
    TensorType,
)
from linnet.language.source import Span
from linnet.language.syntax import tree

FLOAT_ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "%": math.fmod,
}
ARITHMETIC = {"+": "add", "-": "sub", "*": "mul", "/": "div", "%": "rem"}
COMPARISON = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
BITWISE = {"&": "and", "|": "or", "^": "xor"}
LOGICAL = {"&&": "and", "||": "or"}
SCALAR_BOOL = TensorType((), "bool")
ONE = Dim.of(1)


def is_numeric(dtype: DType) -> bool:
    return KINDS[dtype.kind] <= KINDS["Numeric"] if isinstance(dtype, DTypeVar) else dtype in INTEGERS + FLOATS


def is_integer(dtype: DType) -> bool:
    return dtype.kind == "Integer" if isinstance(dtype, DTypeVar) else dtype in INTEGERS


def is_float(dtype: DType) -> bool:
    return dtype.kind == "Float" if isinstance(dtype, DTypeVar) else dtype in FLOATS


def is_signed(dtype: DType) -> bool:
    """Whether the dtype surely has negative values (an Integer generic may be unsigned)."""
    return is_float(dtype) or (isinstance(dtype, str) and dtype in INTEGERS and dtype[0] == "i")


def tensor(ctx: Context, node: Typed, what: str) -> TensorType:
    """The node's type, which must be a tensor's (E2104)."""
    if not isinstance(node.type, TensorType):
        optional = isinstance(node.type, OptionalType)
        ctx.fail(
            "E2104",
            f"{what} is not defined for {describe(node.type)}",
            node.span,
            help="take it apart first: `match v { some(x) => .. none => .. }`" if optional else None,
        )
    return node.type


def broadcast(ctx: Context, a: Shape, b: Shape, span: Span) -> Shape:
    """The common shape of two, aligned at their last axes: each pair equal or one of them 1 (E2207)."""
    result: list[ShapeElement] = []
    for back in range(1, max(len(a), len(b)) + 1):
        if back > len(a) or back > len(b):
            result.append(a[-back] if back <= len(a) else b[-back])
            continue
        x, y = a[-back], b[-back]
        if same_element(x, y, ctx.facts):
            result.append(x)
        elif x == ONE and isinstance(y, Dim):
            result.append(y)
        elif y == ONE and isinstance(x, Dim):
            result.append(x)
        else:
            help = where_help(ctx, Clause("==", x, y)) if isinstance(x, Dim) and isinstance(y, Dim) else None
            notes = [f" left: [{', '.join(map(str, a))}]", f"right: [{', '.join(map(str, b))}]"]
            short, long = sorted((a, b), key=len)
            if 0 < len(short) < len(long) and all(
                same_element(p, q, ctx.facts) for p, q in zip(short, long, strict=False)
            ):
                wanted = ", ".join([*map(str, short), *["1"] * (len(long) - len(short))])
                help = f"shapes align at their last axes: `reshape(.., [{wanted}])`, or use index notation"
            known = isinstance(x, Dim) and isinstance(y, Dim) and (x - y).constant is not None
            words = "neither equal nor 1" if known else "not proven equal, nor 1"
            ctx.fail("E2207", f"cannot broadcast: `{x}` and `{y}` are {words}", span, notes, help)
    return tuple(reversed(result))


def agree(ctx: Context, nodes: tuple[tree.Expr, tree.Expr], what: str, span: Span) -> tuple[Typed, Typed]:
    """Both operands, checked and in one dtype: literals take the other's; two literals stay literals."""
    left, right = ctx.expr(nodes[0]), ctx.expr(nodes[1])
    a, b = tensor(ctx, left, what), tensor(ctx, right, what)
    if is_flex(a) and is_flex(b):
        return left, right
    if is_flex(a):
        return settle(ctx, left, b.dtype), right
    if is_flex(b):
        return left, settle(ctx, right, a.dtype)
    if a.dtype != b.dtype:
        ctx.fail(
            "E2103",
            f"{what} needs one dtype, found `{a.dtype}` and `{b.dtype}`",
            span,
            [f" left: {describe(a)}", f"right: {describe(b)}"],
            _conversion(ctx, nodes, a, b),
        )
    return left, right


def _conversion(ctx: Context, nodes: tuple[tree.Expr, tree.Expr], a: TensorType, b: TensorType) -> str:
    """What to convert where two dtypes meet: a dimension that a `let` made a value, else a scalar, else the right."""
    for node, other in zip(nodes, (b, a), strict=True):
        is_iota = isinstance(node, tree.CallExpr) and node.callee.span.text == "iota" and node.generics is None
        if is_iota and is_numeric(other.dtype):
            return f"count in that dtype: `iota<{other.dtype}>(..)`"
    from_dimension = [isinstance(node, tree.NameExpr) and ctx.bound_dimension(node) is not None for node in nodes]
    first = from_dimension == [True, False] or (from_dimension[0] == from_dimension[1] and not a.shape and b.shape)
    node, wanted = (nodes[0], b.dtype) if first else (nodes[1], a.dtype)
    text = node.span.text if len(node.span.text) <= 40 and "\n" not in node.span.text else ".."
    cast = f"`cast<{wanted}>({text})`"
    bound = ctx.bound_dimension(node) if isinstance(node, tree.NameExpr) else None
    if bound is not None and is_integer(wanted):
        return f"give it that dtype where it is bound, `let {text}: {wanted} = {bound[1]}`, or convert it: {cast}"
    return f"convert one: {cast}"


def binary(ctx: Context, node: tree.BinaryExpr) -> Typed:
    """`left op right`."""
    if node.op in LOGICAL:
        return _logical(ctx, node)
    what = f"`{node.op}`"
    left, right = agree(ctx, (node.left, node.right), what, node.span)
    a, b = tensor(ctx, left, what), tensor(ctx, right, what)
    if node.op in COMPARISON:
        return _comparison(ctx, node, left, right)
    if node.op in BITWISE:
        if is_flex(a):
            left, right = settle_default(ctx, left), settle_default(ctx, right)
            a, b = tensor(ctx, left, what), tensor(ctx, right, what)
        if not (is_integer(a.dtype) or a.dtype == "bool"):
            ctx.fail("E2104", f"{what} is not defined for `{a.dtype}`", node.op_span, help="it takes integers or bools")
        return Primitive(
            TensorType(broadcast(ctx, a.shape, b.shape, node.span), a.dtype), node.span, BITWISE[node.op], (left, right)
        )
    if is_flex(a):
        return literal_arithmetic(ctx, node, left, right)
    if not is_numeric(a.dtype):
        ctx.fail("E2104", f"{what} is not defined for `{a.dtype}`", node.op_span)
    shape = broadcast(ctx, a.shape, b.shape, node.span)
    return Primitive(TensorType(shape, a.dtype), node.span, ARITHMETIC[node.op], (left, right))


def _comparison(ctx: Context, node: tree.BinaryExpr, left: Typed, right: Typed) -> Typed:
    if is_flex(left.type):
        dtype = "f64" if FLOAT_FLEX in (left.type, right.type) else "i64"
        left, right = settle(ctx, left, dtype), settle(ctx, right, dtype)
    a, b = tensor(ctx, left, "comparison"), tensor(ctx, right, "comparison")
    if node.op not in ("==", "!=") and not is_numeric(a.dtype):
        ctx.fail("E2104", f"`{node.op}` is not defined for `{a.dtype}`", node.op_span)
    shape = broadcast(ctx, a.shape, b.shape, node.span)
    return Primitive(TensorType(shape, "bool"), node.span, COMPARISON[node.op], (left, right))


def _logical(ctx: Context, node: tree.BinaryExpr) -> Typed:
    args = tuple(scalar_bool(ctx, ctx.expr(side), f"`{node.op}`") for side in (node.left, node.right))
    return Primitive(SCALAR_BOOL, node.span, LOGICAL[node.op], args)


def scalar_bool(ctx: Context, node: Typed, what: str) -> Typed:
    """An operand of `&& || !` (E2116)."""
    if node.type != SCALAR_BOOL:
        help = None
        if isinstance(node.type, TensorType) and node.type.dtype == "bool":
            help = "use `&`, `|`, `^` or index notation on bool tensors"
        ctx.fail("E2116", f"{what} takes scalar bools, found {describe(node.type)}", node.span, help=help)
    return node


def literal_arithmetic(ctx: Context, node: tree.BinaryExpr, left: Typed, right: Typed) -> Typed:
    """Arithmetic on literals: integers stay dimensions, floats are computed where both are known."""
    op, span = node.op, node.span
    if isinstance(left, DimValue) and isinstance(right, DimValue):
        dim = _dim_arithmetic(ctx, op, left.dim, right.dim, span)
        truncated = left.truncated or right.truncated
        if truncated is None and op == "/" and not _divides(ctx, left.dim, right.dim):
            truncated = (node.left.span, node.right.span)
        return DimValue(INT_FLEX, span, dim, truncated)
    left, right = as_float_literal(ctx, left), as_float_literal(ctx, right)
    if isinstance(left, Literal) and isinstance(right, Literal):
        a, b = float(left.value), float(right.value)
        if op in "/%" and b == 0:
            ctx.fail("E2205", "division by the literal 0", span)
        value = FLOAT_ARITHMETIC[op](a, b)
        if not math.isfinite(value):
            ctx.fail("E2105", f"{a} {op} {b} overflows", span)
        return Literal(FLOAT_FLEX, span, value)
    return Primitive(FLOAT_FLEX, span, ARITHMETIC[op], (left, right))


def as_float_literal(ctx: Context, node: Typed) -> Typed:
    """An unsettled integer beside a float literal is one too (W1005)."""
    if isinstance(node, DimValue):
        warn_truncated(ctx, node)
        if node.dim.constant is not None:
            return Literal(FLOAT_FLEX, node.span, float(node.dim.constant))
        return DimValue(TensorType((), FLEX_FLOAT), node.span, node.dim)
    return node


def _divides(ctx: Context, a: Dim, b: Dim) -> bool:
    """Whether `a / b` surely has no remainder; in a `where`, whose clauses are not known yet, nobody asks."""
    if ctx.checker.in_where:
        return True
    if a.constant is not None and b.constant is not None:
        return a.constant % b.constant == 0
    try:
        return ctx.facts.equal(a % b, Dim.of(0))
    except DimError:
        return False


def _dim_arithmetic(ctx: Context, op: str, a: Dim, b: Dim, span: Span) -> Dim:
    try:
        if op == "+":
            return a + b
        if op == "-":
            return a - b
        if op == "*":
            return a * b
        if not ctx.checker.in_where:
            goal = Clause(">", b, Dim.of(0))
            refuted = f"the divisor `{b}` is not positive"
            prove(ctx, "E2205", goal, f"cannot prove that the divisor `{b}` is positive", span, refuted=refuted)
            if a.constant is not None and b.constant is not None:
                quotient = abs(a.constant) // b.constant * (1 if a.constant >= 0 else -1)
                return Dim.of(quotient if op == "/" else a.constant - quotient * b.constant)
            # Integer division truncates toward zero, a dimension's rounds down: they agree from zero up.
            low = Clause(">=", a, Dim.of(0))
            prove(ctx, "E2208", low, f"cannot prove that the dividend `{a}` is not negative", span)
        elif b.constant is not None and b.constant <= 0:
            ctx.fail("E2205", f"the divisor `{b}` is not positive", span)
        return a // b if op == "/" else a % b
    except DimError as error:
        ctx.fail("E2123", f"this dimension cannot be computed: {error}", span)


def unary(ctx: Context, node: tree.UnaryExpr) -> Typed:
    """`!x`, `-x`, `+x`."""
    operand = ctx.expr(node.operand)
    if node.op == "!":
        return Primitive(SCALAR_BOOL, node.span, "not", (scalar_bool(ctx, operand, "`!`"),))
    type = tensor(ctx, operand, f"unary `{node.op}`")
    if isinstance(operand, DimValue) and is_flex(type):
        dim = operand.dim if node.op == "+" else Dim.of(0) - operand.dim
        return DimValue(type, node.span, dim, operand.truncated)
    if isinstance(operand, Literal) and is_flex(type):
        assert isinstance(operand.value, (int, float))
        return Literal(type, node.span, operand.value if node.op == "+" else -operand.value)
    if not is_flex(type) and not is_numeric(type.dtype):
        ctx.fail("E2104", f"unary `{node.op}` is not defined for `{type.dtype}`", node.span)
    return operand if node.op == "+" else Primitive(type, node.span, "neg", (operand,))
