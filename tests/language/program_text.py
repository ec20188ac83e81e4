"""What a generated program is made of: dimensions as trees, clauses, values of known types, and the fixed part of it.

Trees are evaluated by direct integer arithmetic, apart from the checker's own dimensions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from test_prover_soundness import Tree, tree_value

# The largest value of a generic.
LARGEST = 4

Shape = tuple[Tree, ...]
Clause = tuple[str, Tree, Tree]

HELPERS = """
use std.nn.linear::{linear}
use std.nn.norm::{rms_norm}
use std.nn.softmax::{softmax}

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

fn pooled<*S: Shape, N: Dim, T: Float, K: Dim = 2>(x: Tensor[*S, N; T]) -> Tensor[*S, N / K; T]
where K > 0 {
    let rows = reshape(x[..., 0:N / K * K], [*S, N / K, K])
    let y[*s, n] = max[k] rows[*s, n, k]
    return y
}

fn quarters<*S: Shape, N: Dim, T: Float>(x: Tensor[*S, N; T]) -> Tensor[*S, N / 4; T]
where N % 4 == 0 {
    let (low, high) = halves(x)
    let (first, second) = halves(low + high)
    return first * second
}

op embedded<*S: Shape, V: Dim, H: Dim, T: Float>(ids: Tensor[*S; i32], table: Tensor[V, H; T]) -> Tensor[*S, H; T] {
    let y[*s, h] = table[ids[*s], h]
    return y
}

block Widen<N: Dim, Out: Dim = 3, T: Float = f32> {
    param weight: Tensor[Out, N; T]
    param bias: Tensor[Out; T]? = none

    pub fn forward<*S: Shape>(x: Tensor[*S, N; T]) -> Tensor[*S, Out; T] {
        return shifted(project(x, weight))
    }

    fn shifted<*S: Shape>(x: Tensor[*S, Out; T]) -> Tensor[*S, Out; T] {
        return match bias { some(b) => x + b none => x }
    }
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
    return {"==": a == b, "!=": a != b, "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[clause[0]]


def substituted(tree: Tree, values: Mapping[str, Tree]) -> Tree:
    """The dimension with names replaced by dimensions."""
    if isinstance(tree, tuple):
        return (tree[0], substituted(tree[1], values), substituted(tree[2], values))
    return values.get(tree, tree) if isinstance(tree, str) else tree


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


@dataclass(frozen=True)
class Helper:
    """A generated function: what its call asks and promises. `T` may stand for its floating dtype."""

    name: str
    generics: tuple[str, ...]
    where: tuple[Clause, ...]
    parameters: tuple[Var, ...]
    result: Var
    float_generic: bool


@dataclass(frozen=True)
class Program:
    """A source with one block `M` and its entry `run`, and what its results' types promise.

    `headers` are the lines of the source that say so; `float_generic` is whether `M` has a generic `T: Float = bf16`.
    """

    text: str
    headers: tuple[str, ...]
    float_generic: bool
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

    def promised(self, values: Mapping[str, int], dtype: str) -> list[tuple[tuple[int, ...], str]]:
        """The results' shapes and dtypes at an assignment, `dtype` standing for `T`."""
        return [
            (tuple(tree_value(n, dict(values)) for n in var.shape), dtype if var.dtype == "T" else var.dtype)
            for var in self.results
        ]
