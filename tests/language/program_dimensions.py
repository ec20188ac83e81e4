"""Random dimensions over the generics of a function, and what its `where` says of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from program_text import Clause, Shape
from test_prover_soundness import Tree

# How often a dimension is put wrong.
WRONG = 0.05


@dataclass
class Dimensions:
    """What is known of the generics: clauses of the block and of the function, and what they were stated for."""

    rng: Random
    block_generics: tuple[str, ...]
    entry_generics: tuple[str, ...]
    block_where: list[Clause] = field(default_factory=list)
    where: list[Clause] = field(default_factory=list)
    # Pairs of which the second is known to divide the first, pairs in ascending order, and dimensions that are known
    # to be positive.
    divisible: list[tuple[Tree, Tree]] = field(default_factory=list)
    ordered: list[tuple[Tree, Tree]] = field(default_factory=list)
    positive: list[Tree] = field(default_factory=list)

    @property
    def generics(self) -> tuple[str, ...]:
        return (*self.block_generics, *self.entry_generics)

    def facts(self) -> None:
        """State a few `where` clauses."""
        for _ in range(self.rng.randint(0, 3)):
            names = self.block_generics if self.rng.random() < 0.4 else self.generics
            if not names:
                continue
            target = self.block_where if set(names) <= set(self.block_generics) else self.where
            x, y, z = (self.rng.choice(names) for _ in range(3))
            kind = self.rng.randrange(11)
            if kind <= 2 and x != y:
                target += [(">", y, 0), ("==", ("%", x, y), 0)]
                self.divisible.append((x, y))
                self.positive.append(y)
            elif kind == 3:
                target.append(("==", ("%", x, 2), 0))
                self.divisible.append((x, 2))
            elif kind == 4 and x not in (y, z):
                target.append(("==", x, ("*", y, z)))
            elif kind == 5 and x != y:
                target.append(("<=", x, y))
                self.ordered.append((x, y))
            elif kind == 8 and y != z:
                target += [(">", y, 0), ("==", ("/", x, y), z)]
                self.positive.append(y)
            elif kind == 9:
                target.append((self.rng.choice(("<", "!=", "<=")), ("min", x, y), ("+", z, 1)))
            elif kind == 10:
                target.append(("!=", x, 0))
                self.positive.append(x)
            else:
                target.append((">=", x, 2) if kind == 6 else (">", x, 0))
                self.positive.append(x)

    def dim(self, names: tuple[str, ...] | None = None) -> Tree:
        """A dimension over `names` (None: every generic), mostly a bare name."""
        names = self.generics if names is None else names
        draw = self.rng.random()
        if not names or draw < 0.12:
            return self.rng.randint(1, 4)
        x, y = self.rng.choice(names), self.rng.choice(names)
        known = [pair for pair in self.divisible if set(pair) <= {*names, 2}]
        if draw < 0.2 and known:
            return ("/", *self.rng.choice(known))
        if draw < 0.25:
            differences: list[Tree] = [("-", b, a) for a, b in self.ordered if {a, b} <= set(names)]
            remainders: list[Tree] = [("%", x, n) for n in self.positive if n in names]
            if differences or remainders:
                return self.rng.choice(differences + remainders)
        if draw < 0.4:
            return self.rng.choice((("+", x, y), ("*", x, y), ("min", x, y), ("max", x, y), ("+", x, 1), ("/", x, 2)))
        return x

    def shape(self, names: tuple[str, ...] | None = None) -> Shape:
        return tuple(self.dim(names) for _ in range(self.rng.choice((0, 1, 1, 2, 2, 2, 3))))

    def perturbed(self, tree: Tree) -> Tree:
        """The dimension, rarely a wrong one."""
        if self.rng.random() >= WRONG:
            return tree
        return self.rng.choice((("+", tree, 1), ("/", tree, 2), self.dim(), ("*", tree, self.dim())))

    def is_positive(self, tree: Tree) -> bool:
        return tree in self.positive or (isinstance(tree, int) and tree > 0)
