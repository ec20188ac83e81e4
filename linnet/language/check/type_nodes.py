"""Written types, dimensions and generic arguments, resolved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches

from linnet.language.check.context import ELEMENT_TYPES, AliasDecl, CheckFailedError, Context
from linnet.language.check.dims import Clause, Dim, DimError
from linnet.language.check.modules import LoadedModule
from linnet.language.check.substitute import FLEX_INT, kind_accepts, substitute, substitute_clause, substitute_value
from linnet.language.diagnostics import Note
from linnet.language.program.checked import CheckedBlock, DimValue, GenericDecl, StructDecl
from linnet.language.program.types import (
    DTYPES,
    BlockArrayType,
    BlockType,
    DType,
    DTypeVar,
    EnumType,
    GenericValue,
    OptionalType,
    Pack,
    Shape,
    ShapeElement,
    StructType,
    TensorType,
    TupleType,
    Type,
    value_text,
)
from linnet.language.source import Span
from linnet.language.syntax import tree

COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")


def dimension(ctx: Context, node: tree.Expr, nonnegative: bool = True) -> Dim:
    """A compile-time integer; as a dimension it must be provably not negative (E2208). Raises CheckFailedError."""
    saved, ctx.indices = ctx.indices, None
    try:
        value = ctx.expr(node)
    finally:
        ctx.indices = saved
    if not isinstance(value, DimValue) or value.type != TensorType((), FLEX_INT):
        ctx.fail(
            "E2123",
            f"expected a compile-time integer, found {describe(value.type)}",
            node.span,
            help=_instead_of_value(ctx, node),
        )
    if nonnegative:
        goal = Clause(">=", value.dim, Dim.of(0))
        prove(
            ctx,
            "E2208",
            goal,
            f"dimension `{value.dim}` may be negative",
            node.span,
            refuted=f"dimension `{value.dim}` is negative",
            help="sizes are written out, none is worked out from `-1`" if node.span.text == "-1" else None,
        )
    return value.dim


def _instead_of_value(ctx: Context, node: tree.Expr) -> str:
    bound = ctx.bound_dimension(node)
    if bound is not None:
        name, written = bound
        return f"a `let` is a value and never a dimension: write `{written}` in place of `{name}`"
    return "use literals, `Dim` generics, integer constants and + - * / % min max"


def where_help(ctx: Context, goal: Clause) -> str | None:
    """The help line that names the clause which would let `goal` be proven, if one that makes sense would."""
    symbols = goal.left.symbols() | goal.right.symbols()
    # A pack's count of elements is no dimension that a clause could name.
    if (goal.left - goal.right).constant is not None or any(name.startswith("*") for name in symbols):
        return None
    if is_false(ctx, goal):
        return f"`{_arranged(goal)}` is false for all dimensions allowed here: no where clause helps"
    terms = tuple((goal.left - goal.right).terms())
    one_sign = len({coefficient > 0 for coefficient, _ in terms}) == 1
    if goal.op == "==" and one_sign and all(isinstance(factor, str) for _, factors in terms for factor in factors):
        # A sum of terms that are never negative is zero only where each of them is.
        return f"`{_arranged(goal)}` holds only for an empty axis: one of the two sizes must change"
    missing = [_arranged(clause) for clause in ctx.facts.missing(goal)]
    owner = ctx.owner
    if ctx.block is not None:
        own = {generic.name for generic in ctx.block.generics}
        if all(clause.symbols() <= own for clause in missing):
            owner = f"block {ctx.block.name}"
    return f'add "{", ".join(map(str, missing))}" to the where clause{f" of {owner}" if owner else ""}'


def _arranged(clause: Clause) -> Clause:
    """The clause as one would write it: no term subtracted, and a number on the right."""
    sides = [Dim.of(0), Dim.of(0)]
    for side, dim in enumerate((clause.left, clause.right)):
        for coefficient, factors in dim.terms():
            term = Dim.of(abs(coefficient))
            for factor in factors:
                term = term * Dim.atom(factor)
            to = side if coefficient > 0 else 1 - side
            sides[to] = sides[to] + term
    left, right = sides
    if left.constant is not None and right.constant is None:
        return Clause({"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(clause.op, clause.op), right, left)
    return Clause(clause.op, left, right)


def is_false(ctx: Context, goal: Clause) -> bool:
    """Whether the goal is proven to fail: then no fact could help."""
    opposite = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}[goal.op]
    return ctx.facts.prove(Clause(opposite, goal.left, goal.right))


def prove(
    ctx: Context,
    code: str,
    goal: Clause,
    message: str,
    span: Span,
    notes: Sequence[str] = (),
    refuted: str | None = None,
    help: str | None = None,
) -> None:
    """Fail with `code` unless `goal` is proven: with `refuted` and `help` where it is plainly false."""
    if ctx.facts.prove(goal):
        return
    if refuted is not None and is_false(ctx, goal):
        ctx.fail(code, refuted, span, notes, help)
    ctx.fail(code, message, span, notes, where_help(ctx, goal))


def where_clauses(ctx: Context, nodes: Sequence[tree.Expr]) -> tuple[Clause, ...]:
    """A `where` list. Divisors are not asked about: a clause that divides by zero is false."""
    clauses: list[Clause] = []
    for node in nodes:
        try:
            if not isinstance(node, tree.BinaryExpr) or node.op not in COMPARISONS:
                ctx.fail(
                    "E2101",
                    "a where clause compares two dimensions",
                    node.span,
                    help="write it with one of == != < <= > >=",
                )
            ctx.checker.in_where += 1
            try:
                left = dimension(ctx, node.left, nonnegative=False)
                right = dimension(ctx, node.right, nonnegative=False)
            finally:
                ctx.checker.in_where -= 1
            clauses.append(Clause(node.op, left, right))
        except CheckFailedError:
            continue
        except DimError as error:
            ctx.error("E2123", f"this dimension cannot be computed: {error}", node.span)
    return tuple(clauses)


def shape(ctx: Context, axes: Sequence[tree.Axis]) -> Shape:
    """Axes of a tensor type, a `[..]` list or a shape argument."""
    result: list[ShapeElement] = []
    for axis in axes:
        if isinstance(axis, tree.PackAxis):
            generic = ctx.generics.get(axis.name.text)
            if generic is None:
                ctx.unknown(axis.name.text, axis.name.span, "shape")
            if generic.kind != "Shape":
                ctx.fail("E1208", f"`{generic.name}` is a {generic.kind}, not a Shape", axis.span)
            ctx.checker.references.use(axis.name.span, generic)
            result.append(Pack(generic.name))
        else:
            result.append(dimension(ctx, axis))
    return tuple(result)


def dtype(ctx: Context, node: tree.NamedType) -> DType:
    """An element type: a dtype's name or a dtype generic."""
    name = node.path[0].text
    if len(node.path) == 1 and node.args is None:
        if name in DTYPES:
            return name
        generic = ctx.generics.get(name)
        if generic is not None and generic.kind not in ("Dim", "Shape"):
            ctx.checker.references.use(node.span, generic)
            return DTypeVar(generic.name, generic.kind)
        if generic is not None:
            ctx.fail("E1208", f"`{name}` is a {generic.kind}, not an element type", node.span)
        if ctx.find_item(name, node.span) is not None:
            ctx.fail("E1208", f"`{name}` is not an element type", node.span)
    near = get_close_matches(node.span.text, [*DTYPES, *ctx.generics], 1)
    near += [ELEMENT_TYPES[word] for word in get_close_matches(node.span.text.lower(), ELEMENT_TYPES, 1)]
    ctx.fail(
        "E1201",
        f"unknown element type `{node.span.text}`",
        node.span,
        help=f"did you mean `{near[0]}`?" if near else None,
    )


