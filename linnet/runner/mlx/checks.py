"""What must hold of values that are only known as a graph runs: positions inside an axis, divisors that are not zero.

MLX computes when it is asked to, and a compiled function cannot raise. So a step that needs a check computes what it is
about, goes on with values that are safe whatever comes out, and leaves the check with the run, which settles it before
anything else is computed or a state changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx

from linnet.runner.errors import IndexRangeError, IntegerDivisionError


@dataclass(frozen=True)
class PositionCheck:
    """`facts` are the least and greatest of what indexes an axis of `size` elements, and the `span - 1` after it."""

    label: str
    size: int
    op: str | None
    span: int = 1

    def settle(self, facts: Sequence[int]) -> None:
        least, greatest = facts
        if least < 0 or greatest + self.span > self.size:
            position = least if least < 0 else greatest + self.span - 1
            raise IndexRangeError(self.label, position, self.size, self.op)


@dataclass(frozen=True)
class DivisorCheck:
    """`facts` say whether a divisor is zero."""

    what: str
    where: str

    def settle(self, facts: Sequence[int]) -> None:
        if facts[0]:
            raise IntegerDivisionError(f"integer {self.what} by zero{self.where}: check the inputs")


Check = PositionCheck | DivisorCheck


def positions(index: mx.array) -> mx.array:
    """The facts of a PositionCheck: the least and greatest of `index`, which has elements. A u64 past i64 counts as
    negative."""
    wide = index.astype(mx.int64).reshape(-1)
    return mx.stack([wide.min(), wide.max()])
