"""Values inside an entry on torch: run once from empty states, by the interpreter and the model's kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from linnet.language.program.core import Graph, Value
from linnet.runner.torch.inputs import convert_inputs
from linnet.runner.torch.interpreter import Frame, Preparation
from linnet.runner.torch.kernels import policy_of
from linnet.runner.torch.module import Model
from linnet.runner.torch.precision import full_precision


def tapped(model: Model, name: str, inputs: Sequence[Any], choose: Callable[[Graph], Sequence[Value]]) -> list[Tensor]:
    """The values that `choose` names of an entry's graph, on the CPU. Raises what `run_entry` does."""
    taken = convert_inputs(model._functions[name], inputs, model._bound.generics, model.device)
    entry = model._bound.lower(name, model._bound.infer(name, taken.specs), model._present, taken.given)
    graph = Graph(entry.graph.inputs, entry.graph.nodes, tuple(choose(entry.graph)))
    policy = policy_of(model.numerics, model.device)
    with torch.no_grad(), full_precision():
        prepared = Preparation(model.device, policy.kernels).graph(policy.rewritten(graph))
        results = prepared.run(Frame(model._current()), taken.tensors)
    return [x.cpu() for x in results]
