"""Equalities as a polynomial ideal: what follows from `f == 0` for every f in a list, by multiplying and adding."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from math import gcd

from linnet.language.check.dims import DimError
from linnet.language.check.polynomials import Atoms, Mono, Poly, add, content, divide, quotient_monomial

MAX_GENERATORS = 24
MAX_PAIRS = 60
MAX_STEPS = 120
MAX_REWRITES = 48


class Ideal:
    """The polynomials that are zero because those of `generators` are.

    A Gröbner basis of them would decide membership; this completes towards one (Buchberger's algorithm) within bounds,
    so it may miss a consequence but never invents one: everything it holds is a combination of the generators. What
    grows too large to work with is one path that is not taken further.
    """

    def __init__(self, atoms: Atoms, generators: Iterable[Poly]) -> None:
        self._atoms = atoms
        self.generators = [dict(poly) for poly in generators if poly]
        self._basis: list[tuple[Mono, Poly]] | None = None

    def contains(self, poly: Poly) -> bool:
        """Whether some k * poly with k != 0 is in the ideal: then poly is zero, as integers have no zero divisors."""
        if not poly:
            return True
        if not self.generators:
            return False
        if self._basis is None:
            self._basis = self._completed()
        return not self._reduced(poly, self._basis)

    def divide(self, poly: Poly, divisor: Poly) -> tuple[Poly, Poly]:
        """`whole` and `rest` with `poly == divisor * whole + rest` modulo the ideal; looks for a rest of zero.

        Every rewriting adds a multiple of a generator, which is zero, so the equation holds whatever path is taken.
        """
        first = divide(poly, divisor, self._atoms)
        if not first[1] or not self.generators:
            return first
        seen = {frozenset(first[1].items())}
        frontier = [first]
        while frontier and len(seen) < MAX_REWRITES:
            whole, rest = frontier.pop(0)
            for rewritten in self._rewritings(rest):
                try:
                    more, left = divide(rewritten, divisor, self._atoms)
                    quotient = add(whole, more)
                except DimError:
                    continue
                if not left:
                    return quotient, {}
                key = frozenset(left.items())
                if key not in seen and len(left) <= len(first[1]) + 2:
                    seen.add(key)
                    frontier.append((quotient, left))
        return first

    def _rewritings(self, poly: Poly) -> Iterable[Poly]:
        for monomial, coefficient in poly.items():
            for generator in self.generators:
                for part, unit in generator.items():
                    factor = quotient_monomial(monomial, part) if part else None
                    if factor is not None and coefficient % unit == 0:
                        with suppress(DimError):
                            yield add(poly, generator, -(coefficient // unit), factor)

    def _lead(self, poly: Poly) -> Mono:
        return max(poly, key=self._atoms.order)

    def _reduced(self, poly: Poly, basis: list[tuple[Mono, Poly]]) -> Poly:
        """A multiple of `poly` minus multiples of the basis: {} shows that poly is zero."""
        for _ in range(MAX_STEPS):
            for monomial in sorted(poly, key=self._atoms.order, reverse=True):
                try:
                    step = self._step(poly, monomial, basis)
                except DimError:
                    return poly
                if step is not None:
                    poly = step
                    break
            else:
                return poly
            if not poly:
                break
        return poly

    def _step(self, poly: Poly, monomial: Mono, basis: list[tuple[Mono, Poly]]) -> Poly | None:
        for lead, rule in basis:
            factor = quotient_monomial(monomial, lead)
            if factor is None:
                continue
            unit, coefficient = rule[lead], poly[monomial]
            common = gcd(unit, coefficient)
            scaled = {m: c * (unit // common) for m, c in poly.items()}
            return _primitive(add(scaled, rule, -(coefficient // common), factor))
        return None

    def _completed(self) -> list[tuple[Mono, Poly]]:
        basis: list[tuple[Mono, Poly]] = []
        for generator in self.generators[:MAX_GENERATORS]:
            reduced = self._reduced(_primitive(generator), basis)
            if reduced:
                basis.append((self._lead(reduced), reduced))
        pairs = [(i, j) for j in range(len(basis)) for i in range(j)]
        for count, (i, j) in enumerate(pairs):
            if count >= MAX_PAIRS or len(basis) >= MAX_GENERATORS:
                break
            try:
                difference = self._reduced(self._s_polynomial(basis[i], basis[j]), basis)
            except DimError:
                continue
            if difference:
                pairs.extend((k, len(basis)) for k in range(len(basis)))
                basis.append((self._lead(difference), difference))
        return basis

    def _s_polynomial(self, a: tuple[Mono, Poly], b: tuple[Mono, Poly]) -> Poly:
        """The combination of two basis elements in which their leading terms cancel."""
        (lead_a, poly_a), (lead_b, poly_b) = a, b
        shared: list[int] = []
        rest = list(lead_b)
        for atom in lead_a:
            if atom in rest:
                rest.remove(atom)
                shared.append(atom)
        if not shared:
            return {}  # Coprime leading terms reduce to zero (Buchberger's first criterion).
        up_a = tuple(rest)
        up_b = quotient_monomial(lead_a, tuple(shared)) or ()
        common = gcd(poly_a[lead_a], poly_b[lead_b])
        scaled = add({}, poly_a, poly_b[lead_b] // common, up_a)
        return _primitive(add(scaled, poly_b, -(poly_a[lead_a] // common), up_b))


def _primitive(poly: Poly) -> Poly:
    common = content([poly])
    return {m: c // common for m, c in poly.items()} if common > 1 else poly
