"""The package `tiny`, which tests break in every way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

CARD = """\
[model]
name = "tiny"
title = "Tiny"
summary = "One linear layer."
license = "MIT"
family = "test"
tags = ["test"]

[source]
path = "src/lib.linnet"
root = "Model"
entry = "forward"

[generics]
N = 4
T = "f32"

[weights]
files = ["model.safetensors"]
bindings = "bindings.json"
"""
SOURCE = """\
module tiny

/// One linear layer.
pub block Model<N: Dim, T: Float = f32> where N > 0 {
    param weight: Tensor[N, N; T]
    param bias: Tensor[N; T]? = none

    /// The input times the weight.
    pub entry forward<B: Dim>(x: Tensor[B, N; T]) -> Tensor[B, N; T] {
        let y[b, o] = sum[i] x[b, i] * weight[o, i]
        return match bias { some(b) => y + b  none => y }
    }
}
"""
TENSORS = [("layer.weight", "F32", (4, 4))]
COMMIT = "0123456789abcdef0123456789abcdef01234567"

MakePackage = Callable[..., Path]
