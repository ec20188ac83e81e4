"""What the prover accepts is true: random facts and goals, checked on every small assignment.

`fuzzing.py` says how many sets of facts, each with several goals, and how to try more.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import product
from random import Random

import pytest
from fuzzing import fuzzed
from hypothesis import given
from hypothesis import strategies as st

from linnet.language.check.dims import COMPARISONS, Clause, Dim, DimError
from linnet.language.check.prover import Facts

SYMBOLS = ("A", "B", "C")
BOX = [dict(zip(SYMBOLS, values, strict=True)) for values in product(range(6), repeat=len(SYMBOLS))]
GOALS = 12
# How many of the first kinds of fact are what real signatures state.
SIMPLE_KINDS = 9
# An expression as written: a name, a number or an operator with two operands.
Tree = str | int | tuple[str, "Tree", "Tree"]


def random_tree(rng: Random, depth: int) -> Tree:
    if depth == 0 or rng.random() < 0.2:
        return rng.choice(SYMBOLS) if rng.random() < 0.75 else rng.randint(0, 4)
    op = rng.choice(("+", "+", "-", "*", "*", "/", "/", "%", "min", "max"))
    return (op, random_tree(rng, depth - 1), random_tree(rng, depth - 1))


def tree_dim(tree: Tree) -> Dim:
    if isinstance(tree, str):
        return Dim.symbol(tree)
    if isinstance(tree, int):
        return Dim.of(tree)
    op, left, right = tree[0], tree_dim(tree[1]), tree_dim(tree[2])
    operations: dict[str, Callable[[Dim, Dim], Dim]] = {
        "+": lambda a, b: a + b,
        "-": lambda a, b: a - b,
        "*": lambda a, b: a * b,
        "/": lambda a, b: a // b,
        "%": lambda a, b: a % b,
        "min": Dim.minimum,
        "max": Dim.maximum,
    }
    return operations[op](left, right)


def tree_value(tree: Tree, values: dict[str, int]) -> int:
    """The value by direct integer arithmetic; ZeroDivisionError for a divisor that is not positive."""
    if isinstance(tree, str):
        return values[tree]
    if isinstance(tree, int):
        return tree
    op, a, b = tree[0], tree_value(tree[1], values), tree_value(tree[2], values)
    if op in ("/", "%"):
        if b <= 0:
            raise ZeroDivisionError
        return a // b if op == "/" else a % b
    return {"+": a + b, "-": a - b, "*": a * b, "min": min(a, b), "max": max(a, b)}[op]


def random_fact(rng: Random, simple: bool) -> Clause:
    """A clause of the kinds that `where` states, or, unless `simple`, any other."""
    x, y, z = (Dim.symbol(rng.choice(SYMBOLS)) for _ in range(3))
    number = Dim.of(rng.randint(1, 4))
    e, f = tree_dim(random_tree(rng, 2)), tree_dim(random_tree(rng, 1))
    zero = Dim.of(0)
    kinds: list[Callable[[], Clause]] = [
        lambda: Clause(">", x, zero),
        lambda: Clause("==", x % y, zero),
        lambda: Clause("==", x % number, zero),
        lambda: Clause("==", x % number, Dim.of(rng.randint(0, 3))),
        lambda: Clause("==", (x // y * z) % number, zero),
        lambda: Clause("==", (x * y) % z, zero),
        lambda: Clause("==", x, y * z),
        lambda: Clause("<=", x, y),
        lambda: Clause("==", (x // y) % (z // y), zero),
        lambda: Clause("==", x, e),
        lambda: Clause("==", x * y, z * f),
        lambda: Clause("==", x + f, y * z),
        lambda: Clause("<", x, e),
        lambda: Clause(">=", x, number),
        lambda: Clause("<=", x, number),
        lambda: Clause("!=", x, f),
        lambda: Clause(">", x // y, zero),
        lambda: Clause(rng.choice(COMPARISONS), e, f),
        lambda: Clause(rng.choice(COMPARISONS), e, tree_dim(random_tree(rng, 2))),
    ]
    return rng.choice(kinds[:SIMPLE_KINDS] if simple else kinds)()


def random_goal(rng: Random, facts: list[Clause]) -> Clause:
    """A clause that is often true: a mutated fact, two facts added, a law of division, or anything."""
    x, y, z = (Dim.symbol(rng.choice(SYMBOLS)) for _ in range(3))
    e, f = tree_dim(random_tree(rng, 2)), tree_dim(random_tree(rng, 1))
    near = Dim.of(rng.choice((0, 0, 0, 1, -1)))
    zero = Dim.of(0)
    laws: list[Callable[[], Clause]] = [
        lambda: Clause("==", y * (x // y) + near, x),
        lambda: Clause("==", z * y * (x // y), x * z + near),
        lambda: Clause("==", x * y // y, x + near),
        lambda: Clause("==", (x * y) // z, x // z * y + near),
        lambda: Clause(">", x // y + near, zero),
        lambda: Clause(">", e // x, near),
        lambda: Clause(">", e, near),
        lambda: Clause("<=", x // y, x + near),
        lambda: Clause("<", x % y, y + near),
        lambda: Clause("<=", x % y, x + near),
        lambda: Clause("==", (e * x) % x, near),
        lambda: Clause("==", x % Dim.of(rng.randint(2, 4)), near),
        lambda: Clause("<=", x, x + e + near),
        lambda: Clause("==", Dim.minimum(x, x + e), x + near),
        lambda: Clause("==", Dim.minimum(x, y) + Dim.maximum(x, y), x + y + near),
        lambda: Clause("<=", Dim.minimum(x, e), Dim.maximum(x, f) + near),
        lambda: Clause("==", x // y // z, x // (y * z) + near),
        lambda: Clause("==", (x + y * z) // y, x // y + z + near),
        lambda: Clause("<=", x // z, y // z + near),
        lambda: Clause(rng.choice(COMPARISONS), x, y + near),
        lambda: Clause(rng.choice(COMPARISONS), e, f),
        lambda: Clause(rng.choice(COMPARISONS), e, tree_dim(random_tree(rng, 2))),
    ]
    if facts and rng.random() < 0.6:
        fact = rng.choice(facts)
        op, left, right = fact.op, fact.left, fact.right
        for _ in range(rng.randint(1, 2)):
            step = rng.randrange(7)
            other = rng.choice(facts)
            if step == 0:
                left, right = left + e, right + e
            elif step == 1:
                left, right = left * f, right * f
            elif step == 2:
                right = right + near
            elif step == 3:
                op = rng.choice({"==": ("<=", ">=", "=="), "<": ("<=", "!="), ">": (">=", "!=")}.get(op, (op,)))
            elif step == 4 and other.op == op:
                left, right = left + other.left, right + other.right
            elif step == 5:
                left, right = left // y, right // y
            else:
                values = {rng.choice(SYMBOLS): rng.choice((y * (x // y), x // z * z, other.right, Dim.symbol("A")))}
                left = left.substitute(values)
        return Clause(op, left, right)
    return rng.choice(laws)()


def random_case(rng: Random) -> tuple[list[Clause], list[Clause]]:
    """Facts and goals; the ones that grow too large are left out."""
    facts: list[Clause] = []
    goals: list[Clause] = []
    simple = rng.random() < 0.4
    for _ in range(rng.randint(2, 6) if simple else rng.randint(0, 4)):
        try:
            facts.append(random_fact(rng, simple))
        except DimError:
            continue
    for _ in range(GOALS):
        try:
            goals.append(random_goal(rng, facts))
        except DimError:
            continue
    return facts, goals


def models(facts: list[Clause]) -> list[dict[str, int]]:
    """The assignments in the box that satisfy every fact."""
    left = BOX
    for fact in facts:
        left = [values for values in left if fact.holds(values)]
    return left


def counterexample(facts: list[Clause], goal: Clause, satisfying: list[dict[str, int]]) -> str | None:
    """What is wrong with accepting the goal, or None."""
    for values in satisfying:
        if not goal.holds(values):
            return f"[{', '.join(map(str, facts))}] was taken to prove {goal}, false for {values}"
    return None


@given(st.integers(0, 2**64 - 1))
@fuzzed(400, shrink=False)
def test_accepted_goals_hold_in_the_whole_box(seed: int) -> None:
    rng = Random(seed)
    facts, goals = random_case(rng)
    known = Facts(facts)
    accepted = [goal for goal in goals if known.prove(goal)]
    satisfying = models(facts) if accepted else []
    for goal in accepted:
        assert counterexample(facts, goal, satisfying) is None


@given(st.integers(0, 2**64 - 1))
@fuzzed(400, shrink=False)
def test_extended_facts_are_as_sound(seed: int) -> None:
    rng = Random(seed)
    facts, goals = random_case(rng)
    known = Facts(facts[:1])
    for goal in goals[:3]:
        known.prove(goal)
    known = known.extend(facts[1:])
    satisfying = models(facts)
    for goal in goals[3:]:
        if known.prove(goal):
            assert counterexample(facts, goal, satisfying) is None


def test_many_generated_goals_are_accepted() -> None:
    """The soundness tests would say nothing if hardly anything were accepted under facts that can hold."""
    accepted = total = 0
    for seed in range(150):
        facts, goals = random_case(Random(seed))
        if models(facts):
            known = Facts(facts)
            accepted += sum(known.prove(goal) for goal in goals if goal not in facts)
            total += len(goals)
    assert total > 800
    assert accepted > total // 5


@given(st.integers(0, 2**64 - 1))
@fuzzed(400, shrink=False)
def test_dims_agree_with_direct_arithmetic(seed: int) -> None:
    rng = Random(seed)
    tree = random_tree(rng, 4)
    try:
        dim = tree_dim(tree)
    except DimError:
        return
    for values in BOX[:: rng.choice((5, 7, 11))]:
        try:
            expected = tree_value(tree, values)
        except ZeroDivisionError:
            continue
        assert dim.evaluate(values) == expected
        replaced = dim.substitute({"A": Dim.of(values["A"]), "B": Dim.symbol("C"), "C": Dim.symbol("B")})
        assert replaced.evaluate({"B": values["C"], "C": values["B"]}) == expected


@given(st.integers(0, 2**64 - 1))
@fuzzed(400, shrink=False)
def test_text_reads_back_as_the_same_dim(seed: int) -> None:
    rng = Random(seed)
    try:
        dim = tree_dim(random_tree(rng, 4))
    except DimError:
        return
    names = {"Dim": Dim, "min": Dim.minimum, "max": Dim.maximum, **{name: Dim.symbol(name) for name in SYMBOLS}}
    text = re.sub(r"\d+", r"Dim.of(\g<0>)", str(dim)).replace("/", "//")
    assert eval(text, names) == dim


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_equal_keys_mean_equal_values(depth: int) -> None:
    rng = Random(depth)
    seen: dict[Dim, Tree] = {}
    for _ in range(2000):
        tree = random_tree(rng, depth)
        dim = tree_dim(tree)
        twin = seen.setdefault(dim, tree)
        for values in BOX[::17]:
            try:
                assert tree_value(tree, values) == tree_value(twin, values)
            except ZeroDivisionError:
                continue


def test_a_bound_that_is_found_on_the_way_holds_for_all_that_take_part() -> None:
    """The lower bound of `B / A` was found in the middle of a certificate, which then mixed `B / A` with what it has
    above its bound."""
    a, b, c = map(Dim.symbol, "ABC")
    facts = [Clause("==", (b // a * c) % 2, Dim.of(0)), Clause("<=", a, b)]
    assert not Facts(facts).prove(Clause("==", (b // a * a) % 2, Dim.of(0)))
    assert not Facts(facts).prove(Clause(">=", b // a * a // 2, Dim.of(1)))
