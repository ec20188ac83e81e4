"""The tensors of Qwen/Qwen3-8B-FP8 as its two files hold them: names, dtypes and shapes, written down by hand."""

from __future__ import annotations

import math
from pathlib import Path

from hub_server import DTYPE_BYTES, write_sparse

REPO = "Qwen/Qwen3-8B-FP8"
REVISION = "220b46e3b2180893580a4454f21f22d3ebb187d3"
FILES = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
SHARD_BYTES = 5_000_000_000

Tensor = tuple[str, str, tuple[int, ...]]


def seed_tensors() -> list[Tensor]:
    """All 651 tensors in the order of the layers, the head last."""
    tensors: list[Tensor] = [("model.embed_tokens.weight", "BF16", (151936, 4096))]
    for layer in range(36):
        prefix = f"model.layers.{layer}"
        tensors.append((f"{prefix}.input_layernorm.weight", "BF16", (4096,)))
        for name, out, inner in (("q", 4096, 4096), ("k", 1024, 4096), ("v", 1024, 4096), ("o", 4096, 4096)):
            tensors += _projection(f"{prefix}.self_attn.{name}_proj", out, inner)
        tensors += [(f"{prefix}.self_attn.{name}_norm.weight", "BF16", (128,)) for name in ("q", "k")]
        tensors.append((f"{prefix}.post_attention_layernorm.weight", "BF16", (4096,)))
        for name, out, inner in (("gate", 12288, 4096), ("up", 12288, 4096), ("down", 4096, 12288)):
            tensors += _projection(f"{prefix}.mlp.{name}_proj", out, inner)
    return [*tensors, ("model.norm.weight", "BF16", (4096,)), ("lm_head.weight", "BF16", (151936, 4096))]


def write_seed_checkpoint(root: Path) -> Path:
    """Both files, sparse, where a hub server over `root` serves them; returns their folder."""
    folder = root / REPO / REVISION
    shards: list[list[Tensor]] = [[], []]
    filled = 0
    for tensor in seed_tensors():
        filled += math.prod(tensor[2]) * DTYPE_BYTES[tensor[1]]
        shards[filled > SHARD_BYTES].append(tensor)
    for file, tensors in zip(FILES, shards, strict=True):
        write_sparse(folder / file, tensors)
    return folder


def _projection(name: str, out: int, inner: int) -> list[Tensor]:
    return [
        (f"{name}.weight", "F8_E4M3", (out, inner)),
        (f"{name}.weight_scale_inv", "BF16", (out // 128, inner // 128)),
    ]
