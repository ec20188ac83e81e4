"""One row: every weight byte is read once, by wide loads, and multiplied in f32 by the CUDA cores.

Sixteen weights that follow one another are one 128-bit load and stay in one thread. Their products are summed there
and scaled once (a block of 128 holds whole sixteens), and threads exchange sums only after the last weight.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _sixteens(weight, x, block_n: tl.constexpr, block_k: tl.constexpr):
    """weight [block_n, block_k] E4M3, x [block_k] f32 -> sums over sixteen inputs each, [block_n, block_k / 16] f32."""
    products = weight.to(tl.float32) * x[None, :]
    return tl.sum(tl.reshape(products, (block_n, block_k // 16, 16)), 2)


@triton.jit
def gemv(
    x_ptr,
    weight_ptr,
    scale_ptr,
    out_ptr,
    out_features,
    inner,
    scale_stride,
    block_n: tl.constexpr,
    block_k: tl.constexpr,
    rowwise: tl.constexpr,
):
    """x [inner] -> out [out_features]. scale [Out / 128, inner / 128], or [Out] when `rowwise`."""
    first = tl.program_id(0) * block_n
    rows = first + tl.arange(0, block_n)
    columns = tl.arange(0, block_k)
    groups = tl.arange(0, block_k // 16) * 16
    inside = rows < out_features
    weights = weight_ptr + rows[:, None].to(tl.int64) * inner + columns[None, :]
    scales = scale_ptr + first // 128 * scale_stride
    sums = tl.zeros((block_n, block_k // 16), dtype=tl.float32)
    tile = tl.load(weights, inside[:, None] & (columns < inner)[None, :], other=0.0, eviction_policy="evict_first")
    for start in range(0, inner, block_k):
        # The next weights are on their way while these are multiplied.
        ahead = tl.load(
            weights + (start + block_k),
            inside[:, None] & (columns < inner - start - block_k)[None, :],
            other=0.0,
            eviction_policy="evict_first",
        )
        x = tl.load(x_ptr + start + columns, columns < inner - start, other=0.0).to(tl.float32)
        part = _sixteens(tile, x, block_n, block_k)
        if rowwise:
            sums += part
        else:
            scale = tl.load(scales + (start + groups) // 128, groups < inner - start, other=0.0).to(tl.float32)
            sums += part * scale[None, :]
        tile = ahead
    total = tl.sum(sums, 1)
    if rowwise:
        total *= tl.load(scale_ptr + rows, inside, other=0.0).to(tl.float32)
    tl.store(out_ptr + rows, total.to(out_ptr.dtype.element_ty), inside)


@triton.jit
def gated_gemv(
    x_ptr,
    weight_ptr,
    scale_ptr,
    out_ptr,
    half,
    inner,
    scale_stride,
    block_n: tl.constexpr,
    block_k: tl.constexpr,
):
    """x [inner], weight [2 * half, inner], gate rows before up rows -> silu(gate) * up, [half], rounded once."""
    first = tl.program_id(0) * block_n
    rows = first + tl.arange(0, block_n)
    columns = tl.arange(0, block_k)
    groups = tl.arange(0, block_k // 16) * 16
    gates = weight_ptr + rows[:, None].to(tl.int64) * inner + columns[None, :]
    ups = gates + half.to(tl.int64) * inner
    gate_scales = scale_ptr + first // 128 * scale_stride
    up_scales = gate_scales + half // 128 * scale_stride
    gate_sums = tl.zeros((block_n, block_k // 16), dtype=tl.float32)
    up_sums = tl.zeros((block_n, block_k // 16), dtype=tl.float32)
    inside = (columns < inner)[None, :]
    gate = tl.load(gates, inside, other=0.0, eviction_policy="evict_first")
    up = tl.load(ups, inside, other=0.0, eviction_policy="evict_first")
    for start in range(0, inner, block_k):
        inside = (columns < inner - start - block_k)[None, :]
        next_gate = tl.load(gates + (start + block_k), inside, other=0.0, eviction_policy="evict_first")
        next_up = tl.load(ups + (start + block_k), inside, other=0.0, eviction_policy="evict_first")
        x = tl.load(x_ptr + start + columns, columns < inner - start, other=0.0).to(tl.float32)
        blocks = (start + groups) // 128
        known = groups < inner - start
        gate_scale = tl.load(gate_scales + blocks, known, other=0.0).to(tl.float32)
        up_scale = tl.load(up_scales + blocks, known, other=0.0).to(tl.float32)
        gate_sums += _sixteens(gate, x, block_n, block_k) * gate_scale[None, :]
        up_sums += _sixteens(up, x, block_n, block_k) * up_scale[None, :]
        gate = next_gate
        up = next_up
    gate_total = tl.sum(gate_sums, 1)
    total = gate_total * tl.sigmoid(gate_total) * tl.sum(up_sums, 1)
    tl.store(out_ptr + rows, total.to(out_ptr.dtype.element_ty))
