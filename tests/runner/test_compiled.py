"""Compiled entries: what they join, keep, write in place and refuse.

test_seed_entries.py compares their results with the interpreter's.
"""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx

from linnet.language.check import load as check
from linnet.language.program.binding import BoundProgram, bind
from linnet.language.program.checked import Program
from linnet.language.program.core import Graph
from linnet.runner.affine import Indices, Prefix
from linnet.runner.errors import IndexRangeError, ModeError
from linnet.runner.torch.compiled.blocked import block_columns, block_weight, can_block, linear_for, take_rows
from linnet.runner.torch.compiled.compiler import choose_mode
from linnet.runner.torch.compiled.entry import CompiledEntry
from linnet.runner.torch.compiled.store import choose_fp8, free_bytes
from linnet.runner.torch.module import Model, load_model
from linnet.runner.torch.weights import random_weights

CPU = torch.device("cpu")
SMALL: Mapping[str, int | str] = {
    "Vocab": 64, "H": 128, "Heads": 4, "KvHeads": 2, "HeadDim": 64, "Inner": 256, "Layers": 2,
    "Batch": 2, "MaxSeq": 32, "PageSize": 4,
}  # fmt: skip
TOKENS = torch.arange(10, dtype=torch.int32).view(2, 5)


def bind_nest(root: Path, name: str, **generics: int | str) -> BoundProgram:
    checked = check(root / "nests" / name / "src" / "lib.linnet")
    assert checked.program is not None
    return bind(checked.program, "Model", {**SMALL, **generics})


@pytest.fixture(scope="module")
def plain(root: Path) -> BoundProgram:
    return bind_nest(root, "qwen3-8b", T="f32")


@pytest.fixture(scope="module")
def halves(root: Path) -> BoundProgram:
    return bind_nest(root, "qwen3-8b", T="bf16")


@pytest.fixture(scope="module")
def bytes_(root: Path) -> BoundProgram:
    return bind_nest(root, "qwen3-8b-fp8", T="bf16")


def make(bound: BoundProgram, **options: object) -> Model:
    options = {"numerics": "fast", "compile": True, **options}
    return load_model(bound, random_weights(bound.manifest, 1), entry="forward", **options)  # type: ignore[arg-type]


def code_of(model: Model, name: str) -> str:
    (prepared,) = [value for key, value in model._prepared.items() if key[0] == name]
    assert isinstance(prepared.graph, CompiledEntry)
    return prepared.graph.code


def test_layers_that_read_one_value_are_one_product_over_one_buffer(plain: BoundProgram) -> None:
    model = make(plain)
    before = {path: tensor.clone() for path, tensor in model.state_dict().items()}
    model.run_entry("decode", [TOKENS[:, :1], 0])
    weights = model.state_dict()
    for layer in range(2):
        for block, parts in (("attention", ("q_proj", "k_proj", "v_proj")), ("mlp", ("gate", "up"))):
            joined = [weights[f"layers.{layer}.{block}.{part}.weight"] for part in parts]
            assert len({tensor.untyped_storage().data_ptr() for tensor in joined}) == 1
            size = sum(tensor.nbytes for tensor in joined)
            assert joined[0].untyped_storage().nbytes() == size
    assert all(torch.equal(weights[path], tensor) for path, tensor in before.items())
    # q|k|v, o, gate|up and down of each of two layers, and the head.
    assert code_of(model, "decode").count("linear(") == 9
    assert make(plain).run_entry("forward", [TOKENS]).equal(pickle.loads(pickle.dumps(model))(TOKENS))


def test_what_is_independent_of_inputs_is_computed_once(plain: BoundProgram) -> None:
    model = make(plain)
    model(TOKENS)
    assert "torch.cos" not in code_of(model, "forward")
    model.run_entry("decode", [TOKENS[:, :1], 0])
    # Positions come from an input here: once for both layers.
    assert code_of(model, "decode").count("torch.cos") == 1


