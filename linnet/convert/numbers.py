"""Number formats of checkpoints, in numpy, and a safetensors file written tensor by tensor."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from linnet.convert.errors import ConvertError, LibraryMissingError
from linnet.registry.errors import shown

try:
    import numpy as np
except ModuleNotFoundError as error:
    raise LibraryMissingError(error.name or "numpy") from None

Floats = np.ndarray[Any, np.dtype[np.float32]]
# Linnet's dtype to safetensors' own name.
NAMES: Mapping[str, str] = {"bf16": "BF16", "f16": "F16", "f32": "F32"}
# Numbers rounded at once, so that what is computed on the way stays small.
CHUNK = 1 << 22
SIZES: Mapping[str, int] = {"bf16": 2, "f16": 2, "f32": 4}


def decode(data: bytes, stored: str) -> Floats:
    """The numbers that little-endian bytes of the safetensors dtype `stored` (BF16, F16, F32) hold, in f32, flat."""
    if stored == "BF16":
        return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)
    return np.frombuffer(data, {"F16": "<f2", "F32": "<f4"}[stored]).astype(np.float32)


def encode(values: Floats, dtype: str, name: str) -> bytes:
    """Little-endian bytes of `values` rounded to `dtype` (bf16, f16 or f32), to the nearest, ties to even.

    Raises ConvertError where a number is NaN or infinite, or becomes infinite; `name` is the tensor's.
    """
    flat = np.ascontiguousarray(values, np.float32).reshape(-1)
    parts = []
    for start in range(0, flat.size, CHUNK):
        part = flat[start : start + CHUNK]
        finite = bool(np.isfinite(part).all())
        if dtype == "bf16":
            bits = part.view(np.uint32)
            # Half of a unit in the last place kept, one less where that place is even, so that ties go to even.
            rounded = ((bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) >> 16).astype("<u2")
            finite &= bool(((rounded & 0x7F80) != 0x7F80).all())
            parts.append(rounded.tobytes())
        else:
            with np.errstate(over="ignore"):
                cast = part.astype("<f2" if dtype == "f16" else "<f4")
            finite &= bool(np.isfinite(cast).all())
            parts.append(cast.tobytes())
        if not finite:
            raise ConvertError(
                f"The tensor {shown(name)} holds a number that {dtype} cannot: give another dtype with --dtype, or "
                "fetch the checkpoint again if it holds NaN."
            )
    return b"".join(parts)


def write_safetensors(
    path: Path, shapes: Mapping[str, tuple[int, ...]], dtype: str, tensors: Iterable[tuple[str, bytes]]
) -> None:
    """Write a safetensors file of tensors of one dtype. `tensors` gives their bytes in the order of `shapes`, so that
    only one of them is in memory at a time."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, shape in shapes.items():
        size = SIZES[dtype]
        for n in shape:
            size *= n
        header[name] = {"dtype": NAMES[dtype], "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    # Readers map the file: tensors begin at a multiple of eight.
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name, data in tensors:
            begin, end = header[name]["data_offsets"]
            assert len(data) == end - begin
            file.write(data)
