"""What an expression means during lowering: graph values, or structure that exists at compile time only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from linnet.language.program.core import ResultTree, Value
from linnet.language.program.instances import Instance, InstanceArray
from linnet.language.source import Span


class LowerError(Exception):
    """A checked program that has no Core IR: a structure chosen only at run time. `span` is where."""

    def __init__(self, message: str, span: Span | None = None) -> None:
        super().__init__(f"{span.location()}: {message}" if span else message)
        self.span = span


class Absent(Enum):
    """The only member stands for `none`; a present optional is its value."""

    NONE = "none"


ABSENT = Absent.NONE


@dataclass(frozen=True, slots=True)
class Variant:
    """A value of an enum."""

    name: str


Lowered = Value | Instance | InstanceArray | Absent | Variant | str | tuple["Lowered", ...] | dict[str, "Lowered"]


def flatten(value: Lowered) -> list[Value]:
    """The graph values inside, in order."""
    if isinstance(value, Value):
        return [value]
    if isinstance(value, tuple):
        return [leaf for item in value for leaf in flatten(item)]
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in flatten(item)]
    return []


def rebuild(template: Lowered, leaves: list[Value]) -> Lowered:
    """`template` with its graph values replaced, in order, by `leaves`, which is emptied."""
    if isinstance(template, Value):
        return leaves.pop(0)
    if isinstance(template, tuple):
        return tuple(rebuild(item, leaves) for item in template)
    if isinstance(template, dict):
        return {name: rebuild(item, leaves) for name, item in template.items()}
    return template


def same_structure(a: Lowered, b: Lowered) -> bool:
    """Whether two values differ at most in their graph values."""
    if isinstance(a, Value) or isinstance(b, Value):
        return isinstance(a, Value) and isinstance(b, Value) and a.spec == b.spec
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(same_structure(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same_structure(a[name], b[name]) for name in a)
    return a == b


def leaf_names(name: str, value: Lowered) -> list[str]:
    """A name for each graph value inside: `p` itself, `p.0`, `p.field`."""
    if isinstance(value, Value):
        return [name]
    if isinstance(value, tuple):
        return [leaf for i, item in enumerate(value) for leaf in leaf_names(f"{name}.{i}", item)]
    if isinstance(value, dict):
        return [leaf for key, item in value.items() for leaf in leaf_names(f"{name}.{key}", item)]
    return []


def structure_key(value: Lowered) -> object:
    """Equal for values of the same structure: what an op's body depends on besides its generics."""
    if isinstance(value, Value):
        return value.spec
    if isinstance(value, tuple):
        return tuple(structure_key(item) for item in value)
    if isinstance(value, dict):
        return tuple((name, structure_key(item)) for name, item in value.items())
    return value


def result_tree(value: Lowered) -> tuple[ResultTree, tuple[Value, ...]]:
    """How an entry's result is put together from flat outputs, and those outputs."""
    outputs: list[Value] = []

    def visit(item: Lowered) -> ResultTree:
        if isinstance(item, Value):
            outputs.append(item)
            return len(outputs) - 1
        if isinstance(item, tuple):
            return tuple(visit(part) for part in item)
        if isinstance(item, dict):
            return {name: visit(part) for name, part in item.items()}
        if item is ABSENT:
            return None
        raise LowerError("an entry returns tensors, not a block, an enum or text")

    return visit(value), tuple(outputs)
