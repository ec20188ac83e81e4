"""The standard library's elementwise ops, linear maps, norms, losses and FP8 layers against torch."""

from __future__ import annotations

import math

import pytest
import torch
from std_harness import DTYPES, NUMERICS, assert_within_one_rounding, random, run_std
from torch.nn import functional

from linnet.language.check import load
from linnet.language.diagnostics import Diagnostics
from linnet.language.source import Source
from linnet.language.syntax.parser import parse
from linnet.runner.errors import IndexRangeError

both = pytest.mark.parametrize("numerics", NUMERICS)
floats = pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])


def test_every_module_of_the_library_checks_without_a_warning(root):
    modules = sorted((root / "linnet" / "std").rglob("*.linnet"))
    assert len(modules) >= 15
    for path in modules:
        assert [f"{path.name}: {d.code} {d.message}" for d in load(path).diagnostics] == []


def test_every_public_item_is_documented(root):
    bare, public = [], 0
    for path in sorted((root / "linnet" / "std").rglob("*.linnet")):
        module = parse(Source(path.name, path.read_text()), Diagnostics())
        for item in module.items:
            members = [item, *getattr(item, "methods", ())]
            shown = [m for m in members if getattr(m, "public", False)]
            bare += [f"{path.name}: {m.name}" for m in shown if not m.doc]
            public += len(shown)
    assert bare == []
    assert public > 80


@both
@floats
@pytest.mark.parametrize("shape", [(5,), (2, 3, 5), ()])
def test_linear_rounds_the_sum_and_the_bias_once(numerics, dtype, shape):
    x, weight, bias = random(*shape, 64, dtype=dtype), random(48, 64, dtype=dtype, seed=1), random(48, dtype=dtype)
    lead = "".join(f"{n}, " for n in shape)
    head = f"<I: Dim, O: Dim>(x: Tensor[{lead}I; T], w: Tensor[O, I; T], b: Tensor[O; T]) -> Tensor[{lead}O; T]"
    found = run_std(
        "use std.nn.linear::{linear}",
        head + "{ return linear(x, w, some(b)) }",
        x,
        weight,
        bias,
        dtype=dtype,
        numerics=numerics,
    )
    assert found.dtype == DTYPES[dtype]
    assert_within_one_rounding(found, functional.linear(x.double(), weight.double(), bias.double()))
    plain = run_std(
        "use std.nn.linear::{linear}",
        head + "{ return linear(x, w) + cast<T>(0.0) * b }",
        x,
        weight,
        bias,
        dtype=dtype,
        numerics=numerics,
    )
    assert_within_one_rounding(plain, functional.linear(x.double(), weight.double()))


@both
def test_linear_block_has_an_optional_bias(numerics):
    x, weight, bias = random(2, 6), random(4, 6, seed=1), random(4, seed=2)

    def run(weights):
        return run_std(
            "use std.nn.linear::{Linear}",
            "<B: Dim>(x: Tensor[B, 6; T]) -> Tensor[B, 4; T] { return layer.forward(x) }",
            x,
            members="sub layer: Linear<6, 4, T>",
            weights=weights,
            numerics=numerics,
        )

    torch.testing.assert_close(run({"layer.weight": weight}), functional.linear(x, weight))
    torch.testing.assert_close(run({"layer.weight": weight, "layer.bias": bias}), functional.linear(x, weight, bias))


@both
def test_embedding_reads_rows_and_refuses_ids_outside(numerics):
    table = random(7, 3, dtype="bf16")
    head = "<A: Dim, B: Dim>(ids: Tensor[A, B; i32], t: Tensor[7, 3; T]) -> Tensor[A, B, 3; T]"
    entry = f"{head} {{ return embedding(ids, t) }}"

    def run(ids):
        return run_std("use std.nn.embedding::{embedding}", entry, ids, table, dtype="bf16", numerics=numerics)

    ids = torch.tensor([[0, 6], [3, 3]])
    assert torch.equal(run(ids), table[ids])
    for outside in (7, -1):
        with pytest.raises(IndexRangeError):
            run(torch.tensor([[0, outside]]))