def test_caches_are_written_in_place_and_belong_to_the_model(plain: BoundProgram) -> None:
    model = make(plain)
    model.run_entry("prefill", [TOKENS, 0])
    places = {path: state.data_ptr() for path, state in model._states.items()}
    assert sorted(places) == sorted(model.state_paths())
    model.run_entry("decode", [TOKENS[:, :1], 5])
    assert {path: state.data_ptr() for path, state in model._states.items()} == places
    known = {path: state.clone() for path, state in model._states.items()}
    for entry, inputs in (("prefill", [TOKENS, 28]), ("decode", [TOKENS[:, :1], 32]), ("decode", [[[64], [0]], 6])):
        with pytest.raises(IndexRangeError):
            model.run_entry(entry, inputs)
    assert all(torch.equal(state, known[path]) for path, state in model._states.items())


# What torch's own compiler imports.
@pytest.mark.filterwarnings("ignore:.*script_method:DeprecationWarning")
@pytest.mark.parametrize("compiled", [True, "inductor"])
def test_a_state_that_is_still_read_is_not_written_in_place(
    bind_source: Callable[..., BoundProgram], compiled: bool | str
) -> None:
    if compiled == "inductor" and shutil.which("g++") is None and shutil.which("c++") is None:
        pytest.skip("torch's compiler needs a C++ compiler, and there is none on PATH")
    text = """
module m
use std.nn.cache::{write_span}
pub block Root {
    state rows: Tensor[1, 1, 4, 2; f32]
    pub entry both(x: Tensor[1, 1, 1, 2; f32], pos: i32) -> (Tensor[1, 1, 4, 2; f32], Tensor[1, 1, 4, 2; f32]) {
        let before = rows
        rows = write_span(rows, x, pos)
        return (before, rows)
    }
}
"""
    model = load_model(bind_source(text), {}, numerics="equivalent", compile=compiled)
    row = torch.ones(1, 1, 1, 2)
    before, after = model.run_entry("both", [row, 1])
    assert (before.sum(), after.sum()) == (0, 2)
    before, after = model.run_entry("both", [row, 3])
    assert (before.sum(), after.sum()) == (2, 4)
    after.zero_()
    assert model.run_entry("both", [row, 3])[0].sum() == 4


def test_weights_that_change_count_from_the_next_call_on(halves: BoundProgram) -> None:
    model = make(halves)
    known = model(TOKENS)
    with torch.no_grad():
        model.get_parameter("lm_head.weight").mul_(2)
    assert torch.equal(model(TOKENS), known * 2)
    model.get_parameter("lm_head.weight").data = model.get_parameter("lm_head.weight").detach() / 2
    assert torch.equal(model(TOKENS), known)
    model.load_state_dict(random_weights(halves.manifest, 2), assign=True)
    other = load_model(halves, random_weights(halves.manifest, 2), entry="forward", numerics="fast", compile=True)
    assert torch.equal(model(TOKENS), other(TOKENS))


@pytest.mark.skipif(not can_block(CPU), reason="torch has no FBGEMM here")
@pytest.mark.parametrize(("shape", "function"), [((1, 1), "row_linear"), ((2, 2), "few_rows"), ((2, 5), "rows_linear")])
def test_products_of_blocks_are_those_of_the_interpreter(
    halves: BoundProgram, shape: tuple[int, int], function: str
) -> None:
    tokens = TOKENS.flatten()[: shape[0] * shape[1]].view(shape)
    model, exact = make(halves), make(halves, numerics="exact", compile=False)
    found, expected = model(tokens).float(), exact(tokens).float()
    assert function in code_of(model, "forward")
    assert (found - expected).abs().max() <= 0.02 * expected.abs().max()


