"""Entries that cannot run as the model was asked to: which they are, why, and what is said.

A CUDA graph needs a GPU, so what captures is replaced here; tested is what becomes of an entry that refuses it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch

from linnet.language.program.binding import BoundProgram
from linnet.language.program.core import Graph
from linnet.runner.torch.compiled.compiler import Compiler
from linnet.runner.torch.compiled.emit import InterpretedError
from linnet.runner.torch.compiled.graphs import ReplayedEntry
from linnet.runner.torch.module import Fallback, Model, load_model
from linnet.runner.torch.weights import random_weights

SOURCE = """\
module m

use std.nn.linear::{Linear}

pub block Sums {
    sub up: Linear<4, 4, f32>
    state total: Tensor[4; f32]

    pub entry forward(x: Tensor[2, 4; f32]) -> Tensor[2, 4; f32] {
        return up.forward(x)
    }

    /// A division by zero is refused, so the state cannot be written before.
    pub entry count(n: i32) -> Tensor[4; f32] {
        total = total + cast<f32>(12 / n)
        return total
    }

    pub entry walk(n: i32, start: Tensor[2, 4; f32]) -> Tensor[2, 4; f32] {
        var x = start
        var i: i32 = 0
        while i < n {
            x = up.forward(x)
            i = i + 1
        }
        return x
    }
}
"""
WHY = "operation not permitted when stream is capturing"


@pytest.fixture
def model(bind_source: Callable[..., BoundProgram], monkeypatch: pytest.MonkeyPatch) -> Model:
    bound = bind_source(SOURCE)
    made = load_model(bound, random_weights(bound.manifest, 0), entry="forward", compile=True)
    made._mode = "reduce-overhead"
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)

    def refuse(entry: ReplayedEntry, arguments: list[object]) -> None:
        try:
            raise RuntimeError(f"CUDA error: {WHY}.\nCompile with TORCH_USE_CUDA_DSA")
        finally:
            raise RuntimeError("operation failed due to a previous error during capture")

    monkeypatch.setattr(ReplayedEntry, "_capture", refuse)
    return made


def test_an_entry_that_cannot_be_captured_says_so_once_and_runs(model: Model) -> None:
    x = torch.ones(2, 4)
    expected = model(x)
    assert model.fallbacks == {}
    said = rf"entry forward cannot be replayed as a CUDA graph \(CUDA error: {WHY}\): it runs as straight-line code"
    with pytest.warns(RuntimeWarning, match=said):
        found = model(x)
    assert torch.equal(found, expected)
    assert model.fallbacks == {"forward": Fallback(True, f"CUDA error: {WHY}")}
    assert torch.equal(model(x), expected)
    assert copy.deepcopy(model).fallbacks == model.fallbacks


def test_states_that_are_not_written_in_place_are_told(model: Model) -> None:
    with pytest.warns(RuntimeWarning, match=r"entry count cannot be .* \(it writes total anew at each run"):
        model.run_entry("count", [3])
    assert model.fallbacks["count"].mode is True
    assert model.run_entry("count", [4]).tolist() == [7, 7, 7, 7]


def test_what_cannot_be_compiled_is_interpreted(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(compiler: Compiler, graph: Graph) -> None:
        raise InterpretedError("a region reads weights or states of its own")

    monkeypatch.setattr(Compiler, "entry", refuse)
    start = torch.ones(2, 4)
    with pytest.warns(
        RuntimeWarning, match=r"entry walk cannot be .* \(a region reads .*\): it runs by the interpreter"
    ):
        found = model.run_entry("walk", [3, start])
    assert model.fallbacks["walk"].mode is False
    monkeypatch.undo()
    # What nobody asked for by name is not warned of: warnings are errors here.
    plain = load_model(model._bound, model._weights, compile=True)
    assert torch.equal(plain.run_entry("walk", [3, start]), found)
    assert plain.fallbacks == {}
