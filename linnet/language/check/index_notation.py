"""Index notation: tensors defined element by element, and reductions.

An index gets its extent from the axes that it indexes. Inside, every value is a scalar.
"""

from __future__ import annotations

from linnet.language.check import operators, slices
from linnet.language.check.context import PRELUDE, Context, another_name
from linnet.language.check.dims import Clause, Dim
from linnet.language.check.literals import INT_FLEX, is_flex, settle, settle_default
from linnet.language.check.operators import is_integer, tensor
from linnet.language.check.order import mentioned_names
from linnet.language.check.substitute import same_element, same_shape
from linnet.language.check.type_nodes import describe, dtype, plural, where_help
from linnet.language.program.checked import Access, Build, DimValue, IndexVar, Reduce, Typed
from linnet.language.program.types import BlockArrayType, Pack, Shape, TensorType
from linnet.language.syntax import tree

# What an index has before an axis gives it its extent.
UNKNOWN: Shape = (Pack("?"),)
# An access and the shape that it indexes.
Whole = tuple[tree.IndexExpr, Shape]


def build(ctx: Context, node: tree.LetIndexStmt) -> Typed:
    """The value of `let y[*s, i] = e`."""
    axes = _new_indices(ctx, node.indices)
    saved, ctx.indices = ctx.indices, {var.name: var for var in axes}
    try:
        body = settle_default(ctx, ctx.expr(node.value))
    finally:
        ctx.indices = saved
    type = body.type
    if not isinstance(type, TensorType) or type.shape:
        ctx.fail("E3104", f"an element is a scalar, found {describe(type)}", node.value.span)
    for var, written in zip(axes, node.indices, strict=True):
        if var.extent == UNKNOWN:
            ctx.fail(
                "E3103",
                f"index `{var.name}` is never used, so its extent is unknown",
                written.span,
                help="index some axis with it, or use `broadcast_to` for a repeated value",
            )
    shape = tuple(element for var in axes for element in var.extent)
    return Build(TensorType(shape, type.dtype), node.name.span.to(node.value.span), tuple(axes), body)


def _new_indices(ctx: Context, nodes: tuple[tree.Name | tree.PackAxis, ...]) -> list[IndexVar]:
    names: dict[str, IndexVar] = {}
    for node in nodes:
        pack = isinstance(node, tree.PackAxis)
        name = node.name if isinstance(node, tree.PackAxis) else node
        if name.text in names or (ctx.indices is not None and name.text in ctx.indices):
            ctx.fail("E3105", f"index `{name.text}` is listed twice", node.span)
        if name.text in PRELUDE:
            message = f"`{name.text}` is a prelude name and cannot be redeclared"
            ctx.fail("E1207", message, name.span, help=another_name(name.text))
        var = names[name.text] = IndexVar(name.text, UNKNOWN, pack)
        ctx.checker.references.define(name.span, var)
    return list(names.values())


def reduce(ctx: Context, node: tree.ReduceExpr) -> Typed:
    """`sum<f32>[k] body`; its body reaches as far right as it can."""
    kind = node.kind.text
    accumulate = dtype(ctx, node.accumulate) if node.accumulate is not None else None
    if accumulate is not None and kind in ("any", "all"):
        ctx.fail("E2111", f"`{kind}` takes no element type", node.span)
    if not node.indices:
        ctx.fail("E3102", f"`{kind}` needs at least one index", node.span)
    bound = _new_indices(ctx, node.indices)
    saved = ctx.indices
    ctx.indices = {**(saved or {}), **{var.name: var for var in bound}}
    try:
        body = ctx.expr(node.body)
    finally:
        ctx.indices = saved
    body = settle(ctx, body, accumulate) if accumulate is not None and is_flex(body.type) else settle_default(ctx, body)
    type = body.type
    if not isinstance(type, TensorType) or type.shape:
        ctx.fail("E3104", f"the body of `{kind}` is a scalar, found {describe(type)}", node.body.span)
    if kind in ("any", "all"):
        if type.dtype != "bool":
            ctx.fail("E2103", f"`{kind}` reduces bools, found `{type.dtype}`", node.body.span)
    elif not operators.is_numeric(type.dtype):
        ctx.fail("E2104", f"`{kind}` is not defined for `{type.dtype}`", node.body.span)
    if accumulate is not None and type.dtype != accumulate:
        ctx.fail(
            "E2103",
            f"`{kind}<{accumulate}>` needs a body of `{accumulate}`, found `{type.dtype}`",
            node.body.span,
            help=f"convert it: `cast<{accumulate}>(..)`",
        )
    for var, written in zip(bound, node.indices, strict=True):
        if var.extent == UNKNOWN:
            ctx.fail("E3102", f"index `{var.name}` of `{kind}` is never used in its body", written.span)
    _warn_swallowed(ctx, node)
    return Reduce(type, node.span, kind, tuple(bound), body)


