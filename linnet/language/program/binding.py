"""Binding a checked program's root block to concrete generics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property

from linnet.language.check.dims import DimError
from linnet.language.program.checked import CheckedBlock, CheckedFunction, GenericDecl, Program
from linnet.language.program.core import EntryGraph, TensorSpec
from linnet.language.program.environment import Concrete, Environment
from linnet.language.program.instances import Instance, Instances
from linnet.language.program.lower import OpBodies, lower_entry
from linnet.language.program.manifest import Manifest
from linnet.language.program.types import DTYPES, KINDS
from linnet.language.program.unify import infer_generics

# Past this a model's paths alone would fill the memory: a generic that counts layers is surely mistyped.
MAX_BLOCKS = 100_000


class BindError(Exception):
    """Generics or inputs that do not fit. `problems` has one sentence for each: missing, unknown, negative, of the
    wrong kind, or a broken where."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(self.problems))


@dataclass(eq=False, repr=False)
class BoundProgram:
    """A root block whose generics are all known. Built by `bind`."""

    program: Program
    block: CheckedBlock
    generics: dict[str, int | str]
    _env: Environment
    _instances: Instances = field(default_factory=Instances)
    _bodies: OpBodies = field(default_factory=dict)

    @cached_property
    def manifest(self) -> Manifest:
        """Every weight of the block, in declaration order."""
        return Manifest(self._instances.weights(self.block, self._env))

    def entries(self) -> dict[str, CheckedFunction]:
        """Entries of the root block, then of its module, by name."""
        found = {entry.name: entry for entry in self.block.entries()}
        for function in self.program.root.functions.values():
            if function.kind == "entry":
                found.setdefault(function.name, function)
        return found

    def states(self) -> dict[str, TensorSpec]:
        """Every `state` by path (`layers.0.attention.cache_k`)."""
        return dict(self._instances.states(self.block, self._env))

    def infer(
        self, entry: str, inputs: Mapping[str, TensorSpec], known: Mapping[str, Concrete] | None = None
    ) -> dict[str, Concrete]:
        """The entry's own generics from its inputs' shapes and dtypes, `known` ones (the caller's) included; those that
        no input determines (`Steps`) are left out. Raises BindError: an input that does not fit."""
        function = self._entry(entry)
        given, problems = check_values(function.generics, known or {}, f"`{entry}`", complete=False)
        solved, mismatches = infer_generics(function, {**self._outer(function), **given}, inputs)
        if problems or mismatches:
            raise BindError(problems + mismatches)
        return solved

    def lower(
        self,
        entry: str,
        generics: Mapping[str, Concrete],
        present: frozenset[str] | None = None,
        given: frozenset[str] = frozenset(),
    ) -> EntryGraph:
        """The entry's Core IR. `generics` are the entry's own; `present`: the optional weights that exist (None: none
        of them); `given`: the optional inputs that are passed. Raises BindError, and LowerError for what only a
        run-time choice would settle."""
        function = self._entry(entry)
        outer = self._outer(function)
        values, problems = check_values(function.generics, generics, f"`{entry}`", complete=True, outer=outer)
        env = Environment({**outer, **values})
        problems = problems or env.broken(function.where)
        if problems:
            raise BindError(problems)
        env = self._instances.environment(function, env.generics)
        root = Instance(self.block, self._env, "")
        return lower_entry(function, root, env, self._instances, self._bodies, present or frozenset(), given)

    def _outer(self, function: CheckedFunction) -> dict[str, Concrete]:
        """The generics that an entry sees besides its own: its block's, if it has one."""
        return self._env.generics if function.block is not None else {}

    def _entry(self, name: str) -> CheckedFunction:
        entries = self.entries()
        if name not in entries:
            raise BindError([f"`{self.block.name}` has no entry `{name}`{_nearest(name, entries)}"])
        return entries[name]


