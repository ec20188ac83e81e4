"""Products through `torch.nn.functional.scaled_mm`, with block scales (cuBLASLt on Hopper) or a scale for each row.

The block recipe takes inputs [M, K] E4M3 with f32 scales [M, K / 128], strides (1, M), M a multiple of 4, and weights
[N, K] transposed with f32 scales [roundup(K / 128, 4), ceil(N / 128)], strides (1, roundup(K / 128, 4)).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from linnet.runner.torch.kernels.triton import reference
from linnet.runner.torch.kernels.triton.checks import ALIGNMENT, BLOCK, E4M3

# Of the measure `1 - 2 sum(xy) / sum(x^2 + y^2)` between a product and its reference on the same rounded inputs.
TOLERANCE = 1e-3


def in_torch() -> bool:
    """Whether this torch has the function and the recipes by name."""
    scaling = getattr(functional, "ScalingType", None)
    return hasattr(functional, "scaled_mm") and hasattr(scaling, "BlockWise128x128")


def block_scale(scale: Tensor) -> Tensor:
    """scale [ceil(N / 128), K / 128] bf16 or f32 -> f32 as the recipe lays it out; no copy where it lies so already.

    Scales upcast once at load, with K a multiple of 512, are taken as they are.
    """
    padding = -scale.shape[1] % 4
    wide = scale.float().contiguous()
    return (functional.pad(wide, (0, padding)) if padding else wide).t()


def block_product(q: Tensor, q_scale: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
    """q [M, K] E4M3 and scales [M, K / 128], weight [N, K] u8 and scale -> [M, N] bf16."""
    kinds = functional.ScalingType
    return functional.scaled_mm(
        q,
        weight.view(E4M3).t(),
        q_scale,
        kinds.BlockWise1x128,
        block_scale(scale),
        kinds.BlockWise128x128,
        output_dtype=torch.bfloat16,
    )


def row_product(x: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
    """x [M, K] rounded to E4M3 row by row, weight [N, K] u8, scale [N, 1] f32 -> [M, N] bf16."""
    kinds = functional.ScalingType
    wide = x.float()
    x_scale = wide.abs().amax(-1, keepdim=True).clamp(min=reference.SMALLEST) / reference.E4M3_MAX
    q = (wide / x_scale).clamp(-reference.E4M3_MAX, reference.E4M3_MAX).to(E4M3)
    return functional.scaled_mm(
        q,
        weight.view(E4M3).t(),
        x_scale,
        kinds.RowWise,
        scale.float().view(1, -1).contiguous(),
        kinds.RowWise,
        output_dtype=torch.bfloat16,
    )


def proves(device: torch.device) -> bool:
    """One small product with block scales on `device`, compared with its reference."""
    generator = torch.Generator().manual_seed(0)
    rows, out, inner = ALIGNMENT, 2 * BLOCK, 4 * BLOCK
    x = torch.randn(rows, inner, generator=generator).to(device)
    weight = torch.randn(out, inner, generator=generator).to(E4M3).view(torch.uint8).to(device)
    scale = torch.rand(out // BLOCK, inner // BLOCK, generator=generator).to(device)
    q, q_scale = reference.quantise(x)
    try:
        found = block_product(q, q_scale, weight, scale)
    except (NotImplementedError, RuntimeError, ValueError):
        return False
    wanted = reference.linear(reference.dequantise(q, q_scale, rows), weight, scale)
    return distance(found, wanted) < TOLERANCE


def distance(found: Tensor, wanted: Tensor) -> float:
    """`1 - 2 sum(xy) / sum(x^2 + y^2)` in f64: 0 for equal tensors, NaN where either holds one."""
    x, y = found.double(), wanted.double()
    total = float((x * x + y * y).sum())
    return 1.0 - 2.0 * float((x * y).sum()) / total if total else 0.0
