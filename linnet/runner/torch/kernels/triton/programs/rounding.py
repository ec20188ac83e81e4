"""To E4M3 and back: rounding 128 inputs at a time, alone or after a norm or a gate, and decoding weights at load.

A rounding program takes one row or a part of it. Scales are stored column by column, as block-scaled
products read them, and rows that only pad the count to a multiple of four become zeros.
"""

from __future__ import annotations

import triton
import triton.language as tl

# The largest E4M3 number, and what stands for the largest input of 128 zeros.
E4M3_MAX = tl.constexpr(448.0)
SMALLEST = tl.constexpr(1e-12)


@triton.jit
def _store_rounded(values, row, first, q_ptr, scale_ptr, inner, scale_stride, block: tl.constexpr):
    """values [block] f32 -> columns first .. first + block of row `row` of q [.., inner], and their scales.

    scales [.., inner / 128] with strides (1, scale_stride).
    """
    grouped = tl.reshape(values, (block // 128, 128))
    scale = tl.maximum(tl.max(tl.abs(grouped), 1), SMALLEST) / E4M3_MAX
    rounded = grouped / scale[:, None]
    rounded = tl.minimum(tl.maximum(rounded, -E4M3_MAX), E4M3_MAX)
    flat = tl.reshape(rounded, (block,))
    columns = first + tl.arange(0, block)
    tl.store(q_ptr + row * inner + columns, flat.to(q_ptr.dtype.element_ty), columns < inner)
    groups = first // 128 + tl.arange(0, block // 128)
    tl.store(scale_ptr + row + groups * scale_stride, scale, groups < inner // 128)


@triton.jit
def quantise(x_ptr, q_ptr, scale_ptr, rows, inner, scale_stride, block: tl.constexpr):
    """x [rows, inner] -> E4M3 and scales. A program takes `block` columns of a row, a power of two from 128 on."""
    row = tl.program_id(0).to(tl.int64)
    first = tl.program_id(1) * block
    columns = first + tl.arange(0, block)
    x = tl.load(x_ptr + row * inner + columns, (columns < inner) & (row < rows), other=0.0).to(tl.float32)
    _store_rounded(x, row, first, q_ptr, scale_ptr, inner, scale_stride, block)


@triton.jit
def rms_norm_quantise(x_ptr, weight_ptr, eps, q_ptr, scale_ptr, rows, inner, scale_stride, block: tl.constexpr):
    """x [rows, inner] -> x * rsqrt(mean(x^2) + eps) * weight, in f32 until it is rounded to E4M3. block >= inner."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, block)
    x = tl.load(x_ptr + row * inner + columns, (columns < inner) & (row < rows), other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + columns, columns < inner, other=0.0).to(tl.float32)
    normal = x * tl.rsqrt(tl.sum(x * x, 0) / inner + eps) * weight
    _store_rounded(normal, row, 0, q_ptr, scale_ptr, inner, scale_stride, block)


@triton.jit
def silu_mul_quantise(x_ptr, q_ptr, scale_ptr, rows, inner, scale_stride, block: tl.constexpr):
    """x [rows, 2 * inner], gate before up -> silu(gate) * up, in f32 until it is rounded to E4M3."""
    row = tl.program_id(0).to(tl.int64)
    first = tl.program_id(1) * block
    columns = first + tl.arange(0, block)
    inside = (columns < inner) & (row < rows)
    gate = tl.load(x_ptr + row * inner * 2 + columns, inside, other=0.0).to(tl.float32)
    up = tl.load(x_ptr + row * inner * 2 + inner + columns, inside, other=0.0).to(tl.float32)
    _store_rounded(gate * tl.sigmoid(gate) * up, row, first, q_ptr, scale_ptr, inner, scale_stride, block)


@triton.jit
def decode(
    weight_ptr, scale_ptr, out_ptr, out_features, inner, scale_stride, block_n: tl.constexpr, rowwise: tl.constexpr
):
    """Rows first .. first + block_n of a block of 128 inputs: E4M3 times their scale, rounded to out's dtype."""
    first = tl.program_id(0) * block_n
    rows = first + tl.arange(0, block_n)
    columns = tl.program_id(1) * 128 + tl.arange(0, 128)
    inside = (rows < out_features)[:, None]
    place = rows[:, None].to(tl.int64) * inner + columns[None, :]
    weight = tl.load(weight_ptr + place, inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
    if rowwise:
        scale = tl.load(scale_ptr + rows, rows < out_features, other=0.0).to(tl.float32)
        weight *= scale[:, None]
    else:
        weight *= tl.load(scale_ptr + first // 128 * scale_stride + tl.program_id(1)).to(tl.float32)
    tl.store(out_ptr + place, weight.to(out_ptr.dtype.element_ty), inside)
