"""Two to 32 rows on tensor cores with the operands swapped: weights fill the long side, the rows the short one.

Inputs are not rounded: E4M3 is exact in bf16, f16 and TF32, so weights take the inputs' dtype on the way to the tensor
cores. The sum over inputs is split over programs so that few output rows still fill the device; every split writes its
part in f32 and `add_splits` adds them in one order, so that results do not change from run to run.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def small_rows(
    x_ptr,
    weight_ptr,
    scale_ptr,
    part_ptr,
    rows,
    out_features,
    inner,
    scale_stride,
    block_m: tl.constexpr,
    block_n: tl.constexpr,
    block_k: tl.constexpr,
    splits: tl.constexpr,
    rowwise: tl.constexpr,
):
    """x [rows, inner], rows <= block_m -> parts [splits, rows, out_features]. block_n divides 128, block_k is 128."""
    first = tl.program_id(0) * block_n
    split = tl.program_id(1)
    n = first + tl.arange(0, block_n)
    m = tl.arange(0, block_m)
    k = tl.arange(0, block_k)
    steps = tl.cdiv(inner // block_k, splits)
    begin = split * steps
    end = tl.minimum(begin + steps, inner // block_k)
    inside = (n < out_features)[:, None]
    there = (m < rows)[None, :]
    weights = weight_ptr + n[:, None].to(tl.int64) * inner + k[None, :]
    inputs = x_ptr + m[None, :] * inner + k[:, None]
    scales = scale_ptr + first // 128 * scale_stride
    sums = tl.zeros((block_n, block_m), dtype=tl.float32)
    for step in range(begin, end):
        weight = tl.load(weights + step * block_k, inside, other=0.0, eviction_policy="evict_first")
        x = tl.load(inputs + step * block_k, there, other=0.0)
        part = tl.dot(weight.to(tl.float32).to(x.dtype), x)
        if rowwise:
            sums += part
        else:
            sums += part * tl.load(scales + step * block_k // 128).to(tl.float32)
    if rowwise:
        sums *= tl.load(scale_ptr + n, n < out_features, other=0.0).to(tl.float32)[:, None]
    place = part_ptr + split.to(tl.int64) * rows * out_features + m[None, :] * out_features + n[:, None]
    tl.store(place, sums.to(part_ptr.dtype.element_ty), inside & there)


@triton.jit
def add_splits(part_ptr, out_ptr, rows, features, splits: tl.constexpr, gated: tl.constexpr, block: tl.constexpr):
    """parts [splits, rows, N] f32 -> out [rows, features], rounded once.

    N is `features`, or twice that when `gated`, gate before up, and the result silu(gate) * up.
    """
    row = tl.program_id(0)
    column = tl.program_id(1) * block + tl.arange(0, block)
    inside = column < features
    width = features * 2 if gated else features
    first = part_ptr + row.to(tl.int64) * width + column
    total = tl.zeros((block,), dtype=tl.float32)
    up = tl.zeros((block,), dtype=tl.float32)
    for split in tl.static_range(splits):
        place = first + split * rows * width
        total += tl.load(place, inside, other=0.0)
        if gated:
            up += tl.load(place + features, inside, other=0.0)
    if gated:
        total = total * tl.sigmoid(total) * up
    tl.store(out_ptr + row.to(tl.int64) * features + column, total.to(out_ptr.dtype.element_ty), inside)
