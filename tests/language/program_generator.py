"""Random small programs with symbolic shapes, written so that most of them check.

The shapes that a program's types promise are kept as trees and evaluated here by direct integer arithmetic, apart from
the checker's own dimensions. A few dimensions are put wrong on purpose: what is accepted has to run all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from random import Random

from test_prover_soundness import Tree, tree_value

FLOATS = ("f32", "f32", "f32", "bf16", "f64")
INTEGERS = ("i32", "i64", "u8")
SYMBOLS = ("A", "B", "C", "D")
# The largest value of a generic.
LARGEST = 4
MAX_RANK = 4
# How often a dimension is put wrong.
WRONG = 0.05
# Names of indices.
INDICES = "ijklmnopqrst"

Shape = tuple[Tree, ...]
Clause = tuple[str, Tree, Tree]

HELPERS = """
struct Pair<N: Dim, M: Dim> { first: Tensor[N; f32]  second: Tensor[M; f32] }

enum Mode { Plain, Doubled }

const LAYERS = 2

type Rows<*S: Shape, N: Dim, T: Float> = Tensor[*S, N; T]

op scaled<*S: Shape, T: Float>(x: Tensor[*S; T], by: T = 0.5) -> Tensor[*S; T] {
    return match Mode.Doubled { Plain => x Doubled => x * by }
}

fn project<*S: Shape, In: Dim, Out: Dim, T: Float>(x: Rows<[*S], In, T>, w: Tensor[Out, In; T]) -> Tensor[*S, Out; T] {
    let y[*s, o] = sum[i] x[*s, i] * w[o, i]
    return y
}

op totals<*S: Shape, N: Dim, T: Float>(x: Tensor[*S, N; T]) -> Tensor[*S; T] {
    let y[*s] = sum[n] x[*s, n]
    return y
}

fn outer<*P: Shape, *Q: Shape, T: Float>(a: Tensor[*P; T], b: Tensor[*Q; T]) -> Tensor[*P, *Q; T] {
    let y[*p, *q] = a[*p] * b[*q]
    return y
}

fn twice<*S: Shape, N: Dim, T: Float>(x: Tensor[*S, N; T]) -> Tensor[*S, 2 * N; T] {
    return concat(x, x, axis = -1)
}

fn halves<*S: Shape, N: Dim, T: Float>(x: Tensor[*S, N; T]) -> (Tensor[*S, N / 2; T], Tensor[*S, N / 2; T])
where N % 2 == 0 {
    return (x[..., 0:N / 2], x[..., N / 2:])
}

fn folded<N: Dim, K: Dim, *S: Shape, T: Float>(x: Tensor[N, *S; T]) -> Tensor[K, N / K, *S; T]
where K > 0, N % K == 0 {
    return reshape(x, [K, N / K, *S])
}

fn cut<N: Dim, M: Dim, *S: Shape, T: Float>(x: Tensor[N, *S; T]) -> Tensor[M, *S; T]
where M <= N {
    return x[0:M, ...]
}

fn window<N: Dim, K: Dim, T: Float>(x: Tensor[N; T]) -> Tensor[(N - K) / 2 + 1; T]
where K > 0, K <= N {
    return x[0:N - K + 1:2]
}

block Layer<N: Dim> {
    param weight: Tensor[N, N; f32]

    fn forward<*S: Shape>(x: Tensor[*S, N; f32]) -> Tensor[*S, N; f32] {
        return project(x, weight)
    }
}