@both
@floats
def test_rms_norm_rounds_before_the_weight(numerics, dtype):
    x, weight = random(2, 3, 32, dtype=dtype, scale=3.0), random(32, dtype=dtype, seed=1)
    found = run_std(
        "use std.nn.norm::{rms_norm}",
        "<A: Dim, H: Dim>(x: Tensor[A, 3, H; T], w: Tensor[H; T]) -> Tensor[A, 3, H; T]{ return rms_norm(x, w, 1e-6) }",
        x,
        weight,
        dtype=dtype,
        numerics=numerics,
    )
    wide = x.float()
    normal = (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)
    torch.testing.assert_close(found, normal * weight, rtol=2 * torch.finfo(x.dtype).eps, atol=1e-6)
    if dtype == "bf16":
        assert torch.equal(found, normal * weight)


@both
@floats
@pytest.mark.parametrize("with_bias", [True, False])
def test_layer_norm(numerics, dtype, with_bias):
    x = random(4, 32, dtype=dtype, scale=3.0) + 2
    weight, bias = random(32, dtype=dtype, seed=1), random(32, dtype=dtype)
    head = "<A: Dim, H: Dim>(x: Tensor[A, H; T], w: Tensor[H; T], b: Tensor[H; T]) -> Tensor[A, H; T]"
    call = "layer_norm(x, w, some(b), 1e-5)" if with_bias else "layer_norm(x, w) + b"
    found = run_std(
        "use std.nn.norm::{layer_norm}", f"{head} {{ return {call} }}", x, weight, bias, dtype=dtype, numerics=numerics
    )
    wide = functional.layer_norm(x.double(), (32,), weight.double(), bias.double(), 1e-5)
    eps = torch.finfo(x.dtype).eps
    torch.testing.assert_close(found.double(), wide, rtol=3 * eps, atol=5 * eps)


@both
def test_layer_norm_block_has_an_optional_bias(numerics):
    x, weight, bias = random(3, 6), random(6, seed=1), random(6, seed=2)

    def run(weights):
        return run_std(
            "use std.nn.norm::{LayerNorm}",
            "<B: Dim>(x: Tensor[B, 6; T]) -> Tensor[B, 6; T] { return norm.forward(x) }",
            x,
            members="sub norm: LayerNorm<6, T>",
            weights=weights,
            numerics=numerics,
        )

    plain = functional.layer_norm(x, (6,), weight, None, 1e-5)
    torch.testing.assert_close(run({"norm.weight": weight}), plain)
    torch.testing.assert_close(run({"norm.weight": weight, "norm.bias": bias}), plain + bias)


def test_batch_norm_is_torchs():
    x, mean, weight, bias = random(2, 3, 4, 5), random(3, seed=1), random(3, seed=2), random(3, seed=3)
    variance = random(3, seed=4).square() + 0.1
    found = run_std(
        "use std.nn.norm::{batch_norm}",
        "<B: Dim, C: Dim, H: Dim, W: Dim>(x: Tensor[B, C, H, W; T], m: Tensor[C; T], v: Tensor[C; T], w: Tensor[C; T],"
        " b: Tensor[C; T]) -> Tensor[B, C, H, W; T] { return batch_norm(x, m, v, w, b, 1e-5) }",
        x,
        mean,
        variance,
        weight,
        bias,
    )
    torch.testing.assert_close(found, functional.batch_norm(x, mean, variance, weight, bias, eps=1e-5))


ACTIVATIONS = {
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "silu": functional.silu,
    "gelu": lambda x: functional.gelu(x, approximate="tanh"),
    "gelu_erf": functional.gelu,
}


@both
@floats
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_are_computed_in_f32_and_rounded_once(numerics, dtype, name):
    edges = torch.tensor([0.0, -0.0, 1.0, -1.0, 4.0, 30.0, -30.0, 200.0, -200.0]).to(DTYPES[dtype])
    x = torch.cat((edges, torch.linspace(-6, 6, 1001).to(DTYPES[dtype])))
    found = run_std(
        f"use std.nn.activations::{{{name}}}",
        f"<N: Dim>(x: Tensor[N; T]) -> Tensor[N; T] {{ return {name}(x) }}",
        x,
        dtype=dtype,
        numerics=numerics,
    )
    assert_within_one_rounding(found, ACTIVATIONS[name](x.double()))


