"""What an entry's graph is turned into before MLX runs it, except under `exact`.

Bodies of ops that have no kernel stand in their calls' places, linear layers that read one value are one product, and
attention reads what its mask lets through.
"""

from __future__ import annotations

from collections.abc import Mapping

from linnet.language.program.core import CoreNode, Graph, TensorSpec, Value
from linnet.language.program.inline import inline_calls
from linnet.language.program.passes import simplify
from linnet.runner.affine import Indices
from linnet.runner.linears import LinearWeight, linear_groups, side_by_side
from linnet.runner.mlx.dtypes import NAMES
from linnet.runner.mlx.joined import JoinedWeights
from linnet.runner.mlx.kernels import Kernel
from linnet.runner.mlx.kernels.attention import OPS, attend_prefix, attend_prefix_in_dtype
from linnet.runner.mlx.kernels.dense import rotate, wide_halves
from linnet.runner.mlx.kernels.quant import decoded_linear
from linnet.runner.mlx.kernels.wide import attend_prefix as attend_prefix_wide
from linnet.runner.plan import fixed_nodes
from linnet.runner.rewriting import Rewriter, is_call, named, native, replace_nodes
from linnet.runner.wide import widen

# Calls whose bodies hold products to join.
OPENED = frozenset(("std.nn.mlp::swiglu",))
PREFIXES = {"fast": attend_prefix_in_dtype, "wide": attend_prefix_wide}
ROTATIONS = ("std.nn.rope::rope", "std.nn.rope::rope_rows")


def rewrite(graph: Graph, kernels: Mapping[str, Kernel], weights: JoinedWeights, policy: str) -> Graph:
    """A graph that computes what `graph` does under a policy, whose kernels these are; `graph` is left as it is."""

    def keep(node: CoreNode) -> bool:
        identity = node.attributes["op"]
        kernel = kernels.get(identity)
        return kernel is not None and identity not in OPENED and kernel.fits(node)

    made = inline_calls(graph, keep)
    _rewrite(made, kernels, weights, policy)
    if policy == "wide":
        widen(made)
    return made


def _rewrite(graph: Graph, kernels: Mapping[str, Kernel], weights: JoinedWeights, policy: str) -> None:
    for node in graph.nodes:
        for region in node.regions if node.op != "call" else ():
            _rewrite(region, kernels, weights, policy)
    _join_linears(graph, kernels, weights)
    _replace_calls(graph, kernels, policy)
    simplify(graph)


def _join_linears(graph: Graph, kernels: Mapping[str, Kernel], weights: JoinedWeights) -> None:
    """Make linear layers that read the same value one, and have FP8 layers read decoded weights."""
    pass_ = Rewriter(graph)
    firsts: dict[CoreNode, tuple[list[CoreNode], LinearWeight]] = {}
    gone: set[CoreNode] = set()
    for nodes, parts in linear_groups(graph, pass_):
        if not all((kernel := kernels.get(n.attributes["op"])) is not None and kernel.fits(n) for n in nodes):
            continue
        joined = side_by_side(parts)
        if len(nodes) > 1 and weights.join(joined):
            firsts[nodes[0]] = (nodes, joined)
            gone.update(nodes[1:])
        elif joined.kind != "plain":
            firsts.update((node, ([node], part)) for node, part in zip(nodes, parts, strict=True))
    for node in graph.nodes:
        if node in firsts:
            _emit_product(pass_, *firsts[node], weights)
        elif node not in gone:
            pass_.emit(node)
    pass_.finish()


