"""The package `stack`, two layers and an optional bias, which tests of the gate publish and then change."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from linnet.registry.check import check_package
from linnet.registry.gate import compare
from linnet.registry.gate_findings import GateFinding
from linnet.registry.gate_places import Places
from linnet.registry.gate_snapshot import Snapshot, working_snapshot
from linnet.registry.locate import Located

CARD = """\
[model]
name = "stack"
title = "Stack"
summary = "Two layers."
license = "MIT"
family = "test"
tags = ["test"]

[source]
path = "src/lib.linnet"
root = "Model"
entry = "forward"

[generics]
N = 4
Layers = 2
T = "f32"

[weights]
files = ["model.safetensors"]
bindings = "bindings.json"
"""
SOURCE = """\
module stack

use std.nn.linear::{Linear}

/// One layer.
pub block Layer<N: Dim, T: Float> {
    /// Its weights.
    sub up: Linear<N, N, T>
    sub down: Linear<N, N, T>

    /// Both in turn.
    pub fn forward<B: Dim>(x: Tensor[B, N; T]) -> Tensor[B, N; T] {
        return down.forward(up.forward(x))
    }
}

/// The layers in turn.
pub block Model<N: Dim, Layers: Dim, T: Float = f32> {
    sub layers: [Layer<N, T>; Layers]
    param shift: Tensor[N; T]

    /// What the layers make of x.
    pub entry forward<B: Dim>(x: Tensor[B, N; T]) -> Tensor[B, N; T] {
        var y = x
        static for layer in layers {
            y = layer.forward(y)
        }
        let z[b, n] = y[b, n] + shift[n]
        return z
    }

    /// The input twice.
    pub entry twice<B: Dim>(x: Tensor[B, N; T], times: i32 = 2) -> Tensor[B, N; T]
        where B > 0
    {
        return x + x
    }
}
"""
BINDINGS = """\
{
  "layers.{i}.up.weight": "h.{i}.up",
  "layers.{i}.down.weight": "h.{i}.down",
  "shift": "shift"
}
"""
TENSORS = {f"h.{i}.{name}": (4, 4) for i in range(2) for name in ("up", "down")} | {"shift": (4,)}


def write_tensors(file: Path, shapes: dict[str, tuple[int, ...]], seed: int = 0) -> None:
    generator = torch.Generator().manual_seed(seed)
    save_file({name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}, file)


@dataclass
class Stack:
    """A folder with the package, and how it was when it was made."""

    folder: Path
    before: Snapshot

    def edit(self, file: str, old: str, new: str) -> None:
        path = self.folder / file
        text = path.read_text()
        assert old in text, old
        path.write_text(text.replace(old, new))

    def tensors(self, shapes: dict[str, tuple[int, ...]] | None = None, seed: int = 0) -> None:
        write_tensors(self.folder / "model.safetensors", TENSORS if shapes is None else shapes, seed)

    def allow(self, *patterns: str) -> None:
        card = self.folder / "nest.toml"
        card.write_text(card.read_text() + "\n[gate]\nallow = [" + ", ".join(f'"{p}"' for p in patterns) + "]\n")

    def findings(self, versions: tuple[str, ...] = ("0.1.0",)) -> list[GateFinding]:
        """What changed since it was made."""
        report = check_package(self.folder, hub=False)
        located = Located(self.folder)
        card = report.card or located.card()
        places = Places(self.folder, report.card, report.bound)
        return compare(self.before, working_snapshot(located, card, report), report, places, versions)


def snapshot(folder: Path) -> Snapshot:
    report = check_package(folder, hub=False)
    assert report.card is not None
    assert report.ok, report.errors()
    return working_snapshot(Located(folder), report.card, report)


def write_stack(folder: Path) -> Stack:
    (folder / "src").mkdir(parents=True)
    files: dict[str, Any] = {
        "nest.toml": CARD,
        "src/lib.linnet": SOURCE,
        "bindings.json": BINDINGS,
        "linnet.toml": '[package]\nname = "stack"\nversion = "0.1.0"\nlanguage = "0.1"\n',
        "README.md": "# Stack\n",
    }
    for name, text in files.items():
        (folder / name).write_text(text)
    write_tensors(folder / "model.safetensors", TENSORS)
    return Stack(folder, snapshot(folder))


def copied(stack: Stack, folder: Path) -> Stack:
    shutil.copytree(stack.folder, folder)
    return Stack(folder, stack.before)
