"""The precision of matrix products on a GPU, which torch lets a process lower for all that it computes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch.backends import cuda

# The widths whose sums torch may round on the way, split over blocks.
_HALVES = ("bf16", "fp16")


@contextmanager
def full_precision() -> Iterator[None]:
    """Sums of f16 and bf16 products are kept in f32 and rounded once, and f32 factors are not rounded to TF32.

    torch allows the first by default and the second on request. The settings are the process's, not a thread's: they
    are put back at the end, also where the run fails. On a CPU they change nothing. Gradients are computed after a run,
    by the settings of whoever asks for them.
    """
    matmul = cuda.matmul
    names = [f"allow_{half}_reduced_precision_reduction" for half in _HALVES]
    reduced = {name: (getattr(matmul, name), getattr(matmul, f"{name}_split_k")) for name in names}
    accumulation, factors = matmul.allow_fp16_accumulation, matmul.fp32_precision
    try:
        for name, (_, split) in reduced.items():
            setattr(matmul, name, (False, split))
        matmul.allow_fp16_accumulation = False
        matmul.fp32_precision = "ieee"
        yield
    finally:
        for name, before in reduced.items():
            setattr(matmul, name, before)
        matmul.allow_fp16_accumulation = accumulation
        matmul.fp32_precision = factors
