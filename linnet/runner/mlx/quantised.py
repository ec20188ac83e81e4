"""Weights in few bits on MLX: matrices that are multiplied by as they are, and whose rows are decoded one by one.

A packed weight goes where a dense one would. Only the ops of `READERS` take it so; whatever else reads it is given the
decoded weights. Words are u32 [Out, In * bits / 32], scales and biases [Out, In / group]; see `linnet.runner.packed`.

On a GPU scales and biases are of the model's dtype, which MLX's products take. Its products on a CPU take f32 ten times
as fast as bf16, so there scales and biases lie in f32, and a product's result is rounded once: the same numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import mlx.core as mx

from linnet.language.program.core import CoreNode, Graph, Value
from linnet.runner.mlx.dtypes import DTYPES, from_torch
from linnet.runner.mlx.products import packed_product, product_in_pieces
from linnet.runner.packed import PackedTensor, Packing
from linnet.runner.torch.dtypes import NAMES

# Op identity -> the parameter that may be packed.
EMBEDDING = "std.nn.embedding::embedding"
READERS = {"std.nn.linear::linear": "weight", EMBEDDING: "table"}


@dataclass(frozen=True)
class QuantisedWeight:
    """A matrix [Out, In] of `dtype`, whose scales and biases may be wider."""

    words: mx.array
    scales: mx.array
    biases: mx.array
    packing: Packing
    dtype: mx.Dtype

    @property
    def shape(self) -> tuple[int, int]:
        return self.words.shape[0], self.scales.shape[1] * self.packing.group

    @property
    def nbytes(self) -> int:
        return self.words.nbytes + self.scales.nbytes + self.biases.nbytes

    @property
    def arrays(self) -> tuple[mx.array, mx.array, mx.array]:
        return self.words, self.scales, self.biases

    def holding(self, arrays: Sequence[mx.array]) -> QuantisedWeight:
        """The same with other arrays: those that a compiled function is handed."""
        words, scales, biases = arrays
        return replace(self, words=words, scales=scales, biases=biases)

    def product(self, x: mx.array) -> mx.array:
        """x [.., In] -> x @ weight.T [.., Out], summed in f32 and rounded once."""
        return packed_product(x.astype(self.scales.dtype), *self.arrays, self.packing).astype(x.dtype)

    def wide_product(self, x: mx.array) -> mx.array:
        """As `product`, in f32 of a sum in f64, which a CPU computes."""

        def rows_of(rows: slice, after: mx.array) -> mx.array:
            return _decoded(self.holding(mx.depends([part[rows] for part in self.arrays], [after])))

        return product_in_pieces(x, self.shape, rows_of)

    def rows(self, ids: mx.array) -> mx.array:
        """ids [..] -> the weights of those rows, [.., In]."""
        if not ids.size:
            return mx.zeros((*ids.shape, self.shape[1]), dtype=self.dtype)
        return _decoded(self.holding([mx.take(part, ids, axis=0) for part in self.arrays]))

    def dense(self) -> mx.array:
        """The weights [Out, In]."""
        return _decoded(self)


Weight = mx.array | QuantisedWeight


def _decoded(weight: QuantisedWeight) -> mx.array:
    """Products and sums in f32, rounded once, as `PackedTensor.dense` has them."""
    scales, biases = (part.astype(mx.float32) for part in (weight.scales, weight.biases))
    packing = weight.packing
    wide = mx.dequantize(weight.words, scales, biases, group_size=packing.group, bits=packing.bits)
    return wide.astype(weight.dtype)


def joined(weights: Sequence[QuantisedWeight]) -> QuantisedWeight:
    """Matrices of one width and packing as one, their rows one after another: each group stays as it is."""
    parts = [mx.concatenate(list(each), axis=0) for each in zip(*(w.arrays for w in weights), strict=True)]
    return weights[0].holding(parts)


def quantised_weight(packed: PackedTensor, dtype: str, device: str) -> QuantisedWeight:
    """A packed tensor on MLX's `device`, "cpu" or "gpu", for a model that runs in `dtype`."""
    wide = mx.float32 if device == "cpu" else DTYPES[dtype]
    parts = (packed.scales, packed.biases)
    scales, biases = (from_torch(part, NAMES[part.dtype]).astype(wide) for part in parts)
    return QuantisedWeight(from_torch(packed.words, "u32"), scales, biases, packed.packing, DTYPES[dtype])


def weight_bytes(graph: Graph, weights: Mapping[str, Weight]) -> int:
    """Bytes of weights that one run of a graph reads: of a table that is only looked up in, those of its rows."""
    readers: dict[Value, list[CoreNode]] = {}
    for node in graph.nodes:
        for value in node.inputs:
            readers.setdefault(value, []).append(node)
    read: dict[int, int] = {}
    for node in graph.nodes:
        if node.op == "param":
            weight, users = weights[node.attributes["path"]], readers.get(node.outputs[0], [])
            looked_up = all(user.op == "call" and user.attributes["op"] == EMBEDDING for user in users)
            rows = sum(user.inputs[0].spec.size for user in users)
            count = rows * weight.nbytes // weight.shape[0] if looked_up and weight.shape[0] else weight.nbytes
            # Paths may share a tensor, which is then read by all who want it.
            read[id(weight)] = max(read.get(id(weight), 0), count)
    return sum(read.values())


def arrays_of(weight: Weight) -> list[mx.array]:
    """The arrays that hold a weight."""
    return list(weight.arrays) if isinstance(weight, QuantisedWeight) else [weight]


def dense(weight: Weight) -> mx.array:
    """A weight as an array, decoded where it is packed."""
    return weight.dense() if isinstance(weight, QuantisedWeight) else weight


def taken_packed(graph: Graph, kernels: Mapping[str, Any]) -> frozenset[Value]:
    """The parameters of a graph that all who read them take packed."""
    packed: set[Value] = set()
    other: set[Value] = set(graph.outputs)
    for node in graph.nodes:
        name = READERS.get(node.attributes["op"]) if node.op == "call" else None
        kernel = kernels.get(node.attributes["op"]) if name is not None else None
        takes = kernel is not None and kernel.fits(node)
        for parameter, value in zip(node.attributes.get("parameters", ()) if takes else (), node.inputs, strict=False):
            (packed if parameter == name else other).add(value)
        if not takes:
            other.update(node.inputs)
    return frozenset(packed - other)
