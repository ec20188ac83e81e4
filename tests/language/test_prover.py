"""What the prover must prove, what it must not, and what it asks for."""

from __future__ import annotations

import ast
import re

import pytest

from linnet.language.check.dims import Clause, Dim
from linnet.language.check.knowledge import MAX_EFFORT, Knowledge
from linnet.language.check.prover import DERIVING_EFFORT, MAX_CLAUSES, Facts


def dim(text: str) -> Dim:
    """A dimension from its text; `/` is the language's integer division."""

    def build(node: ast.expr) -> Dim:
        match node:
            case ast.Constant(value=int(number)):
                return Dim.of(number)
            case ast.Name(id=name):
                return Dim.symbol(name)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -build(operand)
            case ast.Call(func=ast.Name(id=name), args=[a, b]):
                return (Dim.minimum if name == "min" else Dim.maximum)(build(a), build(b))
            case ast.BinOp(left=a, op=op, right=b):
                left, right = build(a), build(b)
                match op:
                    case ast.Add():
                        return left + right
                    case ast.Sub():
                        return left - right
                    case ast.Mult():
                        return left * right
                    case ast.Div():
                        return left // right
                    case ast.Mod():
                        return left % right
        raise AssertionError(f"not a dimension: {text}")

    return build(ast.parse(text.strip(), mode="eval").body)


def clause(text: str) -> Clause:
    left, op, right = re.split(r"(==|!=|<=|>=|<|>)", text)
    return Clause(op, dim(left), dim(right))


def facts(*texts: str) -> Facts:
    return Facts(map(clause, texts))


ATTENTION = (
    "H % 128 == 0",
    "(Heads / Shards * HeadDim) % 128 == 0",
    "(KvHeads / Shards * HeadDim) % 128 == 0",
    "Shards > 0",
    "Heads % Shards == 0",
    "KvHeads % Shards == 0",
    "KvHeads / Shards > 0",
    "(Heads / Shards) % (KvHeads / Shards) == 0",
    "Heads > 0",
    "KvHeads > 0",
    "Heads % KvHeads == 0",
    "HeadDim % 2 == 0",
    "MaxSeq > 0",
    "Batch > 0",
    "PageSize > 0",
)
MODEL = (*ATTENTION, "(Inner / Shards) % 128 == 0", "Inner % Shards == 0", "Vocab % Shards == 0")


@pytest.fixture(scope="module")
def attention() -> Facts:
    return facts(*ATTENTION)


@pytest.fixture(scope="module")
def model() -> Facts:
    return facts(*MODEL)


@pytest.mark.parametrize("goal", MODEL)
def test_the_model_passes_on_its_own_clauses(model: Facts, goal: str) -> None:
    assert model.prove(clause(goal))


FP8_BLOCK_LINEAR = ("Block > 0", "In % Block == 0", "Out % Block == 0")
GROUPED_ATTENTION = ("Hk > 0", "H % Hk == 0")


@pytest.mark.parametrize(
    ("where", "arguments"),
    [
        (FP8_BLOCK_LINEAR, {"In": "H", "Out": "Heads / Shards * HeadDim", "Block": "128"}),
        (FP8_BLOCK_LINEAR, {"In": "H", "Out": "KvHeads / Shards * HeadDim", "Block": "128"}),
        (FP8_BLOCK_LINEAR, {"In": "Heads / Shards * HeadDim", "Out": "H", "Block": "128"}),
        (FP8_BLOCK_LINEAR, {"In": "H", "Out": "Inner / Shards", "Block": "128"}),
        (FP8_BLOCK_LINEAR, {"In": "Inner / Shards", "Out": "H", "Block": "128"}),
        (GROUPED_ATTENTION, {"H": "Heads / Shards", "Hk": "KvHeads / Shards"}),
        (("D % 2 == 0",), {"D": "HeadDim"}),
        (("Size > 0",), {"Size": "PageSize"}),
        (("P > 0", "Rows > 0"), {"P": "MaxSeq", "Rows": "Batch"}),
        (ATTENTION, {}),
        (
            ("H % 128 == 0", "Inner % 128 == 0"),
            {"H": "H", "Inner": "Inner / Shards"},
        ),
    ],
)
def test_where_clauses_at_the_seeds_call_sites(model: Facts, where: tuple[str, ...], arguments: dict[str, str]) -> None:
    values = {name: dim(text) for name, text in arguments.items()}
    for text in where:
        goal = clause(text).substitute(values)
        assert model.prove(goal), str(goal)


