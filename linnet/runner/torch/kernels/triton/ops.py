"""The kernels as torch operators, so that tracing and `torch.compile` see one call and nothing of what is inside.

`fp8_linear` and `fp8_gated` choose by rows (see `dispatch`). Shapes: x [.., In], weight [Out, In] u8.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.library import Library, register_fake
from torch.nn import functional

from linnet.runner.torch.kernels.triton import dispatch, launch, scaled
from linnet.runner.torch.kernels.triton.checks import E4M3, check_gated, check_input, check_weight

_LIBRARY = Library("linnet", "FRAGMENT")  # type: ignore[no-untyped-call]


def _operator(schema: str, function: Callable[..., object], fake: Callable[..., object]) -> None:
    name = schema.partition("(")[0]
    _LIBRARY.define(schema)  # type: ignore[no-untyped-call]
    _LIBRARY.impl(name, function, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
    register_fake(f"linnet::{name}", fake, lib=_LIBRARY)


def _rows(x: Tensor) -> Tensor:
    return x.reshape(-1, x.shape[-1]).contiguous()


def fp8_linear(x: Tensor, weight: Tensor, scale: Tensor, rowwise: bool) -> Tensor:
    check_weight("block_linear", weight, scale, rowwise=rowwise)
    check_input("block_linear", x, weight.shape[1])
    flat = _rows(x)
    return _product(flat, weight, scale, rowwise).view(*x.shape[:-1], weight.shape[0])


def _product(x: Tensor, weight: Tensor, scale: Tensor, rowwise: bool) -> Tensor:
    """x [rows, In] -> [rows, Out]."""
    rows = x.shape[0]
    if not rows:
        return x.new_empty(0, weight.shape[0])
    path = dispatch.route(rows, not rowwise and dispatch.block_scales(x.device, x.dtype))
    if path == "gemv":
        return launch.gemv(x, weight, scale, rowwise=rowwise)
    if path == "small_rows":
        return launch.small_rows(x, weight, scale, rowwise=rowwise)
    if rowwise:
        if x.dtype == torch.bfloat16 and scaled.in_torch():
            return scaled.row_product(x, weight, scale)
        return functional.linear(x, launch.decode_weight(weight, scale, x.dtype, rowwise=True))
    q, q_scale = launch.quantise(x)
    return fp8_product(q, q_scale, rows, weight, scale, x.dtype)


def fp8_product(q: Tensor, q_scale: Tensor, rows: int, weight: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
    """Rounded inputs (see `launch.quantise`) by a weight -> [rows, Out] in `dtype`."""
    if dispatch.route(max(rows, 2), dispatch.block_scales(q.device, dtype)) == "scaled_mm":
        return scaled.block_product(q, q_scale, weight, scale)[:rows]
    return launch.tile(q, q_scale, rows, weight, scale, dtype)


def fp8_gated(x: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
    check_weight("gated", weight, scale)
    check_gated("gated", weight)
    check_input("gated", x, weight.shape[1])
    flat = _rows(x)
    half = weight.shape[0] // 2
    if flat.shape[0] == 1:
        result = launch.gated_gemv(flat, weight, scale)
    elif 1 < flat.shape[0] <= launch.MOST_SMALL_ROWS:
        result = launch.small_rows(flat, weight, scale, gated=True)
    else:
        gate, up = _product(flat, weight, scale, rowwise=False).chunk(2, dim=-1)
        result = functional.silu(gate) * up
    return result.view(*x.shape[:-1], half)


def fp8_quantise(x: Tensor) -> tuple[Tensor, Tensor]:
    return launch.quantise(_rows(x))


def fp8_rms_norm_quantise(x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    return launch.rms_norm_quantise(_rows(x), weight, eps)


def fp8_silu_mul_quantise(x: Tensor) -> tuple[Tensor, Tensor]:
    return launch.silu_mul_quantise(_rows(x))


def _fake_rounded(x: Tensor, inner: int) -> tuple[Tensor, Tensor]:
    padded = (x.numel() // x.shape[-1] + 3) // 4 * 4
    scales = x.new_empty(inner // 128, padded, dtype=torch.float32)
    return x.new_empty(padded, inner, dtype=E4M3), scales.t()


_operator(
    "fp8_linear(Tensor x, Tensor weight, Tensor scale, bool rowwise) -> Tensor",
    fp8_linear,
    lambda x, weight, scale, rowwise: x.new_empty(*x.shape[:-1], weight.shape[0]),
)
_operator(
    "fp8_product(Tensor q, Tensor q_scale, SymInt rows, Tensor weight, Tensor scale, ScalarType dtype) -> Tensor",
    fp8_product,
    lambda q, q_scale, rows, weight, scale, dtype: q.new_empty(rows, weight.shape[0], dtype=dtype),
)
_operator(
    "fp8_gated(Tensor x, Tensor weight, Tensor scale) -> Tensor",
    fp8_gated,
    lambda x, weight, scale: x.new_empty(*x.shape[:-1], weight.shape[0] // 2),
)
_operator("fp8_quantise(Tensor x) -> (Tensor, Tensor)", fp8_quantise, lambda x: _fake_rounded(x, x.shape[-1]))
_operator(
    "fp8_rms_norm_quantise(Tensor x, Tensor weight, float eps) -> (Tensor, Tensor)",
    fp8_rms_norm_quantise,
    lambda x, weight, eps: _fake_rounded(x, x.shape[-1]),
)
_operator(
    "fp8_silu_mul_quantise(Tensor x) -> (Tensor, Tensor)",
    fp8_silu_mul_quantise,
    lambda x: _fake_rounded(x, x.shape[-1] // 2),
)
