"""Statements and function bodies."""

from __future__ import annotations

from collections.abc import Sequence

from linnet.language.check import index_notation
from linnet.language.check.context import CheckFailedError, Context
from linnet.language.check.dims import Clause, Dim
from linnet.language.check.literals import INT_FLEX, coerce, is_flex, settle_default
from linnet.language.check.operators import SCALAR_BOOL
from linnet.language.check.substitute import same_type
from linnet.language.check.type_nodes import describe, dimension, prove, resolve_type
from linnet.language.diagnostics import Note
from linnet.language.program.checked import (
    AssignState,
    DimValue,
    For,
    Let,
    LetTuple,
    LocalVar,
    Return,
    Statement,
    StaticForBlocks,
    StaticForRange,
    Typed,
    While,
)
from linnet.language.program.types import (
    BlockArrayType,
    BlockType,
    TensorType,
    TupleType,
    Type,
)
from linnet.language.syntax import tree

COUNTER = TensorType((), "i64")


def function_body(ctx: Context, node: tree.FunctionItem, result: Type) -> tuple[Statement, ...]:
    """A function's statements; it ends with `return` (E2120)."""
    last = node.body[-1] if node.body else None
    if not isinstance(last, tree.ReturnStmt):
        ctx.error(
            "E2120",
            f"`{node.name.text}` does not end with `return`",
            last.span if last else node.name.span,
            help=f"every path returns a `{result}`",
        )
    return block(ctx, node.body, result)


def block(ctx: Context, nodes: Sequence[tree.Stmt], result: Type) -> tuple[Statement, ...]:
    """Statements in order; one that fails leaves its names unusable without further errors."""
    done: list[Statement] = []
    for position, node in enumerate(nodes):
        if isinstance(node, tree.ReturnStmt) and (ctx.loops or position + 1 < len(nodes)):
            where = "in a loop" if ctx.loops else "before other statements"
            ctx.error("E2120", f"`return` {where}", node.span, help="a function returns once, at its end")
        try:
            statement = _statement(ctx, node, result)
        except CheckFailedError:
            for name in _bound_names(node):
                ctx.poison(name)
            continue
        if statement is not None:
            done.append(statement)
    return tuple(done)


def _bound_names(node: tree.Stmt) -> tuple[tree.Name, ...]:
    match node:
        case tree.LetStmt():
            return node.names
        case tree.LetIndexStmt():
            return (node.name,)
        case tree.ForStmt():
            return (node.result,) if node.result is not None else ()
    return ()


def _statement(ctx: Context, node: tree.Stmt, result: Type) -> Statement | None:
    match node:
        case tree.LetStmt():
            return _let(ctx, node)
        case tree.LetIndexStmt():
            value = index_notation.build(ctx, node)
            var = LocalVar(node.name.text, value.type)
            ctx.declare_local(node.name, var)
            return Let(var, value)
        case tree.AssignStmt():
            return _assign(ctx, node)
        case tree.ReturnStmt():
            return Return(coerce(ctx, ctx.expr(node.value, result), result, " as the result"))
        case tree.StaticForStmt():
            return _static_for(ctx, node, result)
        case tree.WhileStmt():
            condition = ctx.expr(node.condition)
            if condition.type != SCALAR_BOOL:
                ctx.fail(
                    "E2114", f"a condition is a scalar bool, found {describe(condition.type)}", node.condition.span
                )
            return While(condition, _loop_body(ctx, node.body, result))
        case tree.ForStmt():
            return _for(ctx, node, result)
        case tree.YieldStmt():
            ctx.fail("E1101", "`yield` stands at the end of a `let name = for ..` body", node.span)


