"""Values that satisfy a set of clauses: what is false of one of them need not be searched for a proof."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import lcm
from random import Random
from zlib import crc32

from linnet.language.check.dims import Clause, Dim
from linnet.language.check.polynomials import Atoms, Frozen, Poly

WANTED = 8
ENOUGH = 3
STARTS = 14
REPAIRS = 24
MAX_UNIT = 1 << 20


class Model:
    """Values of symbols that satisfy every clause, and of any polynomial under them.

    A symbol that no clause mentions has a small value of its own in each model. What divides by b <= 0 is 0: the prover
    reads it as having some fixed value.
    """

    def __init__(self, values: Mapping[str, int], salt: int) -> None:
        self.values = values
        self._salt = salt
        self._known: dict[int, int] = {}

    def value(self, poly: Poly, atoms: Atoms) -> int:
        """The value of a polynomial."""
        return self._sum(poly.items(), atoms)

    def _sum(self, terms: Iterable[tuple[tuple[int, ...], int]], atoms: Atoms) -> int:
        total = 0
        for monomial, product in terms:
            for atom in monomial:
                known = self._known.get(atom)
                if known is None:
                    known = self._known[atom] = self._atom(atom, atoms)
                product *= known
            total += product
        return total

    def _atom(self, atom: int, atoms: Atoms) -> int:
        part = atoms.part(atom)
        if part is None:
            name = atoms.name(atom)
            default = crc32(f"{self._salt} {name}".encode()) % (self._salt + 2) if self._salt > 1 else self._salt
            return self.values.get(name, default)
        left, right = self._frozen(part.left, atoms), self._frozen(part.right, atoms)
        if part.op != "/":
            return min(left, right) if part.op == "min" else max(left, right)
        return left // right if right > 0 else 0

    def _frozen(self, side: Frozen, atoms: Atoms) -> int:
        return self._sum(side, atoms)


def find_models(clauses: tuple[Clause, ...], earlier: Iterable[Model] = ()) -> list[Model]:
    """A few models of the clauses, those of `earlier` that still are first; perhaps none.

    Deterministic: a search from seeded starting points, which repairs one clause after the other.
    """
    names = sorted({name for clause in clauses for name in clause.symbols()})
    found: list[Model] = []
    for model in earlier:
        values = {name: model.values.get(name, 1) for name in names}
        if all(clause.holds(values) for clause in clauses):
            found.append(Model(values, len(found)))
    if len(found) >= ENOUGH:
        return found
    unit = 1
    for clause in clauses:
        for number in _numbers(clause):
            if lcm(unit, number) <= MAX_UNIT:
                unit = lcm(unit, number)
    choices = (0, 1, 1, 1, 2, 2, 3, 4, 5, 6, unit, unit, 2 * unit, 3 * unit)
    for start in range(STARTS):
        rng = Random(start)
        values = dict.fromkeys(names, unit) if start == 0 else {name: rng.choice(choices) for name in names}
        if _repaired(values, clauses, rng, choices):
            found.append(Model(values, len(found)))
        if len(found) >= WANTED or (start >= STARTS // 2 and not found):
            break
    return found


def _repaired(values: dict[str, int], clauses: tuple[Clause, ...], rng: Random, choices: tuple[int, ...]) -> bool:
    for _ in range(REPAIRS):
        broken = next((clause for clause in clauses if not clause.holds(values)), None)
        if broken is None:
            return True
        symbols = sorted(broken.symbols())
        if not symbols:
            return False
        for _ in range(3):
            name = rng.choice(symbols)
            values[name] = rng.choice(choices)
            if broken.holds(values):
                break
    return all(clause.holds(values) for clause in clauses)


def _numbers(clause: Clause) -> list[int]:
    found: list[int] = []
    pending: list[Dim] = [clause.left, clause.right]
    while pending:
        dim = pending.pop()
        for coefficient, factors in dim.terms():
            if not factors and coefficient > 1:
                found.append(coefficient)
            for atom in factors:
                if not isinstance(atom, str):
                    pending += [atom.left, atom.right]
    return found
