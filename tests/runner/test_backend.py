"""Backends by name."""

from __future__ import annotations

import sys

import pytest

from linnet import nest
from linnet.runner.backend import BACKENDS, find_backend
from linnet.runner.torch import module


def test_backends_are_found_by_name() -> None:
    assert list(BACKENDS) == ["torch", "mlx"]
    assert find_backend("torch") is module
    assert module.NUMERICS == ("exact", "equivalent", "fast", "engine")
    with pytest.raises(ValueError, match="backend='jax' is not one of torch, mlx"):
        find_backend("jax")


def test_mlx_is_a_backend() -> None:
    mlx = pytest.importorskip("linnet.runner.mlx.module", reason="MLX is not installed", exc_type=ImportError)
    assert find_backend("mlx") is mlx
    assert mlx.NUMERICS == module.NUMERICS


def test_without_mlx_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlx.core", None)
    with pytest.raises(nest.MlxMissingError, match=r"pip install mlx on a Mac .* pip install 'mlx\[cpu\]' on Linux"):
        nest.load("qwen3-tiny", backend="mlx")
