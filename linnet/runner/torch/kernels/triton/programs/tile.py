"""Any number of rows: E4M3 by E4M3 on tensor cores, 128 inputs at a time.

Hopper keeps about 14 bits while it adds products of E4M3, so each 128 inputs start from zero and are added to the f32
sum by the CUDA cores with their scales, which the blocks need anyway (DeepSeek-V3, arXiv:2412.19437, section 3.3.2).
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def tile(
    x_ptr,
    x_scale_ptr,
    weight_ptr,
    scale_ptr,
    out_ptr,
    rows,
    out_features,
    inner,
    x_scale_stride,
    scale_stride,
    block_m: tl.constexpr,
    block_n: tl.constexpr,
    group: tl.constexpr,
):
    """x [rows, inner] E4M3 with scales [rows, inner / 128] f32, strides (1, x_scale_stride) -> [rows, out_features].

    block_n divides 128. Programs that follow one another share `group` row tiles, so that weights stay in the L2 cache.
    """
    tiles_m = tl.cdiv(rows, block_m)
    tiles_n = tl.cdiv(out_features, block_n)
    program = tl.program_id(0)
    band = program // (group * tiles_n)
    height = tl.minimum(tiles_m - band * group, group)
    within = program % (group * tiles_n)
    m = (band * group + within % height) * block_m + tl.arange(0, block_m)
    first = within // height * block_n
    n = first + tl.arange(0, block_n)
    k = tl.arange(0, 128)
    there = m < rows
    inside = n < out_features
    inputs = x_ptr + m[:, None].to(tl.int64) * inner + k[None, :]
    weights = weight_ptr + n[:, None].to(tl.int64) * inner + k[None, :]
    scales = scale_ptr + first // 128 * scale_stride
    sums = tl.zeros((block_m, block_n), dtype=tl.float32)
    for step in range(0, inner // 128):
        x = tl.load(inputs + step * 128, there[:, None], other=0.0)
        weight = tl.load(weights + step * 128, inside[:, None], other=0.0)
        x_scale = tl.load(x_scale_ptr + step * x_scale_stride + m, there, other=0.0)
        scale = tl.load(scales + step).to(tl.float32)
        sums += tl.dot(x, tl.trans(weight)) * (x_scale * scale)[:, None]
    place = out_ptr + m[:, None].to(tl.int64) * out_features + n[None, :]
    tl.store(place, sums.to(out_ptr.dtype.element_ty), there[:, None] & inside[None, :])
