"""Weights in the form that products take them: those of several layers as one (q|k|v, gate|up), FP8 decoded once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import mlx.core as mx

from linnet.runner.linears import LinearWeight
from linnet.runner.mlx.kernels.quant import dequantize_fp8, dequantize_fp8_block
from linnet.runner.mlx.quantised import QuantisedWeight, Weight, arrays_of, dense, joined


class JoinedWeights:
    """The weights of a model by path, and those that lie one below the other, or are decoded, under names of their own.

    What is joined is kept once: the parts become views of the whole. FP8 weights are decoded to `decoded`; None leaves
    that to each product.
    """

    def __init__(self, weights: dict[str, Weight], decoded: mx.Dtype | None) -> None:
        self.weights = weights
        self.decoded = decoded
        self._places = Counter(map(id, weights.values()))
        self._taken: dict[str, str] = {}

    @staticmethod
    def name(paths: Sequence[str]) -> str:
        """What the whole of several weights is called, which is no path."""
        return " | ".join(paths)

    def join(self, linears: LinearWeight) -> bool:
        """Lay the weights, scales and biases of layers one below the other.

        Not where one is shared with another path, lies in another whole, or is packed otherwise: False then.
        """
        wholes = [paths for paths in (linears.weights, linears.scales, linears.biases) if paths]
        paths = [path for whole in wholes for path in whole]
        if all(self._taken.get(path) == self.name(whole) for whole in wholes for path in whole):
            return True
        taken = any(path in self._taken or self._places[id(self.weights[path])] > 1 for path in paths)
        if taken or len(set(paths)) < len(paths) or any(len(set(map(self._packing, whole))) > 1 for whole in wholes):
            return False
        for whole in wholes:
            self._lay(whole)
        return True

    def decode(self, linears: LinearWeight) -> str | None:
        """The name of the decoded weights of FP8 layers, which are joined already where there are several; None where
        they stay as they are."""
        if linears.kind == "plain" or self.decoded is None:
            return None
        weight, scale = self.name(linears.weights), self.name(linears.scales)
        name = f"{weight} (decoded)"
        if name not in self.weights:
            function = dequantize_fp8 if linears.kind == "fp8_row" else dequantize_fp8_block
            self.weights[name] = function(dense(self.weights[weight]), dense(self.weights[scale])).astype(self.decoded)
            mx.eval(self.weights[name])
        return name

    def _packing(self, path: str) -> object:
        weight = self.weights[path]
        return weight.packing if isinstance(weight, QuantisedWeight) else None

    def _lay(self, paths: Sequence[str]) -> None:
        name = self.name(paths)
        parts = [self.weights[path] for path in paths]
        whole: Weight
        packed = [part for part in parts if isinstance(part, QuantisedWeight)]
        whole = joined(packed) if packed else mx.concatenate([a for part in parts for a in arrays_of(part)], axis=0)
        mx.eval(arrays_of(whole))
        self.weights[name] = whole
        start = 0
        for path, part in zip(paths, parts, strict=True):
            stop = start + part.shape[0]
            views = [array[start:stop] for array in arrays_of(whole)]
            mx.eval(views)
            self.weights[path] = whole.holding(views) if isinstance(whole, QuantisedWeight) else views[0]
            self._taken[path] = name
            start = stop