@pytest.mark.parametrize(
    "goal",
    [
        # split_heads and merge_heads: [B, S, N * D] against [B, S, N, D].
        "B * S * (N * D) == B * S * N * D",
        "B * S * (Heads / Shards * HeadDim) == B * S * (Heads / Shards) * HeadDim",
        "Heads / Shards * HeadDim == (Heads / Shards) * HeadDim",
        # The gathered logits: all_gather's [R, Shards * N] for N = Vocab / Shards.
        "Shards * (Vocab / Shards) == Vocab",
        "B * S * (Shards * (Vocab / Shards)) == B * S * Vocab",
        # Slices of a packed step, and the widths that come out.
        "P <= P + Batch",
        "0 <= P",
        "P + Batch <= P + Batch",
        "P + Batch - P == Batch",
        "P + Batch > 0",
        # cache_k[0:1] and iota over the caches.
        "1 <= Batch",
        "1 - 0 == 1",
        "1 * MaxSeq == MaxSeq",
        "Batch * 1 * MaxSeq == Batch * MaxSeq",
        # Tables and scales.
        "HeadDim / 2 + HeadDim / 2 == HeadDim",
        "128 * (H / 128) == H",
        "(Heads / Shards * HeadDim) / 128 * 128 == Heads / Shards * HeadDim",
        "Heads / Shards * HeadDim / 128 >= 0",
        # Grouped heads.
        "(Heads / Shards) / (KvHeads / Shards) > 0",
        "(KvHeads / Shards) * ((Heads / Shards) / (KvHeads / Shards)) == Heads / Shards",
        "(Heads / Shards) / (KvHeads / Shards) == Heads / KvHeads",
        "Heads / KvHeads > 0",
        "Heads / Shards > 0",
        "KvHeads <= Heads",
        "2 * Batch == Batch + Batch",
        "MaxSeq - 1 >= 0",
    ],
)
def test_obligations_in_the_seeds_bodies(model: Facts, goal: str) -> None:
    assert model.prove(clause(goal))


@pytest.mark.parametrize(
    "goal",
    [
        "P > 0",
        "S - 1 >= 0",
        "HeadDim > 0",
        "Heads % 2 == 0",
        "KvHeads % 2 == 0",
        "Heads == KvHeads",
        "H % 256 == 0",
        "HeadDim % 128 == 0",
        "Heads / Shards * HeadDim == H",
        "S / P >= 0",
        "Vocab > 0",
        "B * S * (Heads / 2 * 2) == B * S * Heads",
    ],
)
def test_what_the_model_does_not_say(model: Facts, goal: str) -> None:
    assert not model.prove(clause(goal))