def test_erf_is_within_1e_7():
    x = torch.cat((torch.linspace(-5, 5, 40_001), torch.tensor([0.0, 1.0, -1.0, 4.0, 1e5, -1e5, math.inf, -math.inf])))
    found = run_std(
        "use std.nn.activations::{erf}", "<N: Dim>(x: Tensor[N; f32]) -> Tensor[N; f32] { return erf(x) }", x
    )
    error = (found.double() - torch.tensor([math.erf(v) for v in x.tolist()], dtype=torch.float64)).abs()
    assert error.max() < 1e-7


@both
@floats
def test_softmax_is_stable(numerics, dtype):
    x = random(3, 17, dtype=dtype, scale=4.0)
    x[0] += 300.0
    x[1, 4:] = -math.inf
    entry = "<A: Dim, N: Dim>(x: Tensor[A, N; T]) -> Tensor[A, N; T] { return softmax(x) }"
    found = run_std("use std.nn.softmax::{softmax}", entry, x, dtype=dtype, numerics=numerics)
    assert_within_one_rounding(found, torch.softmax(x.double(), -1))


@both
def test_argmax_takes_the_first_of_equals_and_marks_nan(numerics):
    entry = "<A: Dim, N: Dim>(x: Tensor[A, N; T]) -> Tensor[A; i32] { return argmax(x) }"

    def run(rows):
        return run_std("use std.nn.decoding::{argmax}", entry, torch.tensor(rows), numerics=numerics).tolist()

    assert run([[1.0, 3.0, 3.0], [-1.0, -2.0, -3.0], [-math.inf, -math.inf, -math.inf]]) == [1, 0, 0]
    assert run([[1.0, math.nan, 2.0]]) == [3]


@both
@floats
def test_rope_pairs_the_halves(numerics, dtype):
    x = random(2, 3, 5, 8, dtype=dtype)
    angle = random(2, 5, 4, seed=1).repeat(1, 1, 2)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x.chunk(2, dim=-1)
    turned = torch.cat((-b, a), dim=-1)
    tables = "Tensor[B, 5, 8; T], s: Tensor[B, 5, 8; T]"
    found = run_std(
        "use std.nn.rope::{rope_rows}",
        f"<B: Dim>(x: Tensor[B, 3, 5, 8; T], c: {tables}) -> Tensor[B, 3, 5, 8; T] {{ return rope_rows(x, c, s) }}",
        x,
        cos,
        sin,
        dtype=dtype,
        numerics=numerics,
    )
    assert torch.equal(found, x * cos[:, None] + turned * sin[:, None])
    shared = run_std(
        "use std.nn.rope::{rope}",
        f"<B: Dim>(x: Tensor[B, 3, 5, 8; T], c: {tables.replace('B, ', '')}) -> Tensor[B, 3, 5, 8; T]"
        "{ return rope(x, c, s) }",
        x,
        cos[0],
        sin[0],
        dtype=dtype,
        numerics=numerics,
    )
    assert torch.equal(shared, x * cos[0] + turned * sin[0])


@both
def test_swiglu_block_and_op_agree(numerics):
    x, gate, up, down = random(2, 6), random(9, 6, seed=1), random(9, 6, seed=2), random(6, 9, seed=3)
    wanted = functional.linear(functional.silu(functional.linear(x, gate)) * functional.linear(x, up), down)
    op = run_std(
        "use std.nn.mlp::{swiglu}",
        "<B: Dim>(x: Tensor[B, 6; T], g: Tensor[9, 6; T], u: Tensor[9, 6; T], d: Tensor[6, 9; T]) -> Tensor[B, 6; T]"
        "{ return swiglu(x, g, u, d) }",
        x,
        gate,
        up,
        down,
        numerics=numerics,
    )
    torch.testing.assert_close(op, wanted)
    block = run_std(
        "use std.nn.mlp::{SwiGlu}",
        "<B: Dim>(x: Tensor[B, 6; T]) -> Tensor[B, 6; T] { return mlp.forward(x) }",
        x,
        members="sub mlp: SwiGlu<6, 9, T>",
        weights={"mlp.gate.weight": gate, "mlp.up.weight": up, "mlp.down.weight": down},
        numerics=numerics,
    )
    torch.testing.assert_close(block, wanted)


