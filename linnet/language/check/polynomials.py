"""Integer polynomials over numbered atoms: what the prover computes with.

A monomial is a sorted tuple of atom numbers (a square stands twice); a polynomial maps monomials to coefficients other
than zero. Functions return new polynomials and raise DimError when one grows past `MAX_TERMS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import gcd

from linnet.language.check.dims import DimError

Mono = tuple[int, ...]
Poly = dict[Mono, int]
Frozen = frozenset[tuple[Mono, int]]

MAX_TERMS = 64
MAX_DEGREE = 24
MAX_BITS = 2048
# The weight of a symbol in the monomial order; a quotient weighs less than what it divides.
SYMBOL_WEIGHT = 1000


@dataclass(frozen=True)
class Part:
    """A quotient, minimum or maximum (`op` is `/`, `min` or `max`) of two polynomials."""

    op: str
    left: Frozen
    right: Frozen


class Atoms:
    """Numbers for symbols and operations. What a number stands for never changes, so facts may share one table."""

    def __init__(self) -> None:
        self._numbers: dict[str | Part, int] = {}
        self._parts: list[str | Part] = []
        self.weights: list[int] = []

    def symbol(self, name: str) -> int:
        """The number of a symbol."""
        return self._number(name, SYMBOL_WEIGHT)

    def operation(self, op: str, left: Poly, right: Poly) -> int:
        """The number of an operation on two polynomials."""
        a, b = freeze(left), freeze(right)
        weight = SYMBOL_WEIGHT
        if op == "/":
            weight = max(1, self._heaviest(left) - self._heaviest(right) - 1)
        elif sorted(left.items()) > sorted(right.items()):
            a, b = b, a
        return self._number(Part(op, a, b), weight)

    def part(self, atom: int) -> Part | None:
        """The operation an atom stands for; None for a symbol."""
        found = self._parts[atom]
        return found if isinstance(found, Part) else None

    def name(self, atom: int) -> str:
        """The name of a symbol."""
        return str(self._parts[atom])

    def order(self, monomial: Mono) -> tuple[int, Mono]:
        """A monomial order (weighted degree, then lexicographic): the sort key of a monomial."""
        return sum(map(self.weights.__getitem__, monomial)), monomial[::-1]

    def _heaviest(self, poly: Poly) -> int:
        return max((self.order(m)[0] for m in poly), default=0)

    def _number(self, what: str | Part, weight: int) -> int:
        if (known := self._numbers.get(what)) is not None:
            return known
        self._numbers[what] = len(self._parts)
        self._parts.append(what)
        self.weights.append(weight)
        return len(self._parts) - 1


def freeze(poly: Poly) -> Frozen:
    """A hashable form."""
    return frozenset(poly.items())


def constant(poly: Poly) -> int | None:
    """The value of a polynomial without atoms, else None."""
    if not poly:
        return 0
    return poly.get(()) if len(poly) == 1 else None


def add(a: Poly, b: Poly, scale: int = 1, factor: Mono = ()) -> Poly:
    """`a + scale * factor * b`."""
    result = dict(a)
    for monomial, coefficient in b.items():
        key = tuple(sorted(monomial + factor)) if factor else monomial
        total = result.get(key, 0) + scale * coefficient
        if total:
            result[key] = total
        else:
            result.pop(key, None)
    return _checked(result)


def negated(poly: Poly) -> Poly:
    """`-poly`."""
    return {monomial: -coefficient for monomial, coefficient in poly.items()}


def multiply(a: Poly, b: Poly) -> Poly:
    """`a * b`."""
    if len(a) > len(b):
        a, b = b, a
    if len(a) * len(b) > MAX_TERMS * 8:
        raise DimError("dimension too large for the prover")
    result: Poly = {}
    for monomial, coefficient in a.items():
        result = add(result, b, coefficient, monomial)
    return result


def substitute(poly: Poly, value: Callable[[int], Poly | None]) -> Poly:
    """The polynomial with atoms replaced; where `value` gives None the atom stays."""
    result: Poly = {}
    for monomial, coefficient in poly.items():
        kept: list[int] = []
        product: Poly = {(): coefficient}
        for atom in monomial:
            replaced = value(atom)
            if replaced is None:
                kept.append(atom)
            else:
                product = multiply(product, replaced)
        result = add(result, product, 1, tuple(kept))
    return result


def content(polys: Iterable[Poly]) -> int:
    """The greatest common divisor of all coefficients; 0 when there are none."""
    return gcd(*(coefficient for poly in polys for coefficient in poly.values()))


def quotient_monomial(monomial: Mono, divisor: Mono) -> Mono | None:
    """`monomial / divisor`, or None where it does not divide."""
    if not divisor:
        return monomial
    rest = list(monomial)
    for atom in divisor:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest)


def common_factor(polys: Iterable[Poly], allowed: Callable[[int], bool]) -> Mono:
    """The largest product of allowed atoms that divides every term."""
    common: list[int] | None = None
    for poly in polys:
        for monomial in poly:
            if common is None:
                common = [atom for atom in monomial if allowed(atom)]
            else:
                rest = list(monomial)
                shared = []
                for atom in common:
                    if atom in rest:
                        rest.remove(atom)
                        shared.append(atom)
                common = shared
            if not common:
                return ()
    return tuple(common or ())


def cancel(poly: Poly, number: int, factor: Mono) -> Poly:
    """`poly / (number * factor)`, which must divide every term."""
    result: Poly = {}
    for monomial, coefficient in poly.items():
        rest = quotient_monomial(monomial, factor)
        if rest is None or coefficient % number:
            raise ValueError("the factor does not divide the polynomial")
        result[rest] = coefficient // number
    return result


def divide(poly: Poly, divisor: Poly, atoms: Atoms) -> tuple[Poly, Poly]:
    """`whole` and `rest` with `poly == divisor * whole + rest`; by a number n, the rest has coefficients in [0, n)."""
    number = constant(divisor)
    if number is not None:
        whole = {m: c // number for m, c in poly.items() if c // number}
        return whole, {m: c % number for m, c in poly.items() if c % number}
    lead = max(divisor, key=atoms.order)
    unit = divisor[lead]
    whole, rest, pending = {}, {}, dict(poly)
    for _ in range(MAX_TERMS):
        if not pending:
            break
        monomial = max(pending, key=atoms.order)
        coefficient = pending[monomial]
        factor = quotient_monomial(monomial, lead)
        if factor is None or coefficient % unit:
            rest[monomial] = pending.pop(monomial)
        else:
            whole[factor] = coefficient // unit
            pending = add(pending, divisor, -(coefficient // unit), factor)
    return whole, add(rest, pending)


def shift(poly: Poly, bounds: Mapping[int, int]) -> Poly:
    """The polynomial in terms of what each atom has above its lower bound: x becomes x + bounds[x]."""
    if not any(bounds.get(atom) for monomial in poly for atom in monomial):
        return poly
    return substitute(poly, lambda atom: {(atom,): 1, (): bounds[atom]} if bounds.get(atom) else None)


def _checked(poly: Poly) -> Poly:
    if len(poly) > MAX_TERMS or any(len(m) > MAX_DEGREE or c.bit_length() > MAX_BITS for m, c in poly.items()):
        raise DimError("dimension too large for the prover")
    return poly
