"""Backends by name."""

from __future__ import annotations

import pytest

from linnet.runner.backend import BACKENDS, find_backend
from linnet.runner.mlx import module as mlx
from linnet.runner.torch import module


def test_backends_are_found_by_name() -> None:
    assert {name: find_backend(name) for name in BACKENDS} == {"torch": module, "mlx": mlx}
    for name in BACKENDS:
        assert find_backend(name).NUMERICS == ("exact", "equivalent", "fast", "engine")
    with pytest.raises(ValueError, match="backend='jax' is not one of torch, mlx"):
        find_backend("jax")