@pytest.mark.skipif(not can_block(CPU), reason="torch has no FBGEMM here")
@pytest.mark.parametrize("sizes", [(64,), (96, 96), (80, 80, 320), (960, 192), (8192, 1024)])
@pytest.mark.parametrize("rows", [1, 3, 9, 4000])
@pytest.mark.parametrize("biased", [False, True])
def test_blocks_give_the_product_in_f32_rounded_once(sizes: tuple[int, ...], rows: int, biased: bool) -> None:
    generator = torch.Generator().manual_seed(len(sizes) + rows)
    parts = [torch.randn(size, 48, generator=generator).bfloat16() for size in sizes]
    biases = [torch.randn(size, generator=generator).bfloat16() for size in sizes] if biased else []
    x = torch.randn(rows, 48, generator=generator).bfloat16()
    found = linear_for(rows, biased)(x, *block_weight(parts, biases))
    expected = x.double() @ torch.cat(parts).double().t() + (torch.cat(biases).double() if biased else 0)
    # Half a unit in the last of bf16's eight bits, and what the order of a sum in f32 is worth.
    assert ((found - expected).abs() <= expected.abs() * 2**-8 + 1e-5).all()


@pytest.mark.skipif(not can_block(CPU), reason="torch has no FBGEMM here")
@pytest.mark.parametrize("ids", [torch.tensor([1023]), torch.tensor([511, 512, 0, 513, 7]), torch.arange(40) * 25])
def test_an_embedding_is_read_from_the_blocks_of_the_head_it_is_tied_to(
    bind_source: Callable[..., BoundProgram], ids: torch.Tensor
) -> None:
    text = """
module m
use std.nn.embedding::{embedding}
use std.nn.linear::{linear}
pub block Root {
    param table: Tensor[1024, 48; bf16]
    pub entry both<S: Dim>(ids: Tensor[S; i32]) -> (Tensor[S, 48; bf16], Tensor[S, 1024; bf16]) {
        let x = embedding(ids, table)
        return (x, linear(x, table))
    }
}
"""
    bound = bind_source(text)
    weights = random_weights(bound.manifest, 1)
    model = load_model(bound, weights, numerics="equivalent", compile=True)
    rows, product = model.run_entry("both", [ids.int()])
    assert "take_rows" in code_of(model, "both")
    assert torch.equal(rows, weights["table"][ids])
    expected = rows.double() @ weights["table"].double().t()
    assert ((product - expected).abs() <= expected.abs() * 2**-8 + 1e-5).all()
    with pytest.raises(IndexRangeError, match="1024"):
        model.run_entry("both", [torch.tensor([1024], dtype=torch.int32)])


def test_results_and_states_are_tensors_that_training_may_use(plain: BoundProgram) -> None:
    model = make(plain, compile=True)
    logits = model.run_entry("prefill", [TOKENS, 0])
    logits[0] += 1
    scale = torch.ones(logits.shape[-1], requires_grad=True)
    (logits * scale).sum().backward()
    assert torch.equal(scale.grad, logits.sum(0))
    assert not any(state.is_inference() or state.requires_grad for state in model._states.values())
    expected = model.run_entry("decode", [TOKENS[:, :1], TOKENS.shape[1]])
    # Whoever calls in inference mode has what that makes, and the model goes on as it was.
    model.reset_state()
    with torch.inference_mode():
        assert model.run_entry("prefill", [TOKENS, 0]).is_inference()
    assert torch.equal(model.run_entry("decode", [TOKENS[:, :1], TOKENS.shape[1]]), expected)


