"""The reference backend: walks a Core IR graph in torch, node by node.

A graph is prepared once into a list of steps (`linnet.runner.plan`); running it is one pass over that list. Under
`exact` a call runs its body; under `equivalent` a kernel that is known for its identity.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from linnet.language.program.core import CoreNode, Graph, TensorSpec
from linnet.runner.errors import IndexRangeError
from linnet.runner.plan import Region, SlotPlan, Slots, Step, control, state_write, verified
from linnet.runner.torch.dtypes import BITS, CARRIED, to_carried
from linnet.runner.torch.kernels import Kernel
from linnet.runner.torch.primitives import Target, primitive
from linnet.runner.torch.sharing import places


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


class PreparedGraph(SlotPlan):
    """A graph ready to run: `run(frame, inputs)` returns its outputs. Raises SizeError where a value cannot be."""

    def __init__(self, graph: Graph, preparation: Preparation) -> None:
        super().__init__(graph)
        self._places = preparation.kept
        self.build(StepBuilder(self, preparation, Target(preparation.device, self.constants)).step)
        self._template: Slots | None = None

    def run(self, frame: Frame, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The graph's outputs. Raises IndexRangeError, IntegerDivisionError, and what torch raises (memory, say)."""
        if self._template is None:
            with torch.no_grad():
                self._template, kept = self.run_fixed(frame)
            self._places.update(places(kept))
        return tuple(self.run_steps(self._template, frame, inputs))

    @property
    def kept(self) -> set[int]:
        """Where the values lie that graphs of this preparation keep for their next runs."""
        return self._places


class StepBuilder:
    """Turns the nodes of one graph into steps over its slots."""

    def __init__(self, graph: PreparedGraph, preparation: Preparation, target: Target) -> None:
        self._graph = graph
        self._preparation = preparation
        self._target = target

    def step(self, node: CoreNode) -> Step:
        step = self._step(node)
        return verified(node, self._graph, step, CARRIED) if self._preparation.verify else step

    def _step(self, node: CoreNode) -> Step:
        inputs, outputs = self._graph.slots_of(node)
        match node.op:
            case "param":
                return _param(node.attributes["path"], node.outputs[0].spec, outputs[0])
            case "state.read":
                return _state_read(node.attributes["path"], node.outputs[0].spec, outputs[0], self._target.device)
            case "state.write":
                return state_write(node.attributes["path"], inputs[0])
            case "call":
                return self._call(node, inputs, outputs)
            case "while" | "for" | "if":
                return self._control(node, inputs, outputs)
        return _apply(primitive(node, self._target), inputs, outputs[0])

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
        run: Region
        match node.op:
            case "while":
                run = _while(regions[0], regions[1], node.attributes["carried"], dry)
            case "for":
                run = _for(regions[0], node, self._target.device, dry)
            case _:
                run = _if(regions[0], regions[1], dry)

        return control(run, inputs, outputs)


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