fn swapped<N: Dim, M: Dim>(pair: Pair<N, M>) -> Pair<M, N> {
    return Pair(first = pair.second, second = pair.first)
}
"""


def tree_text(tree: Tree) -> str:
    """A dimension as Linnet writes it."""
    if not isinstance(tree, tuple):
        return str(tree)
    op, left, right = tree
    if op in ("min", "max"):
        return f"{op}({tree_text(left)}, {tree_text(right)})"
    bare = [not isinstance(side, tuple) or side[0] in ("min", "max") for side in (left, right)]
    texts = [
        tree_text(side) if plain else f"({tree_text(side)})" for side, plain in zip((left, right), bare, strict=True)
    ]
    return f"{texts[0]} {op} {texts[1]}"


def clause_holds(clause: Clause, values: Mapping[str, int]) -> bool:
    """False where it divides by zero."""
    try:
        a, b = tree_value(clause[1], dict(values)), tree_value(clause[2], dict(values))
    except ZeroDivisionError:
        return False
    return {"==": a == b, "<=": a <= b, ">": a > b, ">=": a >= b}[clause[0]]


def clause_text(clause: Clause) -> str:
    return f"{tree_text(clause[1])} {clause[0]} {tree_text(clause[2])}"


def shape_text(shape: Shape) -> str:
    return ", ".join(map(tree_text, shape))


@dataclass(frozen=True)
class Var:
    """A value in scope: what its type is."""

    name: str
    shape: Shape
    dtype: str

    @property
    def type(self) -> str:
        return f"Tensor[{shape_text(self.shape)}; {self.dtype}]" if self.shape else self.dtype


@dataclass
class Program:
    """A source with one block `M` and its entry `run`, and what its results' types promise."""

    text: str
    block_generics: tuple[str, ...]
    entry_generics: tuple[str, ...]
    where: list[Clause]
    inputs: list[Var]
    results: list[Var]

    def assignments(self) -> Iterator[dict[str, int]]:
        """Every assignment of small values that satisfies the `where` clauses."""
        names = (*self.block_generics, *self.entry_generics)
        for values in product(range(LARGEST + 1), repeat=len(names)):
            found = dict(zip(names, values, strict=True))
            if all(clause_holds(clause, found) for clause in self.where):
                yield found

    def promised(self, values: Mapping[str, int]) -> list[tuple[tuple[int, ...], str]]:
        """The results' shapes and dtypes at an assignment."""
        return [(tuple(tree_value(n, dict(values)) for n in var.shape), var.dtype) for var in self.results]


