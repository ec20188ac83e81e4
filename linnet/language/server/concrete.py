"""Concrete generics for hovers: what a package's card binds, followed through the blocks of its program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from linnet.language.check.dims import Dim, DimError
from linnet.language.check.substitute import substitute
from linnet.language.program.binding import BindError, bind
from linnet.language.program.checked import CheckedBlock, Program
from linnet.language.program.environment import Concrete, Environment
from linnet.language.program.types import BlockArrayType, BlockType, GenericValue, OptionalType, Type

# More different types than this at one place say no more than the symbolic one.
MOST = 3


@dataclass(frozen=True, slots=True)
class PackageGenerics:
    """What a card says: its source, its root block, the generics of that, and those of one entry."""

    source: Path
    root: str | None
    generics: Mapping[str, int | str]
    entry: str
    entry_generics: Mapping[str, int | str]


# The package that a file belongs to, if any.
FindPackage = Callable[[Path], PackageGenerics | None]
# Values of generics, each set once, by the identity of a block or of an entry.
Instances = dict[str, list[Mapping[str, Concrete]]]


def instances(program: Program, package: PackageGenerics) -> Instances:
    """The generics that each block of a package is used with; none where the card does not fit the program."""
    try:
        bound = bind(program, package.root, package.generics)
    except (BindError, DimError):
        return {}
    found: Instances = {}
    _collect(bound.block, dict(bound.generics), found)
    entry = bound.entries().get(package.entry)
    if entry is not None:
        found[entry.identity] = [{**bound.generics, **package.entry_generics}]
    return found


def _collect(block: CheckedBlock, generics: dict[str, Concrete], found: Instances) -> None:
    known = found.setdefault(block.identity, [])
    if generics in known:
        return
    known.append(generics)
    env = Environment(generics)
    for member in block.members.values():
        type = member.type.inner if isinstance(member.type, OptionalType) else member.type
        type = type.inner if isinstance(type, BlockArrayType) else type
        if isinstance(type, BlockType):
            _collect(type.block, env.block_arguments(type), found)


def concrete_types(type: Type, generics: list[Mapping[str, Concrete]]) -> list[str]:
    """`type` with each set of generics put in, as text; nothing where that tells no more, or too much."""
    texts: dict[str, None] = {}
    for values in generics:
        mapping = {name: _value(value) for name, value in values.items()}
        try:
            texts[str(substitute(type, mapping))] = None
        except DimError:
            continue
    return [] if len(texts) > MOST or set(texts) == {str(type)} else list(texts)


def _value(value: Concrete) -> GenericValue:
    if isinstance(value, int):
        return Dim.of(value)
    return tuple(map(Dim.of, value)) if isinstance(value, tuple) else value
