"""What an entry does, op by op: the calls of its Core IR in order, what repeats written once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from linnet.language.program.core import CoreNode, Graph, Value


@dataclass(frozen=True, slots=True)
class OpCall:
    """One call of an op; `inside` are the calls that its body makes, where the body is what runs."""

    node: CoreNode
    inside: tuple[Step, ...]

    @property
    def identity(self) -> str:
        """`std.nn.linear::linear`."""
        return str(self.node.attributes["op"])

    def text(self) -> str:
        """The call with its shapes: `std.nn.linear::linear(x: [1, 8, 64; bf16], ..) -> [1, 8, 32; bf16]`."""
        names = self.node.attributes["parameters"]
        inputs = [f"{name}: {value.spec}" for name, value in zip(names, self.node.inputs, strict=True)]
        inputs += [f"{name}: {variant}" for name, variant in self.node.attributes.get("enums", {}).items()]
        results = ", ".join(str(value.spec) for value in self.node.outputs)
        return f"{self.identity}({', '.join(inputs)}) -> {results}"


@dataclass(frozen=True, slots=True)
class Repeated:
    """Steps that come `count` times in a row, as the layers of a model do."""

    count: int
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Branch:
    """Steps inside control flow that stays: a "while", a "for" (`count` passes) or an "if" (both branches)."""

    kind: str
    count: int | None
    steps: tuple[Step, ...]


Step = OpCall | Repeated | Branch


def op_steps(graph: Graph) -> tuple[Step, ...]:
    """The op calls of a graph in order, runs of equal steps folded."""
    return _Folder().steps(graph)


def calls(steps: Sequence[Step], times: int = 1) -> Iterator[tuple[OpCall, int]]:
    """Every call among `steps` with how often it is made; a `while` and each branch of an `if` count as once."""
    for step in steps:
        match step:
            case OpCall():
                yield step, times
            case Repeated():
                yield from calls(step.steps, times * step.count)
            case Branch():
                yield from calls(step.steps, times * (step.count if step.count is not None else 1))


class _Folder:
    def __init__(self) -> None:
        # Equal steps have equal numbers, so that comparing two is cheap.
        self._numbers: dict[object, int] = {}
        # Calls with the same generics share their body.
        self._inside: dict[int, tuple[Step, ...]] = {}

    def steps(self, graph: Graph) -> tuple[Step, ...]:
        paths = {node.outputs[0]: node.attributes["path"] for node in graph.nodes if node.op == "param"}
        made = [(step, node) for node in graph.nodes for step in self._of_node(node)]
        elements = [_element(node, paths) for _, node in made]
        return self._fold([step for step, _ in made], [self._number(step) for step, _ in made], elements)

    def _of_node(self, node: CoreNode) -> Iterator[Step]:
        if node.op == "call":
            (body,) = node.regions
            if id(body) not in self._inside:
                self._inside[id(body)] = self.steps(body)
            yield OpCall(node, self._inside[id(body)])
        elif node.regions:
            steps = tuple(step for region in node.regions for step in self.steps(region))
            count = node.attributes["stop"] - node.attributes["start"] if node.op == "for" else None
            if steps:
                yield Branch(node.op, count, steps)

    def _number(self, step: Step) -> int:
        return self._numbers.setdefault(self._key(step), len(self._numbers))

    def _key(self, step: Step) -> object:
        match step:
            case OpCall():
                node, attributes = step.node, step.node.attributes
                specs = tuple(value.spec for value in (*node.inputs, *node.outputs))
                generics, enums = (tuple(attributes.get(name, {}).items()) for name in ("generics", "enums"))
                return attributes["op"], attributes["parameters"], generics, enums, specs
            case Repeated():
                return step.count, tuple(map(self._number, step.steps))
            case Branch():
                return step.kind, step.count, tuple(map(self._number, step.steps))

    def _fold(self, steps: Sequence[Step], numbers: Sequence[int], elements: Sequence[str | None]) -> tuple[Step, ...]:
        folded: list[Step] = []
        at = 0
        while at < len(steps):
            period, count = _longest_run(numbers, at)
            if count > 1:
                first = _first_of_element(numbers, elements, at, period, period * count)
                folded += self._fold(steps[at:first], numbers[at:first], elements[at:first])
                unit = slice(first, first + period)
                folded.append(Repeated(count, self._fold(steps[unit], numbers[unit], elements[unit])))
                at = first + period * count
            else:
                folded.append(steps[at])
                at += 1
        return tuple(folded)


def _longest_run(numbers: Sequence[int], at: int) -> tuple[int, int]:
    """The period and count of the run from `at` that spares most, (1, 1) where nothing repeats."""
    best, spared = (1, 1), 0
    for period in range(1, (len(numbers) - at) // 2 + 1):
        if numbers[at] != numbers[at + period]:
            continue
        unit, count = numbers[at : at + period], 1
        while numbers[at + count * period : at + (count + 1) * period] == unit:
            count += 1
        if (count - 1) * period > spared:
            best, spared = (period, count), (count - 1) * period
    return best


def _element(node: CoreNode, paths: Mapping[Value, str]) -> str | None:
    """The element of a block array whose weight a node reads: `layers.3`."""
    for value in node.inputs:
        parts = paths.get(value, "").split(".")
        for i, part in enumerate(parts):
            if part.isdigit():
                return ".".join(parts[: i + 1])
    return None


def _first_of_element(numbers: Sequence[int], elements: Sequence[str | None], at: int, period: int, length: int) -> int:
    """Where a run of `length` steps is best begun: it may begin later as long as it goes on behind its end. The first
    step of an element of a block array is such a place, so that what repeats is a layer and not parts of two."""
    spare = 0
    while at + length + spare < len(numbers) and numbers[at + length + spare] == numbers[at + spare]:
        spare += 1
    before = next((element for element in reversed(elements[:at]) if element is not None), None)
    for start in range(at, at + min(spare, period - 1) + 1):
        element = elements[start]
        if element is not None:
            if element != before:
                return start
            before = element
    return at
