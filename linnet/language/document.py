"""The reference of Linnet modules: a page of Markdown for each, from their declarations and documentation comments."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from linnet.language.diagnostics import Diagnostics
from linnet.language.source import Source, read_source
from linnet.language.syntax import tree
from linnet.language.syntax.formatter import format_source
from linnet.language.syntax.parser import parse

MARK = "<!-- Written by `linnet doc` from the sources: edit their documentation comments instead. -->"
INDEX = "index.md"


class DocumentError(Exception):
    """Modules that no reference can be written of. The message says why."""


@dataclass(frozen=True, slots=True)
class DocumentedModule:
    """A module in canonical style, and the line of its file on which each public declaration begins.

    `lines` is keyed by `item` or `block.method`.
    """

    name: str
    file: str
    syntax: tree.Module
    lines: dict[str, int]

    @property
    def items(self) -> list[tree.Item]:
        return [item for item in self.syntax.items if item.public]


def read_module(path: Path, file: str, diagnostics: Diagnostics) -> DocumentedModule | None:
    """The module of `path`, which messages and pages call `file`; None where it has syntax errors, which are added.

    Raises OSError where the file cannot be read.
    """
    source = read_source(path, file)
    text = format_source(source, diagnostics)
    if text is None:
        return None
    written, canonical = (parse(each, Diagnostics()) for each in (source, Source(file, text)))
    lines = {name: source.position(item.span.start)[0] for name, item in _declarations(written)}
    return DocumentedModule(".".join(name.text for name in canonical.path), file, canonical, lines)


def undocumented(module: DocumentedModule) -> list[str]:
    """The public items and methods without a documentation comment, and the module's own name where it has none."""
    bare = [f"{module.name}::{name}" for name, item in _declarations(module.syntax) if not item.doc]
    return bare if module.syntax.doc else [module.name, *bare]


def reference(
    modules: Iterable[DocumentedModule], title: str, link: Callable[[DocumentedModule], str]
) -> dict[str, str]:
    """File name -> text of the pages: one for each module that has public items, and an index.

    `link` gives the address of a module's source, as the pages' links write it. Raises DocumentError where two modules
    have one name, or none has public items.
    """
    shown = sorted((module for module in modules if module.items), key=lambda module: module.name)
    if not shown:
        raise DocumentError("no module has a public item: mark what callers may use with `pub`")
    for one, other in pairwise(shown):
        if one.name == other.name:
            raise DocumentError(
                f"{one.file} and {other.file} are both `module {one.name}`: rename one, or document them apart"
            )
    pages = {f"{module.name}.md": _page(module, link(module)) for module in shown}
    return {INDEX: _index(title, shown), **pages}


def _declarations(module: tree.Module) -> list[tuple[str, tree.Item]]:
    """The public items and the public methods of blocks, by `item` or `block.method`."""
    found: list[tuple[str, tree.Item]] = []
    for item in module.items:
        if item.public:
            found.append((item.name.text, item))
            if isinstance(item, tree.BlockItem):
                found += [(f"{item.name.text}.{method.name.text}", method) for method in _methods(item)]
    return found


def _methods(block: tree.BlockItem) -> list[tree.FunctionItem]:
    return [method for method in block.methods if method.public]


def _index(title: str, modules: Sequence[DocumentedModule]) -> str:
    rows = []
    for module in modules:
        names = ", ".join(
            f"[`{item.name.text}`]({module.name}.md#{_heading(item).replace(' ', '-').lower()})"
            for item in module.items
        )
        rows.append([f"[{module.name}]({module.name}.md)", _first_sentence(module.syntax.doc or ""), names])
    return _join(MARK, f"# {title}", _table(["module", "about", "items"], rows))


def _page(module: DocumentedModule, address: str) -> str:
    names = ", ".join(sorted((item.name.text for item in module.items), key=str.lower))
    use = f"use {module.name}::{{{names}}}"
    if len(use) > 100:
        use = f"use {module.name}"
    parts = [MARK, f"# {module.name}", module.syntax.doc or "", f"```linnet\n{use}\n```"]
    for item in module.items:
        parts += _item(module, item, address)
    return _join(*parts)


def _item(module: DocumentedModule, item: tree.Item, address: str) -> list[str]:
    name = item.name.text
    parts = [f"## {_heading(item)}"]
    if isinstance(item, tree.FunctionItem):
        return parts + _function(item, item.signature.text, _source(module, name, address))
    if not isinstance(item, tree.BlockItem):
        return [*parts, _fence(item.span.text), item.doc or "", _source(module, name, address)]
    parts += [_fence(item.span.text.partition("{")[0]), item.doc or "", _where(item.where)]
    rows = [[f"`{each.name.text}`", each.kind, f"`{_written(each.type)}`", each.doc or ""] for each in item.members]
    rows = rows if any(row[-1] for row in rows) else [row[:-1] for row in rows]
    if rows:
        parts.append(_table(["member", "kind", "type", "meaning"][: len(rows[0])], rows))
    parts.append(_source(module, name, address))
    for method in _methods(item):
        full = f"{name}.{method.name.text}"
        parts += [f"### {full}", *_function(method, method.signature.text, _source(module, full, address))]
    return parts


def _function(item: tree.FunctionItem, signature: str, source: str) -> list[str]:
    takes = ", ".join(f"`{each.name.text}: {_shape(each.type)}`" for each in item.parameters)
    shapes = f"Shapes: {takes + ' to ' if takes else ''}`{_shape(item.result)}`."
    return [_fence(_dedent(signature)), item.doc or "", shapes, _where(item.where), source]


def _where(clauses: Sequence[tree.Expr]) -> str:
    return f"Requires {', '.join(f'`{clause.span.text}`' for clause in clauses)}." if clauses else ""


def _source(module: DocumentedModule, name: str, address: str) -> str:
    line = module.lines[name]
    return f"Source: [{module.file}:{line}]({address}#L{line})"


def _shape(node: tree.TypeNode) -> str:
    """A type without the dtype of its tensors: `[*S, In]`, `[Out]?`, `([N], [N])`, `f32`."""
    if isinstance(node, tree.TensorTypeNode):
        return f"[{', '.join(' '.join(axis.span.text.split()) for axis in node.axes)}]"
    if isinstance(node, tree.OptionalTypeNode):
        return f"{_shape(node.inner)}?"
    if isinstance(node, tree.TupleTypeNode):
        return f"({', '.join(map(_shape, node.items))})"
    return _written(node)


def _written(node: tree.Node) -> str:
    """A node's text on one line."""
    text = " ".join(node.span.text.split())
    return re.sub(r",? ([>\])])", r"\1", re.sub(r"([<\[(]) ", r"\1", text))


def _dedent(signature: str) -> str:
    """A signature without the four spaces that indent a method."""
    lines = signature.split("\n")
    method = all(not line or line.startswith("    ") for line in lines[1:]) and lines[-1].startswith("    ")
    return "\n".join([lines[0], *(line[4:] if method else line for line in lines[1:])])


def _fence(code: str) -> str:
    return f"```linnet\n{code.rstrip()}\n```"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _heading(item: tree.Item) -> str:
    """The kind tells `block Linear` from `op linear`, whose addresses would otherwise be one."""
    return f"{item.span.text.removeprefix('pub').split(None, 1)[0]} {item.name.text}"


def _first_sentence(doc: str) -> str:
    paragraph = " ".join(doc.partition("\n\n")[0].split())
    return re.split(r"(?<=\.)\s+(?=[A-Z])", paragraph, maxsplit=1)[0]


def _join(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part) + "\n"
