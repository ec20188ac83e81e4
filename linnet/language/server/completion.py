"""What may be written at a place: imports, members behind a point, names in scope, keywords."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from linnet.language.check.members import block_mapping
from linnet.language.check.modules import LoadedModule, Loader, Package
from linnet.language.check.references import Reference
from linnet.language.check.substitute import substitute
from linnet.language.diagnostics import Diagnostics
from linnet.language.program.types import DTYPES, BlockArrayType, BlockType, EnumType, StructType, Type
from linnet.language.server.analysis import Analysis, analyse
from linnet.language.server.hover import PRELUDE
from linnet.language.server.scope import Surroundings, locals_at, surroundings
from linnet.language.source import Source, read_source
from linnet.language.syntax import tree
from linnet.language.syntax.parser import parse

# What stands for the name being written, so that the text around it can be read.
MARK = "linnet_completion"
ITEM_WORDS = ("pub", "use", "const", "type", "struct", "enum", "fn", "op", "entry", "block")
MEMBER_WORDS = ("param", "buffer", "state", "sub", "fn", "pub", "entry")
BODY_WORDS = ("let", "var", "return", "if", "else", "match", "static", "for", "while", "in", "yield", "some", "none")
CONSTANTS = ("true", "false")
TYPE_WORDS = ("Tensor", *DTYPES)

_PATH = re.compile(r"\buse\s+([\w.]*)$")
_NAMES = re.compile(r"\buse\s+([\w.]+?)\s*::\s*\{([^{}]*)$")
_MEMBER = re.compile(r"([\w\])])\s*\.\s*(\w*)$")
_WORD = re.compile(r"[A-Za-z_]\w*$")


@dataclass(frozen=True, slots=True)
class Suggestion:
    """`kind` is one of `references.KINDS`, "keyword" or "type"; `detail` a type or signature."""

    name: str
    kind: str
    detail: str = ""
    doc: str | None = None


def complete(path: Path, text: str, offset: int, overlay: Mapping[Path, str]) -> list[Suggestion]:
    """What may be written at a character offset of `text`, the open file at the resolved `path`."""
    before = text[:offset]
    if (names := _NAMES.search(before)) is not None:
        return list(_importable(path, names[1], names[2], overlay))
    if (written := _PATH.search(before)) is not None:
        return list(_modules(path, written[1]))
    word = _WORD.search(before)
    start = word.start() if word is not None else offset
    end = offset + len(re.match(r"\w*", text[offset:])[0])  # type: ignore[index]
    marked = text[:start] + MARK + text[end:]
    found = analyse(path, {**overlay, path: marked})
    member = _MEMBER.search(before)
    if member is not None and not before[: member.start() + 1].endswith(".."):
        return list(_members(found, path, before, member.start(1) + 1))
    return list(_in_scope(found, path, marked, start))


# Imports


def _modules(path: Path, written: str) -> Iterator[Suggestion]:
    """What may follow in `use a.b`: package keys, then folders and modules."""
    *parents, _ = written.split(".")
    loader = Loader(Diagnostics())
    own, _ = loader.locate(path, path)
    if not parents:
        roots = ["std", *(["crate"] if own.key else []), *own.dependencies]
        yield from (Suggestion(name, "module") for name in roots)
        return
    package = _package(loader, own, parents[0], path)
    if package is None:
        return
    folder = package.source_root.joinpath(*parents[1:])
    found = sorted({entry.stem for entry in folder.glob("*") if entry.is_dir() or entry.suffix == ".linnet"})
    yield from (Suggestion(name, "module") for name in found if not (len(parents) == 1 and name == "lib"))


def _package(loader: Loader, own: Package, key: str, path: Path) -> Package | None:
    if key == "std":
        return loader.std
    if key == "crate":
        return own
    folder = own.dependencies.get(key)
    return loader.package(folder, key, path) if folder is not None else None


def _importable(path: Path, module: str, written: str, overlay: Mapping[Path, str]) -> Iterator[Suggestion]:
    """The public items of a module that are not yet in the list."""
    loader = Loader(Diagnostics())
    own, _ = loader.locate(path, path)
    first, *rest = module.split(".")
    package = _package(loader, own, first, path)
    if package is None:
        return
    file = package.source_root.joinpath(*(rest or ["lib"])).with_suffix(".linnet").resolve()
    if file not in overlay and not file.is_file():
        return
    source = Source(file.name, overlay[file]) if file in overlay else read_source(file, file.name)
    taken = set(re.findall(r"\w+", written.rpartition(",")[0]))
    for item in parse(source, Diagnostics()).items:
        if item.public and item.name.text not in taken:
            yield _item_suggestion(item)


# Members


def _members(found: Analysis, path: Path, before: str, end: int) -> Iterator[Suggestion]:
    """The members of what ends just before the point."""
    at = end
    if before[at - 1] == "]":
        at = _opening(before, at - 1)
    source = found.sources.get(path)
    reference = found.result.references.at(source, at) if source is not None and at > 0 else None
    if reference is None or reference.span.end != at:
        return
    type = reference.type
    if at != end:
        type = type.inner if isinstance(type, BlockArrayType) else None
    if isinstance(reference.target, LoadedModule):
        yield from (_item_suggestion(item) for item in reference.target.tree.items if item.public)
    elif isinstance(reference.target, EnumType):
        yield from (Suggestion(name, "variant") for name in reference.target.variants)
    elif type is not None:
        yield from _of_type(type, reference)


def _of_type(type: Type, reference: Reference) -> Iterator[Suggestion]:
    if isinstance(type, StructType):
        yield from (Suggestion(name, "field", str(field)) for name, field in type.fields)
    if isinstance(type, BlockType):
        mapping = block_mapping(type)
        for member in type.block.members.values():
            yield Suggestion(member.name, member.kind, str(substitute(member.type, mapping)), member.doc)
        for method in type.block.methods.values():
            yield Suggestion(method.name, method.kind, " ".join(method.signature.text.split()), method.doc)


def _opening(text: str, closing: int) -> int:
    """Where the `[` of the `]` at `closing` stands; 0 where it has none."""
    depth = 0
    for at in range(closing, -1, -1):
        depth += {"]": 1, "[": -1}.get(text[at], 0)
        if depth == 0:
            return at
    return 0


# Names in scope


def _in_scope(found: Analysis, path: Path, marked: str, offset: int) -> Iterator[Suggestion]:
    source = found.sources.get(path)
    module = parse(Source(path.name, marked), Diagnostics())
    around = surroundings(module, offset)
    seen: set[str] = {MARK}
    for suggestion in _candidates(found, source, module, around, offset):
        if suggestion.name not in seen:
            seen.add(suggestion.name)
            yield suggestion


def _candidates(
    found: Analysis, source: Source | None, module: tree.Module, around: Surroundings, offset: int
) -> Iterator[Suggestion]:
    function, block = around.function, around.block
    if function is None and block is None:
        yield from (Suggestion(word, "keyword") for word in ITEM_WORDS)
    if function is not None and around.in_body:
        for name in reversed(locals_at(function, offset)):
            known = found.result.references.at(source, name.span.start) if source is not None else None
            yield Suggestion(name.text, "local", known.type_text or "" if known is not None else "")
    for generic in around.generics:
        yield Suggestion(generic.name.text, "generic", f"{'*' if generic.star else ''}{generic.span.text.lstrip('*')}")
    if block is not None:
        for member in block.members if around.in_body else ():
            yield Suggestion(member.name.text, member.kind, member.type.span.text, member.doc)
        yield from (_item_suggestion(method) for method in block.methods if around.in_body)
        if function is None:
            yield from (Suggestion(word, "keyword") for word in MEMBER_WORDS)
    yield from (_item_suggestion(item) for item in module.items)
    for use in module.uses:
        for name in [used.alias or used.name for used in use.names or ()] or [use.alias or use.path[-1]]:
            known = found.result.references.at(source, name.span.start) if source is not None else None
            if known is not None:
                yield Suggestion(name.text, known.kind, known.type_text or "", known.doc)
    if around.in_body:
        yield from (Suggestion(name, "prelude", call, doc) for name, (call, doc) in PRELUDE.items())
        yield from (Suggestion(word, "keyword") for word in (*BODY_WORDS, *CONSTANTS))
    yield from (Suggestion(word, "type") for word in TYPE_WORDS)


def _item_suggestion(item: tree.Item) -> Suggestion:
    match item:
        case tree.FunctionItem():
            return Suggestion(item.name.text, item.kind, " ".join(item.signature.text.split()), item.doc)
        case tree.BlockItem():
            generics = ", ".join(" ".join(generic.span.text.split()) for generic in item.generics)
            return Suggestion(item.name.text, "block", f"<{generics}>" if generics else "", item.doc)
        case tree.ConstItem():
            return Suggestion(item.name.text, "const", item.value.span.text, item.doc)
        case tree.AliasItem():
            return Suggestion(item.name.text, "alias", item.type.span.text, item.doc)
        case tree.StructItem():
            return Suggestion(item.name.text, "struct", "", item.doc)
        case tree.EnumItem():
            return Suggestion(item.name.text, "enum", ", ".join(name.text for name in item.variants), item.doc)