LOSSES = {
    "token_log_probs": "token_log_probs(linear(h, w), t)",
    "linear_token_log_probs": "linear_token_log_probs(h, w, t)",
    "split_token_log_probs": "split_token_log_probs<N, 8, 11, 1, T>(h, w, t)",
}
SUMS = {
    "cross_entropy": "cross_entropy(linear(h, w), t, m)",
    "linear_cross_entropy": "linear_cross_entropy(h, w, t, m)",
    "split_cross_entropy": "split_cross_entropy<N, 8, 11, 1, T>(h, w, t, m)",
}


@both
@pytest.mark.parametrize("name", [*LOSSES, *SUMS])
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_losses(numerics, name, dtype):
    hidden, weight = random(6, 8, dtype=dtype), random(11, 8, dtype=dtype, seed=1)
    targets, mask = torch.tensor([0, 10, 3, 3, 7, 1]), torch.tensor([1.0, 0.5, 0.0, 2.0, 1.0, 1.0])
    picked = torch.log_softmax(functional.linear(hidden, weight).double(), -1)[torch.arange(6), targets]
    head = "<N: Dim>(h: Tensor[N, 8; T], w: Tensor[11, 8; T], t: Tensor[N; i64], m: Tensor[N; f32])"
    uses = f"use std.nn.loss::{{{name}}}\nuse std.nn.linear::{{linear}}"
    if name in SUMS:
        entry, wanted = f"{head} -> f32 {{ return {SUMS[name]} }}", -(picked * mask).sum()
    else:
        entry, wanted = f"{head} -> Tensor[N; f32] {{ return {LOSSES[name]} }}", picked
    found = run_std(uses, entry, hidden, weight, targets, mask, dtype=dtype, numerics=numerics)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), wanted, rtol=1e-5 if dtype == "f32" else 2e-2, atol=1e-5)


@both
def test_a_target_outside_the_vocabulary_is_an_error(numerics):
    uses = "use std.nn.loss::{token_log_probs}"
    entry = "<N: Dim>(x: Tensor[N, 4; T], t: Tensor[N; i64]) -> Tensor[N; f32] { return token_log_probs(x, t) }"
    for target in (4, -1):
        with pytest.raises(IndexRangeError):
            run_std(uses, entry, random(1, 4), torch.tensor([target]), numerics=numerics)


def test_entropy_ignores_impossible_tokens():
    x = torch.tensor([[0.0, 0.0, -math.inf], [1.0, 2.0, 3.0], [50.0, 0.0, 0.0]])
    entry = "<N: Dim, V: Dim>(x: Tensor[N, V; T]) -> Tensor[N; f32] { return entropy(x) }"
    found = run_std("use std.nn.loss::{entropy}", entry, x)
    p = torch.softmax(x.double(), -1)
    torch.testing.assert_close(found.double(), torch.special.entr(p).sum(-1), rtol=1e-5, atol=1e-6)


@both
def test_one_shard_communicates_with_nobody(numerics):
    x = random(3, 4)
    uses = "use std.nn.parallel::{all_gather, all_reduce, shared}"
    for call in ("all_reduce(x)", "shared(x)", "all_gather<R, N, 1, T>(x)"):
        entry = f"<R: Dim, N: Dim>(x: Tensor[R, N; T]) -> Tensor[R, N; T] {{ return {call} }}"
        assert torch.equal(run_std(uses, entry, x, numerics=numerics), x)


def e4m3(byte: int) -> float:
    sign, exponent, mantissa = -1.0 if byte & 128 else 1.0, byte >> 3 & 15, byte & 7
    return sign * (mantissa * 2.0**-9 if exponent == 0 else (8 + mantissa) * 2.0 ** (exponent - 10))


