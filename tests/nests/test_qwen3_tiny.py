"""The tiny Qwen3 and its FP8 twin, with their trained weights: against transformers, and one against the other."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from transformers import AutoConfig, AutoTokenizer, Qwen3ForCausalLM

from linnet import nest

PLAIN, QUANTIZED = "qwen3-tiny", "qwen3-tiny-fp8"
# Perplexity is measured on so many tokens of the held-out text: enough for the relations, and quick.
TOKENS = 3072


@pytest.fixture(scope="module")
def held_out(root: Path) -> str:
    return (root / "nests" / PLAIN / "held-out.txt").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def ids(root: Path, held_out: str) -> torch.Tensor:
    """The held-out text as tokens [N] i32."""
    tokenizer = Tokenizer.from_file(str(root / "nests" / PLAIN / "tokenizer.json"))
    return torch.tensor(tokenizer.encode(held_out).ids, dtype=torch.int32)


@pytest.mark.parametrize("name", [PLAIN, QUANTIZED])
def test_a_package_passes_with_its_weights(root: Path, name: str) -> None:
    report = nest.check(root / "nests" / name, hub=False, smoke="full", strict=True)
    assert report.ok, [str(finding) for section in report.sections for finding in section.findings]
    assert "full 1 entry" in report.section("smoke").summary
    weights = root / "nests" / name / "model.safetensors"
    assert weights.stat().st_size < 8 << 20
    assert weights.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(("dtype", "tolerance"), [("f32", 1e-4), ("bf16", 0.02)])
def test_transformers_loads_the_folder_and_agrees(root: Path, ids: torch.Tensor, dtype: str, tolerance: float) -> None:
    native = {"f32": torch.float32, "bf16": torch.bfloat16}[dtype]
    reference = Qwen3ForCausalLM.from_pretrained(root / "nests" / PLAIN, dtype=native).eval()
    model = nest.load(PLAIN, dtype=dtype, device="cpu")
    text = ids[:192].view(2, 96)
    with torch.no_grad():
        wanted = reference(text.long()).logits.float()
    assert (model(text).float() - wanted).abs().max() <= tolerance * wanted.abs().max()


def test_greedy_text_is_transformers(root: Path, ids: torch.Tensor) -> None:
    reference = Qwen3ForCausalLM.from_pretrained(root / "nests" / PLAIN, dtype=torch.float32).eval()
    model = nest.load(PLAIN, dtype="f32", device="cpu")
    prompt = ids[None, :24]
    wanted = reference.generate(prompt.long(), max_new_tokens=24, do_sample=False, eos_token_id=None, pad_token_id=0)
    first = model.run_entry("prefill", [prompt, 0]).argmax(-1, keepdim=True)
    others = model.run_entry("generate", [first, 24], {"Steps": 23})
    assert torch.cat((first, others), 1).tolist() == wanted[:, 24:].tolist()


def test_transformers_reads_the_tokenizer_alike(root: Path, ids: torch.Tensor, held_out: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(root / "nests" / PLAIN)
    assert tokenizer(held_out)["input_ids"] == ids.tolist()
    assert tokenizer.decode(ids.tolist()) == held_out
    assert tokenizer.eos_token_id == 0


def test_the_twin_is_what_quantize_makes(root: Path, tmp_path: Path) -> None:
    made = nest.quantize(PLAIN, tmp_path / QUANTIZED, fp8_block=128).folder
    shipped = root / "nests" / QUANTIZED
    files = sorted(path.relative_to(made) for path in made.rglob("*") if path.is_file())
    kept = [path.relative_to(shipped) for path in shipped.rglob("*") if path.is_file() and path.name != "bench.json"]
    assert files == sorted(kept)
    for file in files:
        # The README has what was measured, too.
        if file.name != "README.md":
            assert (made / file).read_bytes() == (shipped / file).read_bytes(), file


def test_the_twins_tensors_are_named_and_scaled_as_transformers_expects(root: Path, ids: torch.Tensor) -> None:
    """Decoded by hand under their names, they fill transformers' model, which then computes the twin's logits."""
    config = AutoConfig.from_pretrained(root / "nests" / QUANTIZED)
    assert config.quantization_config["weight_block_size"] == [128, 128]
    weights = load_file(root / "nests" / QUANTIZED / "model.safetensors")
    decoded = {}
    for name, tensor in weights.items():
        if tensor.dtype == torch.float8_e4m3fn:
            scale = weights[f"{name}_scale_inv"].float().repeat_interleave(128, 0).repeat_interleave(128, 1)
            decoded[name] = tensor.float() * scale
        elif not name.endswith("_scale_inv"):
            decoded[name] = tensor.float()
    reference = Qwen3ForCausalLM(AutoConfig.from_pretrained(root / "nests" / PLAIN)).float().eval()
    reference.load_state_dict(decoded, strict=True)
    # In bf16, as the scales are: f32 inputs would need f32 scales, so the wide model is the reference.
    model = nest.load(QUANTIZED, device="cpu")
    text = ids[None, :128]
    with torch.no_grad():
        wanted = reference(text.long()).logits
    assert (model(text).float() - wanted).abs().max() <= 0.02 * wanted.abs().max()


def test_fp8_costs_less_than_two_percent_of_perplexity(root: Path, ids: torch.Tensor) -> None:
    file = root / "nests" / PLAIN / "held-out.txt"
    plain, quantized = (
        nest.evaluate(name, text=file, limit_tokens=TOKENS, batch=4, device="cpu").result.perplexity
        for name in (PLAIN, QUANTIZED)
    )
    assert quantized <= 1.02 * plain
    # No unigram model does better than the one that knows the text's own frequencies.
    counts = Counter(ids[:TOKENS].tolist())
    entropy = -sum(n / TOKENS * math.log(n / TOKENS) for n in counts.values())
    assert max(plain, quantized) < math.exp(entropy) / 4
