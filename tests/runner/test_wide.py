"""`engine` on a CPU: sums and functions in f64, rounded once, so that their order and library decide nothing."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from graph_support import GraphMaker, execute
from test_kernels import CASES, FLOATS, IDS, TOLERANCE, Case, draw, source

from linnet.language.program.binding import BoundProgram
from linnet.language.program.core import CoreNode, Graph, TensorSpec, Value
from linnet.runner.torch.kernels import equivalent_kernels, policy_of, wide
from linnet.runner.torch.module import load_model
from linnet.runner.wide import widen

CPU = torch.device("cpu")
WIDTH = 1000


def nearest(x: np.ndarray[Any, Any], dtype: torch.dtype) -> torch.Tensor:
    """What f64 is rounded to by way of f32, as the bodies have it."""
    return torch.from_numpy(x).float().to(dtype)


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
def test_sums_and_functions_are_the_nearest_numbers(dtype: str) -> None:
    x = torch.randn(WIDTH, generator=torch.Generator().manual_seed(1)).to(FLOATS[dtype])
    wide = x.double().numpy()
    make = GraphMaker()
    value = make.input((WIDTH,), dtype)
    outputs = [
        make.node("contract", [value, value], (), dtype, spec="i,i->"),
        make.node("reduce", [value], (), dtype, kind="sum", axes=(0,)),
        make.node("cumsum", [value], (WIDTH,), dtype, axis=0),
        *(make.node(name, [value], (WIDTH,), dtype) for name in ("exp", "sin", "cos", "tanh")),
    ]
    graph = make.graph(*outputs)
    widen(graph)
    expected = [wide @ wide, wide.sum(), wide.cumsum(), np.exp(wide), np.sin(wide), np.cos(wide), np.tanh(wide)]
    for found, exact in zip(execute(graph, x), expected, strict=True):
        assert torch.equal(found, nearest(np.asarray(exact), FLOATS[dtype]))


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
def test_roots_and_logarithms_are_the_nearest_numbers(dtype: str) -> None:
    """torch's own square root in f32 is off by a step in one of six numbers."""
    x = torch.rand(WIDTH, generator=torch.Generator().manual_seed(2)).to(FLOATS[dtype]) + 0.5
    wide = x.double().numpy()
    make = GraphMaker()
    value = make.input((WIDTH,), dtype)
    graph = make.graph(*(make.node(name, [value], (WIDTH,), dtype) for name in ("sqrt", "rsqrt", "log")))
    widen(graph)
    expected = [np.sqrt(wide), 1 / np.sqrt(wide), np.log(wide)]
    for found, exact in zip(execute(graph, x), expected, strict=True):
        assert torch.equal(found, nearest(exact, FLOATS[dtype]))


def test_what_no_order_decides_stays_as_it_is() -> None:
    make = GraphMaker()
    x, i = make.input((3, 4), "f32"), make.input((3, 4), "i32")
    make.node("add", [x, x], (3, 4), "f32")
    make.node("div", [x, x], (3, 4), "f32")
    make.node("reduce", [x], (3,), "f32", kind="max", axes=(1,))
    make.node("reduce", [i], (3,), "i32", kind="sum", axes=(1,))
    make.node("contract", [i, i], (3,), "i32", spec="ij,ij->i")
    graph = make.graph(*(node.outputs[0] for node in make.nodes))
    before = [(node.op, node.inputs, node.outputs) for node in graph.nodes]
    widen(graph)
    assert [(node.op, node.inputs, node.outputs) for node in graph.nodes] == before


def test_control_flow_is_widened_and_a_call_is_not() -> None:
    counter, x = Value(TensorSpec((), "i64")), Value(TensorSpec((4,), "f32"))
    total = Value(TensorSpec((4,), "f32"))
    loop = Graph((counter, x), [CoreNode("exp", (x,), (total,))], (total,))
    body = Graph((x,), [CoreNode("exp", (x,), (total,))], (total,))
    make = GraphMaker()
    given = make.input((4,), "f32")
    made = make.node("for", [given], (4,), "f32", loop, start=0, stop=2, carried=1)
    called = make.node("call", [made], (4,), "f32", body, op="a::b", parameters=("x",), generics={})
    widen(make.graph(called))
    assert [node.op for node in loop.nodes] == ["cast", "exp", "cast"]
    assert [node.op for node in body.nodes] == ["exp"]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_ops_compute_what_their_bodies_do(case: Case, dtype: str, bind_source: Callable[..., BoundProgram]) -> None:
    """As near as other kernels are, and the same bits by the interpreter and as compiled code."""
    for seed, sizes in enumerate(case.sizes):
        inputs = draw(case, sizes, FLOATS[dtype], seed)
        bound = bind_source(source(case), **sizes, T=dtype)
        body = load_model(bound, {}, entry="run", numerics="exact")(*inputs)
        walked, compiled = (
            load_model(bound, {}, entry="run", numerics="engine", compile=mode)(*inputs) for mode in (False, True)
        )
        assert torch.equal(walked, compiled)
        assert (walked.dtype, walked.shape) == (body.dtype, body.shape)
        tolerance = TOLERANCE[dtype if body.dtype == FLOATS[dtype] or case.module == "nn.loss" else "f32"]
        distance = (walked.double() - body.double()).abs().max()
        assert distance <= tolerance * max(1.0, body.abs().max().item()), sizes


