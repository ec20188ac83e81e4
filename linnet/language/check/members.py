"""What a name or a dotted path means: block members, struct fields, enum variants, modules' items."""

from __future__ import annotations

from difflib import get_close_matches
from typing import NoReturn

from linnet.language.check.context import PRELUDE, CheckFailedError, ConstDecl, Context
from linnet.language.check.modules import LoadedModule
from linnet.language.check.references import Part
from linnet.language.check.substitute import substitute
from linnet.language.check.type_nodes import describe
from linnet.language.diagnostics import Note
from linnet.language.program.checked import (
    CheckedBlock,
    CheckedFunction,
    EnumValue,
    FieldValue,
    Local,
    SelfBlock,
    StateValue,
    StructDecl,
    SubBlock,
    Typed,
    Weight,
)
from linnet.language.program.types import (
    BlockArrayType,
    BlockType,
    EnumType,
    GenericValue,
    OptionalType,
    StructType,
    TensorType,
    Type,
)
from linnet.language.source import Span
from linnet.language.syntax import tree


def block_mapping(type: BlockType) -> dict[str, GenericValue]:
    """A block instance's generics by name, for substitution."""
    return dict(zip((g.name for g in type.block.generics), type.args, strict=True))


def scalar_inside(ctx: Context, value: Typed) -> Typed:
    """Inside index notation a tensor must be indexed."""
    if ctx.indices is not None and isinstance(value.type, TensorType) and value.type.shape:
        rank = len(value.type.shape)
        ctx.fail(
            "E3104",
            f"`{value.span.text}` is a tensor {describe(value.type)}: inside index notation index every axis",
            value.span,
            help=f"write `{value.span.text}[{', '.join('ijklmnop'[:rank])}]`",
        )
    return value


def not_a_value(ctx: Context, found: object, text: str, span: Span) -> NoReturn:
    kinds = {
        CheckedFunction: ("a function", f"call it: `{text}(..)`"),
        CheckedBlock: ("a block", "declare it as a `sub`, then use that"),
        LoadedModule: ("a module", f"name one of its items: `{text}.x`"),
        EnumType: ("an enum", f"name one of its variants: `{text}.X`"),
        StructDecl: ("a struct", f"build one from its fields: `{text}(field = ..)`"),
    }
    what, help = next((words for kind, words in kinds.items() if isinstance(found, kind)), ("a type", None))
    ctx.fail("E1208", f"`{text}` is {what}, not a value", span, help=help)


def member(ctx: Context, node: tree.MemberExpr) -> Typed:
    """`object.name`: a module's constant, an enum's variant, a struct's field, a block's member."""
    found = path_item(ctx, node.object)
    if isinstance(found, LoadedModule):
        item = ctx.checker.public_item(found, node.name, ctx)
        if isinstance(item, ConstDecl):
            return item.value
        return not_a_value(ctx, item, node.name.text, node.span)
    if isinstance(found, EnumType):
        if node.name.text not in found.variants:
            near = get_close_matches(node.name.text, found.variants, 1)
            ctx.fail(
                "E2107",
                f"enum `{found.name}` has no variant `{node.name.text}`",
                node.name.span,
                help=f"did you mean `{near[0]}`?" if near else f"its variants are {', '.join(found.variants)}",
            )
        ctx.checker.references.use(node.name.span, Part(found, node.name.text))
        return EnumValue(found, node.span, node.name.text)
    saved, ctx.indices = ctx.indices, None
    try:
        value = ctx.expr(node.object)
    finally:
        ctx.indices = saved
    if isinstance(value.type, BlockType):
        return scalar_inside(ctx, block_member(ctx, value, node.name))
    if isinstance(value.type, StructType):
        for field, type in value.type.fields:
            if field == node.name.text:
                ctx.checker.references.use(node.name.span, Part(value.type.decl, field), type)
                return scalar_inside(ctx, FieldValue(type, node.span, value, field))
        fields = [field for field, _ in value.type.fields]
        near = get_close_matches(node.name.text, fields, 1)
        ctx.fail(
            "E2107",
            f"struct `{value.type}` has no field `{node.name.text}`",
            node.name.span,
            help=f"did you mean `{near[0]}`?" if near else f"its fields are {', '.join(fields)}",
        )
    no_such_part(ctx, value, node.name, "member")