def test_entries_that_read_a_weight_alone_and_joined_are_compiled_once(
    bind_source: Callable[..., BoundProgram],
) -> None:
    text = """
module m
use std.nn.linear::{linear}
pub block Root {
    param q: Tensor[16, 16; f32]
    param k: Tensor[16, 16; f32]
    pub entry alone(x: Tensor[16, 16; f32]) -> Tensor[16, 16; f32] { return x * q }
    pub entry joined(x: Tensor[16, 16; f32]) -> (Tensor[16, 16; f32], Tensor[16, 16; f32]) {
        return (linear(x, q), linear(x, k))
    }
}
"""
    bound = bind_source(text)
    weights = random_weights(bound.manifest, 1)
    model = load_model(bound, weights, numerics="fast", compile=True)
    x = torch.eye(16)
    for _ in range(3):
        assert torch.equal(model.run_entry("alone", [x]), x * weights["q"])
        assert torch.equal(model.run_entry("joined", [x])[1], weights["k"].t())
        made = list(model._prepared.values())
    assert len(made) == 2
    model.run_entry("alone", [x])
    assert list(model._prepared.values()) == made


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_a_model_that_is_made_in_inference_mode_runs_within_and_without(root: Path, dtype: str) -> None:
    bound = bind_nest(root, "qwen3-8b", T=dtype)
    expected = make(bound)(TOKENS)
    with torch.inference_mode():
        model = make(bound)
        assert torch.equal(model(TOKENS), expected)
    assert torch.equal(model(TOKENS), expected)


def scaling(bind_source: Callable[..., BoundProgram]) -> Model:
    """A compiled model that multiplies eight numbers by 0 to 7."""
    text = """
module m
pub block Root {
    param scale: Tensor[8; f32]
    pub entry scaled(x: Tensor[8; f32]) -> Tensor[8; f32] { return x * scale }
}
"""
    weights = {"scale": torch.arange(8.0)}
    return load_model(bind_source(text), weights, entry="scaled", numerics="fast", compile=True)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
def test_what_follows_a_computation_still_does(bind_source: Callable[..., BoundProgram]) -> None:
    model = scaling(bind_source)
    x = torch.ones(8)
    with forward_ad.dual_level():
        found = forward_ad.unpack_dual(model.run_entry("scaled", [forward_ad.make_dual(x, 2 * x)]))
        assert torch.equal(found.tangent, 2 * torch.arange(8.0))
    traced = make_fx(lambda x: model.run_entry("scaled", [x]))(x)
    assert torch.equal(traced(3 * x), 3 * torch.arange(8.0))
    scales = torch.stack([x, 2 * x])
    rows = torch.func.vmap(lambda s: torch.func.functional_call(model, {"scale": s}, (x,)))(scales)
    assert torch.equal(rows, scales)


def test_compiled_code_runs_under_a_transform(bind_source: Callable[..., BoundProgram]) -> None:
    model = scaling(bind_source)
    rows = torch.arange(24.0).view(3, 8)
    for _ in range(2):
        found = torch.func.vmap(lambda row: model.run_entry("scaled", [row]))(rows)
        assert torch.equal(found, rows * torch.arange(8.0))
        assert not model.run_entry("scaled", [rows[0]]).is_inference()


def test_no_rows_of_blocks_are_no_rows() -> None:
    table, *_ = block_weight([torch.ones(64, 48, dtype=torch.bfloat16)])
    assert take_rows(torch.empty(2, 0, dtype=torch.int32), table, 48, False).shape == (2, 0, 48)


def test_a_small_weight_is_a_copy_that_nobody_else_gets(bind_source: Callable[..., BoundProgram]) -> None:
    text = """
module m
pub block Root {
    param scale: Tensor[8; f32]
    pub entry read() -> Tensor[8; f32] { return scale }
}
"""
    bound = bind_source(text)
    model = load_model(bound, {"scale": torch.arange(8.0)}, numerics="fast", compile=True)
    model.run_entry("read").zero_()
    assert torch.equal(model.run_entry("read"), torch.arange(8.0))
    with torch.no_grad():
        model.get_parameter("scale").add_(1)
    assert torch.equal(model.run_entry("read"), torch.arange(1.0, 9.0))


