"""Products by weights [Out, In]. MLX runs an operation of a CPU in one thread; a large product is given to several.

In f32 MLX hands a product of a Linux CPU to the reference BLAS, which adds one term after another: of 1,536 terms the
sum is two and a half times as far from the exact one as torch's. Here such a sum is made of partial ones where that
is as fast and takes little memory: not of a number of terms that nothing divides, nor for a few inputs by millions of
weights, nor for millions of sums.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import nullcontext
from functools import cache
from itertools import pairwise
from typing import Any

import mlx.core as mx

from linnet.runner.packed import Packing

# Below so many weights a product takes less time than threads need to agree.
LEAST_SHARED = 2**17
MOST_THREADS = 8
# Sums in f32 of more terms than this are taken in parts.
LONG_SUM = 256
# Up to so many inputs, each is multiplied by the weights element by element, if so many products are all there are.
FEW_INPUTS = 4
MOST_TERMS = 2**22
MOST_PARTS = 32
# For more inputs the parts are matrix products, for which MLX copies the weights and keeps as many results as there are
# parts, if the result has no more numbers than this.
MOST_SUMS = 2**22
MOST_COPIES = 8


def product(x: mx.array, weight: mx.array) -> mx.array:
    """x [.., In], weight [Out, In] -> x @ weight.T [.., Out]. Sums of f16 and bf16 are in f32 and rounded once."""
    if weight.size and x.size and loses_terms(weight.shape[1], weight.dtype):
        return _shared(weight.shape, lambda rows, stream: _by_parts(x, weight[rows], stream))
    return _shared(weight.shape, lambda rows, stream: mx.matmul(x, weight[rows].T, stream=stream))


def packed_product(x: mx.array, words: mx.array, scales: mx.array, biases: mx.array, packing: Packing) -> mx.array:
    """x [.., In], a weight [Out, In] in words [Out, In * bits / 32] u32, scales and biases [Out, In / group] of
    x's dtype -> [.., Out]."""

    def part(rows: slice, stream: Any) -> mx.array:
        arrays = words[rows], scales[rows], biases[rows]
        return mx.quantized_matmul(x, *arrays, group_size=packing.group, bits=packing.bits, stream=stream)

    return _shared((words.shape[0], scales.shape[1] * packing.group), part)


def loses_terms(count: int, dtype: mx.Dtype) -> bool:
    """Whether MLX adds so many numbers of a dtype one after another, on the device in use, and they are many for it."""
    return count > LONG_SUM and dtype == mx.float32 and sys.platform == "linux" and _on_cpu()


def equal_parts(length: int, most: int) -> int:
    """The largest number of equal parts of `length`, up to `most`."""
    return next(count for count in range(min(most, length), 0, -1) if length % count == 0)


def _by_parts(x: mx.array, weight: mx.array, stream: Any) -> mx.array:
    """As `product`, in f32: sums over equal parts of In, and then over those."""
    with nullcontext() if stream is None else mx.stream(stream):
        flat = x.reshape(-1, x.shape[-1])
        few = len(flat) <= FEW_INPUTS
        if few and len(flat) * weight.size <= MOST_TERMS:
            found = _elementwise(flat, weight)
        elif not few and len(flat) * len(weight) <= MOST_SUMS:
            found = _products(flat, weight)
        else:
            found = mx.matmul(flat, weight.T)
        return found.reshape(*x.shape[:-1], len(weight))


def _elementwise(x: mx.array, weight: mx.array) -> mx.array:
    """x [N, In], weight [Out, In] -> [N, Out]."""
    terms = x[:, None] * weight
    parts = equal_parts(terms.shape[-1], MOST_PARTS)
    return mx.sum(mx.sum(terms.reshape(*terms.shape[:-1], parts, -1), axis=-2), axis=-1)


def _products(x: mx.array, weight: mx.array) -> mx.array:
    """x [N, In], weight [Out, In] -> [N, Out]."""
    parts = equal_parts(x.shape[-1], MOST_COPIES)
    left = x.reshape(len(x), parts, -1).transpose(1, 0, 2)
    right = weight.reshape(len(weight), parts, -1).transpose(1, 2, 0)
    return mx.sum(mx.matmul(left, right), axis=0)


def _shared(shape: tuple[int, ...], part: Callable[[slice, Any], mx.array]) -> mx.array:
    """A product by a weight of this shape: `part` gives that by some of its rows, which are outputs of their own, on a
    stream, or on the one in use."""
    rows = shape[0]
    # None is left without a row.
    others = _others()[: rows - 1] if rows * shape[1] >= LEAST_SHARED and _on_cpu() else ()
    if not others:
        return part(slice(None), None)
    cuts = [rows * i // (len(others) + 1) for i in range(len(others) + 2)]
    shares = zip(pairwise(cuts), (None, *others), strict=True)
    return mx.concatenate([part(slice(*share), stream) for share, stream in shares], axis=-1)


def _on_cpu() -> bool:
    return mx.default_device().type == mx.cpu


@cache
def _others() -> tuple[mx.ThreadLocalStream, ...]:
    """Streams for the processors that this process may use, but for the one that MLX itself takes."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return tuple(mx.new_thread_local_stream(mx.cpu) for _ in range(min(count, MOST_THREADS) - 1))
