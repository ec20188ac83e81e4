"""How many positions a model's caches hold: what an entry writes there, as far as its graph tells.

An entry that writes positions from an input's value on (`write_span(cache, value, pos)`), or from that of a state that
counts them, continues what is there, or writes over its end: it may leave no gap, and go no further than the cache has
room for. What is written by rows, slots or pages has no one length.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import itemgetter

from linnet.language.program.core import CoreNode, Graph, Value
from linnet.language.program.inline import inline_calls
from linnet.runner.affine import Indices
from linnet.runner.errors import CapacityError, PositionGapError
from linnet.runner.rewriting import is_call, named

# Rows, heads, positions, width.
CACHE_AXES = 4
SPANS = ("std.nn.cache::write_at", "std.nn.cache::write_span")


@dataclass(frozen=True)
class Span:
    """`count` positions of the cache at `path`, which has room for `capacity`, from `symbol` plus `constant` on: an
    input's number, or the path of a state; from `constant` where there is none."""

    path: str
    symbol: int | str | None
    constant: int
    count: int
    capacity: int


@dataclass(frozen=True)
class Writes:
    """What an entry writes: spans in their order, and the caches that it writes otherwise."""

    spans: tuple[Span, ...]
    others: frozenset[str]


def find_writes(graph: Graph) -> Writes:
    """The writes of an entry's graph."""
    flat = inline_calls(graph, lambda node: is_call(node, *SPANS))
    producers = {value: node for node in flat.nodes for value in node.outputs}
    indices = Indices(flat)
    spans: list[Span] = []
    others: set[str] = set()
    for node in flat.nodes:
        if node.op == "state.write":
            found = _chain(node, flat, producers, indices)
            spans += found or ()
            if found is None and len(node.inputs[0].spec.shape) == CACHE_AXES:
                others.add(node.attributes["path"])
    return Writes(tuple(spans), frozenset(others))


def _chain(write: CoreNode, graph: Graph, producers: Mapping[Value, CoreNode], indices: Indices) -> list[Span] | None:
    """The spans that lead from a state's old value to its new one; None where anything else does."""
    path = write.attributes["path"]
    found: list[Span] = []
    value = write.inputs[0]
    while (node := producers.get(value)) is not None and is_call(node, *SPANS):
        inputs = named(node)
        at = indices.of(inputs["at"])
        if at is None:
            return None
        symbol: int | str | None = None
        if at.symbol in graph.inputs:
            symbol = graph.inputs.index(at.symbol)
        elif at.symbol is not None:
            counter = producers.get(at.symbol)
            if counter is None or counter.op != "state.read":
                return None
            symbol = str(counter.attributes["path"])
        count, capacity = inputs["value"].spec.shape[2], inputs["cache"].spec.shape[2]
        found.append(Span(path, symbol, at.constant, count, capacity))
        value = inputs["cache"]
    read = node is not None and node.op == "state.read" and node.attributes["path"] == path
    return found[::-1] if read else None


class Lengths:
    """How many positions each cache of a model holds; None of one that was written otherwise than in a row."""

    def __init__(self) -> None:
        self._held: dict[str, int | None] = {}

    @property
    def common(self) -> int | None:
        """Positions that every cache holds; None where they have no one length."""
        found = set(self._held.values())
        return 0 if not found else found.pop() if len(found) == 1 else None

    def after(self, entry: str, writes: Writes, value: Callable[[int | str], int]) -> dict[str, int | None]:
        """The lengths after a run of an entry; `value` gives the element of an input, or of a state.

        Raises CapacityError, PositionGapError. Positions below 0 are for the entry to refuse.
        """
        held = {**self._held, **dict.fromkeys(writes.others)}
        starts = [span.constant + (value(span.symbol) if span.symbol is not None else 0) for span in writes.spans]
        placed = zip(writes.spans, starts, strict=True)
        beyond = [(start + span.count, start, span) for span, start in placed if start + span.count > span.capacity]
        if beyond:
            # The furthest end is the capacity that all of them need.
            _, start, furthest = max(beyond, key=itemgetter(0))
            raise CapacityError(entry, start, furthest.count, furthest.capacity)
        for span, start in zip(writes.spans, starts, strict=True):
            known = held.get(span.path, 0)
            if known is not None and start > known and span.count:
                raise PositionGapError(entry, start, known)
            held[span.path] = known if known is None or not span.count else start + span.count
        return held

    def set(self, held: Mapping[str, int | None]) -> None:
        self._held = dict(held)

    def clear(self) -> None:
        self._held.clear()
