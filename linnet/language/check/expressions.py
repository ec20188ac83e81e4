"""Expressions outside calls and index notation: names, members, branches, tuples."""

from __future__ import annotations

from difflib import get_close_matches

from linnet.language.check import calls, index_notation, members, operators, slices
from linnet.language.check.context import PRELUDE, CheckFailedError, ConstDecl, Context
from linnet.language.check.dims import Dim
from linnet.language.check.literals import FLOAT_FLEX, INT_FLEX, coerce, is_flex, settle, settle_default
from linnet.language.check.operators import SCALAR_BOOL
from linnet.language.check.references import Part
from linnet.language.check.substitute import same_type
from linnet.language.check.type_nodes import bounded, describe
from linnet.language.program.checked import (
    DimValue,
    IfValue,
    Literal,
    Local,
    LocalVar,
    MatchEnum,
    MatchOptional,
    NoneValue,
    SelfBlock,
    SomeValue,
    TupleValue,
    Typed,
)
from linnet.language.program.types import EnumType, OptionalType, TensorType, TupleType, Type
from linnet.language.syntax import tree


def expression(ctx: Context, node: tree.Expr, expected: Type | None = None) -> Typed:
    """Check one expression. `expected` guides `none` and branches; agreement with it is the caller's to check."""
    match node:
        case tree.IntLiteral():
            return DimValue(INT_FLEX, node.span, Dim.of(node.value))
        case tree.FloatLiteral():
            return Literal(FLOAT_FLEX, node.span, node.value)
        case tree.BoolLiteral():
            return Literal(SCALAR_BOOL, node.span, node.value)
        case tree.StringLiteral():
            ctx.fail(
                "E2101", "text has no use in an expression", node.span, help="remove it: nothing prints or takes text"
            )
        case tree.NoneLiteral():
            if not isinstance(expected, OptionalType):
                if expected is not None:
                    found = f"expected {describe(expected)}, which `none` cannot be"
                    ctx.fail("E2113", found, node.span, help=f"only an optional holds it: `{expected}?`")
                ctx.fail(
                    "E2113",
                    "`none` needs a type from its context",
                    node.span,
                    help="annotate it, `let x: T? = none`; whether an optional is present is asked by `match`",
                )
            return NoneValue(expected, node.span)
        case tree.SomeExpr():
            return _some(ctx, node, expected)
        case tree.NameExpr():
            return name(ctx, node)
        case tree.MemberExpr():
            return members.member(ctx, node)
        case tree.CallExpr():
            return calls.call(ctx, node, expected)
        case tree.IndexExpr():
            return slices.index(ctx, node) if ctx.indices is None else index_notation.access(ctx, node)
        case tree.UnaryExpr():
            return operators.unary(ctx, node)
        case tree.BinaryExpr():
            return operators.binary(ctx, node)
        case tree.IfExpr():
            return _if(ctx, node, expected)
        case tree.MatchExpr():
            return _match(ctx, node, expected)
        case tree.TupleExpr():
            return _tuple(ctx, node, expected)
        case tree.ReduceExpr():
            return index_notation.reduce(ctx, node)
        case tree.ListExpr():
            ctx.fail(
                "E2101",
                "a list is a shape or a permutation: it stands only in calls that take one",
                node.span,
                help="values stand side by side, as in `concat(a, b, axis = 0)`, or in a tuple, `(a, b)`",
            )


def name(ctx: Context, node: tree.NameExpr) -> Typed:
    """A bare name: local, generic, own member, constant."""
    text = node.name
    var = ctx.find_local(text)
    if var is not None:
        ctx.read.add(id(var))
        if id(var) in ctx.poisoned:
            raise CheckFailedError
        ctx.checker.references.use(node.span, var)
        return members.scalar_inside(ctx, Local(var.type, node.span, var))
    if ctx.indices is not None and text in ctx.indices:
        ctx.fail(
            "E3104",
            f"index `{text}` is not a value",
            node.span,
            help=f"for its value write `iota<i64>(N)[{text}]`, with `N` the extent",
        )
    generic = ctx.generics.get(text)
    if generic is not None:
        ctx.checker.references.use(node.span, generic)
        if generic.kind == "Dim":
            return DimValue(INT_FLEX, node.span, Dim.symbol(text))
        ctx.fail("E1208", f"generic `{text}` is a {generic.kind}, not a value", node.span)
    if ctx.block is not None and ctx.function is not None:
        if text in ctx.block.members:
            own = SelfBlock(ctx.block.self_type(), node.span)
            ctx.checker.member_read(ctx.block, text)
            return members.scalar_inside(ctx, members.block_member(ctx, own, tree.Name(node.span, text)))
        if text in ctx.checker.broken_members.get(id(ctx.block), ()):
            raise CheckFailedError
        if text in ctx.block.methods:
            ctx.fail("E1208", f"`{text}` is a method, not a value", node.span, help=f"call it: `{text}(..)`")
    found = ctx.find_item(text, node.span)
    if isinstance(found, ConstDecl):
        return found.value
    if found is None:
        if text in PRELUDE:
            ctx.fail("E1208", f"`{text}` is a prelude function, not a value", node.span, help=f"call it: `{text}(..)`")
        ctx.unknown(text, node.span)
    return members.not_a_value(ctx, found, text, node.span)


