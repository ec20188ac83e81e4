"""A checkpoint whose projections are fused, made of one where they are apart."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

FUSED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}


def fuse(source: Path, target: Path, *, keep: str | None = None) -> list[str]:
    """Write `source` to `target` with `x.qkv_proj.*` for `x.q_proj.*` and so on; `keep` is a part that stays too.

    Returns the names of the fused tensors.
    """
    tensors = load_file(source)
    fused: list[str] = []
    for name in list(tensors):
        for whole, parts in FUSED.items():
            if f".{parts[0]}." in name:
                names = [name.replace(f".{parts[0]}.", f".{part}.") for part in parts]
                fused.append(name.replace(f".{parts[0]}.", f".{whole}."))
                tensors[fused[-1]] = torch.cat([tensors[part] for part in names])
                for part in names:
                    if part != keep:
                        del tensors[part]
    save_file(tensors, target)
    return fused
