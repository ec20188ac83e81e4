"""The reference backend: walks a Core IR graph in torch, node by node.

A graph is prepared once into a list of closures over numbered slots; running it is one pass over that list. What does
not depend on inputs, weights or state (rotary tables, masks) is computed at the first run and kept. A value's slot is
emptied after its last use. Under `exact` a call runs its body; under `equivalent` a kernel that is known for its
identity.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from linnet.language.program.core import CoreNode, Graph, TensorSpec, Value
from linnet.runner.errors import IndexRangeError, SizeError, SpecError
from linnet.runner.torch.dtypes import BITS, CARRIED, is_too_large, to_carried
from linnet.runner.torch.kernels import Kernel
from linnet.runner.torch.primitives import Target, primitive
from linnet.runner.torch.sharing import places

# Larger input-independent values are computed at each run rather than kept.
KEPT_BYTES = 64 * 2**20

# What a run is given. `packed` is a compiled graph's: weights in a layout of the backend's own.
GIVEN = frozenset(("param", "packed", "state.read", "state.write"))

Slots = list[Any]
Step = Callable[[Slots], None]


@dataclass
class Frame:
    """One run of an entry: its weights, the states it starts from, and what it changes.

    `weights` are native tensors, states are as carried. `allocated` collects states first read here, `written` new
    values, so that a run that fails changes nothing.
    """

    weights: Mapping[str, Tensor]
    states: Mapping[str, Tensor] = field(default_factory=dict)
    allocated: dict[str, Tensor] = field(default_factory=dict)
    written: dict[str, Tensor] = field(default_factory=dict)


class Preparation:
    """Prepares graphs for one device and numerics policy; bodies that several calls share are prepared once.

    `kernels` maps op identities to native kernels (empty: every op by its body). With `verify`, every value is compared
    with its spec as it is made, and a difference raises SpecError. `kept` says where the values lie that graphs have
    kept for their next runs, which an output may be a view of.
    """

    def __init__(
        self, device: torch.device, kernels: Mapping[str, Kernel] | None = None, *, verify: bool = False
    ) -> None:
        self.device = device
        self.kernels = kernels or {}
        self.verify = verify
        self.kept: set[int] = set()
        self._prepared: dict[int, PreparedGraph] = {}

    def graph(self, graph: Graph) -> PreparedGraph:
        """The prepared graph, made at most once for one graph object (which it keeps alive)."""
        known = self._prepared.get(id(graph))
        if known is None:
            known = self._prepared[id(graph)] = PreparedGraph(graph, self)
        return known


class PreparedGraph:
    """A graph ready to run: `run(frame, inputs)` returns its outputs. Raises SizeError where a value cannot be."""

    def __init__(self, graph: Graph, preparation: Preparation) -> None:
        self.graph = graph
        self._places = preparation.kept
        self._slots: dict[Value, int] = {}
        for value in graph.inputs:
            self._slot(value)
        for node in graph.nodes:
            for value in node.outputs:
                self._slot(value)
        constants = {n.outputs[0]: n.attributes["value"] for n in graph.nodes if n.op == "constant"}
        builder = StepBuilder(self, preparation, Target(preparation.device, constants))
        fixed = fixed_nodes(graph)
        self._fixed = [builder.step(node) for node in graph.nodes if node in fixed]
        moving = [node for node in graph.nodes if node not in fixed]
        dead = self._last_uses(moving)
        self._plan = [(builder.step(node), dead.get(node, ())) for node in moving]
        self._nodes = moving
        self._kept = self._needed_by(moving, fixed)
        self._outputs = [self._slots[value] for value in graph.outputs]
        self._template: Slots | None = None if self._fixed else [None] * (len(self._slots) + 1)

    def run(self, frame: Frame, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The graph's outputs. Raises IndexRangeError, IntegerDivisionError, and what torch raises (memory, say)."""
        slots = (self._template or self._evaluate_fixed(frame)).copy()
        slots[0] = frame
        slots[1 : len(inputs) + 1] = inputs
        position = 0
        try:
            for position, (step, dead) in enumerate(self._plan):  # noqa: B007  (read by the handler)
                step(slots)
                for slot in dead:
                    slots[slot] = None
        except RuntimeError as error:
            error.add_note(_place(self._nodes[position]))
            raise
        return tuple([slots[slot] for slot in self._outputs])

    @property
    def kept(self) -> set[int]:
        """Where the values lie that graphs of this preparation keep for their next runs."""
        return self._places

    def slot_of(self, value: Value) -> int:
        return self._slots[value]

    def _slot(self, value: Value) -> None:
        if is_too_large(value.spec):
            raise SizeError(f"a tensor {value.spec}")
        # Slot 0 is the frame's.
        self._slots[value] = len(self._slots) + 1

    def _last_uses(self, nodes: Sequence[CoreNode]) -> dict[CoreNode, tuple[int, ...]]:
        """For each node, the slots that nothing reads after it."""
        live = set(self.graph.outputs)
        dead: dict[CoreNode, tuple[int, ...]] = {}
        for node in reversed(nodes):
            last = [value for value in dict.fromkeys((*node.inputs, *node.outputs)) if value not in live]
            live.update(node.inputs)
            dead[node] = tuple(self._slots[value] for value in last)
        return dead

    def _needed_by(self, moving: Sequence[CoreNode], fixed: set[CoreNode]) -> list[int]:
        made = {value for node in fixed for value in node.outputs}
        read = {value for node in moving for value in node.inputs} | set(self.graph.outputs)
        return [self._slots[value] for value in made & read]

    def _evaluate_fixed(self, frame: Frame) -> Slots:
        slots: Slots = [None] * (len(self._slots) + 1)
        slots[0] = frame
        with torch.no_grad():
            for step in self._fixed:
                step(slots)
        template: Slots = [None] * len(slots)
        for slot in self._kept:
            template[slot] = slots[slot]
        self._places.update(places([slots[slot] for slot in self._kept]))
        self._template = template
        return template


