"""Embeddings of a graph that is being compiled, whose weights are kept in blocks for the model's last product.

Where both are one weight, a row of the embedding is a column of a block. Reading it there leaves the checkpoint's file
alone, whose pages were given back when the blocks were made: no step waits for a disk.
"""

from __future__ import annotations

from typing import Protocol

from linnet.language.program.core import CoreNode, Graph, TensorSpec, Value
from linnet.runner.linears import LinearWeight
from linnet.runner.rewriting import Rewriter, is_call, named, native, replace_nodes
from linnet.runner.torch.compiled.blocked import take_rows


class Blocks(Protocol):
    def blocked_alone(self, path: str) -> LinearWeight | None:
        """The linear layer that the weight at `path` is kept in blocks for, where it is the only one in them."""
        ...


def read_blocks(graph: Graph, blocks: Blocks) -> None:
    """Replace embeddings by columns of blocks where those hold their tables."""
    replace_nodes(graph, lambda node, pass_: _columns(node, pass_, blocks))


def _columns(node: CoreNode, graph: Rewriter, blocks: Blocks) -> CoreNode | None:
    if not is_call(node, "std.nn.embedding::embedding"):
        return None
    inputs = named(node)
    producer = graph.producers.get(inputs["table"])
    weight = blocks.blocked_alone(producer.attributes["path"]) if producer and producer.op == "param" else None
    if weight is None or not node.outputs[0].spec.size:
        return None
    packed = graph.emit(
        CoreNode("packed", (), tuple(Value(TensorSpec((), weight.dtype)) for _ in range(3)), {"weight": weight})
    )
    values = (inputs["ids"], packed.outputs[0])
    made = native(take_rows, values, (node.outputs[0].spec,), constants=(weight.width, bool(weight.biases)), like=node)
    bound = (0, inputs["table"].spec.shape[0], "table", 1, node.attributes["op"])
    made.attributes = {**made.attributes, "bounds": (bound,)}
    return made
