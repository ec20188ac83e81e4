"""What is known about dimensions: polynomials in their simplest form, and the signs that can be proven of them.

Each rule says why it is sound. An expression that divides by b <= 0 is read as having some fixed value, so a rule about
division applies only where b is proven positive.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from linnet.language.check.dims import Atom, Dim
from linnet.language.check.ideal import Ideal
from linnet.language.check.inequalities import certified
from linnet.language.check.models import Model
from linnet.language.check.polynomials import (
    Atoms,
    Frozen,
    Part,
    Poly,
    add,
    cancel,
    common_factor,
    constant,
    content,
    freeze,
    multiply,
    negated,
    shift,
    substitute,
)

MAX_SPLITS = 3
MAX_FACTS = 48
MAX_NESTING = 10
# What one question may cost, where looking at one sign or bound costs 1.
MAX_EFFORT = 240
CERTIFICATE_COST = 16


class Knowledge:
    """Equations, inequalities and bounds taken to hold, and what can be concluded from them.

    `solved` gives atoms in terms of others (no right side holds a solved atom); `opaque` are atoms whose operands
    mention an atom that they solve, so that they are never rewritten from their operands; `bounds` are proven lower
    bounds >= 0; `zero`, `nonnegative` and `nonzero` are polynomials known to be that. `models` satisfy all that is
    known: they only save searching for proofs of what is false.
    """

    def __init__(self, models: Sequence[Model] = ()) -> None:
        self.models = models
        self.atoms = Atoms()
        self.solved: dict[int, Poly] = {}
        self.opaque: set[int] = set()
        self.bounds: dict[int, int] = {}
        self.zero: list[Poly] = []
        self.nonnegative: list[Poly] = []
        self.nonzero: list[Poly] = []
        self.effort = MAX_EFFORT
        self._nesting = 0
        # Whether a search was given up because of a bound or because it came back to its own question.
        self._cut = False
        self.forget()

    def copy(self, models: Sequence[Model]) -> Knowledge:
        """The same atoms, solutions and bounds, to be added to; the rest is left to be learnt again."""
        other = Knowledge(models)
        other.atoms = self.atoms
        other.solved = dict(self.solved)
        other.opaque = set(self.opaque)
        other.bounds = dict(self.bounds)
        other.forget()
        return other

    def forget(self) -> None:
        """Drop what was concluded, because what it was concluded from has grown."""
        self._polys: dict[Dim, Poly] = {}
        self._quotients: dict[tuple[Frozen, Frozen], Poly] = {}
        self._choices: dict[tuple[str, Frozen, Frozen], Poly] = {}
        self._rewritten: dict[int, Poly] = {}
        self._lowers: dict[int, int | None] = {}
        self._signs: dict[Frozen, bool] = {}
        self._open: set[Frozen | int] = set()
        self._pool: list[Poly] | None = None
        self._pool_atoms: list[int] = []
        self._shifted_pools: dict[tuple[int, ...], list[Poly]] = {}
        self._ideal = Ideal(self.atoms, self.zero)

    # From dimensions to polynomials

    def poly(self, dim: Dim) -> Poly:
        """The dimension with solved atoms replaced and each operation in its simplest form."""
        known = self._polys.get(dim)
        if known is None:
            known = {}
            for coefficient, factors in dim.terms():
                product: Poly = {(): coefficient}
                for atom in factors:
                    product = multiply(product, self._atom_poly(atom))
                known = add(known, product)
            self._polys[dim] = known
        return known

    def _atom_poly(self, atom: Atom) -> Poly:
        if isinstance(atom, str):
            number = self.atoms.symbol(atom)
            return self.solved.get(number, {(number,): 1})
        left, right = self.poly(atom.left), self.poly(atom.right)
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
            known = self._quotients[key] = self._simple_quotient(left, right)
        return known

    def _simple_quotient(self, left: Poly, right: Poly) -> Poly:
        number = constant(right)
        if (number is not None and number <= 0) or (number is None and not self.is_positive(right)):
            return self._operation("/", left, right)
        # From here right > 0. floor((b * w + r) / b) == w + floor(r / b) for any integers w, r.
        whole, rest = self._ideal.divide(left, right)
        if not rest:
            return whole
        # 0 <= r < b gives floor(r / b) == 0.
        if self.at_least_zero(rest) and self.is_positive(add(right, rest, -1)):
            return whole
        # floor(g * r / (g * b)) == floor(r / b) for g > 0.
        common = content([rest, right])
        factor = common_factor([rest, right], self.known_positive)
        if common > 1 or factor:
            return add(whole, self._quotient(cancel(rest, common, factor), cancel(right, common, factor)))
        for monomial, coefficient in rest.items():
            part = self.atoms.part(monomial[0]) if len(monomial) == 1 and coefficient == 1 else None
            if part is None or part.op != "/" or monomial[0] in self.opaque:
                continue
            inner, divisor = dict(part.left), dict(part.right)
            if self.is_positive(divisor):
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
            if self.at_least_zero(add(right, left, -1)):
                known = smaller
            elif self.at_least_zero(add(left, right, -1)):
                known = larger
            self._choices[key] = known
        return known

    def _operation(self, op: str, left: Poly, right: Poly) -> Poly:
        atom = self.atoms.operation(op, left, right)
        return self.solved.get(atom, {(atom,): 1})

    def rewrite(self, poly: Poly) -> Poly:
        """The polynomial with its atoms in the form that what is known by now gives them."""
        return substitute(poly, self._rewrite_atom)

    def _rewrite_atom(self, atom: int) -> Poly | None:
        part = self.atoms.part(atom)
        if atom in self.solved:
            return self.solved[atom]
        if part is None or atom in self.opaque:
            return None
        if atom not in self._rewritten:
            self._rewritten[atom] = {(atom,): 1}
            left, right = self.operands(part)
            self._rewritten[atom] = (
                self._quotient(left, right) if part.op == "/" else self._choice(part.op, left, right)
            )
        return self._rewritten[atom]

    def operands(self, part: Part) -> tuple[Poly, Poly]:
        """Both sides of an operation, rewritten."""
        return self.rewrite(dict(part.left)), self.rewrite(dict(part.right))

    # Signs

    def is_zero(self, poly: Poly) -> bool:
        """Whether `poly == 0` is proven."""
        if not poly:
            return True
        # m * f == 0 follows from f == 0 for any m.
        rest = cancel(poly, content([poly]), common_factor([poly], lambda atom: True))
        if any(model.value(poly, self.atoms) for model in self.models):
            return False
        if self._ideal.contains(rest):
            return True
        # And f == 0 follows from m * f == 0 for m > 0.
        positive = {a for zero in self.zero for m in zero for a in m if self.known_positive(a)}
        if any(self._ideal.contains(add({}, rest, 1, (atom,))) for atom in sorted(positive)[:6]):
            return True
        return self.at_least_zero(poly) and self.at_least_zero(negated(poly))

    def is_positive(self, poly: Poly) -> bool:
        """Whether `poly > 0` is proven: an integer above 0 is at least 1."""
        return self.at_least_zero(add(poly, {(): 1}, -1))

    def is_nonzero(self, poly: Poly) -> bool:
        """Whether `poly != 0` is proven."""
        if self.is_positive(poly) or self.is_positive(negated(poly)):
            return True
        if not poly:
            return False
        # f != 0 gives g * m * f != 0 for g != 0 and m > 0.
        rest = cancel(poly, content([poly]), common_factor([poly], self.known_positive))
        return any(self.is_zero(add(rest, known, sign)) for known in self.nonzero for sign in (1, -1))

    def known_positive(self, atom: int) -> bool:
        """Whether an atom is proven to be >= 1."""
        return (self.lower(atom) or 0) >= 1

    def known_sign(self, atom: int) -> bool:
        """Whether an atom is proven to be >= 0."""
        return self.lower(atom) is not None

    def lower(self, atom: int) -> int | None:
        """A proven lower bound of an atom that is >= 0, or None where none is known."""
        if atom in self._lowers:
            return self._lowers[atom]
        if atom in self._open or self.effort <= 0:
            self._cut = True
            return self.bounds.get(atom, None if self.atoms.part(atom) else 0)
        self.effort -= 1
        outer, self._cut = self._cut, False
        self._open.add(atom)
        found = self._find_lower(atom)
        self._open.discard(atom)
        if not self._cut or (not self._open and self.effort > 0):
            self._lowers[atom] = found
        self._cut = self._cut or outer
        return found

    def _find_lower(self, atom: int) -> int | None:
        known = self.bounds.get(atom)
        part = self.atoms.part(atom)
        if part is None:
            return known or 0  # Every symbol is >= 0.
        if known or atom in self.opaque:
            return known
        left, right = self.operands(part)
        if part.op == "/":
            if self.is_positive(right):
                # floor(a / b) >= 1 when a >= b, and >= 0 when a >= 0, for b > 0.
                if self.at_least_zero(add(left, right, -1)):
                    return 1
                if self.at_least_zero(left):
                    return 0
            return known
        # The smaller of two is at least what both are, the larger at least what either is.
        combine = all if part.op == "min" else any
        if combine(self.is_positive(side) for side in (left, right)):
            return 1
        if combine(self.at_least_zero(side) for side in (left, right)):
            return 0
        return known

    def at_least_zero(self, poly: Poly) -> bool:
        """Whether `poly >= 0` is proven."""
        number = constant(poly)
        if number is not None:
            return number >= 0
        key = freeze(poly)
        if key in self._signs:
            return self._signs[key]
        if key in self._open or self._nesting >= MAX_NESTING or self.effort <= 0:
            # Nothing is used in its own proof, and what is given up is not proven.
            self._cut = True
            return False
        self.effort -= 1
        outer, self._cut = self._cut, False
        self._open.add(key)
        self._nesting += 1
        try:
            proven = self._find_sign(poly, (), MAX_SPLITS)
        finally:
            self._nesting -= 1
            self._open.discard(key)
        if proven or not self._cut or (not self._open and self.effort > 0):
            self._signs[key] = proven
        self._cut = outer or (self._cut and not proven)
        return proven

    def _find_sign(self, poly: Poly, extra: tuple[Poly, ...], splits: int) -> bool:
        shifted = self._shifted(poly)
        if self._obvious(shifted):
            return True
        if self._refuted(poly, extra):
            return False
        # Dividing by a factor >= 0 keeps a sign: m * f >= 0 follows from f >= 0.
        factor = common_factor([poly], self.known_sign)
        if factor and self._find_sign(cancel(poly, 1, factor), extra, splits):
            return True
        if self._certified(poly, extra):
            return True
        for divisor in self._divisors(poly):
            # b * p + b - 1 >= 0 gives p > -1, so p >= 0, for b > 0: it meets the bounds of a quotient by b.
            if self._certified(add(multiply(divisor, poly), add(divisor, {(): 1}, -1)), extra):
                return True
        return splits > 0 and self._split(poly, extra, splits)

    def _refuted(self, poly: Poly, extra: tuple[Poly, ...]) -> bool:
        """Whether the polynomial is below zero in a model of all that is known."""
        return any(
            model.value(poly, self.atoms) < 0 and all(model.value(fact, self.atoms) >= 0 for fact in extra)
            for model in self.models
        )

    def _certified(self, poly: Poly, extra: tuple[Poly, ...]) -> bool:
        if self.effort <= 0:
            self._cut = True
            return False
        self.effort -= CERTIFICATE_COST
        facts = [*extra, *self._bounds_of(poly)]
        self._usable()
        # One set of bounds for all that takes part: a bound that is found on the way would make one atom two. What only
        # the pool mentions has the bound that is known already.
        bounds = {a: self.lower(a) or 0 for a in sorted({a for p in (poly, *facts) for m in p for a in m})}
        for atom in self._pool_atoms:
            bounds.setdefault(atom, self._lowers.get(atom) or self.bounds.get(atom, 0))
        shifted = [shift(fact, bounds) for fact in facts]
        return certified(shift(poly, bounds), [*shifted, *self._shifted_pool(bounds)], self.known_sign)

    def _divisors(self, poly: Poly) -> list[Poly]:
        """What the quotients among the atoms divide by, other than numbers, where it is proven positive."""
        found: dict[Frozen, Poly] = {}
        for atom in {a for monomial in poly for a in monomial}:
            part = self.atoms.part(atom)
            if part is not None and part.op == "/" and atom not in self.opaque:
                right = self.rewrite(dict(part.right))
                if constant(right) is None and self.is_positive(right):
                    found[freeze(right)] = right
        return list(found.values())[:2]

    def _split(self, poly: Poly, extra: tuple[Poly, ...], splits: int) -> bool:
        """Prove both cases of a minimum or maximum: it equals one of its operands, whichever the order is."""
        for atom in sorted({a for monomial in poly for a in monomial}):
            part = self.atoms.part(atom)
            if part is None or part.op == "/" or atom in self.opaque:
                continue
            left, right = self.operands(part)
            twin = self.atoms.operation("max" if part.op == "min" else "min", dict(part.left), dict(part.right))
            for smaller, larger in ((left, right), (right, left)):
                values = {atom: smaller, twin: larger} if part.op == "min" else {atom: larger, twin: smaller}
                case = substitute(poly, values.get)
                if not self._find_sign(case, (*extra, add(larger, smaller, -1)), splits - 1):
                    return False
            return True
        return False

    def _shifted(self, poly: Poly) -> Poly:
        """The polynomial in terms of what each atom has above its lower bound, which is >= 0."""
        return shift(poly, {a: self.lower(a) or 0 for monomial in poly for a in monomial})

    def _obvious(self, poly: Poly) -> bool:
        return all(c > 0 for c in poly.values()) and all(self.known_sign(a) for m in poly for a in m)

    def _usable(self) -> list[Poly]:
        """What is known to be >= 0 whatever the goal."""
        if self._pool is None:
            self._pool = []
            outer, self._cut = self._cut, False
            pool = list(self.nonnegative)
            for zero in self.zero:
                pool += [zero, negated(zero)]
            for poly in list(pool):
                pool += self._bounds_of(poly)
            self._pool = list({freeze(fact): fact for fact in pool}.values())
            self._pool_atoms = sorted({atom for fact in self._pool for monomial in fact for atom in monomial})
            self._cut = outer
        return self._pool

    def _shifted_pool(self, bounds: dict[int, int]) -> list[Poly]:
        """What `_usable` gives, in terms of what each atom has above `bounds`, without what says nothing more."""
        key = tuple(bounds[atom] for atom in self._pool_atoms)
        if key not in self._shifted_pools:
            shifted = [shift(fact, bounds) for fact in self._usable()]
            self._shifted_pools[key] = [fact for fact in shifted if not self._obvious(fact)][:MAX_FACTS]
        return self._shifted_pools[key]

    def _bounds_of(self, poly: Poly) -> Iterator[Poly]:
        for atom in sorted({a for monomial in poly for a in monomial}):
            part = self.atoms.part(atom)
            if part is not None and atom not in self.opaque:
                yield from self.part_bounds(part, {(atom,): 1})

    def part_bounds(self, part: Part, value: Poly) -> list[Poly]:
        """What defines an operation that has this value, as polynomials >= 0."""
        left, right = self.operands(part)
        if part.op == "min":
            return [add(left, value, -1), add(right, value, -1)]
        if part.op == "max":
            return [add(value, left, -1), add(value, right, -1)]
        if not self.is_positive(right):
            return []
        # b * floor(a / b) <= a <= b * floor(a / b) + b - 1 for b > 0.
        below = add(left, multiply(right, value), -1)
        return [below, add(add(right, {(): 1}, -1), below, -1)]