def test_decode_fp8_is_exact_for_every_byte():
    bits = torch.arange(256, dtype=torch.uint8)
    entry = "<N: Dim>(b: Tensor[N; u8]) -> Tensor[N; f32] { return decode_fp8(b) }"
    found = run_std("use std.quant::{decode_fp8}", entry, bits)
    assert found.tolist() == [e4m3(byte) for byte in range(256)]
    numbers = torch.tensor([byte for byte in range(256) if byte & 127 != 127], dtype=torch.uint8)
    assert torch.equal(found[numbers.long()], numbers.view(torch.float8_e4m3fn).float())
    assert torch.signbit(found[128])


@both
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("with_bias", [False, True])
def test_fp8_block_linear_against_weights_decoded_by_hand(numerics, dtype, with_bias):
    codes = torch.randint(0, 127, (8, 12), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    scale, x = random(2, 3, dtype=dtype, seed=1), random(5, 12, dtype=dtype)
    bias = random(8, dtype=dtype, seed=3)
    decoded = torch.tensor([[e4m3(c) for c in row] for row in codes.tolist()], dtype=torch.float64)
    weight = decoded * scale.double().repeat_interleave(4, 0).repeat_interleave(4, 1)
    found = run_std(
        "use std.quant::{Fp8BlockLinear}",
        "<B: Dim>(x: Tensor[B, 12; T]) -> Tensor[B, 8; T] { return layer.forward(x) }",
        x,
        dtype=dtype,
        members="sub layer: Fp8BlockLinear<12, 8, 4, T>",
        weights={"layer.weight": codes, "layer.scale": scale} | ({"layer.bias": bias} if with_bias else {}),
        numerics=numerics,
    )
    wanted = functional.linear(x.double(), weight, bias.double() if with_bias else None)
    tolerance = 1e-5 if dtype == "f32" else 4e-3
    torch.testing.assert_close(found.double(), wanted, rtol=tolerance, atol=tolerance * wanted.abs().max().item())


@both
def test_fp8_linear_has_a_scale_for_each_output(numerics):
    codes = torch.randint(128, 255, (4, 6), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    scale, x = random(4, 1, seed=1), random(2, 6)
    found = run_std(
        "use std.quant::{Fp8Linear}",
        "<B: Dim>(x: Tensor[B, 6; T]) -> Tensor[B, 4; T] { return layer.forward(x) }",
        x,
        members="sub layer: Fp8Linear<6, 4, T>",
        weights={"layer.weight": codes, "layer.scale": scale},
        numerics=numerics,
    )
    decoded = torch.tensor([[e4m3(c) for c in row] for row in codes.tolist()])
    torch.testing.assert_close(found, functional.linear(x, decoded * scale), rtol=1e-5, atol=1e-4)


def test_linalg():
    a, b = random(3, 4), random(4, 5, seed=1)

    def run(name, entry, *inputs):
        return run_std(f"use std.linalg::{{{name}}}", entry, *inputs)

    v = "<N: Dim>(a: Tensor[N; T], b: Tensor[N; T])"
    torch.testing.assert_close(run("dot", v + " -> T { return dot(a, b) }", a[0], b[:, 0]), a[0] @ b[:, 0])
    torch.testing.assert_close(
        run("outer", v + " -> Tensor[N, N; T] { return outer(a, b) }", a[0], b[:, 0]), torch.outer(a[0], b[:, 0])
    )
    m = "(a: Tensor[3, 4; T], b: Tensor[4, 5; T]) -> Tensor[3, 5; T] { return matmul(a, b) }"
    torch.testing.assert_close(run("matmul", m, a, b), a @ b)
    batched = "(a: Tensor[2, 3, 4; T], b: Tensor[2, 4, 5; T]) -> Tensor[2, 3, 5; T] { return batched_matmul(a, b) }"
    many, other = random(2, 3, 4), random(2, 4, 5, seed=1)
    torch.testing.assert_close(run("batched_matmul", batched, many, other), many @ other)
    turned = run("transpose", "(a: Tensor[3, 4; T]) -> Tensor[4, 3; T] { return transpose(a) }", a)
    assert torch.equal(turned, a.T)
