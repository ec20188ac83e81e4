"""Queries, keys and values of a graph compiled under `fast`: split into heads and rotated together.

Where one product holds them side by side, its columns are heads in order, whichever they belong to. So they are laid
out by head at once, those that are rotated by the same tables are rotated at once, and each part takes its heads.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from linnet.language.program.core import CoreNode, Graph, Value
from linnet.runner.rewriting import Rewriter, native
from linnet.runner.torch.compiled.elementwise import rotate
from linnet.runner.torch.compiled.linears import split_columns

BY_HEAD = (0, 2, 1, 3)


def join_heads(graph: Graph) -> None:
    """Replace the split of a product, its parts' reshapes and permutations, and their rotations, by one step."""
    pass_ = Rewriter(graph)
    order = {node: i for i, node in enumerate(graph.nodes)}
    made: dict[CoreNode, CoreNode] = {}
    replaced: dict[CoreNode, tuple[Value, ...]] = {}
    gone: set[CoreNode] = set()
    for node in graph.nodes:
        found = _joined(node, pass_, order)
        if found is not None:
            place, fused, results, nodes = found
            made[place], replaced[place] = fused, results
            gone |= nodes
    for node in graph.nodes:
        if node in made:
            pass_.emit(made[node])
            for old, new in zip(replaced[node], made[node].outputs, strict=True):
                pass_.replace(old, new)
        elif node not in gone:
            pass_.emit(node)
    pass_.finish()


def _joined(
    split: CoreNode, graph: Rewriter, order: dict[CoreNode, int]
) -> tuple[CoreNode, CoreNode, tuple[Value, ...], set[CoreNode]] | None:
    """For a split into heads: the node in whose place all of it goes, what goes there, the values that it stands for,
    and the nodes that it stands for."""
    if split.op != "native" or split.attributes["function"] is not split_columns:
        return None
    nodes = {split}
    results: list[Value] = []
    rotations: list[CoreNode] = []
    for part in split.outputs:
        shaped = graph.only_reader(part)
        moved = graph.only_reader(shaped.outputs[0]) if shaped is not None and shaped.op == "reshape" else None
        if shaped is None or moved is None or moved.op != "permute" or tuple(moved.attributes["axes"]) != BY_HEAD:
            return None
        nodes |= {shaped, moved}
        turned = graph.only_reader(moved.outputs[0])
        if turned is not None and turned.op == "native" and turned.attributes["function"] is rotate:
            # Those that are rotated come first, all by the same tables.
            if len(rotations) < len(results) or (rotations and rotations[0].inputs[1:] != turned.inputs[1:]):
                return None
            nodes.add(turned)
            rotations.append(turned)
            results.append(turned.outputs[0])
        else:
            results.append(moved.outputs[0])
    shapes = [value.spec.shape for value in results]
    if len(rotations) < 2 or any((s[0], *s[2:]) != (shapes[0][0], *shapes[0][2:]) for s in shapes):
        return None
    place = min(rotations, key=order.__getitem__)
    readers = [reader for value in results for reader in graph.readers.get(value, [])]
    if any(order[reader] < order[place] for reader in readers if reader not in nodes):
        return None
    counts = tuple(shape[1] for shape in shapes)
    product, (cosines, sines) = split.inputs[0], rotations[0].inputs[1:]
    constants = (shapes[0][3], counts, len(rotations))
    specs = [value.spec for value in results]
    fused = native(rotated_heads, (product, cosines, sines), specs, constants=constants, like=split)
    return place, fused, tuple(results), nodes


def rotated_heads(
    product: Tensor, cosines: Tensor, sines: Tensor, width: int, counts: Sequence[int], rotated: int
) -> list[Tensor]:
    """product [B, S, sum(counts) * width] -> for each count n a part [B, n, S, width], the first `rotated` of them
    turned by the tables [S, width]."""
    b, s, _ = product.shape
    heads = product.view(b, -1, 1, width) if s == 1 else product.view(b, s, -1, width).transpose(1, 2)
    turning = sum(counts[:rotated])
    turned = rotate(heads.narrow(1, 0, turning), cosines, sines)
    parts = list(turned.split_with_sizes(list(counts[:rotated]), dim=1))
    start = turning
    for count in counts[rotated:]:
        parts.append(heads.narrow(1, start, count))
        start += count
    return parts