def _let(ctx: Context, node: tree.LetStmt) -> Statement:
    expected = resolve_type(ctx, node.type) if node.type is not None else None
    value = ctx.expr(node.value, expected)
    is_dimension = expected is None and isinstance(value, DimValue) and value.type == INT_FLEX
    value = coerce(ctx, value, expected) if expected is not None else settle_default(ctx, value)
    if not node.is_tuple:
        if isinstance(value.type, BlockArrayType):
            ctx.fail("E2101", "a block array is not a value to bind", node.value.span)
        if isinstance(value.type, BlockType) and node.mutable:
            ctx.fail("E2101", "a block cannot be a `var`", node.value.span)
        var = LocalVar(node.names[0].text, value.type, node.mutable)
        ctx.declare_local(node.names[0], var)
        if is_dimension and not node.mutable:
            ctx.dimensions[id(var)] = node.value.span
        return Let(var, value)
    if not isinstance(value.type, TupleType) or len(value.type.items) != len(node.names):
        ctx.fail("E2101", f"expected a tuple of {len(node.names)}, found {describe(value.type)}", node.value.span)
    variables = []
    for name, type in zip(node.names, value.type.items, strict=True):
        var = LocalVar(name.text, type, node.mutable)
        ctx.declare_local(name, var)
        variables.append(var)
    return LetTuple(tuple(variables), value)


def _assign(ctx: Context, node: tree.AssignStmt) -> Statement:
    name = node.name.text
    var = ctx.find_local(name)
    if var is not None:
        if id(var) in ctx.poisoned:
            raise CheckFailedError
        if not var.mutable:
            declared = ctx.spans.get(id(var))
            parameter = ctx.function is not None and var in ctx.function.parameters
            member = ctx.block.members.get(name) if ctx.block is not None else None
            if parameter:
                help = f"a parameter is fixed: copy it, as in `var new_{name} = {name}`"
            elif member is not None and member.kind == "state":
                help = f"it hides the `state` of that name: assign that without `let`, `{name} = ..`"
            else:
                help = f"declare it with `var {name} = ..`"
            ctx.fail(
                "E2108",
                f"`{name}` is not a `var`",
                node.name.span,
                [Note("declared here", declared)] if declared else (),
                help,
            )
        ctx.checker.references.use(node.name.span, var)
        return Let(var, _assigned(ctx, node, var.type))
    if ctx.block is not None and name in ctx.block.members:
        member = ctx.block.members[name]
        if member.kind != "state":
            ctx.fail(
                "E2108",
                f"`{name}` is a `{member.kind}`: only own `state` can be assigned",
                node.name.span,
                help="for a new value choose another name, and declare it with `let`",
            )
        ctx.checker.member_read(ctx.block, name)
        ctx.checker.references.use(node.name.span, member)
        return AssignState(name, _assigned(ctx, node, member.type))
    if ctx.block is not None and name in ctx.checker.broken_members.get(id(ctx.block), ()):
        raise CheckFailedError
    method = ctx.block is not None and name in ctx.block.methods
    if method or ctx.find_item(name, node.name.span) is not None or name in ctx.generics:
        ctx.fail(
            "E2108",
            f"`{name}` cannot be assigned",
            node.name.span,
            help="for a new value choose another name, and declare it with `let`",
        )
    ctx.poison(node.name)
    assignable = [name for scope in ctx.locals for name, var in scope.items() if var.mutable]
    assignable += [name for name, member in (ctx.block.members if ctx.block else {}).items() if member.kind == "state"]
    near = ctx.checker.nearest(name, lambda: [other for other in assignable if other != name])
    ctx.fail(
        "E1201",
        f"unknown name `{name}`",
        node.name.span,
        help=f"did you mean `{near}`?" if near else f"declare it: `let {name} = ..`, or `var` if it changes later",
    )


def _assigned(ctx: Context, node: tree.AssignStmt, type: Type) -> Typed:
    value = ctx.expr(node.value, type)
    if is_flex(value.type) and isinstance(type, TensorType) and not type.shape:
        value = coerce(ctx, value, type)
    value = settle_default(ctx, value)
    if not same_type(value.type, type, ctx.facts):
        ctx.fail(
            "E2109",
            f"`{node.name.text}` holds {describe(type)}, found {describe(value.type)}",
            node.value.span,
            [f"declared: {describe(type)}", f"assigned: {describe(value.type)}"],
        )
    return value


