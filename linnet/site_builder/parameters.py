"""Repeated layers as one row: `layers.{0..35}.attention.q_proj.weight`, 36 times."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod


@dataclass(frozen=True, slots=True)
class Parameter:
    """One weight of a model: its path, `param` or `buffer`, sizes (concrete), dtype, whether it may be absent."""

    path: str
    kind: str
    shape: tuple[int, ...]
    dtype: str
    optional: bool


@dataclass(frozen=True, slots=True)
class ParameterRow:
    """Weights that differ only in the numbers of their paths: the pattern, what they share, and how many they are."""

    pattern: str
    kind: str
    shape: tuple[int, ...]
    dtype: str
    optional: bool
    count: int

    @property
    def elements(self) -> int:
        """Elements of all of them together."""
        return self.count * prod(self.shape)


def fold_parameters(parameters: Iterable[Parameter]) -> tuple[ParameterRow, ...]:
    """One row per pattern, in the order of first appearance.

    Weights share a row if their paths are equal but for whole-number segments and they agree in kind, shape, dtype and
    optionality. Ranges are written `{0..35}`, sets with gaps `{0,2..5}`; where several segments vary and not every
    combination is there, the leading ones stay fixed.
    """
    groups: dict[tuple[tuple[str | None, ...], Parameter], list[tuple[int, ...]]] = {}
    for parameter in parameters:
        segments = parameter.path.split(".")
        pattern = tuple(None if _is_number(segment) else segment for segment in segments)
        shared = Parameter("", parameter.kind, parameter.shape, parameter.dtype, parameter.optional)
        numbers = tuple(int(segment) for segment in segments if _is_number(segment))
        groups.setdefault((pattern, shared), []).append(numbers)
    rows: list[ParameterRow] = []
    for (pattern, shared), numbers_list in groups.items():
        for axes in _boxes(sorted(set(numbers_list))):
            ranges = iter(axes)
            path = ".".join(_set_text(next(ranges)) if segment is None else segment for segment in pattern)
            count = prod(len(axis) for axis in axes)
            rows.append(ParameterRow(path, shared.kind, shared.shape, shared.dtype, shared.optional, count))
    return tuple(rows)


def _boxes(points: Sequence[tuple[int, ...]]) -> list[tuple[list[int], ...]]:
    """`points` (sorted, distinct, of one length) as products of sets: one if they fill it, else split by the first."""
    axes = tuple(sorted(set(axis)) for axis in zip(*points, strict=True))
    if len(points) == prod(len(axis) for axis in axes) and list(product(*axes)) == list(points):
        return [axes]
    boxes: list[tuple[list[int], ...]] = []
    for first in axes[0]:
        rest = [point[1:] for point in points if point[0] == first]
        boxes += [([first], *box) for box in _boxes(rest)]
    return boxes


def _set_text(numbers: Sequence[int]) -> str:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    texts = [str(run[0]) if len(run) == 1 else f"{run[0]}..{run[-1]}" for run in runs]
    return texts[0] if len(numbers) == 1 else "{" + ",".join(texts) + "}"


def _is_number(segment: str) -> bool:
    return segment.isascii() and segment.isdecimal()