@pytest.mark.skipif(not can_block(CPU), reason="torch has no FBGEMM here")
@pytest.mark.parametrize("rows", [1, 2, 9])
def test_layers_with_biases_are_one_product_too(bind_source: Callable[..., BoundProgram], rows: int) -> None:
    text = """
module m
use std.nn.linear::{Linear}
pub block Root {
    sub first: Linear<32, 64, bf16>
    sub second: Linear<32, 48, bf16>
    pub entry both<S: Dim>(x: Tensor[S, 32; bf16]) -> (Tensor[S, 64; bf16], Tensor[S, 48; bf16]) {
        return (first.forward(x), second.forward(x))
    }
}
"""
    bound = bind_source(text)
    weights = dict(random_weights(bound.manifest, 1))
    weights |= {"first.bias": torch.arange(64).bfloat16() / 8, "second.bias": torch.arange(48).bfloat16()}
    x = torch.randn(rows, 32, generator=torch.Generator().manual_seed(rows)).bfloat16()
    model = load_model(bound, weights, numerics="equivalent", compile=True)
    exact = load_model(bound, weights, numerics="exact")
    for found, expected in zip(model.run_entry("both", [x]), exact.run_entry("both", [x]), strict=True):
        assert (found - expected).abs().max() <= 2**-7 * expected.abs().max()
    assert "biased" in code_of(model, "both")
    with torch.no_grad():
        model.get_parameter("second.bias").add_(1)
    assert (model.run_entry("both", [x])[1] - found - 1).abs().max() <= 0.25


@pytest.mark.parametrize("outputs", [64, 384, 576, 960, 3072, 49152, 151936])
def test_blocks_divide_the_outputs(outputs: int) -> None:
    columns = block_columns(outputs)
    assert columns is not None
    assert outputs % columns == 0
    assert columns <= 512
    assert block_columns(50257) is None


@pytest.mark.parametrize("fp8", ["stream", "decoded"])
def test_fp8_weights_are_streamed_or_decoded_once(bytes_: BoundProgram, fp8: str) -> None:
    model, exact = make(bytes_, fp8=fp8), make(bytes_, numerics="exact", compile=False)
    found, expected = model(TOKENS).float(), exact(TOKENS).float()
    assert model.fp8 == fp8
    assert ("fp8_block_linear" in code_of(model, "forward")) == (fp8 == "stream")
    assert (found - expected).abs().max() <= 0.03 * expected.abs().max()


def test_fp8_is_decoded_where_memory_allows() -> None:
    free = free_bytes(CPU)
    assert free > 0
    assert choose_fp8(0, CPU) == "decoded"
    assert choose_fp8(free, CPU) == "stream"


@pytest.mark.parametrize(
    ("wanted", "numerics", "device", "trainable", "mode"),
    [
        (None, "equivalent", "cpu", False, True),
        (None, "fast", "cuda", False, True),
        (None, "exact", "cpu", False, False),
        (None, "fast", "cpu", True, False),
        (None, "fast", "meta", False, False),
        (True, "exact", "cpu", False, True),
        (False, "fast", "cpu", False, False),
        ("inductor", "fast", "cpu", False, "inductor"),
    ],
)
def test_modes(wanted: bool | str | None, numerics: str, device: str, trainable: bool, mode: bool | str) -> None:
    assert choose_mode(wanted, None, numerics, device, trainable) == mode


@pytest.mark.parametrize(
    ("wanted", "fp8", "device", "trainable", "said"),
    [
        ("inducter", None, "cpu", False, "compile='inducter' is not known; write True, False, 'inductor' or"),
        (True, None, "cpu", True, "compile=True runs without gradients: leave it out, or load without trainable"),
        (True, None, "meta", False, "compile=True needs a device that computes, and not meta"),
        ("reduce-overhead", None, "cpu", False, "replays CUDA graphs, and the device is cpu: write True"),
        (None, "decode", "cpu", False, "fp8='decode' is not known; write 'stream' or 'decoded'"),
    ],
)
def test_modes_that_cannot_be_had(
    wanted: bool | str | None, fp8: str | None, device: str, trainable: bool, said: str
) -> None:
    with pytest.raises(ModeError, match=said.replace("(", r"\(")):
        choose_mode(wanted, fp8, "fast", device, trainable)


