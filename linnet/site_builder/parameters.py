"""Repeated layers as one row: `layers.{0..35}.attention.q_proj.weight`, 36 times."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod

DTYPE_BYTES = {
    **{"bool": 1, "i8": 1, "u8": 1, "i16": 2, "u16": 2, "f16": 2, "bf16": 2},
    **{"i32": 4, "u32": 4, "f32": 4, "i64": 8, "u64": 8, "f64": 8},
}
"""Bytes of an element."""
# A segment that is a position in an array; `007` is a name, and so is what has more digits than any array has elements.
_NUMBER = re.compile(r"(?<![^.])(?:0|[1-9][0-9]{0,17})(?![^.])")


@dataclass(frozen=True, slots=True)
class Parameter:
    """One weight of a model.

    `path` is its name in the program, `tensor` its name in the checkpoint; `kind` is `param` or `buffer`; `shape` is
    concrete, `declared` the type as the source writes it; `optional` weights may be absent, and are not `present` where
    they are. `shard` is the weight file that holds the tensor, empty where that is not known; `place` the line of the
    site that declares it.
    """

    path: str
    tensor: str
    kind: str
    shape: tuple[int, ...]
    dtype: str
    declared: str
    optional: bool
    present: bool = True
    shard: str = ""
    place: str = ""

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def size(self) -> int:
        """Bytes of the tensor."""
        return self.elements * DTYPE_BYTES.get(self.dtype, 0)


@dataclass(frozen=True, slots=True)
class ParameterRow:
    """Weights that differ only in the numbers of their paths, and how many they are.

    `pattern` and `tensor` write those numbers as sets; `first` is the first of the weights, `members` are all of them.
    """

    pattern: str
    tensor: str
    first: Parameter
    members: tuple[Parameter, ...]

    @property
    def count(self) -> int:
        return len(self.members)

    @property
    def elements(self) -> int:
        """Elements of all of them together."""
        return self.count * self.first.elements

    @property
    def size(self) -> int:
        """Bytes of all of them together."""
        return self.count * self.first.size


def fold_parameters(parameters: Iterable[Parameter]) -> tuple[ParameterRow, ...]:
    """One row per pattern, in the order of first appearance.

    Weights share a row if their paths are equal but for whole-number segments, their tensors' names too with the same
    numbers, and they agree in all else. Ranges are written `{0..35}`, sets with gaps `{0,2..5}`; where several segments
    vary and not every combination is there, the leading ones stay fixed.
    """
    groups: dict[tuple[object, ...], dict[tuple[int, ...], Parameter]] = {}
    for parameter in parameters:
        pattern, numbers = split_path(parameter.path)
        tensor, tensor_numbers = split_path(parameter.tensor)
        key = (
            pattern,
            # Another order of numbers, or others: no pattern, so such weights get rows of their own.
            tensor if tensor_numbers == numbers else parameter.tensor,
            parameter.kind,
            parameter.shape,
            parameter.dtype,
            parameter.declared,
            parameter.optional,
            parameter.present,
        )
        groups.setdefault(key, {})[numbers] = parameter
    rows: list[ParameterRow] = []
    for members in groups.values():
        for axes in _boxes(sorted(members)):
            first = members[tuple(axis[0] for axis in axes)]
            sets = [_set_text(axis) for axis in axes]
            tensor = (
                _join(first.tensor, sets) if split_path(first.tensor)[1] == split_path(first.path)[1] else first.tensor
            )
            rows.append(ParameterRow(_join(first.path, sets), tensor, first, tuple(members[n] for n in product(*axes))))
    return tuple(rows)


@lru_cache(maxsize=1 << 14)
def split_path(path: str) -> tuple[str, tuple[int, ...]]:
    """A path with its whole-number segments taken out, and the numbers."""
    return _NUMBER.sub("{}", path), tuple(map(int, _NUMBER.findall(path)))


def _join(path: str, sets: Sequence[str]) -> str:
    """`path` with its whole-number segments replaced by `sets`."""
    texts = iter(sets)
    return _NUMBER.sub(lambda _: next(texts), path)


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


def numbers_text(members: Sequence[Parameter], key: Sequence[str] = ()) -> str:
    """The array positions in which `members` of one pattern differ, `0..35`, or `3`; `2.0..7` where there are two.

    With `key`, the leading segments of the pattern with `{}` for positions, the path that they share.
    """
    columns = list(zip(*(split_path(member.path)[1] for member in members), strict=False))
    texts = [_set_text(sorted(set(column))) for column in columns]
    if not key:
        return ".".join(text.strip("{}") for text in texts)
    numbers = iter(texts)
    return ".".join(next(numbers) if segment == "{}" else segment for segment in key)


def _set_text(numbers: Sequence[int]) -> str:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    texts = [str(run[0]) if len(run) == 1 else f"{run[0]}..{run[-1]}" for run in runs]
    return texts[0] if len(numbers) == 1 else "{" + ",".join(texts) + "}"
