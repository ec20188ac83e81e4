"""Random small programs with symbolic shapes, written so that most of them check.

The shapes that a program's types promise are kept as trees (`program_text.py`). A few dimensions are put wrong on
purpose: what is accepted has to run all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from textwrap import indent

from program_dimensions import Dimensions
from program_text import HELPERS, Clause, Helper, Program, Shape, Var, clause_text, shape_text, substituted, tree_text
from test_prover_soundness import Tree

FLOATS = ("f32", "f32", "f32", "bf16", "f64")
INTEGERS = ("i32", "i64", "u8")
SYMBOLS = ("A", "B", "C", "D")
HELPER_SYMBOLS = ("P", "Q", "R")
MAX_RANK = 4
# Names of indices.
INDICES = "ijklmnopqrst"


@dataclass
class _Writer(Dimensions):
    """Writes the body of `run`: each step adds a value of a known type to those in scope."""

    # Whether `T` is a floating dtype here, and the functions that can be called.
    float_generic: bool = False
    helpers: list[Helper] = field(default_factory=list)
    members: list[str] = field(default_factory=list)
    states: list[Var] = field(default_factory=list)
    optionals: list[Var] = field(default_factory=list)
    widenings: list[tuple[str, Tree, Tree, bool]] = field(default_factory=list)
    parameters: list[Var] = field(default_factory=list)
    scope: list[Var] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    # Arrays of layers with their width.
    layers: list[tuple[str, Tree]] = field(default_factory=list)
    count: int = 0

    @property
    def floats(self) -> tuple[str, ...]:
        return (*FLOATS, "T", "T", "T") if self.float_generic else FLOATS

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

    def any(self, rank: int = 0, dtypes: tuple[str, ...] | None = None) -> Var:
        """A value in scope of at least this rank; sometimes, or where none fits, a new one."""
        dtypes = dtypes or (*self.floats, *INTEGERS, "bool")
        fitting = [v for v in self.scope if len(v.shape) >= rank and v.dtype in dtypes]
        if fitting and self.rng.random() < 0.9:
            return self.rng.choice(fitting[-6:] if self.rng.random() < 0.6 else fitting)
        shape = self.shape()
        while len(shape) < rank:
            shape = (*shape, self.dim())
        return self.filled(shape, self.rng.choice(dtypes))

    def floating(self, rank: int = 0) -> Var:
        return self.any(rank, self.floats)

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
        x = self.any(dtypes=(*self.floats, *INTEGERS))
        if x.dtype in INTEGERS and self.rng.random() < 0.5:
            y = self.like(x).name
            texts = (f"shl({x.name}, 1)", f"shr({x.name}, 2)", f"{x.name} & {y} | {x.name}", f"{x.name} ^ {y}")
            self.let(x.shape, x.dtype, self.rng.choice((*texts, f"{x.name} / 2", f"{x.name} % 3 + {y}")))
            return
        kind = self.rng.randrange(7)
        if kind == 0:
            self.let(x.shape, x.dtype, f"{x.name} * 2 + {tree_text(self.dim())}")
        elif kind == 1:
            self.let(x.shape, "bool", f"{x.name} <= {self.like(x).name}")
        elif kind == 6:
            n = self.dim()
            self.let((n,), "i64", f"iota({tree_text(n)})")
        elif kind == 2 and x.dtype in self.floats:
            self.let(x.shape, x.dtype, f"{self.rng.choice(('exp', 'tanh', 'abs', 'cos'))}({x.name})")
        elif kind == 3:
            self.let(x.shape, x.dtype, f"select({x.name} > {self.like(x).name}, {x.name}, -{x.name})")
        elif kind == 4:
            dtype = self.rng.choice(self.floats + INTEGERS)
            self.let(x.shape, dtype, f"cast<{dtype}>({x.name})")
        else:
            self.let(x.shape, x.dtype, f"{x.name} {self.rng.choice('+-*')} {self.like(x).name}")

    def broadcasted(self) -> None:
        x = self.floating(1)
        if self.rng.random() < 0.3:
            kept = [self.rng.randrange(3) for _ in x.shape]
            sides = [tuple(1 if k == side else n for k, n in zip(kept, x.shape, strict=True)) for side in (0, 1)]
            left, right = (self.filled(side, x.dtype) for side in sides)
            self.let(x.shape, x.dtype, f"{left.name} + {right.name}")
            return
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
            first, second = self.rng.sample(shape[at : at + 2], 2)
            shape[at : at + 2] = [("*", first, second)]
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
            scalars = [v for v in self.scope if not v.shape and v.dtype in ("i32", "i64")]
            if scalars and self.rng.random() < 0.1:
                positions.append(self.rng.choice(scalars).name)
                continue
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
            kind = self.rng.choice(("sum", "sum", "sum", "max", "min", "prod", "any", "all"))
            if kind in ("any", "all"):
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
        kind = self.rng.randrange(14)
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
        elif kind == 8:
            ids = self.any(dtypes=("i32",))
            if len(ids.shape) < MAX_RANK:
                table = self.filled((self.dim(), last), x.dtype)
                self.let((*ids.shape, last), x.dtype, f"embedded({ids.name}, {table.name})")
        elif kind == 9:
            self.let((*lead, ("/", last, 2)), x.dtype, f"pooled({x.name})")
        elif kind == 10:
            self.let(x.shape, x.dtype, f"softmax({x.name})")
        elif kind == 11:
            self.let(x.shape, x.dtype, f"rms_norm({x.name}, {self.filled((last,), x.dtype).name})")
        elif kind == 12:
            out = self.dim()
            w, b = self.filled((out, last), x.dtype), self.filled((out,), x.dtype)
            self.let((*lead, out), x.dtype, f"linear({x.name}, {w.name}, bias = some({b.name}))")
        else:
            a, b = self.filled((self.dim(),), "f32"), self.filled((self.dim(),), "f32")
            self.lines.append(f"let pair{self.count} = swapped(Pair(first = {a.name}, second = {b.name}))")
            self.let(b.shape, "f32", f"pair{self.count}.first")

    def constrained_call(self) -> None:
        """A call whose `where` mostly follows from a clause that the entry states."""
        x = self.floating(1)
        n, *rest = x.shape
        m = self.dim()
        kind = self.rng.randrange(6)
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
        elif kind == 3:
            clauses = [("==", ("%", n, 4), 0)]
            row = self.filled((*rest, n), x.dtype)
            self.let((*rest, ("/", n, 4)), x.dtype, f"quarters({row.name})")
        elif kind == 4 and isinstance(m, str):
            clauses = [(">", m, 0)]
            row = self.filled((*rest, n), x.dtype)
            text = f"pooled<[{shape_text(tuple(rest))}], {tree_text(n)}, {x.dtype}, {m}>({row.name})"
            self.let((*rest, ("/", n, m)), x.dtype, text)
        else:
            clauses = [("==", ("%", n, 2), 0)]
            a = self.new((("/", n, 2),), x.dtype)
            self.lines.append(f"let ({a.name}, {a.name}_) = halves({self.filled((n,), x.dtype).name})")
            self.scope.append(a)
        if self.rng.random() < 0.8:
            self.where += clauses

    def generated_call(self) -> None:
        """A call of a generated function, its generics put in for its dimensions and clauses."""
        if not self.helpers:
            return
        helper = self.rng.choice(self.helpers)
        names: list[Tree] = list(self.generics)
        values = {name: self.rng.choice(names) if self.rng.random() < 0.6 else self.dim() for name in helper.generics}
        dtype = self.rng.choice(self.floats)

        def here(var: Var) -> Var:
            shape = tuple(substituted(n, values) for n in var.shape)
            return replace(var, shape=shape, dtype=dtype if var.dtype == "T" else var.dtype)

        arguments = [self.like(here(var)).name for var in helper.parameters]
        if self.rng.random() < 0.8:
            self.where += [(op, substituted(a, values), substituted(b, values)) for op, a, b in helper.where]
        generics = [*map(tree_text, values.values()), *([dtype] if helper.float_generic else [])]
        result = here(helper.result)
        new = (*map(self.perturbed, result.shape[:1]), *result.shape[1:])
        self.let(new, result.dtype, f"{helper.name}<{', '.join(generics)}>({', '.join(arguments)})")

    def layered(self) -> None:
        if self.widenings and self.rng.random() < 0.5:
            name, width, out, optional = self.rng.choice(self.widenings)
            lead = self.shape()[:2]
            x = self.filled((*lead, width), "f32")
            other = self.filled((*lead, out), "f32").name
            text = f"match {name} {{ some(found) => found.forward({x.name}) none => {other} }}"
            self.let((*lead, out), "f32", text if optional else f"{name}.forward({x.name})")
        elif self.layers:
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
        for kind in ("param", "state", "state", "buffer", "optional", "layers", "widen", "widen"):
            if self.rng.random() < 0.5:
                continue
            if kind == "layers":
                width = self.dim(self.block_generics)
                number: Tree = self.dim(self.block_generics) if self.rng.random() < 0.7 else "LAYERS"
                self.layers.append((f"m{len(self.members)}", width))
                layer = f"[Layer<{tree_text(width)}>; {tree_text(number)}]"
                self.members.append(f"sub m{len(self.members)}: {layer}")
                continue
            if kind == "widen":
                width, out = self.dim(self.block_generics), self.rng.choice((3, self.dim(self.block_generics)))
                optional = self.rng.random() < 0.5
                self.widenings.append((f"m{len(self.members)}", width, out, optional))
                arguments = tree_text(width) + ("" if out == 3 else f", {tree_text(out)}")
                ending = "? = none" if optional else ""
                self.members.append(f"sub m{len(self.members)}: Widen<{arguments}>{ending}")
                continue
            var = Var(f"m{len(self.members)}", self.shape(self.block_generics), self.rng.choice(self.floats))
            if kind == "optional":
                self.members.append(f"param {var.name}: {var.type}? = none")
                self.optionals.append(var)
            else:
                self.members.append(f"{kind} {var.name}: {var.type}")
                (self.states if kind == "state" else self.scope).append(var)
        self.take_parameters()

    def take_parameters(self) -> None:
        # Every generic of the entry is an axis by itself, so that it can be inferred.
        shapes: list[Shape] = [(name, *self.shape()[:1]) for name in self.entry_generics]
        shapes += [self.shape() for _ in range(self.rng.randint(1, 2))]
        self.parameters = [
            Var(f"x{number}", shape, self.rng.choice((*self.floats, "i32"))) for number, shape in enumerate(shapes)
        ]
        self.scope += self.parameters

    def steps(self, least: int, most: int) -> None:
        steps: list[Callable[[], None]] = [
            self.elementwise, self.broadcasted, self.broadcast_to, self.reshape, self.reshape, self.permute,
            self.sliced, self.sliced, self.concat, self.cumsum, self.index_notation, self.index_notation, self.call,
            self.call, self.constrained_call, self.generated_call, self.generated_call, self.layered, self.branch,
            self.loop, self.state,
        ]  # fmt: skip
        for _ in range(self.rng.randint(least, most)):
            self.rng.choice(steps)()

    def helper(self, name: str) -> tuple[Helper, str]:
        """A function of its own, and its source."""
        self.facts()
        self.take_parameters()
        self.steps(1, 4)
        result = self.scope[-1]
        generics = _generics(self.entry_generics, "T: Float" if self.float_generic else "")
        parameters = ", ".join(f"{var.name}: {var.type}" for var in self.parameters)
        word = self.rng.choice(("fn", "op"))
        lines = [
            f"{word} {name}{generics}({parameters}) -> {result.type}{_where(self.where)} {{",
            _indented([*self.lines, f"return {result.name}"]),
            "}",
        ]
        where = tuple(self.where)
        helper = Helper(name, self.entry_generics, where, tuple(self.parameters), result, self.float_generic)
        return helper, "\n".join(lines)

    def program(self) -> Program:
        sources: list[str] = []
        for number in range(self.rng.randint(0, 2)):
            generics = HELPER_SYMBOLS[: self.rng.randint(1, 3)]
            helper, source = _Writer(self.rng, (), generics, float_generic=self.rng.random() < 0.4).helper(f"h{number}")
            self.helpers.append(helper)
            sources.append(source)
        self.facts()
        self.members_and_parameters()
        self.steps(2, 10)
        if self.rng.random() < 0.3:
            extra = Var("extra", self.shape(), "f32")
            self.parameters.append(extra)
            other = self.filled(extra.shape, "f32")
            self.let(extra.shape, "f32", f"match extra {{ some(e) => e * 2 none => {other.name} }}")
        earlier = self.scope[:-1]
        results = [self.scope[-1], *self.rng.sample(earlier, min(len(earlier), self.rng.randint(0, 2)))]
        return self.written(results, sources)

    def written(self, results: list[Var], sources: list[str]) -> Program:
        names, types = ", ".join(var.name for var in results), ", ".join(var.type for var in results)
        if len(results) > 1:
            names, types = f"({names})", f"({types})"
        parameters = [f"{var.name}: {var.type}{'? = none' if var.name == 'extra' else ''}" for var in self.parameters]
        entry = (
            f"pub entry run{_generics(self.entry_generics)}({', '.join(parameters)}) -> {types}{_where(self.where)} {{"
        )
        own = _generics(self.block_generics, "T: Float = bf16" if self.float_generic else "")
        block = f"pub block M{own}{_where(self.block_where)} {{"
        entry = _indented([entry])
        body = [_indented(self.members), entry, _indented([_indented([*self.lines, f"return {names}"]), "}"]), "}", ""]
        text = "\n".join(["module generated", HELPERS, *sources, block, *body])
        where = self.block_where + self.where
        return Program(
            text,
            (block, entry),
            self.float_generic,
            self.block_generics,
            self.entry_generics,
            where,
            self.parameters,
            results,
        )


def _generics(names: tuple[str, ...], dtype: str = "") -> str:
    written = [*(f"{name}: Dim" for name in names), *([dtype] if dtype else [])]
    return f"<{', '.join(written)}>" if written else ""


def _indented(lines: list[str]) -> str:
    return indent("\n".join(lines), "    ")


def _where(clauses: list[Clause]) -> str:
    return f"\nwhere {', '.join(map(clause_text, clauses))}" if clauses else ""


def random_program(rng: Random) -> Program:
    """A program whose block and entry have up to four Dim generics between them."""
    count = rng.randint(2, len(SYMBOLS))
    split = rng.randint(0, 2)
    return _Writer(rng, SYMBOLS[:split], SYMBOLS[split:count], float_generic=rng.random() < 0.4).program()
