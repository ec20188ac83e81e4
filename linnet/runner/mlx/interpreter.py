"""The MLX backend: walks a Core IR graph node by node, which builds MLX's own graph, or has `mx.compile` keep that.

A graph is prepared once into a list of steps (`linnet.runner.plan`). A graph whose course does not depend on values is
handed to `mx.compile`, which is a function of its inputs, weights and states; one with `while` or `if` is walked, and
their regions are compiled where they can be.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx

from linnet.language.program.core import CoreNode, Graph, TensorSpec
from linnet.runner.mlx.checks import Check
from linnet.runner.mlx.dtypes import DTYPES, element
from linnet.runner.mlx.kernels import Kernel
from linnet.runner.mlx.primitives import Target, on_host, primitive
from linnet.runner.mlx.quantised import QuantisedWeight, Weight, arrays_of, dense, taken_packed
from linnet.runner.mlx.room import check_axes
from linnet.runner.plan import Region, SlotPlan, Slots, Step, control, state_write, verified

# Compiled, an entry reads a cache in steps of so many positions.
STEP = 256
# A loop of more passes than this is walked: compiled, each pass would be a part of one graph of them all.
UNROLLED = 8


@dataclass(frozen=True)
class Input:
    """An integer input of an entry, which holds elements: the least and greatest of them. The array is kept, so that
    its id is no other's; as it is traced, no element is greater."""

    array: mx.array
    least: int
    greatest: int


@dataclass
class Frame:
    """One run of an entry: its weights, the states it starts from, what it changes, and what must hold of values.

    `allocated` collects states first read here, `written` new values, so that a run that is refused changes nothing.
    `op` is the identity of the innermost op call that is being walked. `inputs` are the entry's own.
    """

    weights: Mapping[str, Weight]
    states: Mapping[str, mx.array] = field(default_factory=dict)
    allocated: dict[str, mx.array] = field(default_factory=dict)
    written: dict[str, mx.array] = field(default_factory=dict)
    checks: list[tuple[Check, mx.array]] = field(default_factory=list)
    op: str | None = None
    tracing: bool = False
    inputs: Mapping[int, Input] = field(default_factory=dict)

    def range_of(self, index: mx.array) -> tuple[int, int] | None:
        """The least and greatest element of an input of the entry; None of other arrays, and where they are traced."""
        known = self.inputs.get(id(index))
        return None if known is None or self.tracing else (known.least, known.greatest)

    def position(self, index: mx.array) -> tuple[int | None, int | None]:
        """The element of a scalar where it is known as a graph is walked, and a number that it does not exceed where
        one is known."""
        if not self.tracing:
            value = element(index)
            return value, value
        known = self.inputs.get(id(index))
        return None, None if known is None else known.greatest

    def check(self, check: Check, facts: mx.array) -> None:
        self.checks.append((check, facts))

    def settle(self) -> None:
        """Compute what the checks are about. Raises IndexRangeError, IntegerDivisionError for the first that fails."""
        if not self.checks:
            return
        mx.eval([facts for _, facts in self.checks])
        for check, facts in self.checks:
            check.settle(facts.tolist())  # type: ignore[arg-type]
        self.checks.clear()

    def state(self, path: str, spec: TensorSpec) -> mx.array:
        """The value of a state when the entry started: zeros where it is first read."""
        value = self.states.get(path)
        if value is None:
            value = self.allocated.get(path)
        if value is None:
            value = self.allocated[path] = mx.zeros(spec.shape, dtype=DTYPES[spec.dtype])
        return value


class Preparation:
    """Prepares graphs for one numerics policy; bodies that several calls share are prepared once.

    `kernels` maps op identities to native kernels (empty: every op by its body). With `verify`, every value is compared
    with its spec as it is made, and a difference raises SpecError.
    """

    def __init__(self, kernels: Mapping[str, Kernel] | None = None, *, compiled: bool, verify: bool = False) -> None:
        self.kernels = kernels or {}
        self.compiled = compiled
        self.verify = verify
        self._prepared: dict[int, PreparedGraph] = {}

    def graph(self, graph: Graph) -> PreparedGraph:
        """The prepared graph, made at most once for one graph object (which it keeps alive)."""
        known = self._prepared.get(id(graph))
        if known is None:
            known = self._prepared[id(graph)] = PreparedGraph(graph, self)
        return known


def walked_because(graph: Graph, kernels: Mapping[str, Kernel]) -> str | None:
    """Why a graph cannot be compiled, in words; None where it can."""
    for node in graph.nodes:
        if node.op in ("while", "if"):
            return f"`{node.op}` depends on values"
        if node.op == "for" and node.attributes["stop"] - node.attributes["start"] > UNROLLED:
            return f"a loop of {node.attributes['stop'] - node.attributes['start']} passes would be compiled as one"
        if on_host(node):
            return f"`{node.op}` of f64 is computed outside MLX"
        kernel = kernels.get(node.attributes["op"]) if node.op == "call" else None
        if kernel is not None and kernel.fits(node):
            continue
        for region in node.regions:
            reason = walked_because(region, kernels)
            if reason is not None:
                return reason
    return None