def _warn_swallowed(ctx: Context, node: tree.ReduceExpr) -> None:
    """A term behind a sum that does not use its index was likely meant to stand outside (W1004)."""
    term = node.body
    # A span that begins before its first operand's has parentheses, which say that all of it is meant.
    while isinstance(term, tree.BinaryExpr) and term.op in ("+", "-") and term.span.start == term.left.span.start:
        names = {index.name.text if isinstance(index, tree.PackAxis) else index.text for index in node.indices}
        if names.isdisjoint(mentioned_names(term.right)):
            kind = node.kind.text
            ctx.checker.diagnostics.warning(
                "W1004",
                f"`{kind}` reaches this far: the term is taken for every `{', '.join(sorted(names))}`",
                term.right.span,
                help=f"end it before: `({kind}[..] ..) {term.op} ..`; or put its whole body in parentheses",
            )
        term = term.left


def access(ctx: Context, node: tree.IndexExpr) -> Typed:
    """`x[..]` inside index notation: one element; every axis is indexed."""
    assert ctx.indices is not None
    indices, ctx.indices = ctx.indices, None
    ctx.hidden.append(indices)
    try:
        value = ctx.expr(node.object)
    finally:
        ctx.hidden.pop()
        ctx.indices = indices
    if isinstance(value.type, BlockArrayType):
        return slices.index(ctx, node)
    type = tensor(ctx, value, "indexing")
    if is_flex(type) or not type.shape:
        ctx.fail("E2204", f"{describe(type)} is a scalar and has no axes to index", node.span)
    widths = _widths(ctx, node, type.shape)
    positions: list[IndexVar | Dim | Typed] = []
    at = 0
    for written, width in zip(node.positions, widths, strict=True):
        elements = type.shape[at : at + width]
        at += width
        positions.append(_position(ctx, written, elements, (node, type.shape)))
    return Access(TensorType((), type.dtype), node.span, value, tuple(positions))


def _widths(ctx: Context, node: tree.IndexExpr, shape: Shape) -> list[int]:
    """How many shape elements each written position covers: packs take what the others leave."""
    assert ctx.indices is not None
    widths: list[int | None] = []
    for position in node.positions:
        if isinstance(position, (tree.SliceItem, tree.EllipsisItem)):
            ctx.fail("E3104", "inside index notation an access names one element: no `:` and no `...`", position.span)
        if isinstance(position, tree.PackAxis):
            var = _index(ctx, position.name, pack=True)
            widths.append(None if var.extent == UNKNOWN else len(var.extent))
        else:
            widths.append(1)
    open_ = [i for i, width in enumerate(widths) if width is None]
    known = sum(width for width in widths if width is not None)
    if len(open_) > 1:
        ctx.fail("E3106", "two packs of unknown rank in one access", node.span)
    if open_ and known <= len(shape):
        widths[open_[0]] = len(shape) - known
    elif open_ or known != len(shape):
        ctx.fail(
            "E2204",
            f"{plural(len(node.positions), 'position')} for the {plural(len(shape), 'axis')} of the tensor",
            node.span,
            [f"its shape is [{', '.join(map(str, shape))}]"],
            "inside index notation index every axis",
        )
    return [width for width in widths if width is not None]


