"""Where NaN or infinity comes from: an entry run once more, operation by operation, each result looked at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from linnet.language.program.binding import BoundProgram
from linnet.language.program.core import CoreNode, EntryGraph, Graph, Value
from linnet.language.words import counted
from linnet.runner.torch.dtypes import NAMES
from linnet.runner.torch.inputs import convert_inputs
from linnet.runner.torch.interpreter import Frame, Preparation, PreparedGraph
from linnet.runner.torch.kernels import equivalent_kernels
from linnet.runner.torch.precision import full_precision

# Masks are made of infinities on purpose, and weights are only to blame for what is computed from them.
_GIVEN = frozenset({"constant", "param", "select", "state.read", "state.write"})


@dataclass(frozen=True, slots=True)
class NonFinite:
    """The first operation whose result is not finite while its inputs are, or which makes NaN from no NaN.

    `layer` is the block whose weights it uses or, with `after`, the last before it that uses any; `weights` maps the
    operation's own weights that are not finite to how many of their elements are not.
    """

    kind: str
    op: str
    layer: str
    after: bool
    location: str
    dtype: str
    weights: Mapping[str, int]

    def __str__(self) -> str:
        place = f" {'after ' if self.after else 'in '}{self.layer}" if self.layer else ""
        told = f"{self.kind} appears first{place} ({self.op}{f' at {self.location}' if self.location else ''})"
        if self.weights:
            path, count = next(iter(self.weights.items()))
            return f"{told}, whose weight {path} holds {counted(count, 'value')} of that kind: fetch the weights again"
        if self.dtype in ("f16", "bf16"):
            other = 'dtype="bf16" or "f32"' if self.dtype == "f16" else 'dtype="f32"'
            return f"{told}, from finite inputs in {self.dtype}: load with {other} (--dtype), which has a wider range"
        return f"{told}, from finite inputs in {self.dtype}: look through that operation's arithmetic"


def explain_nonfinite(
    bound: BoundProgram,
    name: str,
    inputs: Sequence[Any],
    weights: Mapping[str, Tensor],
    present: frozenset[str],
    numerics: str,
    device: torch.device,
) -> str:
    """What makes the first output of an entry NaN or infinite, in words. `present` are the optional weights given."""
    taken = convert_inputs(bound.entries()[name], inputs, bound.generics, device)
    entry = bound.lower(name, bound.infer(name, taken.specs), present, taken.given)
    preparation = Preparation(device, {} if numerics == "exact" else equivalent_kernels())
    found = first_nonfinite(entry, preparation, weights, taken.tensors)
    if found is None:
        return f'{name} gives none where its operations run one by one: load with numerics="equivalent"'
    return str(found)


def first_nonfinite(
    entry: EntryGraph, preparation: Preparation, weights: Mapping[str, Tensor], inputs: Sequence[Tensor]
) -> NonFinite | None:
    """Run `entry` from empty states and find where the values that its first output needs stop being finite."""
    graph = entry.graph
    needed = _needed(graph)
    dead = _last_uses(needed)
    constants = {node.outputs[0]: node for node in graph.nodes if node.op == "constant"}
    paths = {node.outputs[0]: node.attributes["path"] for node in graph.nodes if node.op == "param"}
    frame = Frame(weights)
    values: dict[Value, Tensor] = dict(zip(graph.inputs, inputs, strict=True))
    last = ""
    with torch.no_grad(), full_precision():
        for node in needed:
            # A kernel may ask for the constants among its inputs, so they come along.
            own = [constants[value] for value in dict.fromkeys(node.inputs) if value in constants]
            given = tuple(value for value in dict.fromkeys(node.inputs) if value not in constants)
            alone = PreparedGraph(Graph(given, [*own, node], node.outputs), preparation)
            results = alone.run(frame, [values[value] for value in given])
            values.update(zip(node.outputs, results, strict=True))
            computed = [values[value] for value in given if value not in paths]
            used = [paths[value] for value in node.inputs if value in paths]
            last = _block(used[0]) if used else last
            kind = _kind(node, results, computed)
            if kind is not None:
                bad = {path: int((~weights[path].isfinite()).sum()) for path in used if _is_bad(weights[path])}
                dtype = next((NAMES[x.dtype] for x in results if _is_bad(x)), "")
                op = str(node.attributes.get("op", node.op))
                location = node.span.location() if node.span else ""
                return NonFinite(kind, op, last, not used, location, dtype, bad)
            for value in dead[node]:
                values.pop(value, None)
    return None


def _needed(graph: Graph) -> list[CoreNode]:
    """The nodes that the first output is computed from, in order."""
    wanted = {graph.outputs[0]}
    found = []
    for node in reversed(graph.nodes):
        if wanted.intersection(node.outputs):
            wanted.update(node.inputs)
            found.append(node)
    return found[::-1]


def _last_uses(nodes: Sequence[CoreNode]) -> dict[CoreNode, list[Value]]:
    """For each node, the values that none after it reads: all of a long prompt's would not fit in memory."""
    seen: set[Value] = set()
    found: dict[CoreNode, list[Value]] = {}
    for node in reversed(nodes):
        found[node] = [value for value in dict.fromkeys((*node.inputs, *node.outputs)) if value not in seen]
        seen.update(node.inputs)
    return found


def _kind(node: CoreNode, results: Sequence[Tensor], inputs: Sequence[Tensor]) -> str | None:
    """What this node made that was not in `inputs`, which are without weights: "NaN", "infinity" or None."""
    if node.op in _GIVEN:
        return None
    if any(x.isnan().any() for x in results) and not any(x.isnan().any() for x in inputs):
        return "NaN"
    # The logarithm of nothing is a way to write a mask, as a constant is.
    if node.op != "log" and any(map(_is_bad, results)) and not any(map(_is_bad, inputs)):
        return "infinity"
    return None


def _is_bad(x: Tensor) -> bool:
    return x.is_floating_point() and not bool(x.isfinite().all())


def _block(path: str) -> str:
    """The block that a weight belongs to: `layers.0.mlp.down` of `layers.0.mlp.down.weight`."""
    return path.rpartition(".")[0] or path
