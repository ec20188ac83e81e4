"""The checked way to each Triton program: shapes, strides, dtypes and alignment, then the grid and the configuration.

x is [rows, In] here. Every function raises KernelInputError for tensors that its program cannot take, and
KernelUnavailableError on a device without the kernels. Triton is imported when the first of them starts.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from linnet.runner.torch.kernels.triton import configurations
from linnet.runner.torch.kernels.triton.checks import (
    BLOCK,
    E4M3,
    FLOATS,
    ceil_div,
    check_device,
    check_gated,
    check_input,
    check_layout,
    check_quantised,
    check_weight,
    require,
    shape_text,
)
from linnet.runner.torch.kernels.triton.configurations import Place
from linnet.runner.torch.kernels.triton.dispatch import facts, missing
from linnet.runner.torch.kernels.triton.errors import KernelUnavailableError

# Columns that a program of the elementwise kernels takes.
COLUMNS = 2048
REDUCED = 1024
DECODED_ROWS = 32
# What one program of the norm can hold, a row at a time.
NORM_WIDTH = 32768
MOST_SMALL_ROWS = 32


def _on(kernel: str, tensor: Tensor) -> AbstractContextManager[object]:
    """Launches go to the current GPU: make it the tensor's."""
    reason = missing(tensor.device)
    if reason is not None:
        raise KernelUnavailableError(kernel, tensor.device, reason)
    return torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext()


def _place(device: torch.device, weight: Tensor, rows: int) -> Place:
    known = facts(device)
    return Place(known.capability[0], known.sms, weight.shape[0], weight.shape[1], rows)


def _check_product(kernel: str, x: Tensor, weight: Tensor, scale: Tensor, rowwise: bool) -> None:
    check_weight(kernel, weight, scale, rowwise=rowwise)
    check_input(kernel, x, weight.shape[1])
    require(kernel, x.dim() == 2, f"x must be [rows, In], not {shape_text(x)}")
    check_device(kernel, x=x, weight=weight, scale=scale)
    for name, tensor in (("x", x), ("weight", weight), ("scale", scale)):
        check_layout(kernel, name, tensor)


def gemv(x: Tensor, weight: Tensor, scale: Tensor, *, rowwise: bool = False) -> Tensor:
    """x [1, In], weight [Out, In] u8, scale by blocks, or [Out, 1] when `rowwise` -> [1, Out] in x's dtype."""
    name = "gemv"
    _check_product(name, x, weight, scale, rowwise)
    require(name, x.shape[0] == 1, f"x must have one row, not {x.shape[0]}")
    out, inner = weight.shape
    result = x.new_empty(1, out)
    with _on(name, x):
        from linnet.runner.torch.kernels.triton.programs import gemv as programs

        config = configurations.gemv(_place(x.device, weight, 1))
        programs.gemv[(ceil_div(out, config.block_n),)](
            x,
            weight.view(E4M3),
            scale,
            result,
            out,
            inner,
            scale.stride(0),
            block_n=config.block_n,
            block_k=config.block_k,
            rowwise=rowwise,
            num_warps=config.warps,
            enable_fp_fusion=True,
        )
    return result


