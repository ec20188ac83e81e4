"""Run by test_triton_model.py in a process of its own: a small FP8 model whose products are Triton's, interpreted."""

from __future__ import annotations

from pathlib import Path

import torch

from linnet.language.check import load
from linnet.language.program.binding import bind
from linnet.runner.torch.compiled.entry import CompiledEntry
from linnet.runner.torch.module import load_model
from linnet.runner.torch.weights import random_weights

SMALL: dict[str, int | str] = {
    "Vocab": 64, "H": 128, "Heads": 4, "KvHeads": 2, "HeadDim": 64, "Inner": 256, "Layers": 1,
    "Batch": 1, "MaxSeq": 8, "PageSize": 4, "T": "f32",
}  # fmt: skip


def main() -> None:
    source = Path(__file__).resolve().parents[2] / "nests" / "qwen3-8b-fp8" / "src" / "lib.linnet"
    checked = load(source)
    assert checked.program is not None
    bound = bind(checked.program, "Model", SMALL)
    weights = random_weights(bound.manifest, 0)
    exact = load_model(bound, weights, numerics="exact", compile=False)
    fast = load_model(bound, weights, numerics="fast", compile=True)
    assert fast.fp8 == "stream"
    tokens = torch.tensor([[3, 1, 4, 1, 5]])
    for entry, inputs in (("prefill", [tokens, 0]), ("decode", [tokens[:, :1], 5])):
        expected, found = exact.run_entry(entry, inputs), fast.run_entry(entry, inputs)
        assert (found - expected).abs().max() <= 1e-4 * expected.abs().max(), entry
    for prepared in fast._prepared.values():
        assert isinstance(prepared.graph, CompiledEntry)
        # q|k|v, o and down; gate|up with the silu between.
        assert prepared.graph.code.count("triton_block_linear(") == 3
        assert prepared.graph.code.count("triton_gated(") == 1


if __name__ == "__main__":
    main()
