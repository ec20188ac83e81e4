"""Whether two syntax trees say the same."""

from __future__ import annotations

from dataclasses import fields
from functools import cache

from linnet.language.syntax import tree


def same_tree(one: tree.Node, other: tree.Node) -> bool:
    """Whether two trees are equal but for where their text stands and for comments that document nothing."""
    pairs: list[tuple[object, object]] = [(one, other)]
    while pairs:
        left, right = pairs.pop()
        if type(left) is not type(right):
            return False
        if isinstance(left, tree.Node):
            pairs.extend((getattr(left, name), getattr(right, name)) for name in _compared(type(left).__name__))
        elif isinstance(left, tuple) and isinstance(right, tuple):
            if len(left) != len(right):
                return False
            pairs.extend(zip(left, right, strict=True))
        elif left != right:
            return False
    return True


@cache
def _compared(kind: str) -> tuple[str, ...]:
    """The fields of a class of nodes that carry meaning."""
    places = ("span", "op_span", "signature", "source", "comments")
    return tuple(field.name for field in fields(getattr(tree, kind)) if field.name not in places)