def bind(program: Program, root: str | None, generics: Mapping[str, Concrete]) -> BoundProgram:
    """Bind `root` (None: the one block that has entries) to `generics`; defaults fill in. Raises BindError."""
    block = _root(program, root)
    values, problems = check_values(block.generics, generics, f"`{block.name}`", complete=True)
    env = Environment(values)
    problems = problems or env.broken(block.where)
    if problems:
        raise BindError(problems)
    instances = Instances()
    env = instances.environment(block, env.generics)
    count = instances.count(block, env)
    if count > MAX_BLOCKS:
        raise BindError([f"`{block.name}` would hold {count:,} blocks; this version takes {MAX_BLOCKS:,} at most"])
    bound = {name: value for name, value in values.items() if not isinstance(value, tuple)}
    return BoundProgram(program, block, bound, env, instances)


def _root(program: Program, root: str | None) -> CheckedBlock:
    blocks = program.root.blocks
    if root is not None:
        if root not in blocks:
            raise BindError([f"the source has no block `{root}`{_nearest(root, blocks)}"])
        return blocks[root]
    found = program.blocks_with_entries()
    if len(found) > 1:
        names = ", ".join(f"`{block.name}`" for block in found)
        raise BindError([f"{names} all have entries; say which is the root"])
    if found:
        return found[0]
    alone = [f for f in program.root.functions.values() if f.kind == "entry"]
    if not alone:
        raise BindError(["no block of the source has an entry; add one, or name the root block"])
    # Entries outside blocks need no parameters: they run on a block without members.
    return CheckedBlock(program.root.name, program.root.name, False, None, alone[0].span)


def check_values(
    decls: Sequence[GenericDecl],
    given: Mapping[str, Concrete],
    owner: str,
    *,
    complete: bool,
    outer: Mapping[str, Concrete] | None = None,
) -> tuple[dict[str, Concrete], list[str]]:
    """The generics' values in declaration order, and what is wrong with them. Where `complete`, defaults fill in, in
    the scope of `outer` and the generics before them, and one that has neither value nor default is a problem."""
    names = [decl.name for decl in decls]
    problems = [f"{owner} has no generic `{name}`{_nearest(name, names)}" for name in given if name not in names]
    values: dict[str, Concrete] = {}
    for decl in decls:
        if decl.name in given:
            problem = _misfit(decl, given[decl.name])
            if problem:
                problems.append(problem)
            else:
                values[decl.name] = given[decl.name]
        elif not complete:
            continue
        elif decl.default is None:
            problems.append(f"{owner} needs a value for the generic `{decl.name}` ({_expected(decl)})")
        else:
            # A default that names a generic without a value adds nothing to that generic's own problem.
            with suppress(DimError, KeyError):
                values[decl.name] = Environment({**(outer or {}), **values}).value(decl.default)
    return values, problems


def _misfit(decl: GenericDecl, value: object) -> str | None:
    if decl.kind == "Dim":
        if isinstance(value, bool) or not isinstance(value, int):
            return f"generic `{decl.name}` is a dimension and takes an integer, not {value!r}"
        return f"generic `{decl.name}` is {value}; a dimension is 0 or more" if value < 0 else None
    if decl.kind == "Shape" and isinstance(value, tuple) and all(type(n) is int and n >= 0 for n in value):
        return None
    if decl.kind in KINDS and isinstance(value, str) and value in KINDS[decl.kind]:
        return None
    return f"generic `{decl.name}` takes {_expected(decl)}, not {value!r}"


def _expected(decl: GenericDecl) -> str:
    if decl.kind == "Dim":
        return "a dimension"
    if decl.kind == "Shape":
        return "a shape, which comes from the inputs"
    return f"one of {', '.join(name for name in DTYPES if name in KINDS[decl.kind])}"


def _nearest(name: str, names: Iterable[str]) -> str:
    known = list(names)
    close = get_close_matches(name, known, 1)
    if close:
        return f"; did you mean `{close[0]}`?"
    return f"; it has {', '.join(known)}" if known else ""
