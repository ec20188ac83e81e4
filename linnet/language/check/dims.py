"""Symbolic dimensions: integer polynomials over symbols, quotients, remainders, minima and maxima.

A symbol stands for an integer >= 0; a value in between may be negative (`S - 1`). `a // b` is floor division and
`a % b` its remainder, both defined only for b > 0. A `Dim` is held in a canonical form, so two that are equal as
polynomials compare equal; it remembers the order it was written in for printing. Simplifying may drop a division whose
value cannot matter (`0 * (H // N)`), so a Dim may be defined for more values than the text it came from, never fewer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import gcd

from linnet.language.check.dim_text import sum_text

# Guards against sources that would make the checker hang; each is far above what a model needs.
MAX_BITS = 256
MAX_TERMS = 256
MAX_DEGREE = 64
MAX_SIZE = 4096
MAX_DEPTH = 48
MAX_PRODUCT = 8192

COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")


class DimError(ValueError):
    """A dimension that has no value, or that is too large to work with."""


@dataclass(frozen=True, eq=False)
class Operation:
    """A part that is no polynomial: `left / right`, `left % right`, `min(left, right)` or `max(left, right)`."""

    op: str
    left: Dim
    right: Dim

    @cached_property
    def key(self) -> str:
        """The same text for equal operations, whatever the order they were written in."""
        left, right = self.left.key, self.right.key
        if self.op in ("min", "max") and right < left:
            left, right = right, left
        return f"({left}){self.op}({right})"

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Operation) and self.key == other.key)

    def __hash__(self) -> int:
        return hash(self.key)

    def apply(self, left: Dim, right: Dim) -> Dim:
        """The same operation on other operands."""
        if self.op == "/":
            return left // right
        if self.op == "%":
            return left % right
        return Dim.minimum(left, right) if self.op == "min" else Dim.maximum(left, right)


Atom = str | Operation
# The sorted keys of a product's factors: what makes two products the same.
Monomial = tuple[str, ...]
# A coefficient, and the factors (one that is squared stands twice) in the order they were written.
Term = tuple[int, tuple[Atom, ...]]


def atom_key(atom: Atom) -> str:
    """What identifies an atom: its name, or the canonical text of an operation."""
    return atom if isinstance(atom, str) else atom.key


def too_large(what: str) -> DimError:
    """The error for a dimension beyond the guards above."""
    return DimError(f"dimension too large: {what}; write it in smaller parts or with smaller numbers")


class Dim:
    """An immutable, hashable dimension expression. `==` holds when two are the same polynomial over the same parts.

    Arithmetic takes a Dim or an int and raises DimError when the result passes the size guards.
    """

    __slots__ = ("_key", "_symbols", "_terms", "_text", "depth", "size")

    _terms: dict[Monomial, Term]
    _key: str | None
    _text: str | None
    _symbols: frozenset[str] | None
    size: int
    depth: int

    def __init__(self, terms: dict[Monomial, Term]) -> None:
        size, depth = len(terms), 0
        if size > MAX_TERMS:
            raise too_large(f"more than {MAX_TERMS} terms")
        for coefficient, factors in terms.values():
            if coefficient.bit_length() > MAX_BITS:
                raise too_large(f"a number of more than {MAX_BITS} bits")
            size += len(factors)
            if len(factors) > MAX_DEGREE:
                raise too_large(f"a product of more than {MAX_DEGREE} factors")
            for atom in factors:
                if not isinstance(atom, str):
                    size += atom.left.size + atom.right.size
                    depth = max(depth, atom.left.depth + 1, atom.right.depth + 1)
        if size > MAX_SIZE or depth > MAX_DEPTH:
            raise too_large("too many parts")
        self._terms = terms
        self._key = self._text = self._symbols = None
        self.size = size
        self.depth = depth

    @staticmethod
    @lru_cache(maxsize=1024)
    def of(value: int) -> Dim:
        """The constant `value`."""
        return Dim({(): (value, ())} if value else {})

    @staticmethod
    @lru_cache(maxsize=1024)
    def symbol(name: str) -> Dim:
        """The dimension called `name`: an unknown integer >= 0."""
        return Dim({(name,): (1, (name,))})

    @staticmethod
    def atom(atom: Atom) -> Dim:
        """One symbol, or one operation as it stands."""
        return Dim.symbol(atom) if isinstance(atom, str) else _atom(atom)

    @staticmethod
    def minimum(a: Dim | int, b: Dim | int) -> Dim:
        """The smaller of two dimensions."""
        return _choose("min", _dim(a), _dim(b))

    @staticmethod
    def maximum(a: Dim | int, b: Dim | int) -> Dim:
        """The larger of two dimensions."""
        return _choose("max", _dim(a), _dim(b))

    @property
    def key(self) -> str:
        """The same text for equal dimensions, whatever the order they were written in."""
        if self._key is None:
            self._key = "+".join(f"{self._terms[m][0]}*{'*'.join(m)}" for m in sorted(self._terms))
        return self._key

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Dim):
            return NotImplemented
        return len(self._terms) == len(other._terms) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    @property
    def constant(self) -> int | None:
        """The value when no symbol is left, else None."""
        if not self._terms:
            return 0
        if len(self._terms) == 1 and () in self._terms:
            return self._terms[()][0]
        return None

    def terms(self) -> Iterator[Term]:
        """The terms of the sum, in the order they were written; none for zero."""
        return iter(self._terms.values())

    def operations(self) -> Iterator[Operation]:
        """Every quotient, remainder, minimum and maximum, inner ones first; one may come twice."""
        for _, factors in self._terms.values():
            for atom in factors:
                if not isinstance(atom, str):
                    yield from atom.left.operations()
                    yield from atom.right.operations()
                    yield atom

    def divisors(self) -> list[Dim]:
        """What the expression divides by, each once, inner ones first."""
        return list(dict.fromkeys(atom.right for atom in self.operations() if atom.op in "/%"))

    def symbols(self) -> frozenset[str]:
        """The names it depends on."""
        if self._symbols is None:
            found: set[str] = set()
            for _, factors in self._terms.values():
                for atom in factors:
                    if isinstance(atom, str):
                        found.add(atom)
                    else:
                        found |= atom.left.symbols() | atom.right.symbols()
            self._symbols = frozenset(found)
        return self._symbols

    def __add__(self, other: Dim | int) -> Dim:
        return _sum(self, _dim(other), 1)

    def __sub__(self, other: Dim | int) -> Dim:
        return _sum(self, _dim(other), -1)

    def __radd__(self, other: int) -> Dim:
        return _sum(_dim(other), self, 1)

    def __rsub__(self, other: int) -> Dim:
        return _sum(_dim(other), self, -1)

    def __neg__(self) -> Dim:
        return Dim({m: (-c, factors) for m, (c, factors) in self._terms.items()})

    def __mul__(self, other: Dim | int) -> Dim:
        return _product(self, _dim(other))

    def __rmul__(self, other: int) -> Dim:
        return _product(_dim(other), self)

    def __floordiv__(self, other: Dim | int) -> Dim:
        divisor = _dim(other)
        number = divisor.constant
        if number is None or number <= 0:
            return _atom(Operation("/", self, divisor))
        # floor((b * p + r) / b) == p + floor(r / b) for any integers p, r and b > 0.
        whole = {m: (c // number, factors) for m, (c, factors) in self._terms.items() if c % number == 0}
        rest = Dim({m: term for m, term in self._terms.items() if m not in whole})
        if (value := rest.constant) is not None:
            return Dim(whole) + value // number
        # floor(g * r / (g * b)) == floor(r / b) for g, b > 0.
        common = gcd(number, *(c for c, _ in rest.terms()))
        rest = Dim({m: (c // common, factors) for m, (c, factors) in rest._terms.items()})
        return Dim(whole) + _atom(Operation("/", rest, Dim.of(number // common)))

    def __rfloordiv__(self, other: int) -> Dim:
        return _dim(other) // self

    def __mod__(self, other: Dim | int) -> Dim:
        divisor = _dim(other)
        number = divisor.constant
        if number is None or number <= 0:
            return _atom(Operation("%", self, divisor))
        # (b * p + r) % b == r % b for any integers p, r and b > 0.
        rest = Dim({m: term for m, term in self._terms.items() if term[0] % number})
        if (value := rest.constant) is not None:
            return Dim.of(value % number)
        return _atom(Operation("%", rest, divisor))

    def __rmod__(self, other: int) -> Dim:
        return _dim(other) % self

    def substitute(self, values: Mapping[str, Dim]) -> Dim:
        """The dimension with symbols replaced; names that `values` lacks stay."""
        if self.symbols().isdisjoint(values):
            return self
        if len(self._terms) == 1:
            ((coefficient, factors),) = self._terms.values()
            if coefficient == 1 and len(factors) == 1 and isinstance(factors[0], str):
                return values[factors[0]]
        result = Dim.of(0)
        for coefficient, factors in self._terms.values():
            product = Dim.of(coefficient)
            for atom in factors:
                if isinstance(atom, str):
                    replaced = values[atom] if atom in values else Dim.symbol(atom)
                else:
                    replaced = atom.apply(atom.left.substitute(values), atom.right.substitute(values))
                product = product * replaced
            result = result + product
        return result

    def evaluate(self, values: Mapping[str, int]) -> int:
        """The value with every symbol given. Raises DimError for an unknown name or a divisor that is not positive."""
        total = 0
        for product, factors in self._terms.values():
            for atom in factors:
                if isinstance(atom, str):
                    if atom not in values:
                        raise DimError(f"dimension `{atom}` has no value; bind it first")
                    product *= values[atom]
                else:
                    product *= _evaluate(atom, values)
            total += product
        return total

    def __str__(self) -> str:
        if self._text is None:
            self._text = sum_text(self._terms.values())
        return self._text

    def __repr__(self) -> str:
        return f"Dim({self})"


def _dim(value: Dim | int) -> Dim:
    return value if isinstance(value, Dim) else Dim.of(value)


def _atom(operation: Operation) -> Dim:
    if max(operation.left.depth, operation.right.depth) >= MAX_DEPTH or operation.left.size > MAX_SIZE // 2:
        raise too_large("too many parts")
    return Dim({(operation.key,): (1, (operation,))})


def _sum(a: Dim, b: Dim, sign: int) -> Dim:
    terms = dict(a._terms)
    for monomial, (coefficient, factors) in b._terms.items():
        known = terms.get(monomial)
        total = sign * coefficient + (known[0] if known else 0)
        if total:
            terms[monomial] = (total, known[1] if known else factors)
        else:
            del terms[monomial]
    return Dim(terms)


def _product(a: Dim, b: Dim) -> Dim:
    if len(a._terms) * len(b._terms) > MAX_PRODUCT:
        raise too_large(f"more than {MAX_TERMS} terms")
    if a.constant == 1:
        return b
    if b.constant == 1:
        return a
    terms: dict[Monomial, Term] = {}
    for m, (c, factors) in a._terms.items():
        for n, (d, others) in b._terms.items():
            monomial = tuple(sorted(m + n)) if m and n else m or n
            known = terms.get(monomial)
            total = c * d + (known[0] if known else 0)
            if total:
                terms[monomial] = (total, known[1] if known else factors + others)
            else:
                del terms[monomial]
    return Dim(terms)


def _choose(op: str, a: Dim, b: Dim) -> Dim:
    # Two that differ by a number are ordered whatever the symbols are: min(H, H + 1) == H.
    difference = (b - a).constant
    if difference is not None:
        return a if (difference >= 0) == (op == "min") else b
    return _atom(Operation(op, a, b))


def _evaluate(atom: Operation, values: Mapping[str, int]) -> int:
    left, right = atom.left.evaluate(values), atom.right.evaluate(values)
    if atom.op == "min":
        return min(left, right)
    if atom.op == "max":
        return max(left, right)
    if right <= 0:
        raise DimError(f"`{_atom(atom)}` divides by {right}; a divisor must be positive")
    return left // right if atom.op == "/" else left % right


@dataclass(frozen=True, slots=True)
class Clause:
    """A comparison of two dimensions, as `where` lists them; `op` is one of `== != < <= > >=`."""

    op: str
    left: Dim
    right: Dim

    def __post_init__(self) -> None:
        if self.op not in COMPARISONS:
            raise ValueError(f"`{self.op}` is not a comparison of dimensions; use one of {' '.join(COMPARISONS)}")

    def substitute(self, values: Mapping[str, Dim]) -> Clause:
        """The clause with symbols replaced on both sides."""
        return Clause(self.op, self.left.substitute(values), self.right.substitute(values))

    def symbols(self) -> frozenset[str]:
        """The names it depends on."""
        return self.left.symbols() | self.right.symbols()

    def holds(self, values: Mapping[str, int]) -> bool:
        """Whether it is true of these values; False when it would divide by zero or less. Raises DimError for a name
        without a value."""
        missing = self.symbols() - values.keys()
        if missing:
            raise DimError(f"dimension `{min(missing)}` has no value; bind it first")
        try:
            left, right = self.left.evaluate(values), self.right.evaluate(values)
        except DimError:
            return False
        if self.op in ("==", "!="):
            return (left == right) == (self.op == "==")
        if self.op in ("<", "<="):
            return left < right or (left == right and self.op == "<=")
        return left > right or (left == right and self.op == ">=")

    def __str__(self) -> str:
        return f"{self.left} {self.op} {self.right}"