PROVEN = [
    # Identity, constants, monotone facts.
    ((), "(A + B) * (A - B) == A * A - B * B"),
    ((), "7 / 2 == 3"),
    ((), "A >= 0"),
    ((), "0 <= A * B"),
    ((), "A + 1 > 0"),
    ((), "A - 1 < A"),
    (("S > 0",), "S - 1 < S"),
    (("S > 0",), "S - 1 >= 0"),
    (("S > 0",), "1 <= S"),
    # An equation whose rewritings grow without end is no reason to give up the rest.
    (("A > 0", "B % A == 0", "(A - B) % 2 == 0"), "B / 2 >= 0"),
    (("P > 0",), "P + Batch > 0"),
    (("P > 0",), "P + Batch != 0"),
    (("A > 0", "B > 0"), "A * B > 0"),
    (("A * B > 0",), "A > 0"),
    (("A * B != 0",), "B > 0"),
    (("H != 0",), "H > 0"),
    (("A != B",), "2 * A + 1 != 2 * B + 1"),
    # Stated equalities and inequalities.
    (("A == B", "B == C"), "A == C"),
    (("A == B", "B == C"), "A * N / 2 == N * C / 2"),
    (("A == B * C",), "D * A == B * (C * D)"),
    (("A + B == C + D",), "A * N + B * N == N * (C + D)"),
    (("A * N == B * N", "N > 0"), "A == B"),
    (("2 * A == 2 * B",), "A == B"),
    (("A <= B", "B <= A"), "A == B"),
    (("A <= B", "B <= C"), "A <= C"),
    (("A < B", "B < C"), "A + 2 <= C"),
    (("A <= B",), "A * N <= N * B"),
    (("A < B", "N > 0"), "A * N < B * N"),
    (("A <= B", "C <= D"), "A * C <= B * D"),
    (("S >= 64",), "S / 64 > 0"),
    (("S < 64",), "S / 64 == 0"),
    (("S < 64",), "S % 64 == S"),
    (("A <= B", "N > 0"), "A / N <= B / N"),
    # Divisibility.
    (("H % N == 0",), "N * (H / N) == H"),
    (("H % N == 0",), "N > 0"),
    (("H % N == 0", "H > 0"), "H / N > 0"),
    (("H % N == 0", "H > 0"), "N <= H"),
    (("D % 2 == 0",), "4 * (D / 2) == 2 * D"),
    (("D % 2 == 0",), "D - D / 2 == D / 2"),
    (("D % 2 == 0",), "(D + 1) / 2 == D / 2"),
    (("D > 0",), "(N * D) % D == 0"),
    (("D > 0",), "N * D / D == N"),
    (("D > 0",), "(N * D + D) / D == N + 1"),
    ((), "(2 * X) % 2 == 0"),
    ((), "(2 * X + 1) % 2 == 1"),
    (("H % 64 == 0",), "H % 32 == 0"),
    (("H % 64 == 0",), "(2 * H) % 128 == 0"),
    (("H % 64 == 0",), "H / 32 == 2 * (H / 64)"),
    (("H % 4 == 1",), "H % 2 == 1"),
    (("H % 4 == 1",), "H > 0"),
    (("In % Group == 0", "Group % 2 == 0"), "In % 2 == 0"),
    (("In % Group == 0", "Group % 2 == 0"), "Out * (In / Group) * (Group / 2) == Out * (In / 2)"),
    (("C % Groups == 0",), "B * Groups * (C / Groups * (H * W)) == B * C * H * W"),
    (("(H * W) % N == 0",), "N * (H * W / N) == W * H"),
    (("(H * W) % N == 0",), "(3 * H * W) % N == 0"),
    (("Heads % Shards == 0",), "(Heads * D) % Shards == 0"),
    (("Heads % Shards == 0",), "Heads * D / Shards == Heads / Shards * D"),
    (("X == H / 2", "H % 2 == 0"), "2 * X == H"),
    (("S / 2 == K",), "2 * K <= S"),
    (("S / 2 == K",), "S <= 2 * K + 1"),
    # Bounds of quotients and remainders.
    ((), "X % 4 < 4"),
    ((), "X % 4 >= 0"),
    (("N > 0",), "X % N < N"),
    (("N > 0",), "X / N <= X"),
    (("N > 0",), "X / N * N + X % N == X"),
    ((), "X / 2 / 2 == X / 4"),
    (("B > 0", "C > 0"), "X / B / C == X / (B * C)"),
    # Convolution and pooling windows.
    (("Stride > 0", "K <= H + 2 * Pad"), "(H + 2 * Pad - K) / Stride + 1 > 0"),
    (("Stride > 0", "K <= H + 2 * Pad"), "H + 2 * Pad - K >= 0"),
    (("Stride > 0", "K <= H + 2 * Pad"), "(H + 2 * Pad - K) / Stride * Stride + K <= H + 2 * Pad"),
    (("K > 0",), "(H - 1) * 2 + 1 >= 2 * H - 1"),
    (("H > 0", "Scale > 0"), "H * Scale / Scale == H"),
    # Minima and maxima.
    ((), "min(P, P + B) == P"),
    ((), "min(A, B) <= A"),
    ((), "min(A, B) + max(A, B) == A + B"),
    ((), "min(A, B) * max(A, B) == B * A"),
    ((), "min(A, 3) <= 3"),
    (("A <= B",), "max(A, B) - min(A, B) == B - A"),
    (("A > 0",), "max(A, B) > 0"),
    (("A > 0", "B > 0"), "N / min(A, B) >= 0"),
    (("S <= min(A, B)",), "S <= B"),
    (("max(A, B) <= S",), "A <= S"),
]


@pytest.mark.parametrize(("given", "goal"), PROVEN, ids=[f"{', '.join(g)} |- {t}" for g, t in PROVEN])
def test_proven(given: tuple[str, ...], goal: str) -> None:
    assert facts(*given).prove(clause(goal))


REFUSED = [
    ((), "A > 0"),
    ((), "A == B"),
    ((), "A - 1 >= 0"),
    ((), "N * (H / N) == H"),
    (("N > 0",), "N * (H / N) == H"),
    # A divisor that may be zero, however true the rest is.
    ((), "H / N >= 0"),
    ((), "H / N == H / N"),
    ((), "(N * D) % D == 0"),
    ((), "N * D / D == N"),
    (("H % N == 0",), "H / (N - 1) >= 0"),
    ((), "H / 0 == H / 0"),
    (("A * N == B * N",), "A == B"),
    (("A != B",), "A * N != B * N"),
    (("A <= B",), "A < B"),
    (("A <= B",), "B - A > 0"),
    (("H % 2 == 0",), "H % 4 == 0"),
    (("(A * B) % 4 == 0",), "A % 4 == 0"),
    (("D % 2 == 1",), "2 * (D / 2) == D"),
    (("Stride > 0",), "(H + 2 * Pad - K) / Stride + 1 > 0"),
    (("S > 63",), "S / 65 > 0"),
    (("H % N == 0",), "H / N > 0"),
    ((), "min(A, B) == A"),
    ((), "max(A, B) <= A"),
    (("A * A == B * B * 2",), "A == B"),
]


