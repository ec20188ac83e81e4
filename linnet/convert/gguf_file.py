"""GGUF files: metadata and tensors, read from bytes that nobody vouches for.

The format (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md), little-endian: the magic `GGUF`, a version, how
many tensors and metadata entries there are, the entries, the tensors' names, shapes, types and offsets, and from the
next multiple of the alignment on their bytes. The `gguf` library knows the number formats and decodes them; the
structure is read here, because its reader follows whatever lengths a file declares.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from linnet.convert.errors import ConvertError, LibraryMissingError
from linnet.registry.errors import shown

try:
    import gguf
    import numpy as np
    from gguf.quants import dequantize
except ModuleNotFoundError as error:
    raise LibraryMissingError(error.name or "gguf") from None

VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MOST_AXES = 4
MOST_NESTING = 3
_SCALARS = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"
}  # fmt: skip
_STRING, _ARRAY = 8, 9


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """One tensor: `shape` as torch writes it (GGUF stores axes the other way round), `kind` its number format, its
    bytes from `start` to `end`."""

    name: str
    shape: tuple[int, ...]
    kind: gguf.GGMLQuantizationType
    start: int
    end: int


class GgufFile:
    """An open GGUF file: `metadata` by key, `tensors` by name, in the file's order."""

    def __init__(self, path: Path) -> None:
        """Reads all but the tensors' bytes. Raises ConvertError; OSError where the file cannot be read."""
        self.path = path
        with path.open("rb") as file:
            size = file.seek(0, 2)
            if size < 24:
                raise self._error(f"is {size} bytes long, too short for a GGUF file", "Download it again.")
            self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._at = 0
        self.metadata, self.tensors = self._read()

    def values(self, tensor: GgufTensor) -> np.ndarray[Any, np.dtype[np.float32]]:
        """The tensor decoded to f32. Raises ConvertError for a number format that is not known, NaN or infinity."""
        raw = np.frombuffer(self._data, np.uint8, tensor.end - tensor.start, tensor.start)
        rows = raw.reshape(*tensor.shape[:-1], -1)
        try:
            values = np.asarray(dequantize(rows, tensor.kind), np.float32).reshape(tensor.shape)
        except (NotImplementedError, KeyError):
            raise self._error(
                f"holds the tensor {shown(tensor.name)} as {tensor.kind.name}, which cannot be decoded",
                "Convert a file of another quantisation, such as Q8_0, Q4_K_M or F16.",
            ) from None
        if not np.isfinite(values).all():
            what = f"holds NaN or infinity in the tensor {shown(tensor.name)}"
            raise self._error(what, "Download it again, or take another quantisation.")
        return values

    def _read(self) -> tuple[Mapping[str, Any], Mapping[str, GgufTensor]]:
        if self._take(4) != b"GGUF":
            help = "Name a .gguf file, or a folder with config.json and safetensors."
            raise self._error("is not a GGUF file: it does not begin with the letters GGUF", help)
        version = self._scalar("<I")
        if version & 0xFFFF == 0:
            raise self._error("is a big-endian GGUF file, which is not supported", "Convert a little-endian one.")
        if version not in VERSIONS:
            known = " and ".join(map(str, VERSIONS))
            raise self._error(f"is GGUF version {version}, but {known} are known", "Write it anew with a current tool.")
        count, entries = self._scalar("<Q"), self._scalar("<Q")
        metadata: dict[str, Any] = {}
        for _ in range(entries):
            key = self._string()
            metadata[key] = self._value(self._scalar("<I"), 0)
        declared = [self._declaration() for _ in range(count)]
        alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
        if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
            raise self._error(f"has the alignment {alignment}, no power of two", "Download it again.")
        first = -(-self._at // alignment) * alignment
        tensors: dict[str, GgufTensor] = {}
        for name, shape, kind, offset in declared:
            if name in tensors:
                raise self._error(f"holds the tensor {shown(name)} twice", "Download it again.")
            tensors[name] = self._tensor(name, shape, kind, first + offset)
        return metadata, tensors

    def _declaration(self) -> tuple[str, tuple[int, ...], int, int]:
        name, axes = self._string(), self._scalar("<I")
        if axes > MOST_AXES:
            what = f"declares the tensor {shown(name)} with {axes} axes, more than {MOST_AXES}"
            raise self._error(what, "Download it again.")
        shape = tuple(reversed([self._scalar("<Q") for _ in range(axes)]))
        return name, shape, self._scalar("<I"), self._scalar("<Q")

    def _tensor(self, name: str, shape: tuple[int, ...], number: int, start: int) -> GgufTensor:
        try:
            kind = gguf.GGMLQuantizationType(number)
        except ValueError:
            raise self._error(
                f"holds the tensor {shown(name)} in the unknown number format {number}",
                "Convert a file of another quantisation, such as Q8_0, Q4_K_M or F16.",
            ) from None
        elements = 1
        for n in shape:
            elements *= n
        block, bytes_each = gguf.GGML_QUANT_SIZES[kind]
        if elements == 0 or shape[-1] % block:
            what = f"declares the tensor {shown(name)} {list(shape)} as {kind.name}, whose blocks hold {block} numbers"
            raise self._error(what, "Download it again.")
        end = start + elements // block * bytes_each
        if end > len(self._data):
            raise self._error(
                f"is truncated: it ends at byte {len(self._data)}, but the tensor {shown(name)} reaches to byte {end}",
                "Download it again.",
            )
        return GgufTensor(name, shape, kind, start, end)

    def _value(self, kind: int, depth: int) -> Any:
        if kind in _SCALARS:
            return self._scalar(_SCALARS[kind])
        if kind == _STRING:
            return self._string()
        if kind != _ARRAY or depth == MOST_NESTING:
            raise self._error(f"has metadata of the unknown type {kind} at byte {self._at}", "Download it again.")
        inner, count = self._scalar("<I"), self._scalar("<Q")
        if inner in _SCALARS:
            form = _SCALARS[inner]
            return np.frombuffer(self._take(count * struct.calcsize(form)), form).tolist()
        return [self._value(inner, depth + 1) for _ in range(count)]

    def _string(self) -> str:
        data = self._take(self._scalar("<Q"))
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise self._error(f"holds text that is not UTF-8 before byte {self._at}", "Download it again.") from None

    def _scalar(self, form: str) -> Any:
        return struct.unpack(form, self._take(struct.calcsize(form)))[0]

    def _take(self, count: int) -> bytes:
        if count > len(self._data) - self._at:
            what = f"is truncated: it ends at byte {len(self._data)}, inside its header"
            raise self._error(what, "Download it again.")
        data = self._data[self._at : self._at + count]
        self._at += count
        return data

    def _error(self, fault: str, help: str) -> ConvertError:
        return ConvertError(f"{self.path} {fault}. {help}")
