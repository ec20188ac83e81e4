"""Linear layers of a graph that is being compiled: those that read one input become one product."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from torch import Tensor

from linnet.language.program.core import CoreNode, Graph, TensorSpec, Value
from linnet.runner.linears import LinearWeight, linear_groups, side_by_side
from linnet.runner.rewriting import Rewriter, native
from linnet.runner.torch.compiled.elementwise import gated


class Layout(Protocol):
    """How a device holds linear layers: which function multiplies rows by a weight, and how many tensors it takes."""

    def claim(self, weight: LinearWeight) -> bool:
        """Whether these layers may be kept side by side: not where a weight is already kept otherwise."""
        ...

    def linear(self, weight: LinearWeight, rows: int) -> tuple[Callable[..., Tensor], int]: ...

    def gate(self, weight: LinearWeight) -> Callable[..., Tensor] | None:
        """What multiplies by a gate's and up's weights side by side and joins the halves; None for none."""
        ...


def join_linears(graph: Graph, layout: Layout) -> None:
    """Replace linear layers by products in the layout's form, one for those that read the same value."""
    pass_ = Rewriter(graph)
    groups = linear_groups(graph, pass_)
    group_of = {node: group for group in groups for node in group[0]}
    for node in graph.nodes:
        group = group_of.get(node)
        if group is None:
            pass_.emit(node)
        elif node is group[0][0]:
            _emit_product(pass_, *group, layout)
    pass_.finish()


def _emit_product(graph: Rewriter, group: Sequence[CoreNode], parts: Sequence[LinearWeight], layout: Layout) -> None:
    joined = side_by_side(parts)
    if len(group) > 1 and not layout.claim(joined):
        for node, part in zip(group, parts, strict=True):
            _emit_product(graph, [node], [part], layout)
        return
    x = group[0].inputs[0]
    function, count = layout.linear(joined, x.spec.size // joined.width)
    packed = graph.emit(
        CoreNode("packed", (), tuple(Value(TensorSpec((), joined.dtype)) for _ in range(count)), {"weight": joined})
    )
    spec = group[0].outputs[0].spec
    whole = TensorSpec((*spec.shape[:-1], sum(joined.sizes)), spec.dtype)
    product = graph.emit(native(function, (x, *packed.outputs), (whole,), like=group[0]))
    product.attributes = {**product.attributes, "weight": joined}
    if len(group) == 1:
        graph.replace(group[0].outputs[0], product.outputs[0])
        return
    specs = [node.outputs[0].spec for node in group]
    split = graph.emit(native(split_columns, product.outputs, specs, constants=(joined.sizes,), like=group[0]))
    for node, columns in zip(group, split.outputs, strict=True):
        graph.replace(node.outputs[0], columns)


def split_columns(x: Tensor, sizes: tuple[int, ...]) -> Sequence[Tensor]:
    """x [.., sum(sizes)] -> views [.., size] of its columns."""
    return x.split_with_sizes(sizes, dim=-1)


def fuse_gates(graph: Graph, layout: Layout) -> None:
    """Make `silu(gate) * up` one with the product that both come from, where the layout can."""
    pass_ = Rewriter(graph)
    found: dict[CoreNode, tuple[Callable[..., Tensor], CoreNode]] = {}
    for node in graph.nodes:
        if node.op != "native" or node.attributes["function"] is not gated:
            continue
        split = pass_.producers.get(node.inputs[0])
        if split is None or split.outputs != node.inputs or not all(pass_.only_reader(v) is node for v in node.inputs):
            continue
        product = pass_.producers[split.inputs[0]]
        weight: LinearWeight = product.attributes["weight"]
        function = layout.gate(weight) if len(set(weight.sizes)) == 1 else None
        if function is not None:
            found[node] = (function, product)
    gone = {product for _, product in found.values()}
    gone |= {pass_.producers[node.inputs[0]] for node in found}
    for node in graph.nodes:
        if node in found:
            function, product = found[node]
            fused = pass_.emit(native(function, product.inputs, (node.outputs[0].spec,), like=node))
            pass_.replace(node.outputs[0], fused.outputs[0])
        elif node not in gone:
            pass_.emit(node)
    pass_.finish()
