"""The training script on a model of its architecture that is small enough for a test."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest
import torch
from safetensors.torch import save_file

from linnet import nest
from linnet.language.check import load as check_source
from linnet.language.program.binding import bind
from linnet.registry.bindings import read_bindings
from linnet.registry.card import read_card
from linnet.runner.torch.module import Model

SMALL = {"Vocab": 320, "H": 32, "Heads": 2, "KvHeads": 1, "HeadDim": 16, "Inner": 64, "Layers": 1}


@pytest.fixture
def script(root: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module, with short windows and epochs."""
    spec = importlib.util.spec_from_file_location("training_qwen3_tiny", root / "training" / "qwen3_tiny.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    short = {"WINDOW": 32, "WARM_UP_STEPS": 3, "LOG_STEPS": 4, "EVALUATION_STEPS": 100, "SAVE_STEPS": 5}
    for name, value in {**short, "LEARNING_RATE": 1e-2}.items():
        monkeypatch.setattr(module, name, value)
    return module


@pytest.fixture
def text(root: Path, script: ModuleType) -> torch.Tensor:
    """A part of the held-out text in the tokens of a small tokenizer."""
    part = (root / "nests" / "qwen3-tiny" / "held-out.txt").read_text(encoding="utf-8")[:1600]
    return script.encode(script.train_tokenizer([part], SMALL["Vocab"]), [part])


def fresh(script: ModuleType, folder: Path) -> Model:
    card = read_card(script.PACKAGE)
    program = check_source(script.PACKAGE / card.source.path).program
    assert program is not None
    manifest = bind(program, card.source.root, {**card.generics, **SMALL}).manifest
    tensors = read_bindings(script.PACKAGE, card).resolve(manifest, shrunk=True).tensors
    shapes = {tensors[entry.path]: entry.shape for entry in manifest.required()}
    save_file(script.first_weights(shapes, SMALL["Layers"]), folder / "first.safetensors")
    return nest.load(script.PACKAGE, generics=SMALL, weights=folder / "first.safetensors", trainable=True, device="cpu")


def test_it_learns_and_a_run_that_was_stopped_ends_alike(
    script: ModuleType, text: torch.Tensor, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, seen = fresh(script, tmp_path), text[: 8 * script.WINDOW]
    before = script.evaluate(first, seen)
    script.train(first, text, seen, 2, tmp_path / "whole.pt")
    printed = capsys.readouterr().out
    steps = sum(len(list(script.batches(text, epoch))) for epoch in range(2))
    assert re.findall(r"^step (\d+) of (\d+)  loss", printed, re.MULTILINE)[-1] == (str(steps), str(steps))
    after = float(re.findall(r"held-out perplexity ([0-9.]+)", printed)[-1])
    assert after < 0.7 * before

    second = fresh(script, tmp_path)
    saved = script.MasterWeights.save

    def stop(weights: object, file: Path, step: int) -> None:
        saved(weights, file, step)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(script.MasterWeights, "save", stop)
        with pytest.raises(KeyboardInterrupt):
            script.train(second, text, seen, 2, tmp_path / "stopped.pt")
    third = fresh(script, tmp_path)
    script.train(third, text, seen, 2, tmp_path / "stopped.pt")
    for (path, whole), resumed in zip(first.state_dict().items(), third.state_dict().values(), strict=True):
        assert torch.equal(whole, resumed), path


def test_windows_cover_the_text_once_in_an_order_of_their_epoch(script: ModuleType) -> None:
    text = torch.arange(10_000, dtype=torch.int32)
    epochs = []
    for epoch in (0, 0, 1):
        windows = torch.cat(list(script.batches(text, epoch)))
        assert windows.shape[1] == script.WINDOW + 1
        starts = windows[:, 0]
        assert bool((windows == starts[:, None] + torch.arange(script.WINDOW + 1)).all())
        assert len(starts.unique()) == len(starts) >= len(text) // script.WINDOW - 1 - script.WINDOWS_A_STEP
        assert int((starts % script.WINDOW).unique().numel()) == 1
        epochs.append(starts.tolist())
    assert epochs[0] == epochs[1] != epochs[2]


def test_the_unigram_figure(script: ModuleType) -> None:
    train, held_out = torch.tensor([0, 0, 1]), torch.tensor([0, 2])
    # Counts 2, 1, 0 with one added to each: 3/6 and 1/6.
    assert script.unigram_perplexity(train, held_out, 3) == pytest.approx((2 * 6) ** 0.5)
