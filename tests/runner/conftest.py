"""What the runner's tests share: checked sources."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch
from graph_support import GraphMaker
from hypothesis import settings

from linnet.language.check import load
from linnet.language.program.binding import BoundProgram, bind
from linnet.language.program.checked import Program

# Tests run beside each other; two threads for a matrix of this size only wait for one another.
torch.set_num_threads(1)
settings.register_profile("runner", deadline=None, max_examples=50)
settings.load_profile("runner")


@pytest.fixture(scope="session")
def check_source(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Program]:
    """A checked program from source text."""

    @cache
    def check(text: str) -> Program:
        path = tmp_path_factory.mktemp("source") / "source.linnet"
        path.write_text(text)
        result = load(path)
        assert result.program is not None, [str(item) for item in result.diagnostics]
        return result.program

    return check


@pytest.fixture(scope="session")
def bind_source(check_source: Callable[[str], Program]) -> Callable[..., BoundProgram]:
    """A bound program from source text: `bind_source(text, H=8, T="f32")`."""

    def make_bound(text: str, **generics: int | str) -> BoundProgram:
        return bind(check_source(text), None, generics)

    return make_bound


@pytest.fixture(scope="session")
def seed_program(seed: Path) -> Program:
    result = load(seed / "qwen3-8b-fp8" / "src" / "lib.linnet")
    assert result.program is not None
    return result.program


@pytest.fixture
def make() -> GraphMaker:
    return GraphMaker()


@pytest.fixture(params=["torch", "mlx"])
def backend(request: pytest.FixtureRequest) -> str:
    """Each backend; MLX where it is installed."""
    if request.param == "mlx":
        pytest.importorskip("mlx.core", reason="MLX is not installed")
    return str(request.param)