def fixed_nodes(graph: Graph) -> set[CoreNode]:
    """Nodes that depend on no input, weight or state, and whose results are small enough to keep."""
    fixed: set[CoreNode] = set()
    known: set[Value] = set()
    for node in graph.nodes:
        outside = any(inner.op in GIVEN for region in node.regions for inner in region.walk())
        if node.op in GIVEN or outside or not known.issuperset(node.inputs):
            continue
        if sum(value.spec.size * CARRIED[value.spec.dtype].itemsize for value in node.outputs) <= KEPT_BYTES:
            fixed.add(node)
            known.update(node.outputs)
    return fixed


def _place(node: CoreNode) -> str:
    name = node.attributes.get("op", node.op)
    inputs = ", ".join(str(value.spec) for value in node.inputs)
    return f"while running {name}({inputs})" + (f" at {node.span.location()}" if node.span else "")


class StepBuilder:
    """Turns the nodes of one graph into steps over its slots."""

    def __init__(self, graph: PreparedGraph, preparation: Preparation, target: Target) -> None:
        self._graph = graph
        self._preparation = preparation
        self._target = target

    def step(self, node: CoreNode) -> Step:
        step = self._step(node)
        return self._verified(node, step) if self._preparation.verify else step

    def _step(self, node: CoreNode) -> Step:
        slot = self._graph.slot_of
        inputs = [slot(value) for value in node.inputs]
        outputs = [slot(value) for value in node.outputs]
        match node.op:
            case "param":
                return _param(node.attributes["path"], node.outputs[0].spec, outputs[0])
            case "state.read":
                return _state_read(node.attributes["path"], node.outputs[0].spec, outputs[0], self._target.device)
            case "state.write":
                return _state_write(node.attributes["path"], inputs[0])
            case "call":
                return self._call(node, inputs, outputs)
            case "while" | "for" | "if":
                return self._control(node, inputs, outputs)
        return _apply(primitive(node, self._target), inputs, outputs[0])

    def _verified(self, node: CoreNode, step: Step) -> Step:
        expected = [(self._graph.slot_of(value), value.spec) for value in node.outputs]

        def checked(slots: Slots) -> None:
            step(slots)
            for slot, spec in expected:
                made = slots[slot]
                if tuple(made.shape) != spec.shape or made.dtype != CARRIED[spec.dtype]:
                    raise SpecError(f"{_place(node)}: made {list(made.shape)} {made.dtype}, the graph says {spec}")

        return checked

    def _call(self, node: CoreNode, inputs: list[int], outputs: list[int]) -> Step:
        identity = node.attributes["op"]
        kernel = self._preparation.kernels.get(identity)
        operation = kernel.prepare(node, self._target) if kernel else None
        if operation is not None:
            return (
                _apply(operation, inputs, outputs[0]) if len(outputs) == 1 else _apply_many(operation, inputs, outputs)
            )
        body = self._preparation.graph(node.regions[0])

        def call(slots: Slots) -> None:
            try:
                results = body.run(slots[0], [slots[i] for i in inputs])
            except IndexRangeError as error:
                error.op = error.op or identity
                raise
            for slot, result in zip(outputs, results, strict=True):
                slots[slot] = result

        return call

    def _control(self, node: CoreNode, inputs: list[int], outputs: list[int]) -> Step:
        regions = [self._preparation.graph(region) for region in node.regions]
        # Meta tensors hold no condition: each region runs once, which proves its shapes.
        dry = self._target.device.type == "meta"
        run: Callable[[Frame, list[Tensor]], Sequence[Tensor]]
        match node.op:
            case "while":
                run = _while(regions[0], regions[1], node.attributes["carried"], dry)
            case "for":
                run = _for(regions[0], node, self._target.device, dry)
            case _:
                run = _if(regions[0], regions[1], dry)

        def control(slots: Slots) -> None:
            for slot, result in zip(outputs, run(slots[0], [slots[i] for i in inputs]), strict=True):
                slots[slot] = result

        return control


