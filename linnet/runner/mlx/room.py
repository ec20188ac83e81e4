"""Whether there is room for an entry's states before they are allocated: MLX ends the process where there is none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import mlx.core as mx
import torch

from linnet.language.program.core import Graph, TensorSpec
from linnet.runner.errors import AllocationError, SizeError
from linnet.runner.mlx.dtypes import DTYPES
from linnet.runner.torch.memory import refuse_beyond

# MLX counts the positions of an axis in an i32.
LONGEST_AXIS = 2**31 - 1


def states_of(graph: Graph) -> dict[str, TensorSpec]:
    """The states that a graph reads or writes, by path."""
    found: dict[str, TensorSpec] = {}
    for node in graph.nodes:
        if node.op in ("state.read", "state.write"):
            value = node.outputs[0] if node.op == "state.read" else node.inputs[0]
            found[node.attributes["path"]] = value.spec
        for region in node.regions:
            found.update(states_of(region))
    return found


def check_room(entry: str, states: Mapping[str, TensorSpec], held: Iterable[str], device: str) -> None:
    """Raises AllocationError where the states that are not `held` take more memory than a CPU has free."""
    present = set(held)
    missing = [spec for path, spec in states.items() if path not in present]
    if device != "cpu" or not missing:
        return
    what, needed = f"entry {entry}", sum(DTYPES[spec.dtype].size * spec.size for spec in missing)
    try:
        refuse_beyond(what, needed, torch.device(device))
    except AllocationError:
        # MLX keeps what it has let go of for later.
        mx.clear_cache()
        refuse_beyond(what, needed, torch.device(device))


def check_axes(graph: Graph) -> None:
    """Raises SizeError where a value has an axis that MLX cannot count."""
    for value in (*graph.inputs, *(value for node in graph.nodes for value in node.outputs)):
        if any(size > LONGEST_AXIS for size in value.spec.shape):
            raise SizeError(f"on MLX a tensor {value.spec}")
