"""Safetensors headers, read from bytes that nobody vouches for.

The format (https://huggingface.co/docs/safetensors): eight bytes, the little-endian length N of the header; N bytes of
JSON, `{"name": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [begin, end]}, ...}`; then the tensors' bytes, which
the offsets index, without holes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from linnet.registry.errors import HeaderError, Problem, shown
from linnet.registry.strict_json import BadJsonError, JsonObject, parse_json

PREFIX_BYTES = 8
# The format's own limit.
HEADER_BYTES = 100_000_000
# Bits of an element. F4 and the F6 forms pack several elements in a byte.
DTYPE_BITS: Mapping[str, int] = {
    "BOOL": 8, "U8": 8, "I8": 8, "U16": 16, "I16": 16, "U32": 32, "I32": 32, "U64": 64, "I64": 64,
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "F16": 16, "BF16": 16, "F32": 32, "F64": 64, "C64": 64,
}  # fmt: skip
MOST_AXES = 64
MOST_ELEMENTS = 2**63 - 1
HELP = "Download the file again, or write it again with the safetensors library."


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor of a checkpoint.

    `dtype` is spelled as safetensors does (`BF16`, `F8_E4M3`), `file` as the card names it. Its bytes are `start` to
    `end` (exclusive), counted from the beginning of the file; those of its words, where it is `packed`; and
    those of its own rows, where it is a part of a `whole`.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: str
    start: int
    end: int
    packed: Packed | None = None
    whole: Whole | None = None

    def __str__(self) -> str:
        return f"{self.dtype} [{', '.join(map(str, self.shape))}]"

    @property
    def stored(self) -> str:
        """What the file calls the tensor that this is, or is rows of."""
        return self.whole.name if self.whole is not None else self.name


@dataclass(frozen=True, slots=True)
class Whole:
    """The tensor that another is rows of, from `row` on. See `linnet.registry.fused`."""

    name: str
    row: int


@dataclass(frozen=True, slots=True)
class Packed:
    """How a tensor [Out, In] lies in u32 words: numbers of `bits` bits, and a scale and a bias, [Out, In / group], for
    each `group` of a row. See `linnet.registry.recipe`."""

    bits: int
    group: int
    mode: str
    scales: TensorInfo
    biases: TensorInfo


@dataclass(frozen=True, slots=True)
class TensorTable:
    """Every tensor of a checkpoint by name, over all its files."""

    tensors: Mapping[str, TensorInfo]
    files: tuple[str, ...]

    def __getitem__(self, name: str) -> TensorInfo:
        return self.tensors[name]

    def __contains__(self, name: object) -> bool:
        return name in self.tensors

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)


def join_headers(headers: Mapping[str, Iterable[TensorInfo]]) -> TensorTable:
    """One table of the headers of several files. Raises HeaderError where two files hold a tensor of one name."""
    tensors: dict[str, TensorInfo] = {}
    problems: list[Problem] = []
    for infos in headers.values():
        for info in infos:
            other = tensors.setdefault(info.name, info)
            if other is not info:
                message = f"The tensor {shown(info.name)} is in {other.file} and again in {info.file}."
                problems.append(_problem("twice", info.file, message))
    if problems:
        raise HeaderError(problems)
    return TensorTable(tensors, tuple(headers))


def read_header(path: Path, file: str | None = None) -> tuple[TensorInfo, ...]:
    """The tensors of a local file, of which only the header is read. `file` is what the card calls it.

    Raises HeaderError; OSError where the file cannot be read.
    """
    name = file or path.name
    with path.open("rb") as stream:
        size = stream.seek(0, 2)
        stream.seek(0)
        length = header_length(stream.read(PREFIX_BYTES), name, size)
        return parse_header(stream.read(length), name, length, size)


def read_headers(files: Mapping[str, Path]) -> dict[str, tuple[TensorInfo, ...]]:
    """The tensors of each local file; `files` maps what the card calls a file to where it is.

    Raises HeaderError with the problems of all of them; OSError where one cannot be read.
    """
    headers: dict[str, tuple[TensorInfo, ...]] = {}
    problems: list[Problem] = []
    for file, path in files.items():
        try:
            headers[file] = read_header(path, file)
        except HeaderError as error:
            problems.extend(error.problems)
    if problems:
        raise HeaderError(problems)
    return headers


def header_length(prefix: bytes, file: str, file_size: int | None = None) -> int:
    """The header's length in bytes, from the first eight bytes of a file. Raises HeaderError."""
    if len(prefix) < PREFIX_BYTES:
        raise _error("truncated", file, f"{file} ends after {len(prefix)} bytes, before its header's length.")
    length = int.from_bytes(prefix[:PREFIX_BYTES], "little")
    if length > HEADER_BYTES:
        limit = f"more than the format's {HEADER_BYTES}"
        raise _error("oversized", file, f"{file} declares a header of {length} bytes, {limit}.")
    if length < 2:
        raise _error("json", file, f"{file} declares a header of {length} bytes, too short for a JSON object.")
    if file_size is not None and PREFIX_BYTES + length > file_size:
        raise _error(
            "truncated", file, f"{file} is {file_size} bytes long, but its header alone needs {PREFIX_BYTES + length}."
        )
    return length


