"""Certificates for inequalities: a goal as a sum of known non-negative polynomials with non-negative factors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import gcd

from linnet.language.check.polynomials import Frozen, Mono, Poly, add, freeze, quotient_monomial

MAX_COLUMNS = 28
MAX_ROWS = 60
MAX_PIVOTS = 24
MAX_ROUNDS = 3
# A goal p >= 0 over the integers follows from p > -1; any margin above zero keeps the inequality strict.
MARGIN = 1 << 20


def certified(goal: Poly, facts: Sequence[Poly], nonnegative: Callable[[int], bool]) -> bool:
    """Whether `goal >= 0` follows from every fact being >= 0 and the atoms that `nonnegative` names being >= 0.

    Sound, because it is true only if goal + 1 - 1 / MARGIN == sum_i c_i * m_i * f_i + sum_j d_j * n_j with c, d >= 0,
    where the f_i are facts and the m_i and n_j products of atoms >= 0: then goal > -1, and an integer above -1 is >= 0.
    """
    degree = 1 + max(len(monomial) for poly in (goal, *facts) for monomial in poly)
    columns: dict[Frozen, Poly] = {}
    wanted = _in_the_way(goal, 1, nonnegative)
    for _ in range(MAX_ROUNDS):
        added: list[Poly] = []
        for factor, fact in _multiples(wanted, facts, nonnegative):
            if len(columns) >= MAX_COLUMNS:
                break
            if max(map(len, fact)) + len(factor) <= degree:
                column = add({}, fact, 1, factor)
                key = freeze(column)
                if key not in columns:
                    columns[key] = column
                    added.append(column)
        if not added:
            return False
        if _combines(goal, list(columns.values()), nonnegative):
            return True
        wanted = [monomial for column in added for monomial in _in_the_way(column, -1, nonnegative)]
    return False


def _in_the_way(poly: Poly, sign: int, nonnegative: Callable[[int], bool]) -> list[Mono]:
    """The monomials whose terms in `sign * poly` are not known to be >= 0."""
    return [m for m, c in poly.items() if c * sign < 0 or not all(map(nonnegative, m))]


def _multiples(
    wanted: Sequence[Mono], facts: Sequence[Poly], nonnegative: Callable[[int], bool]
) -> list[tuple[Mono, Poly]]:
    """Facts and the products of atoms >= 0 that bring one of their terms to a wanted monomial, small products first."""
    found: list[tuple[Mono, Poly]] = []
    for monomial in dict.fromkeys(wanted):
        signed = all(map(nonnegative, monomial))
        for fact in facts:
            for part, coefficient in fact.items():
                if coefficient > 0 and signed:
                    continue
                factor = quotient_monomial(monomial, part)
                if factor is not None and all(map(nonnegative, factor)):
                    found.append((factor, fact))
    return sorted(found, key=lambda pair: len(pair[0]))


def _combines(goal: Poly, columns: list[Poly], nonnegative: Callable[[int], bool]) -> bool:
    """Whether goal + 1 - 1 / MARGIN minus some sum of columns, each times a number >= 0, has no term in the way."""
    monomials = sorted({monomial for column in columns for monomial in column} | goal.keys() | {()})
    if len(monomials) > MAX_ROWS:
        return False
    rows: list[tuple[int, dict[int, int]]] = []
    for monomial in monomials:
        scale = 1 if monomial else MARGIN
        bound = goal.get(monomial, 0) * scale + (0 if monomial else MARGIN - 1)
        entries = {i: column[monomial] * scale for i, column in enumerate(columns) if monomial in column}
        rows.append((bound, entries))
        if not all(map(nonnegative, monomial)):
            # What is left over of this product could have either sign, so nothing may be left.
            rows.append((-bound, {i: -value for i, value in entries.items()}))
    return _feasible(rows, len(columns))


def _feasible(rows: list[tuple[int, dict[int, int]]], columns: int) -> bool:
    """Whether some x >= 0 satisfies `sum_j entry[j] * x[j] <= bound` in every row.

    The dual simplex method with a zero objective; Bland's rule (least index first) keeps it from cycling. Only signs
    are needed, so rows stay in integers: each may be scaled by any positive number.
    """
    tableau = {columns + i: (bound, {**entries, columns + i: 1}) for i, (bound, entries) in enumerate(rows)}
    for _ in range(MAX_PIVOTS):
        leaving = min((basic for basic, (bound, _) in tableau.items() if bound < 0), default=None)
        if leaving is None:
            return True
        bound, entries = tableau.pop(leaving)
        entering = min((j for j, value in entries.items() if value < 0), default=None)
        if entering is None:
            return False
        pivot = -entries[entering]
        for basic, (other, values) in tableau.items():
            scale = values.get(entering)
            if scale:
                tableau[basic] = _combined(other, values, pivot, bound, entries, scale)
        tableau[entering] = (-bound, {j: -value for j, value in entries.items()})
    return False


def _combined(
    bound: int, entries: dict[int, int], times: int, other: int, others: dict[int, int], scale: int
) -> tuple[int, dict[int, int]]:
    """`times` the first row plus `scale` times the second, in lowest terms."""
    bound = bound * times + other * scale
    total = {j: value * times for j, value in entries.items()}
    for j, value in others.items():
        total[j] = total.get(j, 0) + value * scale
    common = gcd(bound, *total.values())
    return bound // common, {j: value // common for j, value in total.items() if value}
