"""SmolLM2-135M-Instruct with the weights of its GGUF file against transformers on the same safetensors, in f32."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from linnet import nest
from linnet.convert.gguf_file import GgufFile
from linnet.convert.gguf_model import read_model

pytestmark = pytest.mark.checkpoint

PROMPT = "The lighthouse keeper climbed the stairs one last time. In 1923 the lamp had"
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture(scope="module")
def reference(smollm2_folder: Path) -> PreTrainedModel:
    return AutoModelForCausalLM.from_pretrained(smollm2_folder, dtype=torch.float32, attn_implementation="eager").eval()


@pytest.fixture(scope="module")
def model(root: Path, smollm2_folder: Path) -> nest.Model:
    """The package with the pinned file's place taken, in f32."""
    package = root / "nests" / "smollm2-135m-instruct"
    return nest.load(package, weights=smollm2_folder, dtype="f32", generics={"MaxSeq": 96}, device="cpu")


@pytest.fixture(scope="module")
def ids(smollm2_folder: Path) -> torch.Tensor:
    return AutoTokenizer.from_pretrained(smollm2_folder)(PROMPT, return_tensors="pt").input_ids


def test_logits_equal_those_of_transformers(model: nest.Model, reference: PreTrainedModel, ids: torch.Tensor) -> None:
    with torch.no_grad():
        expected = reference(ids).logits
    last = ids.shape[1] - 1
    results = [
        (model(ids), expected),
        (model.run_entry("prefill", [ids[:, :7], 0]), expected[:, 6]),
        (model.run_entry("prefill", [ids[:, 7:last], 7]), expected[:, last - 1]),
        (model.run_entry("decode", [ids[:, last:], last]), expected[:, last]),
    ]
    for got, wanted in results:
        assert got.shape == wanted.shape
        assert (got - wanted).abs().max() <= 1e-4 * expected.abs().max()


def test_twenty_greedy_tokens_are_those_of_transformers(
    model: nest.Model, reference: PreTrainedModel, ids: torch.Tensor
) -> None:
    settings = {"max_new_tokens": 20, "min_new_tokens": 20, "do_sample": False}
    expected = reference.generate(ids, **settings)[0, ids.shape[1] :].tolist()
    assert greedy(model, ids, 20) == expected


def test_it_knows_the_capital_of_france(model: nest.Model, smollm2_folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(smollm2_folder)
    ids = tokenizer.apply_chat_template(QUESTION, add_generation_prompt=True, return_tensors="pt")["input_ids"]
    answer = tokenizer.decode(greedy(model, ids, 8))
    assert answer == "The capital of France is Paris.<|im_end|>"


def greedy(model: nest.Model, ids: torch.Tensor, count: int) -> list[int]:
    """The likeliest tokens one by one, through the cache."""
    produced = [model.run_entry("prefill", [ids, 0]).argmax(-1, keepdim=True)]
    for position in range(ids.shape[1], ids.shape[1] + count - 1):
        produced.append(model.run_entry("decode", [produced[-1], position]).argmax(-1, keepdim=True))
    return torch.cat(produced, 1)[0].tolist()


def test_the_perplexity_is_that_of_transformers(root: Path, reference: PreTrainedModel, smollm2_folder: Path) -> None:
    """256 tokens of the licence in windows of 128 that begin every 64, as `nest eval` measures and in labels."""
    protocol = {"text": root / "LICENSE", "window": 128, "stride": 64, "limit_tokens": 256}
    load = {"weights": smollm2_folder, "dtype": "f32", "generics": {"MaxSeq": 128}, "device": "cpu", "offline": True}
    found = nest.evaluate(root / "nests" / "smollm2-135m-instruct", **protocol, **load).result
    ids = AutoTokenizer.from_pretrained(smollm2_folder)((root / "LICENSE").read_text()).input_ids[:256]
    total, scored, before = 0.0, 0, 0
    for begin in range(0, len(ids), 64):
        end = min(begin + 128, len(ids))
        window = torch.tensor([ids[begin:end]])
        labels = window.clone()
        labels[:, : max(before - begin, 0)] = -100
        count = int((labels[:, 1:] != -100).sum())
        with torch.no_grad():
            total += float(reference(window, labels=labels).loss) * count
        scored, before = scored + count, end
        if end == len(ids):
            break
    assert (found.tokens, scored) == (255, 255)
    expected = math.exp(total / scored)
    assert abs(found.perplexity - expected) <= 1e-3 * expected
    # Far from guessing among 49,152 tokens.
    assert expected < 20


def test_every_tensor_is_accounted_for(root: Path, smollm2_folder: Path) -> None:
    """The pinned card fits the converted weights, and so does the converted package's own."""
    for package in (root / "nests" / "smollm2-135m-instruct", smollm2_folder):
        report = nest.check(package, hub=False, smoke="none", weights=smollm2_folder, strict=True)
        assert report.ok
        assert report.section("weights").summary.startswith("134.5M parameters in 272 tensors")
        assert [finding for section in report.sections for finding in section.findings] == []


def test_the_card_says_what_the_file_says(root: Path, smollm2_gguf: Path) -> None:
    card = nest.check(root / "nests" / "smollm2-135m-instruct", hub=False, smoke="none").card
    assert card is not None
    config = read_model(GgufFile(smollm2_gguf)).config
    assert card.generics == {
        "Vocab": config["vocab_size"],
        "H": config["hidden_size"],
        "Heads": config["num_attention_heads"],
        "KvHeads": config["num_key_value_heads"],
        "HeadDim": config["head_dim"],
        "Inner": config["intermediate_size"],
        "Layers": config["num_hidden_layers"],
        "Batch": 1,
        "MaxSeq": config["max_position_embeddings"],
        "T": "bf16",
    }
    assert (config["rope_theta"], config["rms_norm_eps"], config["tie_word_embeddings"]) == (1e5, 1e-5, True)


def test_the_source_is_what_nest_convert_writes(root: Path, smollm2_folder: Path) -> None:
    package = root / "nests" / "smollm2-135m-instruct"
    files = sorted(path.name for path in (package / "src").iterdir())
    assert sorted(path.name for path in (smollm2_folder / "src").iterdir()) == files
    for name in ("attention.linnet", "lib.linnet", "norm.linnet"):
        assert (smollm2_folder / "src" / name).read_text() == (package / "src" / name).read_text()
    assert (smollm2_folder / "bindings.json").read_text() == (package / "bindings.json").read_text()


def test_weights_equal_those_that_transformers_decodes(reference: PreTrainedModel, smollm2_gguf: Path) -> None:
    """transformers has its own names and row order for GGUF: the same numbers but for the rounding to bf16."""
    decoded = load_gguf_checkpoint(smollm2_gguf, return_tensors=True, model_to_load=reference)["tensors"]
    ours = reference.state_dict()
    assert ours.keys() - decoded.keys() == {"lm_head.weight"}
    for name, value in decoded.items():
        assert torch.equal(ours[name], torch.as_tensor(value).to(torch.bfloat16).float()), name
