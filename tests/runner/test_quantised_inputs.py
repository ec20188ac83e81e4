"""Which norms and gates round what they make. test_triton_model.py runs the result on the kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from linnet.language.program.core import CoreNode, Graph, TensorSpec, Value
from linnet.runner.rewriting import native
from linnet.runner.torch.compiled.elementwise import rms_norm
from linnet.runner.torch.compiled.quantised_inputs import gate_halves, round_inputs, rounded_product
from linnet.runner.torch.kernels import triton


class Builder:
    """A graph of one norm of `x` [1, rows, 256], and what the test makes of it."""

    def __init__(self, rows: int = 33, dtype: str = "bf16", eps: str = "constant") -> None:
        self.nodes: list[CoreNode] = []
        self.x = Value(TensorSpec((1, rows, 256), dtype))
        self.weight = self.add(CoreNode("param", (), (Value(TensorSpec((256,), dtype)),), {"path": "norm"}))
        self.eps = self.add(CoreNode(eps, (), (Value(TensorSpec((), "f32")),), {"value": 1e-6, "path": "eps"}))
        self.norm = self.call(rms_norm, (self.x, self.weight, self.eps), 256)

    def add(self, node: CoreNode) -> Value:
        self.nodes.append(node)
        return node.outputs[0]

    def call(self, function: Callable[..., Any], inputs: tuple[Value, ...], width: int) -> Value:
        spec = self.x.spec
        return self.add(native(function, inputs, (TensorSpec((*spec.shape[:-1], width), spec.dtype),)))

    def product(self, function: Callable[..., Any], x: Value, width: int) -> Value:
        weights = tuple(self.add(CoreNode("packed", (), (Value(TensorSpec((), "bf16")),))) for _ in range(2))
        return self.call(function, (x, *weights), width)

    def functions(self, *outputs: Value) -> list[Callable[..., Any]]:
        """What the graph calls once its inputs are rounded."""
        graph = Graph((self.x,), self.nodes, outputs)
        specs = [value.spec for value in graph.outputs]
        round_inputs(graph)
        assert [value.spec for value in graph.outputs] == specs
        made = {*graph.inputs, *(value for node in graph.nodes for value in node.outputs)}
        assert made >= {value for node in graph.nodes for value in node.inputs} | set(graph.outputs)
        return [node.attributes["function"] for node in graph.nodes if node.op == "native"]


def test_a_norm_and_a_gate_round_for_the_products_that_read_them() -> None:
    build = Builder()
    qkv = build.product(triton.block_linear, build.norm, 512)
    gate = build.product(triton.gated, build.norm, 384)
    down = build.product(triton.block_linear, gate, 256)
    wanted = [triton.rms_norm_quantise, *[rounded_product] * 2, triton.silu_mul_quantise, rounded_product]
    assert build.functions(qkv, down) == wanted


def test_a_gate_alone() -> None:
    build = Builder()
    gate = build.product(triton.gated, build.x, 384)
    down = build.product(triton.block_linear, gate, 256)
    assert build.functions(down, build.norm) == [
        rms_norm, triton.block_linear, triton.silu_mul_quantise, rounded_product,
    ]  # fmt: skip


def test_a_gate_that_something_else_reads_is_stored() -> None:
    build = Builder()
    gate = build.product(triton.gated, build.norm, 384)
    down = build.product(triton.block_linear, gate, 256)
    wanted = [triton.rms_norm_quantise, rounded_product, gate_halves, triton.block_linear]
    assert build.functions(gate, down) == wanted


@pytest.mark.parametrize("options", [{"rows": 32}, {"dtype": "f64"}, {"eps": "param"}], ids=str)
def test_norms_that_the_kernel_does_not_take(options: dict[str, Any]) -> None:
    build = Builder(**options)
    assert build.functions(build.product(triton.block_linear, build.norm, 512)) == [rms_norm, triton.block_linear]


def test_a_norm_that_something_else_reads_is_stored() -> None:
    build = Builder()
    out = build.product(triton.block_linear, build.norm, 512)
    other = build.product(triton.row_linear, build.norm, 512)
    assert build.functions(out, other) == [rms_norm, triton.block_linear, triton.row_linear]
    build = Builder()
    out = build.product(triton.block_linear, build.norm, 512)
    assert build.functions(out, build.norm) == [rms_norm, triton.block_linear]


def test_halves_of_a_gate() -> None:
    x = torch.randn(3, 8)
    kept = x.clone()
    assert torch.equal(gate_halves(x), torch.nn.functional.silu(x[:, :4]) * x[:, 4:])
    assert torch.equal(x, kept)
