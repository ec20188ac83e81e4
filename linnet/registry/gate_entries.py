"""Two signatures of an entry: what differs, and whether a caller of the one can call the other."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from linnet.language.diagnostics import Diagnostics
from linnet.language.source import Source
from linnet.language.syntax import tree
from linnet.language.syntax.parser import parse


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of a signature: compared without what makes no difference, shown on one line as it is written."""

    key: str
    shown: str = field(compare=False)

    def __str__(self) -> str:
        return f"`{self.shown}`"


@dataclass(frozen=True, slots=True)
class Input:
    """A parameter of an entry; `default` None where a caller must give it."""

    name: str
    type: Text
    default: Text | None


@dataclass(frozen=True, slots=True)
class Signature:
    """An entry as its callers see it, with its inferred generics numbered, so that their names make no difference.

    `generics` are those that no input determines, with their kind and default: a caller gives them by name.
    """

    generics: dict[str, tuple[str, Text | None]]
    inputs: tuple[Input, ...]
    result: Text
    where: frozenset[Text]


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference in words; `breaking` where a call that worked may fail, or mean something else."""

    text: str
    breaking: bool


def parse_signature(text: str) -> Signature | None:
    """The signature in `text`, as an index record has it (`pub entry f<S: Dim>(x: Tensor[S; f32]) -> f32`).

    None where this version's grammar does not have it.
    """
    source = Source("signature", f"module gate\n\npub block Root {{\n{text} {{\nreturn 0\n}}\n}}\n")
    diagnostics = Diagnostics()
    module = parse(source, diagnostics)
    block = module.items[0] if module.items else None
    if diagnostics.has_errors or not isinstance(block, tree.BlockItem) or len(block.methods) != 1:
        return None
    function = block.methods[0]
    types = " ".join(parameter.type.span.text for parameter in function.parameters)
    numbered: dict[str, str] = {}
    given: dict[str, tuple[str, Text | None]] = {}
    for generic in function.generics:
        name = generic.name.text
        if re.search(rf"\b{re.escape(name)}\b", types):
            numbered[name] = f"${len(numbered) + 1}"
        else:
            given[name] = generic.kind.text, _text(generic.default.span.text, {}) if generic.default else None
    inputs = tuple(
        Input(
            item.name.text,
            _text(item.type.span.text, numbered),
            _text(item.default.span.text, numbered) if item.default else None,
        )
        for item in function.parameters
    )
    result = _text(function.result.span.text, numbered)
    return Signature(given, inputs, result, frozenset(_text(item.span.text, numbered) for item in function.where))


def differences(before: str, after: str) -> list[Difference]:
    """What a caller of the signature `before` finds different in `after`; empty where nothing is."""
    old, new = parse_signature(before), parse_signature(after)
    if old is None or new is None:
        was, now = _text(before, {}), _text(after, {})
        return [] if was == now else [Difference(f"it is {now} instead of {was}", True)]
    return [*_inputs(old, new), *_generics(old, new), *_rest(old, new)]


def _inputs(old: Signature, new: Signature) -> Iterator[Difference]:
    for index, (before, after) in enumerate(zip(old.inputs, new.inputs, strict=False), start=1):
        if before.name != after.name:
            yield Difference(f"input {index} is named {after.name} instead of {before.name}", True)
        if before.type != after.type:
            yield Difference(f"{after.name} is {after.type} instead of {before.type}", True)
        if before.default != after.default:
            yield _default(after.name, before.default, after.default)
    for gone in old.inputs[len(new.inputs) :]:
        yield Difference(f"the input {gone.name} is gone", True)
    for extra in new.inputs[len(old.inputs) :]:
        if extra.default is None:
            yield Difference(f"the input {extra.name} is new and has no default", True)
        else:
            yield Difference(f"the input {extra.name} is new, {extra.default} by default", False)


def _generics(old: Signature, new: Signature) -> Iterator[Difference]:
    for name, (kind, default) in old.generics.items():
        if name not in new.generics:
            yield Difference(f"the generic {name} is gone, or taken from the inputs", True)
            continue
        new_kind, new_default = new.generics[name]
        if kind != new_kind:
            yield Difference(f"the generic {name} is a {new_kind} instead of a {kind}", True)
        if default != new_default:
            yield _default(name, default, new_default)
    for name, (_, default) in new.generics.items():
        if name not in old.generics:
            has = "has no default" if default is None else f"is {default} by default"
            yield Difference(f"the generic {name} is new and {has}", default is None)


def _rest(old: Signature, new: Signature) -> Iterator[Difference]:
    if old.result != new.result:
        yield Difference(f"it returns {new.result} instead of {old.result}", True)
    for clause in sorted(new.where - old.where, key=str):
        yield Difference(f"it demands {clause}", True)
    for clause in sorted(old.where - new.where, key=str):
        yield Difference(f"it no longer demands {clause}", False)


def _default(name: str, before: Text | None, after: Text | None) -> Difference:
    if before is None:
        return Difference(f"{name} is {after} by default", False)
    if after is None:
        return Difference(f"{name} has no default, and had {before}", True)
    return Difference(f"{name} is {after} by default instead of {before}", True)


def _text(text: str, numbered: Mapping[str, str]) -> Text:
    """Source text; white space, comments, a comma at a list's end and the names of own generics make no difference."""
    bare = re.sub(r"//[^\n]*", "", text)
    shown = re.sub(r"\s+", " ", re.sub(r",\s*(?=[)\]>])", "", bare)).strip()
    key = shown
    for name, number in numbered.items():
        key = re.sub(rf"(?<![\w$]){re.escape(name)}\b", number, key)
    return Text(re.sub(r"\s*([^\w\s$])\s*", r"\1", key), re.sub(r"(?<=[(\[])\s+|\s+(?=[)\]])", "", shown))