def _emit_product(graph: Rewriter, nodes: list[CoreNode], joined: LinearWeight, weights: JoinedWeights) -> None:
    """One product in the place of several. A kernel takes it: the body that it carries is that of the first."""
    first = nodes[0]
    decoded = weights.decode(joined)
    if decoded is None and len(nodes) == 1:
        graph.emit(first)
        return
    inputs = {"x": first.inputs[0]}
    for name, paths in (("weight", joined.weights), ("scale", joined.scales), ("bias", joined.biases)):
        if paths:
            specs = [named(node)[name].spec for node in nodes]
            spec = TensorSpec((sum(s.shape[0] for s in specs), *specs[0].shape[1:]), specs[0].dtype)
            path = JoinedWeights.name(paths)
            inputs[name] = graph.emit(CoreNode("param", (), (Value(spec),), {"path": path})).outputs[0]
    spec = first.outputs[0].spec
    whole = Value(TensorSpec((*spec.shape[:-1], sum(joined.sizes)), spec.dtype))
    attributes = {**first.attributes, "parameters": tuple(inputs)}
    call = CoreNode("call", tuple(inputs.values()), (whole,), attributes, first.regions, first.span)
    if decoded is not None:
        spec = TensorSpec(inputs["weight"].spec.shape, NAMES[weights.weights[decoded].dtype])
        weight = graph.emit(CoreNode("param", (), (Value(spec),), {"path": decoded})).outputs[0]
        bias = (inputs["bias"],) if "bias" in inputs else ()
        call = native(decoded_linear, (inputs["x"], weight, *bias), (whole.spec,), like=first)
        whole = call.outputs[0]
    graph.emit(call)
    if len(nodes) == 1:
        graph.replace(first.outputs[0], whole)
        return
    start = 0
    for node, size in zip(nodes, joined.sizes, strict=True):
        shape = node.outputs[0].spec.shape
        bounds = {
            "starts": (*[0] * (len(shape) - 1), start),
            "stops": (*shape[:-1], start + size),
            "steps": (1,) * len(shape),
        }
        part = Value(node.outputs[0].spec, node.outputs[0].name)
        graph.emit(CoreNode("slice", (whole,), (part,), bounds, span=node.span))
        graph.replace(node.outputs[0], part)
        start += size


def _replace_calls(graph: Graph, kernels: Mapping[str, Kernel], policy: str) -> None:
    """Attention by a mask that lets each query see a prefix of the keys reads no more; rotary tables are widened once
    for all that they turn."""
    indices = Indices(graph)
    fixed = {value for node in fixed_nodes(graph) for value in node.outputs}

    def replacement(node: CoreNode, pass_: Rewriter) -> CoreNode | None:
        kernel = kernels.get(node.attributes["op"]) if node.op == "call" else None
        if kernel is None or not kernel.fits(node):
            return None
        if is_call(node, *OPS) and (policy != "fast" or named(node)["scale"] in fixed):
            return _attention(node, indices, policy)
        if is_call(node, *ROTATIONS) and node.outputs[0].spec.size:
            return _rotation(node, pass_)
        return None

    replace_nodes(graph, replacement)


def _attention(node: CoreNode, indices: Indices, policy: str) -> CoreNode | None:
    inputs = named(node)
    mask = inputs.get("mask")
    prefix = indices.prefix(mask) if mask is not None else None
    # Whether a query that sees nothing is among them is only known where the least position is.
    if prefix is None or prefix.constant < 0 or not inputs["query"].spec.size or not inputs["key"].spec.size:
        return None
    values = [inputs[name] for name in ("query", "key", "value", "scale")]
    symbols = [prefix.symbol] if prefix.symbol is not None else []
    function = PREFIXES.get(policy, attend_prefix)
    return native(function, (*values, *symbols), (node.outputs[0].spec,), constants=(prefix.constant,), like=node)


def _rotation(node: CoreNode, graph: Rewriter) -> CoreNode:
    inputs = named(node)
    tables = (inputs["cos_table"], inputs["sin_table"])
    shape = tables[0].spec.shape
    half = TensorSpec((*shape[:-1], shape[-1] // 2), "f32")
    wide = graph.emit(native(wide_halves, tables, (half,) * 4, like=node))
    rows = len(shape) == 3
    return native(rotate, (inputs["x"], *wide.outputs), (node.outputs[0].spec,), constants=(rows,), like=node)
