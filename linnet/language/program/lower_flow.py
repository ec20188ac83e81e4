"""Statements and control flow: unrolled where known at compile time, else nodes with closed regions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from linnet.language.program.checked import (
    AssignState,
    For,
    IfValue,
    Let,
    LetTuple,
    LocalVar,
    Return,
    Statement,
    StaticForBlocks,
    StaticForRange,
    While,
)
from linnet.language.program.core import Graph, TensorSpec, Value
from linnet.language.program.instances import InstanceArray
from linnet.language.program.lower_builder import RegionBuilder
from linnet.language.program.lower_values import (
    Lowered,
    LowerError,
    Variant,
    flatten,
    leaf_names,
    rebuild,
    same_structure,
)
from linnet.language.source import Span

if TYPE_CHECKING:
    from linnet.language.program.lower import Lowerer


def run_statements(lowerer: Lowerer, statements: Iterable[Statement]) -> Lowered | None:
    """Evaluate statements in the current frame; the value of the `return`, if there is one."""
    for statement in statements:
        if isinstance(statement, Let):
            bind(lowerer, statement.var, lowerer.lower(statement.value))
        elif isinstance(statement, Return):
            return lowerer.lower(statement.value)
        elif isinstance(statement, LetTuple):
            values = lowerer.lower(statement.value)
            assert isinstance(values, tuple)
            for var, value in zip(statement.vars, values, strict=True):
                bind(lowerer, var, value)
        elif isinstance(statement, AssignState):
            value = lowerer.lower(statement.value)
            assert isinstance(value, Value)
            lowerer.builder.write_state(lowerer.own_instance().member_path(statement.name), value)
        elif isinstance(statement, StaticForBlocks):
            array = lowerer.lower(statement.array)
            assert isinstance(array, InstanceArray)
            unroll(lowerer, statement.var, (array[i] for i in range(array.count)), statement.body)
        elif isinstance(statement, StaticForRange):
            steps = range(lowerer.frame.env.dim(statement.start), lowerer.frame.env.dim(statement.stop))
            unroll(lowerer, statement.var, (lowerer.builder.constant(i, "i64") for i in steps), statement.body)
        elif isinstance(statement, While):
            lower_while(lowerer, statement)
        else:
            lower_for(lowerer, statement)
    return None


def bind(lowerer: Lowerer, var: LocalVar, value: Lowered) -> None:
    lowerer.frame.locals[var] = value
    # A constant is shared by all that use it, so it takes nobody's name.
    if isinstance(value, Value) and not value.name and value not in lowerer.numbers:
        value.name = var.name


# Each turn of a `static for` is written out: an entry's graph stays of a size that can be kept and run.
MAX_UNROLLED = 1 << 16


def unroll(lowerer: Lowerer, var: LocalVar, values: Iterable[Lowered], body: Sequence[Statement]) -> None:
    frame = lowerer.frame
    outside = set(frame.locals)
    for value in values:
        lowerer.unrolled += 1
        if lowerer.unrolled > MAX_UNROLLED:
            turns = f"more than {MAX_UNROLLED:,} turns of `static for` in one entry"
            raise LowerError(f"{turns}, the last for `{var.name}`: use `for` or `while`")
        frame.locals[var] = value
        lowerer.run(body)
        for name in frame.locals.keys() - outside:
            del frame.locals[name]


def assigned(statements: Iterable[Statement]) -> Iterator[LocalVar]:
    """The variables that statements give a value, declared inside or not."""
    for statement in statements:
        if isinstance(statement, Let):
            yield statement.var
        elif isinstance(statement, (StaticForBlocks, StaticForRange, While, For)):
            yield from assigned(statement.body)


class Loop:
    """A `while` or `for` under construction: its carried variables and its regions, which take the same inputs."""

    def __init__(self, lowerer: Lowerer, body: Sequence[Statement]) -> None:
        self.lowerer = lowerer
        self.outer = lowerer.builder
        self.locals = lowerer.frame.locals
        self.vars = [var for var in dict.fromkeys(assigned(body)) if var in self.locals]
        self.values = [leaf for var in self.vars for leaf in flatten(self.locals[var])]
        self.regions: list[RegionBuilder] = []
        self.placeholders: list[list[Value]] = []

    @contextmanager
    def region(self) -> Iterator[RegionBuilder]:
        """Evaluate what is inside as a new region, with the carried variables as its inputs."""
        region = RegionBuilder(self.outer)
        inputs = [region.placeholder(value) for value in self.values]
        self.regions.append(region)
        self.placeholders.append(inputs)
        inside, left = dict(self.locals), list(inputs)
        for var in self.vars:
            inside[var] = rebuild(self.locals[var], left)
        self.lowerer.builder, self.lowerer.frame.locals = region, inside
        yield region
        self.lowerer.builder, self.lowerer.frame.locals = self.outer, self.locals

    def carried(self, span: Span | None) -> list[Value]:
        """The carried variables' values at the end of the body, called inside its region."""
        values: list[Value] = []
        for var in self.vars:
            value = self.lowerer.frame.locals[var]
            if not same_structure(value, self.locals[var]):
                what = "to another variant" if isinstance(value, Variant) else "between present and absent"
                raise LowerError(f"`{var.name}` changes {what} in a run-time loop", span)
            values.extend(flatten(value))
        return [self.lowerer.builder.use(value) for value in values]

    def finish(
        self,
        op: str,
        results: list[list[Value]],
        written: list[str],
        counter: Value | None,
        yielded: list[TensorSpec],
        attributes: dict[str, Any],
        span: Span | None,
    ) -> list[Value]:
        """Emit the node and give carried variables and states their new values.

        `results`: what each region returns besides the `written` states, which the last one returns after as many
        values as there are carried ones. Returns the stacked yields.
        """
        states = {path: value.spec for region in self.regions for path, value in region.initial_states.items()}
        ordered = [*written, *(path for path in states if path not in written)]
        captured = list(dict.fromkeys(value for region in self.regions for value in region.captured))
        graphs = []
        for region, placeholders, outputs in zip(self.regions, self.placeholders, results, strict=True):
            inputs = [
                *placeholders,
                *(region.initial_state(path, states[path]) for path in ordered),
                *(region.capture(value) for value in captured),
            ]
            if counter is not None:
                inputs.insert(0, counter)
            graphs.append(Graph(tuple(inputs), region.nodes, tuple(outputs)))
        self.outer.span = span
        carried_states = [self.outer.read_state(path, states[path]) for path in ordered]
        carried = [value.spec for value in self.values] + [states[path] for path in written]
        emitted = self.outer.emit(
            op,
            [*self.values, *carried_states, *captured],
            carried + yielded,
            {"carried": len(carried), **attributes},
            tuple(graphs),
        )
        left = list(emitted)
        for var in self.vars:
            self.locals[var] = rebuild(self.locals[var], left)
            for leaf, name in zip(flatten(self.locals[var]), leaf_names(var.name, self.locals[var]), strict=True):
                leaf.name = name
        for path in written:
            self.outer.write_state(path, left.pop(0))
        return left