def _index(ctx: Context, name: tree.Name, pack: bool) -> IndexVar:
    assert ctx.indices is not None
    var = ctx.indices.get(name.text)
    if var is None:
        ctx.refuse_hidden(name.text, name.span)
        ctx.fail(
            "E3101",
            f"`{name.text}` is not an index here",
            name.span,
            help=f"name it on the left, or bind it with a reduction such as `sum[{name.text}]`",
        )
    if var.pack != pack:
        words = ("a plain index, not a pack", "a pack: write it `*" + name.text + "`")
        ctx.fail("E3106", f"index `{name.text}` is {words[not pack]}", name.span)
    ctx.checker.references.use(name.span, var)
    return var


def _position(ctx: Context, node: tree.Position, elements: Shape, whole: Whole) -> IndexVar | Dim | Typed:
    assert ctx.indices is not None
    if isinstance(node, tree.PackAxis):
        return _use(ctx, _index(ctx, node.name, pack=True), elements, whole, node)
    (element,) = elements
    if isinstance(node, tree.NameExpr):
        is_index = node.name in ctx.indices
        known = ctx.find_local(node.name) is not None or node.name in ctx.generics
        if not is_index and not known and not _is_value(ctx, node):
            _index(ctx, tree.Name(node.span, node.name), pack=False)
        if is_index:
            var = _index(ctx, tree.Name(node.span, node.name), pack=False)
            if isinstance(element, Pack):
                ctx.fail("E3106", f"`*{element.name}` stands for any number of axes: index it with a pack", node.span)
            return _use(ctx, var, elements, whole, node)
    if isinstance(element, Pack):
        ctx.fail("E3106", f"`*{element.name}` stands for any number of axes: index it with a pack", node.span)
    assert not isinstance(node, (tree.SliceItem, tree.EllipsisItem))
    value = ctx.expr(node)
    if isinstance(value, DimValue) and value.type == INT_FLEX:
        slices.in_bounds(ctx, value.dim, element, node.span)
        return value.dim
    type = tensor(ctx, value, "an index")
    if type.shape or not is_integer(type.dtype):
        ctx.fail("E3104", f"a position is an integer, found {describe(type)}", node.span)
    return value


def _is_value(ctx: Context, node: tree.NameExpr) -> bool:
    if ctx.block is not None and node.name in ctx.block.members:
        return True
    return ctx.find_item(node.name, node.span) is not None


def _use(ctx: Context, var: IndexVar, elements: Shape, whole: Whole, node: tree.Position) -> IndexVar:
    """Give the index its extent, or prove that it has this one (E2201)."""
    if var.extent == UNKNOWN:
        var.extent = elements
    elif not same_shape(var.extent, elements, ctx.facts):
        had, has = (", ".join(map(str, extent)) for extent in (var.extent, elements))
        help = None
        if len(elements) == 1 and isinstance(elements[0], Dim) and isinstance(var.extent[0], Dim):
            help = where_help(ctx, Clause("==", var.extent[0], elements[0]))
            if _elsewhere(ctx, var, whole):
                swap = f"`{had}` is another axis of `{whole[0].object.span.text}`: swap its indices"
                help = f"{swap}, or {help}" if help else swap
        ctx.fail(
            "E2201",
            f"index `{var.name}` runs over `{had}` and over `{has}`",
            node.span,
            [f"  first extent: {had}", f"extent of this: {has}"],
            help,
        )
    return var


def _elsewhere(ctx: Context, var: IndexVar, whole: Whole) -> bool:
    """Whether an axis of the access that another index stands at has the extent of this one."""
    node, shape = whole
    for written, element in zip(reversed(node.positions), reversed(shape), strict=False):
        if isinstance(written, tree.PackAxis):
            break
        own = isinstance(written, tree.NameExpr) and written.name == var.name
        if not own and same_element(element, var.extent[0], ctx.facts):
            return True
    return False