@dataclass
class _Writer:
    """Writes the body of `run`: each step adds a value of a known type to those in scope."""

    rng: Random
    block_generics: tuple[str, ...]
    entry_generics: tuple[str, ...]
    block_where: list[Clause] = field(default_factory=list)
    where: list[Clause] = field(default_factory=list)
    members: list[str] = field(default_factory=list)
    states: list[Var] = field(default_factory=list)
    optionals: list[Var] = field(default_factory=list)
    parameters: list[Var] = field(default_factory=list)
    scope: list[Var] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    # Pairs of which the second is known to divide the first, arrays of layers with their width, and dimensions that
    # are known to be positive.
    divisible: list[tuple[Tree, Tree]] = field(default_factory=list)
    layers: list[tuple[str, Tree]] = field(default_factory=list)
    positive: list[Tree] = field(default_factory=list)
    count: int = 0

    @property
    def generics(self) -> tuple[str, ...]:
        return (*self.block_generics, *self.entry_generics)

    # Dimensions

    def facts(self) -> None:
        """State a few `where` clauses."""
        for _ in range(self.rng.randint(0, 3)):
            names = self.block_generics if self.rng.random() < 0.4 else self.generics
            if not names:
                continue
            target = self.block_where if set(names) <= set(self.block_generics) else self.where
            x, y, z = (self.rng.choice(names) for _ in range(3))
            kind = self.rng.randrange(8)
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

    # Values

    def new(self, shape: Shape, dtype: str) -> Var:
        """A value that the next line defines."""
        var = Var(f"v{self.count}", shape, dtype)
        self.count += 1
        return var

    def let(self, shape: Shape, dtype: str, text: str) -> Var:
        var = self.new(shape, dtype)
        annotation = f": {var.type}" if self.rng.random() < 0.3 else ""
        self.lines.append(f"let {var.name}{annotation} = {text}")
        self.scope.append(var)
        return var

    def any(self, rank: int = 0, dtypes: tuple[str, ...] = (*FLOATS, *INTEGERS, "bool")) -> Var:
        """A value in scope of at least this rank; sometimes, or where none fits, a new one."""
        fitting = [v for v in self.scope if len(v.shape) >= rank and v.dtype in dtypes]
        if fitting and self.rng.random() < 0.9:
            return self.rng.choice(fitting[-6:] if self.rng.random() < 0.6 else fitting)
        shape = self.shape()
        while len(shape) < rank:
            shape = (*shape, self.dim())
        return self.filled(shape, self.rng.choice(dtypes))

    def floating(self, rank: int = 0) -> Var:
        return self.any(rank, FLOATS)

    def filled(self, shape: Shape, dtype: str) -> Var:
        value = "true" if dtype == "bool" else "2" if dtype in INTEGERS else "0.5"
        if not shape:
            return self.let(shape, dtype, value if dtype == "bool" else f"cast<{dtype}>({value})")
        return self.let(shape, dtype, f"fill<{dtype}>([{shape_text(shape)}], {value})")

    def like(self, var: Var) -> Var:
        """Another value of the same type."""
        same = [v for v in self.scope if v.shape == var.shape and v.dtype == var.dtype]
        if same and self.rng.random() < 0.8:
            return self.rng.choice(same)
        return self.filled(var.shape, var.dtype)

    # Steps

    def elementwise(self) -> None:
        x = self.any(dtypes=(*FLOATS, *INTEGERS))
        kind = self.rng.randrange(6)
        if kind == 0:
            self.let(x.shape, x.dtype, f"{x.name} * 2 + {tree_text(self.dim())}")
        elif kind == 1:
            self.let(x.shape, "bool", f"{x.name} <= {self.like(x).name}")
        elif kind == 2 and x.dtype in FLOATS:
            self.let(x.shape, x.dtype, f"{self.rng.choice(('exp', 'tanh', 'abs', 'cos'))}({x.name})")
        elif kind == 3:
            self.let(x.shape, x.dtype, f"select({x.name} > {self.like(x).name}, {x.name}, -{x.name})")
        elif kind == 4:
            dtype = self.rng.choice(FLOATS + INTEGERS)
            self.let(x.shape, dtype, f"cast<{dtype}>({x.name})")
        else:
            self.let(x.shape, x.dtype, f"{x.name} {self.rng.choice('+-*')} {self.like(x).name}")

    def broadcasted(self) -> None:
        x = self.floating(1)
        drop = self.rng.randint(0, len(x.shape))
        other = tuple(1 if self.rng.random() < 0.4 else n for n in x.shape[drop:])
        y = self.filled(other, x.dtype)
        self.let(x.shape, x.dtype, f"{x.name} * {y.name}" if self.rng.random() < 0.5 else f"{y.name} - {x.name}")

    def broadcast_to(self) -> None:
        x = self.any()
        if len(x.shape) < MAX_RANK:
            shape = (self.dim(), *(self.dim() if n == 1 else n for n in x.shape))
            self.let(shape, x.dtype, f"broadcast_to({x.name}, [{shape_text(shape)}])")

    def reshape(self) -> None:
        x = self.any(rank=1)
        at = self.rng.randrange(len(x.shape))
        shape = list(x.shape)
        n = shape[at]
        room = len(shape) < MAX_RANK
        parts = [part for whole, part in self.divisible if whole == n]
        kind = self.rng.randrange(5)
        if kind == 0 and at + 1 < len(shape):
            shape[at : at + 2] = [("*", *self.rng.sample(shape[at : at + 2], 2))]
        elif kind == 1:
            whole: Tree = 1
            for size in shape:
                whole = ("*", whole, size)
            shape = [whole]
        elif kind == 2 and room and isinstance(n, tuple) and n[0] == "*":
            shape[at : at + 1] = [n[1], n[2]]
        elif kind == 3 and room and parts:
            part = self.rng.choice(parts)
            shape[at : at + 1] = self.rng.sample([part, ("/", n, part)], 2)
        elif room:
            shape.insert(at, 1)
        new = tuple(self.perturbed(size) for size in shape)
        self.let(new, x.dtype, f"reshape({x.name}, [{shape_text(new)}])")

    def permute(self) -> None:
        x = self.any(rank=1)
        axes = self.rng.sample(range(len(x.shape)), len(x.shape))
        self.let(tuple(x.shape[axis] for axis in axes), x.dtype, f"permute({x.name}, {axes})")

    def sliced(self) -> None:
        x = self.any(rank=1)
        positions: list[str] = []
        shape: list[Tree] = []
        for n in x.shape:
            if self.is_positive(n) and self.rng.random() < 0.3:
                positions.append(self.rng.choice(("0", tree_text(("-", n, 1)))))
                continue
            start, stop, step = self.part(n)
            start, stop = self.perturbed(start), self.perturbed(stop)
            length: Tree = stop if start == 0 else ("-", stop, start)
            shape.append(("/", ("+", length, step - 1), step) if step > 1 else length)
            first = "" if start == 0 and self.rng.random() < 0.5 else tree_text(start)
            last = "" if stop == n and self.rng.random() < 0.5 else tree_text(stop)
            positions.append(f"{first}:{last}" + (f":{step}" if step > 1 else ""))
        self.let(tuple(shape), x.dtype, f"{x.name}[{', '.join(positions)}]")

    def part(self, n: Tree) -> tuple[Tree, Tree, int]:
        """Start, stop and step of a slice inside an axis of size `n`."""
        kind = self.rng.randrange(8)
        other = self.dim()
        if kind == 0:
            return 0, ("min", n, other), 1
        if kind == 1:
            return ("/", n, 2), n, 1
        if kind == 2:
            return ("min", other, n), n, 1
        if kind == 3:
            return 0, n, self.rng.randint(1, 3)
        if kind == 4 and isinstance(n, tuple) and n[0] == "+":
            return n[self.rng.randint(1, 2)], n, 1
        if kind == 5 and isinstance(n, tuple) and n[0] == "max":
            return 0, n[self.rng.randint(1, 2)], 1
        if kind == 6:
            return ("/", n, 3), ("/", n, 2), 2
        return 0, n, 1

    def concat(self) -> None:
        x = self.any(rank=1)
        axis = self.rng.randrange(len(x.shape))
        n = self.dim()
        y = self.filled((*x.shape[:axis], n, *x.shape[axis + 1 :]), x.dtype)
        shape = (*x.shape[:axis], self.perturbed(("+", x.shape[axis], n)), *x.shape[axis + 1 :])
        written = axis if self.rng.random() < 0.5 else axis - len(x.shape)
        self.let(shape, x.dtype, f"concat({x.name}, {y.name}, axis = {written})")

    def cumsum(self) -> None:
        x = self.floating(1)
        self.let(x.shape, x.dtype, f"cumsum({x.name}, axis = {self.rng.randrange(len(x.shape))})")

    def access(self, var: Var, extents: dict[str, Tree]) -> str:
        """An access of every axis; its new indices are added to `extents`."""
        positions: list[str] = []
        for n in var.shape:
            known = [name for name, extent in extents.items() if extent == n]
            draw = self.rng.random()
            if known and draw < 0.6:
                positions.append(self.rng.choice(known))
            elif draw > 0.94 and extents and self.is_positive(n):
                # A gather inside the axis, whatever the index is.
                name = self.rng.choice(list(extents))
                positions.append(f"iota<i64>({tree_text(extents[name])})[{name}] % {tree_text(n)}")
            elif draw > 0.88 and self.is_positive(n):
                positions.append("0")
            else:
                name = INDICES[len(extents)]
                extents[name] = n
                positions.append(name)
        return f"{var.name}[{', '.join(positions)}]"

    def index_notation(self) -> None:
        """Products of accesses with shared, repeated, gathered and constant positions, reduced over some indices."""
        first = self.floating(1)
        others = [self.floating(1) for _ in range(self.rng.randint(0, 2))]
        extents: dict[str, Tree] = {}
        accesses = [self.access(v, extents) for v in (first, *(v for v in others if v.dtype == first.dtype))]
        names = self.rng.sample(list(extents), len(extents))
        kept = names[: min(self.rng.randint(0, len(names)), MAX_RANK)]
        reduced = ", ".join(names[len(kept) :])
        body, dtype = " * ".join(accesses), first.dtype
        if self.rng.random() < 0.2:
            body = f"select({accesses[0]} > 0, {body}, {accesses[-1]})"
        if reduced:
            kind = self.rng.choice(("sum", "sum", "sum", "max", "prod", "any"))
            if kind == "any":
                body, dtype = f"({body}) > 0.25", "bool"
            elif kind == "sum" and self.rng.random() < 0.3:
                kind, body, dtype = "sum<f32>", f"cast<f32>({body})", "f32"
            body = f"{kind}[{reduced}] {body}"
        if not kept:
            self.let((), dtype, body)
            return
        var = self.new(tuple(extents[name] for name in kept), dtype)
        self.lines.append(f"let {var.name}[{', '.join(kept)}] = {body}")
        self.scope.append(var)

    def call(self) -> None:
        x = self.floating(1)
        *lead, last = x.shape
        kind = self.rng.randrange(8)
        if kind == 0:
            self.let(x.shape, x.dtype, f"scaled({x.name}, by = {self.rng.choice(('2', '0.25'))})")
        elif kind == 1:
            out = self.dim()
            w = self.filled((out, last), x.dtype)
            arguments = f"<[{shape_text(tuple(lead))}], {tree_text(last)}, {tree_text(out)}>"
            text = arguments if self.rng.random() < 0.4 else ""
            self.let((*lead, out), x.dtype, f"project{text}({x.name}, {w.name})")
        elif kind == 2:
            self.let(tuple(lead), x.dtype, f"totals({x.name})")
        elif kind == 3:
            y = self.filled(self.shape(), x.dtype)
            if len(x.shape) + len(y.shape) <= MAX_RANK:
                self.let((*x.shape, *y.shape), x.dtype, f"outer({x.name}, {y.name})")
        elif kind == 4:
            self.let((*lead, ("*", 2, last)), x.dtype, f"twice({x.name})")
        elif kind == 5:
            doubled = self.let((*lead, ("*", 2, last)), x.dtype, f"twice({x.name})")
            a, b = self.new(x.shape, x.dtype), self.new(x.shape, x.dtype)
            self.lines.append(f"let ({a.name}, {b.name}) = halves({doubled.name})")
            self.scope += [a, b]
        elif kind == 6 and self.divisible:
            whole, part = self.rng.choice(self.divisible)
            rest = x.shape[:2]
            y = self.filled((whole, *rest), x.dtype)
            text = f"folded<{tree_text(whole)}, {tree_text(part)}>({y.name})"
            self.let((self.perturbed(part), ("/", whole, part), *rest), x.dtype, text)
        else:
            a, b = self.filled((self.dim(),), "f32"), self.filled((self.dim(),), "f32")
            self.lines.append(f"let pair{self.count} = swapped(Pair(first = {a.name}, second = {b.name}))")
            self.let(b.shape, "f32", f"pair{self.count}.first")

    def constrained_call(self) -> None:
        """A call whose `where` mostly follows from a clause that the entry states."""
        x = self.floating(1)
        n, *rest = x.shape
        m = self.dim()
        kind = self.rng.randrange(4)
        if kind == 0:
            clauses: list[Clause] = [("<=", m, n)]
            self.let((m, *rest), x.dtype, f"cut<{tree_text(n)}, {tree_text(m)}>({x.name})")
        elif kind == 1:
            clauses = [(">", m, 0), ("<=", m, n)]
            row = self.filled((n,), x.dtype)
            shape = (("+", ("/", ("-", n, m), 2), 1),)
            self.let(shape, x.dtype, f"window<{tree_text(n)}, {tree_text(m)}>({row.name})")
        elif kind == 2 and len(x.shape) < MAX_RANK:
            clauses = [(">", m, 0), ("==", ("%", n, m), 0)]
            self.let((m, ("/", n, m), *rest), x.dtype, f"folded<{tree_text(n)}, {tree_text(m)}>({x.name})")
        else:
            clauses = [("==", ("%", n, 2), 0)]
            a = self.new((("/", n, 2),), x.dtype)
            self.lines.append(f"let ({a.name}, {a.name}_) = halves({self.filled((n,), x.dtype).name})")
            self.scope.append(a)
        if self.rng.random() < 0.8:
            self.where += clauses

    def layered(self) -> None:
        if self.layers:
            name, width = self.rng.choice(self.layers)
            x = self.filled((*self.shape()[:2], width), "f32")
            held = self.new(x.shape, "f32")
            step = f"{held.name} = layer.forward({held.name})"
            self.lines += [f"var {held.name} = {x.name}", f"static for layer in {name} {{ {step} }}"]
            self.scope.append(held)

    def branch(self) -> None:
        x = self.floating()
        y = self.like(x)
        kind = self.rng.randrange(4)
        if kind == 0:
            axes = ", ".join(INDICES[: len(x.shape)])
            test = f"(sum[{axes}] {x.name}[{axes}]) > 0.5" if axes else f"{x.name} > 0.5"
            self.let(x.shape, x.dtype, f"if {test} {{ {x.name} }} else {{ {y.name} * 2 }}")
        elif kind == 1:
            test = f"{tree_text(self.dim())} {self.rng.choice(('<', '>=', '=='))} {tree_text(self.dim())}"
            self.let(x.shape, x.dtype, f"if {test} {{ {x.name} }} else {{ {y.name} }}")
        elif kind == 2:
            self.let(x.shape, x.dtype, f"match Mode.Doubled {{ Plain => {x.name} Doubled => {y.name} + {x.name} }}")
        elif self.optionals:
            bias = self.rng.choice(self.optionals)
            other = self.filled(bias.shape, bias.dtype)
            arms = f"some(b) => b + {other.name} none => {other.name}"
            self.let(bias.shape, bias.dtype, f"match {bias.name} {{ {arms} }}")

    def loop(self) -> None:
        x = self.floating()
        held = self.new(x.shape, x.dtype)
        self.lines.append(f"var {held.name} = {x.name}")
        bound = self.dim()
        kind = self.rng.randrange(5)
        if kind == 0:
            body = f"{held.name} = {held.name} + {x.name}"
            self.lines.append(f"{self.rng.choice(('static ', ''))}for i in 0..{tree_text(bound)} {{ {body} }}")
        elif kind == 1:
            counter = f"n{self.count}"
            body = f"{held.name} = {held.name} * 0.5  {counter} = {counter} + 1"
            self.lines.append(f"var {counter} = 0\nwhile {counter} < 3 {{ {body} }}")
        elif kind == 2 and x.shape:
            scan = self.new(x.shape, x.dtype)
            row = f"{x.name}[t{', :' * (len(x.shape) - 1)}]"
            self.lines.append(f"let {scan.name} = for t in 0..{tree_text(x.shape[0])} {{ yield {row} }}")
            self.scope.append(scan)
        elif len(x.shape) < MAX_RANK:
            start: Tree = self.rng.choice((0, 0, 0, ("/", bound, 2)))
            steps = self.perturbed(bound if start == 0 else ("-", bound, start))
            scan, typed = self.new((steps, *x.shape), x.dtype), self.new((steps, *x.shape), x.dtype)
            body = f"{held.name} = {held.name} * 0.5 + {x.name}  yield {held.name}"
            over = f"{tree_text(start)}..{tree_text(bound)}"
            self.lines += [
                f"let {scan.name} = for t in {over} {{ {body} }}",
                f"let {typed.name}: {typed.type} = {scan.name}",
            ]
            self.scope.append(typed)
        self.scope.append(held)

    def state(self) -> None:
        if self.states:
            held = self.rng.choice(self.states)
            self.lines.append(f"{held.name} = {held.name} + {self.like(held).name}")
            self.let(held.shape, held.dtype, f"{held.name} * 0.5")

    # The whole

    def members_and_parameters(self) -> None:
        for kind in ("param", "state", "state", "buffer", "optional", "layers"):
            if self.rng.random() < 0.5:
                continue
            if kind == "layers":
                width, number = self.dim(self.block_generics), self.dim(self.block_generics)
                self.layers.append((f"m{len(self.members)}", width))
                layer = f"[Layer<{tree_text(width)}>; {tree_text(number)}]"
                self.members.append(f"sub m{len(self.members)}: {layer}")
                continue
            var = Var(f"m{len(self.members)}", self.shape(self.block_generics), self.rng.choice(FLOATS))
            if kind == "optional":
                self.members.append(f"param {var.name}: {var.type}? = none")
                self.optionals.append(var)
            else:
                self.members.append(f"{kind} {var.name}: {var.type}")
                (self.states if kind == "state" else self.scope).append(var)
        # Every generic of the entry is an axis by itself, so that it can be inferred.
        shapes: list[Shape] = [(name, *self.shape()[:1]) for name in self.entry_generics]
        shapes += [self.shape() for _ in range(self.rng.randint(1, 2))]
        self.parameters = [
            Var(f"x{number}", shape, self.rng.choice((*FLOATS, "i32"))) for number, shape in enumerate(shapes)
        ]
        self.scope += self.parameters

    def program(self) -> Program:
        self.facts()
        self.members_and_parameters()
        steps: list[Callable[[], None]] = [
            self.elementwise, self.broadcasted, self.broadcast_to, self.reshape, self.reshape, self.permute,
            self.sliced, self.sliced, self.concat, self.cumsum, self.index_notation, self.index_notation, self.call,
            self.call, self.constrained_call, self.layered, self.branch, self.loop, self.state,
        ]  # fmt: skip
        for _ in range(self.rng.randint(2, 10)):
            self.rng.choice(steps)()
        if self.rng.random() < 0.3:
            extra = Var("extra", self.shape(), "f32")
            self.parameters.append(extra)
            other = self.filled(extra.shape, "f32")
            self.let(extra.shape, "f32", f"match extra {{ some(e) => e * 2 none => {other.name} }}")
        earlier = self.scope[:-1]
        results = [self.scope[-1], *self.rng.sample(earlier, min(len(earlier), self.rng.randint(0, 2)))]
        return self.written(results)

    def written(self, results: list[Var]) -> Program:
        names, types = ", ".join(var.name for var in results), ", ".join(var.type for var in results)
        if len(results) > 1:
            names, types = f"({names})", f"({types})"
        parameters = [f"{var.name}: {var.type}{'? = none' if var.name == 'extra' else ''}" for var in self.parameters]
        entry = [
            f"pub entry run{_generics(self.entry_generics)}({', '.join(parameters)}) -> {types}{_where(self.where)} {{",
            *self.lines,
            f"return {names}",
            "}",
        ]
        header = f"pub block M{_generics(self.block_generics)}{_where(self.block_where)} {{"
        text = "\n".join(["module generated", HELPERS, header, *self.members, *entry, "}", ""])
        where = self.block_where + self.where
        return Program(text, self.block_generics, self.entry_generics, where, self.parameters, results)


def _generics(names: tuple[str, ...]) -> str:
    return f"<{', '.join(f'{name}: Dim' for name in names)}>" if names else ""


def _where(clauses: list[Clause]) -> str:
    return f"\nwhere {', '.join(map(clause_text, clauses))}" if clauses else ""


def random_program(rng: Random) -> Program:
    """A program whose block and entry have up to four Dim generics between them."""
    count = rng.randint(2, len(SYMBOLS))
    split = rng.randint(0, 2)
    return _Writer(rng, SYMBOLS[:split], SYMBOLS[split:count]).program()
