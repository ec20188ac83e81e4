"""Small sources checked, bound and lowered, with every graph verified on the way."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from linnet.language.check import load
from linnet.language.program.binding import BoundProgram, bind
from linnet.language.program.checked import Program
from linnet.language.program.core import CoreNode, EntryGraph, Graph
from linnet.language.program.verify import verify


@cache
def checked(text: str) -> Program:
    """The program of a source, which has to check; `module test` is put before it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "test.linnet"
        path.write_text(f"module test\n{text}\n")
        result = load(path)
    assert result.program is not None, "\n".join(f"{d.code} {d.message}" for d in result.diagnostics)
    return result.program


def bound(text: str, root: str | None = None, **generics: int | str) -> BoundProgram:
    return bind(checked(text), root, generics)


def lowered(
    text: str,
    entry: str = "run",
    generics: Mapping[str, int | str] | None = None,
    *,
    present: frozenset[str] = frozenset(),
    **root_generics: int | str,
) -> EntryGraph:
    """The entry's graph, verified; keyword arguments are the root block's generics."""
    result = bound(text, **root_generics).lower(entry, generics or {}, present)
    verify(result.graph)
    return result


def ops(graph: Graph) -> list[str]:
    """The operations of a graph in order, an op call by its identity."""
    return [node.attributes["op"] if node.op == "call" else node.op for node in graph.nodes]


def only(graph: Graph, op: str) -> CoreNode:
    """The one node of a kind, calls by identity."""
    (found,) = [node for node in graph.nodes if op in (node.op, node.attributes.get("op"))]
    return found