def gated_gemv(x: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
    """x [1, In], weight [2 * Inner, In] u8, gate before up -> silu(gate) * up, [1, Inner] in x's dtype."""
    name = "gated_gemv"
    _check_product(name, x, weight, scale, rowwise=False)
    check_gated(name, weight)
    require(name, x.shape[0] == 1, f"x must have one row, not {x.shape[0]}")
    half, inner = weight.shape[0] // 2, weight.shape[1]
    result = x.new_empty(1, half)
    with _on(name, x):
        from linnet.runner.torch.kernels.triton.programs import gemv as programs

        config = configurations.gated_gemv(_place(x.device, weight, 1))
        programs.gated_gemv[(half // config.block_n,)](
            x,
            weight.view(E4M3),
            scale,
            result,
            half,
            inner,
            scale.stride(0),
            block_n=config.block_n,
            block_k=config.block_k,
            num_warps=config.warps,
            enable_fp_fusion=True,
        )
    return result


def small_rows(x: Tensor, weight: Tensor, scale: Tensor, *, rowwise: bool = False, gated: bool = False) -> Tensor:
    """x [rows, In] with at most 32 rows -> [rows, Out] in x's dtype; silu(gate) * up, [rows, Out / 2], when `gated`."""
    name = "small_rows"
    _check_product(name, x, weight, scale, rowwise)
    rows, (out, inner) = x.shape[0], weight.shape
    require(name, 1 <= rows <= MOST_SMALL_ROWS, f"x must have 1 to {MOST_SMALL_ROWS} rows, not {rows}")
    if gated:
        check_gated(name, weight)
    features = out // 2 if gated else out
    result = x.new_empty(rows, features)
    with _on(name, x):
        from linnet.runner.torch.kernels.triton.programs import small as programs

        config = configurations.small_rows(_place(x.device, weight, rows))
        whole = config.splits == 1 and not gated
        parts = result if whole else x.new_empty(config.splits, rows, out, dtype=torch.float32)
        programs.small_rows[(ceil_div(out, config.block_n), config.splits)](
            x,
            weight.view(E4M3),
            scale,
            parts,
            rows,
            out,
            inner,
            scale.stride(0),
            block_m=config.block_m,
            block_n=config.block_n,
            block_k=BLOCK,
            splits=config.splits,
            rowwise=rowwise,
            num_warps=config.warps,
            enable_fp_fusion=True,
            num_stages=config.stages,
        )
        if not whole:
            programs.add_splits[(rows, ceil_div(features, REDUCED))](
                parts, result, rows, features, splits=config.splits, gated=gated, block=REDUCED
            )
    return result


def tile(q: Tensor, q_scale: Tensor, rows: int, weight: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
    """q [padded, In] E4M3 with its scales (see `quantise`) -> the first `rows` rows of the product, [rows, Out]."""
    name = "tile"
    check_weight(name, weight, scale)
    check_quantised(name, q, q_scale, rows)
    require(name, q.shape[1] == weight.shape[1], f"q has {q.shape[1]} columns, the weight {weight.shape[1]}")
    require(name, dtype in FLOATS, f"the product can be bf16, f16 or f32, not {dtype}")
    check_device(name, q=q, q_scale=q_scale, weight=weight, scale=scale)
    for label, tensor in (("weight", weight), ("scale", scale)):
        check_layout(name, label, tensor)
    out, inner = weight.shape
    result = torch.empty(rows, out, dtype=dtype, device=q.device)
    if not rows:
        return result
    with _on(name, q):
        from linnet.runner.torch.kernels.triton.programs import tile as programs

        config = configurations.tile(_place(q.device, weight, rows), facts(q.device).shared)
        programs.tile[(ceil_div(rows, config.block_m) * ceil_div(out, config.block_n),)](
            q,
            q_scale,
            weight.view(E4M3),
            scale,
            result,
            rows,
            out,
            inner,
            q.shape[0],
            scale.stride(0),
            block_m=config.block_m,
            block_n=config.block_n,
            group=config.group,
            num_warps=config.warps,
            enable_fp_fusion=True,
            num_stages=config.stages,
        )
    return result


def _rounded(x: Tensor, inner: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Room for x's rows, padded to a multiple of 4, and for their scales, column by column."""
    padded = ceil_div(x.shape[0], 4) * 4
    q = torch.empty(padded, inner, dtype=dtype, device=x.device)
    scales = torch.empty(inner // BLOCK, padded, dtype=torch.float32, device=x.device)
    return q, scales.t()


def _check_rounding(kernel: str, x: Tensor, inner: int) -> None:
    require(kernel, x.dtype in FLOATS and x.dim() == 2, f"x must be bf16, f16 or f32 [rows, In], not {shape_text(x)}")
    require(kernel, inner > 0 and inner % BLOCK == 0, f"In, {inner}, must be a multiple of {BLOCK}")
    check_layout(kernel, "x", x)


def quantise(x: Tensor, *, dtype: torch.dtype = E4M3) -> tuple[Tensor, Tensor]:
    """x [rows, In] -> q [padded, In] and scales [padded, In / 128] f32, strides (1, padded); padded % 4 == 0.

    A scale is the largest magnitude of 128 inputs over 448. `dtype` f32 leaves out the rounding to E4M3.
    """
    inner = x.shape[-1]
    _check_rounding("quantise", x, inner)
    q, scales = _rounded(x, inner, dtype)
    if not q.numel():
        return q, scales
    block = min(COLUMNS, power_of_two(inner))
    with _on("quantise", x):
        from linnet.runner.torch.kernels.triton.programs import rounding as programs

        programs.quantise[(q.shape[0], ceil_div(inner, block))](
            x, q, scales, x.shape[0], inner, q.shape[0], block=block
        )
    return q, scales


def rms_norm_quantise(x: Tensor, weight: Tensor, eps: float, *, dtype: torch.dtype = E4M3) -> tuple[Tensor, Tensor]:
    """As `quantise`, of x * rsqrt(mean(x^2) + eps) * weight; weight [In]."""
    name, inner = "rms_norm_quantise", x.shape[-1]
    _check_rounding(name, x, inner)
    fits = weight.dtype in FLOATS and tuple(weight.shape) == (inner,)
    require(name, fits, f"weight must be bf16, f16 or f32 [{inner}], not {shape_text(weight)}")
    require(name, inner <= NORM_WIDTH, f"In, {inner}, must be at most {NORM_WIDTH}")
    check_device(name, x=x, weight=weight)
    check_layout(name, "weight", weight)
    q, scales = _rounded(x, inner, dtype)
    if not q.numel():
        return q, scales
    block = power_of_two(inner)
    with _on(name, x):
        from linnet.runner.torch.kernels.triton.programs import rounding as programs

        programs.rms_norm_quantise[(q.shape[0],)](
            x,
            weight,
            eps,
            q,
            scales,
            x.shape[0],
            inner,
            q.shape[0],
            block=block,
            num_warps=norm_warps(block),
        )
    return q, scales


def silu_mul_quantise(x: Tensor, *, dtype: torch.dtype = E4M3) -> tuple[Tensor, Tensor]:
    """As `quantise`, of silu(gate) * up; x [rows, 2 * In], gate before up."""
    name = "silu_mul_quantise"
    require(name, x.shape[-1] % 2 == 0, f"x holds gates and as many ups: {x.shape[-1]} columns are not")
    inner = x.shape[-1] // 2
    _check_rounding(name, x, inner)
    q, scales = _rounded(x, inner, dtype)
    if not q.numel():
        return q, scales
    block = min(COLUMNS, power_of_two(inner))
    with _on(name, x):
        from linnet.runner.torch.kernels.triton.programs import rounding as programs

        programs.silu_mul_quantise[(q.shape[0], ceil_div(inner, block))](
            x, q, scales, x.shape[0], inner, q.shape[0], block=block
        )
    return q, scales


def decode_weight(weight: Tensor, scale: Tensor, dtype: torch.dtype, *, rowwise: bool = False) -> Tensor:
    """weight [Out, In] u8 and its scales -> [Out, In] in `dtype`: the product in f32, rounded once."""
    name = "decode_weight"
    check_weight(name, weight, scale, rowwise=rowwise)
    require(name, dtype in FLOATS, f"weights are decoded to bf16, f16 or f32, not {dtype}")
    check_device(name, weight=weight, scale=scale)
    for label, tensor in (("weight", weight), ("scale", scale)):
        check_layout(name, label, tensor)
    out, inner = weight.shape
    result = torch.empty(out, inner, dtype=dtype, device=weight.device)
    with _on(name, weight):
        from linnet.runner.torch.kernels.triton.programs import rounding as programs

        programs.decode[(ceil_div(out, DECODED_ROWS), inner // BLOCK)](
            weight.view(E4M3),
            scale,
            result,
            out,
            inner,
            scale.stride(0),
            block_n=DECODED_ROWS,
            rowwise=rowwise,
        )
    return result


def power_of_two(inner: int) -> int:
    """The power of two from `inner` on."""
    return 1 << (inner - 1).bit_length()


def norm_warps(block: int) -> int:
    """So that a thread holds 32 or 64 inputs of a row."""
    return 4 if block <= 2 * COLUMNS else 16
