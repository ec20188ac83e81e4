"""Products by weights [Out, In]. MLX runs an operation of a CPU in one thread; a large product is given to several.

Sums of f16 and bf16 are in f32. Those of f32 are in f64 on a CPU: in f32 MLX's wheel for Linux adds one term after
another, and of 1,536 terms comes out two and a half times as far from the exact sum as torch does.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from contextlib import nullcontext, suppress
from functools import cache
from itertools import pairwise
from typing import Any

import mlx.core as mx

from linnet.runner.packed import Packing

# Below so many weights a product takes less time than threads need to agree.
LEAST_SHARED = 2**17
MOST_THREADS = 8
# So many weights are widened at a time, which a processor's cache holds.
PIECE = 2**18
# Numbers of glibc's `mallopt`, and what is asked of it.
TRIM_THRESHOLD, KEPT = -1, 2**28
MMAP_THRESHOLD, MAPPED = -3, 2**25


def product(x: mx.array, weight: mx.array) -> mx.array:
    """x [.., In], weight [Out, In] -> x @ weight.T [.., Out], rounded once."""
    if weight.dtype == mx.float32 and on_cpu():
        return wide_product(x, weight)
    return _shared(weight.shape, lambda rows, stream: [mx.matmul(x, weight[rows].T, stream=stream)])


def wide_product(x: mx.array, weight: mx.array) -> mx.array:
    """x [.., In], weight [Out, In] -> x @ weight.T [.., Out] f32, rounded from a sum in f64, which a CPU computes."""
    return product_in_pieces(x, weight.shape, lambda rows, after: mx.depends([weight[rows]], [after])[0])


def product_in_pieces(x: mx.array, shape: tuple[int, ...], rows_of: Callable[[slice, mx.array], mx.array]) -> mx.array:
    """As `wide_product` by a weight of this shape: `rows_of` gives some of its rows, once an array is computed."""
    if not x.size or 0 in shape:
        return mx.zeros((*x.shape[:-1], shape[0]), dtype=mx.float32)
    _keep_memory()
    wide = x.astype(mx.float64)
    step = max(1, PIECE // shape[1])

    def part(rows: slice, stream: Any) -> list[mx.array]:
        start, stop, _ = rows.indices(shape[0])
        made: list[mx.array] = []
        with nullcontext() if stream is None else mx.stream(stream):
            for i in range(start, stop, step):
                # One after another, and none before there is an input: else MLX widens them all beforehand.
                piece = rows_of(slice(i, min(i + step, stop)), made[-1] if made else wide)
                made.append(mx.matmul(wide, piece.astype(mx.float64).T).astype(mx.float32))
        return made

    return _shared(shape, part)


def packed_product(x: mx.array, words: mx.array, scales: mx.array, biases: mx.array, packing: Packing) -> mx.array:
    """x [.., In], a weight [Out, In] in words [Out, In * bits / 32] u32, scales and biases [Out, In / group] of
    x's dtype -> [.., Out]."""

    def part(rows: slice, stream: Any) -> list[mx.array]:
        arrays = words[rows], scales[rows], biases[rows]
        return [mx.quantized_matmul(x, *arrays, group_size=packing.group, bits=packing.bits, stream=stream)]

    return _shared((words.shape[0], scales.shape[1] * packing.group), part)


def _shared(shape: tuple[int, ...], part: Callable[[slice, Any], list[mx.array]]) -> mx.array:
    """A product by a weight of this shape: `part` gives that by some of its rows, which are outputs of their own, on a
    stream, or on the one in use, in pieces."""
    rows = shape[0]
    # None is left without a row.
    others = _others()[: rows - 1] if rows * shape[1] >= LEAST_SHARED and on_cpu() else ()
    if not others:
        return _whole(part(slice(None), None))
    cuts = [rows * i // (len(others) + 1) for i in range(len(others) + 2)]
    shares = zip(pairwise(cuts), (None, *others), strict=True)
    return _whole([piece for share, stream in shares for piece in part(slice(*share), stream)])


def _whole(pieces: list[mx.array]) -> mx.array:
    return pieces[0] if len(pieces) == 1 else mx.concatenate(pieces, axis=-1)


def on_cpu() -> bool:
    """Whether the device in use has f64."""
    return mx.default_device().type == mx.cpu


@cache
def _keep_memory() -> None:
    """Have the C library keep what is freed, up to 256 MB: each piece is memory of its own, and to be given new pages
    by the system for each, which it fills with zeros, takes as long as the products do. Other libraries than glibc are
    left alone."""
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(MMAP_THRESHOLD, MAPPED)
        mallopt(TRIM_THRESHOLD, KEPT)


@cache
def _others() -> tuple[mx.ThreadLocalStream, ...]:
    """Streams for the processors that this process may use, but for the one that MLX itself takes."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return tuple(mx.new_thread_local_stream(mx.cpu) for _ in range(min(count, MOST_THREADS) - 1))
