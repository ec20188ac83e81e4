"""Models on MLX: every entry of the seed package, and the tiny packages with their trained weights, against torch."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("mlx.core", reason="MLX is not installed")

import mlx.core as mx
from graph_support import GraphMaker, execute
from mlx_support import execute_on_mlx
from test_seed_entries import ENTRIES, SMALL, TABLE, draw, ends, ids, packed, slots_of

from linnet import nest
from linnet.language.program.binding import BoundProgram, bind
from linnet.language.program.checked import Program
from linnet.runner.errors import (
    ContextError,
    IndexRangeError,
    InputError,
    ModeError,
    NonFiniteError,
    UnknownEntryError,
    WeightsError,
)
from linnet.runner.mlx.dtypes import from_torch, to_torch
from linnet.runner.mlx.interpreter import Frame, walked_because
from linnet.runner.mlx.kernels.attention import attention
from linnet.runner.mlx.kernels.dense import rope
from linnet.runner.mlx.module import Model, load_model
from linnet.runner.torch import module as reference
from linnet.runner.torch.kernels.attention import attend
from linnet.runner.torch.kernels.engine import rope as torch_rope
from linnet.runner.torch.weights import random_weights

POLICIES = ("exact", "equivalent", "engine", "fast")
PACKAGES = ("qwen3-tiny", "qwen3-tiny-fp8")
Build = Callable[..., BoundProgram]
PROMPT = "Call me Ishmael. Some years ago"


@pytest.fixture(scope="module")
def small(seed_program: Program) -> Callable[[int], tuple[BoundProgram, dict[str, torch.Tensor]]]:
    """The seed at small generics for so many rows, with weights whose tokens differ clearly."""

    def build(batch: int) -> tuple[BoundProgram, dict[str, torch.Tensor]]:
        bound = bind(seed_program, "Model", {**SMALL, "Batch": batch})
        weights = random_weights(bound.manifest, 1)
        weights["embedding.weight"] = weights["embedding.weight"] * 20
        return bound, weights

    return build


def calls(name: str) -> tuple[int, list[tuple[str, Any, dict[str, int]]]]:
    """The rows that an entry is run with, and the calls that come to it: inputs and generics of each."""
    tokens = draw(2, 16)
    prompts = [tokens[0, :7], tokens[1, :4]]
    pack = packed(prompts)
    rows, targets = pack["segments"], draw(11).long()
    packs = [pack["tokens"], pack["positions"], pack["segments"]]
    paged = [pack["tokens"], pack["positions"], rows, slots_of(rows, pack["positions"]), ends(prompts), TABLE]
    first = ("prefill", [tokens[:, :6], 0], {})
    token = tokens[:, 6:7]
    found: dict[str, list[tuple[str, Any, dict[str, int]]]] = {
        "forward": [(name, [tokens], {})],
        "next_token": [(name, [tokens], {})],
        "prefill": [first, (name, [tokens[:, 6:9], 6], {})],
        "decode": [first, (name, [token, 6], {}), (name, [token, 7], {})],
        "decode_rows": [first, (name, [token, ids(6, 3)], {})],
        "prefill_slots": [(name, [tokens[:, :8], ids(1, 0), ids(6, 3)], {}), ("decode_rows", [token, ids(4, 7)], {})],
        "loss_packed": [(name, [*packs, targets, torch.linspace(0, 1, 11)], {})],
        "log_probs_packed": [(name, [*packs, targets], {})],
        "hidden_packed": [(name, packs, {})],
        "prefill_packed": [(name, [pack["tokens"], 1 - rows, pack["positions"], rows, ends(prompts)], {})],
        "step_packed": [
            first,
            (
                name,
                [prompts[0], torch.ones_like(rows[:7]), pack["positions"][:7], rows[:7], ids(6, 6), token, ids(6, 31)],
                {},
            ),
        ],
        "prefill_paged": [("prefill_paged", paged, {})],
        "decode_paged": [("prefill_paged", paged, {}), (name, [token, ids(7, 4), TABLE], {})],
        "step_paged": [("prefill_paged", paged, {}), (name, [*paged[:5], token, ids(7, 11), TABLE], {})],
        "generate": [first, (name, [token, 6], {"Steps": 6})],
        "sample": [first, (name, [token, 6, [0, 42], 1.0], {"Steps": 6})],
        "generate_until": [first, (name, [token, 6, -1], {"MaxNew": 5})],
    }
    return (1 if "paged" in name else 2), found[name]


def close(found: Any, expected: Any) -> None:
    """Within 1e-4 of the largest magnitude; integers are equal."""
    if isinstance(expected, tuple):
        for one, other in zip(found, expected, strict=True):
            close(one, other)
        return
    made = to_torch(found)
    assert made.dtype == expected.dtype
    assert made.shape == expected.shape
    if not expected.is_floating_point():
        assert torch.equal(made, expected)
    else:
        assert (made - expected).abs().max() <= 1e-4 * expected.abs().max()


@pytest.mark.parametrize("name", ENTRIES.split())
def test_every_entry_of_the_seed_equals_torchs_exact(name: str, small: Any) -> None:
    batch, steps = calls(name)
    bound, weights = small(batch)
    expected = reference.load_model(bound, weights, numerics="exact")
    for numerics in ("exact", "engine"):
        model = load_model(bound, weights, numerics=numerics)
        expected.reset_state()
        for entry, inputs, generics in steps:
            close(model.run_entry(entry, inputs, generics), expected.run_entry(entry, inputs, generics))


COUNTER = """
module counter

