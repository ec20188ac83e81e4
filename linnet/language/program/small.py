"""Small generics for the smoke test: a model of the same structure that runs in no time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from linnet.language.check.dims import Clause, Dim
from linnet.language.check.substitute import bare_name
from linnet.language.program.checked import CheckedBlock, CheckedFunction, GenericDecl
from linnet.language.program.environment import Concrete
from linnet.language.program.types import KINDS, BlockArrayType, BlockType, OptionalType

LAYERS = 2
VOCABULARY = 32
# How far above its start a dimension is looked for: first close by, so that dimensions which limit one another are
# found together, then as far as any model's `where` asks.
REACHES = (64, 1024, 1 << 14, 1 << 16)
# Candidates tried within each reach.
MAX_TRIES = 1 << 15


class SmallGenericsError(Exception):
    """No small values satisfy every `where`."""


def small_generics(owner: CheckedBlock | CheckedFunction, fixed: Mapping[str, Concrete]) -> dict[str, Concrete]:
    """Small values for the generics of a block, or an entry's own, in declaration order.

    Each dimension is at least 1, one that counts the elements of a block array at least 2, one named `Vocab` or that
    is an `Embedding`'s first at least 32; then the least that satisfies every `where`. Dtypes are f32 (i32 for an
    Integer) unless `fixed` names another; an entry's shapes have one axis of 2. `fixed` also gives the generics
    that `where` clauses name from outside, an entry's block's. Raises SmallGenericsError.
    """
    starts = _starts(owner) if isinstance(owner, CheckedBlock) else {}
    dims = {decl.name: starts.get(decl.name, 1) for decl in owner.generics if decl.kind == "Dim"}
    known = {name: value for name, value in fixed.items() if isinstance(value, int)}
    found = _search(owner, {name: start for name, start in dims.items() if name not in known}, known)
    return {
        decl.name: found[decl.name] if decl.kind == "Dim" else fixed.get(decl.name, _other(decl))
        for decl in owner.generics
    }


def _other(decl: GenericDecl) -> str | tuple[int, ...]:
    if decl.kind == "Shape":
        return (2,)
    return "f32" if "f32" in KINDS[decl.kind] else "i32"


def _starts(block: CheckedBlock) -> dict[str, int]:
    """The least value of each generic whose part in the model is known, by name."""
    starts: dict[str, int] = {"Vocab": VOCABULARY}
    if block.name == "Embedding" and block.generics:
        starts[block.generics[0].name] = VOCABULARY
    for member in block.members.values():
        type = member.type.inner if isinstance(member.type, OptionalType) else member.type
        if isinstance(type, BlockArrayType):
            for name in type.count.symbols():
                starts[name] = max(LAYERS, starts.get(name, 1))
            type = type.inner
        if isinstance(type, BlockType):
            below = _starts(type.block)
            for decl, arg in zip(type.block.generics, type.args, strict=True):
                passed = bare_name(arg) if isinstance(arg, Dim) else None
                if passed is not None and decl.name in below:
                    starts[passed] = max(below[decl.name], starts.get(passed, 1))
    return starts


def _search(
    owner: CheckedBlock | CheckedFunction, starts: Mapping[str, int], known: Mapping[str, int]
) -> dict[str, int]:
    unbound = {name for clause in owner.where for name in clause.symbols()} - known.keys() - starts.keys()
    if unbound:
        names = ", ".join(f"`{name}`" for name in sorted(unbound))
        raise SmallGenericsError(f"`{owner.name}` depends on {names}; give their values")
    for clause in owner.where:
        if clause.symbols() <= known.keys() and not clause.holds(known):
            raise SmallGenericsError(f"`{clause}` of `{owner.name}` is false for the given generics")
    for reach in REACHES:
        found = _Search(owner.where, starts, known, reach).run()
        if found is not None:
            return found
    raise SmallGenericsError(f"no small generics of `{owner.name}` satisfy every `where`; give some of them")


@dataclass(slots=True)
class _Step:
    """One dimension being searched: its candidates, the clauses that it is the last to complete, and the earlier
    dimensions that another value could depend on."""

    name: str
    candidates: Iterator[int]
    clauses: Sequence[Clause]
    linked: set[str]


class _Search:
    """Depth first, in an order in which each clause is complete early: what divides comes before what is divided."""

    def __init__(
        self, clauses: Sequence[Clause], starts: Mapping[str, int], known: Mapping[str, int], reach: int
    ) -> None:
        divisors = {
            name
            for clause in clauses
            for divisor in (*clause.left.divisors(), *clause.right.divisors())
            for name in divisor.symbols()
        }
        self.order = sorted(starts, key=lambda name: name not in divisors)
        self.clauses = clauses
        self.starts = starts
        self.reach = reach
        self.values = dict(known)
        self.tries = 0

    def run(self) -> dict[str, int] | None:
        """All values, None where there are none within reach."""
        steps: list[_Step] = []
        while len(steps) < len(self.order):
            steps.append(self._step(self.order[len(steps)]))
            while not self._advance(steps[-1]):
                self._back(steps)
                if not steps or self.tries > MAX_TRIES:
                    return None
        return self.values

    def _step(self, name: str) -> _Step:
        done = self.values.keys() | {name}
        clauses = [c for c in self.clauses if name in c.symbols() and c.symbols() <= done]
        linked = {other for clause in clauses for other in clause.symbols()} - {name}
        start = self.starts[name]
        return _Step(name, iter(range(start, start + self.reach)), clauses, linked)

    def _advance(self, step: _Step) -> bool:
        """Take the step's next candidate that its clauses allow."""
        for candidate in step.candidates:
            self.tries += 1
            self.values[step.name] = candidate
            if all(clause.holds(self.values) for clause in step.clauses):
                return True
        return False

    def _back(self, steps: list[_Step]) -> None:
        """Drop steps up to the last one that a clause connects with the step that has no candidate left."""
        failed = steps.pop()
        del self.values[failed.name]
        while steps and steps[-1].name not in failed.linked:
            del self.values[steps.pop().name]
        if steps:
            steps[-1].linked |= failed.linked - {steps[-1].name}
