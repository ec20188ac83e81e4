"""Indexing and slicing outside index notation: bounds proven, or checked when the entry runs."""

from __future__ import annotations

from linnet.language.check.context import Context
from linnet.language.check.dims import Clause, Dim
from linnet.language.check.literals import INT_FLEX, is_flex
from linnet.language.check.operators import is_integer, tensor
from linnet.language.check.type_nodes import describe, dimension, plural, prove
from linnet.language.program.checked import At, DimValue, Keep, Range, Slice, SubElement, Typed
from linnet.language.program.types import BlockArrayType, Pack, Shape, ShapeElement, TensorType
from linnet.language.source import Span
from linnet.language.syntax import tree


def index(ctx: Context, node: tree.IndexExpr) -> Typed:
    """`x[..]`: a slice of a tensor, or an element of a block array."""
    value = ctx.expr(node.object)
    if isinstance(value.type, BlockArrayType):
        return _element(ctx, node, value, value.type)
    type = tensor(ctx, value, "indexing")
    if is_flex(type) or not type.shape:
        ctx.fail("E2204", f"{describe(type)} is a scalar and has no axes to index", node.span)
    positions = _expand(ctx, node, type.shape)
    items: list[Keep | Range | At] = []
    result: list[ShapeElement] = []
    for element, position in zip(type.shape, positions, strict=True):
        item = _item(ctx, element, position)
        items.append(item)
        if isinstance(item, Keep):
            result.append(element)
        elif isinstance(item, Range):
            result.append(_length(item))
    return Slice(TensorType(tuple(result), type.dtype), node.span, value, tuple(items))


def _element(ctx: Context, node: tree.IndexExpr, value: Typed, array: BlockArrayType) -> Typed:
    if len(node.positions) != 1 or isinstance(node.positions[0], (tree.SliceItem, tree.EllipsisItem, tree.PackAxis)):
        ctx.fail("E2204", "a block array takes one position", node.span)
    written = node.positions[0]
    var = ctx.find_local(written.name) if isinstance(written, tree.NameExpr) else None
    if var is not None and id(var) not in ctx.poisoned and id(var) not in ctx.dimensions:
        array_text = node.object.span.text
        ctx.fail(
            "E2123",
            f"`{var.name}` is a value, and cannot pick a block of an array",
            written.span,
            help=f"walk over the blocks: `static for layer in {array_text} {{ .. }}`",
        )
    position = dimension(ctx, written)
    in_bounds(ctx, position, array.count, node.positions[0].span)
    return SubElement(array.inner, node.span, value, position)


def _expand(ctx: Context, node: tree.IndexExpr, shape: Shape) -> list[tree.Position | None]:
    """One written position for each axis; None keeps the axis whole. `...` stands for the axes not written."""
    written = list(node.positions)
    ellipses = [i for i, position in enumerate(written) if isinstance(position, tree.EllipsisItem)]
    if len(ellipses) > 1:
        ctx.fail("E2204", "`...` may appear once", written[ellipses[1]].span)
    if len(written) - len(ellipses) > len(shape):
        count = len(written) - len(ellipses)
        ctx.fail(
            "E2204",
            f"{count} positions for the {plural(len(shape), 'axis')} of the tensor",
            node.span,
            [f"its shape is [{', '.join(map(str, shape))}]"],
        )
    missing: list[tree.Position | None] = [None] * (len(shape) - len(written) + len(ellipses))
    if not ellipses:
        return [*written, *missing]
    at = ellipses[0]
    return [*written[:at], *missing, *written[at + 1 :]]


def _item(ctx: Context, element: ShapeElement, position: tree.Position | None) -> Keep | Range | At:
    if position is None:
        return Keep()
    if isinstance(position, tree.PackAxis):
        ctx.fail("E3106", "a pack index stands only inside index notation", position.span)
    whole = isinstance(position, tree.SliceItem) and (position.start, position.stop, position.step) == (None,) * 3
    if whole:
        return Keep()
    if isinstance(element, Pack):
        ctx.fail(
            "E2204",
            f"`*{element.name}` stands for any number of axes: keep it whole",
            position.span,
            help="write `...` for it and index the axes behind it",
        )
    if isinstance(position, tree.SliceItem):
        return _range(ctx, element, position)
    assert not isinstance(position, tree.EllipsisItem)
    value = ctx.expr(position)
    if isinstance(value, DimValue) and value.type == INT_FLEX:
        in_bounds(ctx, value.dim, element, position.span)
        return At(value.dim)
    type = tensor(ctx, value, "an index")
    if type.shape or not is_integer(type.dtype):
        ctx.fail(
            "E2209",
            f"an index is an integer scalar, found {describe(type)}",
            position.span,
            help="to gather many positions use index notation: `let y[i] = x[at[i]]`" if type.shape else None,
        )
    return At(value)


def in_bounds(ctx: Context, position: Dim, extent: ShapeElement, span: Span) -> None:
    """Prove `0 <= position < extent` (E2209)."""
    assert isinstance(extent, Dim)
    if position.constant is not None and position.constant < 0:
        last = extent + position.constant
        ctx.fail("E2209", "there are no negative indices", span, help=f"count from the end: `{last}`")
    low = Clause("<=", Dim.of(0), position)
    prove(
        ctx,
        "E2209",
        low,
        f"cannot prove that index `{position}` is not negative",
        span,
        refuted=f"index `{position}` is negative",
    )
    prove(
        ctx,
        "E2209",
        Clause("<", position, extent),
        f"cannot prove that index `{position}` is inside the axis of `{extent}`",
        span,
        refuted=f"index `{position}` is outside the axis of `{extent}`",
        help="an axis of 0 has no index" if extent == Dim.of(0) else f"the last index is `{extent - 1}`",
    )


def _range(ctx: Context, extent: Dim, node: tree.SliceItem) -> Range:
    start = dimension(ctx, node.start, nonnegative=False) if node.start is not None else Dim.of(0)
    stop = dimension(ctx, node.stop, nonnegative=False) if node.stop is not None else extent
    step = 1
    if node.step is not None:
        constant = dimension(ctx, node.step, nonnegative=False).constant
        if constant is None or constant <= 0:
            ctx.fail("E2209", "a slice's step is a positive constant", node.step.span)
        step = constant
    for goal, words, refuted, help in (
        (
            Clause("<=", Dim.of(0), start),
            f"the start `{start}` is not negative",
            f"the start `{start}` is negative",
            "",
        ),
        (
            Clause("<=", start, stop),
            f"the start `{start}` is at most the stop `{stop}`",
            f"the start `{start}` is past the stop `{stop}`",
            "a slice is written `start:stop`, and its stop is excluded",
        ),
        (
            Clause("<=", stop, extent),
            f"the stop `{stop}` lies inside the axis of `{extent}`",
            f"the stop `{stop}` is outside the axis of `{extent}`",
            f"the axis ends at `{extent}`",
        ),
    ):
        prove(ctx, "E2209", goal, f"cannot prove that {words}", node.span, refuted=refuted, help=help or None)
    return Range(start, stop, step)


def _length(item: Range) -> Dim:
    length = item.stop - item.start
    return length if item.step == 1 else (length + (item.step - 1)) // item.step
