"""Integer expressions over an entry's inputs, and the intervals that they may take.

An expression stands for every element of a tensor at once: its interval holds them all. `require` works backwards: it
narrows the inputs until an expression is sure to stay between two bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

Interval = tuple[int, int]
# Beyond every integer dtype: no bound at all.
FREE = 1 << 70
Memo = dict["Expression", Interval]


def dtype_interval(dtype: str) -> Interval:
    """All values of an integer dtype."""
    bits = int(dtype[1:])
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if dtype[0] == "i" else (0, (1 << bits) - 1)


def join(intervals: Sequence[Interval]) -> Interval:
    return min(low for low, _ in intervals), max(high for _, high in intervals)


def truncated(a: int, b: int) -> int:
    """`a / b` for positive `b`, toward zero."""
    return a // b if a >= 0 else -(-a // b)


def ceiling(a: int, b: int) -> int:
    return -(-a // b)


class InputBoundsError(Exception):
    """An input has no value that is sure to be safe."""


@dataclass(slots=True)
class Solver:
    """The bounds of the inputs so far. `split`: whether a sum of two inputs may be shared out between them."""

    bounds: dict[str, Interval]
    split: bool = False
    active: set[Expression] = field(default_factory=set)
    known_reach: dict[Expression, bool] = field(default_factory=dict)

    def interval(self, expression: Expression) -> Interval:
        return expression.interval(self, {})

    def require(self, expression: Expression, low: int, high: int) -> None:
        """Narrow inputs until the expression lies in `low .. high`, as far as inputs decide it."""
        now = self.interval(expression)
        if (low <= now[0] and now[1] <= high) or not self.depends(expression) or expression in self.active:
            return
        self.active.add(expression)
        expression.require(self, low, high)
        self.active.discard(expression)

    def depends(self, expression: Expression) -> bool:
        """Whether the expression's value follows from an input's by arithmetic."""
        known = self.known_reach.get(expression)
        if known is not None:
            return known
        seen, waiting = {expression}, [expression]
        while waiting:
            current = waiting.pop()
            if isinstance(current, Input):
                self.known_reach[expression] = True
                return True
            fresh = [arg for arg in current.args if arg not in seen]
            seen.update(fresh)
            waiting.extend(fresh)
        self.known_reach.update(dict.fromkeys(seen, False))
        return False


class Expression:
    """One integer tensor, computed from others."""

    __slots__ = ("args",)

    def __init__(self, *args: Expression) -> None:
        self.args = args

    def interval(self, solver: Solver, memo: Memo) -> Interval:
        known = memo.get(self)
        if known is None:
            known = memo[self] = self.compute(solver, [arg.interval(solver, memo) for arg in self.args])
        return known

    def compute(self, solver: Solver, args: list[Interval]) -> Interval:
        """The interval from those of the arguments."""
        return join(args)

    def require(self, solver: Solver, low: int, high: int) -> None:
        """Narrow the inputs below; by default, every argument has to lie between the bounds."""
        for arg in self.args:
            solver.require(arg, low, high)


class Union(Expression):
    """A value of any of its arguments (`select`, `concat`, the branches of an `if`, a minimum or maximum)."""

    __slots__ = ()


class Known(Expression):
    """Any value of an interval. `counts`: whether it is 0 .. n-1 in order, so that indexing it changes nothing."""

    __slots__ = ("counts", "range")

    def __init__(self, range: Interval, counts: bool = False) -> None:
        super().__init__()
        self.range = range
        self.counts = counts

    def compute(self, solver: Solver, args: list[Interval]) -> Interval:
        return self.range


class Input(Expression):
    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def compute(self, solver: Solver, args: list[Interval]) -> Interval:
        return solver.bounds[self.name]

    def require(self, solver: Solver, low: int, high: int) -> None:
        old = solver.bounds[self.name]
        new = max(old[0], low), min(old[1], high)
        if new[0] > new[1]:
            raise InputBoundsError(
                f"no value of `{self.name}` keeps every position inside its axis: it would have to lie in "
                f"{low} .. {high} and in {old[0]} .. {old[1]}; use larger generics"
            )
        solver.bounds[self.name] = new


class Clipped(Expression):
    """Its argument where that lies in `range`, as a condition or an index that did not fail has shown."""

    __slots__ = ("range",)

    def __init__(self, arg: Expression, range: Interval) -> None:
        super().__init__(arg)
        self.range = range

    def compute(self, solver: Solver, args: list[Interval]) -> Interval:
        low = max(args[0][0], self.range[0])
        return low, max(low, min(args[0][1], self.range[1]))

    def require(self, solver: Solver, low: int, high: int) -> None:
        # What the clipping keeps out needs no narrower input.
        least = -FREE if self.range[0] >= low else low
        solver.require(self.args[0], least, FREE if self.range[1] <= high else high)


class Wrapped(Expression):
    """Its argument converted to a dtype that may not hold it."""

    __slots__ = ("range",)

    def __init__(self, arg: Expression, range: Interval) -> None:
        super().__init__(arg)
        self.range = range

    def compute(self, solver: Solver, args: list[Interval]) -> Interval:
        (low, high), (least, most) = args[0], self.range
        return (low, high) if least <= low and high <= most else self.range

    def require(self, solver: Solver, low: int, high: int) -> None:
        solver.require(self.args[0], max(low, self.range[0]), min(high, self.range[1]))


class Add(Expression):
    __slots__ = ()

    def compute(self, solver: Solver, args: list[Interval]) -> Interval:
        return args[0][0] + args[1][0], args[0][1] + args[1][1]

    def require(self, solver: Solver, low: int, high: int) -> None:
        a, b = self.args
        if not solver.depends(a):
            a, b = b, a
        shared = solver.depends(b)
        if shared and not solver.split:
            return
        least, most = solver.interval(b)
        if shared and high - most < low - least:
            # The other's whole range leaves no room: it keeps its least value that may pass for one.
            most = least = min(max(least, 0), most)
            solver.require(b, least, most)
        solver.require(a, low - least, high - most)


class Scale(Expression):
    """Its argument times a constant, or the sum of up to `factor` elements of it (`partial`)."""

    __slots__ = ("factor", "partial")

    def __init__(self, arg: Expression, factor: int, partial: bool = False) -> None:
        super().__init__(arg)
        self.factor = factor
        self.partial = partial

    def compute(self, solver: Solver, args: list[Interval]) -> Interval:
        ends = [args[0][0] * self.factor, args[0][1] * self.factor, *(args[0] if self.partial else ())]
        return min(ends), max(ends)

    def require(self, solver: Solver, low: int, high: int) -> None:
        factor = self.factor
        if factor < 0:
            low, high, factor = -high, -low, -factor
        if factor == 0:
            return
        least = low if self.partial and low > 0 else ceiling(low, factor)
        most = high if self.partial and high < 0 else high // factor
        solver.require(self.args[0], least, most)


class Product(Expression):
    """The product of two tensors, of which nothing is asked backwards."""

    __slots__ = ()

    def compute(self, solver: Solver, args: list[Interval]) -> Interval:
        ends = [x * y for x in args[0] for y in args[1]]
        return min(ends), max(ends)

    def require(self, solver: Solver, low: int, high: int) -> None:
        a, b = self.args
        if not solver.depends(a):
            a, b = b, a
        least, most = solver.interval(b)
        if not solver.depends(b) and least >= 0 and most > 0 and low <= 0 <= high:
            solver.require(a, ceiling(low, most), high // most)


class Quotient(Expression):
    """Its argument divided by a positive constant, toward zero."""

    __slots__ = ("divisor",)

    def __init__(self, arg: Expression, divisor: int) -> None:
        super().__init__(arg)
        self.divisor = divisor

    def compute(self, solver: Solver, args: list[Interval]) -> Interval:
        return truncated(args[0][0], self.divisor), truncated(args[0][1], self.divisor)

    def require(self, solver: Solver, low: int, high: int) -> None:
        divisor = self.divisor
        least = low * divisor if low > 0 else (low - 1) * divisor + 1
        most = high * divisor if high < 0 else (high + 1) * divisor - 1
        solver.require(self.args[0], least, most)


class Remainder(Expression):
    """What division by a positive constant, toward zero, leaves of its argument."""

    __slots__ = ("divisor",)

    def __init__(self, arg: Expression, divisor: int) -> None:
        super().__init__(arg)
        self.divisor = divisor

    def compute(self, solver: Solver, args: list[Interval]) -> Interval:
        (low, high), largest = args[0], self.divisor - 1
        if -largest <= low and high <= largest:
            return low, high
        return (0 if low >= 0 else -largest), (0 if high <= 0 else largest)

    def require(self, solver: Solver, low: int, high: int) -> None:
        # A remainder has its argument's sign and is no larger; other ways to bound it are not looked for.
        largest = self.divisor - 1
        least = -FREE if low <= -largest and high >= 0 else max(low, -largest)
        solver.require(self.args[0], least, FREE if high >= largest and low <= 0 else min(high, largest))


class Extremum(Expression):
    """The elementwise minimum or maximum of two tensors."""

    __slots__ = ("choose",)

    def __init__(self, op: str, a: Expression, b: Expression) -> None:
        super().__init__(a, b)
        self.choose = min if op == "min" else max

    def compute(self, solver: Solver, args: list[Interval]) -> Interval:
        return self.choose(args[0][0], args[1][0]), self.choose(args[0][1], args[1][1])

    def require(self, solver: Solver, low: int, high: int) -> None:
        a, b = self.args
        if not solver.depends(a):
            a, b = b, a
        if not solver.depends(b):
            least, most = solver.interval(b)
            if self.choose is min and most <= high:
                high = FREE
            if self.choose is max and least >= low:
                low = -FREE
            solver.require(a, low, high)
            return
        solver.require(a, low, high)
        solver.require(b, low, high)


class Carried(Expression):
    """A value that a loop carries: at first one expression, then whatever the body makes of it. `limit`: its dtype."""

    __slots__ = ("limit",)

    def __init__(self, first: Expression, limit: Interval) -> None:
        super().__init__(first)
        self.limit = limit

    def close(self, step: Expression) -> None:
        """Say what the body makes of it."""
        self.args = (self.args[0], step)

    def interval(self, solver: Solver, memo: Memo) -> Interval:
        known = memo.get(self)
        if known is None:
            known = memo[self] = self._settle(solver, memo)
        return known

    def _settle(self, solver: Solver, memo: Memo) -> Interval:
        first = self.args[0].interval(solver, memo)

        def after(now: Interval) -> Interval:
            return join([first, self.args[1].interval(solver, {**memo, self: now})])

        now = after(first)
        if now == first:
            return now
        # Whatever moves may move to the end of its dtype; the body's own conditions then bring it back.
        wide = (
            self.limit[0] if now[0] < first[0] else first[0],
            self.limit[1] if now[1] > first[1] else first[1],
        )
        now = after(wide)
        if now[0] < wide[0] or now[1] > wide[1]:
            now = after(self.limit)
        return after(now)