def _loop_body(ctx: Context, nodes: Sequence[tree.Stmt], result: Type) -> tuple[Statement, ...]:
    ctx.loops += 1
    try:
        with ctx.inner_scope():
            return block(ctx, nodes, result)
    finally:
        ctx.loops -= 1


def _static_for(ctx: Context, node: tree.StaticForStmt, result: Type) -> Statement:
    with ctx.inner_scope():
        if node.iterable is None:
            start, stop = _range(ctx, node.start, node.stop)
            var = LocalVar(node.name.text, COUNTER)
            ctx.declare_local(node.name, var, warn_unused=False)
            return StaticForRange(var, start, stop, _loop_body(ctx, node.body, result))
        array = ctx.expr(node.iterable)
        if not isinstance(array.type, BlockArrayType):
            ctx.fail(
                "E2121",
                f"`static for` runs over a block array or a range, found {describe(array.type)}",
                node.iterable.span,
                help=_what_runs(array.type, node.iterable.span.text),
            )
        var = LocalVar(node.name.text, array.type.inner)
        ctx.declare_local(node.name, var, warn_unused=False)
        return StaticForBlocks(var, array, _loop_body(ctx, node.body, result))


def _what_runs(type: Type, text: str) -> str:
    """What to loop over in place of a value."""
    match type:
        case BlockType():
            return f"an array of blocks is declared `sub {text}: [{type}; N]`"
        case TensorType(shape=(Dim() as first, *_)):
            return f"loop over its positions, `static for i in 0..{first}`, and take `{text}[i]`"
    return "a range is written `0..N`"


def _range(ctx: Context, start: tree.Expr | None, stop: tree.Expr | None) -> tuple[Dim, Dim]:
    """The bounds of `a..b`, with `a <= b` proven."""
    assert start is not None
    assert stop is not None
    low, high = dimension(ctx, start), dimension(ctx, stop)
    goal = Clause("<=", low, high)
    prove(
        ctx,
        "E2208",
        goal,
        f"cannot prove that the range `{low}..{high}` does not run backwards",
        start.span.to(stop.span),
    )
    return low, high


def _for(ctx: Context, node: tree.ForStmt, result: Type) -> Statement:
    body, yielded_node = node.body, None
    if body and isinstance(body[-1], tree.YieldStmt):
        *rest, last = body
        assert isinstance(last, tree.YieldStmt)
        body, yielded_node = tuple(rest), last
    if (yielded_node is None) != (node.result is None):
        if yielded_node is None:
            ctx.fail("E1101", "a scan ends with `yield`", node.span, help="end the body with `yield value`")
        ctx.fail("E1101", "this loop's `yield` goes nowhere", yielded_node.span, help="write `let name = for ..`")
    start, stop = _range(ctx, node.start, node.stop)
    var = LocalVar(node.name.text, COUNTER)
    yielded: Typed | None = None
    scan: LocalVar | None = None
    ctx.loops += 1
    try:
        with ctx.inner_scope():
            ctx.declare_local(node.name, var, warn_unused=False)
            statements = block(ctx, body, result)
            if yielded_node is not None:
                yielded = settle_default(ctx, ctx.expr(yielded_node.value))
    finally:
        ctx.loops -= 1
    if yielded is not None and node.result is not None:
        if not isinstance(yielded.type, TensorType):
            ctx.fail("E2101", f"a scan stacks tensors, found {describe(yielded.type)}", yielded.span)
        stacked = TensorType((stop - start, *yielded.type.shape), yielded.type.dtype)
        scan = LocalVar(node.result.text, stacked)
        ctx.declare_local(node.result, scan)
    return For(var, start, stop, statements, scan, yielded)
