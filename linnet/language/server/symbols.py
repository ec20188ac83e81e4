"""The outline of a module."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from linnet.language.source import Span
from linnet.language.syntax import tree


@dataclass(frozen=True, slots=True)
class Symbol:
    """`kind` is the keyword that declares it, or "field" or "variant"; `detail` its type as written."""

    name: str
    kind: str
    detail: str
    span: Span
    selection: Span
    children: tuple[Symbol, ...] = ()


def symbols(module: tree.Module) -> tuple[Symbol, ...]:
    """Every item in order, with the members of blocks, the fields of structs and the variants of enums."""
    return tuple(_item(item) for item in module.items)


def _item(item: tree.Item) -> Symbol:
    match item:
        case tree.ConstItem():
            return Symbol(item.name.text, "const", _text(item.type), item.span, item.name.span)
        case tree.AliasItem():
            return Symbol(item.name.text, "type", _text(item.type), item.span, item.name.span)
        case tree.StructItem():
            fields = tuple(Symbol(f.name.text, "field", _text(f.type), f.span, f.name.span) for f in item.fields)
            return Symbol(item.name.text, "struct", "", item.span, item.name.span, fields)
        case tree.EnumItem():
            variants = tuple(Symbol(name.text, "variant", "", name.span, name.span) for name in item.variants)
            return Symbol(item.name.text, "enum", "", item.span, item.name.span, variants)
        case tree.FunctionItem():
            return _function(item)
        case tree.BlockItem():
            inside = tuple(sorted(_members(item), key=lambda symbol: symbol.span.start))
            return Symbol(item.name.text, "block", "", item.span, item.name.span, inside)


def _members(block: tree.BlockItem) -> Iterator[Symbol]:
    for member in block.members:
        yield Symbol(member.name.text, member.kind, _text(member.type), member.span, member.name.span)
    yield from map(_function, block.methods)


def _function(item: tree.FunctionItem) -> Symbol:
    return Symbol(item.name.text, item.kind, f"-> {_text(item.result)}", item.span, item.name.span)


def _text(node: tree.TypeNode | None) -> str:
    return " ".join(node.span.text.split()) if node is not None else ""
