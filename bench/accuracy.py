"""What qwen3-tiny and its FP8 twin know, beside each other; no timings.

Run: python bench/accuracy.py [--limit]
qwen3-tiny and its FP8 twin: perplexity on the held-out text, beside that of the text's own token frequencies, which no
unigram model of other text can beat. With --limit the exit code is 1 where a figure misses its target.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", action="store_true")
    given = parser.parse_args()
    met = tiny_pair()
    return 1 if given.limit and not met else 0


if __name__ == "__main__":
    sys.exit(main())
