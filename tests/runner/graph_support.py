"""Small hand-made graphs, and running them."""

from __future__ import annotations

from typing import Any

import torch

from linnet.language.program.core import CoreNode, Graph, TensorSpec, Value
from linnet.runner.torch.dtypes import CARRIED, WIDTH, integer_range, to_carried, to_native
from linnet.runner.torch.interpreter import Frame, Preparation

CPU = torch.device("cpu")
INTEGERS = [name for name in CARRIED if name[0] in "iu"]
FLOATS = ["f16", "bf16", "f32", "f64"]


class GraphMaker:
    """Builds a graph node by node: `make.input`, `make.node`, then `make.graph(outputs)`."""

    def __init__(self) -> None:
        self.inputs: list[Value] = []
        self.nodes: list[CoreNode] = []

    def input(self, shape: tuple[int, ...], dtype: str) -> Value:
        self.inputs.append(Value(TensorSpec(shape, dtype)))
        return self.inputs[-1]

    def node(
        self, op: str, inputs: list[Value], shape: tuple[int, ...], dtype: str, /, *regions: Graph, **attributes: Any
    ) -> Value:
        (value,) = self.nodes_of(op, inputs, [(shape, dtype)], *regions, **attributes)
        return value

    def nodes_of(
        self,
        op: str,
        inputs: list[Value],
        results: list[tuple[tuple[int, ...], str]],
        /,
        *regions: Graph,
        **attributes: Any,
    ) -> tuple[Value, ...]:
        outputs = tuple(Value(TensorSpec(shape, dtype)) for shape, dtype in results)
        self.nodes.append(CoreNode(op, tuple(inputs), outputs, attributes, tuple(regions)))
        return outputs

    def graph(self, *outputs: Value) -> Graph:
        return Graph(tuple(self.inputs), self.nodes, outputs)


def execute(graph: Graph, *inputs: torch.Tensor, frame: Frame | None = None) -> tuple[torch.Tensor, ...]:
    """Run a graph on native tensors by the bodies of its ops, every value compared with its spec."""
    prepared = Preparation(inputs[0].device if inputs else CPU, verify=True).graph(graph)
    carried = [to_carried(x, v.spec.dtype) for x, v in zip(inputs, graph.inputs, strict=True)]
    outputs = prepared.run(frame or Frame({}), carried)
    return tuple(to_native(x, v.spec.dtype) for x, v in zip(outputs, graph.outputs, strict=True))


def primitive(
    op: str, inputs: list[torch.Tensor], dtypes: list[str], shape: tuple[int, ...], dtype: str, **attributes: Any
) -> torch.Tensor:
    """One primitive on native tensors, by itself."""
    make = GraphMaker()
    values = [make.input(tuple(x.shape), d) for x, d in zip(inputs, dtypes, strict=True)]
    return execute(make.graph(make.node(op, values, shape, dtype, **attributes)), *inputs)[0]


def wrapped(value: int, dtype: str) -> int:
    """`value` modulo 2^width, in the dtype's range."""
    least, _ = integer_range(dtype)
    return (value - least) % 2 ** WIDTH[dtype] + least


def integer_tensor(values: list[int], dtype: str) -> torch.Tensor:
    """A native tensor of any integer dtype."""
    return to_native(torch.tensor([wrapped(v, "i64") for v in values]).to(CARRIED[dtype]), dtype)


def integers(x: torch.Tensor, dtype: str) -> list[int]:
    """The values of a native tensor of any integer dtype."""
    return [wrapped(int(v), dtype) for v in to_carried(x, dtype).reshape(-1).tolist()]
