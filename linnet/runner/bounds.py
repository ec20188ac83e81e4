"""What must be in range before a kernel runs, of either backend."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# Of an op's inputs, by their parameters' names.
Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Bound:
    """Each element of the input `index`, and the `span - 1` positions after it, lie in an axis of `size` elements.

    `label` is how errors name the indexed tensor.
    """

    index: str
    size: int
    label: str
    span: int = 1
