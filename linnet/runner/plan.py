"""A Core IR graph as a list of steps over numbered slots: what both backends' interpreters share.

Slot 0 holds the run's frame. What does not depend on inputs, weights or state (rotary tables, masks) is computed at the
first run and kept. A value's slot is emptied after its last use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from linnet.language.program.core import CoreNode, Graph, Value
from linnet.runner.errors import SizeError, SpecError
from linnet.runner.torch.dtypes import CARRIED, is_too_large

# Larger input-independent values are computed at each run rather than kept.
KEPT_BYTES = 64 * 2**20
# What a run is given. `packed` is a compiled graph's: weights in a layout of the backend's own.
GIVEN = frozenset(("param", "packed", "state.read", "state.write"))

Slots = list[Any]
Step = Callable[[Slots], None]
# A region, or several: takes the frame and its inputs, gives its outputs.
Region = Callable[[Any, list[Any]], Sequence[Any]]


class SlotPlan:
    """The slots of one graph, and the steps that `build` makes of its nodes. Raises SizeError for what cannot be."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._slots: dict[Value, int] = {}
        for value in (*graph.inputs, *(value for node in graph.nodes for value in node.outputs)):
            if is_too_large(value.spec):
                raise SizeError(f"a tensor {value.spec}")
            self._slots[value] = len(self._slots) + 1
        self.constants = {n.outputs[0]: n.attributes["value"] for n in graph.nodes if n.op == "constant"}
        fixed = fixed_nodes(graph)
        self._fixed_nodes = [node for node in graph.nodes if node in fixed]
        self.moving = [node for node in graph.nodes if node not in fixed]
        self.known = frozenset(value for node in self._fixed_nodes for value in node.outputs)
        read = {value for node in self.moving for value in node.inputs} | set(graph.outputs)
        self._kept = [self._slots[value] for value in self.known & read]
        self._outputs = [self._slots[value] for value in graph.outputs]
        self._fixed: list[Step] = []
        self._plan: list[tuple[Step, tuple[int, ...]]] = []

    def build(self, step: Callable[[CoreNode], Step]) -> None:
        """Make the steps."""
        self._fixed = [step(node) for node in self._fixed_nodes]
        dead = self._last_uses()
        self._plan = [(step(node), dead[node]) for node in self.moving]

    def slot_of(self, value: Value) -> int:
        return self._slots[value]

    def slots_of(self, node: CoreNode) -> tuple[list[int], list[int]]:
        """Those of a node's inputs and outputs."""
        return [self._slots[value] for value in node.inputs], [self._slots[value] for value in node.outputs]

    def run_fixed(self, frame: Any) -> tuple[Slots, list[Any]]:
        """Slots that hold what the graph keeps, and a list of it."""
        slots: Slots = [None] * (len(self._slots) + 1)
        slots[0] = frame
        for step in self._fixed:
            step(slots)
        template: Slots = [None] * len(slots)
        for slot in self._kept:
            template[slot] = slots[slot]
        return template, [slots[slot] for slot in self._kept]

    def run_steps(self, template: Slots, frame: Any, inputs: Sequence[Any]) -> list[Any]:
        """The outputs. What a step raises has a note of where."""
        slots = template.copy()
        slots[0] = frame
        slots[1 : len(inputs) + 1] = inputs
        position = 0
        try:
            for position, (step, dead) in enumerate(self._plan):  # noqa: B007  (read by the handler)
                step(slots)
                for slot in dead:
                    slots[slot] = None
        except (RuntimeError, ValueError) as error:
            error.add_note(place(self.moving[position]))
            raise
        return [slots[slot] for slot in self._outputs]

    def _last_uses(self) -> dict[CoreNode, tuple[int, ...]]:
        """For each node, the slots that nothing reads after it."""
        live = set(self.graph.outputs)
        dead: dict[CoreNode, tuple[int, ...]] = {}
        for node in reversed(self.moving):
            last = [value for value in dict.fromkeys((*node.inputs, *node.outputs)) if value not in live]
            live.update(node.inputs)
            dead[node] = tuple(self._slots[value] for value in last)
        return dead


def fixed_nodes(graph: Graph) -> set[CoreNode]:
    """Nodes that depend on no input, weight or state, and whose results are small enough to keep."""
    fixed: set[CoreNode] = set()
    known: set[Value] = set()
    for node in graph.nodes:
        outside = any(inner.op in GIVEN for region in node.regions for inner in region.walk())
        if node.op in GIVEN or outside or not known.issuperset(node.inputs):
            continue
        if sum(map(_counted_bytes, node.outputs)) <= KEPT_BYTES:
            fixed.add(node)
            known.update(node.outputs)
    return fixed


def _counted_bytes(value: Value) -> int:
    """f64 counts as the f32 that `engine` makes it of, so that a policy changes nothing of what is kept."""
    dtype = "f32" if value.spec.dtype == "f64" else value.spec.dtype
    return value.spec.size * CARRIED[dtype].itemsize


def place(node: CoreNode) -> str:
    """A node in words, for a note on what went wrong in it."""
    name = node.attributes.get("op", node.op)
    inputs = ", ".join(str(value.spec) for value in node.inputs)
    return f"while running {name}({inputs})" + (f" at {node.span.location()}" if node.span else "")


def verified(node: CoreNode, plan: SlotPlan, step: Step, dtypes: Mapping[str, Any]) -> Step:
    """A step whose values are compared with their specs as they are made; a difference raises SpecError."""
    expected = [(plan.slot_of(value), value.spec) for value in node.outputs]

    def checked(slots: Slots) -> None:
        step(slots)
        for slot, spec in expected:
            made = slots[slot]
            if tuple(made.shape) != spec.shape or made.dtype != dtypes[spec.dtype]:
                raise SpecError(f"{place(node)}: made {list(made.shape)} {made.dtype}, the graph says {spec}")

    return checked


def state_write(path: str, source: int) -> Step:
    """The step that leaves a state's new value with the frame."""

    def step(slots: Slots) -> None:
        slots[0].written[path] = slots[source]

    return step


def control(run: Region, inputs: list[int], outputs: list[int]) -> Step:
    """The step of a node with regions."""

    def step(slots: Slots) -> None:
        for slot, result in zip(outputs, run(slots[0], [slots[i] for i in inputs]), strict=True):
            slots[slot] = result

    return step