def no_such_part(ctx: Context, value: Typed, name: tree.Name, what: str) -> NoReturn:
    """Say that a value has no member or method of that name, and what stands in the way (E2107)."""
    notes: list[Note | str] = []
    help = _way_inside(value.type) or _habit(value.type, name.text, value.span.text)
    hidden = ctx.block.members.get(value.var.name) if ctx.block is not None and isinstance(value, Local) else None
    if hidden is not None:
        notes = [
            Note(f"the member `{hidden.name}: {hidden.type}` has that name too, and the local hides it", hidden.span)
        ]
        help = "rename one of them"
    ctx.fail("E2107", f"{describe(value.type)} has no {what} `{name.text}`", name.span, notes, help)


def _way_inside(type: Type) -> str | None:
    """How to reach the members behind an optional or an array."""
    if isinstance(type, OptionalType):
        return "take it apart first: `match v { some(x) => .. none => .. }`"
    if isinstance(type, BlockArrayType):
        return "take one of its blocks: `layers[0]`, or each with `static for layer in layers`"
    return None


def _habit(type: Type, name: str, text: str) -> str | None:
    """What replaces a tensor's attribute or method of other languages."""
    if not isinstance(type, TensorType):
        return None
    if name in ("shape", "size", "dim", "ndim"):
        return "shapes are in types: name the axis, as `N` in `Tensor[N; f32]`, and write `N`"
    if name == "dtype":
        return "the element type is in the type, as `T` in `Tensor[N; T]`"
    text = text if len(text) <= 20 and "\n" not in text else "x"
    if name in ("T", "mT", "t", "transpose"):
        return f"write `permute({text}, [1, 0])`, or name the axes in another order in index notation"
    if name in ("view", "flatten", "unsqueeze", "squeeze", "contiguous"):
        return f"write `reshape({text}, [..])`"
    if name in ("to", "float", "half", "bfloat16", "double", "int", "long"):
        return f"write `cast<f32>({text})`"
    if name in ("sum", "prod", "max", "min", "any", "all"):
        return f"a reduction names its index: `{name}[i] {text}[i]`"
    if name == "mean":
        return f"write `(sum[i] {text}[i]) / N`, with `N` the extent"
    if name in ("expand", "repeat"):
        return f"write `broadcast_to({text}, [..])`"
    if name in PRELUDE:
        return f"write `{name}({text})`: tensors have no methods"
    return None


def path_item(ctx: Context, node: tree.Expr) -> object:
    """The module, enum or other declaration that a path names; None where it is a value's."""
    if isinstance(node, tree.NameExpr):
        shadowed = ctx.find_local(node.name) is not None or node.name in ctx.generics
        if shadowed or (ctx.block is not None and ctx.function is not None and node.name in ctx.block.members):
            return None
        found = ctx.find_item(node.name, node.span)
        return None if isinstance(found, ConstDecl) else found
    if isinstance(node, tree.MemberExpr):
        outer = path_item(ctx, node.object)
        if isinstance(outer, LoadedModule):
            item = ctx.checker.public_item(outer, node.name, ctx)
            return None if isinstance(item, ConstDecl) else item
    return None


def block_member(ctx: Context, object: Typed, name: tree.Name) -> Typed:
    """Member `name` of the block `object`, its type in the caller's generics."""
    assert isinstance(object.type, BlockType)
    block = object.type.block
    ctx.checker.ensure_members(block)
    found = block.members.get(name.text)
    if found is None:
        if name.text in block.methods:
            ctx.fail("E1208", f"`{name.text}` is a method of `{block.name}`: call it", name.span)
        near = get_close_matches(name.text, [*block.members, *block.methods], 1)
        ctx.fail(
            "E2107",
            f"block `{block.name}` has no member `{name.text}`",
            name.span,
            help=f"did you mean `{near[0]}`?" if near else None,
        )
    if name.text in ctx.checker.broken_members.get(id(block), ()):
        raise CheckFailedError
    ctx.checker.member_read(block, name.text)
    type = substitute(found.type, block_mapping(object.type))
    ctx.checker.references.use(name.span, found, type)
    span = name.span if isinstance(object, SelfBlock) else object.span.to(name.span)
    if found.kind == "sub":
        return SubBlock(type, span, object, name.text)
    if found.kind == "state":
        return StateValue(type, span, object, name.text)
    return Weight(type, span, object, name.text)