def resolve_type(ctx: Context, node: tree.TypeNode, blocks: bool = False) -> Type:
    """A written type. Blocks are allowed only where `blocks` says so (a `sub`). Raises CheckFailedError."""
    match node:
        case tree.TensorTypeNode():
            return TensorType(shape(ctx, node.axes), dtype(ctx, node.dtype))
        case tree.OptionalTypeNode():
            inner = resolve_type(ctx, node.inner, blocks)
            if isinstance(inner, OptionalType):
                ctx.fail("E2101", "an optional of an optional", node.span)
            return OptionalType(inner)
        case tree.TupleTypeNode():
            return bounded(ctx, TupleType(tuple(resolve_type(ctx, item) for item in node.items)), node.span)
        case tree.ArrayTypeNode():
            inner = resolve_type(ctx, node.inner, blocks)
            if isinstance(inner, OptionalType) and isinstance(inner.inner, BlockType):
                ctx.fail(
                    "E4101",
                    "the blocks of an array cannot be optional",
                    node.inner.span,
                    help="declare each that may be absent as a `sub` of its own, `?` behind its type",
                )
            if not isinstance(inner, BlockType):
                ctx.fail("E2101", "only blocks come in arrays", node.span, help="a tensor is `Tensor[axes; dtype]`")
            return BlockArrayType(inner, dimension(ctx, node.count))
        case tree.NamedType():
            return _named_type(ctx, node, blocks)


