"""Dimensions: canonical form, printing, evaluation, guards."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest

from linnet.language.check.dims import Clause, Dim, DimError

H, N, D, P = (Dim.symbol(name) for name in ("H", "N", "D", "P"))
HEADS, SHARDS, HEAD_DIM, BATCH = (Dim.symbol(name) for name in ("Heads", "Shards", "HeadDim", "Batch"))
K, STRIDE, VOCAB = (Dim.symbol(name) for name in ("K", "Stride", "Vocab"))


@pytest.mark.parametrize(
    ("dim", "text"),
    [
        (Dim.of(0), "0"),
        (Dim.of(-3), "-3"),
        (H, "H"),
        (P + BATCH, "P + Batch"),
        (BATCH + P, "Batch + P"),
        (H - 1, "H - 1"),
        (1 + P, "P + 1"),
        (-K + H, "H - K"),
        (-H, "-H"),
        (1 - H, "1 - H"),
        (BATCH * 2, "2 * Batch"),
        (HEADS // SHARDS * HEAD_DIM, "Heads / Shards * HeadDim"),
        (SHARDS * (VOCAB // SHARDS), "Shards * (Vocab / Shards)"),
        (2 * (H // K), "2 * (H / K)"),
        (HEADS * N // N, "Heads * N / N"),
        (HEADS // (N * D), "Heads / (N * D)"),
        ((H - K) // STRIDE + 1, "(H - K) / Stride + 1"),
        (HEADS // SHARDS // N, "Heads / Shards / N"),
        ((HEADS // SHARDS * HEAD_DIM) % 128, "(Heads / Shards * HeadDim) % 128"),
        ((HEADS // SHARDS) % (N // SHARDS), "(Heads / Shards) % (N / Shards)"),
        (H % N * 2, "2 * (H % N)"),
        (H % N * D, "(H % N) * D"),
        (H % N // 2, "(H % N) / 2"),
        (-(H // N), "-(H / N)"),
        (-(H % N) - 1, "-(H % N) - 1"),
        (-2 * (H // N * D), "-2 * (H / N) * D"),
        (-(D * (H // N)), "-D * (H / N)"),
        ((H // N * D) // K, "H / N * D / K"),
        ((-H) // N, "(-H) / N"),
        ((2 * H) % N, "(2 * H) % N"),
        (H % (N % D), "H % (N % D)"),
        (Dim.minimum(H, N) // 3, "min(H, N) / 3"),
        (Dim.maximum(H, N + 1) % 2, "max(H, N + 1) % 2"),
        (5 // H, "5 / H"),
        (H // Dim.of(0), "H / 0"),
        (H // Dim.of(-2), "H / (-2)"),
        (H * H - 2 * H * N + N * N, "H * H + N * N - 2 * H * N"),
    ],
)
def test_text_is_what_a_person_writes(dim: Dim, text: str) -> None:
    assert str(dim) == text
    assert repr(dim) == f"Dim({text})"


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (H * N, N * H),
        (H + N - H, N),
        ((H + N) * (H - N), H * H - N * N),
        (H - H, Dim.of(0)),
        ((4 * H + 5) // 4, H + 1),
        ((4 * H + N) // 4, H + N // 4),
        ((6 * H) // 4, 3 * H // 2),
        ((4 * H + N + 3) % 4, (N + 3) % 4),
        (2 * H % 2, Dim.of(0)),
        (H // 1, H),
        (H % 1, Dim.of(0)),
        (Dim.of(-7) // 2, Dim.of(-4)),
        (Dim.of(-7) % 2, Dim.of(1)),
        (Dim.minimum(H, N), Dim.minimum(N, H)),
        (Dim.maximum(H, H + 2), H + 2),
        (Dim.minimum(H, H + 2), H),
        (Dim.minimum(3, 5), Dim.of(3)),
        (7 % Dim.of(4), Dim.of(3)),
        (Dim.minimum(H * N, D) // P, Dim.minimum(D, N * H) // P),
    ],
)
def test_equal_expressions_are_one_dim(a: Dim, b: Dim) -> None:
    assert a == b
    assert hash(a) == hash(b)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (H, N),
        (H // N, N // H),
        (H % N, H // N),
        (H * N // N, H),
        (Dim.minimum(H, N), Dim.maximum(H, N)),
        (0 // H, Dim.of(0)),
    ],
)
def test_other_expressions_are_not(a: Dim, b: Dim) -> None:
    assert a != b


def test_a_dim_is_not_an_int() -> None:
    assert Dim.of(3) != 3
    assert (H - H + 3).constant == 3
    assert H.constant is None
    assert (H - H).constant == 0


def test_symbols_and_divisors() -> None:
    dim = (H // (N // D)) * P + Dim.minimum(K, 3) % STRIDE
    assert dim.symbols() == {"H", "N", "D", "P", "K", "Stride"}
    assert dim.divisors() == [D, N // D, STRIDE]


def test_substitute_simplifies() -> None:
    dim = HEADS // SHARDS * HEAD_DIM
    assert dim.substitute({"Shards": Dim.of(1)}) == HEADS * HEAD_DIM
    assert dim.substitute({"Heads": Dim.of(32), "Shards": Dim.of(4), "HeadDim": Dim.of(128)}).constant == 1024
    assert dim.substitute({"Other": H}) is dim
    # Substitution is simultaneous.
    assert (H - N).substitute({"H": N, "N": H}) == N - H


def test_evaluate() -> None:
    values = {"H": 10, "N": 3, "K": 12, "Stride": 4}
    assert (H // N * N + H % N).evaluate(values) == 10
    assert ((H - K) // STRIDE).evaluate(values) == -1
    assert ((H - K) % STRIDE).evaluate(values) == 2
    assert Dim.maximum(H, N * N).evaluate(values) == 10


@pytest.mark.parametrize(
    ("dim", "message"),
    [
        (H // N, "`H / N` divides by 0; a divisor must be positive"),
        (H % (N - 1), "`H % (N - 1)` divides by -1; a divisor must be positive"),
        (H * D, "dimension `D` has no value; bind it first"),
    ],
)
def test_evaluate_says_what_is_wrong(dim: Dim, message: str) -> None:
    with pytest.raises(DimError) as error:
        dim.evaluate({"H": 4, "N": 0})
    assert str(error.value) == message


def _power(base: Dim, times: int) -> Dim:
    for _ in range(times):
        base = base * base
    return base


def _nested(times: int) -> Dim:
    dim = H
    for _ in range(times):
        dim = Dim.maximum(dim // 2, dim // 3)
    return dim


def _chain(times: int) -> Dim:
    dim = H
    for i in range(times):
        dim = (dim + i) // N
    return dim


@pytest.mark.parametrize(
    "build",
    [
        lambda: Dim.of(10**4000),
        lambda: _power(H, 40),
        lambda: _power(H + N + D + P, 10),
        lambda: _power(Dim.of(3), 20),
        lambda: _nested(60),
        lambda: _chain(5000),
    ],
    ids=["number", "exponent", "terms", "product", "shared parts", "depth"],
)
def test_a_huge_dimension_is_refused_at_once(build: Callable[[], Dim]) -> None:
    with pytest.raises(DimError, match="dimension too large"):
        build()


@pytest.mark.parametrize(
    ("op", "holds"),
    [("==", False), ("!=", True), ("<", False), ("<=", False), (">", True), (">=", True)],
)
def test_clause_holds(op: str, holds: bool) -> None:
    clause = Clause(op, H, N)
    assert clause.holds({"H": 4, "N": 3}) is holds
    assert clause.holds({"H": 4, "N": 4}) is (op in ("==", "<=", ">="))


def test_a_clause_that_divides_by_zero_is_false() -> None:
    for op in ("==", "!=", "<", "<=", ">", ">="):
        assert not Clause(op, H % N, Dim.of(0)).holds({"H": 4, "N": 0})


def test_a_clause_needs_every_value() -> None:
    with pytest.raises(DimError, match="`N` has no value"):
        Clause("==", H % N, D).holds({"H": 4, "D": 1})


def test_clause_text_and_substitution() -> None:
    clause = Clause("==", HEADS % SHARDS, Dim.of(0))
    assert str(clause) == "Heads % Shards == 0"
    assert str(clause.substitute({"Shards": Dim.of(8)})) == "Heads % 8 == 0"
    assert clause.symbols() == {"Heads", "Shards"}


def test_an_unknown_comparison_is_refused() -> None:
    with pytest.raises(ValueError, match="`<>` is not a comparison"):
        Clause("<>", H, N)


def test_pickles_and_compares_across_processes() -> None:
    clause = Clause("==", (HEADS // SHARDS * HEAD_DIM) % 128, Dim.minimum(H, N))
    hash(clause)
    again = pickle.loads(pickle.dumps(clause))
    assert again == clause
    assert str(again) == str(clause)
