"""The kernels beside their references, on the GPU where there is one, else on the CPU in Triton's interpreter.

Run: TRITON_INTERPRET=1 python triton_cases.py GROUP   (on a GPU without the variable)
Prints one JSON object: the measure `1 - 2 sum(xy) / sum(x^2 + y^2)` against f64 for each case, by name. In the
interpreter inputs are f32, since its bf16 is not the GPU's, and rounding kernels leave the rounding to E4M3 to torch,
since its own loses carries and does not saturate.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor
from torch.profiler import profile

from linnet.runner.torch.kernels import triton as kernels
from linnet.runner.torch.kernels.triton import launch, reference
from linnet.runner.torch.kernels.triton.checks import E4M3
from linnet.runner.torch.kernels.triton.dispatch import interpreted
from linnet.runner.torch.kernels.triton.scaled import distance
from linnet.runner.torch.module import load_model

# Qwen3-8B's projections with every side a sixteenth: q, k and v joined, output, gate and up joined, down.
SHAPES = ((384, 256), (256, 256), (1536, 256), (256, 768))
# Sides that no tile divides, and a single block.
RAGGED = ((144, 384), (16, 128), (400, 1152))
FEW = (2, 5, 16, 17, 32)
MANY = (33, 64, 255, 512)
DEVICE = torch.device("cpu" if interpreted() else "cuda")
DTYPES = (torch.float32,) if interpreted() else (torch.bfloat16, torch.float16, torch.float32)
ROUNDED = torch.float32 if interpreted() else E4M3
Case = tuple[str, float]


def weights(
    out: int, inner: int, *, rowwise: bool = False, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor]:
    """Random E4M3 bytes without NaN and scales of very different sizes."""
    generator = torch.Generator().manual_seed(out * 31 + inner)
    codes = torch.randint(0, 254, (out, inner), generator=generator)
    codes += (codes >= 0x7F).long()
    shape = (out, 1) if rowwise else (-(-out // 128), inner // 128)
    scale = torch.exp(torch.randn(shape, generator=generator)).to(dtype)
    return codes.to(torch.uint8).to(DEVICE), scale.to(DEVICE)


def rows_of(rows: int, inner: int, dtype: torch.dtype) -> Tensor:
    generator = torch.Generator().manual_seed(rows * 7 + inner)
    return torch.randn(rows, inner, generator=generator).to(dtype).to(DEVICE)


def linears(shapes: tuple[tuple[int, int], ...], counts: tuple[int, ...]) -> Iterator[Case]:
    for out, inner in shapes:
        weight, scale = weights(out, inner, dtype=torch.bfloat16 if out % 256 else torch.float32)
        row_weight, row_scale = weights(out, inner, rowwise=True)
        for rows in counts:
            for dtype in DTYPES:
                x = rows_of(rows, inner, dtype)
                name = f"{rows} rows, {out} by {inner}, {dtype}"
                found = kernels.block_linear(x, weight, scale)
                assert found.dtype == dtype
                assert found.shape == (rows, out)
                yield f"block {name}", distance(found, reference.linear(x, weight, scale))
                if rows <= 32:
                    found = kernels.row_linear(x, row_weight, row_scale)
                    yield f"row {name}", distance(found, reference.linear(x, row_weight, row_scale))
                if out % 256 == 0:
                    found = kernels.gated(x, weight, scale)
                    yield f"gated {name}", distance(found, reference.gated(x, weight, scale))


def gemv() -> Iterator[Case]:
    yield from linears(SHAPES + RAGGED, (1,))
    weight, scale = weights(256, 256)
    x = rows_of(1, 256, torch.float32).view(1, 1, 256)
    yield "leading axes", distance(kernels.block_linear(x, weight, scale), reference.linear(x, weight, scale))


def small() -> Iterator[Case]:
    yield from linears(SHAPES + RAGGED, FEW)


def products(shapes: tuple[tuple[int, int], ...], counts: tuple[int, ...]) -> Iterator[Case]:
    """The tile kernel on rounded inputs against f64 on the same: E4M3's own error is left out."""
    for out, inner in shapes:
        weight, scale = weights(out, inner, dtype=torch.bfloat16)
        for rows in counts:
            q, q_scale = reference.quantise(rows_of(rows, inner, torch.float32))
            wanted = reference.linear(reference.dequantise(q, q_scale, rows), weight, scale)
            for dtype in DTYPES:
                found = launch.tile(q, q_scale, rows, weight, scale, dtype)
                yield f"tile {rows} rows, {out} by {inner}, {dtype}", distance(found, wanted)
            if not interpreted():
                found = kernels.product(q, q_scale, rows, weight, scale)
                yield f"product {rows} rows, {out} by {inner}", distance(found, wanted)