class PreparedGraph(SlotPlan):
    """A graph ready to run: `run(frame, inputs)` returns its outputs, not computed yet."""

    def __init__(self, graph: Graph, preparation: Preparation) -> None:
        check_axes(graph)
        super().__init__(graph)
        self.build(StepBuilder(self, preparation, Target(self.constants, self.known)).step)
        self._template: Slots | None = None
        reason = walked_because(Graph(graph.inputs, self.moving, graph.outputs), preparation.kernels)
        self._compiled = Compiled(self) if preparation.compiled and reason is None else None
        self.walked = reason if preparation.compiled else None

    def run(self, frame: Frame, inputs: Sequence[mx.array]) -> list[mx.array]:
        """The graph's outputs. What must hold of them is left with the frame."""
        if self._compiled is not None and not frame.tracing:
            return self._compiled.run(frame, inputs)
        return self.walk(frame, inputs)

    def walk(self, frame: Frame, inputs: Sequence[mx.array]) -> list[mx.array]:
        """As `run`, node by node."""
        return self.run_steps(self._template or self._keep(), frame, inputs)

    def _keep(self) -> Slots:
        """Compute what does not depend on a run. Raises what `Frame.settle` does."""
        frame = Frame({})
        template, kept = self.run_fixed(frame)
        frame.settle()
        mx.eval(kept)
        self._template = template
        return template


class Compiled:
    """A graph under `mx.compile`: a pure function of inputs, weights and states, whose checks are among its results."""

    def __init__(self, prepared: PreparedGraph) -> None:
        self._prepared = prepared
        nodes = list(prepared.graph.walk())
        self._weights = list(dict.fromkeys(n.attributes["path"] for n in nodes if n.op == "param"))
        self._states = {n.attributes["path"]: n.outputs[0].spec for n in nodes if n.op == "state.read"}
        # Inputs that say how far a cache is read.
        read = {value for node in prepared.graph.nodes if node.op == "native" for value in node.inputs}
        scalars = [i for i, value in enumerate(prepared.graph.inputs) if not value.spec.shape]
        self._positions = [i for i in scalars if prepared.graph.inputs[i] in read]
        self._op: str | None = None
        self._checks: list[Check] = []
        self._written: list[str] = []
        self._packed: dict[str, QuantisedWeight] = {}
        self._function = mx.compile(self._traced)

    def run(self, frame: Frame, inputs: Sequence[mx.array]) -> list[mx.array]:
        self._op = frame.op
        weights = {path: arrays_of(frame.weights[path]) for path in self._weights}
        self._packed = {path: w for path, w in frame.weights.items() if isinstance(w, QuantisedWeight)}
        states = {path: frame.state(path, spec) for path, spec in self._states.items()}
        # MLX makes another function for each list of these.
        limits = {i: _rounded(frame.inputs.get(id(inputs[i]))) for i in self._positions}
        outputs, written, facts = self._function(list(inputs), weights, states, limits)
        frame.written.update(zip(self._written, written, strict=True))
        for check, fact in zip(self._checks, facts, strict=True):
            frame.check(check, fact)
        return outputs

    def _traced(
        self,
        inputs: list[mx.array],
        arrays: dict[str, list[mx.array]],
        states: dict[str, mx.array],
        limits: dict[int, int | None],
    ) -> tuple[list[mx.array], list[mx.array], list[mx.array]]:
        packed = self._packed
        weights = {path: packed[path].holding(a) if path in packed else a[0] for path, a in arrays.items()}
        known = {id(inputs[i]): Input(inputs[i], 0, limit) for i, limit in limits.items() if limit is not None}
        inner = Frame(weights, states, op=self._op, tracing=True, inputs=known)
        outputs = self._prepared.walk(inner, inputs)
        # Shapes and dtypes are the graph's, so that this runs once, or again to the same effect.
        self._checks = [check for check, _ in inner.checks]
        self._written = list(inner.written)
        return outputs, list(inner.written.values()), [fact for _, fact in inner.checks]


def _rounded(position: Input | None) -> int | None:
    """The last of the positions that are read together with this one; None where it is not known, or none."""
    if position is None or position.least < 0:
        return None
    return position.greatest // STEP * STEP + STEP - 1


