"""Where a layer of an entry's graph ends."""

from __future__ import annotations

from collections.abc import Callable

import torch

from linnet.language.program.binding import BoundProgram
from linnet.language.program.core import Graph, Value
from linnet.runner.layers import boundaries
from linnet.runner.torch.module import load_model
from linnet.runner.torch.taps import tapped
from linnet.runner.torch.weights import random_weights

SOURCE = """\
module small

use std.nn.linear::{Linear}

/// One layer of a residual stream.
block Layer<H: Dim> {
    sub up: Linear<H, H, f32>

    fn forward<B: Dim>(x: Tensor[B, H; f32]) -> Tensor[B, H; f32] {
        return x + up.forward(x)
    }
}

pub block Model<H: Dim, N: Dim, M: Dim> {
    sub first: Linear<H, H, f32>
    sub layers: [Layer<H>; N]
    sub more: [Layer<H>; M]
    sub head: Linear<H, H, f32>

    pub entry forward<B: Dim>(x: Tensor[B, H; f32]) -> Tensor[B, H; f32] {
        var y = first.forward(x)
        static for layer in layers {
            y = layer.forward(y)
        }
        static for layer in more {
            y = layer.forward(y)
        }
        return head.forward(y)
    }

    pub entry plain<B: Dim>(x: Tensor[B, H; f32]) -> Tensor[B, H; f32] {
        return head.forward(first.forward(x))
    }
}
"""
Bind = Callable[..., BoundProgram]


def test_each_layer_gives_its_stream(bind_source: Bind) -> None:
    bound = bind_source(SOURCE, H=4, N=2, M=1)
    weights = random_weights(bound.manifest, 1)
    model = load_model(bound, weights, entry="forward")
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(2))
    names: list[str] = []

    def choose(graph: Graph) -> list[Value]:
        found = boundaries(graph)
        names.extend(item.name for item in found)
        return [item.value for item in found]

    given = tapped(model, "forward", [x], choose)
    assert names == ["layers.0", "layers.1", "more.0"]
    y = x @ weights["first.weight"].T
    for name, value in zip(names, given, strict=True):
        y = y + y @ weights[f"{name}.up.weight"].T
        assert torch.allclose(value, y, atol=1e-6)


def test_an_entry_without_layers_has_no_boundaries(bind_source: Bind) -> None:
    bound = bind_source(SOURCE, H=4, N=2, M=1)
    assert boundaries(bound.lower("plain", {"B": 1}, frozenset()).graph) == []
    none = bind_source(SOURCE, H=4, N=0, M=0)
    assert boundaries(none.lower("forward", {"B": 1}, frozenset()).graph) == []
