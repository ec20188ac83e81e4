"""Caches of a model on MLX: how far they are filled, what is read of them, and what goes beyond."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from typing import Any

import pytest
import torch

pytest.importorskip("mlx.core", reason="MLX is not installed")

from linnet import nest
from linnet.language.program.binding import BoundProgram
from linnet.runner.errors import AllocationError, CapacityError, ContextError, InputError, PositionGapError
from linnet.runner.mlx import interpreter
from linnet.runner.mlx.dtypes import to_torch
from linnet.runner.mlx.kernels import attention, wide
from linnet.runner.mlx.module import load_model
from linnet.runner.torch import memory
from linnet.runner.torch import module as reference

PROMPT = list(range(40, 49))
CACHE = """
module cache

use std.nn.attention::{grouped_attention}
use std.nn.cache::{write_rows, write_span}

block Cache<MaxSeq: Dim, D: Dim> where MaxSeq > 1 {
    state keys: Tensor[2, 1, MaxSeq, D; f32]

    pub entry extend<S: Dim>(x: Tensor[2, 1, S, D; f32], pos: i32) -> Tensor[2, 1, S, D; f32] {
        keys = write_span(keys, x, pos)
        let at = pos + iota<i32>(S)
        let places = iota<i32>(MaxSeq)
        let seen[i, s] = places[s] <= at[i]
        return grouped_attention(x, keys, keys, 0.5, some(seen))
    }

    pub entry later(x: Tensor[2, 1, 1, D; f32], pos: i32) -> Tensor[2, 1, 2, D; f32] {
        keys = write_span(write_span(keys, x, pos), x, pos + 1)
        return keys[:, :, 0:2, :]
    }

    pub entry rows(x: Tensor[2, 1, 1, D; f32], at: Tensor[2; i32]) -> Tensor[2, 1, D; f32] {
        keys = write_rows(keys, x, at)
        return keys[:, :, 0, :]
    }
}
"""
Build = Callable[..., BoundProgram]


@pytest.mark.parametrize("numerics", ["exact", "engine", "fast"])
def test_the_length_is_known_and_calls_beyond_are_refused(numerics: str) -> None:
    model: Any = nest.load("qwen3-tiny", backend="mlx", capacity=12, numerics=numerics)
    assert model.length == 0
    model.run_entry("prefill", [[PROMPT], 0])
    assert model.length == 9
    model.run_entry("decode", [[[1]], 9])
    before = model.run_entry("decode", [[[2]], 10])
    assert model.length == 11
    for entry, inputs, error, message in (
        ("prefill", [[PROMPT], 11], CapacityError, "9 positions from 11 on make a context of 20, .* capacity of 12: "),
        ("decode", [[[1]], 12], CapacityError, "1 position from 12 on make a context of 13, .* load with capacity=13"),
        ("prefill", [[PROMPT + PROMPT], 0], CapacityError, "context of 18, which exceeds the capacity of 12"),
    ):
        with pytest.raises(error, match=message):
            model.run_entry(entry, inputs)
    # What was refused has changed nothing, and the end may be written again.
    assert model.length == 11
    assert torch.equal(to_torch(model.run_entry("decode", [[[2]], 10])), to_torch(before))
    model.run_entry("decode", [[[1]], 4])
    assert model.length == 5
    with pytest.raises(PositionGapError, match=r"position 7 leaves a gap, since the caches hold 5 positions: .* at 5"):
        model.run_entry("decode", [[[1]], 7])
    model.reset_state()
    assert model.length == 0
    with pytest.raises(PositionGapError, match=re.escape("begin again with reset_state()")):
        model.run_entry("prefill", [[PROMPT], 1])
    with pytest.raises(ContextError, match="the cache holds 12"):
        model.generate("A long time ago, in a village by the sea, there lived an old man.", max_new_tokens=1)


@pytest.mark.parametrize("capacity", [200_000_000_000, 10**12])
def test_caches_beyond_the_memory_are_refused_before_they_are_made(capacity: int) -> None:
    model: Any = nest.load("qwen3-tiny", backend="mlx", capacity=capacity, device="cpu")
    with pytest.raises(
        AllocationError, match=r"^entry prefill needs [\d,.]+ GiB more on cpu, where .* are free: "
    ) as told:
        model.run_entry("prefill", [[PROMPT], 0])
    assert told.value.needed == sum(model._bound.states()[path].size * 2 for path in model.state_paths())
    assert model.length == 0


def test_memory_is_asked_for_what_is_not_allocated_yet(bind_source: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    model = load_model(bind_source(CACHE, MaxSeq=8, D=4), {}, numerics="engine", device="cpu")
    x = torch.randn(2, 1, 1, 4)
    model.run_entry("extend", [x, 0])
    monkeypatch.setattr(memory, "free_bytes", lambda device: 255)
    monkeypatch.setattr(memory, "_swap", lambda: 0)
    model.run_entry("extend", [x, 1])
    model.reset_state()
    with pytest.raises(AllocationError, match="entry extend needs 256 bytes more on cpu, where 255 bytes are free"):
        model.run_entry("extend", [x, 0])
    monkeypatch.setattr(memory, "free_bytes", lambda device: 256)
    model.run_entry("extend", [x, 0])
    # Where nobody can tell what is free, an axis may still be longer than MLX counts.
    monkeypatch.setattr(memory, "free_bytes", lambda device: 0)
    model.resize(MaxSeq=2**31)
    with pytest.raises(InputError, match=r"on MLX a tensor .* is larger than any tensor can be: take smaller sizes"):
        model.run_entry("extend", [x, 0])


def test_what_is_written_otherwise_has_no_one_length(bind_source: Build) -> None:
    model = load_model(bind_source(CACHE, MaxSeq=8, D=4), {}, numerics="engine")
    x = torch.randn(2, 1, 1, 4)
    model.run_entry("later", [x, 0])
    assert model.length == 2
    with pytest.raises(CapacityError, match="1 position from 8 on make a context of 9"):
        model.run_entry("later", [x, 7])
    # Of two that go beyond, the one that goes furthest says what would do.
    with pytest.raises(CapacityError, match=r"1 position from 9 on make a context of 10, .* load with capacity=10"):
        model.run_entry("later", [x, 8])
    model.run_entry("rows", [x, [5, 6]])
    assert model.length is None
    model.run_entry("extend", [x, 7])
    model.resize(MaxSeq=4)
    assert model.length == 0


@pytest.mark.parametrize("numerics", ["equivalent", "engine", "fast"])
def test_attention_reads_what_is_filled(numerics: str, bind_source: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    bound = bind_source(CACHE, MaxSeq=300, D=4)
    model = load_model(bound, {}, numerics=numerics, device="cpu")
    expected = reference.load_model(bound, {}, numerics="exact")
    read: list[tuple[int, Any]] = []
    kernels = wide if numerics == "engine" else attention
    attend = kernels.attend

    def counted(query: Any, key: Any, value: Any, scale: float, mask: Any, sinks: Any) -> Any:
        read.append((key.shape[2], None if mask is None else mask if isinstance(mask, str) else "mask"))
        return attend(query, key, value, scale, mask, sinks)

    monkeypatch.setattr(kernels, "attend", counted)
    generator = torch.Generator().manual_seed(7)
    for count, pos in ((5, 0), (1, 5), (3, 6), (290, 9), (1, 299), (4, 2)):
        x = torch.randn(2, 1, count, 4, generator=generator)
        found = to_torch(model.run_entry("extend", [x, pos]))
        assert (found - expected.run_entry("extend", [x, pos])).abs().max() <= 1e-6
    causal = "causal"
    assert read == [(5, causal), (6, None), (9, causal), (299, causal), (300, None), (6, causal)]


@pytest.mark.skipif(shutil.which("g++") is None, reason="on a CPU mx.compile needs a C++ compiler")
def test_a_compiled_entry_reads_in_steps(bind_source: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter, "STEP", 8)
    bound = bind_source(CACHE, MaxSeq=20, D=4)
    options: dict[str, Any] = {"numerics": "engine", "device": "cpu"}
    walked, model = (load_model(bound, {}, compile=compiled, **options) for compiled in (False, True))
    read: list[int] = []
    attend = wide.attend

    def counted(query: Any, key: Any, value: Any, scale: float, mask: Any, sinks: Any) -> Any:
        read.append(key.shape[2])
        return attend(query, key, value, scale, mask, sinks)

    generator = torch.Generator().manual_seed(8)
    for pos in range(20):
        x = torch.randn(2, 1, 1, 4, generator=generator)
        expected = to_torch(walked.run_entry("extend", [x, pos]))
        with monkeypatch.context() as patch:
            patch.setattr(wide, "attend", counted)
            found = to_torch(model.run_entry("extend", [x, pos]))
        assert (found - expected).abs().max() <= 1e-6
    assert model.fallbacks == {}
    assert model.length == 20
    # Traced once for each step, with room for the position that is written.
    assert read == [8, 16, 20]
