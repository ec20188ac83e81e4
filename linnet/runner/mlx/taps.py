"""Values inside an entry on MLX: run once from empty states, node by node, by the model's kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx
from torch import Tensor

from linnet.language.program.core import Graph, Value
from linnet.runner.mlx.dtypes import from_torch, to_torch
from linnet.runner.mlx.interpreter import Frame, Preparation
from linnet.runner.mlx.module import HOST, Model
from linnet.runner.torch.inputs import convert_inputs


def tapped(model: Model, name: str, inputs: Sequence[Any], choose: Callable[[Graph], Sequence[Value]]) -> list[Tensor]:
    """The values that `choose` names of an entry's graph, as torch tensors. Raises what `run_entry` does."""
    taken = convert_inputs(model._functions[name], inputs, model._bound.generics, HOST)
    entry = model._bound.lower(name, model._bound.infer(name, taken.specs), model._present, taken.given)
    graph = model._rewritten(Graph(entry.graph.inputs, entry.graph.nodes, tuple(choose(entry.graph))))
    arrays = [from_torch(x, item.spec.dtype) for x, item in zip(taken.tensors, entry.inputs, strict=True)]
    with mx.stream(model.device):
        frame = Frame(model._weights)
        results = Preparation(model._preparation.kernels, compiled=False).graph(graph).run(frame, arrays)
        frame.settle()
        mx.eval(results)
    return [to_torch(x) for x in results]
