"""A package small enough to check, load and show within a test, and command lines run as users run them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

CARD = """\
[model]
name = "tiny"
title = "Tiny"
summary = "Two linear layers."
license = "Apache-2.0"
family = "mlp"
tags = ["test"]

[source]
path = "lib.linnet"
root = "Tiny"
entry = "forward"

[generics]
In = 3
Hidden = 4
T = "f32"

[check]
B = 2

[weights]
files = ["model.safetensors"]
bindings = "bindings.json"
"""

SOURCE = """\
module tiny

use std.nn.linear::{Linear}
use std.nn.activations::{relu}

/// Two layers.
pub block Tiny<In: Dim, Hidden: Dim, T: Float = f32> where In > 0, Hidden > 0 {
    sub up: Linear<In, Hidden, T>
    sub down: Linear<Hidden, In, T>

    /// One value out for each value in.
    pub entry forward<B: Dim>(x: Tensor[B, In; T]) -> Tensor[B, In; T] {
        return down.forward(relu(up.forward(x)))
    }
}
"""

BINDINGS = '{"up.weight": "fc1.weight", "up.bias": "fc1.bias", "down.weight": "fc2.weight"}\n'


@pytest.fixture
def tensors() -> dict[str, torch.Tensor]:
    """The checkpoint of the tiny package."""
    generator = torch.Generator().manual_seed(0)
    shapes = {"fc1.weight": (4, 3), "fc1.bias": (4,), "fc2.weight": (3, 4)}
    drawn = {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    # A rectifier that lets nothing through would make all outputs equal, which the smoke test refuses.
    return {**drawn, "fc1.bias": drawn["fc1.bias"].abs() + 4}


@pytest.fixture
def tiny(tmp_path: Path, tensors: dict[str, torch.Tensor]) -> Path:
    """A complete package with its weights beside the card."""
    folder = tmp_path / "nests" / "tiny"
    folder.mkdir(parents=True)
    (folder / "nest.toml").write_text(CARD)
    (folder / "lib.linnet").write_text(SOURCE)
    (folder / "bindings.json").write_text(BINDINGS)
    (folder / "README.md").write_text("# Tiny\n\nTwo linear layers.\n")
    save_file(tensors, folder / "model.safetensors")
    return folder


Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run `nest ...` or `linnet ...` in a fresh process, in an empty folder; `before` is Python that runs first."""
    here = tmp_path / "here"
    here.mkdir()

    def command(*words: str | Path, before: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        program, *rest = map(str, words)
        code = f"{before}from linnet.cli.{program}_main import main; main()"
        settings = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "LINNET_DEBUG")}
        return subprocess.run(
            [sys.executable, "-W", "error", "-c", code, *rest],
            cwd=here,
            env={**settings, **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    return command