class StepBuilder:
    """Turns the nodes of one graph into steps over its slots."""

    def __init__(self, graph: PreparedGraph, preparation: Preparation, target: Target) -> None:
        self._graph = graph
        self._preparation = preparation
        self._target = target
        self._packed = taken_packed(graph.graph, preparation.kernels)

    def step(self, node: CoreNode) -> Step:
        step = self._step(node)
        if not node.regions and any(value.spec.dtype == "f64" for value in (*node.inputs, *node.outputs)):
            step = _on_cpu(step)
        return verified(node, self._graph, step, DTYPES) if self._preparation.verify else step

    def _step(self, node: CoreNode) -> Step:
        inputs, outputs = self._graph.slots_of(node)
        match node.op:
            case "param":
                return _param(node.attributes["path"], outputs[0], packed=node.outputs[0] in self._packed)
            case "state.read":
                return _state_read(node.attributes["path"], node.outputs[0].spec, outputs[0])
            case "state.write":
                return state_write(node.attributes["path"], inputs[0])
            case "call":
                return self._call(node, inputs, outputs)
            case "native":
                return _native(node, inputs, outputs)
            case "while" | "for" | "if":
                return self._control(node, inputs, outputs)
        return _apply(primitive(node, self._target), inputs, outputs[0])

    def _call(self, node: CoreNode, inputs: list[int], outputs: list[int]) -> Step:
        identity = node.attributes["op"]
        kernel = self._preparation.kernels.get(identity)
        operation = kernel.prepare(node, self._target) if kernel else None
        if operation is not None:
            return _apply(operation, inputs, outputs[0])
        body = self._preparation.graph(node.regions[0])

        def call(slots: Slots) -> None:
            frame: Frame = slots[0]
            outer, frame.op = frame.op, identity
            # A body is walked, as a part of the graph around it: compiled by itself it would only be called more often.
            results = body.walk(frame, [slots[i] for i in inputs])
            frame.op = outer
            for slot, result in zip(outputs, results, strict=True):
                slots[slot] = result

        return call

    def _control(self, node: CoreNode, inputs: list[int], outputs: list[int]) -> Step:
        regions = [self._preparation.graph(region) for region in node.regions]
        run: Region
        match node.op:
            case "while":
                run = _while(regions[0], regions[1], node.attributes["carried"])
            case "for":
                run = _for(regions[0], node)
            case _:
                run = _if(regions[0], regions[1])

        return control(run, inputs, outputs)


def _on_cpu(step: Step) -> Step:
    """A step whose f64 no GPU computes."""

    def run(slots: Slots) -> None:
        with mx.stream(mx.cpu):
            step(slots)

    return run


def _apply(operation: Callable[..., Any], inputs: list[int], output: int) -> Step:
    def step(slots: Slots) -> None:
        slots[output] = operation(slots[0], *[slots[i] for i in inputs])

    return step


def _native(node: CoreNode, inputs: list[int], outputs: list[int]) -> Step:
    function, constants = node.attributes["function"], node.attributes["constants"]

    def step(slots: Slots) -> None:
        made = function(slots[0], *[slots[i] for i in inputs], *constants)
        for output, value in zip(outputs, made if len(outputs) > 1 else (made,), strict=True):
            slots[output] = value

    return step


def _param(path: str, output: int, *, packed: bool) -> Step:
    def step(slots: Slots) -> None:
        slots[output] = slots[0].weights[path] if packed else dense(slots[0].weights[path])

    return step


def _state_read(path: str, spec: TensorSpec, output: int) -> Step:
    def step(slots: Slots) -> None:
        slots[output] = slots[0].state(path, spec)

    return step


def _settled(frame: Frame, values: Sequence[mx.array]) -> None:
    """Compute what the host is about to ask, and what a pass left to be checked."""
    frame.settle()
    mx.eval(list(values))


def _while(
    condition: PreparedGraph, body: PreparedGraph, carried: int
) -> Callable[[Frame, list[mx.array]], Sequence[mx.array]]:
    def run(frame: Frame, values: list[mx.array]) -> Sequence[mx.array]:
        captured = values[carried:]
        while True:
            (going,) = condition.run(frame, values)
            # Together with the condition, else what each pass makes would wait for the end.
            _settled(frame, [going, *values[:carried]])
            if not going.item():
                return values[:carried]
            values = [*body.run(frame, values), *captured]

    return run


def _for(body: PreparedGraph, node: CoreNode) -> Callable[[Frame, list[mx.array]], Sequence[mx.array]]:
    start, stop = node.attributes["start"], node.attributes["stop"]
    carried = node.attributes.get("carried", len(node.inputs))
    stacks = [value.spec for value in node.outputs[carried:]]

    def run(frame: Frame, values: list[mx.array]) -> Sequence[mx.array]:
        captured = values[carried:]
        passes: list[Sequence[mx.array]] = []
        for i in range(start, stop):
            results = body.run(frame, [mx.array(i, dtype=mx.int64), *values])
            values = [*results[:carried], *captured]
            passes.append(results[carried:])
            if not frame.tracing:
                _settled(frame, results)
        if not passes:
            none = [mx.zeros(spec.shape, dtype=DTYPES[spec.dtype]) for spec in stacks]
            return [*values[:carried], *none]
        return [*values[:carried], *(mx.stack(list(column)) for column in zip(*passes, strict=True))]

    return run


def _if(then: PreparedGraph, otherwise: PreparedGraph) -> Callable[[Frame, list[mx.array]], Sequence[mx.array]]:
    def run(frame: Frame, values: list[mx.array]) -> Sequence[mx.array]:
        condition, *captured = values
        _settled(frame, [condition])
        return (then if condition.item() else otherwise).run(frame, captured)

    return run
