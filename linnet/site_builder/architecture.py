"""The architecture of a model as pictures: an entry, and the inside of each block that it uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from markupsafe import Markup

from linnet.language.check.dims import Dim, DimError
from linnet.language.program.checked import CheckedFunction
from linnet.language.program.types import GenericValue
from linnet.site_builder.code import Code
from linnet.site_builder.collect import ModelPage
from linnet.site_builder.diagram import draw, leaves
from linnet.site_builder.flow import Graph, Node, entry_graph
from linnet.site_builder.fold import fold_chains
from linnet.site_builder.parameters import split_path
from linnet.site_builder.paths import relative
from linnet.site_builder.text import Anchors, fragment

# A drawing of more boxes than this is not read: what repeats is folded, and past this nothing is drawn.
MOST_BOXES = 160
# Up to this many boxes the body of a loop is drawn within the picture, and all blocks in one that is unfolded.
UNFOLDED_BOXES = 26
WHOLE_BOXES = 90
MOST_PARTS = 40
# What a wide page has for the picture of the entry and those of its blocks, and what lies between and around them.
ROOM, APART = 1104.0, 98.0
# Entries with a page of their own beside the card's.
MOST_ENTRIES = 40


@dataclass(frozen=True, slots=True)
class Part:
    """A block with an inside: where it is in the model, how often, its picture, and what it holds (each)."""

    path: str
    anchor: str
    count: int
    block: str
    block_name: str
    place: str
    parameters: int
    figure: Markup


@dataclass(frozen=True, slots=True)
class Architecture:
    """`whole` has every block unfolded, empty where that would be too large or no different; `beside` says whether the
    widest of the parts fits beside the picture of the entry."""

    svg: Markup
    whole: Markup
    parts: tuple[Part, ...]
    beside: bool


def architectures(page: ModelPage, paths: Mapping[str, str]) -> dict[str, Architecture]:
    """The pictures of entries, each for its file in `paths`, but for those that are too large to draw; of the first
    MOST_ENTRIES. There are none where the program does not check."""
    code = page.code
    if code is None or code.bound is None:
        return {}
    entries, known = code.bound.entries(), _patterns(page)
    found: dict[str, Architecture] = {}
    for name, path in paths.items():
        if name in entries and len(found) < MOST_ENTRIES and (drawn := _entry(page, code, path, entries[name], known)):
            found[name] = drawn
    return found


def _entry(
    page: ModelPage, code: Code, path: str, entry: CheckedFunction, known: dict[str, int]
) -> Architecture | None:
    assert code.bound is not None
    generics: dict[str, GenericValue] = {
        name: Dim.of(value) if isinstance(value, int) else value for name, value in code.bound.generics.items()
    }
    try:
        graph = entry_graph(entry, generics, code.bound.block, lambda part: ".".join(part) in known)
    except DimError:
        return None
    fold_chains(graph)
    if len(graph.nodes) > MOST_BOXES:
        return None
    return _Pictures(page.title, code, path, known).of(graph, entry.name)


class _Pictures:
    def __init__(self, title: str, code: Code, path: str, known: dict[str, int]) -> None:
        self._title, self._code, self._path, self._known = title, code, path, known
        self._anchors = Anchors("content", "inside")
        self._inside: dict[tuple[str, ...], str] = {}

    def of(self, graph: Graph, entry: str) -> Architecture:
        found = self._collect(graph, 1)
        figures = [
            draw(node.inner, self._folded, self._link, f"The inside of {'.'.join(node.path)}")
            for node, _ in found
            if node.inner is not None
        ]
        parts = tuple(
            Part(
                path=".".join(node.path),
                anchor=self._inside[node.path],
                count=count,
                block=node.named or node.type,
                block_name=node.block.name if node.block is not None else node.label,
                place=self._code.place(node.span),
                parameters=self._parameters(node),
                figure=figure.html,
            )
            for (node, count), figure in zip(found, figures, strict=True)
        )
        title = f"The entry {entry} of {self._title}"
        main = draw(graph, self._repeats, self._link, title)
        whole = Markup("")
        if parts and leaves(graph, _everything) <= WHOLE_BOXES:
            whole = draw(graph, _everything, self._to_source, f"{title}, every block unfolded").html
        beside = main.width + APART + max((figure.width for figure in figures), default=0.0) <= ROOM
        return Architecture(main.html, whole, parts, beside)

    def _collect(self, graph: Graph, times: int) -> list[tuple[Node, int]]:
        """The blocks whose inside is drawn apart, outermost first, and how often each is there."""
        found: list[tuple[Node, int]] = []
        for node in graph.nodes:
            if node.inner is None:
                continue
            fold_chains(node.inner)
            count = times * node.count
            drawn = len(node.inner.nodes) <= MOST_BOXES
            if drawn and not self._repeats(node, 0) and node.path not in self._inside and len(found) < MOST_PARTS:
                name = ".".join(node.path) or node.label
                self._inside[node.path] = self._anchors.claim(f"inside-{name}")
                found.append((node, count))
            found += self._collect(node.inner, count)
        return found

    def _repeats(self, node: Node, depth: int) -> bool:
        """Whether a node is drawn unfolded within the picture: the body of a loop, if it is small."""
        del depth
        return node.kind == "repeat" and node.inner is not None and len(node.inner.nodes) <= UNFOLDED_BOXES

    def _folded(self, node: Node, depth: int) -> bool:
        return self._repeats(node, depth)

    def _link(self, node: Node) -> tuple[str, str]:
        """A block leads to its inside, where that is drawn apart, else to its source."""
        if node.kind == "block" and node.inner is not None and node.path in self._inside:
            return fragment(self._inside[node.path]), "its inside"
        return self._to_source(node)

    def _to_source(self, node: Node) -> tuple[str, str]:
        place = self._code.place(node.span)
        return (relative(self._path, place), "its source") if place else ("", "")

    def _parameters(self, node: Node) -> int:
        """How many parameters one such block holds."""
        prefix = f"{'.'.join(node.path)}."
        return sum(count for pattern, count in self._known.items() if pattern.startswith(prefix))


def _everything(node: Node, depth: int) -> bool:
    del depth
    return node.inner is not None


def _patterns(page: ModelPage) -> dict[str, int]:
    """The parameters that are there, and the paths above them, without array positions; elements of one of each."""
    found: dict[str, int] = {}
    for item in page.all_parameters:
        if not item.present:
            continue
        names = [segment for segment in split_path(item.path)[0].split(".") if segment != "{}"]
        for depth in range(1, len(names)):
            found.setdefault(".".join(names[:depth]), 0)
        found[".".join(names)] = prod(item.shape)
    return found
