"""The precision of matrix products on a GPU, which torch lets a process lower for all that it computes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import Any

from torch.backends import cuda

# For bf16 and f16, whose sums torch may round on the way, and split over blocks: the name of that pair of settings.
_REDUCED = tuple(f"allow_{half}_reduced_precision_reduction" for half in ("bf16", "fp16"))

_lock = Lock()
# How many runs are under way, and the settings from before the first of them.
_running = 0
_before: dict[str, Any] = {}


@contextmanager
def full_precision() -> Iterator[None]:
    """Sums of f16 and bf16 products are kept in f32 and rounded once, and f32 factors are not rounded to TF32.

    torch allows the first by default and the second on request. The settings are the process's, not a thread's: the
    last of the runs that overlap puts them back, also where it fails. On a CPU they change nothing. Gradients are
    computed after a run, by the settings of whoever asks for them.
    """
    global _running
    with _lock:
        if not _running:
            _before.update(_settings())
            exact = {name: (False, _before[name][1]) for name in _REDUCED}
            _apply({**exact, "allow_fp16_accumulation": False, "fp32_precision": "ieee"})
        _running += 1
    try:
        yield
    finally:
        with _lock:
            _running -= 1
            if not _running:
                _apply(_before)


def _settings() -> dict[str, Any]:
    matmul = cuda.matmul
    reduced = {name: (getattr(matmul, name), getattr(matmul, f"{name}_split_k")) for name in _REDUCED}
    accumulation, factors = matmul.allow_fp16_accumulation, matmul.fp32_precision
    return {**reduced, "allow_fp16_accumulation": accumulation, "fp32_precision": factors}


def _apply(settings: Mapping[str, Any]) -> None:
    for name, value in settings.items():
        setattr(cuda.matmul, name, value)
