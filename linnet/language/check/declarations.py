"""Signatures: what constants, types, functions and blocks declare, before any body is checked."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from linnet.language.check.context import (
    PRELUDE,
    AliasDecl,
    CheckFailedError,
    ConstDecl,
    Context,
    Decl,
    ModuleScope,
    another_name,
)
from linnet.language.check.literals import coerce
from linnet.language.check.prover import Facts
from linnet.language.check.references import Part
from linnet.language.check.type_nodes import bounded, describe, generic_argument, resolve_type, where_clauses
from linnet.language.diagnostics import Note
from linnet.language.program.checked import (
    CheckedBlock,
    CheckedFunction,
    CheckedMember,
    DimValue,
    EnumValue,
    GenericDecl,
    Literal,
    LocalVar,
    NoneValue,
    SomeValue,
    StructDecl,
    Typed,
)
from linnet.language.program.types import (
    DTYPES,
    BlockArrayType,
    BlockType,
    EnumType,
    OptionalType,
    StructType,
    TensorType,
    TupleType,
    Type,
)
from linnet.language.syntax import tree

if TYPE_CHECKING:
    from linnet.language.check.checker import Checker

GENERIC_KINDS = ("Dim", "Shape", "DType", "Numeric", "Integer", "Float")


def declare(checker: Checker, scope: ModuleScope, item: tree.Item) -> Decl:
    """Resolve one item's declaration. Raises CheckFailedError."""
    ctx = Context(checker, scope, Facts(()))
    match item:
        case tree.ConstItem():
            return _const(ctx, item)
        case tree.AliasItem():
            generics(ctx, item.generics)
            return AliasDecl(item.name.text, tuple(ctx.generics.values()), resolve_type(ctx, item.type))
        case tree.StructItem():
            return _struct(ctx, item)
        case tree.EnumItem():
            _distinct(ctx, item.variants, "variants")
            enum = EnumType(item.name.text, scope.checked.name, tuple(name.text for name in item.variants))
            for name in item.variants:
                checker.references.define(name.span, Part(enum, name.text))
            return enum
        case tree.FunctionItem():
            function = _function(ctx, item, None)
            scope.checked.functions[function.name] = function
            return function
        case tree.BlockItem():
            return _block(ctx, item)


def _distinct(ctx: Context, names: Sequence[tree.Name], what: str) -> None:
    """No two names alike (E1205)."""
    seen: dict[str, tree.Name] = {}
    for name in names:
        if name.text in seen:
            first = Note("first declared here", seen[name.text].span)
            ctx.error("E1205", f"two {what} of one name: `{name.text}`", name.span, [first])
        seen.setdefault(name.text, name)


def _const(ctx: Context, item: tree.ConstItem) -> ConstDecl:
    value = ctx.expr(item.value)
    if not isinstance(value.type, TensorType) or value.type.shape:
        ctx.fail("E2101", f"a constant is a scalar, found {describe(value.type)}", item.value.span)
    if not is_constant(value):
        ctx.fail("E2123", "a constant's value is a literal or a constant expression", item.value.span)
    if item.type is not None:
        expected = resolve_type(ctx, item.type)
        value = coerce(ctx, value, expected)
    assert isinstance(value.type, TensorType)
    return ConstDecl(item.name.text, value.type, value, item.public)


def is_constant(value: Typed) -> bool:
    """Whether an expression's value is known without running anything."""
    if isinstance(value, (EnumValue, Literal, NoneValue)):
        return True
    if isinstance(value, DimValue):
        return value.dim.constant is not None
    if isinstance(value, SomeValue):
        return is_constant(value.value)
    return all(is_constant(arg) for arg in value.args) if hasattr(value, "args") else False


