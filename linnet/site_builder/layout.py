"""Boxes in layers from top to bottom, for a graph without cycles: the method of Sugiyama, Tagawa and Toda (1981).

A box stands below everything that leads to it. An edge over several layers passes through a narrow place in each, so
that it meets no box. Places within a layer are ordered by where their neighbours stand, then moved towards them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise

GAP_X, GAP_Y, LANE = 22.0, 42.0, 12.0
SWEEPS = 6


@dataclass(slots=True, eq=False)
class Place:
    """A box, or where an edge passes through a layer; `x` is its middle, `y` its top. Its layer reaches from `ceiling`
    to `floor`: between them an edge goes straight, beside what stands there."""

    width: float
    height: float
    node: int = -1
    x: float = 0.0
    y: float = 0.0
    layer: int = 0
    ceiling: float = 0.0
    floor: float = 0.0
    above: list[Place] = field(default_factory=list)
    below: list[Place] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Layout:
    """Boxes by node, the places that each edge passes from its source to its target, and the size of all."""

    boxes: tuple[Place, ...]
    routes: Mapping[tuple[int, int], tuple[Place, ...]]
    width: float
    height: float


@lru_cache(maxsize=256)
def lay_out(
    sizes: tuple[tuple[float, float], ...], edges: tuple[tuple[int, int], ...], first: tuple[int, ...] = ()
) -> Layout:
    """Places for boxes of these widths and heights. Edges lead from a source to a target, and close no cycle.

    Boxes without an edge into them stand in the first layer where `first` names them, else just above what they lead
    to. Blocks look the same in several entries, and in models of one family: what was asked last is kept.
    """
    boxes = [Place(width, height, node) for node, (width, height) in enumerate(sizes)]
    _assign_layers(boxes, edges, frozenset(first))
    layers: list[list[Place]] = [[] for _ in range(max((box.layer for box in boxes), default=-1) + 1)]
    for box in boxes:
        layers[box.layer].append(box)
    routes: dict[tuple[int, int], tuple[Place, ...]] = {}
    for source, target in edges:
        route = [boxes[source]]
        for layer in range(boxes[source].layer + 1, boxes[target].layer):
            lane = Place(LANE, 0.0, layer=layer)
            layers[layer].append(lane)
            route.append(lane)
        route.append(boxes[target])
        for upper, lower in pairwise(route):
            upper.below.append(lower)
            lower.above.append(upper)
        routes[source, target] = tuple(route)
    _order(layers)
    _spread(layers)
    y = 0.0
    for layer_places in layers:
        tallest = max((place.height for place in layer_places), default=0.0)
        for place in layer_places:
            place.ceiling, place.floor = y, y + tallest
            place.y = y + (tallest - place.height) / 2 if place.node >= 0 else y
            if place.node < 0:
                place.height = tallest
        y += tallest + GAP_Y
    everything = [place for layer_places in layers for place in layer_places]
    left = min((place.x - place.width / 2 for place in everything), default=0.0)
    right = max((place.x + place.width / 2 for place in everything), default=0.0)
    for place in everything:
        place.x -= left
    return Layout(tuple(boxes), routes, right - left, max(0.0, y - GAP_Y))


def _assign_layers(boxes: Sequence[Place], edges: Sequence[tuple[int, int]], first: frozenset[int]) -> None:
    """The longest way from the top; sources that are not `first` move down to their first target."""
    into: dict[int, list[int]] = {}
    out: dict[int, list[int]] = {}
    for source, target in edges:
        into.setdefault(target, []).append(source)
        out.setdefault(source, []).append(target)
    waiting = {node: len(into.get(node, ())) for node in range(len(boxes))}
    ready = [node for node in range(len(boxes)) if not waiting[node]]
    while ready:
        node = ready.pop(0)
        for target in out.get(node, ()):
            boxes[target].layer = max(boxes[target].layer, boxes[node].layer + 1)
            waiting[target] -= 1
            if not waiting[target]:
                ready.append(target)
    for node, box in enumerate(boxes):
        if node not in into and node not in first and node in out:
            box.layer = max(box.layer, min(boxes[target].layer for target in out[node]) - 1)


def _order(layers: Sequence[list[Place]]) -> None:
    for places in layers:
        for index, place in enumerate(places):
            place.x = float(index)
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        for places in layers if down else reversed(layers):
            middles = {id(place): _middle(place.above if down else place.below, place.x) for place in places}
            places.sort(key=lambda place: middles[id(place)])
            for index, place in enumerate(places):
                place.x = float(index)


def _middle(neighbours: Sequence[Place], own: float) -> float:
    return sum(place.x for place in neighbours) / len(neighbours) if neighbours else own


def _spread(layers: Sequence[list[Place]]) -> None:
    """Horizontal places: side by side first, then towards the neighbours as far as there is room."""
    for places in layers:
        whole = sum(place.width for place in places) + GAP_X * (len(places) - 1)
        x = -whole / 2
        for place in places:
            place.x = x + place.width / 2
            x += place.width + GAP_X
    for sweep in range(2 * SWEEPS):
        down = sweep % 2 == 0
        for places in layers if down else reversed(layers):
            wanted = [_middle(place.above if down else place.below, place.x) for place in places]
            _settle(places, wanted)


def _settle(places: Sequence[Place], wanted: Sequence[float]) -> None:
    """The positions nearest to `wanted`, by least squares, that keep the order and the gaps: pools of neighbours that
    would overlap move together."""
    offsets = [0.0]
    for one, other in pairwise(places):
        offsets.append(offsets[-1] + (one.width + other.width) / 2 + GAP_X)
    pools: list[tuple[float, int]] = []  # mean of what its members want, less their offsets; how many they are
    for want, offset in zip(wanted, offsets, strict=True):
        mean, count = want - offset, 1
        while pools and pools[-1][0] >= mean:
            before, size = pools.pop()
            mean = (before * size + mean * count) / (size + count)
            count += size
        pools.append((mean, count))
    settled = [mean for mean, count in pools for _ in range(count)]
    for place, base, offset in zip(places, settled, offsets, strict=True):
        place.x = base + offset
