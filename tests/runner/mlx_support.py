"""Running a graph on MLX as `graph_support.execute` runs it on torch."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from linnet.language.program.core import Graph
from linnet.runner.mlx.dtypes import from_torch, to_torch
from linnet.runner.mlx.interpreter import Frame, Preparation
from linnet.runner.mlx.kernels import Kernel


def execute_on_mlx(
    graph: Graph,
    *inputs: torch.Tensor,
    kernels: Mapping[str, Kernel] | None = None,
    compiled: bool = False,
    frame: Frame | None = None,
) -> tuple[torch.Tensor, ...]:
    """Run a graph on native tensors, every value compared with its spec; what must hold of values is settled."""
    frame = frame or Frame({})
    arrays = [from_torch(x, v.spec.dtype) for x, v in zip(inputs, graph.inputs, strict=True)]
    outputs = Preparation(kernels, compiled=compiled, verify=True).graph(graph).run(frame, arrays)
    frame.settle()
    return tuple(to_torch(x) for x in outputs)
