"""The entries of a model with concrete shapes: what each takes, returns, and which states it reads or writes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from markupsafe import Markup

from linnet.language.check.dims import Dim, DimError
from linnet.language.check.substitute import substitute
from linnet.language.program.checked import (
    AssignState,
    Call,
    CheckedBlock,
    CheckedFunction,
    MethodCall,
    StateValue,
)
from linnet.language.program.environment import Concrete, Environment
from linnet.language.program.types import BlockArrayType, BlockType, OptionalType, Type
from linnet.site_builder.code import Code
from linnet.site_builder.collect import EntryView, ModelPage
from linnet.site_builder.parameters import DTYPE_BYTES
from linnet.site_builder.source_view import code_block, highlight_lines


@dataclass(frozen=True, slots=True)
class Value:
    """An input or the result of an entry: its type as declared, and with the card's generics."""

    name: str
    declared: str
    concrete: str


@dataclass(frozen=True, slots=True)
class State:
    """A state of every block at a path: `pattern` writes array positions as ranges, `count` is how many they are."""

    pattern: str
    owner: str
    name: str
    type: str
    count: int
    size: int


@dataclass(frozen=True, slots=True)
class EntryDetail:
    """An entry with all that its part of the page shows; `place` is the line of the site where it stands."""

    entry: EntryView
    signature: Markup
    inputs: tuple[Value, ...]
    result: Value | None
    states: tuple[State, ...]
    place: str


class Entries:
    """The entries of a model, read from its checked program where it has one."""

    def __init__(self, page: ModelPage, path: str) -> None:
        """`path` is the file of the site that the signatures link from."""
        self._page = page
        self._path = path
        self._code: Code | None = page.code if page.code is not None and page.code.bound is not None else None
        self._lines: dict[str, list[str]] = {}
        self._touched: dict[CheckedFunction, frozenset[tuple[str, str]]] = {}

    def details(self) -> list[EntryDetail]:
        """Every entry, in the record's order."""
        bound = self._code.bound if self._code is not None else None
        functions = bound.entries() if bound is not None else {}
        return [self._detail(entry, functions.get(entry.name)) for entry in self._page.entries]

    @cached_property
    def states(self) -> tuple[State, ...]:
        """Every state of the model, blocks of an array on one line."""
        bound = self._code.bound if self._code is not None else None
        if bound is None:
            return ()
        try:
            return tuple(_states(bound.block, Environment(bound.generics), "", 1))
        except DimError:
            return ()

    def _detail(self, entry: EntryView, function: CheckedFunction | None) -> EntryDetail:
        if self._code is None or function is None:
            return EntryDetail(entry, code_block(entry.signature, "linnet"), (), None, (), "")
        known = self._generics(function)
        touched = self._touches(function)
        return EntryDetail(
            entry=entry,
            signature=self._signature(entry, function),
            inputs=tuple(_value(var.name, var.type, known) for var in function.parameters),
            result=_value("result", function.result, known),
            states=tuple(state for state in self.states if (state.owner, state.name) in touched),
            place=self._code.place(function.span),
        )

    def _generics(self, function: CheckedFunction) -> Mapping[str, Dim | str]:
        bound = self._code.bound if self._code is not None else None
        if bound is None or function.block is None:
            return {}
        own = {decl.name for decl in function.generics}
        return {n: Dim.of(v) if isinstance(v, int) else v for n, v in bound.generics.items() if n not in own}

    def _signature(self, entry: EntryView, function: CheckedFunction) -> Markup:
        """The signature as its source shows it, names linked; as the record has it where the source is not shown."""
        assert self._code is not None
        source = function.signature.source
        lines = self._lines.get(source.name)
        if lines is None:
            shown = {file.text for file in self._page.files}
            names = self._code.names(source)
            fits = source.text in shown and "\r" not in source.text
            lines = list(highlight_lines(source.text, "linnet", names, self._path)) if fits else []
            self._lines[source.name] = lines
        first, column = source.position(function.signature.start)
        last, _ = source.position(max(function.signature.start, function.signature.end - 1))
        taken = lines[first - 1 : last]
        indent = " " * (column - 1)
        if len(taken) != last - first + 1 or not all(line.startswith(indent) or not line for line in taken):
            return code_block(entry.signature, "linnet")
        return Markup("\n".join(line[len(indent) :] for line in taken).rstrip().removesuffix("{").rstrip())

    def _touches(self, function: CheckedFunction) -> frozenset[tuple[str, str]]:
        """The states, as block and name, that a function reads or writes, itself or through what it calls."""
        known = self._touched.get(function)
        if known is None:
            self._touched[function] = frozenset()  # there is no recursion in the language
            found: set[tuple[str, str]] = set()
            for node in _nodes(function.body):
                if isinstance(node, StateValue) and isinstance(node.object.type, BlockType):
                    found.add((node.object.type.block.identity, node.name))
                elif isinstance(node, AssignState) and function.block is not None:
                    found.add((function.block.identity, node.name))
                elif isinstance(node, Call):
                    found |= self._touches(node.function)
                elif isinstance(node, MethodCall):
                    found |= self._touches(node.method)
            known = self._touched[function] = frozenset(found)
        return known


def _value(name: str, type: Type, known: Mapping[str, Dim | str]) -> Value:
    try:
        return Value(name, str(type), str(substitute(type, known)))
    except DimError:
        return Value(name, str(type), str(type))


def _states(block: CheckedBlock, env: Environment, prefix: str, count: int) -> Iterator[State]:
    for member in block.members.values():
        type = member.type.inner if isinstance(member.type, OptionalType) else member.type
        if member.kind == "state":
            spec = env.spec(type)
            size = count * DTYPE_BYTES[spec.dtype]
            for axis in spec.shape:
                size *= axis
            text = f"Tensor[{', '.join(map(str, spec.shape))}; {spec.dtype}]" if spec.shape else spec.dtype
            yield State(prefix + member.name, block.identity, member.name, text, count, size)
            continue
        copies, path = 1, f"{prefix}{member.name}."
        if isinstance(type, BlockArrayType):
            copies = env.dim(type.count)
            path += f"{{0..{copies - 1}}}." if copies > 1 else "0."
            type = type.inner
        if isinstance(type, BlockType) and copies:
            generics: dict[str, Concrete] = env.block_arguments(type)
            yield from _states(type.block, Environment(generics), path, count * copies)


def _nodes(value: object) -> Iterator[object]:
    """Every statement and expression in a body, functions that it calls not included."""
    pending = [value]
    while pending:
        node = pending.pop()
        if isinstance(node, (tuple, list)):
            pending.extend(node)
        elif isinstance(node, dict):
            pending.extend(node.values())
        elif parts := _parts(node.__class__):
            yield node
            pending.extend([getattr(node, name) for name in parts])


def _parts(kind: type) -> tuple[str, ...]:
    """The fields of a class of statements or expressions that may hold others; none of what is neither."""
    if kind not in _PARTS:
        known = dataclasses.is_dataclass(kind) and kind.__module__.endswith("program.checked")
        fields = dataclasses.fields(kind) if known and kind not in (CheckedFunction, CheckedBlock) else ()
        _PARTS[kind] = tuple(item.name for item in fields if item.name != "type")
    return _PARTS[kind]


_PARTS: dict[type, tuple[str, ...]] = {}
