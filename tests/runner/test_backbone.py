"""`qwen3-backbone-tiny`, which takes embeddings and gives hidden states, on both backends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from engine_reference import linear, rounding
from engine_support import array, decoder

from linnet import nest
from linnet.runner.errors import CapacityError, IndexRangeError
from linnet.runner.torch.weights import random_weights

NAME = "qwen3-backbone-tiny"
IDS = [72, 101, 108, 108, 111, 44, 32, 119]


def load(backend: str, **options: Any) -> Any:
    return nest.load(NAME, backend=backend, numerics="engine", device="cpu", **options)


def test_the_package_checks_and_has_the_weights_that_it_says(root: Path) -> None:
    report = nest.check(root / "nests" / NAME, hub=False, smoke="full", strict=True)
    assert report.ok
    model: Any = load("torch")
    weights = random_weights(model._bound.manifest, 0)
    assert all(torch.equal(value, weights[path]) for path, value in model.state_dict().items())


def test_hidden_states_in_spans_are_those_of_the_whole(backend: str) -> None:
    model = load(backend, dtype="f32")
    x = model.run_entry("embed_tokens", [IDS])
    reference = decoder(model)
    assert np.array_equal(array(x), reference.weights["embedding.weight"][IDS])
    expected = reference.hidden(rounding("f32"), array(x))
    parts = [array(model(x[start:stop])) for start, stop in ((0, 5), (5, 6), (6, 8))]
    assert np.abs(np.concatenate(parts) - expected).max() <= 1e-5 * np.abs(expected).max()
    if backend == "mlx":
        assert model.length == len(IDS)
    model.reset_state()
    again = array(model(x))
    assert np.abs(again - expected).max() <= 1e-5 * np.abs(expected).max()


def test_the_extra_head_widens_what_its_product_has_rounded(backend: str) -> None:
    model = load(backend)
    hidden = model(model.run_entry("embed_tokens", [IDS]))
    logits = model.run_entry("cb0_logits", [hidden])
    assert str(logits.dtype).endswith("float32")
    assert tuple(logits.shape) == (len(IDS), 2049)
    found = array(logits)
    expected = linear(rounding("bf16"), array(hidden), decoder(model).weights["cb0_head.weight"])
    # Ties may fall on either side.
    assert (found == expected).mean() > 0.99
    assert np.abs(found - expected).max() <= np.abs(expected).max() / 128


def test_a_text_ends_where_the_cache_does(backend: str) -> None:
    model = load(backend, capacity=16)
    x = model.run_entry("embed_tokens", [IDS])
    model(x)
    model(x[:6])
    error, message = (
        (CapacityError, "4 positions from 14 on make a context of 18, which exceeds the capacity of 16")
        if backend == "mlx"
        else (IndexRangeError, "position 17 is outside the cache of 16 positions")
    )
    with pytest.raises(error, match=message):
        model(x[:4])
    # Which has changed nothing.
    assert array(model(x[:2])).shape == (2, 64)


def test_the_backends_agree() -> None:
    pytest.importorskip("mlx.core", reason="MLX is not installed")
    one, other = (load(backend, dtype="f32") for backend in ("torch", "mlx"))
    for ids in (IDS, IDS[:1], IDS[2:5]):
        a, b = (model(model.run_entry("embed_tokens", [ids])) for model in (one, other))
        assert np.abs(array(a) - array(b)).max() <= 1e-5
        logits, codes = (array(model.run_entry("cb0_logits", [x])) for model, x in ((one, a), (other, b)))
        assert np.abs(logits - codes).max() <= 1e-5