@pytest.mark.parametrize(("given", "goal"), REFUSED, ids=[f"{', '.join(g)} |- {t}" for g, t in REFUSED])
def test_refused(given: tuple[str, ...], goal: str) -> None:
    assert not facts(*given).prove(clause(goal))


@pytest.mark.parametrize(
    ("given", "goal", "missing"),
    [
        ((), "N * (H / N) == H", "H % N == 0"),
        ((), "H % Heads == 0", "H % Heads == 0"),
        ((), "H / N >= 0", "N > 0"),
        ((), "(N * D) % D == 0", "D > 0"),
        ((), "S - 1 >= 0", "S > 0"),
        ((), "P + Batch > 0", "Batch > 0"),
        ((), "B * S * (N * D) == B * S * H", "N * D == H"),
        ((), "A == B", "A == B"),
        (("Stride > 0",), "(H + 2 * Pad - K) / Stride + 1 > 0", "K <= H + 2 * Pad"),
        ((), "(H + 2 * Pad - K) / Stride + 1 > 0", "Stride > 0, K <= H + 2 * Pad"),
        (("H > 0",), "H / N > 0", "H % N == 0"),
    ],
)
def test_missing_names_the_clause_to_add(given: tuple[str, ...], goal: str, missing: str) -> None:
    known = facts(*given)
    assert ", ".join(map(str, known.missing(clause(goal)))) == missing
    assert known.extend(map(clause, missing.split(", "))).prove(clause(goal))


def test_shorthands() -> None:
    known = facts("N > 0", "A <= N")
    assert known.equal(dim("N + A"), dim("A + N"))
    assert known.nonnegative(dim("N - A"))
    assert known.positive(dim("N"))
    assert known.at_most(dim("A"), dim("N + 1"))
    assert not known.positive(dim("A"))


def test_extending_leaves_the_original_alone() -> None:
    first = facts("N > 0")
    goal = clause("N * (H / N) == H")
    assert not first.prove(goal)
    second = first.extend([clause("H % N == 0")])
    assert second.prove(goal)
    assert not first.prove(goal)
    assert second.extend([clause("N > 0")]) is second


def test_extending_sees_earlier_facts_anew() -> None:
    known = facts("A == B * C")
    assert not known.prove(clause("A > 0"))
    known = known.extend([clause("A > 0")])
    assert known.prove(clause("B > 0"))
    known = known.extend([clause("B % 2 == 0"), clause("N == A")])
    assert known.prove(clause("N == 2 * (B / 2) * C"))


def test_contradictory_facts_do_no_harm() -> None:
    known = facts("N == 0", "N > 0", "H % N == 1", "1 == 2")
    assert known.prove(clause("A == A"))


def test_concrete_clauses() -> None:
    known = Facts()
    values = {"Heads": Dim.of(32), "KvHeads": Dim.of(8), "Shards": Dim.of(1), "HeadDim": Dim.of(128)}
    for text in ATTENTION[1:12]:
        assert known.prove(clause(text).substitute({**values, "H": Dim.of(4096)})), text
    assert not known.prove(clause("Heads % Shards == 0").substitute({**values, "Shards": Dim.of(0)}))
    assert not known.prove(clause("Heads % Shards == 0").substitute({**values, "Shards": Dim.of(5)}))


def test_what_is_too_large_is_not_proven() -> None:
    big = dim("A + B + C + D")
    power = big * big * big * big
    assert not Facts([Clause("==", power, dim("N")), Clause(">", power, power - 1)]).prove(
        Clause(">", power * power // dim("N + 1"), dim("N"))
    )


def test_a_search_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Signs that ask for one another: the search grew exponentially before what it costs was bounded."""
    asked = 0
    find_lower = Knowledge._find_lower

    def counted(self: Knowledge, atom: int) -> int | None:
        nonlocal asked
        asked += 1
        return find_lower(self, atom)

    monkeypatch.setattr(Knowledge, "_find_lower", counted)
    known = facts("(C / A * A) % 4 == 0", "A <= B", "(B / C) % (C / C) == 0", "C % 3 == 0")
    assert not known.prove(clause("min(A, C) / C > 0"))
    assert 0 < asked <= MAX_EFFORT + DERIVING_EFFORT


def test_more_clauses_than_are_derived_from() -> None:
    many = facts("N > 0", *(f"A{i} <= B{i}" for i in range(2 * MAX_CLAUSES)))
    assert many.prove(clause("A0 <= B0 + 1"))
    last = 2 * MAX_CLAUSES - 1
    assert many.prove(clause(f"A{last} <= B{last}"))
    assert not many.prove(clause(f"A{last} <= B{last} + 1"))
