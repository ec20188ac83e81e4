"""Which kernel multiplies how many rows on which device. Decided from facts that are looked up once per device."""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Literal

import torch

from linnet.runner.torch.kernels.triton import scaled

Path = Literal["gemv", "small_rows", "tile", "scaled_mm"]

# The first compute capability that the kernels are built for, and the only major one with block scales in cuBLASLt.
CAPABILITY = (9, 0)
SCALED_CAPABILITY = 9
# cuBLASLt 12.9, as the library counts.
SCALED_CUBLASLT = 120900


@dataclass(frozen=True)
class Device:
    """`shared` bytes are a program's at most; `cublaslt` is the loaded library's version, 0 where there is none."""

    capability: tuple[int, int]
    sms: int
    shared: int
    cublaslt: int


# A Hopper GPU, which Triton's interpreter stands for: an H100's and an H200's numbers.
HOPPER = Device(CAPABILITY, 132, 232448, 0)


@dataclass(frozen=True)
class Route:
    """Up to `rows` rows (None: any number) take `path`, if the device has block scales where those are needed."""

    rows: int | None
    path: Path
    block_scales: bool = False


# The first that fits. From how many rows on cuBLASLt wins is published for other shapes only: bench/gpu.py measures it.
ROUTES = (
    Route(1, "gemv"),
    Route(32, "small_rows"),
    Route(255, "tile"),
    Route(None, "scaled_mm", block_scales=True),
    Route(None, "tile"),
)


def interpreted() -> bool:
    """Whether Triton runs its programs on the CPU, as `TRITON_INTERPRET=1` asks for."""
    return os.environ.get("TRITON_INTERPRET", "0").lower() in ("1", "true", "on", "y", "yes")


@cache
def _installed() -> bool:
    return find_spec("triton") is not None


def missing(device: torch.device) -> str | None:
    """Why the kernels cannot run on `device`; None where they can."""
    if not _installed():
        return "since Triton is not installed"
    if interpreted():
        return None if device.type == "cpu" else "since TRITON_INTERPRET=1 runs them on the CPU"
    if device.type != "cuda" or torch.version.cuda is None:
        return "which is not an NVIDIA GPU"
    capability = torch.cuda.get_device_capability(device)
    if capability < CAPABILITY:
        return f"whose compute capability {capability[0]}.{capability[1]} is below 9.0"
    return None


def facts(device: torch.device) -> Device:
    """What decides between kernels."""
    if device.type != "cuda":
        return HOPPER
    return _facts(device.index if device.index is not None else torch.cuda.current_device())


@cache
def _facts(index: int) -> Device:
    properties = torch.cuda.get_device_properties(index)
    capability = (properties.major, properties.minor)
    # What a program may ask for beyond the default.
    shared = int(getattr(properties, "shared_memory_per_block_optin", properties.shared_memory_per_block))
    return Device(capability, properties.multi_processor_count, shared, _cublaslt())


def _cublaslt() -> int:
    """The version of the cuBLASLt that torch loaded; 0 where it cannot be asked."""
    major = (torch.version.cuda or "").partition(".")[0]
    try:
        library = ctypes.CDLL(f"libcublasLt.so.{major}")
    except OSError:
        return 0
    library.cublasLtGetVersion.restype = ctypes.c_size_t
    return int(library.cublasLtGetVersion())


def has_block_scales(device: Device) -> bool:
    """Whether torch and cuBLASLt claim products with block scales; `proven` says whether one came out right."""
    hopper = device.capability[0] == SCALED_CAPABILITY
    return hopper and device.cublaslt >= SCALED_CUBLASLT and scaled.in_torch()


def route(rows: int, block_scales: bool) -> Path:
    for found in ROUTES:
        if (found.rows is None or rows <= found.rows) and (block_scales or not found.block_scales):
            return found.path
    raise AssertionError("the last route takes any number of rows")


def block_scales(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether `dtype` rows on `device` may go to cuBLASLt: a product there has been compared with its reference.

    The comparison runs once for a device, outside a capture; within one that comes first, the answer is no.
    """
    if device.type != "cuda" or dtype != torch.bfloat16 or not has_block_scales(facts(device)):
        return False
    index = device.index if device.index is not None else torch.cuda.current_device()
    if index not in _proven:
        if torch.cuda.is_current_stream_capturing():
            return False
        _proven[index] = scaled.proves(torch.device("cuda", index))
    return _proven[index]


_proven: dict[int, bool] = {}