def _named_type(ctx: Context, node: tree.NamedType, blocks: bool) -> Type:
    first = node.path[0].text
    if len(node.path) == 1 and (first in DTYPES or first in ctx.generics):
        return TensorType((), dtype(ctx, node))
    decl = resolve_path(ctx, node.path)
    match decl:
        case CheckedBlock():
            if not blocks:
                ctx.fail(
                    "E2101", f"block `{decl.name}` is not a type of values", node.span, help="declare it as a `sub`"
                )
            args = explicit_generics(ctx, decl.name, decl.generics, node.args, node.span)
            mapping = dict(zip((g.name for g in decl.generics), args, strict=True))
            prove_where(ctx, f"block `{decl.name}`", decl.where, mapping, node.span, decl.span)
            return BlockType(decl, args)
        case AliasDecl():
            args = explicit_generics(ctx, decl.name, decl.generics, node.args, node.span)
            return substitute(decl.type, dict(zip((g.name for g in decl.generics), args, strict=True)))
        case StructDecl():
            args = explicit_generics(ctx, decl.name, decl.generics, node.args, node.span)
            mapping = dict(zip((g.name for g in decl.generics), args, strict=True))
            return StructType(decl, args, tuple((name, substitute(t, mapping)) for name, t in decl.fields))
        case EnumType():
            if node.args is not None:
                ctx.fail("E2111", f"enum `{decl.name}` has no generics", node.span)
            return decl
    ctx.fail("E1208", f"`{node.path[-1].text}` is not a type", node.span)


def resolve_path(ctx: Context, path: Sequence[tree.Name]) -> object:
    """The declaration that `a` or `module.a` names. Raises CheckFailedError."""
    found = ctx.find_item(path[0].text, path[0].span)
    if found is None:
        ctx.unknown(path[0].text, path[0].span, "type")
    for name in path[1:]:
        if not isinstance(found, LoadedModule):
            ctx.fail("E2107", f"`{path[0].text}` has no member `{name.text}`", name.span)
        found = ctx.checker.public_item(found, name, ctx)
    return found


def prove_where(
    ctx: Context,
    what: str,
    clauses: Sequence[Clause],
    mapping: Mapping[str, GenericValue],
    span: Span,
    declared: Span,
) -> None:
    """Prove a callee's or block's `where`, its generics replaced, from the caller's facts (E2206)."""
    for clause in clauses:
        goal = substitute_clause(clause, mapping)
        if ctx.facts.prove(goal):
            continue
        names = sorted(clause.left.symbols() | clause.right.symbols())
        changed = [f"{name} = {value_text(mapping[name])}" for name in names if mapping.get(name) != Dim.symbol(name)]
        given = f" for {', '.join(changed)}" if changed else ""
        notes = [Note(f"{what} requires it", declared)]
        if is_false(ctx, goal):
            ctx.fail("E2206", f"`{clause}` is false{given}", span, notes)
        ctx.fail("E2206", f"cannot prove `{clause}`{given}", span, notes, where_help(ctx, goal))


