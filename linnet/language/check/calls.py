"""Calls of functions, ops, methods and structs: arguments matched, generics inferred, `where` proven."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from linnet.language.check import prelude
from linnet.language.check.context import PRELUDE, CheckFailedError, ConstDecl, Context
from linnet.language.check.dims import Dim
from linnet.language.check.literals import coerce, is_flex
from linnet.language.check.members import block_mapping, no_such_part, path_item
from linnet.language.check.modules import LoadedModule
from linnet.language.check.references import Part, PreludeFunction
from linnet.language.check.substitute import (
    kind_accepts,
    match_type,
    substitute,
    substitute_dim,
    substitute_value,
)
from linnet.language.check.type_nodes import describe, generic_argument, generic_text, plural, prove_where
from linnet.language.program.checked import (
    Call,
    CheckedBlock,
    CheckedFunction,
    DimValue,
    GenericDecl,
    Literal,
    LocalVar,
    MethodCall,
    NoneValue,
    SelfBlock,
    SomeValue,
    StructDecl,
    StructValue,
    Typed,
)
from linnet.language.program.types import (
    BlockType,
    DTypeVar,
    GenericValue,
    OptionalType,
    StructType,
    TensorType,
    Type,
)
from linnet.language.source import Span
from linnet.language.syntax import tree


@dataclass(frozen=True, slots=True)
class Slot:
    """One parameter (or field) of what is called."""

    name: str
    type: Type
    default: Typed | None
    target: LocalVar | Part


def call(ctx: Context, node: tree.CallExpr, expected: Type | None) -> Typed:
    """`callee<generics>(args)`."""
    if isinstance(node.callee, tree.NameExpr) and _is_prelude(ctx, node.callee.name):
        ctx.checker.references.use(node.callee.span, PreludeFunction(node.callee.name))
        return prelude.call(ctx, node.callee.name, node, expected)
    saved, ctx.indices = ctx.indices, None
    ctx.hidden.append(saved)
    try:
        value = _call(ctx, node)
    finally:
        ctx.hidden.pop()
        ctx.indices = saved
    if saved is not None and isinstance(value.type, TensorType) and value.type.shape:
        ctx.fail(
            "E3104",
            f"this call gives {describe(value.type)}, not a scalar",
            node.span,
            help="bind it with `let` first, then index it",
        )
    return value


def _is_prelude(ctx: Context, name: str) -> bool:
    return name in PRELUDE


def _call(ctx: Context, node: tree.CallExpr) -> Typed:
    callee = node.callee
    if isinstance(callee, tree.NameExpr):
        var = ctx.find_local(callee.name)
        if var is not None:
            if id(var) in ctx.poisoned:
                raise CheckFailedError
            ctx.read.add(id(var))
            ctx.fail("E2106", f"local `{callee.name}` is {describe(var.type)}, which cannot be called", callee.span)
        if ctx.block is not None and ctx.function is not None:
            if callee.name in ctx.block.methods:
                own = SelfBlock(ctx.block.self_type(), callee.span)
                return _method_call(ctx, node, own, ctx.block.methods[callee.name])
            if callee.name in ctx.checker.broken_members.get(id(ctx.block), ()):
                raise CheckFailedError
            if callee.name in ctx.block.members:
                ctx.fail(
                    "E2106",
                    f"member `{callee.name}` cannot be called",
                    callee.span,
                    help=f"call one of its methods: `{callee.name}.forward(..)`",
                )
        found: object = ctx.find_item(callee.name, callee.span)
        if found is None:
            ctx.unknown(callee.name, callee.span, "function")
        return _call_item(ctx, node, found, callee.name)
    if isinstance(callee, tree.MemberExpr):
        outer = path_item(ctx, callee.object)
        if isinstance(outer, LoadedModule):
            return _call_item(ctx, node, ctx.checker.public_item(outer, callee.name, ctx), callee.name.text)
        if outer is not None:
            ctx.fail("E2106", f"`{callee.span.text}` cannot be called", callee.span)
        return _member_call(ctx, node, callee)
    value = ctx.expr(callee)
    ctx.fail("E2106", f"{describe(value.type)} cannot be called", callee.span)


def _member_call(ctx: Context, node: tree.CallExpr, callee: tree.MemberExpr) -> Typed:
    object = ctx.expr(callee.object)
    if not isinstance(object.type, BlockType):
        no_such_part(ctx, object, callee.name, "method")
    block = object.type.block
    ctx.checker.ensure_members(block)
    method = block.methods.get(callee.name.text)
    if method is None:
        if callee.name.text in ctx.checker.broken_members.get(id(block), ()):
            raise CheckFailedError
        near = get_close_matches(callee.name.text, list(block.methods), 1)
        ctx.fail(
            "E2107",
            f"block `{block.name}` has no method `{callee.name.text}`",
            callee.name.span,
            help=f"did you mean `{near[0]}`?" if near else None,
        )
    if not method.public and method.kind != "entry" and block.module != ctx.scope.checked.name:
        ctx.fail(
            "E1203",
            f"method `{block.name}.{method.name}` is private",
            callee.name.span,
            help=f"declare it `pub fn {method.name}` in {block.module}",
        )
    return _method_call(ctx, node, object, method)


def _call_item(ctx: Context, node: tree.CallExpr, found: object, name: str) -> Typed:
    match found:
        case CheckedFunction():
            ctx.checker.edge(ctx.function, found, node.callee.span)
            slots = _slots(found)
            values, generics = arguments(ctx, f"`{name}`", found.generics, slots, {}, node)
            _prove_callee(ctx, found, generics, node.span)
            return Call(substitute(found.result, generics), node.span, found, generics, values)
        case StructDecl():
            return _struct(ctx, node, found)
        case CheckedBlock():
            ctx.fail(
                "E2106",
                f"block `{name}` cannot be called",
                node.callee.span,
                help="declare it as a `sub`, then call its methods",
            )
        case ConstDecl():
            ctx.fail("E2106", f"constant `{name}` cannot be called", node.callee.span)
    ctx.fail("E2106", f"`{name}` cannot be called", node.callee.span)


def _method_call(ctx: Context, node: tree.CallExpr, object: Typed, method: CheckedFunction) -> Typed:
    assert isinstance(object.type, BlockType)
    ctx.checker.edge(ctx.function, method, node.callee.span)
    ctx.checker.member_read(object.type.block, method.name)
    written = node.callee.name.span if isinstance(node.callee, tree.MemberExpr) else node.callee.span
    ctx.checker.references.use(written, method)
    outer = block_mapping(object.type)
    name = f"{object.type.block.name}.{method.name}"
    values, generics = arguments(ctx, f"`{name}`", method.generics, _slots(method), outer, node)
    _prove_callee(ctx, method, {**outer, **generics}, node.span)
    return MethodCall(substitute(method.result, {**outer, **generics}), node.span, object, method, generics, values)


def _prove_callee(ctx: Context, function: CheckedFunction, mapping: dict[str, GenericValue], span: Span) -> None:
    prove_where(ctx, f"`{function.name}`", function.where, mapping, span, function.span)


def _slots(function: CheckedFunction) -> list[Slot]:
    return [
        Slot(var.name, var.type, default, var)
        for var, default in zip(function.parameters, function.defaults, strict=True)
    ]


def _struct(ctx: Context, node: tree.CallExpr, decl: StructDecl) -> Typed:
    """`Moments(mean = a, scale = b)`: every field, by name."""
    if node.args:
        ctx.fail(
            "E2102",
            f"struct `{decl.name}` takes its fields by name",
            node.args[0].span,
            help=f"write `{decl.name}({', '.join(f'{name} = ..' for name, _ in decl.fields)})`",
        )
    slots = [Slot(name, type, None, Part(decl, name)) for name, type in decl.fields]
    values, generics = arguments(ctx, f"struct `{decl.name}`", decl.generics, slots, {}, node)
    fields = tuple((name, substitute(type, generics)) for name, type in decl.fields)
    type = StructType(decl, tuple(generics[g.name] for g in decl.generics), fields)
    return StructValue(type, node.span, dict(zip((name for name, _ in fields), values, strict=True)))


def place_arguments(ctx: Context, what: str, slots: Sequence[Slot], node: tree.CallExpr) -> list[tree.Expr | None]:
    """One written argument (or None for a default) for each parameter (E2102)."""
    placed: list[tree.Expr | None] = [None] * len(slots)
    if len(node.args) > len(slots):
        ctx.fail(
            "E2102",
            f"{what} takes {plural(len(slots), 'argument')}, found {len(node.args) + len(node.named)}",
            node.args[len(slots)].span,
            [f"its parameters: {', '.join(slot.name for slot in slots) or 'none'}"],
        )
    placed[: len(node.args)] = node.args
    names = [slot.name for slot in slots]
    for named in node.named:
        if named.name.text not in names:
            near = get_close_matches(named.name.text, names, 1)
            ctx.fail(
                "E2102",
                f"{what} has no parameter `{named.name.text}`",
                named.name.span,
                help=f"did you mean `{near[0]}`?" if near else f"its parameters are {', '.join(names)}",
            )
        position = names.index(named.name.text)
        if placed[position] is not None:
            ctx.fail("E2102", f"argument `{named.name.text}` is given twice", named.name.span)
        ctx.checker.references.use(named.name.span, slots[position].target)
        placed[position] = named.value
    missing = [slot for slot, given in zip(slots, placed, strict=True) if given is None and slot.default is None]
    if missing:
        listed = ", ".join(f"`{slot.name}: {slot.type}`" for slot in missing)
        ctx.fail("E2102", f"{what} lacks {plural(len(missing), 'argument')}: {listed}", node.span)
    return placed


def arguments(
    ctx: Context,
    what: str,
    generics: Sequence[GenericDecl],
    slots: Sequence[Slot],
    outer: dict[str, GenericValue],
    node: tree.CallExpr,
) -> tuple[tuple[Typed, ...], dict[str, GenericValue]]:
    """Check a call's arguments and solve the callee's generics.

    `outer` maps generics known already (a block's). Returns one value per slot and the solved generics by name.
    """
    placed = place_arguments(ctx, what, slots, node)
    solved = _explicit(ctx, what, generics, node)
    unsolved = {g.name: g.kind for g in generics if g.name not in solved}
    values: list[Typed | None] = []
    for slot, given in zip(slots, placed, strict=True):
        if given is None or isinstance(given, tree.NoneLiteral):
            values.append(None)
            continue
        known = _mentions(slot.type).isdisjoint(unsolved)
        hint = substitute(slot.type, {**outer, **solved}) if known else None
        checked = ctx.expr(given, hint)
        values.append(checked)
        match_type(slot.type, checked.type, unsolved, solved)
    for decl in generics:
        if decl.name in solved:
            _check_kind(ctx, what, decl, solved[decl.name], node.span)
        elif decl.default is not None:
            solved[decl.name] = substitute_value(decl.default, {**outer, **solved})
        else:
            _cannot_infer(ctx, what, generics, decl, slots, values, {**outer, **solved}, node)
    mapping = {**outer, **solved}
    result: list[Typed] = []
    for slot, given, value in zip(slots, placed, values, strict=True):
        type = substitute(slot.type, mapping)
        if given is None:
            assert slot.default is not None
            result.append(default_value(slot.default, mapping))
            continue
        checked = value if value is not None else ctx.expr(given, type)
        result.append(coerce(ctx, checked, type, f" for `{slot.name}` of {what}", slot.type))
    return tuple(result), solved


def _explicit(ctx: Context, what: str, generics: Sequence[GenericDecl], node: tree.CallExpr) -> dict[str, GenericValue]:
    written = node.generics or ()
    if len(written) > len(generics):
        signature = f"its generics are <{', '.join(generic_text(g) for g in generics)}>" if generics else None
        ctx.fail(
            "E2111",
            f"{what} takes {plural(len(generics), 'generic argument')}, found {len(written)}",
            node.span,
            help=signature,
        )
    return {
        decl.name: generic_argument(ctx, decl, given, generics) for decl, given in zip(generics, written, strict=False)
    }


def _check_kind(ctx: Context, what: str, decl: GenericDecl, value: GenericValue, span: Span) -> None:
    if isinstance(value, (str, DTypeVar)) and not kind_accepts(decl.kind, value):
        ctx.fail("E2112", f"`{value}` is not {decl.kind}, which generic `{decl.name}` of {what} asks for", span)


def _cannot_infer(
    ctx: Context,
    what: str,
    generics: Sequence[GenericDecl],
    decl: GenericDecl,
    slots: Sequence[Slot],
    values: Sequence[Typed | None],
    mapping: dict[str, GenericValue],
    node: tree.CallExpr,
) -> None:
    """An argument of the wrong rank or kind explains more than the generic that it leaves open."""
    for slot, value in zip(slots, values, strict=True):
        if value is None or decl.name not in _mentions(slot.type) or is_flex(value.type):
            continue
        unlike = type(value.type) is not type(slot.type)
        if isinstance(value.type, TensorType) and isinstance(slot.type, TensorType):
            unlike = len(value.type.shape) != len(slot.type.shape)
        if unlike:
            coerce(ctx, value, substitute(slot.type, mapping), f" for `{slot.name}` of {what}")
    shown = ", ".join(f"*{g.name}" if g.kind == "Shape" else g.name for g in generics[: generics.index(decl) + 1])
    ctx.fail(
        "E2110",
        f"cannot infer generic `{decl.name}` of {what}",
        node.span,
        help=f"write its generics, <{shown}>, in the call: `{node.callee.span.text}<..>(..)`",
    )


def _mentions(type: Type) -> set[str]:
    """Names of generics in a type."""
    match type:
        case TensorType():
            names = {type.dtype.name} if isinstance(type.dtype, DTypeVar) else set()
            for element in type.shape:
                names |= element.symbols() if isinstance(element, Dim) else {element.name}
            return names
        case OptionalType():
            return _mentions(type.inner)
        case StructType():
            return {name for _, field in type.fields for name in _mentions(field)}
    return {name for item in getattr(type, "items", ()) for name in _mentions(item)}


def default_value(node: Typed, mapping: dict[str, GenericValue]) -> Typed:
    """A parameter's default in the caller's generics."""
    type = substitute(node.type, mapping)
    match node:
        case Literal():
            return Literal(type, node.span, node.value)
        case NoneValue():
            return NoneValue(type, node.span)
        case SomeValue():
            return SomeValue(type, node.span, default_value(node.value, mapping))
        case DimValue():
            return DimValue(type, node.span, substitute_dim(node.dim, mapping))
    return node
