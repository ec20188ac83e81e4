"""Proofs about dimensions: does a clause follow from the clauses assumed so far?

Sound by construction, not complete. Throughout, a division by b <= 0 is read as having some fixed value: what is
derived from facts then holds whatever that value is, and a goal is accepted only when each of its divisors is proven
positive. A fact that holds has a value, so its own divisors are positive.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from linnet.language.check.dims import Atom, Clause, Dim, DimError
from linnet.language.check.ideal import Ideal
from linnet.language.check.inequalities import certified
from linnet.language.check.polynomials import (
    Atoms,
    Frozen,
    Mono,
    Part,
    Poly,
    add,
    cancel,
    common_factor,
    constant,
    content,
    freeze,
    multiply,
    shift,
    substitute,
)

MAX_ROUNDS = 4
MAX_SPLITS = 3
MAX_FACTS = 48
MAX_NESTING = 12


class Facts:
    """Assumed clauses and what is derived from them. Immutable for its users; derives lazily and remembers proofs."""

    def __init__(self, clauses: Iterable[Clause] = ()) -> None:
        self.clauses: tuple[Clause, ...] = tuple(dict.fromkeys(clauses))
        self._atoms = Atoms()
        # Atoms that an equation gives in terms of others; the right sides hold no atom that is solved itself.
        self._solved: dict[int, Poly] = {}
        # Atoms whose operands mention an atom that they solve: taken as they are, never rewritten from their operands.
        self._opaque: set[int] = set()
        # Proven lower bounds, each >= 0.
        self._bounds: dict[int, int] = {}
        self._zero: list[Poly] = []
        self._nonnegative: list[Poly] = []
        self._nonzero: list[Poly] = []
        self._changed = True
        self._complete = False
        self._proofs: dict[Clause, bool] = {}
        self._nesting = 0
        self._forget()

    def extend(self, clauses: Iterable[Clause]) -> Facts:
        """These facts and more. Cheap: what was derived is kept, and the new ones wait until something is asked."""
        new = [clause for clause in clauses if clause not in self.clauses]
        if not new:
            return self
        facts = Facts((*self.clauses, *new))
        if self._complete:
            facts._atoms = self._atoms
            facts._solved = dict(self._solved)
            facts._opaque = set(self._opaque)
            facts._bounds = dict(self._bounds)
        facts._proofs = {clause: True for clause, proven in self._proofs.items() if proven}
        return facts

    def prove(self, goal: Clause) -> bool:
        """Whether `goal` holds, with every divisor in it positive, for all values >= 0 that satisfy the facts."""
        known = self._proofs.get(goal)
        if known is None:
            known = self._proofs[goal] = goal in self.clauses or self._prove(goal)
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

    def missing(self, goal: Clause) -> str:
        """The simplest `where` clause found that would prove `goal`: one of its parts, or the goal itself."""
        for candidate in _candidates(goal):
            if not self.prove(candidate) and self.extend([candidate]).prove(goal):
                return str(candidate)
        return str(goal)

    # Deriving

    def _prepare(self) -> None:
        if self._complete:
            return
        self._complete = True
        for _ in range(MAX_ROUNDS):
            if not self._changed:
                break
            self._changed = False
            self._derive()

    def _forget(self) -> None:
        """Drop what was computed from facts that have changed."""
        self._polys: dict[Dim, Poly] = {}
        self._quotients: dict[tuple[Frozen, Frozen], Poly] = {}
        self._choices: dict[tuple[str, Frozen, Frozen], Poly] = {}
        self._rewritten: dict[int, Poly] = {}
        self._lowers: dict[int, int | None] = {}
        self._signs: dict[Frozen, bool] = {}
        self._pool: list[Poly] | None = None
        self._ideal = Ideal(self._atoms, self._zero)

    def _derive(self) -> None:
        self._zero, self._nonnegative, self._nonzero = [], [], []
        self._forget()
        for atom, value in list(self._solved.items()):
            # Keep right sides in terms of atoms that are not solved.
            rewritten = self._rewrite(value)
            if atom not in _mentioned(self._atoms, rewritten, self._opaque):
                self._solved[atom] = rewritten
        self._forget()
        # A clause that divides by zero or less is false, so what a true one divides by is positive.
        for clause in self.clauses:
            for divisor in (*clause.left.divisors(), *clause.right.divisors()):
                self._assume(lambda d=divisor: self._learn_nonnegative(add(self._poly(d), {(): 1}, -1)))
        for clause in self.clauses:
            self._assume(lambda c=clause: self._learn(c))
        for atom, value in list(self._solved.items()):
            # The atom is gone from every polynomial, so what was known of it is said of its value.
            part = self._atoms.part(atom)
            if part is None:
                self._learn_nonnegative(value)
            elif self._atoms.part(atom) is not None:
                for bound in self._part_bounds(part, value):
                    self._learn_nonnegative(bound)

    def _assume(self, learn: object) -> None:
        try:
            learn()  # type: ignore[operator]
        except DimError:
            return  # A fact too large to work with is one fact fewer to prove from.

    def _learn(self, clause: Clause) -> None:
        difference = add(self._poly(clause.right), self._poly(clause.left), -1)
        if clause.op == "==":
            self._learn_zero(difference)
        elif clause.op == "!=":
            self._learn_nonzero(difference)
        else:
            if clause.op in (">", ">="):
                difference = {m: -c for m, c in difference.items()}
            strict = 1 if clause.op in ("<", ">") else 0
            self._learn_nonnegative(add(difference, {(): 1}, -strict))

    def _learn_zero(self, poly: Poly) -> None:
        # g * m * f == 0 with g != 0 and m > 0 gives f == 0.
        common = content([poly])
        if not common:
            return
        poly = cancel(poly, common, common_factor([poly], self._known_positive))
        for atom in self._candidates(poly):
            if self._solve(atom, poly):
                return
        self._zero.append(poly)
        self._pool = None
        self._forget()

    def _candidates(self, poly: Poly) -> list[int]:
        """Atoms that the equation could give in terms of the rest, symbols first."""
        linear = [m[0] for m, c in poly.items() if len(m) == 1 and abs(c) == 1]
        return sorted(linear, key=lambda atom: (self._atoms.part(atom) is not None, -self._atoms.weights[atom], atom))

    def _solve(self, atom: int, poly: Poly) -> bool:
        """Replace `atom` everywhere by what `poly == 0` makes it, where that shows a value >= 0."""
        sign = poly[(atom,)]
        value = {m: -sign * c for m, c in poly.items() if m != (atom,)}
        if any(c < 0 for c in value.values()) or any(atom in monomial for monomial in value):
            return False
        inside = [a for monomial in value for a in monomial if self._holds_inside(a, atom)]
        if any(self._atoms.part(a) is None for a in inside) or self._holds_inside(atom, atom):
            return False
        for part_atom in {a for m in value for a in m}:
            # Found before the atom vanishes from its operands.
            if (lower := self._lower(part_atom)) is not None:
                self._raise_bound(part_atom, lower)
        self._opaque.update(inside)
        if self._atoms.part(atom) is not None and (lower := self._lower(atom)):
            self._bounds[atom] = lower
        self._solved[atom] = value
        for other, right in list(self._solved.items()):
            self._solved[other] = substitute(right, lambda a: value if a == atom else None)
        self._changed = True
        self._forget()
        return True

    def _holds_inside(self, atom: int, wanted: int) -> bool:
        part = self._atoms.part(atom)
        if part is None or atom in self._opaque:
            return False
        return any(
            a == wanted or self._holds_inside(a, wanted)
            for side in (part.left, part.right)
            for monomial, _ in side
            for a in monomial
        )

    def _learn_nonzero(self, poly: Poly) -> None:
        for signed in (poly, {m: -c for m, c in poly.items()}):
            if self._at_least_zero(signed):
                self._learn_nonnegative(add(signed, {(): 1}, -1))
        self._nonzero.append(poly)

    def _learn_nonnegative(self, poly: Poly) -> None:
        rest = {m: c for m, c in poly.items() if m}
        common = content([rest])
        if not common:
            return
        # g * r + k >= 0 gives r >= -k / g, and r is an integer.
        number = poly.get((), 0) // common
        poly = cancel(rest, common, ())
        if number:
            poly[()] = number
        if self._obvious(poly):
            return
        if number < 0 and all(self._lower(a) is not None for m in poly for a in m):
            added = [{m: c} for m, c in poly.items() if c > 0]
            # The terms added exceed zero, so a factor of each of them is not zero; it is >= 0.
            for atom in set(common_factor(added, lambda a: True)):
                self._raise_bound(atom, 1)
            if len(added) == 1 and len(added[0]) == 1 and len(poly) == 2:
                ((monomial, coefficient),) = added[0].items()
                if len(monomial) == 1:
                    self._raise_bound(monomial[0], -(number // coefficient))
        self._nonnegative.append(poly)
        self._pool = None
        self._signs.clear()

    def _raise_bound(self, atom: int, bound: int) -> None:
        if bound > self._bounds.get(atom, -1):
            if bound > 0:
                self._changed = True
            self._bounds[atom] = bound
            self._lowers.clear()
            self._signs.clear()
            self._quotients.clear()
            self._choices.clear()
            self._polys.clear()
            self._rewritten.clear()
            self._pool = None

    # From dimensions to polynomials

    def _poly(self, dim: Dim) -> Poly:
        """The dimension with solved atoms replaced and each operation in its simplest form."""
        known = self._polys.get(dim)
        if known is not None:
            return known
        result: Poly = {}
        for coefficient, factors in dim.terms():
            product: Poly = {(): coefficient}
            for atom in factors:
                product = multiply(product, self._atom_poly(atom))
            result = add(result, product)
        self._polys[dim] = result
        return result

    def _atom_poly(self, atom: Atom) -> Poly:
        if isinstance(atom, str):
            number = self._atoms.symbol(atom)
            return self._solved.get(number, {(number,): 1})
        left, right = self._poly(atom.left), self._poly(atom.right)
        if atom.op == "/":
            return self._quotient(left, right)
        if atom.op == "%":
            # a % b == a - b * (a / b), whatever value a / b has where it is not defined.
            return add(left, multiply(right, self._quotient(left, right)), -1)
        return self._choice(atom.op, left, right)

    def _quotient(self, left: Poly, right: Poly) -> Poly:
        key = (freeze(left), freeze(right))
        known = self._quotients.get(key)
        if known is None:
            known = self._simple_quotient(left, right)
            self._quotients[key] = known
        return known

    def _simple_quotient(self, left: Poly, right: Poly) -> Poly:
        number = constant(right)
        if (number is not None and number <= 0) or (number is None and not self._is_positive(right)):
            return self._operation("/", left, right)
        # From here right > 0. floor((b * w + r) / b) == w + floor(r / b) for any integers w, r.
        whole, rest = self._ideal.divide(left, right)
        if not rest:
            return whole
        # 0 <= r < b gives floor(r / b) == 0.
        if self._at_least_zero(rest) and self._is_positive(add(right, rest, -1)):
            return whole
        # floor(g * r / (g * b)) == floor(r / b) for g > 0.
        common = content([rest, right])
        factor = common_factor([rest, right], self._known_positive)
        if common > 1 or factor:
            return add(whole, self._quotient(cancel(rest, common, factor), cancel(right, common, factor)))
        for monomial, coefficient in rest.items():
            part = self._atoms.part(monomial[0]) if len(monomial) == 1 and coefficient == 1 else None
            if part is None or part.op != "/" or monomial[0] in self._opaque:
                continue
            inner, divisor = dict(part.left), dict(part.right)
            if self._is_positive(divisor):
                # floor((floor(a / c) + s) / b) == floor((a + c * s) / (c * b)) for b, c > 0 and any integer s.
                others = {m: c for m, c in rest.items() if m != monomial}
                return add(whole, self._quotient(add(inner, multiply(divisor, others)), multiply(divisor, right)))
        return add(whole, self._operation("/", rest, right))

    def _choice(self, op: str, left: Poly, right: Poly) -> Poly:
        key = (op, freeze(left), freeze(right))
        known = self._choices.get(key)
        if known is None:
            known = self._operation(op, left, right)
            smaller, larger = (left, right) if op == "min" else (right, left)
            if self._at_least_zero(add(right, left, -1)):
                known = smaller
            elif self._at_least_zero(add(left, right, -1)):
                known = larger
            self._choices[key] = known
        return known

    def _operation(self, op: str, left: Poly, right: Poly) -> Poly:
        atom = self._atoms.operation(op, left, right)
        return self._solved.get(atom, {(atom,): 1})

    def _rewrite(self, poly: Poly) -> Poly:
        """The polynomial with its atoms in the form that the facts of now give them."""
        return substitute(poly, self._rewrite_atom)

    def _rewrite_atom(self, atom: int) -> Poly | None:
        part = self._atoms.part(atom)
        if atom in self._solved:
            return self._solved[atom]
        if part is None or atom in self._opaque:
            return None
        if atom not in self._rewritten:
            self._rewritten[atom] = {(atom,): 1}
            left, right = self._rewrite(dict(part.left)), self._rewrite(dict(part.right))
            self._rewritten[atom] = (
                self._quotient(left, right) if part.op == "/" else self._choice(part.op, left, right)
            )
        return self._rewritten[atom]

    # Proving

    def _prove(self, goal: Clause) -> bool:
        try:
            self._prepare()
            for divisor in (*goal.left.divisors(), *goal.right.divisors()):
                if not self._is_positive(self._poly(divisor)):
                    return False
            return self._compare(goal.op, add(self._poly(goal.right), self._poly(goal.left), -1))
        except DimError:
            return False  # Too large to work with is not proven.

    def _compare(self, op: str, difference: Poly) -> bool:
        """Whether `0 op difference` is proven."""
        negated = {m: -c for m, c in difference.items()}
        if op == "==":
            return self._is_zero(difference) or (self._at_least_zero(difference) and self._at_least_zero(negated))
        if op == "!=":
            return (
                self._is_positive(difference)
                or self._is_positive(negated)
                or any(self._is_zero(add(difference, known, sign)) for known in self._nonzero for sign in (1, -1))
            )
        signed = difference if op in ("<", "<=") else negated
        return self._is_positive(signed) if op in ("<", ">") else self._at_least_zero(signed)

    def _is_zero(self, poly: Poly) -> bool:
        if not poly:
            return True
        # m * f == 0 follows from f == 0 for any m.
        poly = cancel(poly, content([poly]), common_factor([poly], lambda atom: True))
        if self._ideal.contains(poly):
            return True
        # And f == 0 follows from m * f == 0 for m > 0.
        positive = {a for zero in self._zero for m in zero for a in m if self._known_positive(a)}
        return any(self._ideal.contains(add({}, poly, 1, (atom,))) for atom in sorted(positive)[:6])

    def _is_positive(self, poly: Poly) -> bool:
        return self._at_least_zero(add(poly, {(): 1}, -1))

    def _known_positive(self, atom: int) -> bool:
        return (self._lower(atom) or 0) >= 1

    def _known_sign(self, atom: int) -> bool:
        return self._lower(atom) is not None

    def _lower(self, atom: int) -> int | None:
        """A proven lower bound that is >= 0, or None where none is known."""
        if atom not in self._lowers:
            self._lowers[atom] = self._bounds.get(atom)  # What holds while the bound is being looked for.
            self._lowers[atom] = self._find_lower(atom)
        return self._lowers[atom]

    def _find_lower(self, atom: int) -> int | None:
        known = self._bounds.get(atom)
        part = self._atoms.part(atom)
        if part is None:
            return known or 0
        if known or atom in self._opaque:
            return known
        left, right = self._rewrite(dict(part.left)), self._rewrite(dict(part.right))
        if part.op == "/":
            if self._is_positive(right):
                # floor(a / b) >= 1 when a >= b, and >= 0 when a >= 0, for b > 0.
                if self._at_least_zero(add(left, right, -1)):
                    return 1
                if self._at_least_zero(left):
                    return 0
            return known
        # The smaller of two is at least what both are, the larger at least what either is.
        combine = all if part.op == "min" else any
        if combine(self._is_positive(side) for side in (left, right)):
            return 1
        if combine(self._at_least_zero(side) for side in (left, right)):
            return 0
        return known

    def _at_least_zero(self, poly: Poly) -> bool:
        """Whether `poly >= 0` is proven."""
        number = constant(poly)
        if number is not None:
            return number >= 0
        key = freeze(poly)
        if key not in self._signs:
            self._signs[key] = False  # Not yet proven, so not to be used in its own proof.
            if self._nesting >= MAX_NESTING:
                return False
            self._nesting += 1
            try:
                proven = self._find_sign(poly, (), MAX_SPLITS)
            finally:
                self._nesting -= 1
            self._signs[key] = proven
        return self._signs[key]

    def _find_sign(self, poly: Poly, extra: tuple[Poly, ...], splits: int) -> bool:
        bounds = self._shifts(poly)
        shifted = shift(poly, bounds)
        if self._obvious(shifted):
            return True
        # Dividing by a factor >= 0 keeps a sign: m * f >= 0 follows from f >= 0.
        factor = common_factor([poly], self._known_sign)
        if factor and self._find_sign(cancel(poly, 1, factor), extra, splits):
            return True
        facts = [shift(fact, self._shifts(fact)) for fact in (*extra, *self._bounds_of(poly))]
        if certified(shifted, [*facts, *self._usable()], self._known_sign):
            return True
        return splits > 0 and self._split(poly, extra, splits)

    def _split(self, poly: Poly, extra: tuple[Poly, ...], splits: int) -> bool:
        """Prove both cases of a minimum or maximum: it equals one of its operands, whichever the order is."""
        for atom in sorted({a for monomial in poly for a in monomial}):
            part = self._atoms.part(atom)
            if part is None or part.op == "/" or atom in self._opaque:
                continue
            left, right = self._rewrite(dict(part.left)), self._rewrite(dict(part.right))
            twin = self._atoms.operation("max" if part.op == "min" else "min", dict(part.left), dict(part.right))
            cases = ((left, right), (right, left))
            for smaller, larger in cases:
                values = {atom: smaller, twin: larger} if part.op == "min" else {atom: larger, twin: smaller}
                chosen = substitute(poly, values.get)
                order = add(larger, smaller, -1)
                if not self._find_sign(chosen, (*extra, order), splits - 1):
                    return False
            return True
        return False

    def _shifts(self, poly: Poly) -> dict[int, int]:
        return {a: self._lower(a) or 0 for monomial in poly for a in monomial}

    def _usable(self) -> list[Poly]:
        """What is known to be >= 0 whatever the goal, each atom in terms of what it has above its lower bound."""
        if self._pool is None:
            self._pool = []
            pool = list(self._nonnegative)
            for zero in self._zero:
                pool += [zero, {m: -c for m, c in zero.items()}]
            for poly in list(pool):
                pool += self._bounds_of(poly)
            shifted = {freeze(fact): fact for fact in (shift(poly, self._shifts(poly)) for poly in pool)}
            self._pool = [fact for fact in shifted.values() if not self._obvious(fact)][:MAX_FACTS]
        return self._pool

    def _obvious(self, poly: Poly) -> bool:
        return all(c > 0 for c in poly.values()) and all(self._known_sign(a) for m in poly for a in m)

    def _bounds_of(self, poly: Poly) -> Iterator[Poly]:
        for atom in sorted({a for monomial in poly for a in monomial}):
            part = self._atoms.part(atom)
            if part is not None and atom not in self._opaque:
                yield from self._part_bounds(part, {(atom,): 1})

    def _part_bounds(self, part: Part, value: Poly) -> list[Poly]:
        """What defines an operation with that value, as polynomials >= 0."""
        left, right = self._rewrite(dict(part.left)), self._rewrite(dict(part.right))
        if part.op == "min":
            return [add(left, value, -1), add(right, value, -1)]
        if part.op == "max":
            return [add(value, left, -1), add(value, right, -1)]
        if not self._is_positive(right):
            return []
        # b * floor(a / b) <= a <= b * floor(a / b) + b - 1 for b > 0.
        below = add(left, multiply(right, value), -1)
        above = add(add(right, {(): 1}, -1), below, -1)
        return [below, above]


def _mentioned(atoms: Atoms, poly: Poly, opaque: set[int]) -> set[int]:
    found: set[int] = set()
    pending: list[Mono] = list(poly)
    while pending:
        for atom in pending.pop():
            if atom in found:
                continue
            found.add(atom)
            part = atoms.part(atom)
            if part is not None and atom not in opaque:
                pending += [monomial for side in (part.left, part.right) for monomial, _ in side]
    return found


def _candidates(goal: Clause) -> list[Clause]:
    """Clauses simpler than the goal that may be what it lacks, the simplest first."""
    zero = Dim.of(0)
    operations = [op for side in (goal.left, goal.right) for op in side.operations() if op.op in "/%"]
    found = [Clause(">", operation.right, zero) for operation in operations]
    found += [Clause("==", operation.left % operation.right, zero) for operation in operations]
    if goal.op not in ("==", "!="):
        found += [Clause(">", Dim.symbol(name), zero) for name in sorted(goal.symbols())]
    return [clause for clause in dict.fromkeys(found) if clause != goal and clause.symbols()]
