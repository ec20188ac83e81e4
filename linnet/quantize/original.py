"""The package that is quantised, as it is read, and its weights as they are written anew."""

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
from linnet.language.program.binding import BoundProgram, bind
from linnet.quantize.errors import QuantizeError
from linnet.registry.bindings import Bindings, read_bindings
from linnet.registry.card import Card
from linnet.registry.errors import RegistryError
from linnet.registry.fetch import fetch_weights
from linnet.registry.headers import join_headers, read_headers
from linnet.registry.locate import Located
from linnet.registry.match import Match, match_weights
from linnet.registry.package import human_size, package_path

# Hands on the names of tensors one by one, showing how far the work is.
Watch = Callable[[Sequence[str]], Iterable[str]]
Encode = Callable[[str, Tensor], tuple[dict[str, Tensor], Tensor]]


@dataclass(frozen=True, slots=True)
class Original:
    """A package with its weights on this machine: `file` is the source, `files` the weights' by the card's names."""

    folder: Path
    card: Card
    file: Path
    bound: BoundProgram
    bindings: Bindings
    files: Mapping[str, Path]
    match: Match


@dataclass(frozen=True, slots=True)
class Quantized:
    """The package that was written, in `folder`: so many `matrices` of its weights, which `how` names with their form.

    `error` is the relative RMS error of those; `before` and `after` are the bytes of all weights.
    """

    folder: Path
    matrices: int
    how: str
    error: float
    before: int
    after: int

    def lines(self) -> Iterator[str]:
        """What was written, for people."""
        sizes = f"{human_size(self.after)} of weights instead of {human_size(self.before)}"
        yield f"{self.folder}: {self.matrices} {self.how}, {sizes}"
        yield f"Relative RMS error of their weights: {100 * self.error:.2f}%"


def read_original(
    package: Located, weights: Path | None, *, offline: bool | None = None, registry: str | None = None
) -> Original:
    """Raises SourceError for a source that does not check, QuantizeError for weights that are packed already or fused,
    RegistryError for the package and its weights."""
    from linnet import nest

    card = package.card()
    if card.weights.recipe is not None:
        raise QuantizeError(
            f"The weights of {card.model.name} are packed already, by {card.weights.recipe}. Quantise the package that "
            "it was made from."
        )
    folder = package.folder
    file = package_path(folder, card.source.path)
    checked = load(file)
    if checked.program is None:
        raise nest.SourceError(file, checked.diagnostics)
    bound = bind(checked.program, card.source.root, card.generics)
    bindings = read_bindings(folder, card)
    files = fetch_weights(folder, card, weights, offline=offline, registry=registry)
    table = join_headers(read_headers(files))
    match = match_weights(bound.manifest, bindings.resolve(bound.manifest), table, card.weights.unused)
    if match.problems:
        raise RegistryError(match.problems)
    fused = [info.stored for info in match.tensors.values() if info.whole is not None]
    if fused:
        raise QuantizeError(
            f"The weights of {card.model.name} hold projections in one tensor ({fused[0]}). Quantise weights that hold "
            "them apart."
        )
    return Original(folder, card, file, bound, bindings, files, match)


class Encoder:
    """How the chosen tensors are written, and how far from them that is."""

    def __init__(self, encode: Encode, chosen: Iterable[str]) -> None:
        """`encode` gives the tensors that stand for one, by name, and the floating weights that they mean."""
        self._encode = encode
        self._chosen = frozenset(chosen)
        self._squares = self._total = 0.0

    @property
    def error(self) -> float:
        """The relative RMS error of the weights that were encoded."""
        return math.sqrt(self._squares / self._total) if self._total else 0.0

    def written(self, name: str, tensor: Tensor) -> dict[str, Tensor]:
        """The tensors that are written for one. Raises QuantizeError for numbers that are not finite."""
        if name not in self._chosen:
            return {name: tensor}
        if not bool(torch.isfinite(tensor).all()):
            raise QuantizeError(f"The tensor {name} holds NaN or infinity, for which no scale stands. Fetch it again.")
        encoded, meant = self._encode(name, tensor)
        self._squares += float((meant - tensor).square().sum(dtype=torch.float64))
        self._total += float(tensor.double().square().sum())
        return encoded


def write_weights(original: Original, folder: Path, encoder: Encoder, watch: Watch) -> None:
    """Write each weight file anew into `folder`, tensors that nothing binds left out. A file at a time is in memory.

    Raises QuantizeError for numbers that are not finite, or a file that cannot be read.
    """
    bound = {info.name: info.file for info in original.match.tensors.values()}
    names = iter(watch(sorted(bound, key=lambda name: (bound[name], name))))
    name = next(names, None)
    for file, path in sorted(original.files.items()):
        written: dict[str, Tensor] = {}
        try:
            with safe_open(path, framework="pt", device="cpu") as opened:
                while name is not None and bound[name] == file:
                    written |= encoder.written(name, opened.get_tensor(name))
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


def check_written(staged: Path) -> None:
    """Raises QuantizeError where the package that was written does not pass its check."""
    from linnet import nest

    report = nest.check(staged, hub=False, smoke="small")
    if not report.ok:
        findings = [item for section in report.sections for item in section.findings if item.severity == "error"]
        raise QuantizeError(f"The quantised package would not pass its check: {findings[0].message} {findings[0].help}")


def report(original: Original, output: Path, matrices: int, how: str, error: float) -> Quantized:
    """What was written to `output`."""
    before = sum(path.stat().st_size for path in original.files.values())
    after = sum((output / name).stat().st_size for name in original.files)
    return Quantized(output, matrices, how, error, before, after)