def mask_of(bind_source: Callable[..., BoundProgram], body: str) -> tuple[Graph, Prefix | None]:
    text = f"module m\npub entry run(pos: i32) -> Tensor[3, 8; bool] {{\n{body}\n}}\n"
    graph = bind_source(text).lower("run", {}).graph
    return graph, Indices(graph).prefix(graph.outputs[0])


@pytest.mark.parametrize(
    ("condition", "constant", "with_pos"),
    [
        ("keys[k] <= queries[q]", 0, False),
        ("keys[k] < queries[q]", -1, False),
        ("queries[q] >= keys[k]", 0, False),
        ("queries[q] + 2 > keys[k]", 1, False),
        ("keys[k] + 3 <= queries[q] + 8", 5, False),
        ("keys[k] <= queries[q] + pos", 0, True),
        ("keys[k] - 1 <= pos + queries[q]", 1, True),
    ],
)
def test_prefix_masks_are_recognised(
    bind_source: Callable[..., BoundProgram], condition: str, constant: int, with_pos: bool
) -> None:
    body = f"let queries = iota<i32>(3)\nlet keys = iota<i32>(8)\nlet seen[q, k] = {condition}\nreturn seen"
    graph, found = mask_of(bind_source, body)
    assert found == Prefix(constant, graph.inputs[0] if with_pos else None)


@pytest.mark.parametrize(
    "condition",
    [
        "keys[k] >= queries[q]",
        "keys[k] <= queries[q] * 2",
        "keys[k] <= queries[q] && keys[k] + 2 > queries[q]",
        "keys[k] <= 4 && queries[q] >= 0",
        "keys[k] <= queries[q] - pos",
        "keys[k] + pos <= queries[q] + pos * pos",
        "keys[k] == queries[q]",
    ],
)
def test_other_masks_are_not(bind_source: Callable[..., BoundProgram], condition: str) -> None:
    body = f"let queries = iota<i32>(3)\nlet keys = iota<i32>(8)\nlet seen[q, k] = {condition}\nreturn seen"
    assert mask_of(bind_source, body)[1] is None


ATTENTION = """
module m
use std.nn.attention::{{grouped_attention}}
pub entry run(q: Tensor[1, 4, 3, 8; f32], k: Tensor[1, 2, 6, 8; f32], pos: i32) -> Tensor[1, 4, 3, 8; f32] {{
    let queries = iota<i32>(3)
    let keys = iota<i32>(6)
    let seen[i, j] = {condition}
    return grouped_attention(q, k, k, 0.5, some(seen))
}}
"""


@pytest.mark.parametrize("pos", [-4, -1, 0, 2, 3, 9])
@pytest.mark.parametrize("numerics", ["equivalent", "fast"])
@pytest.mark.parametrize("condition", ["keys[j] <= queries[i] + pos", "keys[j] > queries[i] + pos"])
def test_attention_is_that_of_the_definition(
    bind_source: Callable[..., BoundProgram], condition: str, numerics: str, pos: int
) -> None:
    """Also where a query sees no key, and averages, or where all are seen."""
    bound = bind_source(ATTENTION.format(condition=condition))
    generator = torch.Generator().manual_seed(3)
    inputs = [torch.randn(1, 4, 3, 8, generator=generator), torch.randn(1, 2, 6, 8, generator=generator), pos]
    expected = load_model(bound, {}, numerics="exact").run_entry("run", inputs)
    found = load_model(bound, {}, numerics=numerics, compile=True).run_entry("run", inputs)
    assert torch.allclose(found, expected, atol=1e-5)


def test_control_flow_is_compiled_with_what_it_holds(seed_program: Program) -> None:
    bound = bind(seed_program, "Model", {**SMALL, "T": "f32"})
    weights = random_weights(bound.manifest, 1)
    weights["embedding.weight"] *= 20
    made = [
        load_model(bound, weights, numerics="equivalent", compile=compiled).run_entry(
            "generate_until", [TOKENS[:, :1], 0, 63], {"MaxNew": 6}
        )
        for compiled in (False, True)
    ]
    assert len(made[0]) == len(made[1])
    assert all(torch.equal(a, b) for a, b in zip(*made, strict=True))


