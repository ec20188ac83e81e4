"""Binding a checked program's root block to concrete generics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from linnet.language.program.checked import CheckedBlock, CheckedFunction, Program
from linnet.language.program.core import EntryGraph, TensorSpec
from linnet.language.program.manifest import Manifest


class BindError(Exception):
    """Generics that do not fit. `problems` has one sentence for each: missing, unknown, negative, of the wrong kind, or a broken where."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(self.problems))


class BoundProgram(Protocol):
    """A root block whose generics are all known. Built by `bind`."""

    program: Program
    block: CheckedBlock
    generics: dict[str, int | str]

    @property
    def manifest(self) -> Manifest: ...

    def entries(self) -> dict[str, CheckedFunction]:
        """Entries of the root block, then of its module, by name."""
        ...

    def states(self) -> dict[str, TensorSpec]:
        """Every `state` by path (`layers.0.attention.cache_k`)."""
        ...

    def infer(self, entry: str, inputs: Mapping[str, TensorSpec]) -> dict[str, int | str]:
        """The entry's own generics from its inputs' shapes and dtypes. Raises BindError."""
        ...

    def lower(
        self, entry: str, generics: Mapping[str, int | str], present: frozenset[str] | None = None
    ) -> EntryGraph:
        """The entry's Core IR. `present`: the optional weights that exist (None: none of them). Raises BindError."""
        ...


def bind(program: Program, root: str | None, generics: Mapping[str, int | str]) -> BoundProgram:
    """Bind `root` (None: the one block that has entries) to `generics`; defaults fill in. Raises BindError."""
    raise NotImplementedError