def parse_header(header: bytes, file: str, length: int, file_size: int | None = None) -> tuple[TensorInfo, ...]:
    """The tensors that the header declares, in the order of their bytes.

    `length` is what the file's first eight bytes say; `file_size` is the whole file's size in bytes, which the tensors
    must fill exactly. Raises HeaderError.
    """
    if len(header) < length:
        raise _error("truncated", file, f"{file} ends inside its header: {len(header)} of {length} bytes are there.")
    if not header.startswith(b"{"):
        raise _error("json", file, f"The header of {file} does not begin with a JSON object.")
    try:
        value = parse_json(header[:length])
    except BadJsonError as error:
        raise _error("json", file, f"The header of {file} {error}.") from None
    if not isinstance(value, JsonObject):
        raise _error("json", file, f"The header of {file} is not a JSON object.")
    if value.duplicates:
        raise _error("duplicate", file, f"The header of {file} declares {shown(value.duplicates[0])} twice.")
    metadata = value.pop("__metadata__", JsonObject())
    if not isinstance(metadata, JsonObject) or not all(isinstance(item, str) for item in metadata.values()):
        raise _error("metadata", file, f"The __metadata__ of {file} is not an object of strings.")
    data_start = PREFIX_BYTES + length
    infos = [_tensor(name, entry, file, data_start) for name, entry in value.items()]
    infos.sort(key=lambda info: (info.start, info.end))
    _check_layout(infos, file, data_start, file_size)
    return tuple(infos)


def _tensor(name: str, entry: Any, file: str, data_start: int) -> TensorInfo:
    # Headers have hundreds of thousands of tensors: only what is wrong with one is put into words.
    def fault(kind: str, what: str, help: str = HELP) -> HeaderError:
        return _error(kind, file, f"The tensor {shown(name)} of {file} {what}", help)

    if not isinstance(entry, JsonObject) or set(entry) != {"dtype", "shape", "data_offsets"} or entry.duplicates:
        raise fault("entry", "is not declared by exactly a dtype, a shape and data_offsets.")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPE_BITS:
        written = shown(dtype) if isinstance(dtype, str) else "not a string"
        raise fault("dtype", f"has an unknown dtype: {written}.", f"Known are {', '.join(DTYPE_BITS)}.")
    if not isinstance(shape, list) or len(shape) > MOST_AXES or not all(map(_is_size, shape)):
        raise fault("shape", f"has a shape that is not a list of at most {MOST_AXES} sizes.")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(_is_size, offsets)) or offsets[0] > offsets[1]:
        raise fault("offsets", "has data_offsets that are not a begin and an end.")
    elements = 1
    for n in shape:
        elements *= n
    bits = elements * DTYPE_BITS[dtype]
    begin, end = offsets
    if elements > MOST_ELEMENTS or bits % 8 or bits // 8 != end - begin:
        raise fault("size", f"is declared {dtype} {shape}, {_bytes(bits)}, but its offsets hold {end - begin} bytes.")
    return TensorInfo(name, dtype, tuple(shape), file, data_start + begin, data_start + end)


def _check_layout(infos: list[TensorInfo], file: str, data_start: int, file_size: int | None) -> None:
    """Tensors follow each other without overlap or gap, from the header's end to the file's."""
    at = data_start
    before: TensorInfo | None = None
    for info in infos:
        if file_size is not None and info.end > file_size:
            raise _error(
                "out-of-range",
                file,
                f"The tensor {shown(info.name)} ends at byte {info.end} of {file}, which has only {file_size}.",
            )
        if info.start < at:
            other = shown(before.name) if before else "the header"
            raise _error("overlap", file, f"The tensor {shown(info.name)} of {file} overlaps {other}.")
        if info.start > at:
            raise _error(
                "gap", file, f"{file} has {info.start - at} bytes that belong to no tensor before {shown(info.name)}."
            )
        at, before = info.end, info
    if file_size is not None and at != file_size:
        raise _error("file-size", file, f"{file} is {file_size} bytes long, but its tensors end at byte {at}.")


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_ELEMENTS


def _bytes(bits: int) -> str:
    return f"{bits // 8} bytes" if bits % 8 == 0 else f"{bits} bits"


def _problem(kind: str, file: str, message: str, help: str = HELP) -> Problem:
    return Problem(f"header.{kind}", file, message, help)


def _error(kind: str, file: str, message: str, help: str = HELP) -> HeaderError:
    return HeaderError([_problem(kind, file, message, help)])
