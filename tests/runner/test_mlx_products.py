"""Sums in f32 on a CPU lose no more than partial sums do."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("mlx.core", reason="MLX is not installed")

import mlx.core as mx

from linnet.runner.mlx import products
from linnet.runner.mlx.kernels.dense import rms_norm

WIDTH = 1536
# Added to it one by one in f32, ones are lost.
LARGE = 2.0**24


@pytest.mark.parametrize("inputs", [(1,), (products.FEW_INPUTS,), (2, products.FEW_INPUTS)])
def test_small_terms_after_a_large_one_are_not_all_lost(inputs: tuple[int, ...]) -> None:
    x = np.ones((*inputs, WIDTH), dtype=np.float32)
    x[..., 0] = LARGE
    with mx.stream(mx.cpu):
        found = np.array(products.product(mx.array(x), mx.ones((3, WIDTH))), dtype=np.float64)
    assert found.shape == (*inputs, 3)
    assert (np.abs(found - (LARGE + WIDTH - 1)) <= WIDTH / products.MOST_COPIES).all()


def test_the_mean_square_of_a_norm_neither() -> None:
    x = np.ones((2, WIDTH), dtype=np.float32)
    x[:, 0] = LARGE**0.5
    exact = x / np.sqrt((LARGE + WIDTH - 1) / WIDTH)
    with mx.stream(mx.cpu):
        found = np.array(rms_norm(mx.array(x), mx.ones(WIDTH), 0.0), dtype=np.float64)
    assert np.allclose(found, exact, rtol=5e-6, atol=0.0)


@pytest.mark.parametrize("width", [1, 7, 48, 113])
@pytest.mark.parametrize("inputs", [(), (1,), (3, 1), (9,), (0,)])
@pytest.mark.parametrize("most", [1, products.MOST_TERMS])
def test_products_of_any_shape(width: int, inputs: tuple[int, ...], most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With room for the terms, and without."""
    monkeypatch.setattr(products, "MOST_TERMS", most)
    monkeypatch.setattr(products, "MOST_SUMS", most)
    monkeypatch.setattr(products, "LEAST_SHARED", 100)
    monkeypatch.setattr(products, "LONG_SUM", 0)
    random = np.random.default_rng(width)
    x, weight = (random.standard_normal(shape).astype(np.float32) for shape in ((*inputs, width), (5, width)))
    with mx.stream(mx.cpu):
        found = np.array(products.product(mx.array(x), mx.array(weight)))
    assert found.shape == (*inputs, 5)
    assert np.allclose(found, x.astype(np.float64) @ weight.T.astype(np.float64), rtol=0.0, atol=1e-5)


@pytest.mark.parametrize("outputs", [1, 2, 5])
def test_fewer_outputs_than_threads(outputs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "_others", lambda: tuple(mx.new_thread_local_stream(mx.cpu) for _ in range(7)))
    with mx.stream(mx.cpu):
        found = np.array(
            products.product(mx.ones((1, products.LEAST_SHARED)), mx.ones((outputs, products.LEAST_SHARED)))
        )
    assert (found == products.LEAST_SHARED).all()
    assert found.shape == (1, outputs)


@pytest.mark.parametrize(("length", "most", "parts"), [(576, 32, 32), (1536, 8, 8), (7, 32, 7), (37, 32, 1), (1, 8, 1)])
def test_parts_are_equal_and_as_many_as_may_be(length: int, most: int, parts: int) -> None:
    assert products.equal_parts(length, most) == parts