def tile() -> Iterator[Case]:
    yield from products(SHAPES, MANY)
    yield from products(RAGGED, (1, 100))


def rounding() -> Iterator[Case]:
    for rows, inner in ((1, 128), (3, 384), (4, 4096), (5, 1536), (2, 12288)):
        for dtype in DTYPES:
            name = f"{rows} rows, {inner}, {dtype}"
            x = rows_of(rows, inner, dtype)
            x[0, :128] = 0
            yield f"quantise {name}", rounded(launch.quantise(x, dtype=ROUNDED), x)
            weight = rows_of(1, inner, dtype)[0]
            normal = reference.rms_norm(x, weight, 1e-6)
            yield f"rms_norm {name}", rounded(launch.rms_norm_quantise(x, weight, 1e-6, dtype=ROUNDED), normal)
            both = rows_of(rows, 2 * inner, dtype)
            yield f"silu_mul {name}", rounded(launch.silu_mul_quantise(both, dtype=ROUNDED), reference.silu_mul(both))


def rounded(found: tuple[Tensor, Tensor], wanted: Tensor) -> float:
    """How far q times its scales is from `wanted` rounded in f64, and 1 where the layout is not the one promised."""
    values, scales = found
    rows, (padded, inner) = wanted.shape[0], values.shape
    q = values.to(E4M3)
    laid = padded % 4 == 0 and scales.shape == (padded, inner // 128) and scales.t().is_contiguous()
    if not laid or not torch.isfinite(q.float()).all() or q[rows:].float().any():
        return 1.0
    other, other_scales = reference.quantise(wanted, torch.float64)
    close = torch.allclose(scales.double(), other_scales, rtol=1e-4, atol=1e-20)
    # Where a quotient lies between two E4M3 numbers, the last bits of f32 decide; anything more is an error.
    same = (q.float() == other.float()).float().mean()
    if not close or same < 0.999:
        return 1.0
    return distance(reference.dequantise(q, scales, rows), reference.dequantise(other, other_scales, rows))


def decode() -> Iterator[Case]:
    # Every byte, each value exact.
    weight = torch.arange(256, dtype=torch.uint8).view(2, 128).repeat(8, 1).to(DEVICE)
    weight[(weight & 0x7F) == 0x7F] = 0
    one = torch.ones(1, 1, device=DEVICE)
    exact = kernels.decode_weight(weight, one, torch.float32)
    yield "every byte", float(not torch.equal(exact, weight.view(E4M3).float()))
    for out, inner in SHAPES[:2] + RAGGED:
        for rowwise in (False, True):
            weight, scale = weights(out, inner, rowwise=rowwise)
            for dtype in DTYPES:
                found = kernels.decode_weight(weight, scale, dtype)
                name = f"{'row' if rowwise else 'block'} {out} by {inner}, {dtype}"
                yield name, distance(found, reference.decode_weight(weight, scale))


def model() -> Iterator[Case]:
    """A whole model under `fast` beside `equivalent`, whose products decode the weights: up to 32 rows nothing is
    rounded that the other does not round."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
    import gpu
    import gpu_models

    sizes = replace(gpu.TOY, generics={**gpu.TOY.generics, "T": "f32", "Layers": 1})
    bound = gpu_models.bound_program("qwen3-8b-fp8", sizes)
    tensors = gpu_models.model_weights(bound, DEVICE)
    prompt = torch.arange(8, dtype=torch.int32, device=DEVICE).view(1, 8)
    found = {}
    for numerics, options in (("equivalent", {}), ("fast", {"fp8": "stream", "compile": True})):
        loaded = load_model(bound, tensors, numerics=numerics, device=DEVICE, **options)
        with profile() as calls:
            first = loaded.run_entry("prefill", [prompt, 0])
            found[numerics] = (first, loaded.run_entry("decode", [prompt[:, :1], 8]))
    names = {event.key for event in calls.key_averages()}
    yield "the kernels ran", float(not {"linnet::fp8_linear", "linnet::fp8_gated"} <= names)
    for entry, one, other in zip(("prefill", "decode"), found["fast"], found["equivalent"], strict=True):
        yield entry, distance(one, other)


GROUPS: dict[str, Callable[[], Iterator[Case]]] = {
    "gemv": gemv,
    "small": small,
    "tile": tile,
    "rounding": rounding,
    "decode": decode,
    "model": model,
}

if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(dict(GROUPS[sys.argv[1]]())))
