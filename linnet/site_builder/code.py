"""A package's checked program as pages need it: where each name is defined, and what type it has there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from linnet.language.check import CheckResult, load
from linnet.language.check.context import AliasDecl, ConstDecl
from linnet.language.check.dims import DimError
from linnet.language.check.modules import STD_ROOT, LoadedModule
from linnet.language.check.references import PreludeFunction, Reference
from linnet.language.program.binding import BindError, BoundProgram, bind
from linnet.language.program.checked import (
    CheckedBlock,
    CheckedFunction,
    CheckedMember,
    GenericDecl,
    Program,
    StructDecl,
)
from linnet.language.program.environment import Concrete
from linnet.language.program.types import BlockArrayType, BlockType, EnumType, OptionalType
from linnet.language.server.concrete import PackageGenerics, concrete_types, instances
from linnet.language.server.hover import PRELUDE
from linnet.language.source import Source, Span
from linnet.site_builder.paths import module_page

# What a hover shows of a type; longer ones say no more.
TYPE_CHARACTERS = 240
# The site's file that holds a package's file; None where it has no page.
PageOf = Callable[[str], str | None]


@dataclass(frozen=True, slots=True)
class Name:
    """A name in a source: characters `start` to `end`, where it is defined, and its type as text.

    `target` is a file of the site with `#L12`, empty at the name's own definition and for what is defined nowhere.
    """

    start: int
    end: int
    target: str
    type: str


@dataclass(frozen=True, slots=True)
class Symbol:
    """A declaration that search finds: `kind` is block, fn, op or entry; `target` is a file of the site with `#L12`."""

    name: str
    kind: str
    target: str
    doc: str
    public: bool


@dataclass(slots=True)
class Code:
    """The program of a package, or of the standard library; `program` is None where it does not check."""

    checked: CheckResult
    folder: Path
    page_of: PageOf
    bound: BoundProgram | None = None
    generics: Mapping[str, list[Mapping[str, Concrete]]] = field(default_factory=dict)
    _paths: dict[Source, str | None] = field(default_factory=dict)
    _names: dict[Source, list[Name]] = field(default_factory=dict)

    @property
    def program(self) -> Program | None:
        return self.checked.program

    def sources(self) -> dict[str, Source]:
        """The package's own sources that the program reaches, by path in the package."""
        found = {self._path(source): source for source in self.checked.references.sources()}
        return {path: source for path, source in found.items() if path is not None and not path.startswith("std:")}

    def names(self, source: Source) -> list[Name]:
        """Every name of a source, in order, none inside another."""
        if source not in self._names:
            self._names[source] = self._read_names(source)
        return self._names[source]

    def _read_names(self, source: Source) -> list[Name]:
        found: list[Name] = []
        block: CheckedBlock | None = None
        types: dict[tuple[int, int], str] = {}
        for reference in self.checked.references.of_source(source):
            target = reference.target
            if reference.is_definition:
                if isinstance(target, CheckedBlock):
                    block = target
                elif isinstance(target, (AliasDecl, ConstDecl, StructDecl, EnumType)):
                    block = None
                elif isinstance(target, CheckedFunction):
                    block = target.block
            if (found and reference.span.start < found[-1].end) or "\n" in reference.span.text:
                continue
            key = (id(target), id(reference.type))
            if key not in types:
                types[key] = self._type(reference, block)
            place = "" if reference.is_definition else self.place(reference.definition)
            found.append(Name(reference.span.start, reference.span.end, place, types[key]))
        return found

    def place(self, span: Span | None) -> str:
        """The line of the site where a span begins; empty where the site does not show its source."""
        path = None if span is None else self._path(span.source)
        if span is None or path is None:
            return ""
        page = self._page(path)
        return f"{page}#L{span.source.position(span.start)[0]}" if page else ""

    def page(self, source: Source) -> str | None:
        """The site's file that shows a source; None where none does."""
        path = self._path(source)
        return None if path is None else self._page(path)

    def _page(self, path: str) -> str | None:
        return module_page(path.removeprefix("std:")) if path.startswith("std:") else self.page_of(path)

    def blocks(self) -> dict[str, CheckedBlock]:
        """Every block that the program reaches, by identity (`std.nn.linear::Linear`)."""
        modules = self.program.modules.values() if self.program else ()
        return {block.identity: block for module in modules for block in module.blocks.values()}

    def children(self, block: CheckedBlock) -> list[tuple[str, CheckedBlock]]:
        """The child blocks of a block, by member; an array's once."""
        found = []
        for member in block.members.values():
            type = member.type.inner if isinstance(member.type, OptionalType) else member.type
            type = type.inner if isinstance(type, BlockArrayType) else type
            if isinstance(type, BlockType):
                found.append((member.name, type.block))
        return found

    def symbols(self, only: Source | None = None) -> list[Symbol]:
        """The blocks and functions of the package's own modules, methods included, or those of one source."""
        found: list[Symbol] = []
        for module in self.program.modules.values() if self.program else ():
            path = self._path(module.source)
            if (path is None or path.startswith("std:")) if only is None else module.source is not only:
                continue
            for block in module.blocks.values():
                found.append(self._symbol(block.name, "block", block))
                found += [self._symbol(f"{block.name}.{item.name}", item.kind, item) for item in block.methods.values()]
            found += [self._symbol(item.name, item.kind, item) for item in module.functions.values()]
        shown = [symbol for symbol in found if symbol.target]
        return sorted(shown, key=lambda symbol: int(symbol.target.rpartition("#L")[2])) if only else shown

    def _symbol(self, name: str, kind: str, item: CheckedBlock | CheckedFunction) -> Symbol:
        return Symbol(name, kind, self.place(item.span), item.doc or "", item.public)

    def _path(self, source: Source) -> str | None:
        """A source's path in the package, `std:MODULE` for the standard library's, None for one outside."""
        if source not in self._paths:
            self._paths[source] = _path_of(source.name, self.folder)
        return self._paths[source]

    def _type(self, reference: Reference, block: CheckedBlock | None) -> str:
        known = self.generics.get(block.identity, []) if block is not None else []
        text = _declaration(reference, known)
        if reference.type is not None and (concrete := concrete_types(reference.type, known)):
            text += f" = {' or '.join(concrete)}"
        return text if len(text) <= TYPE_CHARACTERS else f"{text[: TYPE_CHARACTERS - 1]}…"


