"""One row times a bf16 weight, on this CPU: plain, in oneDNN's order, and in the blocks that compiled entries use.

Run: python bench/gemv.py [--rows 1]
The weights are those of a small Llama's layers, more of them than the caches hold; the blocks lie on large pages, as
compiled entries have them, and on the usual ones. Prints bytes of weights a second,
and beside them what a plain search through memory reads; forms take turns, and each figure is the best of its turns.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

SHAPES = ((3072, 576), (576, 1536), (960, 576), (576, 576), (49152, 576))
BYTES = 200_000_000


def forms(shape: tuple[int, int], rows: int) -> tuple[int, dict[str, Callable[[], Any]]]:
    """The bytes that a turn reads, and a turn of each form."""
    import torch
    from torch.nn import functional

    from linnet.runner.torch.compiled.blocked import block_weight, linear_for, table_shape
    from linnet.runner.torch.pages import allocate, enlarge

    weights = [torch.randn(shape).bfloat16() for _ in range(-(-BYTES // (2 * shape[0] * shape[1])))]
    x = torch.randn(rows, shape[1]).bfloat16()
    small = [block_weight([weight]) for weight in weights]
    height, columns = table_shape(*shape)
    memory = allocate(len(weights) * height * columns, torch.bfloat16)
    tables = memory.view(-1, height, columns)
    large = [block_weight([weight], table=table) for weight, table in zip(weights, tables, strict=True)]
    enlarge(memory)
    ordered = [torch.ops.mkldnn._reorder_linear_weight(weight, rows) for weight in weights]
    product, packed = linear_for(rows), torch.ops.mkldnn._linear_pointwise
    return sum(weight.nbytes for weight in weights), {
        "plain": lambda: [functional.linear(x, weight) for weight in weights],
        "oneDNN's": lambda: [packed(x, weight, None, "none", [], "") for weight in ordered],
        "blocks on small pages": lambda: [product(x, *block) for block in small],
        "blocks": lambda: [product(x, *block) for block in large],
        "memory": lambda: [weight.view(torch.int16).max() for weight in weights],
    }


def best(turns: dict[str, Callable[[], Any]], runs: int) -> dict[str, float]:
    """The shortest time of each, in seconds."""
    found = dict.fromkeys(turns, float("inf"))
    for _ in range(runs):
        for name, turn in turns.items():
            begun = time.perf_counter()
            turn()
            found[name] = min(found[name], time.perf_counter() - begun)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1)
    parser.add_argument("--runs", type=int, default=8)
    given = parser.parse_args(arguments)
    import torch

    torch.set_grad_enabled(False)
    torch.set_num_threads(2)
    for shape in SHAPES:
        size, turns = forms(shape, given.rows)
        times = best(turns, given.runs)
        shown = [f"{name} {size / t / 1e9:5.1f} GB/s {times['plain'] / t:4.1f}x" for name, t in times.items()]
        print(f"{shape[0]:6} x {shape[1]:4}  " + "   ".join(shown))
    return 0


if __name__ == "__main__":
    sys.exit(main())
