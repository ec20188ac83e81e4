"""Products with FP8 E4M3 weights: decoded once where there is room, for each product where there is not.

weight [Out, In] u8 holds E4M3 bytes. Scales multiply: `Fp8Linear` has one for each output, [Out, 1] f32,
`Fp8BlockLinear` one for each block, [Out / Block, In / Block]. Under `equivalent` and `engine` products and sums are in
f32 and the result is rounded once; under `fast` the decoded weights are rounded to x's dtype.
"""

from __future__ import annotations

import mlx.core as mx

from linnet.runner.mlx.kernels import EVERY, kernel
from linnet.runner.mlx.primitives import Run
from linnet.runner.mlx.products import product

UNROUNDED = ("equivalent", "engine", "wide")


@kernel("std.quant::decode_fp8", policies=EVERY)
def decode_fp8(bits: mx.array) -> mx.array:
    """E4M3 bytes [..] u8 -> their values [..] f32, exact. The NaN bytes, which loading refuses, give NaN."""
    return mx.from_fp8(bits, dtype=mx.float32)


@kernel("std.quant::dequantize_fp8", policies=EVERY)
def dequantize_fp8(weight: mx.array, scale: mx.array) -> mx.array:
    """weight [Out, In] u8, scale [Out, 1] f32 -> [Out, In] f32."""
    return decode_fp8(weight) * scale


@kernel("std.quant::dequantize_fp8_block", policies=EVERY)
def dequantize_fp8_block(weight: mx.array, scale: mx.array) -> mx.array:
    """weight [Out, In] u8, scale [Out / Block, In / Block] -> [Out, In] f32."""
    if not weight.size:
        return mx.zeros(weight.shape, dtype=mx.float32)
    (rows, columns), (out, inner) = scale.shape, weight.shape
    blocks = decode_fp8(weight).reshape(rows, out // rows, columns, inner // columns)
    return (blocks * scale.astype(mx.float32).reshape(rows, 1, columns, 1)).reshape(out, inner)


def _linear(x: mx.array, weight: mx.array, bias: mx.array | None) -> mx.array:
    result = product(x.astype(weight.dtype), weight)
    return result if bias is None else result + bias.astype(weight.dtype)


def decoded_linear(run: Run, x: mx.array, weight: mx.array, bias: mx.array | None = None) -> mx.array:
    """x [.., In], a decoded weight [Out, In] -> [.., Out] in x's dtype: products and sums are in the weight's."""
    return _linear(x, weight, bias).astype(x.dtype)


@kernel("std.quant::fp8_linear", policies=UNROUNDED)
def fp8_linear(x: mx.array, weight: mx.array, scale: mx.array, bias: mx.array | None = None) -> mx.array:
    """x [.., In] -> [.., Out]."""
    return _linear(x, dequantize_fp8(weight, scale), bias).astype(x.dtype)


@kernel("std.quant::fp8_block_linear", policies=UNROUNDED)
def fp8_block_linear(x: mx.array, weight: mx.array, scale: mx.array, bias: mx.array | None = None) -> mx.array:
    """x [.., In] -> [.., Out]."""
    return _linear(x, dequantize_fp8_block(weight, scale), bias).astype(x.dtype)


@kernel("std.quant::fp8_linear", policies=("fast",))
def fp8_linear_in_dtype(x: mx.array, weight: mx.array, scale: mx.array, bias: mx.array | None = None) -> mx.array:
    """As `fp8_linear`, with decoded weights in x's dtype."""
    return _linear(x, dequantize_fp8(weight, scale).astype(x.dtype), bias)


@kernel("std.quant::fp8_block_linear", policies=("fast",))
def fp8_block_linear_in_dtype(x: mx.array, weight: mx.array, scale: mx.array, bias: mx.array | None = None) -> mx.array:
    """As `fp8_block_linear`, with decoded weights in x's dtype."""
    return _linear(x, dequantize_fp8_block(weight, scale).astype(x.dtype), bias)