def generics(ctx: Context, nodes: Sequence[tree.Generic]) -> None:
    """Add declared generics to the context (E1205, E1207, E1208)."""
    defaulted = False
    for node in nodes:
        name, kind = node.name.text, node.kind.text
        if name in PRELUDE or name in DTYPES:
            message = f"`{name}` is a prelude name and cannot be redeclared"
            ctx.error("E1207", message, node.name.span, help=another_name(name))
            continue
        if name in ctx.generics:
            first = Note("first declared here", ctx.generics[name].span)
            ctx.error("E1205", f"two generics of one name: `{name}`", node.name.span, [first])
            continue
        if kind not in GENERIC_KINDS:
            ctx.fail(
                "E1201",
                f"unknown kind of generic `{kind}`",
                node.kind.span,
                help=f"the kinds are {', '.join(GENERIC_KINDS)}",
            )
        if node.star != (kind == "Shape"):
            written = f"*{name}: Shape" if kind == "Shape" else f"{name}: {kind}"
            ctx.error("E1101", "a `*` marks exactly the Shape generics", node.name.span, help=f"write `{written}`")
        decl = GenericDecl(name, kind, None, node.name.span)
        if node.default is not None:
            decl = GenericDecl(name, kind, generic_argument(ctx, decl, node.default), node.name.span)
            defaulted = True
        elif defaulted:
            ctx.error("E2111", f"generic `{name}` without a default follows one with", node.name.span)
        ctx.generics[name] = decl
        ctx.checker.references.define(node.name.span, decl)


def _struct(ctx: Context, item: tree.StructItem) -> StructDecl:
    generics(ctx, item.generics)
    _distinct(ctx, [field.name for field in item.fields], "fields")
    fields: list[tuple[str, Type]] = []
    ctx.said = set()
    for field in item.fields:
        with suppress(CheckFailedError):
            fields.append((field.name.text, resolve_type(ctx, field.type)))
    if len(fields) < len(item.fields):
        raise CheckFailedError
    bounded(ctx, TupleType(tuple(type for _, type in fields)), item.name.span)
    generic = tuple(ctx.generics.values())
    decl = StructDecl(item.name.text, ctx.scope.checked.name, generic, tuple(fields), item.name.span)
    for field, (name, type) in zip(item.fields, fields, strict=True):
        ctx.checker.references.define(field.name.span, Part(decl, name), type=type)
    return decl


def _function(outer: Context, item: tree.FunctionItem, block: CheckedBlock | None) -> CheckedFunction:
    """A function's or method's signature; its context is kept for its body."""
    checker = outer.checker
    what = {"fn": "function", "op": "op", "entry": "entry"}[item.kind]
    ctx = Context(checker, outer.scope, outer.facts, dict(outer.generics), block, owner=f"{what} {item.name.text}")
    if block is not None and item.kind == "op":
        ctx.error("E1101", "an `op` stands at module level, not in a block", item.name.span, help="make it a `fn`")
    generics(ctx, item.generics)
    own = tuple(decl for name, decl in ctx.generics.items() if name not in outer.generics)
    where = where_clauses(ctx, item.where)
    ctx.facts = outer.facts.extend(where) if where else outer.facts
    variables: list[LocalVar] = []
    defaults: list[Typed | None] = []
    defaulted = False
    ctx.said = set()
    for parameter in item.parameters:
        defaulted = defaulted or parameter.default is not None
        if parameter.default is None and defaulted:
            ctx.error(
                "E2102", f"parameter `{parameter.name.text}` without a default follows one with", parameter.name.span
            )
        try:
            type = resolve_type(ctx, parameter.type)
            default = _default(ctx, parameter.default, type) if parameter.default is not None else None
        except CheckFailedError:
            continue
        variables.append(LocalVar(parameter.name.text, type))
        defaults.append(default)
    result = resolve_type(ctx, item.result)
    ctx.said = None
    if len(variables) < len(item.parameters):
        raise CheckFailedError
    if item.kind == "entry":
        written = [(var.type, node.type.span) for var, node in zip(variables, item.parameters, strict=True)]
        for type, span in [*written, (result, item.result.span)]:
            if not _crosses(type):
                ctx.fail("E2101", f"an entry takes and returns tensors, not {describe(type)}", span)
    function = CheckedFunction(
        item.name.text,
        item.kind,
        outer.scope.checked.name,
        item.public,
        item.doc,
        own,
        tuple(variables),
        tuple(defaults),
        result,
        where,
        item.name.span,
        item.signature,
        block,
    )
    ctx.function = function
    checker.nodes[id(function)] = item
    checker.contexts[id(function)] = ctx
    return function


