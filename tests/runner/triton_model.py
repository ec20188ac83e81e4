"""Run by test_triton_model.py in a process of its own: a small FP8 model whose products are Triton's, interpreted."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from linnet.language.check import load
from linnet.language.program.binding import bind
from linnet.runner.torch.compiled import quantised_inputs
from linnet.runner.torch.compiled.entry import CompiledEntry
from linnet.runner.torch.kernels.triton import launch
from linnet.runner.torch.kernels.triton.checks import E4M3
from linnet.runner.torch.kernels.triton.scaled import distance
from linnet.runner.torch.module import load_model
from linnet.runner.torch.weights import random_weights

SMALL: dict[str, int | str] = {
    "Vocab": 64, "H": 128, "Heads": 4, "KvHeads": 2, "HeadDim": 64, "Inner": 256, "Layers": 1,
    "Batch": 1, "MaxSeq": 40, "PageSize": 4, "T": "f32",
}  # fmt: skip


# What the one layer runs on a prompt of many rows, in order.
ROUNDED = [
    "rms_norm_quantise", "rounded_product", "block_linear",
    "rms_norm_quantise", "rounded_product", "silu_mul_quantise", "rounded_product",
]  # fmt: skip


def main() -> None:
    # Triton's interpreter rounds to E4M3 wrongly: torch does that last step.
    for name in ("quantise", "rms_norm_quantise", "silu_mul_quantise"):
        setattr(launch, name, partial(rounded_by_torch, getattr(launch, name)))
    source = Path(__file__).resolve().parents[2] / "nests" / "qwen3-8b-fp8" / "src" / "lib.linnet"
    checked = load(source)
    assert checked.program is not None
    bound = bind(checked.program, "Model", SMALL)
    weights = random_weights(bound.manifest, 0)
    exact = load_model(bound, weights, numerics="exact", compile=False)
    fast = load_model(bound, weights, numerics="fast", compile=True)
    assert fast.fp8 == "stream"
    tokens = torch.tensor([[3, 1, 4, 1, 5]])
    for name, inputs in (("prefill", [tokens, 0]), ("decode", [tokens[:, :1], 5])):
        expected, found = exact.run_entry(name, inputs), fast.run_entry(name, inputs)
        assert (found - expected).abs().max() <= 1e-4 * expected.abs().max(), name
    for prepared in fast._prepared.values():
        code = code_of(prepared.graph)
        # q|k|v, o and down; gate|up with the silu between.
        assert code.count("triton_block_linear(") == 3
        assert code.count("triton_gated(") == 1
        assert "quantise" not in code
    many = torch.arange(34)[None] % 64
    fused = fast.run_entry("prefill", [many, 0])
    code = code_of([*fast._prepared.values()][-1].graph)
    assert re.findall(r"_((?:rms_norm_|silu_mul_)?quantise|rounded_product|block_linear)\(", code) == ROUNDED, code
    quantised_inputs.round_inputs = lambda graph: None
    fast._prepared.clear()
    alone = fast.run_entry("prefill", [many, 0])
    # The same numbers are rounded, or their neighbours; against the definitions, all of E4M3's three bits.
    assert distance(fused, alone) < 1e-4
    assert distance(fused, exact.run_entry("prefill", [many, 0])) < 4e-3


def code_of(graph: object) -> str:
    assert isinstance(graph, CompiledEntry)
    return graph.code


def rounded_by_torch(function: Callable[..., tuple[Tensor, Tensor]], *inputs: object) -> tuple[Tensor, Tensor]:
    values, scales = function(*inputs, dtype=torch.float32)
    return values.to(E4M3), scales


if __name__ == "__main__":
    main()