block Counter<N: Dim> {
    param weight: Tensor[N; f32]
    state total: Tensor[N; f32]

    pub entry step(x: Tensor[N; f32], at: i32) -> Tensor[N; f32] {
        let added = total + weight
        total = added
        let moved[n] = x[at] + added[n]
        return moved
    }

    pub entry double(x: Tensor[N; f32], times: i32) -> Tensor[N; f32] {
        var value = x
        var count: i32 = 0
        while count < times {
            value = value * 2.0
            count = count + 1
        }
        return value
    }
}
"""


@pytest.mark.skipif(shutil.which("g++") is None, reason="on a CPU mx.compile needs a C++ compiler")
@pytest.mark.parametrize("name", ["qwen3-tiny", "qwen3-tiny-fp8"])
def test_engine_is_compiled_whole_and_to_the_bit(name: str) -> None:
    """What depends on positions, such as rotary tables, is computed by MLX."""
    options: dict[str, Any] = {"numerics": "engine", "dtype": "bf16", "device": "cpu", "capacity": 32}
    walked, compiled = (nest.load(name, backend="mlx", compile=mode, **options) for mode in (False, True))
    for entry, tokens, position in (("prefill", [[5, 9, 1, 300]], 0), ("decode", [[77]], 4)):
        found, expected = (to_torch(model.run_entry(entry, [tokens, position])) for model in (compiled, walked))
        assert torch.equal(found, expected)
    assert compiled.fallbacks == {}


@pytest.mark.skipif(shutil.which("g++") is None, reason="on a CPU mx.compile needs a C++ compiler")
def test_a_compiled_entry_equals_a_walked_one(bind_source: Build) -> None:
    bound = bind_source(COUNTER, N=3)
    weights = {"weight": torch.tensor([1.0, 2.0, 3.0])}
    walked, compiled = load_model(bound, weights), load_model(bound, weights, compile=True)
    assert (walked.compiled, compiled.compiled) == (False, True)
    x = [0.5, 1.0, 1.5]
    for model in (walked, compiled):
        for i in range(3):
            found = model.run_entry("step", [x, i]).tolist()
            assert found == [x[i] + (i + 1) * weight for weight in (1.0, 2.0, 3.0)]
        for position in (3, -1):
            with pytest.raises(IndexRangeError, match=f"entry step: position {position} is outside x"):
                model.run_entry("step", [x, position])
        # What was refused has not been counted.
        assert model.run_entry("step", [x, 0]).tolist() == [4.5, 8.5, 12.5]
        assert model.run_entry("double", [x, 3]).tolist() == [4.0, 8.0, 12.0]
    assert walked.fallbacks == {}
    assert compiled.fallbacks == {"double": "`while` depends on values"}


@pytest.mark.parametrize("name", PACKAGES)
@pytest.mark.parametrize("numerics", POLICIES)
def test_tiny_packages_equal_torchs_exact(name: str, numerics: str) -> None:
    expected = nest.load(name, numerics="exact", dtype="f32", device="cpu")
    model: Any = nest.load(name, backend="mlx", numerics=numerics, dtype="f32")
    assert isinstance(model, Model)
    tokens = torch.tensor([expected.tokenizer.encode(PROMPT)], dtype=torch.int32)
    found = to_torch(model.run_entry("prefill", [tokens, 0]))
    # As the largest of 11.5 is given in f32, this is some hundred steps of its last bit.
    assert (found - expected.run_entry("prefill", [tokens, 0])).abs().max() <= 1e-4
    assert model.generate(PROMPT, max_new_tokens=16) == expected.generate(PROMPT, max_new_tokens=16)


def test_bf16_is_no_further_from_f32_than_torch_is() -> None:
    truth = nest.load("qwen3-tiny", numerics="exact", dtype="f32", device="cpu")
    tokens = torch.tensor([truth.tokenizer.encode(PROMPT)], dtype=torch.int32)
    expected = truth.run_entry("prefill", [tokens, 0])
    other = nest.load("qwen3-tiny", numerics="engine", dtype="bf16", device="cpu")
    model: Any = nest.load("qwen3-tiny", backend="mlx", numerics="engine", dtype="bf16")
    logits = model.run_entry("prefill", [tokens, 0])
    assert logits.dtype == mx.bfloat16
    distance = (to_torch(logits).float() - expected).abs().mean()
    assert distance <= 1.5 * (other.run_entry("prefill", [tokens, 0]).float() - expected).abs().mean()


def test_engine_rounds_rotary_arithmetic_once() -> None:
    x = torch.tensor([[[[1.0078125, 1.0]]]], dtype=torch.bfloat16)
    cos, sin = (torch.tensor([[v, v]], dtype=torch.bfloat16) for v in (0.6015625, 0.80078125))
    once = (x.double() * cos.double() + torch.tensor([-1.0, 1.0]) * x.double().flip(-1) * sin.double()).bfloat16()
    each = x * cos + torch.cat((-x[..., 1:], x[..., :1]), dim=-1) * sin
    assert not torch.equal(once, each)
    assert torch.equal(torch_rope(x, cos, sin), once)
    assert torch.equal(to_torch(rope(*(from_torch(t, "bf16") for t in (x, cos, sin)))), once)


@pytest.mark.parametrize("compiled", [False, True])
def test_torchs_engine_rounds_where_mlxs_does(compiled: bool) -> None:
    """In f32 it is `exact` but for the last bits; in bf16 it is not `equivalent`, and MLX's to the bit."""
    options: dict[str, Any] = {"device": "cpu", "compile": compiled}
    exact = nest.load("qwen3-tiny", numerics="exact", dtype="f32", device="cpu")
    tokens = torch.tensor([exact.tokenizer.encode(PROMPT)], dtype=torch.int32)
    truth = exact.run_entry("prefill", [tokens, 0])
    wide = nest.load("qwen3-tiny", numerics="engine", dtype="f32", **options)
    assert (wide.run_entry("prefill", [tokens, 0]) - truth).abs().max() <= 1e-4
    engine, other = (
        nest.load("qwen3-tiny", numerics=numerics, dtype="bf16", **options).run_entry("prefill", [tokens, 0]).float()
        for numerics in ("engine", "equivalent")
    )
    assert not torch.equal(engine, other)
    model: Any = nest.load("qwen3-tiny", backend="mlx", numerics="engine", dtype="bf16", device="cpu")
    assert torch.equal(to_torch(model.run_entry("prefill", [tokens, 0])).float(), engine)