def read_code(
    folder: Path,
    path: str,
    root: str | None,
    generics: Mapping[str, int | str],
    page_of: PageOf,
    *,
    checked: CheckResult | None = None,
) -> Code | None:
    """The program of the package in `folder`, whose source is `path`; None where it cannot be read.

    `checked` is its check, where that was just made.
    """
    if checked is None:
        try:
            checked = load(folder / path)
        except (OSError, ValueError):
            return None
    code = Code(checked, folder, page_of)
    if checked.program is not None:
        try:
            code.bound = bind(checked.program, root, generics)
        except (BindError, DimError):
            return code
        code.generics = instances(checked.program, PackageGenerics(folder / path, root, generics, "", {}))
    return code


def _path_of(name: str, folder: Path) -> str | None:
    path = Path(name)
    if not path.is_absolute() and path.parts[:1] == (STD_ROOT.name,) and (STD_ROOT.parent / path).is_file():
        return "std:" + ".".join(path.with_suffix("").parts)
    resolved = path.resolve()
    if resolved.is_relative_to(STD_ROOT):
        return "std:" + ".".join((STD_ROOT.name, *resolved.relative_to(STD_ROOT).with_suffix("").parts))
    base = folder.resolve()
    return resolved.relative_to(base).as_posix() if resolved.is_relative_to(base) else None


def _declaration(reference: Reference, known: Sequence[Mapping[str, Concrete]]) -> str:
    """What a name is, on one line."""
    target = reference.target
    match target:
        case LoadedModule():
            return f"module {target.key}"
        case PreludeFunction():
            return " · ".join(PRELUDE.get(target.name, (target.name,)))
        case GenericDecl():
            values = dict.fromkeys(str(values[target.name]) for values in known if target.name in values)
            return f"{target.name}: {target.kind}" + (f" = {' or '.join(values)}" if 0 < len(values) <= 3 else "")
        case CheckedBlock():
            names = ", ".join(generic.name for generic in target.generics)
            return f"block {target.name}<{names}>" if names else f"block {target.name}"
        case CheckedFunction():
            return reference.type_text or target.name
        case CheckedMember():
            return f"{target.kind} {target.name}: {reference.type_text}"
    return f"{reference.name}: {reference.type_text}" if reference.type_text else reference.name
