"""Backends by name."""

from __future__ import annotations

import pytest

from linnet.runner.backend import BACKENDS, find_backend
from linnet.runner.torch import module


def test_backends_are_found_by_name() -> None:
    assert {name: find_backend(name) for name in BACKENDS} == {"torch": module}
    assert find_backend("torch").NUMERICS == ("exact", "equivalent", "fast")
    with pytest.raises(ValueError, match="backend='jax' is not one of torch"):
        find_backend("jax")
