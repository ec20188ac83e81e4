"""A graph of blocks as SVG: boxes with names, edges with shapes, the inside of a box within it where it is unfolded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from html import escape

from markupsafe import Markup

from linnet.site_builder.flow import Graph, Node
from linnet.site_builder.layout import LANE, Layout, Place, lay_out
from linnet.site_builder.text import one_line

# Sizes in the units of the drawing, which is shown at its own size where there is room: pixels.
CHARACTER, SMALL, SHAPE = 7.6, 6.4, 6.8
BOX_HEIGHT, ONE_LINE, JOIN = 44.0, 28.0, 26.0
HEADER, PADDING = 30.0, 16.0
LONGEST = 34
LONGEST_SHAPES = 24
# A picture that is shown smaller than this is not read: from there on it scrolls.
LEAST_SCALE = 0.75
STRAIGHT = 17.0
# How much of a box is drawn inside it: whether a node is unfolded, at a depth.
Unfold = Callable[[Node, int], bool]
# Where a node leads: the link, and what it says there.
LinkOf = Callable[[Node], tuple[str, str]]


@dataclass(slots=True, eq=False)
class _Drawn:
    """A graph with its layout; `inner` has the drawing of each unfolded node.

    `widths` are those of the boxes, whose places are as wide as what is written below them.
    """

    graph: Graph
    layout: Layout
    widths: list[float]
    inner: dict[int, _Drawn]


@dataclass(frozen=True, slots=True)
class Drawing:
    """A picture as HTML, and how wide it is where there is room, in pixels."""

    html: Markup
    width: float


def draw(graph: Graph, unfold: Unfold, link_of: LinkOf, title: str) -> Drawing:
    """The SVG of a graph, whose text alternative is `title`. It shrinks with its container, down to LEAST_SCALE, the
    width of an empty SVG below it: widths cannot be in a sheet, nor beside the picture under the pages' policy."""
    drawn = _arrange(graph, unfold, 0)
    width, height = drawn.layout.width + 2 * PADDING, drawn.layout.height + 2 * PADDING
    parts = [
        f'<div class="fit"><svg class="flow" viewBox="0 0 {_n(width)} {_n(height)}" '
        f'width="{_n(width)}" height="{_n(height)}" aria-label="{escape(title)}">'
    ]
    _paint(drawn, PADDING, PADDING, link_of, parts)
    parts.append(
        f'</svg><svg class="least" width="{_n(width * LEAST_SCALE)}" height="0" aria-hidden="true"></svg></div>'
    )
    return Drawing(Markup("".join(parts)), width)


def leaves(graph: Graph, unfold: Unfold, depth: int = 0) -> int:
    """How many boxes a drawing of the graph would have."""
    return sum(
        leaves(node.inner, unfold, depth + 1) + 1 if node.inner is not None and unfold(node, depth) else 1
        for node in graph.nodes
    )


def _arrange(graph: Graph, unfold: Unfold, depth: int) -> _Drawn:
    inner: dict[int, _Drawn] = {}
    sizes = []
    for index, node in enumerate(graph.nodes):
        if node.inner is not None and unfold(node, depth):
            found = inner[index] = _arrange(node.inner, unfold, depth + 1)
            wide = max(found.layout.width, _text_width(_head(node), CHARACTER)) + 2 * PADDING
            sizes.append((wide, found.layout.height + HEADER + 2 * PADDING))
        else:
            sizes.append(_size(node))
    shapes = _shapes(graph)
    places = tuple(
        (max(width, 2 * (6.0 + _text_width(shapes.get(index, ""), SHAPE))), height)
        for index, (width, height) in enumerate(sizes)
    )
    first = next(((index,) for index, node in enumerate(graph.nodes) if node.kind == "input"), ())
    return _Drawn(graph, lay_out(places, tuple(graph.edges), first), [width for width, _ in sizes], inner)


def _shapes(graph: Graph) -> dict[int, str]:
    """What is written below each node: the shapes that its value is taken in, mostly one; its own where several would
    push the boxes apart."""
    found: dict[int, dict[str, None]] = {}
    for (source, _), shape in graph.edges.items():
        if shape:
            found.setdefault(source, {})[shape] = None
    texts: dict[int, str] = {}
    for source, shapes in found.items():
        text = " / ".join(shapes)
        own = graph.nodes[source].shape
        texts[source] = _cut(own if len(shapes) > 1 and len(text) > LONGEST_SHAPES and own else text, LONGEST)
    return texts


def _size(node: Node) -> tuple[float, float]:
    if node.kind == "join":
        return JOIN, JOIN
    wide = max(_text_width(_head(node), CHARACTER), _text_width(_under(node), SMALL))
    return wide + 28.0, BOX_HEIGHT if _under(node) else ONE_LINE


