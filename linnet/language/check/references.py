"""What each name of a checked source refers to: for editors, and for links between pages.

The checker only appends while it resolves names, also in programs with errors as far as it gets; the table is put in
order when it is first asked.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from linnet.language.check.context import AliasDecl, ConstDecl
from linnet.language.check.modules import LoadedModule
from linnet.language.program.checked import (
    CheckedBlock,
    CheckedFunction,
    CheckedMember,
    GenericDecl,
    IndexVar,
    LocalVar,
    StructDecl,
)
from linnet.language.program.types import EnumType, Type, value_text
from linnet.language.source import Source, Span

if TYPE_CHECKING:
    from linnet.language.check.checker import Checker
    from linnet.language.check.context import ModuleScope


@dataclass(frozen=True, slots=True)
class Part:
    """A field of a struct, or a variant of an enum."""

    owner: StructDecl | EnumType
    name: str


@dataclass(frozen=True, slots=True)
class PreludeFunction:
    """A function that needs no import; it is defined nowhere."""

    name: str


Target = (
    LocalVar
    | IndexVar
    | GenericDecl
    | CheckedMember
    | CheckedFunction
    | CheckedBlock
    | ConstDecl
    | AliasDecl
    | StructDecl
    | EnumType
    | Part
    | PreludeFunction
    | LoadedModule
)

KINDS = (
    *("local", "index", "generic", "param", "buffer", "state", "sub", "fn", "op", "entry", "block", "const", "alias"),
    *("struct", "enum", "field", "variant", "prelude", "module"),
)
"""The kinds of what a name refers to."""


@dataclass(frozen=True, slots=True)
class Reference:
    """One name, where it is used or declared.

    `kind` is one of `KINDS`. `definition` is the span of the name where it is declared, None for what has no source.
    `type` is a value's type in the generics of the place of use, None for what is no value.
    """

    span: Span
    kind: str
    target: Target
    definition: Span | None
    type: Type | None
    doc: str | None

    @property
    def name(self) -> str:
        """The name that the target was declared with; a module's is its import path."""
        return self.target.key if isinstance(self.target, LoadedModule) else self.target.name

    @property
    def is_definition(self) -> bool:
        """Whether this is the name's own declaration."""
        return self.definition == self.span

    @property
    def type_text(self) -> str | None:
        """The type as a reader would write it, a function's signature, a generic's kind; None where there is none."""
        if self.type is not None:
            return str(self.type)
        match self.target:
            case CheckedFunction():
                return " ".join(self.target.signature.text.split())
            case IndexVar():
                return f"index over {value_text(self.target.extent)}"
            case GenericDecl():
                return self.target.kind
            case AliasDecl() | Part(owner=EnumType()):
                return str(self.target.type if isinstance(self.target, AliasDecl) else self.target.owner)
        return None


# A span, what it refers to, and the type where that is not the target's own.
_Raw = tuple[Span, Target, Type | None]


_Definitions = dict[tuple[int, str], tuple[_Raw, str | None]]


@dataclass(frozen=True, slots=True)
class SourceReferences:
    """The names of one source, for other checks that meet it: its declarations, and all of its names in order."""

    source: Source
    definitions: _Definitions
    names: list[_Raw]