def lower_while(lowerer: Lowerer, statement: While) -> None:
    loop = Loop(lowerer, statement.body)
    span = statement.condition.span
    with loop.region() as region:
        condition = [region.use(lowerer.tensor(statement.condition))]
        if region.written_states():
            raise LowerError("the condition of a `while` assigns a state; assign it in the body", span)
    with loop.region() as region:
        lowerer.run(statement.body)
        carried = loop.carried(span)
        written = region.written_states()
        carried += [region.use(region.states[path]) for path in written]
    loop.finish("while", [condition, carried], written, None, [], {}, span)


def lower_for(lowerer: Lowerer, statement: For) -> None:
    env = lowerer.frame.env
    start, stop = env.dim(statement.start), env.dim(statement.stop)
    loop = Loop(lowerer, statement.body)
    result: Lowered = ()
    with loop.region() as region:
        counter = region.own(Value(TensorSpec((), "i64"), statement.var.name))
        lowerer.frame.locals[statement.var] = counter
        lowerer.run(statement.body)
        if statement.yielded is not None:
            result = lowerer.lower(statement.yielded)
        span = region.span
        yielded = [region.use(value) for value in flatten(result)]
        carried = loop.carried(span)
        written = region.written_states()
        carried += [region.use(region.states[path]) for path in written]
    steps = max(0, stop - start)
    stacked = [TensorSpec((steps, *value.spec.shape), value.spec.dtype) for value in yielded]
    attributes = {"start": start, "stop": max(start, stop)}
    outputs = loop.finish("for", [carried + yielded], written, counter, stacked, attributes, span)
    if statement.result is not None:
        bind(lowerer, statement.result, rebuild(result, outputs))


def lower_if(lowerer: Lowerer, node: IfValue) -> Lowered:
    """The branch that a known condition picks, else an `if` node over both."""
    condition = lowerer.tensor(node.condition)
    known = lowerer.builder.numbers.get(condition)
    if known is not None:
        return lowerer.lower(node.then if known else node.otherwise)
    outer, saved = lowerer.builder, lowerer.frame.locals
    regions: list[RegionBuilder] = []
    values: list[Lowered] = []
    for branch in (node.then, node.otherwise):
        region = RegionBuilder(outer)
        lowerer.builder, lowerer.frame.locals = region, dict(saved)
        values.append(lowerer.lower(branch))
        regions.append(region)
    lowerer.builder, lowerer.frame.locals = outer, saved
    if not same_structure(values[0], values[1]):
        raise LowerError("the branches of an `if` decided at run time differ in more than their tensors", node.span)
    written = list(dict.fromkeys(path for region in regions for path in region.written_states()))
    states = {path: value.spec for region in regions for path, value in region.initial_states.items()}
    results = [
        [region.use(leaf) for leaf in flatten(value)]
        + [region.use(region.read_state(path, states[path])) for path in written]
        for region, value in zip(regions, values, strict=True)
    ]
    captured = list(dict.fromkeys(value for region in regions for value in region.captured))
    graphs = []
    for region, outputs in zip(regions, results, strict=True):
        inputs = [region.initial_state(path, spec) for path, spec in states.items()]
        inputs += [region.capture(value) for value in captured]
        graphs.append(Graph(tuple(inputs), region.nodes, tuple(outputs)))
    outer.span = node.span
    carried = [outer.read_state(path, spec) for path, spec in states.items()]
    specs = [value.spec for value in results[0]]
    left = list(outer.emit("if", [condition, *carried, *captured], specs, {}, tuple(graphs)))
    result = rebuild(values[0], left)
    for path in written:
        outer.write_state(path, left.pop(0))
    return result
