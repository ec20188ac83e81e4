"""GPT-2 at small sizes against transformers, on shared random weights in f32."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from transformers import GPT2Config, GPT2LMHeadModel

from linnet import nest
from linnet.runner.errors import IndexRangeError

POSITIONS = 32
SMALL = {"Vocab": 100, "Positions": POSITIONS, "H": 64, "Heads": 4, "Inner": 256, "Layers": 2, "Batch": 3}


@pytest.fixture(scope="module")
def reference() -> GPT2LMHeadModel:
    """A small GPT-2 of transformers with seeded random weights, biases and norms among them."""
    config = GPT2Config(
        n_layer=SMALL["Layers"],
        n_head=SMALL["Heads"],
        n_embd=SMALL["H"],
        n_inner=SMALL["Inner"],
        vocab_size=SMALL["Vocab"],
        n_positions=POSITIONS,
        attn_implementation="eager",
    )
    model = GPT2LMHeadModel(config).eval()
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2, generator=generator)
    return model


@pytest.fixture(scope="module")
def checkpoint(reference: GPT2LMHeadModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The weights in the layout of the published file: no prefix, no head, and a stored mask for each layer."""
    weights = {
        name.removeprefix("transformer."): tensor.contiguous()
        for name, tensor in reference.state_dict().items()
        if name != "lm_head.weight"
    }
    for layer in range(SMALL["Layers"]):
        weights[f"h.{layer}.attn.bias"] = torch.ones(POSITIONS, POSITIONS).tril()[None, None]
    path = tmp_path_factory.mktemp("gpt2") / "model.safetensors"
    save_file(weights, path)
    return path


@pytest.fixture
def tokens() -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, SMALL["Vocab"], (SMALL["Batch"], 20), generator=generator)


def load(root: Path, checkpoint: Path, numerics: str, max_seq: int = POSITIONS) -> nest.Model:
    generics = {**SMALL, "MaxSeq": max_seq}
    return nest.load(root / "nests" / "gpt2", generics=generics, weights=checkpoint, numerics=numerics, device="cpu")


def assert_agree(logits: torch.Tensor, expected: torch.Tensor) -> None:
    assert logits.shape == expected.shape
    assert (logits - expected).abs().max() <= 1e-4 * expected.abs().max()


# A cache as long as the position table, and one that is shorter.
@pytest.mark.parametrize("max_seq", [POSITIONS, 24])
@pytest.mark.parametrize("numerics", ["exact", "equivalent"])
def test_logits_are_those_of_transformers(
    root: Path, reference: GPT2LMHeadModel, checkpoint: Path, tokens: torch.Tensor, numerics: str, max_seq: int
) -> None:
    with torch.no_grad():
        expected = reference(tokens).logits
    model = load(root, checkpoint, numerics, max_seq)
    assert_agree(model(tokens), expected)
    assert_agree(model.run_entry("prefill", [tokens[:, :8], 0]), expected[:, 7])
    assert_agree(model.run_entry("prefill", [tokens[:, 8:12], 8]), expected[:, 11])
    for position in range(12, tokens.shape[1]):
        step = tokens[:, position : position + 1]
        assert_agree(model.run_entry("decode", [step, position]), expected[:, position])


@pytest.mark.parametrize("numerics", ["exact", "equivalent"])
def test_greedy_tokens_are_those_of_transformers(
    root: Path, reference: GPT2LMHeadModel, checkpoint: Path, tokens: torch.Tensor, numerics: str
) -> None:
    prompt = tokens[:, :6]
    expected = prompt
    for _ in range(12):
        with torch.no_grad():
            following = reference(expected).logits[:, -1].argmax(-1, keepdim=True)
        expected = torch.cat([expected, following], 1)
    model = load(root, checkpoint, numerics)
    produced = [model.run_entry("prefill", [prompt, 0]).argmax(-1, keepdim=True)]
    for position in range(prompt.shape[1], expected.shape[1] - 1):
        produced.append(model.run_entry("decode", [produced[-1], position]).argmax(-1, keepdim=True))
    assert torch.equal(torch.cat(produced, 1), expected[:, prompt.shape[1] :])


def test_a_token_past_the_cache_is_refused(root: Path, checkpoint: Path, tokens: torch.Tensor) -> None:
    model = load(root, checkpoint, "equivalent", max_seq=24)
    with pytest.raises(IndexRangeError, match="position 24 is outside the cache of 24 positions"):
        model.run_entry("decode", [tokens[:, :1], 24])


def test_every_stored_tensor_is_read_or_left_out_on_purpose(root: Path, checkpoint: Path, tmp_path: Path) -> None:
    package = shutil.copytree(root / "nests" / "gpt2", tmp_path / "gpt2")
    card = (package / "nest.toml").read_text()
    for name, value in {**SMALL, "MaxSeq": POSITIONS}.items():
        card = re.sub(rf"^{name} = \d+$", f"{name} = {value}", card, flags=re.MULTILINE)
    (package / "nest.toml").write_text(card)
    report = nest.check(package, hub=False, weights=checkpoint)
    assert [finding for section in report.sections for finding in section.findings] == []
    assert "2 left out" in report.section("weights").summary
    assert "full 1 entry" in report.section("smoke").summary
