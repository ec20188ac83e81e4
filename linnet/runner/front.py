"""What a model of any backend says of its program, and how its entries are found and lowered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from linnet.language.program.binding import BindError, BoundProgram, bind
from linnet.language.program.checked import CheckedFunction
from linnet.language.program.core import EntryGraph
from linnet.language.program.lower_values import LowerError
from linnet.runner.errors import InputError, SizeError, UnknownEntryError, WeightsError
from linnet.runner.garbage import own_garbage
from linnet.runner.torch.inputs import EntryInputs, signature_text


class ProgramFront:
    """The part of a model that is its program's: `_entry` is the card's, `_present` the optional weights there are."""

    _bound: BoundProgram
    _functions: dict[str, CheckedFunction]
    _entry: str | None
    _numerics: str
    _present: frozenset[str]

    @property
    def generics(self) -> dict[str, int | str]:
        """The root block's generics."""
        return dict(self._bound.generics)

    @property
    def entries(self) -> dict[str, str]:
        """Each entry's signature, by name."""
        return {name: signature_text(function) for name, function in self._functions.items()}

    @property
    def numerics(self) -> str:
        return self._numerics

    def state_paths(self) -> list[str]:
        """Paths of the program's states (KV caches), allocated or not."""
        return list(self._bound.states())

    def _card_entry(self, named: Mapping[str, Any]) -> str:
        """The entry that a call runs. Raises UnknownEntryError where the card names none, InputError for inputs by
        name."""
        if self._entry is None:
            raise UnknownEntryError(None, self._functions)
        if named:
            problem = f"{', '.join(named)} cannot be given by name here: use model.run_entry({self._entry!r}, ...)"
            raise InputError(problem, self.entries.get(self._entry, self._entry))
        return self._entry

    def _function(self, name: object) -> CheckedFunction:
        """Raises UnknownEntryError."""
        function = self._functions.get(name) if isinstance(name, str) else None
        if function is None:
            raise UnknownEntryError(name, self._functions)  # type: ignore[arg-type]
        return function

    def _rebound(self, generics: Mapping[str, int]) -> BoundProgram:
        """The program with other values for generics that no weight depends on. Raises BindError, WeightsError."""
        block = self._bound.block.name
        named = block if block in self._bound.program.root.blocks else None
        bound = bind(self._bound.program, named, {**self._bound.generics, **generics})
        if bound.manifest.entries != self._bound.manifest.entries:
            raise WeightsError([f"weights depend on {', '.join(generics)}: give it to nest.load(generics=...)"])
        return bound

    def _lowered(self, function: CheckedFunction, taken: EntryInputs, given: Mapping[str, int | str]) -> EntryGraph:
        """The entry for inputs of these specs. Raises BindError, LowerError."""
        generics = self._bound.infer(function.name, taken.specs, given)
        return self._bound.lower(function.name, generics, self._present, taken.given)


def entry_key(function: CheckedFunction, taken: EntryInputs, given: Mapping[str, int | str]) -> tuple[Any, ...]:
    """What an entry is prepared once for: the specs of its inputs and the generics that they do not determine."""
    return (function.name, *taken.specs.items(), *sorted(given.items()))


@contextmanager
def preparing(function: CheckedFunction) -> Iterator[None]:
    """What cannot be lowered or prepared is an InputError, which names the entry."""
    try:
        with own_garbage():
            yield
    except (BindError, LowerError, SizeError) as error:
        raise InputError(str(error), signature_text(function)) from None
