"""Timing a model in this process: what is counted, and what is refused. The figures themselves are not tested."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from text_package import TextPackage, write_text_package

from linnet import nest
from linnet.runner import bench
from linnet.runner.errors import GenerationError, NonFiniteError
from linnet.runner.torch.module import Model

SIZES = {"prompt": 12, "new": 7}


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> TextPackage:
    return write_text_package(tmp_path_factory.mktemp("packages") / "text")


def load(package: Path, **generics: int) -> Model:
    return nest.load(package, device="cpu", numerics="fast", generics={"MaxSeq": 19, **generics})


def test_a_model_is_loaded_once_and_timed(package: TextPackage) -> None:
    calls = []

    def once() -> Model:
        calls.append(load(package.folder))
        return calls[-1]

    model, timing = bench.time_model(once, **SIZES, seed=0, device="cpu")
    assert [model] == calls
    assert 0 < timing.load_seconds < timing.load_and_first_token_seconds
    assert timing.time_to_first_token_seconds > 0
    assert math.isfinite(timing.decode_tokens_per_second)
    assert timing.decode_tokens_per_second > 0
    assert timing.peak_memory_bytes is not None
    assert timing.peak_memory_bytes > 0
    # The caches hold exactly what was asked for.
    assert bench.cache_bytes(model) == 2 * 2 * 19 * 32 * 4


def test_the_steps_that_are_timed(package: TextPackage, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[tuple[str, tuple[int, ...], int]] = []
    tokens: list[list[int]] = []
    run = Model.run_entry

    def watched(self: Model, name: str, inputs: list[object]) -> torch.Tensor:
        ids, position = inputs
        assert isinstance(ids, torch.Tensor)
        assert isinstance(position, int)
        steps.append((name, tuple(ids.shape), position))
        logits: torch.Tensor = run(self, name, inputs)
        tokens.append(logits.argmax(-1).tolist())
        return logits

    monkeypatch.setattr(Model, "run_entry", watched)
    bench.time_model(lambda: load(package.folder, Batch=2), **SIZES, seed=3, device="cpu")
    prompt, decode = ("prefill", (2, 12), 0), [("decode", (2, 1), 12 + i) for i in range(6)]
    assert steps == [prompt, *decode[: bench.WARM_STEPS], *[prompt] * bench.PROMPTS, *decode]
    # A prompt that is read again begins from empty caches, so that the text is the same.
    first = bench.WARM_STEPS + 1
    assert tokens[:first] == tokens[first + bench.PROMPTS - 1 :][:first]


def test_the_prompt_is_the_same_everywhere() -> None:
    ids = bench.random_tokens(330, 2, 500, 0)
    assert ids.shape == (2, 500)
    assert int(ids.min()) >= 0
    assert int(ids.max()) < 330
    assert torch.equal(ids, bench.random_tokens(330, 2, 500, 0))
    assert not torch.equal(ids, bench.random_tokens(330, 2, 500, 1))


def test_memory_is_the_growth_since_the_start() -> None:
    meter = bench._MemoryMeter(torch.device("cpu"))
    held = torch.ones(16 << 20)
    size = held.numel() * 4
    del held
    peak = meter.peak()
    assert peak is not None
    assert peak > 0.9 * size
    # What was given back before does not count.
    again = bench._MemoryMeter(torch.device("cpu")).peak()
    assert again is not None
    assert again < size / 2


def test_logits_that_are_nan_are_told_with_their_place(tmp_path: Path) -> None:
    package = write_text_package(tmp_path / "text")
    file = package.folder / "model.safetensors"
    weights = load_file(file)
    weights["ln_f.bias"][3] = torch.nan
    save_file(weights, file)
    with pytest.raises(NonFiniteError, match=r"after 12 tokens are not all numbers: NaN appears first in norm"):
        bench.time_model(lambda: load(package.folder), **SIZES, seed=0, device="cpu")


def test_a_model_without_the_entries_is_refused() -> None:
    encoder = nest.load("all-minilm-l6-v2", device="meta")
    with pytest.raises(GenerationError, match="needs the entries prefill and decode"):
        bench.time_model(lambda: encoder, **SIZES, seed=0, device="cpu")


def test_the_environment_is_described() -> None:
    found = bench.describe_environment("cpu")
    assert found["torch"] == str(torch.__version__)
    assert found["device"] == "cpu"
    assert found["cuda"] is None
    assert found["threads"] == torch.get_num_threads()
    assert found["device_name"].strip()
    assert found["system"].split()[0] in ("Linux", "Darwin", "Windows")


def test_fp8_means_something_where_there_are_such_weights(root: Path) -> None:
    assert bench.fp8_weights(nest.load(root / "nests" / "qwen3-tiny-fp8", device="meta", numerics="fast"))
    assert not bench.fp8_weights(nest.load(root / "nests" / "qwen3-tiny-fp8", device="meta"))
    assert not bench.fp8_weights(nest.load(root / "nests" / "qwen3-tiny", device="meta", numerics="fast"))
