"""Products by weights [Out, In]. MLX runs an operation of a CPU in one thread; a large product is given to several."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any

import mlx.core as mx

from linnet.runner.packed import Packing

# Below so many weights a product takes less time than threads need to agree.
LEAST_SHARED = 2**17
MOST_THREADS = 8


def product(x: mx.array, weight: mx.array) -> mx.array:
    """x [.., In], weight [Out, In] -> x @ weight.T [.., Out]. Sums of f16 and bf16 are in f32 and rounded once."""
    return _shared(weight.shape, lambda rows, stream: mx.matmul(x, weight[rows].T, stream=stream))


def packed_product(x: mx.array, words: mx.array, scales: mx.array, biases: mx.array, packing: Packing) -> mx.array:
    """x [.., In], a weight [Out, In] in words [Out, In * bits / 32] u32, scales and biases [Out, In / group] of
    x's dtype -> [.., Out]."""

    def part(rows: slice, stream: Any) -> mx.array:
        arrays = words[rows], scales[rows], biases[rows]
        return mx.quantized_matmul(x, *arrays, group_size=packing.group, bits=packing.bits, stream=stream)

    return _shared((words.shape[0], scales.shape[1] * packing.group), part)


def _shared(shape: tuple[int, ...], part: Callable[[slice, Any], mx.array]) -> mx.array:
    """A product by a weight of this shape: `part` gives that by some of its rows, which are outputs of their own, on a
    stream, or on the one in use."""
    rows = shape[0]
    others = _others() if rows * shape[1] >= LEAST_SHARED and _on_cpu() else ()
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
