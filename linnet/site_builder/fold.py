"""Blocks written one after the other, `layer0`, `layer1`, ..., drawn as one with their count."""

from __future__ import annotations

from linnet.site_builder.flow import Graph, Node

# Two blocks of one kind may well stand one after the other; from so many on they are a stack.
FEWEST = 4


def fold_chains(graph: Graph) -> None:
    """Replace runs of equal blocks, each of which only feeds the next, by one block of that count."""
    into: dict[int, list[int]] = {}
    out: dict[int, list[int]] = {}
    for source, target in graph.edges:
        into.setdefault(target, []).append(source)
        out.setdefault(source, []).append(target)
    kept: dict[int, int] = {}
    for index, node in enumerate(graph.nodes):
        if index in kept:
            continue
        kept[index] = index
        run = [index]
        while node.kind == "block" and len(after := out.get(run[-1], [])) == 1:
            following = graph.nodes[after[0]]
            if following.kind != "block" or following.type != node.type or into[after[0]] != [run[-1]]:
                break
            run.append(after[0])
        if len(run) >= FEWEST:
            kept.update(dict.fromkeys(run, index))
            last: Node = graph.nodes[run[-1]]
            node.label = f"{node.label} … {last.label}"
            node.count = len(run)
    if all(kept[index] == index for index in kept):
        return
    places = {index: place for place, index in enumerate(sorted(set(kept.values())))}
    edges: dict[tuple[int, int], str] = {}
    for (source, target), shape in graph.edges.items():
        one, other = places[kept[source]], places[kept[target]]
        if one != other:
            edges.setdefault((one, other), shape)
    graph.nodes = [graph.nodes[index] for index in places]
    graph.edges = edges
