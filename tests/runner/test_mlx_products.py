"""Products on a CPU: sums of f32 in f64, whatever the shape and however many threads share them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("mlx.core", reason="MLX is not installed")

import mlx.core as mx

from linnet import nest
from linnet.runner.mlx import functions, products
from linnet.runner.mlx.kernels.dense import rms_norm

WIDTH = 1536
# Added to it one by one in f32, ones are lost.
LARGE = 2.0**24


@pytest.mark.parametrize("inputs", [(1,), (4,), (2, 4)])
def test_small_terms_after_a_large_one_are_not_lost(inputs: tuple[int, ...]) -> None:
    x = np.ones((*inputs, WIDTH), dtype=np.float32)
    x[..., 0] = LARGE
    with mx.stream(mx.cpu):
        found = np.array(products.product(mx.array(x), mx.ones((3, WIDTH))), dtype=np.float64)
    assert found.shape == (*inputs, 3)
    assert (found == float(np.float32(LARGE + WIDTH - 1))).all()


def test_the_mean_square_of_a_norm_loses_none_either() -> None:
    x = np.ones((2, WIDTH), dtype=np.float32)
    x[:, 0] = LARGE**0.5
    exact = x / np.sqrt((LARGE + WIDTH - 1) / WIDTH)
    with mx.stream(mx.cpu):
        found = np.array(rms_norm(mx.array(x), mx.ones(WIDTH), 0.0), dtype=np.float64)
    assert np.allclose(found, exact, rtol=5e-7, atol=0.0)


@pytest.mark.parametrize("width", [1, 7, 48, 113])
@pytest.mark.parametrize("inputs", [(), (1,), (3, 1), (9,), (0,)])
@pytest.mark.parametrize("piece", [1, 200, products.PIECE])
@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16])
def test_wide_products_are_the_nearest_numbers(
    width: int, inputs: tuple[int, ...], piece: int, dtype: mx.Dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one piece and in several, on one thread and on more."""
    monkeypatch.setattr(products, "PIECE", piece)
    monkeypatch.setattr(products, "LEAST_SHARED", 100)
    random = np.random.default_rng(width)
    with mx.stream(mx.cpu):
        x, weight = (
            mx.array(random.standard_normal(shape).astype(np.float32)).astype(dtype)
            for shape in ((*inputs, width), (5, width))
        )
        found = np.array(products.wide_product(x, weight))
        wide = [np.array(part.astype(mx.float32)).astype(np.float64) for part in (x, weight)]
    expected = (wide[0] @ wide[1].T).astype(np.float32)
    assert (found.dtype, found.shape) == (np.float32, (*inputs, 5))
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("shared", [1, 2**30])
def test_few_weights_are_widened_at_a_time(shared: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor those of a model's last product before it has an input."""
    monkeypatch.setattr(products, "LEAST_SHARED", shared)
    monkeypatch.setattr(products, "PIECE", 2**12)
    model: Any = nest.load("qwen3-tiny", backend="mlx", numerics="engine", dtype="bf16", device="cpu", capacity=16)
    model.run_entry("prefill", [[list(range(8))], 0])
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    model.run_entry("decode", [[[8]], 8])
    # In f64 it takes four times what it takes in bf16.
    assert mx.get_peak_memory() - before < model.state_dict()["embedding.weight"].nbytes


def test_exponentials_in_f64_are_within_a_step() -> None:
    x = np.concatenate([np.linspace(-700, 700, 20001), np.linspace(-1, 1, 20001), [0.0, -0.0, -745.0]])
    with mx.stream(mx.cpu):
        found = np.array(functions.exp(mx.array(x, dtype=mx.float64)))
        ends = np.array(functions.exp(mx.array(np.array([np.inf, -np.inf, np.nan, 710.0]), dtype=mx.float64)))
    expected = np.exp(x)
    assert (np.abs(found - expected) <= np.spacing(expected)).all()
    assert np.array_equal(ends, [np.inf, 0.0, np.nan, np.inf], equal_nan=True)


@pytest.mark.parametrize("outputs", [1, 2, 5])
def test_fewer_outputs_than_threads(outputs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "_others", lambda: tuple(mx.new_thread_local_stream(mx.cpu) for _ in range(7)))
    with mx.stream(mx.cpu):
        found = np.array(
            products.product(mx.ones((1, products.LEAST_SHARED)), mx.ones((outputs, products.LEAST_SHARED)))
        )
    assert (found == products.LEAST_SHARED).all()
    assert found.shape == (1, outputs)


@pytest.mark.parametrize("name", ["sin", "cos"])
@pytest.mark.parametrize("most", [1.0, 10.0, 1e3, 131072.0, 999999.0])
def test_sines_in_f64_round_to_f32_as_they_should(name: str, most: float) -> None:
    x = np.concatenate([np.random.default_rng(4).uniform(-most, most, 100_000), [0.0, most, np.pi / 2, np.pi]])
    with mx.stream(mx.cpu):
        found = np.array(getattr(functions, name)(mx.array(x, dtype=mx.float64)))
    expected = getattr(np, name)(x)
    assert (np.abs(found - expected) <= 4 * np.spacing(np.abs(expected))).all()
    assert np.array_equal(found.astype(np.float32), expected.astype(np.float32))


def test_sines_of_large_numbers_are_sines() -> None:
    x = np.array([1e6, -3e9, 1e30, np.inf, np.nan], dtype=np.float32)
    with mx.stream(mx.cpu):
        found = np.array(functions.sin(mx.array(x).astype(mx.float64)))
    assert np.allclose(found[:3], np.sin(x[:3].astype(np.float64)), atol=1e-5)
    assert np.isnan(found[3:]).all()
