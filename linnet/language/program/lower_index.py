"""Index notation to whole-tensor primitives.

The scalar body is evaluated to a *named tensor*: a value and the index that each of its axes runs over. Operands are
aligned by permuting and by axes of length 1, never copied out to their common shape, and a sum over products becomes
one contraction.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from string import ascii_letters
from typing import TYPE_CHECKING

from linnet.language.check.dims import Dim
from linnet.language.program.checked import (
    Access,
    Build,
    IfValue,
    IndexVar,
    MatchEnum,
    MatchOptional,
    Primitive,
    Reduce,
    Typed,
)
from linnet.language.program.core import BINARY, UNARY, Value
from linnet.language.program.lower_builder import Builder

if TYPE_CHECKING:
    from linnet.language.program.lower import Lowerer

# An index, and which of the axes it stands for: 0 for a plain one.
Axis = tuple[IndexVar, int]
# Sums of products in narrower dtypes round every product, which a contraction does not.
CONTRACTED = frozenset({"f32", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"})


@dataclass(frozen=True, slots=True, eq=False)
class Named:
    """A tensor whose axis `k` runs over index `axes[k]`; the axes are distinct."""

    value: Value
    axes: tuple[Axis, ...]


def lower_build(lowerer: Lowerer, node: Build) -> Value:
    """`let y[i, j] = body` as a tensor over [i, j]."""
    scope = IndexScope(lowerer)
    axes = scope.bind(node.axes)
    return scope.expand(scope.evaluate(node.body), axes).value


def lower_reduce(lowerer: Lowerer, node: Reduce) -> Value:
    """A reduction that stands in an ordinary expression: every index is bound inside."""
    return IndexScope(lowerer).evaluate(node).value


class IndexScope:
    """The indices bound so far, in the order that results are laid out: outputs first, then reductions."""

    def __init__(self, lowerer: Lowerer) -> None:
        self.lowerer = lowerer
        self.env = lowerer.frame.env
        self.order: dict[Axis, int] = {}
        self.sizes: dict[Axis, int] = {}

    @property
    def builder(self) -> Builder:
        return self.lowerer.builder

    def bind(self, indices: Iterable[IndexVar]) -> tuple[Axis, ...]:
        """The axes that the indices stand for, packs expanded."""
        bound: list[Axis] = []
        for index in indices:
            for k, size in enumerate(self.env.shape(index.extent)):
                axis = (index, k)
                self.order.setdefault(axis, len(self.order))
                self.sizes[axis] = size
                bound.append(axis)
        return tuple(bound)

    def evaluate(self, node: Typed) -> Named:
        """The body's value for all index values at once."""
        if isinstance(node, Access):
            return self.access(node)
        if isinstance(node, Primitive):
            return self.primitive(node)
        if isinstance(node, Reduce):
            return self.reduce(node)
        if isinstance(node, IfValue):
            return self.choose(node)
        if isinstance(node, MatchOptional):
            return self.evaluate(self.lowerer.optional_arm(node))
        if isinstance(node, MatchEnum):
            return self.evaluate(self.lowerer.enum_arm(node))
        return Named(self.lowerer.tensor(node), ())

    def primitive(self, node: Primitive) -> Named:
        if node.op == "cast":
            operand = self.evaluate(node.args[0])
            self.builder.span = node.span
            return Named(self.builder.cast(operand.value, self.env.node_spec(node).dtype), operand.axes)
        if node.op in UNARY:
            operand = self.evaluate(node.args[0])
            self.builder.span = node.span
            return Named(self.builder.unary(node.op, operand.value), operand.axes)
        if node.op in BINARY:
            return self.binary(node, self.evaluate(node.args[0]), self.evaluate(node.args[1]))
        if node.op == "select":
            return self.select(node, [self.evaluate(arg) for arg in node.args])
        return Named(self.lowerer.tensor(node), ())

    def binary(self, node: Primitive, a: Named, b: Named) -> Named:
        (left, right), axes = self.align([a, b])
        self.builder.span = node.span
        return Named(self.builder.binary(node.op, left, right), axes)

    def select(self, node: Typed, operands: list[Named]) -> Named:
        (condition, a, b), axes = self.align(operands)
        self.builder.span = node.span
        return Named(self.builder.select(condition, a, b), axes)

    def choose(self, node: IfValue) -> Named:
        """`if` on scalars: both sides are computed unless the condition is known."""
        condition = self.evaluate(node.condition)
        known = self.builder.numbers.get(condition.value)
        if known is not None:
            return self.evaluate(node.then if known else node.otherwise)
        return self.select(node, [condition, self.evaluate(node.then), self.evaluate(node.otherwise)])

    def align(self, operands: Sequence[Named]) -> tuple[list[Value], tuple[Axis, ...]]:
        """The operands' values in shapes that broadcast together, and the axes of what they broadcast to."""
        axes = self.joint_axes(operands)
        return [self.fit(operand, axes) for operand in operands], axes

    def joint_axes(self, operands: Sequence[Named]) -> tuple[Axis, ...]:
        """All axes of the operands, as an operand that has them all lays them out, else in binding order."""
        joint = {axis for operand in operands for axis in operand.axes}
        for operand in operands:
            if len(operand.axes) == len(joint):
                return operand.axes
        return tuple(sorted(joint, key=self.order.__getitem__))

    def fit(self, operand: Named, axes: tuple[Axis, ...]) -> Value:
        """The operand permuted to the order of `axes`, with length 1 for those it lacks (leading ones left out)."""
        if operand.axes == axes or not operand.axes:
            return operand.value
        present = tuple(axis for axis in axes if axis in operand.axes)
        value = self.builder.permute(operand.value, tuple(operand.axes.index(axis) for axis in present))
        trailing = axes[axes.index(present[0]) :]
        return self.builder.reshape(value, tuple(self.sizes[axis] if axis in present else 1 for axis in trailing))

    def expand(self, operand: Named, axes: tuple[Axis, ...]) -> Named:
        """The operand as a whole tensor over exactly `axes`."""
        shape = tuple(self.sizes[axis] for axis in axes)
        return Named(self.builder.broadcast(self.fit(operand, axes), shape), axes)

    def reduce(self, node: Reduce) -> Named:
        dropped = self.bind(node.indices)
        dtype = self.env.node_spec(node).dtype
        factors = product_factors(node.body)
        if node.kind == "sum" and len(factors) > 1 and dtype in CONTRACTED:
            known = {factor: self.evaluate(factor) for factor in factors}
            operands = list(known.values())
            joint = self.joint_axes(operands)
            # An index that no factor has multiplies the sum, which a contraction would not see.
            complete = set(dropped) <= set(joint) and len(joint) <= len(ascii_letters)
            if complete and len(joint) > max(len(operand.axes) for operand in operands):
                return self.contract(node, operands, dropped)
            body = self.multiply(node.body, known)
        else:
            body = self.evaluate(node.body)
        missing = tuple(axis for axis in dropped if axis not in body.axes)
        if missing:
            body = self.expand(body, missing + body.axes)
        self.builder.span = node.span
        axes = tuple(k for k, axis in enumerate(body.axes) if axis in dropped)
        kept = tuple(axis for axis in body.axes if axis not in dropped)
        return Named(self.builder.reduce(node.kind, body.value, axes), kept)

    def multiply(self, node: Typed, known: dict[Typed, Named]) -> Named:
        """The product as it is written, from factors already evaluated."""
        if node in known:
            return known[node]
        assert isinstance(node, Primitive)
        return self.binary(node, self.multiply(node.args[0], known), self.multiply(node.args[1], known))

    def contract(self, node: Reduce, operands: list[Named], dropped: tuple[Axis, ...]) -> Named:
        """The sum over `dropped` of the operands' product, without the product: the operands are multiplied into two
        groups, smaller into larger ones that have all their axes, and the groups contracted."""
        groups: list[Named] = []
        for operand in sorted(operands, key=lambda operand: -len(operand.axes)):
            home = next((g for g in groups if set(operand.axes) <= set(g.axes)), None)
            if home is None and len(groups) < 2:
                groups.append(operand)
                continue
            home = home or groups[1]
            (left, right), axes = self.align([home, operand])
            groups[groups.index(home)] = Named(self.builder.binary("mul", left, right), axes)
        a, b = groups
        kept = sorted({*a.axes, *b.axes}.difference(dropped), key=self.order.__getitem__)
        self.builder.span = node.span
        return Named(self.builder.contract(a.value, a.axes, b.value, b.axes, kept), tuple(kept))

    def access(self, node: Access) -> Named:
        x = self.lowerer.tensor(node.value)
        label = x.name or "the indexed tensor"
        positions = self.positions(node, x)
        self.builder.span = node.span
        x = self.take_constants(x, positions)
        axes = [p for p in positions if not isinstance(p, int)]
        plain = [p for p in axes if not isinstance(p, Named)]
        gathered = [p for p in axes if isinstance(p, Named)]
        repeated = {axis for axis in plain if plain.count(axis) > 1}
        if not gathered and not repeated:
            return Named(x, tuple(plain))
        # A plain index that a gathered position also runs over picks one position of its axis for each of theirs.
        shared = repeated.union(*(p.axes for p in gathered))
        places = [k for k, p in enumerate(axes) if isinstance(p, Named) or p in shared]
        indices = [self.as_index(axes[k]) for k in places]
        joint = self.joint_axes(indices)
        values = [self.expand(index, joint).value for index in indices]
        kept = tuple(axis for axis in plain if axis not in shared)
        return Named(self.builder.gather(x, tuple(places), values, label), joint + kept)

    def positions(self, node: Access, x: Value) -> list[Axis | Named | int]:
        """What stands at each concrete axis of the accessed tensor."""
        found: list[Axis | Named | int] = []
        for position in node.positions:
            if isinstance(position, IndexVar):
                found.extend(self.bind((position,)))
            elif isinstance(position, Dim):
                found.append(self.env.dim(position))
            else:
                index = self.evaluate(position)
                number = self.builder.numbers.get(index.value)
                inside = number is not None and 0 <= number < x.spec.shape[len(found)]
                found.append(int(number) if number is not None and inside else index)
        return found

    def take_constants(self, x: Value, positions: Sequence[Axis | Named | int]) -> Value:
        """`x` without the axes that stand at a constant position."""
        if not any(isinstance(p, int) for p in positions):
            return x
        shape = x.spec.shape
        starts = tuple(p if isinstance(p, int) else 0 for p in positions)
        stops = tuple(p + 1 if isinstance(p, int) else n for p, n in zip(positions, shape, strict=True))
        part = self.builder.slice(x, starts, stops, (1,) * len(shape))
        kept = tuple(n for p, n in zip(positions, shape, strict=True) if not isinstance(p, int))
        return self.builder.reshape(part, kept)

    def as_index(self, position: Axis | Named) -> Named:
        if isinstance(position, Named):
            return position
        return Named(self.builder.iota(self.sizes[position], "i64"), (position,))


def product_factors(node: Typed) -> list[Typed]:
    """The factors of a product, from the left; a node that is no product is its own only factor."""
    if isinstance(node, Primitive) and node.op == "mul":
        return [factor for arg in node.args for factor in product_factors(arg)]
    return [node]
