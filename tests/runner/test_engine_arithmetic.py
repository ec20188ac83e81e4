"""`engine` against a plain NumPy model in f64: as a whole in f32, and each of its rounding points in bf16."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import engine_reference as engine
import numpy as np
import pytest
import torch
from engine_reference import Array, At, rounding
from engine_support import array, decoder

from linnet import nest
from linnet.language.program.binding import BoundProgram
from linnet.runner.backend import find_backend

PROMPT = "Call me Ishmael. Some years ago"
SOURCE = """
module arithmetic

use std.nn.activations::{silu}
use std.nn.attention::{causal_mask, grouped_attention}
use std.nn.linear::{linear}
use std.nn.norm::{rms_norm}
use std.nn.rope::{rope}

const THETA: f32 = 1e4

block Arithmetic<N: Dim, D: Dim> where N > 0, D % 2 == 0 {
    pub entry residual(x: Tensor[N, D; bf16], y: Tensor[N, D; bf16]) -> Tensor[N, D; bf16] {
        return x + y
    }

    pub entry norm(x: Tensor[N, D; bf16], w: Tensor[D; bf16]) -> Tensor[N, D; bf16] {
        return rms_norm(x, w, 1e-6)
    }

    pub entry product(x: Tensor[N, D; bf16], w: Tensor[N, D; bf16]) -> Tensor[N, N; bf16] {
        return linear(x, w)
    }

    pub entry logits(x: Tensor[N, D; bf16], w: Tensor[N, D; bf16]) -> Tensor[N, N; f32] {
        return cast<f32>(linear(x, w))
    }

    pub entry rotary(
        x: Tensor[1, 2, N, D; bf16],
        cosines: Tensor[N, D; bf16],
        sines: Tensor[N, D; bf16],
    ) -> Tensor[1, 2, N, D; bf16] {
        return rope(x, cosines, sines)
    }

    pub entry table(x: Tensor[1, 2, N, D; bf16]) -> Tensor[1, 2, N, D; bf16] {
        let exponents = cast<f32>(iota<i32>(D / 2)) * 2.0 / cast<f32>(D)
        let frequencies = exp(-exponents * log(THETA))
        let angles[n, i] = cast<f32>(iota<i32>(N)[n]) * frequencies[i]
        let halves = concat(angles, angles, axis = -1)
        return rope(x, cast<bf16>(cos(halves)), cast<bf16>(sin(halves)))
    }

    pub entry attention(
        q: Tensor[1, 4, N, D; bf16],
        k: Tensor[1, 2, N, D; bf16],
        v: Tensor[1, 2, N, D; bf16],
    ) -> Tensor[1, 4, N, D; bf16] {
        return grouped_attention(q, k, v, 0.25, some(causal_mask<N, N>()))
    }

    pub entry gate(g: Tensor[N, D; bf16], u: Tensor[N, D; bf16]) -> Tensor[N, D; bf16] {
        return silu(g) * u
    }

    pub entry activation(g: Tensor[N, D; bf16]) -> Tensor[N, D; bf16] {
        return silu(g)
    }
}
"""
N, D = 32, 64
# As far as another order of an f32 sum moves it.
NUDGE = 2e-6


def tensors(seed: int, *shapes: tuple[int, ...]) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator).bfloat16() for shape in shapes]


def test_the_whole_model_in_f32(backend: str) -> None:
    model: Any = nest.load("qwen3-tiny", backend=backend, numerics="engine", dtype="f32", device="cpu")
    tokens = model.tokenizer.encode(PROMPT)
    found = array(model([tokens]))[0]
    expected = decoder(model).logits(rounding("f32"), np.array(tokens))
    assert np.abs(found - expected).max() <= 1e-5
    # Through the caches, a token at a time after the first few.
    model.run_entry("prefill", [[tokens[:5]], 0])
    for i, token in enumerate(tokens[5:], 5):
        step = array(model.run_entry("decode", [[[token]], i]))[0]
        assert np.abs(step - expected[i]).max() <= 1e-5


def test_the_whole_model_in_bf16_rounds_where_it_is_said(backend: str) -> None:
    """Far nearer to the model that rounds at those points than that is to the one that rounds nowhere."""
    model: Any = nest.load("qwen3-tiny", backend=backend, numerics="engine", dtype="bf16", device="cpu")
    tokens = model.tokenizer.encode(PROMPT)
    found = array(model([tokens]))[0]
    plain = decoder(model)
    rounded, exact = (plain.logits(rounding(dtype), np.array(tokens)) for dtype in ("bf16", "f32"))
    assert np.abs(found - rounded).mean() <= np.abs(rounded - exact).mean() / 2


def test_engines_are_equal_in_bf16_and_not_by_rounding_nothing() -> None:
    pytest.importorskip("mlx.core", reason="MLX is not installed")
    for name in ("qwen3-tiny", "qwen3-tiny-fp8"):
        wide: Any = nest.load(name, numerics="exact", dtype="f32", device="cpu")
        tokens = [wide.tokenizer.encode(PROMPT)]
        truth = array(wide(tokens))
        one, other = (
            array(nest.load(name, backend=b, numerics="engine", dtype="bf16", device="cpu")(tokens))
            for b in ("torch", "mlx")
        )
        assert np.array_equal(one, other)
        assert np.abs(one - truth).mean() > 0


Reference = Callable[[At, list[Array]], Array]
CASES: dict[str, tuple[tuple[tuple[int, ...], ...], Reference, dict[str, list[str]]]] = {
    "residual": (((N, D), (N, D)), lambda at, x: engine.residual(at, *x), {"less": ["residual"]}),
    "norm": (
        ((N, D), (D,)),
        lambda at, x: engine.rms_norm(at, x[0], x[1], 1e-6),
        {"less": ["norm: normalised", "norm: scaled"], "more": ["norm: square"]},
    ),
    "product": (((N, D), (N, D)), lambda at, x: engine.linear(at, *x), {"less": ["linear"]}),
    # As the source casts: what the product has rounded stays so.
    "logits": (((N, D), (N, D)), lambda at, x: engine.linear(at, *x), {"less": ["linear"]}),
    "rotary": (
        ((1, 2, N, D), (N, D), (N, D)),
        lambda at, x: engine.rotate(at, *x),
        {"less": ["rotary"], "more": ["rotary: products"]},
    ),
    "table": (
        ((1, 2, N, D),),
        lambda at, x: engine.rotate(at, *x, *engine.rotary_tables(at, np.arange(N), D, 1e4)),
        {"less": ["rotary table", "rotary"], "more": ["rotary: products"]},
    ),
    "attention": (
        ((1, 4, N, D), (1, 2, N, D), (1, 2, N, D)),
        lambda at, x: engine.attend(at, x[0][0], x[1][0], x[2][0], 0.25, 0)[None],
        {"less": ["attention"], "more": ["attention: scores", "attention: weights"]},
    ),
    "activation": (
        ((N, D),),
        lambda at, x: engine.silu(at, *x),
        {"less": ["silu"], "more": ["silu: sigmoid"]},
    ),
    "gate": (
        ((N, D), (N, D)),
        lambda at, x: engine.gated(at, *x),
        {"less": ["silu", "gate"], "more": ["silu: sigmoid"]},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_each_rounding_point(name: str, backend: str, bind_source: Callable[..., BoundProgram]) -> None:
    """The result is the one with these roundings wherever the order of a sum cannot decide, and with one rounding
    fewer, or one more, it would be another."""
    shapes, reference, points = CASES[name]
    given = tensors(11, *shapes)
    inputs = [array(x) for x in given]
    model = find_backend(backend).load_model(bind_source(SOURCE, N=N, D=D), {}, numerics="engine", device="cpu")
    found = array(model.run_entry(name, given))
    expected = reference(rounding("bf16"), inputs)
    # The sum of two is exact in f32, and often lies just between two numbers of bf16.
    off = 0.0 if name == "residual" else NUDGE
    sides = [reference(rounding("bf16", nudge=nudge), inputs) for nudge in (-off, off)]
    sure = (sides[0] == expected) & (sides[1] == expected)
    assert sure.mean() > 0.95
    assert np.array_equal(found[sure], expected[sure])
    for change, names in points.items():
        for point in names:
            options: Any = {change: [point]}
            other = reference(rounding("bf16", **options), inputs)
            assert (found != other)[sure].any(), (change, point)


def test_each_point_is_of_a_case() -> None:
    changed = {point for _, _, points in CASES.values() for names in points.values() for point in names}
    assert changed == engine.ROUNDED | set(engine.UNROUNDED)