def _text_width(text: str, character: float) -> float:
    return min(len(text), LONGEST) * character


def _head(node: Node) -> str:
    times = f" \N{MULTIPLICATION SIGN} {node.count:,}" if node.count > 1 else ""
    return _cut(one_line(node.label), LONGEST - len(times)) + times


def _under(node: Node) -> str:
    if node.kind in ("block", "repeat"):
        return _cut(node.block.name if node.block is not None else node.type, LONGEST)
    return _cut(", ".join(node.weights), LONGEST)


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _paint(drawn: _Drawn, left: float, top: float, link_of: LinkOf, parts: list[str]) -> None:
    layout = drawn.layout
    parts += [_edge(route, left, top) for route in layout.routes.values()]
    for source, shape in _shapes(drawn.graph).items():
        start = layout.boxes[source]
        x, y = left + start.x + 6, top + start.y + start.height + 14
        parts.append(f'<text class="shape" x="{_n(x)}" y="{_n(y)}">{escape(shape)}</text>')
    for index, box in enumerate(layout.boxes):
        _box(drawn, index, left + box.x - drawn.widths[index] / 2, top + box.y, link_of, parts)


def _box(drawn: _Drawn, index: int, x: float, y: float, link_of: LinkOf, parts: list[str]) -> None:
    node, box = drawn.graph.nodes[index], drawn.layout.boxes[index]
    width = drawn.widths[index]
    middle = x + width / 2
    if node.kind == "join":
        parts.append(f'<circle class="join" cx="{_n(middle)}" cy="{_n(y + JOIN / 2)}" r="{_n(JOIN / 2)}"/>')
        parts.append(f'<text class="symbol" x="{_n(middle)}" y="{_n(y + JOIN / 2 + 5)}">{escape(node.label)}</text>')
        return
    href, says = link_of(node)
    title = escape(" · ".join(part for part in (node.type or node.label, node.shape, says) if part))
    frame = f'x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" height="{_n(box.height)}" rx="6"'
    opened = f'<a href="{escape(href)}">' if href else "<g>"
    parts.append(
        f'{opened}<title>{title}</title><rect class="{"open" if index in drawn.inner else node.kind}" {frame}/>'
    )
    if index in drawn.inner:
        parts.append(f'<text class="head" x="{_n(x + PADDING)}" y="{_n(y + 20)}">{escape(_head(node))}</text>')
    elif under := _under(node):
        parts.append(f'<text class="name" x="{_n(middle)}" y="{_n(y + 19)}">{escape(_head(node))}</text>')
        parts.append(f'<text class="type" x="{_n(middle)}" y="{_n(y + 35)}">{escape(under)}</text>')
    else:
        parts.append(f'<text class="name" x="{_n(middle)}" y="{_n(y + 18)}">{escape(_head(node))}</text>')
    parts.append("</a>" if href else "</g>")
    if index in drawn.inner:
        found = drawn.inner[index]
        inside = x + (width - found.layout.width) / 2
        _paint(found, inside, y + HEADER + PADDING / 2, link_of, parts)


def _edge(route: tuple[Place, ...], left: float, top: float) -> str:
    """A line from the bottom of the first place to the top of the last, with an arrow's head."""
    start, end = route[0], route[-1]
    x, y, floor = left + start.x, top + start.y + start.height, top + start.floor
    path = [f"M{_n(x)} {_n(y)}"]
    for place in route[1:]:
        to_x, to_y = left + place.x, top + place.y
        if abs(to_x - x) >= 0.5:
            ceiling = top + place.ceiling
            # Below the shape that is written beside it.
            y = min(max(y + STRAIGHT, floor), ceiling)
            bend = (ceiling - y) / 2
            path.append(f"L{_n(x)} {_n(y)}")
            path.append(f"C{_n(x)} {_n(y + bend)} {_n(to_x)} {_n(ceiling - bend)} {_n(to_x)} {_n(ceiling)}")
        if abs(to_x - x) < 0.5 or place.ceiling < place.y:
            path.append(f"L{_n(to_x)} {_n(to_y)}")
        x, y, floor = to_x, to_y, top + place.floor
        if place is not end and place.width == LANE:
            y += place.height
            path.append(f"L{_n(x)} {_n(y)}")
    head = f"M{_n(x - 4)} {_n(y - 7)}L{_n(x)} {_n(y)}L{_n(x + 4)} {_n(y - 7)}"
    return f'<path class="edge" d="{"".join(path)}"/><path class="head" d="{head}"/>'


def _n(value: float) -> str:
    """A coordinate to a tenth of a unit, the same text wherever it is computed."""
    text = f"{value:.1f}"
    return text.removesuffix(".0") if text != "-0.0" else "0"