def test_caches_are_written_in_place(small: Any) -> None:
    bound, weights = small(2)
    model = load_model(bound, weights, numerics="engine")
    tokens = draw(2, 3)
    model.run_entry("prefill", [tokens, 0])
    places = {path: _address(value) for path, value in model._states.items()}
    assert set(places) == set(model.state_paths())
    model.run_entry("decode", [tokens[:, :1], 3])
    assert {path: _address(value) for path, value in model._states.items()} == places
    model.reset_state()
    assert model._states == {}


def _address(x: mx.array) -> int:
    """Where an array's elements lie."""
    return int(np.asarray(x).__array_interface__["data"][0])


def test_what_is_refused_changes_no_state(small: Any) -> None:
    bound, weights = small(2)
    model = load_model(bound, weights, numerics="engine", entry="forward")
    tokens = draw(2, 6)
    model.run_entry("prefill", [tokens, 0])
    for entry, inputs, message in (
        ("forward", [[[0, 64]]], "entry forward: id 64 is outside the embedding table of 64 rows"),
        ("decode", [tokens[:, :1], -1], "entry decode: position -1 is outside"),
        ("decode_rows", [tokens[:, :1], [3, 32]], "entry decode_rows: position 32 is outside"),
    ):
        with pytest.raises(IndexRangeError, match=message):
            model.run_entry(entry, inputs)
    after = model.run_entry("decode", [tokens[:, :1], 6])
    model.reset_state()
    model.run_entry("prefill", [tokens, 0])
    assert mx.array_equal(model.run_entry("decode", [tokens[:, :1], 6]), after)
    with pytest.raises(UnknownEntryError):
        model.run_entry("encode")
    with pytest.raises(InputError, match="tokens must have shape"):
        model(tokens[0])
    assert mx.array_equal(model(mx.array(tokens.numpy())), model(tokens))


