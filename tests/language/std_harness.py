"""Runs ops of the standard library through small programs, each with one entry that calls the op."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from linnet.language.check import load
from linnet.language.program.binding import BoundProgram, bind
from linnet.runner.torch.module import load_model

NUMERICS = ("exact", "equivalent")
DTYPES = {"f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


@cache
def _program(uses: str, entry: str, dtype: str, members: str, generics: tuple[tuple[str, int], ...]) -> BoundProgram:
    names = "".join(f"{name}: Dim, " for name, _ in generics)
    text = f"module harness\n{uses}\npub block Root<{names}T: Float> {{\n    {members}\n    pub entry run{entry}\n}}\n"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "harness.linnet"
        path.write_text(text)
        result = load(path)
    assert result.program is not None, "\n".join(f"{d.code} {d.message}" for d in result.diagnostics)
    return bind(result.program, "Root", {**dict(generics), "T": dtype})


def run_std(
    uses: str,
    entry: str,
    *inputs: Any,
    dtype: str = "f32",
    numerics: str = "exact",
    generics: Mapping[str, int | str] | None = None,
    members: str = "",
    weights: Mapping[str, Tensor] | None = None,
    block_generics: Mapping[str, int] | None = None,
    trainable: bool = False,
) -> Any:
    """What `entry` (a signature and body: `(x: Tensor[N; T]) -> f32 { return .. }`) gives for `inputs`.

    `T` is the block's dtype generic; `uses` are the program's imports; `generics` are the entry's own that its inputs
    do not determine; `members` and `weights` give the block parameters. `trainable` keeps gradients.
    Programs are cached by their source.
    """
    bound = _program(uses, entry, dtype, members, tuple((block_generics or {}).items()))
    model = load_model(bound, dict(weights or {}), entry="run", numerics=numerics, trainable=trainable)
    return model.run_entry("run", list(inputs), generics or {})


def random(*shape: int, dtype: str = "f32", seed: int = 0, scale: float = 1.0) -> Tensor:
    """Normal draws times `scale`."""
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(shape, generator=generator, dtype=torch.float64) * scale).to(DTYPES[dtype])


def assert_within_one_rounding(found: Tensor, wide: Tensor) -> None:
    """`found` is the f64 `wide` rounded to `found`'s dtype once, or its neighbour where the order of a sum decides."""
    eps = torch.finfo(found.dtype).eps
    torch.testing.assert_close(found.double(), wide.double(), rtol=max(eps * 0.51, 1e-6), atol=5e-6)
