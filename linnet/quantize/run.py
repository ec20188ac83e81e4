"""A package becomes one with FP8 projections, or nothing is written."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from linnet.language.check import load
from linnet.language.program.binding import bind
from linnet.quantize.errors import QuantizeError
from linnet.quantize.fp8 import dequantize_blocks, quantize_blocks
from linnet.quantize.package import (
    copy_source,
    fp8_bindings,
    fp8_card,
    fp8_readme,
    write_config,
    write_files,
)
from linnet.quantize.source import quantize_source
from linnet.registry.bindings import Bindings, read_bindings
from linnet.registry.errors import RegistryError, listed
from linnet.registry.fetch import fetch_weights
from linnet.registry.headers import join_headers, read_headers
from linnet.registry.locate import Located
from linnet.registry.match import Match, match_weights
from linnet.registry.new_package import new_package
from linnet.registry.package import human_size, package_path

# Hands on the names of tensors one by one, showing how far the work is.
Watch = Callable[[Sequence[str]], Iterable[str]]


@dataclass(frozen=True, slots=True)
class Quantized:
    """The package that was written, in `folder`.

    `error` is the relative RMS error of the projections' weights; `before` and `after` are the bytes of all weights.
    """

    folder: Path
    projections: int
    block: int
    error: float
    before: int
    after: int

    def lines(self) -> Iterator[str]:
        """What was written, for people."""
        yield (
            f"{self.folder}: {self.projections} projections in FP8 with blocks of {self.block} by {self.block}, "
            f"{human_size(self.after)} of weights instead of {human_size(self.before)}"
        )
        yield f"Relative RMS error of the projections' weights: {100 * self.error:.2f}%"


def quantize_package(
    package: Located,
    output: Path,
    *,
    block: int,
    weights: Path | None,
    offline: bool | None,
    registry: str | None,
    watch: Watch,
) -> Quantized:
    """Write the package folder `output`: `package` with the projections of its layers in FP8 E4M3, one scale for each
    block of `block` by `block` weights.

    `weights` is a local file or folder used instead of the package's own; `watch` is handed the tensors' names as they
    are written. The package passes the check, with its entries run at small sizes, before it is put in place.

    Raises QuantizeError for what cannot be quantised, SourceError for a source that does not check, RegistryError for
    the package, its weights and an `output` that cannot be written to, OSError where the disk fails.
    """
    if block < 1:
        raise QuantizeError(f"Blocks of {block} weights are none. Choose 128, or another positive number.")
    from linnet import nest

    with new_package(output) as staged:
        card = package.card()
        folder = package.folder
        file = package_path(folder, card.source.path)
        checked = load(file)
        if checked.program is None:
            raise nest.SourceError(file, checked.diagnostics)
        bound = bind(checked.program, card.source.root, card.generics)
        source = quantize_source(file, bound, block)
        bindings = read_bindings(folder, card)
        files = fetch_weights(folder, card, weights, offline=offline, registry=registry)
        table = join_headers(read_headers(files))
        match = match_weights(bound.manifest, bindings.resolve(bound.manifest), table, card.weights.unused)
        if match.problems:
            raise RegistryError(match.problems)

        made = fp8_card(card, staged.name, block)
        entries = fp8_bindings(bindings, source.projections)
        scales = Bindings(entries).resolve(bind(source.program, card.source.root, card.generics).manifest).tensors
        quantized = _quantized_tensors(match, source.projections, scales)
        error = _write_weights(files, staged, match, quantized, block, watch)
        copy_source(staged, folder, card, source.texts)
        readme = fp8_readme(made, card.model.name, block, len(source.projections), error)
        write_files(staged, folder, made, entries, readme)
        write_config(staged, folder, block)
        _check(staged)
    before = sum(path.stat().st_size for path in files.values())
    after = sum((output / name).stat().st_size for name in files)
    return Quantized(output, len(source.projections), block, error, before, after)


def _quantized_tensors(match: Match, projections: Iterable[str], scales: Mapping[str, str]) -> dict[str, str]:
    """The tensors to quantise, each with the name of its scales'.

    Raises QuantizeError where another parameter reads one too, or a tensor has the name of the scales.
    """
    paths = {f"{path}.weight" for path in projections} & match.tensors.keys()
    chosen = {match.tensors[path].name: scales[f"{path.removesuffix('weight')}scale"] for path in paths}
    shared = [path for path, info in match.tensors.items() if info.name in chosen and path not in paths]
    if shared:
        name = match.tensors[shared[0]].name
        raise QuantizeError(
            f"The tensor {name} is a projection's and also {listed(shared)}, which would then read FP8 bytes. "
            "Give each a tensor of its own."
        )
    if taken := sorted({info.name for info in match.tensors.values()} & set(chosen.values())):
        raise QuantizeError(f"The checkpoint has a tensor {taken[0]} already, as scales would be called. Rename it.")
    return chosen


def _write_weights(
    files: Mapping[str, Path], folder: Path, match: Match, quantized: Mapping[str, str], block: int, watch: Watch
) -> float:
    """Write each weight file anew, tensors that nothing binds left out; the relative RMS error of what is quantised.

    A file at a time is in memory. Raises QuantizeError for numbers that are not finite, or a file that cannot be read.
    """
    bound = {info.name: info.file for info in match.tensors.values()}
    names = iter(watch(sorted(bound, key=lambda name: (bound[name], name))))
    squares = total = 0.0
    name = next(names, None)
    for file, path in sorted(files.items()):
        written: dict[str, Tensor] = {}
        try:
            with safe_open(path, framework="pt", device="cpu") as opened:
                while name is not None and bound[name] == file:
                    tensor = opened.get_tensor(name)
                    if name in quantized:
                        _refuse_nonfinite(tensor, name)
                        encoded, scale = quantize_blocks(tensor, block)
                        difference = dequantize_blocks(encoded, scale) - tensor
                        squares += float(difference.square().sum(dtype=torch.float64))
                        total += float(tensor.double().square().sum())
                        written[name], written[quantized[name]] = encoded, scale
                    else:
                        written[name] = tensor
                    name = next(names, None)
        except SafetensorError as error:
            raise QuantizeError(f"{path} cannot be read: {error}. Fetch it again.") from None
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        try:
            save_file(written, folder / file, metadata={"format": "pt"})
        except SafetensorError as error:
            # The library hides the system's error in its text.
            number = re.search(r"os error (\d+)", str(error))
            if number is None:
                raise
            raise OSError(int(number[1]), os.strerror(int(number[1])), str(folder / file)) from error
        # safetensors makes files that only their owner can read.
        (folder / file).chmod(0o644)
    return math.sqrt(squares / total) if total else 0.0


def _refuse_nonfinite(tensor: Tensor, name: str) -> None:
    if not bool(torch.isfinite(tensor).all()):
        raise QuantizeError(f"The tensor {name} holds NaN or infinity, for which no scale stands. Fetch it again.")


def _check(staged: Path) -> None:
    """Raises QuantizeError where the package that was written does not pass its check."""
    from linnet import nest

    report = nest.check(staged, hub=False, smoke="small")
    if not report.ok:
        findings = [item for section in report.sections for item in section.findings if item.severity == "error"]
        raise QuantizeError(f"The quantised package would not pass its check: {findings[0].message} {findings[0].help}")
