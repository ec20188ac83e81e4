"""Proofs about dimensions: does a clause follow from the clauses assumed so far?

Sound by construction, not complete: what is accepted holds for all integers >= 0 that satisfy the facts. A fact that
holds has a value, so its divisors are positive; a goal is accepted only when each of its divisors is proven positive.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations, islice

from linnet.language.check.dims import Clause, Dim, DimError
from linnet.language.check.knowledge import MAX_EFFORT, Knowledge
from linnet.language.check.models import find_models
from linnet.language.check.polynomials import Poly, add, cancel, common_factor, content, negated, substitute

MAX_ROUNDS = 4
# More clauses than these are only matched as they stand: deriving takes time with the square of their number.
MAX_CLAUSES = 160
# What deriving everything from the clauses may cost.
DERIVING_EFFORT = 800
# How many additions `missing` tries alone, and how many in pairs.
MAX_CANDIDATES = 10


class Facts:
    """Assumed clauses. Immutable for its users; it derives what it needs when first asked and remembers proofs."""

    def __init__(self, clauses: Iterable[Clause] = ()) -> None:
        self.clauses: tuple[Clause, ...] = tuple(dict.fromkeys(clauses))
        self._stated = frozenset(self.clauses)
        self._knowledge: Knowledge | None = None
        self._earlier: Knowledge | None = None
        self._proofs: dict[Clause, bool] = {}

    def extend(self, clauses: Iterable[Clause]) -> Facts:
        """These facts and more. Cheap: what was derived is kept, and the new ones wait until something is asked."""
        new = [clause for clause in clauses if clause not in self._stated]
        if not new:
            return self
        facts = Facts((*self.clauses, *new))
        facts._earlier = self._knowledge or self._earlier
        facts._proofs = {clause: True for clause, proven in self._proofs.items() if proven}
        return facts

    def prove(self, goal: Clause) -> bool:
        """Whether `goal` holds, with every divisor in it positive, for all values >= 0 that satisfy the facts."""
        known = self._proofs.get(goal)
        if known is None:
            known = self._proofs[goal] = goal in self._stated or self._prove(goal)
        return known

    def equal(self, a: Dim, b: Dim) -> bool:
        """Whether `a == b` is proven."""
        return self.prove(Clause("==", a, b))

    def nonnegative(self, d: Dim) -> bool:
        """Whether `d >= 0` is proven."""
        return self.prove(Clause(">=", d, Dim.of(0)))

    def positive(self, d: Dim) -> bool:
        """Whether `d > 0` is proven."""
        return self.prove(Clause(">", d, Dim.of(0)))

    def at_most(self, a: Dim, b: Dim) -> bool:
        """Whether `a <= b` is proven."""
        return self.prove(Clause("<=", a, b))

    def missing(self, goal: Clause) -> tuple[Clause, ...]:
        """The simplest clauses found that, added to `where`, would prove `goal`; else the goal itself."""
        candidates = [clause for clause in _candidates(goal) if not self.prove(clause)][:MAX_CANDIDATES]
        for count in (1, 2):
            for chosen in islice(combinations(candidates, count), MAX_CANDIDATES):
                if self.extend(chosen).prove(goal):
                    return chosen
        return (goal,)

    def _prove(self, goal: Clause) -> bool:
        try:
            if _evident(goal):
                return True
            if self._knowledge is None:
                self._knowledge = derive(self.clauses[:MAX_CLAUSES], self._earlier)
                self._earlier = None
            known = self._knowledge
            known.effort = MAX_EFFORT
            for divisor in (*goal.left.divisors(), *goal.right.divisors()):
                if not known.is_positive(known.poly(divisor)):
                    return False
            difference = add(known.poly(goal.right), known.poly(goal.left), -1)
            if goal.op == "==":
                return known.is_zero(difference)
            if goal.op == "!=":
                return known.is_nonzero(difference)
            signed = difference if goal.op in ("<", "<=") else negated(difference)
            return known.is_positive(signed) if goal.op in ("<", ">") else known.at_least_zero(signed)
        except DimError:
            return False  # Too large to work with is not proven.


def derive(clauses: tuple[Clause, ...], earlier: Knowledge | None = None) -> Knowledge:
    """What follows from clauses, on top of what was derived from some of them before."""
    models = find_models(clauses, earlier.models if earlier else ())
    learner = Learner(earlier.copy(models) if earlier else Knowledge(models))
    learner.known.effort = DERIVING_EFFORT
    for _ in range(MAX_ROUNDS):
        # Each round sees the clauses in the form that the solutions and bounds of the one before give them.
        learner.changed = False
        learner.read(clauses)
        if not learner.changed:
            break
    return learner.known


class Learner:
    """Adds to a Knowledge what clauses say. Each rule says why it is sound."""

    def __init__(self, known: Knowledge) -> None:
        self.known = known
        self.changed = False

    def read(self, clauses: tuple[Clause, ...]) -> None:
        """Take in every clause anew, with all that is known from earlier rounds."""
        known = self.known
        known.zero, known.nonnegative, known.nonzero = [], [], []
        known.forget()
        for atom, value in list(known.solved.items()):
            try:
                rewritten = known.rewrite(value)
            except DimError:
                continue
            if atom not in self._mentioned(rewritten) and known.solved.keys().isdisjoint(_atoms(rewritten)):
                known.solved[atom] = rewritten
        known.forget()
        # A clause that divides by zero or less is false, so what a true one divides by is positive.
        for clause in clauses:
            for divisor in (*clause.left.divisors(), *clause.right.divisors()):
                self._read(Clause(">", divisor, Dim.of(0)))
        for clause in clauses:
            self._read(clause)
        for atom, value in list(known.solved.items()):
            # The atom is gone from every polynomial, so what was known of it is said of its value.
            part = known.atoms.part(atom)
            try:
                for bound in [value] if part is None else known.part_bounds(part, value):
                    self.learn_nonnegative(bound)
            except DimError:
                continue

    def _read(self, clause: Clause) -> None:
        known = self.known
        try:
            difference = add(known.poly(clause.right), known.poly(clause.left), -1)
            if clause.op == "==":
                self.learn_zero(difference)
            elif clause.op == "!=":
                self.learn_nonzero(difference)
            else:
                signed = difference if clause.op in ("<", "<=") else negated(difference)
                # An integer above 0 is at least 1.
                self.learn_nonnegative(add(signed, {(): 1}, -1) if clause.op in ("<", ">") else signed)
        except DimError:
            return  # A fact too large to work with is one fact fewer to prove from.

    def learn_zero(self, poly: Poly) -> None:
        """Take `poly == 0` to hold."""
        common = content([poly])
        if not common:
            return
        # g * m * f == 0 with g != 0 and m > 0 gives f == 0.
        poly = cancel(poly, common, common_factor([poly], self.known.known_positive))
        linear = [m[0] for m, c in poly.items() if len(m) == 1 and abs(c) == 1]
        atoms = self.known.atoms
        for atom in sorted(linear, key=lambda a: (atoms.part(a) is not None, -atoms.weights[a], a)):
            if self._solve(atom, poly):
                return
        self.known.zero.append(poly)
        self.known.forget()

    def _solve(self, atom: int, poly: Poly) -> bool:
        """Replace `atom` everywhere by what `poly == 0` makes it, where that is a sum without a negative term."""
        known = self.known
        sign = poly[(atom,)]
        value = {m: -sign * c for m, c in poly.items() if m != (atom,)}
        if any(c < 0 for c in value.values()) or any(atom in monomial for monomial in value):
            return False
        inside = [a for a in _atoms(value) if atom in self._inside(a)]
        if atom in self._inside(atom):
            return False
        for other in _atoms(value):
            # Found now, before the atom vanishes from the operands of the other.
            lower = known.lower(other)
            if lower is not None:
                self._raise_bound(other, lower)
        known.opaque.update(inside)
        known.solved[atom] = value
        for other, right in list(known.solved.items()):
            known.solved[other] = substitute(right, lambda a: value if a == atom else None)
        self.changed = True
        known.forget()
        return True

    def learn_nonzero(self, poly: Poly) -> None:
        """Take `poly != 0` to hold."""
        for signed in (poly, negated(poly)):
            if self.known.at_least_zero(signed):
                self.learn_nonnegative(add(signed, {(): 1}, -1))
        if poly:
            # g * m * f != 0 gives f != 0.
            factor = common_factor([poly], lambda a: True)
            self.known.nonzero.append(cancel(poly, content([poly]), factor))

    def learn_nonnegative(self, poly: Poly) -> None:
        """Take `poly >= 0` to hold."""
        known = self.known
        rest = {m: c for m, c in poly.items() if m}
        common = content([rest])
        if not common:
            return
        # g * r + k >= 0 gives r >= -k / g, and r is an integer.
        number = poly.get((), 0) // common
        rest = cancel(rest, common, ())
        if all(map(known.known_sign, _atoms(rest))):
            if number >= 0 and all(c > 0 for c in rest.values()):
                return
            if number < 0:
                self._learn_positive(rest, -number)
        known.nonnegative.append(add(rest, {(): number}) if number else rest)
        known.forget()

    def _learn_positive(self, poly: Poly, bound: int) -> None:
        """Take `poly >= bound > 0` to hold, where every atom in it is >= 0."""
        added = [{m: c} for m, c in poly.items() if c > 0]
        # The terms added come to more than zero, so a factor of each of them is not zero, and it is >= 0.
        for atom in set(common_factor(added, lambda a: True)):
            self._raise_bound(atom, 1)
        if len(poly) == 1 and added:
            ((monomial, coefficient),) = poly.items()
            if len(monomial) == 1:
                # c * x >= k gives x >= k / c, rounded up.
                self._raise_bound(monomial[0], -(-bound // coefficient))

    def _raise_bound(self, atom: int, bound: int) -> None:
        if bound > self.known.bounds.get(atom, -1):
            self.changed = self.changed or bound > 0
            self.known.bounds[atom] = bound
            self.known.forget()

    def _inside(self, atom: int) -> set[int]:
        """The atoms in the operands of an atom, at any depth."""
        part = self.known.atoms.part(atom)
        if part is None or atom in self.known.opaque:
            return set()
        return self._mentioned(dict(part.left)) | self._mentioned(dict(part.right))

    def _mentioned(self, poly: Poly) -> set[int]:
        """The atoms of a polynomial and those in their operands, at any depth."""
        found: set[int] = set()
        for atom in _atoms(poly):
            if atom not in found:
                found |= {atom} | self._inside(atom)
        return found


def _evident(goal: Clause) -> bool:
    """Whether the goal holds for all symbols >= 0: nothing is divided, and one side is the other plus such a sum."""
    if goal.op in ("!=", "<", ">"):
        return False
    difference = goal.left - goal.right if goal.op == ">=" else goal.right - goal.left
    if goal.op == "==":
        return difference.constant == 0 and not goal.left.divisors() and not goal.right.divisors()
    if any(c < 0 or not all(isinstance(atom, str) for atom in factors) for c, factors in difference.terms()):
        return False
    return not goal.left.divisors() and not goal.right.divisors()


def _atoms(poly: Poly) -> set[int]:
    return {atom for monomial in poly for atom in monomial}


def _candidates(goal: Clause) -> list[Clause]:
    """Clauses simpler than the goal that may be what it lacks, the simplest first."""
    zero = Dim.of(0)
    operations = [op for side in (goal.left, goal.right) for op in side.operations()]
    divisions = [op for op in operations if op.op in "/%"]
    found = [Clause(">", op.right, zero) for op in divisions]
    found += [Clause("==", op.left % op.right, zero) for op in divisions]
    if goal.op in ("==", "!="):
        found.append(_cancelled(goal))
    else:
        found += [Clause(">", Dim.symbol(name), zero) for name in sorted(goal.symbols())]
        found += [_unsigned(op.left) for op in divisions]
    return [clause for clause in dict.fromkeys(found) if clause != goal and clause.symbols()]


def _cancelled(goal: Clause) -> Clause:
    """The clause without the factors that all its terms have."""
    terms = [factors for side in (goal.left, goal.right) for _, factors in side.terms()]
    sides = [goal.left, goal.right]
    for atom in set(terms[0]) if terms else ():
        if all(atom in factors for factors in terms):
            for i, side in enumerate(sides):
                sides[i] = _without(side, atom)
    return Clause(goal.op, *sides)


def _without(dim: Dim, atom: object) -> Dim:
    result = Dim.of(0)
    for coefficient, factors in dim.terms():
        product = Dim.of(coefficient)
        skipped = False
        for factor in factors:
            if factor == atom and not skipped:
                skipped = True
            else:
                product = product * Dim.atom(factor)
        result = result + product
    return result


def _unsigned(dim: Dim) -> Clause:
    """`dim >= 0`, with what is taken away on the other side of the comparison."""
    added, taken = Dim.of(0), Dim.of(0)
    for coefficient, factors in dim.terms():
        product = Dim.of(abs(coefficient))
        for factor in factors:
            product = product * Dim.atom(factor)
        if coefficient > 0:
            added = added + product
        else:
            taken = taken + product
    return Clause("<=", taken, added)
