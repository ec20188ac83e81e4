"""Fused projections: a checkpoint's one tensor in place of several that a model has apart.

Where a checkpoint has no `x.q_proj.weight`, `x.k_proj.weight` and `x.v_proj.weight` but `x.qkv_proj.weight`, the three
are its rows, in this order; likewise `gate_proj` and `up_proj` of `gate_up_proj`, and what else lies beside a weight
(`bias`, `weight_scale_inv`). Bindings name the parts, so that they are the same for both forms.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from linnet.language.program.manifest import Manifest
from linnet.registry.bindings import ResolvedBindings
from linnet.registry.errors import Problem, bare, listed, shown
from linnet.registry.headers import TensorInfo, TensorTable, Whole
from linnet.registry.recipe import NAME_IT, packed_unnamed

PARTS: Mapping[str, tuple[str, ...]] = {
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "gate_up_proj": ("gate_proj", "up_proj"),
}
_FUSED = re.compile(rf"(?P<before>(?:.*\.)?)(?P<name>{'|'.join(PARTS)})\.(?P<what>[^.]+)")


def with_parts(
    manifest: Manifest, bindings: ResolvedBindings, table: TensorTable
) -> tuple[TensorTable, tuple[Problem, ...], frozenset[str]]:
    """The table with the parts of each fused tensor in its place, where parameters read those; what is wrong: a tensor
    beside its own parts, or one that is not as large as they are together; and the parts that this is said of."""
    shapes = {bindings.tensors[entry.path]: entry.shape for entry in manifest.entries}
    tensors = dict(table.tensors)
    problems: list[Problem] = []
    told: set[str] = set()
    for name, info in table.tensors.items():
        found = _FUSED.fullmatch(name)
        if found is None or name in shapes:
            continue
        parts = [f"{found['before']}{part}.{found['what']}" for part in PARTS[found["name"]]]
        if both := [part for part in parts if part in table]:
            problems.append(_both(info, both, table))
            told.update(parts)
        elif all(part in shapes for part in parts):
            wanted = {part: shapes[part] for part in parts}
            rows = [shape[0] if shape else 0 for shape in wanted.values()]
            if any(shape[1:] != info.shape[1:] for shape in wanted.values()) or info.shape[:1] != (sum(rows),):
                problems.append(_sizes(info, wanted, table))
                told.update(parts)
                continue
            del tensors[name]
            start = 0
            for part, count in zip(parts, rows, strict=True):
                tensors[part] = _rows(info, part, start, count)
                start += count
    return TensorTable(tensors, table.files), tuple(problems), frozenset(told)


def _rows(info: TensorInfo, name: str, start: int, count: int) -> TensorInfo:
    """`count` rows of a tensor from `start` on, as a tensor of that name. Rows lie one after another in the file."""
    size = (info.end - info.start) // info.shape[0] if info.shape[0] else 0
    packed = info.packed and replace(
        info.packed,
        scales=_rows(info.packed.scales, info.packed.scales.name, start, count),
        biases=_rows(info.packed.biases, info.packed.biases.name, start, count),
    )
    first = info.start + start * size
    whole = Whole(info.name, start)
    return replace(
        info,
        name=name,
        shape=(count, *info.shape[1:]),
        start=first,
        end=first + count * size,
        packed=packed,
        whole=whole,
    )


def _both(info: TensorInfo, parts: list[str], table: TensorTable) -> Problem:
    places = f"{listed(parts, 3)} in {table[parts[0]].file}, and {shown(info.name)} in {info.file}"
    message = f"The same projections are in the weights twice: {places}."
    return Problem("weights.fused-and-split", bare(info.name), message, "Keep one of the two forms.")


def _sizes(info: TensorInfo, parts: Mapping[str, tuple[int, ...]], table: TensorTable) -> Problem:
    if packed := packed_unnamed(info, table):
        return Problem("weights.packed", bare(info.name), f"{listed(parts)} are to be read, but {packed}.", NAME_IT)
    sizes = ", ".join(f"{name} {list(shape)}" for name, shape in parts.items())
    message = f"The tensor {shown(info.name)} in {info.file} is {info}, and not as large as its parts: {sizes}."
    return Problem("weights.shape", bare(info.name), message, "Correct the card's generics, or fetch other weights.")