def _some(ctx: Context, node: tree.SomeExpr, expected: Type | None) -> Typed:
    inner = expected.inner if isinstance(expected, OptionalType) else None
    value = ctx.expr(node.value, inner)
    if inner is not None:
        value = coerce(ctx, value, inner)
    value = settle_default(ctx, value)
    if isinstance(value.type, OptionalType):
        ctx.fail("E2101", "an optional of an optional", node.span)
    return SomeValue(OptionalType(value.type), node.span, value)


def _tuple(ctx: Context, node: tree.TupleExpr, expected: Type | None) -> Typed:
    wanted: tuple[Type | None, ...] = (None,) * len(node.items)
    if isinstance(expected, TupleType) and len(expected.items) == len(node.items):
        wanted = expected.items
    items = []
    for item, want in zip(node.items, wanted, strict=True):
        value = ctx.expr(item, want)
        if want is not None:
            value = coerce(ctx, value, want)
        items.append(settle_default(ctx, value))
    type = bounded(ctx, TupleType(tuple(item.type for item in items)), node.span)
    return TupleValue(type, node.span, tuple(items))


def _if(ctx: Context, node: tree.IfExpr, expected: Type | None) -> Typed:
    condition = ctx.expr(node.condition)
    if condition.type != SCALAR_BOOL:
        ctx.fail("E2114", f"a condition is a scalar bool, found {describe(condition.type)}", node.condition.span)
    then, otherwise = branches(ctx, [ctx.expr(node.then, expected), ctx.expr(node.otherwise, expected)], expected)
    return IfValue(then.type, node.span, condition, then, otherwise)


def branches(ctx: Context, values: list[Typed], expected: Type | None) -> list[Typed]:
    """Branches in one type (E2115): what is expected, or the first one's that is settled."""
    settled = [value for value in values if not is_flex(value.type)]
    if isinstance(expected, TensorType) and not settled:
        return [coerce(ctx, value, expected) for value in values]
    if not settled:
        float_ = any(value.type == FLOAT_FLEX for value in values)
        return [operators.as_float_literal(ctx, value) for value in values] if float_ else values
    first = settled[0]
    result = []
    for value in values:
        if is_flex(value.type) and isinstance(first.type, TensorType) and not first.type.shape:
            value = settle(ctx, value, first.type.dtype)
        if not same_type(value.type, first.type, ctx.facts):
            ctx.fail(
                "E2115",
                f"branches differ: {describe(first.type)} and {describe(value.type)}",
                value.span,
                [f"first branch: {describe(first.type)}", f" this branch: {describe(value.type)}"],
            )
        result.append(value)
    return result


def _match(ctx: Context, node: tree.MatchExpr, expected: Type | None) -> Typed:
    subject = ctx.expr(node.subject)
    if isinstance(subject.type, OptionalType):
        return _match_optional(ctx, node, subject, subject.type.inner, expected)
    if isinstance(subject.type, EnumType):
        return _match_enum(ctx, node, subject, subject.type, expected)
    ctx.fail("E2101", f"`match` takes an optional or an enum, found {describe(subject.type)}", node.subject.span)


def _match_optional(ctx: Context, node: tree.MatchExpr, subject: Typed, inner: Type, expected: Type | None) -> Typed:
    arms: dict[str, Typed] = {}
    var: LocalVar | None = None
    for arm in node.arms:
        kind = arm.pattern.kind
        if kind == "variant":
            assert arm.pattern.name is not None
            ctx.fail("E2117", f"an optional is `some(x)` or `none`, never `{arm.pattern.name.text}`", arm.pattern.span)
        if kind in arms:
            ctx.fail("E2117", f"`{kind}` is matched twice", arm.pattern.span)
        with ctx.inner_scope():
            if kind == "some" and arm.pattern.name is not None:
                var = LocalVar(arm.pattern.name.text, inner)
                ctx.declare_local(arm.pattern.name, var)
            arms[kind] = ctx.expr(arm.body, expected)
    missing = [kind for kind in ("some", "none") if kind not in arms]
    if missing:
        shown = {"some": "some(x)", "none": "none"}[missing[0]]
        ctx.fail("E2118", f"`match` does not cover `{shown}`", node.span, help=f"add an arm `{shown} => ..`")
    some, none = branches(ctx, [arms["some"], arms["none"]], expected)
    return MatchOptional(some.type, node.span, subject, var, some, none)


def _match_enum(ctx: Context, node: tree.MatchExpr, subject: Typed, enum: EnumType, expected: Type | None) -> Typed:
    arms: dict[str, Typed] = {}
    for arm in node.arms:
        variant = arm.pattern.name.text if arm.pattern.kind == "variant" and arm.pattern.name else arm.pattern.kind
        if variant not in enum.variants:
            near = get_close_matches(variant, enum.variants, 1)
            ctx.fail(
                "E2117",
                f"enum `{enum.name}` has no variant `{variant}`",
                arm.pattern.span,
                help=f"did you mean `{near[0]}`?" if near else None,
            )
        if variant in arms:
            ctx.fail("E2117", f"`{variant}` is matched twice", arm.pattern.span)
        if arm.pattern.name is not None:
            ctx.checker.references.use(arm.pattern.name.span, Part(enum, variant))
        arms[variant] = ctx.expr(arm.body, expected)
    missing = [variant for variant in enum.variants if variant not in arms]
    if missing:
        ctx.fail(
            "E2118",
            f"`match` does not cover {', '.join(f'`{variant}`' for variant in missing)}",
            node.span,
            help=f"add an arm `{missing[0]} => ..`",
        )
    values = branches(ctx, list(arms.values()), expected)
    return MatchEnum(values[0].type, node.span, subject, dict(zip(arms, values, strict=True)))