def test_bodies_and_kernels_with_masks_that_hide_everything(seed_program: Program) -> None:
    generator = torch.Generator().manual_seed(4)
    q, k, v = (torch.randn(2, h, n, 8, generator=generator) for h, n in ((4, 3), (2, 5), (2, 5)))
    for mask in (torch.rand(3, 5, generator=generator) > 0.5, torch.rand(2, 3, 5, generator=generator) > 0.5):
        mask[..., 1, :] = False
        found = attention(*(from_torch(t, "f32") for t in (q, k, v)), mx.array(0.3), from_torch(mask, "bool"))
        torch.testing.assert_close(to_torch(found), attend(q, k, v, 0.3, mask, None))


def test_control_flow_and_states() -> None:
    inner = GraphMaker()
    counter, total, step = inner.input((), "i64"), inner.input((2,), "f32"), inner.input((2,), "f32")
    grown = inner.node("add", [total, step], (2,), "f32")
    body = inner.graph(grown, counter)
    make = GraphMaker()
    x = make.input((2,), "f32")
    state = make.node("state.read", [], (2,), "f32", path="s")
    results = [((2,), "f32"), ((12,), "i64")]
    last, counts = make.nodes_of("for", [state, x], results, body, start=0, stop=12, carried=1)
    make.nodes_of("state.write", [last], [], path="s")
    graph = make.graph(last, counts)
    frame = Frame({})
    found = execute_on_mlx(graph, torch.tensor([1.0, 2.0]), frame=frame)
    expected = execute(graph, torch.tensor([1.0, 2.0]))
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    assert frame.written["s"].tolist() == [12.0, 24.0]
    assert walked_because(graph, {}) == "a loop of 12 passes would be compiled as one"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"dtype": "f16"}, 'T is f16, which backend="mlx" does not run in: load with dtype="bf16" or dtype="f32"'),
        ({"dtype": "f64"}, 'T is f64, which backend="mlx" does not run in'),
        ({"device": "cuda"}, "device='cuda' is not one of MLX, which has cpu and gpu"),
        ({"trainable": True}, 'which backend="mlx" keeps none of'),
        (
            {"fp8": "stream"},
            "fp8='stream' belongs to backend=\"torch\": on MLX FP8 weights are decoded once where there is room",
        ),
        ({"compile": "inductor"}, "compile='inductor' belongs to backend=\"torch\""),
    ],
)
def test_load_refuses_by_name(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ModeError) as caught:
        nest.load("qwen3-tiny", backend="mlx", **arguments)
    assert said in str(caught.value)


def test_a_dtype_that_is_no_float_is_told_with_those_of_the_backend() -> None:
    with pytest.raises(nest.NestError, match=r"dtype='i8' is not a floating dtype; write one of bf16, f32$"):
        nest.load("qwen3-tiny", backend="mlx", dtype="i8")
    with pytest.raises(nest.NestError, match=r"dtype='i8' is not a floating dtype; write one of f16, bf16, f32, f64$"):
        nest.load("qwen3-tiny", dtype="i8")


@pytest.mark.parametrize("backend", ["torch", "mlx"])
def test_capacity_is_the_size_of_the_caches(backend: str) -> None:
    model: Any = nest.load("qwen3-tiny", backend=backend, capacity=24, device="cpu")
    assert model.generics["MaxSeq"] == 24
    with pytest.raises(ContextError, match="the cache holds 24"):
        model.generate(PROMPT, max_new_tokens=24)
    with pytest.raises(nest.NestError, match=r"capacity=24 and generics=.'MaxSeq': 32. differ"):
        nest.load("qwen3-tiny", backend=backend, capacity=24, generics={"MaxSeq": 32}, device="cpu")
    model.resize(MaxSeq=40)
    assert model.generics["MaxSeq"] == 40
    with pytest.raises(WeightsError, match="weights depend on Vocab"):
        model.resize(Vocab=8)


def test_logits_that_are_no_numbers_name_the_layer() -> None:
    model: Any = nest.load("qwen3-tiny", backend="mlx")
    path = "layers.1.mlp.down.weight"
    model._weights[path] = model._weights[path] * float("inf")
    with pytest.raises(NonFiniteError, match=rf"layers\.1\.mlp\.down .*, whose weight {re.escape(path)} holds"):
        model.generate(PROMPT, max_new_tokens=4)


def test_the_state_dict_holds_the_weights_by_path(small: Any) -> None:
    bound, weights = small(2)
    model = load_model(bound, weights)
    assert set(model.state_dict()) == set(weights)
    assert all(torch.equal(to_torch(value), weights[path]) for path, value in model.state_dict().items())
    weights.pop("norm.weight")
    with pytest.raises(WeightsError, match=r"norm\.weight has no tensor"):
        load_model(bound, weights)
