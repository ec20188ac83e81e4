"""`std.random` against stored vectors of jax.random, and what it says of its distributions."""

from __future__ import annotations

import json
import math

import pytest
import torch
from std_harness import DTYPES, random, run_std

USES = "use std.random::{bits, categorical, fold_in, normal, split, uniform}"


@pytest.fixture(scope="module")
def vectors(root):
    return json.loads((root / "tests" / "data" / "jax_random.json").read_text())["cases"]


def test_split_bits_uniform_and_fold_in_are_jaxs(vectors):
    assert len(vectors) >= 4
    for case in vectors:
        key = torch.tensor(case["key"])
        assert (
            run_std(USES, "(k: Tensor[2; i64]) -> Tensor[5, 2; i64] { return split<5>(k) }", key).tolist()
            == case["split"]
        )
        assert (
            run_std(USES, "(k: Tensor[2; i64]) -> Tensor[9; i64] { return bits<9>(k) }", key).tolist() == case["bits"]
        )
        uniform = run_std(USES, "(k: Tensor[2; i64]) -> Tensor[9; f32] { return uniform<9, f32>(k) }", key)
        assert uniform.tolist() == case["uniform"]
        for fold in case["fold_in"]:
            entry = "(k: Tensor[2; i64], d: i32) -> Tensor[2; i64] { return fold_in(k, d) }"
            assert run_std(USES, entry, key, fold["data"]).tolist() == fold["key"]


@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32", "f64"])
def test_uniform_stays_below_one_in_every_dtype(dtype):
    entry = "(k: Tensor[2; i64]) -> Tensor[20000; T] { return uniform<20000, T>(k) }"
    found = run_std(USES, entry, torch.tensor([0, 7]), dtype=dtype)
    assert found.dtype == DTYPES[dtype]
    assert found.min() >= 0
    assert found.max() < 1
    assert found.double().mean() == pytest.approx(0.5, abs=0.01)
    assert found.double().var() == pytest.approx(1 / 12, abs=0.003)


def test_normal_has_the_moments_and_tails_of_the_normal_distribution():
    found = run_std(
        USES, "(k: Tensor[2; i64]) -> Tensor[40000; T] { return normal<40000, T>(k) }", torch.tensor([1, 2])
    )
    x = found.double()
    assert torch.isfinite(x).all()
    assert x.mean() == pytest.approx(0, abs=0.02)
    assert x.var() == pytest.approx(1, abs=0.03)
    assert x.pow(4).mean() == pytest.approx(3, abs=0.2)
    for edge in (-1.0, 0.0, 1.5):
        assert (x < edge).double().mean() == pytest.approx(0.5 * math.erfc(-edge / math.sqrt(2)), abs=0.01)


def test_categorical_draws_in_proportion_and_is_fixed_by_its_key():
    logits = torch.tensor([0.0, 1.0, 2.0, -math.inf]).repeat(20000, 1)
    entry = "<B: Dim>(k: Tensor[2; i64], x: Tensor[B, 4; T]) -> Tensor[B; i32] { return categorical(k, x) }"
    found = run_std(USES, entry, torch.tensor([3, 4]), logits)
    shares = torch.bincount(found, minlength=4) / 20000
    torch.testing.assert_close(shares, torch.softmax(logits[0], -1), rtol=0, atol=0.01)
    assert torch.equal(found, run_std(USES, entry, torch.tensor([3, 4]), logits))
    assert not torch.equal(found, run_std(USES, entry, torch.tensor([3, 5]), logits))
    one = run_std(
        USES,
        "(k: Tensor[2; i64], x: Tensor[1, 1; T]) -> Tensor[1; i32] { return categorical(k, x) }",
        torch.tensor([0, 0]),
        random(1, 1),
    )
    assert one.tolist() == [0]