SPANS = """
module m
use std.nn.cache::{write_span}
pub block Root {
    state first: Tensor[1, 1, 4, 1; f32]
    state second: Tensor[1, 1, 4, 1; f32]
    pub entry put(x: Tensor[1, 1, 1, 1; f32], at: i32) -> f32 {
        first = write_span(first, x, at)
        return 0.0
    }
    pub entry peek(x: Tensor[1, 1, 1, 1; f32], at: i32) -> Tensor[1, 1, 4, 1; f32] {
        return write_span(write_span(first, x, at), x, at)
    }
    pub entry twice(x: Tensor[1, 1, 1, 1; f32], at: i32) -> f32 {
        let between = write_span(first, x, at)
        first = write_span(between, x, at + 1)
        return 0.0
    }
    pub entry share() -> f32 {
        second = first
        return 0.0
    }
    pub entry exchange() -> f32 {
        let old = first
        first = second
        second = old
        return 0.0
    }
    pub entry both(x: Tensor[1, 1, 4, 1; f32]) -> f32 {
        first = x + x
        second = x + x
        return 0.0
    }
    pub entry look() -> (Tensor[1, 1, 4, 1; f32], Tensor[1, 1, 4, 1; f32]) { return (first, second) }
}
"""
ROW = torch.ones(1, 1, 1, 1)


def look(model: Model) -> list[list[float]]:
    return [state.flatten().tolist() for state in model.run_entry("look")]


def test_a_write_that_no_state_takes_changes_none(bind_source: Callable[..., BoundProgram]) -> None:
    model = load_model(bind_source(SPANS), {}, numerics="equivalent", compile=True)
    assert model.run_entry("peek", [ROW, 2]).flatten().tolist() == [0, 0, 1, 0]
    assert look(model) == [[0, 0, 0, 0]] * 2
    model.run_entry("twice", [ROW, 2])
    assert code_of(model, "twice").count("write_span(") == 2
    assert look(model) == [[0, 0, 1, 1], [0, 0, 0, 0]]


def test_states_that_were_given_one_value_change_apart(bind_source: Callable[..., BoundProgram]) -> None:
    model = load_model(bind_source(SPANS), {}, numerics="equivalent", compile=True)
    model.run_entry("share")
    model.run_entry("put", [ROW, 0])
    assert look(model) == [[1, 0, 0, 0], [0, 0, 0, 0]]
    model.run_entry("exchange")
    model.run_entry("put", [ROW, 1])
    assert look(model) == [[0, 1, 0, 0], [1, 0, 0, 0]]
    model.run_entry("both", [torch.full((1, 1, 4, 1), 0.5)])
    model.run_entry("put", [ROW * 2, 3])
    assert look(model) == [[1, 1, 1, 2], [1, 1, 1, 1]]


def test_a_gate_that_is_broadcast(bind_source: Callable[..., BoundProgram]) -> None:
    text = """
module m
use std.nn.activations::{silu}
pub block Root {
    pub entry run(gate: Tensor[1, 2; f32], up: Tensor[3, 2; f32]) -> Tensor[3, 2; f32] { return silu(gate) * up }
}
"""
    model = load_model(bind_source(text), {}, numerics="fast", compile=True)
    gate, up = torch.tensor([[-1.0, 2.0]]), torch.arange(6.0).view(3, 2)
    torch.testing.assert_close(model.run_entry("run", [gate, up]), torch.nn.functional.silu(gate) * up)