SOURCE = """
module order

use std.nn.linear::{linear}

block Order<N: Dim, T: Float> {
    pub entry run(x: Tensor[5, N; T], weight: Tensor[700, N; T], bias: Tensor[700; T]) -> Tensor[5, 700; T] {
        return linear(x, weight, some(bias))
    }
}
"""


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_the_order_of_a_product_decides_nothing(dtype: str, bind_source: Callable[..., BoundProgram]) -> None:
    generator = torch.Generator().manual_seed(3)
    x, weight, bias = (
        torch.randn(s, generator=generator).to(FLOATS[dtype]) for s in ((5, WIDTH), (700, WIDTH), (700,))
    )
    order = torch.randperm(WIDTH, generator=generator)
    bound = bind_source(SOURCE, N=WIDTH, T=dtype)
    model = load_model(bound, {}, numerics="engine")
    found = model.run_entry("run", [x, weight, bias])
    assert torch.equal(found, model.run_entry("run", [x[:, order], weight[:, order], bias]))
    exact = x.double() @ weight.double().mT
    assert torch.equal(found, (exact.float() + bias.float()).to(FLOATS[dtype]))
    if dtype == "f32":
        # In bf16 few sums of the thousands lie so near to a tie that an order could decide them.
        other = load_model(bound, {}, numerics="equivalent")
        assert not torch.equal(other.run_entry("run", [x, weight, bias]), found)


ROUNDED = """
module rounded

block Rounded<N: Dim, T: Float> {
    pub entry run(x: Tensor[N; T], y: Tensor[N; T]) -> Tensor[N; T] {
        return cast<T>(exp(cast<f32>((x + y) * y)))
    }
}
"""


# What torch's own compiler imports.
@pytest.mark.filterwarnings("ignore:.*script_method:DeprecationWarning")
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch's compiler needs a C++ compiler")
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_torch_compile_rounds_where_the_program_does(dtype: str, bind_source: Callable[..., BoundProgram]) -> None:
    generator = torch.Generator().manual_seed(4)
    inputs = [torch.randn(WIDTH, generator=generator).to(FLOATS[dtype]) for _ in range(2)]
    bound = bind_source(ROUNDED, N=WIDTH, T=dtype)
    walked, compiled = (load_model(bound, {}, numerics="engine", compile=mode) for mode in (False, "inductor"))
    assert torch.equal(walked.run_entry("run", inputs), compiled.run_entry("run", inputs))


ATTENTION = [case for case in CASES if case.name in ("attention", "grouped_attention_rows", "sink_attention")]


@pytest.mark.parametrize("case", ATTENTION, ids=[case.call for case in ATTENTION])
def test_attention_in_pieces(
    case: Case, bind_source: Callable[..., BoundProgram], monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = case.sizes[-1]
    inputs = draw(case, sizes, torch.float32, 5)
    model = load_model(bind_source(source(case), **sizes, T="f32"), {}, entry="run", numerics="engine")
    whole = model(*inputs)
    monkeypatch.setattr(wide, "SCORES", 2 * sizes["B"] * inputs[0].shape[1] * sizes["K"])
    assert (sizes["Q"], wide.rows_at_once(*inputs[:2])) == (5, 2)
    assert torch.equal(model(*inputs), whole)


PREFIX = """
module prefix

use std.nn.attention::{grouped_attention}

block Prefix<Q: Dim, K: Dim> {
    pub entry run(q: Tensor[2, 4, Q, 8; f32], k: Tensor[2, 2, K, 8; f32], pos: i32) -> Tensor[2, 4, Q, 8; f32] {
        let queries = pos + iota<i32>(Q)
        let keys = iota<i32>(K)
        let seen[i, j] = keys[j] <= queries[i]
        return grouped_attention(q, k, k, 0.5, some(seen))
    }
}
"""


@pytest.mark.parametrize("position", [-3, -1, 0, 2, 9])
def test_a_prefix_in_pieces(
    position: int, bind_source: Callable[..., BoundProgram], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From before the first key, where a query sees none and averages all, to behind the last."""
    generator = torch.Generator().manual_seed(6)
    inputs = [torch.randn(2, heads, length, 8, generator=generator) for heads, length in ((4, 7), (2, 9))]
    bound = bind_source(PREFIX, Q=7, K=9)
    walked, compiled = (load_model(bound, {}, entry="run", numerics="engine", compile=mode) for mode in (False, True))
    whole = walked(*inputs, position)
    assert torch.equal(compiled(*inputs, position), whole)
    monkeypatch.setattr(wide, "SCORES", 3 * 2 * 4 * 9)
    assert wide.rows_at_once(*inputs) == 3
    for model in (walked, compiled):
        assert torch.equal(model(*inputs, position), whole)


def test_a_gpu_keeps_its_kernels() -> None:
    """There f64 is slow or absent: sums are in f32, as everywhere but under `engine`."""
    there, here = (policy_of("engine", torch.device(kind)) for kind in ("cuda", "cpu"))
    assert (there.wide, here.wide) == (False, True)
    assert set(there.kernels) == set(equivalent_kernels())
    assert not {"std.nn.norm::rms_norm", "std.nn.loss::cross_entropy"} & set(here.kernels)
    assert all(not policy_of(name, CPU).wide for name in ("exact", "equivalent", "fast"))
