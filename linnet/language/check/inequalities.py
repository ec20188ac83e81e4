"""Certificates for inequalities: a goal as a sum of known non-negative polynomials with non-negative factors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

from linnet.language.check.polynomials import Mono, Poly, add, quotient_monomial

MAX_COLUMNS = 40
MAX_ROWS = 60
MAX_PIVOTS = 40
MAX_ROUNDS = 3
MAX_DEGREE = 6
# A goal p >= 0 over the integers follows from p > -1; any margin above zero keeps the inequality strict.
MARGIN = Fraction(1, 1 << 20)


def certified(goal: Poly, facts: Sequence[Poly], nonnegative: Callable[[int], bool]) -> bool:
    """Whether `goal >= 0` follows from every fact being >= 0 and the atoms that `nonnegative` names being >= 0.

    Sound, because it is true only if goal + 1 - MARGIN == sum_i c_i * m_i * f_i + sum_j d_j * n_j with c, d >= 0, where
    the f_i are facts and the m_i and n_j products of atoms >= 0: then goal > -1, and an integer above -1 is >= 0.
    """
    columns = _columns(goal, facts, nonnegative)
    if columns is None:
        return False
    rows: dict[tuple[Mono, int], tuple[Fraction, dict[int, Fraction]]] = {}
    monomials = {monomial for column in columns for monomial in column} | goal.keys() | {()}
    if len(monomials) > MAX_ROWS:
        return False
    for monomial in sorted(monomials):
        bound = Fraction(goal.get(monomial, 0)) + (1 - MARGIN if not monomial else 0)
        entries = {i: Fraction(column[monomial]) for i, column in enumerate(columns) if monomial in column}
        rows[monomial, 1] = (bound, entries)
        if not all(map(nonnegative, monomial)):
            # What is left over of this product could have either sign, so nothing may be left.
            rows[monomial, -1] = (-bound, {i: -value for i, value in entries.items()})
    return _feasible(list(rows.values()), len(columns))


def _columns(goal: Poly, facts: Sequence[Poly], nonnegative: Callable[[int], bool]) -> list[Poly] | None:
    """Facts times products that can cancel what stands in the way of the goal, or None where nothing can."""

    def in_the_way(poly: Poly, sign: int) -> list[Mono]:
        return [m for m, c in poly.items() if c * sign < 0 or not all(map(nonnegative, m))]

    columns: dict[frozenset[tuple[Mono, int]], Poly] = {}
    wanted = in_the_way(goal, 1)
    done: set[Mono] = set()
    for _ in range(MAX_ROUNDS):
        following: list[Mono] = []
        for monomial in wanted:
            if monomial in done:
                continue
            done.add(monomial)
            for fact in facts:
                for part, coefficient in fact.items():
                    factor = quotient_monomial(monomial, part)
                    if factor is None or not all(map(nonnegative, factor)):
                        continue
                    if coefficient > 0 and all(map(nonnegative, monomial)):
                        continue
                    column = add({}, fact, 1, factor)
                    key = frozenset(column.items())
                    if key in columns or any(len(m) > MAX_DEGREE for m in column):
                        continue
                    if len(columns) < MAX_COLUMNS:
                        columns[key] = column
                        following += in_the_way(column, -1)
        wanted = following
    return list(columns.values()) if columns or not in_the_way(goal, 1) else None


def _feasible(rows: list[tuple[Fraction, dict[int, Fraction]]], columns: int) -> bool:
    """Whether some x >= 0 satisfies `sum_j entry[j] * x[j] <= bound` in every row.

    The dual simplex method with a zero objective; Bland's rule (least index first) keeps it from cycling.
    """
    tableau = {columns + i: (bound, dict(entries)) for i, (bound, entries) in enumerate(rows)}
    for _ in range(MAX_PIVOTS):
        leaving = min((basic for basic, (bound, _) in tableau.items() if bound < 0), default=None)
        if leaving is None:
            return True
        bound, entries = tableau[leaving]
        entering = min((j for j, value in entries.items() if value < 0), default=None)
        if entering is None:
            return False
        del tableau[leaving]
        pivot = entries.pop(entering)
        bound /= pivot
        entries = {j: value / pivot for j, value in entries.items()}
        entries[leaving] = 1 / pivot
        for basic, (other, values) in tableau.items():
            scale = values.pop(entering, None)
            if scale is None:
                continue
            for j, value in entries.items():
                total = values.get(j, 0) - scale * value
                if total:
                    values[j] = total
                else:
                    values.pop(j, None)
            tableau[basic] = (other - scale * bound, values)
        tableau[entering] = (bound, entries)
    return False