def generic_argument(
    ctx: Context, decl: GenericDecl, node: tree.GenericArg, decls: Sequence[GenericDecl] = ()
) -> GenericValue:
    """One written generic argument, of the kind that `decl`, one of `decls`, asks for (E2111, E2112)."""
    if decl.kind == "Shape":
        if isinstance(node, tree.ShapeArg):
            return shape(ctx, node.axes)
        ctx.fail("E2111", f"generic `{decl.name}` is a Shape: write `[A, B]`", node.span, help=_order(decls))
    if isinstance(node, tree.ShapeArg):
        ctx.fail("E2111", f"generic `{decl.name}` is a {decl.kind}, not a Shape", node.span, help=_order(decls))
    if decl.kind == "Dim":
        generic = ctx.generics.get(node.name) if isinstance(node, tree.NameExpr) else None
        if isinstance(node, tree.NameExpr) and (
            node.name in DTYPES or (generic is not None and generic.kind not in ("Dim", "Shape"))
        ):
            found = f"the element type `{node.name}`"
            ctx.fail("E2111", f"generic `{decl.name}` is a Dim, found {found}", node.span, help=_order(decls))
        return dimension(ctx, node)
    generic = ctx.generics.get(node.name) if isinstance(node, tree.NameExpr) else None
    if not isinstance(node, tree.NameExpr) or (generic is not None and generic.kind == "Dim"):
        found = f"the dimension `{node.span.text}`"
        ctx.fail(
            "E2111",
            f"generic `{decl.name}` is an element type ({decl.kind}), found {found}",
            node.span,
            help=_order(decls),
        )
    given = dtype(ctx, tree.NamedType(node.span, (tree.Name(node.span, node.name),), None))
    if not kind_accepts(decl.kind, given):
        ctx.fail("E2112", f"`{given}` is not {decl.kind}, which generic `{decl.name}` asks for", node.span)
    return given


def explicit_generics(
    ctx: Context,
    name: str,
    decls: Sequence[GenericDecl],
    nodes: Sequence[tree.GenericArg] | None,
    span: Span,
) -> tuple[GenericValue, ...]:
    """Written generic arguments in declaration order, defaults filled in (E2111). Raises CheckFailedError."""
    nodes = nodes or ()
    if len(nodes) > len(decls):
        message = f"`{name}` takes {plural(len(decls), 'generic argument')}, found {len(nodes)}"
        ctx.fail("E2111", message, span, help=_order(decls))
    mapping: dict[str, GenericValue] = {}
    for decl, node in zip(decls, nodes, strict=False):
        mapping[decl.name] = generic_argument(ctx, decl, node, decls)
    for decl in decls[len(nodes) :]:
        if decl.default is None:
            ctx.fail(
                "E2111",
                f"`{name}` needs a generic argument for `{decl.name}`",
                span,
                help=_order(decls),
            )
        mapping[decl.name] = substitute_value(decl.default, mapping)
    return tuple(mapping[decl.name] for decl in decls)


def _order(decls: Sequence[GenericDecl]) -> str | None:
    """Generics as they are declared, for a help line."""
    return f"its generics are <{', '.join(map(generic_text, decls))}>" if decls else None


def generic_text(decl: GenericDecl) -> str:
    """A generic as it is declared."""
    star = "*" if decl.kind == "Shape" else ""
    default = f" = {value_text(decl.default)}" if decl.default is not None else ""
    return f"{star}{decl.name}: {decl.kind}{default}"


# Types are written out in full, so one that doubles at each of forty declarations would never end.
MAX_PARTS = 4096
MAX_NESTING = 32


def bounded(ctx: Context, type: Type, span: Span) -> Type:
    """`type`, unless tuples and structs in it hold too much (E2190)."""
    parts, depth = _extent(type)
    if parts > MAX_PARTS or depth > MAX_NESTING:
        ctx.fail(
            "E2190",
            f"a type of {parts} parts, {depth} levels deep; this version takes {MAX_PARTS} and {MAX_NESTING}",
            span,
        )
    return type


def _extent(type: Type) -> tuple[int, int]:
    """How many tensors a type holds, and how deep its tuples and structs nest."""
    inner: Sequence[Type] = ()
    if isinstance(type, TupleType):
        inner = type.items
    elif isinstance(type, StructType):
        inner = tuple(field for _, field in type.fields)
    elif isinstance(type, OptionalType):
        inner = (type.inner,)
    found = [_extent(part) for part in inner]
    return max(1, sum(parts for parts, _ in found)), 1 + max((depth for _, depth in found), default=0)


def describe(type: Type) -> str:
    """A type in a message: a literal's unsettled type in words."""
    if isinstance(type, TensorType) and isinstance(type.dtype, str) and type.dtype.startswith("{"):
        return "an integer literal" if type.dtype == FLEX_INT else "a float literal"
    return f"`{type}`"


def plural(count: int, noun: str) -> str:
    several = {"axis": "axes"}.get(noun, f"{noun}s")
    return f"{count} {noun if count == 1 else several}"
