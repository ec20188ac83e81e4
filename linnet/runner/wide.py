"""Sums and functions in f64, rounded once to their own dtype: `engine` on a CPU, where two engines then agree.

An f32 sum in another order, or a function of another library, is another number in its last bit. In bf16 some of those
decide which of two neighbours a result is rounded to, and a few layers later two engines have nothing in common but
the weights. In f64 both are so near to the exact number that they round alike, but for one in hundreds of millions.
"""

from __future__ import annotations

from linnet.language.program.core import CoreNode, Graph, TensorSpec, Value
from linnet.runner.rewriting import Rewriter, replace_nodes

# The square root too: what torch's vector code gives in f32 is not always the nearest number.
FUNCTIONS = frozenset(("exp", "log", "sqrt", "rsqrt", "sin", "cos", "tanh"))
NARROW = ("f16", "bf16", "f32")


def widen(graph: Graph) -> None:
    """Have the sums, products and functions of a graph taken in f64, those of control flow too; calls stay."""
    for node in graph.nodes:
        for region in node.regions if node.op != "call" else ():
            widen(region)
    wide: dict[Value, Value] = {}
    replace_nodes(graph, lambda node, pass_: _widened(node, pass_, wide) if _depends(node) else None)


def _depends(node: CoreNode) -> bool:
    """Whether the last bits of what a node gives depend on who computes it."""
    if not node.outputs or node.outputs[0].spec.dtype not in NARROW:
        return False
    if node.op == "reduce":
        return node.attributes["kind"] in ("sum", "prod")
    return node.op in ("contract", "cumsum") or node.op in FUNCTIONS


def _widened(node: CoreNode, graph: Rewriter, wide: dict[Value, Value]) -> CoreNode:
    """A cast of what the node gives in f64, which is emitted; `wide` has what was cast to f64 before."""
    for value in node.inputs:
        if value not in wide:
            cast = CoreNode("cast", (value,), (Value(TensorSpec(value.spec.shape, "f64"), value.name),), span=node.span)
            wide[value] = graph.emit(cast).outputs[0]
    result = node.outputs[0]
    inner = (Value(TensorSpec(result.spec.shape, "f64"), result.name),)
    inputs = tuple(wide[value] for value in node.inputs)
    # An engine may take f64 as exactly only as the result will have it.
    attributes = {**node.attributes, "narrow": result.spec.dtype}
    made = graph.emit(CoreNode(node.op, inputs, inner, attributes, node.regions, node.span))
    return CoreNode("cast", made.outputs, (Value(result.spec, result.name),), span=node.span)