def _apply(operation: Callable[..., Any], inputs: list[int], output: int) -> Step:
    """A step of one output, unrolled for the common numbers of inputs."""
    match inputs:
        case []:

            def nullary(slots: Slots) -> None:
                slots[output] = operation()

            return nullary
        case [a]:

            def unary(slots: Slots) -> None:
                slots[output] = operation(slots[a])

            return unary
        case [a, b]:

            def binary(slots: Slots) -> None:
                slots[output] = operation(slots[a], slots[b])

            return binary

    def nary(slots: Slots) -> None:
        slots[output] = operation(*[slots[i] for i in inputs])

    return nary


def _apply_many(operation: Callable[..., Any], inputs: list[int], outputs: list[int]) -> Step:
    def step(slots: Slots) -> None:
        for slot, result in zip(outputs, operation(*[slots[i] for i in inputs]), strict=True):
            slots[slot] = result

    return step


def _param(path: str, spec: TensorSpec, output: int) -> Step:
    if spec.dtype in BITS:

        def bits(slots: Slots) -> None:
            slots[output] = to_carried(slots[0].weights[path], spec.dtype)

        return bits

    def step(slots: Slots) -> None:
        slots[output] = slots[0].weights[path]

    return step


def _state_read(path: str, spec: TensorSpec, output: int, device: torch.device) -> Step:
    def step(slots: Slots) -> None:
        frame: Frame = slots[0]
        value = frame.states.get(path)
        if value is None:
            value = frame.allocated.get(path)
        if value is None:
            value = frame.allocated[path] = torch.zeros(spec.shape, dtype=CARRIED[spec.dtype], device=device)
        slots[output] = value

    return step


def _state_write(path: str, source: int) -> Step:
    def step(slots: Slots) -> None:
        slots[0].written[path] = slots[source]

    return step


def _while(
    condition: PreparedGraph, body: PreparedGraph, carried: int, dry: bool
) -> Callable[[Frame, list[Tensor]], Sequence[Tensor]]:
    def run(frame: Frame, values: list[Tensor]) -> Sequence[Tensor]:
        if dry:
            condition.run(frame, values)
            return body.run(frame, values)
        captured = values[carried:]
        while bool(condition.run(frame, values)[0]):
            values = [*body.run(frame, values), *captured]
        return values[:carried]

    return run


def _for(
    body: PreparedGraph, node: CoreNode, device: torch.device, dry: bool
) -> Callable[[Frame, list[Tensor]], Sequence[Tensor]]:
    start, stop = node.attributes["start"], node.attributes["stop"]
    carried = node.attributes.get("carried", len(node.inputs))
    stacks = [value.spec for value in node.outputs[carried:]]
    empty = [torch.empty(spec.shape, dtype=CARRIED[spec.dtype], device=device) for spec in stacks] if dry else []

    def run(frame: Frame, values: list[Tensor]) -> Sequence[Tensor]:
        captured = values[carried:]
        passes: list[Sequence[Tensor]] = []
        for i in range(start, min(stop, start + 1) if dry else stop):
            counter = torch.full((), i, dtype=torch.int64, device=device)
            results = body.run(frame, [counter, *values])
            values = [*results[:carried], *captured]
            passes.append(results[carried:])
        if dry:
            return [*values[:carried], *empty]
        if not passes:
            none = [torch.empty(spec.shape, dtype=CARRIED[spec.dtype], device=device) for spec in stacks]
            return [*values[:carried], *none]
        return [*values[:carried], *(torch.stack(column) for column in zip(*passes, strict=True))]

    return run


def _if(then: PreparedGraph, otherwise: PreparedGraph, dry: bool) -> Callable[[Frame, list[Tensor]], Sequence[Tensor]]:
    def run(frame: Frame, values: list[Tensor]) -> Sequence[Tensor]:
        condition, *captured = values
        if dry:
            otherwise.run(frame, captured)
        return (then if dry or bool(condition) else otherwise).run(frame, captured)

    return run
