"""Inputs of FP8 products that are rounded as they are made: by the norm or the gate that they come from.

Triton's kernels round more than 32 rows to E4M3 before they multiply. Where rows come from an RMS norm, or from
`silu(gate) * up`, one kernel does both, and what lies between is never stored. Nothing else may read it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

from linnet.language.program.core import CoreNode, Graph, TensorSpec, Value
from linnet.runner.rewriting import Rewriter, native
from linnet.runner.torch.compiled.elementwise import rms_norm
from linnet.runner.torch.dtypes import CARRIED
from linnet.runner.torch.kernels import triton
from linnet.runner.torch.kernels.triton.checks import BLOCK, ceil_div
from linnet.runner.torch.kernels.triton.launch import MOST_SMALL_ROWS, NORM_WIDTH

# What the kernels read.
FLOATS = ("bf16", "f16", "f32")


def round_inputs(graph: Graph) -> None:
    """Replace norms and gates that only feed FP8 products of more than 32 rows by kernels that round what they make."""
    pass_ = Rewriter(graph)
    # The rounded rows, and their scales, that stand for a value.
    rounded: dict[Value, tuple[Value, Value]] = {}
    for node in graph.nodes:
        if _is(node, rms_norm) and _norm_fits(node, pass_):
            made = _emit_rounding(pass_, triton.rms_norm_quantise, node.inputs, node, numbers=[2])
            rounded[node.outputs[0]] = made
        elif _is(node, triton.gated) and (node.inputs[0] in rounded or _feeds_products(node, pass_)):
            both = _emit_product(pass_, node, 2, rounded)
            if _feeds_products(node, pass_):
                rounded[node.outputs[0]] = _emit_rounding(pass_, triton.silu_mul_quantise, (both,), node)
            else:
                gate = pass_.emit(native(gate_halves, (both,), (node.outputs[0].spec,), like=node))
                pass_.replace(node.outputs[0], gate.outputs[0])
        elif _is(node, triton.block_linear) and node.inputs[0] in rounded:
            pass_.replace(node.outputs[0], _emit_product(pass_, node, 1, rounded))
        else:
            pass_.emit(node)
    pass_.finish()


def _is(node: CoreNode, function: Callable[..., Any]) -> bool:
    return node.op == "native" and node.attributes["function"] is function


def _norm_fits(norm: CoreNode, graph: Rewriter) -> bool:
    """Whether the kernel takes a norm: its weight is one for each of at most NORM_WIDTH inputs, and eps is a number."""
    x, weight, eps = norm.inputs
    made = graph.producers.get(eps)
    width = x.spec.shape[-1]
    fits = width <= NORM_WIDTH and weight.spec.shape == (width,) and weight.spec.dtype in FLOATS
    return fits and made is not None and made.op == "constant" and _feeds_products(norm, graph)


def _feeds_products(node: CoreNode, graph: Rewriter) -> bool:
    """Whether what a node makes are many rows that block-scaled products alone read."""
    value = node.outputs[0]
    readers = graph.readers.get(value, [])
    products = all(
        (_is(reader, triton.block_linear) or _is(reader, triton.gated)) and reader.inputs.index(value) == 0
        for reader in readers
    )
    spec = value.spec
    many = spec.dtype in FLOATS and _rows(spec) > MOST_SMALL_ROWS
    return bool(readers) and products and many and value not in graph.results


def _rows(spec: TensorSpec) -> int:
    return prod(spec.shape[:-1])


def _emit_rounding(
    graph: Rewriter,
    function: Callable[..., tuple[Tensor, Tensor]],
    inputs: Sequence[Value],
    like: CoreNode,
    numbers: Sequence[int] = (),
) -> tuple[Value, Value]:
    spec = like.outputs[0].spec
    padded, width = ceil_div(_rows(spec), 4) * 4, spec.shape[-1]
    specs = (TensorSpec((padded, width), "u8"), TensorSpec((padded, width // BLOCK), "f32"))
    q, scales = graph.emit(native(function, inputs, specs, numbers=numbers, like=like)).outputs
    return q, scales


def _emit_product(graph: Rewriter, node: CoreNode, times: int, rounded: dict[Value, tuple[Value, Value]]) -> Value:
    """The product that a node begins with, `times` as wide as what the node makes."""
    x, *weights = node.inputs
    spec = node.outputs[0].spec
    whole = TensorSpec((*spec.shape[:-1], times * spec.shape[-1]), spec.dtype)
    if x not in rounded:
        return graph.emit(native(triton.block_linear, node.inputs, (whole,), like=node)).outputs[0]
    constants = (whole.shape, CARRIED[whole.dtype])
    made = native(rounded_product, (*rounded[x], *weights), (whole,), constants=constants, like=node)
    return graph.emit(made).outputs[0]


def rounded_product(
    q: Tensor, q_scale: Tensor, weight: Tensor, scale: Tensor, shape: tuple[int, ...], dtype: torch.dtype
) -> Tensor:
    """Rounded rows (see `kernels.triton.quantise`) by a weight with block scales -> `shape` [.., Out] in `dtype`."""
    return triton.product(q, q_scale, prod(shape[:-1]), weight, scale, dtype).view(shape)


def gate_halves(x: Tensor) -> Tensor:
    """x [.., 2 * Inner], gate before up -> silu(gate) * up."""
    gate, up = x.chunk(2, dim=-1)
    return torch.nn.functional.silu(gate).mul_(up)
