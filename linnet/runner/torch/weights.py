"""Weights for a manifest: mapped from safetensors files, or drawn at random from a seed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from linnet.language.program.core import TensorSpec
from linnet.language.program.manifest import Manifest, ManifestEntry
from linnet.language.program.types import FLOATS, SAFETENSORS
from linnet.language.words import counted
from linnet.runner.errors import SizeError, WeightsError
from linnet.runner.packed import PackedTensor, Packing
from linnet.runner.torch.dtypes import NAMES, NATIVE, integer_range, is_too_large
from linnet.runner.torch.memory import loading

# E4M3 has two NaN bytes; everything else is a number.
E4M3_NAN = (0x7F, 0xFF)
NAN_CHUNK = 16 * 2**20


@dataclass(frozen=True, slots=True)
class TensorLocation:
    """One tensor of a local safetensors file; `dtype` is safetensors' own name ("BF16", "F8_E4M3").

    Of a `packed` matrix the tensor holds the words, and `dtype` and `shape` are those of the weights they stand for.
    With a `row` it is the rows of a larger one from there on.
    """

    file: Path
    name: str
    dtype: str
    shape: tuple[int, ...]
    packed: PackedLocation | None = None
    row: int | None = None


@dataclass(frozen=True, slots=True)
class PackedLocation:
    """How a packed matrix is packed, and where its scales and biases are."""

    packing: Packing
    scales: TensorLocation
    biases: TensorLocation


@dataclass(frozen=True)
class WeightSource:
    """Where a model's weights are: `bindings` maps parameter paths to tensor names (a path not listed binds to the
    tensor of its own name), `table` tensor names to files."""

    bindings: Mapping[str, str]
    table: Mapping[str, TensorLocation]


@dataclass
class WeightsReport:
    """Bytes used from the mapped files as they are, bytes copied because their dtype or device changed, and files."""

    mapped: int = 0
    converted: int = 0
    files: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        gib = 2**30
        files = counted(len(self.files), "file")
        return f"{self.mapped / gib:.2f} GiB mapped, {self.converted / gib:.2f} GiB converted, {files}"


def read_weights(
    manifest: Manifest, source: WeightSource, device: torch.device, *, convert: bool = False
) -> tuple[dict[str, Tensor], WeightsReport]:
    """Tensors by path, native, on `device`.

    On the CPU a tensor whose dtype is the manifest's is a private mapping of its file: no bytes are copied until they
    are written. Two paths bound to one tensor share it; what is packed is decoded. With `convert`, floating tensors are
    converted to the manifest's dtype; without it another dtype is an error. Raises WeightsError: tensors missing,
    unreadable, of another shape or dtype, paths the manifest lacks, or E4M3 tensors that hold NaN bytes;
    AllocationError.
    """
    stored, report = read_stored(manifest, source, device, convert=convert)
    dtypes = {entry.path: NATIVE[entry.dtype] for entry in manifest.entries}
    decoded: dict[int, Tensor] = {}
    tensors: dict[str, Tensor] = {}
    for path, found in stored.items():
        if isinstance(found, PackedTensor):
            if id(found) not in decoded:
                decoded[id(found)] = found.dense(dtypes[path]).to(device)
                report.converted += decoded[id(found)].nbytes - found.nbytes
            found = decoded[id(found)]
        tensors[path] = found
    return tensors, report


def read_stored(
    manifest: Manifest, source: WeightSource, device: torch.device, *, convert: bool = False
) -> tuple[dict[str, Tensor | PackedTensor], WeightsReport]:
    """As `read_weights`, but what is packed stays so, on the CPU, in the dtype of its scales."""
    # Weights that are given as tensors need torch alone.
    from safetensors import SafetensorError, safe_open

    places, problems = _match(manifest, source, convert)
    if problems:
        raise WeightsError(problems)
    report = WeightsReport(files=sorted({place.file.name for place in places.values()}))
    tensors: dict[str, Tensor | PackedTensor] = {}
    read: dict[tuple[Path, str, int | None, str], Tensor | PackedTensor] = {}
    entries = manifest.by_path()
    with loading(_needed(manifest, places, device), device), ExitStack() as stack:
        handles: dict[Path, Any] = {}

        def mapped(place: TensorLocation) -> Tensor:
            if place.file not in handles:
                handles[place.file] = stack.enter_context(safe_open(place.file, framework="pt", device="cpu"))
            tensor: Tensor = handles[place.file].get_tensor(place.name)
            return tensor if place.row is None else tensor[place.row : place.row + place.shape[0]]

        for path, place in places.items():
            dtype = entries[path].dtype
            key = (place.file, place.name, place.row, dtype)
            if key not in read:
                try:
                    found = mapped(place)
                    if place.packed is not None:
                        scales, biases = mapped(place.packed.scales), mapped(place.packed.biases)
                        packed = PackedTensor(found.view(torch.int32), scales, biases, place.packed.packing)
                        report.converted += packed.nbytes
                        tensors[path] = read[key] = packed
                        continue
                except (OSError, SafetensorError) as error:
                    problems.append(
                        f"tensor {place.name} cannot be read from {place.file}: {error}; fetch the file again"
                    )
                    continue
                problems += _nan_bytes(found, place)
                found = found.view(torch.uint8) if place.dtype == "F8_E4M3" else found
                tensor = found.to(device=device, dtype=NATIVE[dtype])
                same = tensor.data_ptr() == found.data_ptr() and device.type == "cpu"
                report.mapped += tensor.nbytes if same else 0
                report.converted += 0 if same else tensor.nbytes
                read[key] = tensor
            tensors[path] = read[key]
    if problems:
        raise WeightsError(problems)
    return tensors, report


def _needed(manifest: Manifest, places: Mapping[str, TensorLocation], device: torch.device) -> int:
    """Bytes that loading takes: of tensors that cannot stay where their files are mapped."""
    entries = manifest.by_path()
    found = {(place.file, place.name, place.row, entries[path].dtype): place for path, place in places.items()}
    return sum(
        math.prod(place.shape) * NATIVE[dtype].itemsize
        for (*_, dtype), place in found.items()
        if place.packed or device.type != "cpu" or NATIVE[SAFETENSORS.get(place.dtype, place.dtype)] != NATIVE[dtype]
    )


def move_weights(tensors: Mapping[str, Tensor], device: torch.device) -> dict[str, Tensor]:
    """The tensors on `device`; paths that share one share it still. Raises AllocationError."""
    unique = {id(tensor): tensor for tensor in tensors.values()}
    with loading(sum(tensor.nbytes for tensor in unique.values() if tensor.device != device), device):
        moved = {key: tensor.to(device) for key, tensor in unique.items()}
    return {path: moved[id(tensor)] for path, tensor in tensors.items()}


def _match(manifest: Manifest, source: WeightSource, convert: bool) -> tuple[dict[str, TensorLocation], list[str]]:
    """The tensor of each path, and a sentence for each path that has none that fits."""
    entries = manifest.by_path()
    problems = [
        f"{path} is bound, but the model has no such parameter" for path in source.bindings if path not in entries
    ]
    places: dict[str, TensorLocation] = {}
    for entry in manifest.entries:
        name = source.bindings.get(entry.path, entry.path)
        place = source.table.get(name)
        if place is None:
            if not entry.optional or entry.path in source.bindings:
                problems.append(f"{entry.path} binds to tensor {name}, which no weights file has")
            continue
        places[entry.path] = place
        have = SAFETENSORS.get(place.dtype, place.dtype)
        fits = have == entry.dtype or (convert and have in FLOATS and entry.dtype in FLOATS)
        if place.shape != entry.shape or not fits:
            have_text = f"{place.dtype} {list(place.shape)}"
            problems.append(f"{entry.path} needs {entry.dtype} {list(entry.shape)}, but tensor {name} is {have_text}")
    return places, problems


def _nan_bytes(tensor: Tensor, place: TensorLocation) -> list[str]:
    """A sentence if an E4M3 tensor holds NaN bytes, which would spread through every product."""
    if place.dtype != "F8_E4M3":
        return []
    flat = tensor.view(torch.uint8).reshape(-1)
    positive, negative = E4M3_NAN
    count = 0
    for chunk in torch.split(flat, NAN_CHUNK):
        count += int((chunk == positive).sum()) + int((chunk == negative).sum())
    if not count:
        return []
    return [
        f"tensor {place.name} of {place.file} holds {count} E4M3 NaN bytes (0x7f or 0xff): the checkpoint is damaged"
    ]


def check_tensors(manifest: Manifest, tensors: Mapping[str, Tensor]) -> None:
    """Raise WeightsError unless `tensors` has each required path, no unknown one, and the right shapes and dtypes."""
    entries = manifest.by_path()
    problems = [f"the model has no parameter {path}" for path in tensors if path not in entries]
    for entry in manifest.entries:
        tensor = tensors.get(entry.path)
        if tensor is None:
            if not entry.optional:
                problems.append(f"{entry.path} has no tensor")
        elif tuple(tensor.shape) != entry.shape or tensor.dtype != NATIVE[entry.dtype]:
            have = f"{NAMES.get(tensor.dtype, tensor.dtype)} {list(tensor.shape)}"
            problems.append(f"{entry.path} needs {entry.dtype} {list(entry.shape)}, but is given {have}")
    if problems:
        raise WeightsError(problems)


def empty_weights(entries: Iterable[ManifestEntry], device: torch.device) -> dict[str, Tensor]:
    """Uninitialised tensors; on the meta device, shapes without memory. Raises WeightsError for a size past 63 bits."""
    entries = list(entries)
    large = [e for e in entries if is_too_large(TensorSpec(e.shape, e.dtype))]
    if large:
        raise WeightsError(str(SizeError(f"{e.path} {TensorSpec(e.shape, e.dtype)}")) for e in large)
    return {e.path: torch.empty(e.shape, dtype=NATIVE[e.dtype], device=device) for e in entries}


def random_weights(manifest: Manifest, seed: int, *, optional: bool = False) -> dict[str, Tensor]:
    """Weights a small model can run with: the same seed gives the same tensors, whatever else the manifest holds.

    Floats are normal with standard deviation 0.02, except rank-1 `weight`s and variances (1, give or take a tenth)
    and scales (uniform in 1e-4 to 3e-4, which brings E4M3 and 8-bit weights to about 0.02); u8 tensors hold valid
    E4M3 bytes, other integers 0 or 1. Optional weights are drawn only with `optional`.
    """
    entries = [entry for entry in manifest.entries if optional or not entry.optional]
    return {entry.path: _random(entry, seed) for entry in entries}


def _random(entry: ManifestEntry, seed: int) -> Tensor:
    # Each tensor has its own stream, keyed by its path, so that models of different depth agree on what they share.
    key = int.from_bytes(entry.path.encode(), "big") % (2**61 - 1)
    generator = torch.Generator().manual_seed((seed * 1_000_003 + key) % 2**63)
    shape, name = entry.shape, entry.path.rpartition(".")[2]
    if entry.dtype not in FLOATS:
        if entry.dtype == "u8":
            data = torch.randint(0, 254, shape, generator=generator)
            # 254 numbers without the two NaN bytes: those from 0x7f on move up by one.
            return (data + (data >= E4M3_NAN[0])).to(torch.uint8)
        _, greatest = (0, 1) if entry.dtype == "bool" else integer_range(entry.dtype)
        return torch.randint(0, min(2, greatest + 1), shape, generator=generator).to(NATIVE[entry.dtype])
    if "scale" in name and math.prod(shape) > 0:
        data = 1e-4 + 2e-4 * torch.rand(shape, generator=generator)
    elif len(shape) == 1 and (name == "weight" or "var" in name):
        data = 1 + 0.1 * (2 * torch.rand(shape, generator=generator) - 1)
    else:
        data = 0.02 * torch.randn(shape, generator=generator)
    return data.to(NATIVE[entry.dtype])