class References:
    """Every name that the checker resolved, by place. Built by the checker with `use`, `define` and `adopt`."""

    __slots__ = ("_adopted", "_arranged", "_by_source", "_definitions", "_uses")

    def __init__(self) -> None:
        self._uses: list[_Raw] = []
        self._definitions: _Definitions = {}
        self._adopted: list[SourceReferences] = []
        self._by_source: dict[Source, list[_Raw]] = {}
        self._arranged: dict[Source, tuple[list[int], list[Reference]]] = {}

    # What the checker calls

    def use(self, span: Span, target: Target, type: Type | None = None) -> None:
        """The name at `span` refers to `target`; `type` where it differs from the target's own."""
        self._uses.append((span, target, type))

    def define(self, span: Span, target: Target, doc: str | None = None, type: Type | None = None) -> None:
        """`target` is declared by the name at `span`."""
        self._definitions[_key(target)] = ((span, target, type), doc)

    def adopt(self, other: SourceReferences) -> None:
        """The names of a source that was checked before."""
        self._adopted.append(other)

    def by_source(self, sources: Iterable[Source]) -> dict[Source, SourceReferences]:
        """The names of these sources, each by itself."""
        found = {source: SourceReferences(source, {}, []) for source in sources}
        for key, definition in self._definitions.items():
            raw = definition[0]
            if raw[0].source in found:
                found[raw[0].source].definitions[key] = definition
                found[raw[0].source].names.append(raw)
        for raw in self._uses:
            if raw[0].source in found:
                found[raw[0].source].names.append(raw)
        return found

    # What readers ask

    def at(self, source: Source, offset: int) -> Reference | None:
        """The name at a character offset of `source`, or the one that ends there."""
        starts, found = self._of(source)
        for position in (bisect_right(starts, offset) - 1, bisect_right(starts, offset - 1) - 1):
            if position >= 0 and found[position].span.end >= offset:
                return found[position]
        return None

    def of_source(self, source: Source) -> list[Reference]:
        """Every name of `source`, declarations included, in order."""
        return list(self._of(source)[1])

    def sources(self) -> list[Source]:
        """The sources that have names: the root's, and those of every module that it reaches."""
        self._sort()
        return list(self._by_source)

    def _of(self, source: Source) -> tuple[list[int], list[Reference]]:
        found = self._arranged.get(source)
        if found is None:
            self._sort()
            references = {
                span.start: self._reference(span, target, type)
                for span, target, type in self._by_source.get(source, [])
            }
            starts = sorted(references)
            found = self._arranged[source] = (starts, [references[start] for start in starts])
        return found

    def _sort(self) -> None:
        """Uses and definitions by source. A name may be resolved twice, first as what a path could begin with: the last
        is what it means."""
        if self._by_source:
            return
        for raw in (*(raw for raw, _ in self._definitions.values()), *self._uses):
            self._by_source.setdefault(raw[0].source, []).append(raw)
        for other in self._adopted:
            self._by_source[other.source] = other.names
            self._definitions.update(other.definitions)

    def _reference(self, span: Span, target: Target, type: Type | None) -> Reference:
        (place, _, declared), doc = self._definitions.get(_key(target), ((None, target, None), None))
        own = type if type is not None else declared
        match target:
            case LocalVar() | ConstDecl():
                return Reference(span, _KIND_OF[target.__class__], target, place, own or target.type, doc)
            case GenericDecl():
                return Reference(span, "generic", target, target.span, None, doc)
            case CheckedMember():
                return Reference(span, target.kind, target, target.span, own or target.type, target.doc)
            case CheckedFunction():
                return Reference(span, target.kind, target, target.span, None, target.doc)
            case CheckedBlock():
                return Reference(span, "block", target, target.span, own, target.doc)
            case LoadedModule():
                path = target.tree.path
                place = path[0].span.to(path[-1].span) if path else Span(target.tree.source, 0, 0)
                return Reference(span, "module", target, place, None, target.tree.doc)
            case Part():
                kind = "variant" if isinstance(target.owner, EnumType) else "field"
                return Reference(span, kind, target, place, own, doc)
        return Reference(span, _KIND_OF[target.__class__], target, place, own, doc)


_KIND_OF: Mapping[type, str] = {
    LocalVar: "local",
    IndexVar: "index",
    ConstDecl: "const",
    AliasDecl: "alias",
    StructDecl: "struct",
    EnumType: "enum",
    PreludeFunction: "prelude",
}


def _key(target: Target) -> tuple[int, str]:
    """What tells targets apart: most are compared by identity, their parts by name."""
    return (id(target.owner), target.name) if isinstance(target, Part) else (id(target), "")


def record_imports(checker: Checker, scopes: Iterable[ModuleScope]) -> None:
    """What the names of every `module` and `use` of these refer to, once the items are declared."""
    references = checker.references
    for scope in scopes:
        path = scope.loaded.tree.path
        if path:
            references.use(path[0].span.to(path[-1].span), scope.loaded)
        for use in scope.loaded.tree.uses:
            module = scope.loaded.imports.get(tuple(name.text for name in use.path))
            if module is None:
                continue
            references.use(use.path[0].span.to(use.path[-1].span), module)
            if use.alias is not None:
                references.use(use.alias.span, module)
            decls = checker.scopes[id(module)].decls
            for used in use.names or ():
                decl = decls.get(used.name.text)
                if decl is not None:
                    references.use(used.name.span, decl)
                    if used.alias is not None:
                        references.use(used.alias.span, decl)