def test_loops_that_no_input_reaches_are_run_once(bind_source: Callable[..., BoundProgram]) -> None:
    text = """
module m
pub block Root {
    pub entry scan(x: Tensor[3; f32]) -> Tensor[3; f32] {
        let steps = for t in 0..3 { yield cast<f32>(t) }
        return x + steps
    }
    pub entry count() -> i64 {
        var n = 1
        while n < 50 { n = n + n }
        return n
    }
    pub entry nothing() -> Tensor[0; i64] {
        let steps = for t in 2..2 { yield t }
        return steps
    }
}
"""
    model = load_model(bind_source(text), {}, numerics="exact", compile=True)
    assert model.run_entry("scan", [torch.ones(3)]).tolist() == [1, 2, 3]
    assert model.run_entry("count") == 64
    assert model.run_entry("nothing").shape == (0,)


def test_weights_that_entries_share_in_different_ways_stay_one(bind_source: Callable[..., BoundProgram]) -> None:
    text = """
module m
use std.nn.linear::{Linear, linear}
pub block Root {
    sub first: Linear<4, 4, f32>
    sub second: Linear<4, 4, f32>
    param third: Tensor[4, 4; f32]
    pub entry alone(x: Tensor[2, 4; f32]) -> Tensor[2, 4; f32] { return first.forward(x) }
    pub entry pair(x: Tensor[2, 4; f32]) -> Tensor[2, 4; f32] { return first.forward(x) * second.forward(x) }
    pub entry biased(x: Tensor[2, 4; f32]) -> Tensor[2, 4; f32] {
        return linear(x, second.weight, second.bias) * linear(x, third, second.bias)
    }
    pub entry other(x: Tensor[2, 4; f32]) -> Tensor[2, 4; f32] {
        return linear(x, third, first.bias) * linear(x, second.weight, second.bias)
    }
}
"""
    bound = bind_source(text)
    weights = random_weights(bound.manifest, 1)
    # Tied: changing either changes both.
    weights["third"] = weights["first.weight"]
    model = load_model(bound, weights, numerics="equivalent", compile=True)
    copies = {path: tensor.clone() for path, tensor in weights.items()}
    plain = load_model(bound, copies, numerics="exact", compile=False)
    x = torch.linspace(-1, 1, 8).view(2, 4)
    for _ in range(2):
        for entry in ("alone", "pair", "biased", "other"):
            torch.testing.assert_close(model.run_entry(entry, [x]), plain.run_entry(entry, [x]))
        with torch.no_grad():
            for path in weights:
                plain.get_parameter(path).mul_(3)
                if path != "third":
                    model.get_parameter(path).mul_(3)


@pytest.mark.parametrize("at", [-9, 4, 9])
def test_writing_nothing_takes_any_position(bind_source: Callable[..., BoundProgram], at: int) -> None:
    text = """
module m
use std.nn.cache::{write_span}
pub block Root {
    state cache: Tensor[1, 1, 4, 1; f32]
    pub entry run<N: Dim>(x: Tensor[1, 1, N, 1; f32], at: i32) -> Tensor[1, 1, 4, 1; f32] {
        cache = write_span(cache, x, at)
        return cache
    }
}
"""
    for compiled in (False, True):
        model = load_model(bind_source(text), {}, numerics="equivalent", compile=compiled)
        assert model.run_entry("run", [torch.ones(1, 1, 0, 1), at]).sum() == 0


def test_a_run_that_is_refused_half_way_changes_no_state(bind_source: Callable[..., BoundProgram]) -> None:
    text = """
module m
use std.nn.cache::{write_span}
pub block Root {
    state first: Tensor[1, 1, 4, 2; f32]
    state second: Tensor[1, 1, 2, 2; f32]
    state at: i32
    pub entry push(x: Tensor[1, 1, 1, 2; f32]) -> Tensor[1, 1, 4, 2; f32] {
        first = write_span(first, x, at)
        second = write_span(second, x, at)
        at = at + 1
        return first
    }
}
"""
    model = load_model(bind_source(text), {}, numerics="equivalent", compile=True)
    for _ in range(2):
        known = model.run_entry("push", [torch.ones(1, 1, 1, 2)])
    with pytest.raises(IndexRangeError):
        model.run_entry("push", [torch.ones(1, 1, 1, 2)])
    assert torch.equal(model._states["first"], known)
