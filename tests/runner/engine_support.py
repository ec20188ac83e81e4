"""Models of either backend, for comparison with `engine_reference`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from engine_reference import Array, Decoder


def array(found: Any) -> Array:
    """A result of either backend in f64."""
    if not isinstance(found, torch.Tensor):
        from linnet.runner.mlx.dtypes import to_torch

        found = to_torch(found)
    return np.asarray(found.double())


def decoder(model: Any) -> Decoder:
    """The reference with a model's weights."""
    weights = {path: array(value) for path, value in model.state_dict().items()}
    g = model.generics
    return Decoder(weights, g["Heads"], g["KvHeads"], g["HeadDim"], g["Layers"], 1e-6, 1e6)