def _default(ctx: Context, node: tree.Expr, type: Type) -> Typed:
    default = coerce(ctx, ctx.expr(node, type), type)
    if not is_constant(default):
        ctx.fail("E2123", "a default is a literal, a constant or `none`", node.span)
    return default


def _crosses(type: Type) -> bool:
    """Whether a backend's callers can give or take the type: tensors, and tuples, structs and optionals of them."""
    match type:
        case TensorType():
            return True
        case OptionalType():
            return _crosses(type.inner)
        case TupleType():
            return all(map(_crosses, type.items))
        case StructType():
            return all(_crosses(field) for _, field in type.fields)
    return False


def _block(ctx: Context, item: tree.BlockItem) -> CheckedBlock:
    """A block's name, generics and `where`; `members` follows when they are first needed."""
    block = CheckedBlock(item.name.text, ctx.scope.checked.name, item.public, item.doc, item.name.span)
    generics(ctx, item.generics)
    ctx.owner = f"block {item.name.text}"
    block.generics = tuple(ctx.generics.values())
    block.where = where_clauses(ctx, item.where)
    ctx.facts = Facts(block.where)
    ctx.checker.nodes[id(block)] = item
    ctx.checker.contexts[id(block)] = ctx
    ctx.scope.checked.blocks[block.name] = block
    return block


def members(checker: Checker, block: CheckedBlock) -> None:
    """Resolve a block's members, then its methods' signatures. Failures are remembered by name."""
    item, ctx = checker.nodes[id(block)], checker.contexts[id(block)]
    assert isinstance(item, tree.BlockItem)
    broken = checker.broken_members.setdefault(id(block), set())
    _distinct(ctx, [m.name for m in item.members] + [m.name for m in item.methods], "members")
    for node in item.members:
        try:
            if node.name.text in PRELUDE:
                message = f"`{node.name.text}` is a prelude name and cannot be redeclared"
                ctx.fail("E1207", message, node.name.span, help=another_name(node.name.text))
            type = _member_type(ctx, node)
            member = CheckedMember(node.name.text, node.kind, type, node.doc, node.name.span)
            block.members.setdefault(member.name, member)
            checker.references.define(node.name.span, member)
        except CheckFailedError:
            broken.add(node.name.text)
    for method in item.methods:
        try:
            function = _function(ctx, method, block)
            block.methods.setdefault(function.name, function)
            checker.references.define(method.name.span, function)
        except CheckFailedError:
            broken.add(method.name.text)


def _member_type(ctx: Context, node: tree.Member) -> Type:
    """The type of a member, of the kind that its keyword allows (E4101, E4102)."""
    type = resolve_type(ctx, node.type, blocks=True)
    inner = type.inner if isinstance(type, OptionalType) else type
    is_block = isinstance(inner, (BlockType, BlockArrayType))
    if node.kind == "sub" and not is_block:
        ctx.fail(
            "E4101",
            f"a `sub` is a block or an array of blocks, found {describe(type)}",
            node.type.span,
            help="a weight is a `param`, constant data a `buffer`, run-time data a `state`",
        )
    if node.kind != "sub" and (is_block or not isinstance(inner, TensorType)):
        ctx.fail(
            "E4101",
            f"a `{node.kind}` is a tensor, found {describe(type)}",
            node.type.span,
            help="a child block is a `sub`" if is_block else None,
        )
    if isinstance(type, OptionalType) and node.kind in ("buffer", "state"):
        ctx.fail("E4101", f"a `{node.kind}` cannot be optional", node.type.span)
    if isinstance(type, OptionalType) and isinstance(inner, BlockArrayType):
        ctx.fail("E4101", "an array of blocks cannot be optional", node.type.span)
    if node.value is not None and (not isinstance(node.value, tree.NoneLiteral) or not isinstance(type, OptionalType)):
        ctx.fail(
            "E4102",
            f"a `{node.kind}` has no value in the source: weights stay in the checkpoint",
            node.value.span,
            help="only an optional one may end in `= none`",
        )
    return type
