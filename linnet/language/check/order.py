"""Orders and cycles among declarations, found without recursion: a source may chain thousands of them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import fields
from typing import TypeVar

from linnet.language.syntax import tree

Thing = TypeVar("Thing", bound=Hashable)
Label = TypeVar("Label")


def declaration_order(items: Mapping[str, tree.Item]) -> list[str]:
    """The names of a module's items, each after those that its declaration mentions (cycles broken anywhere)."""
    mentions = {name: [other for other in _mentioned(item) if other in items] for name, item in items.items()}
    return list(postorder(items, lambda name: mentions[name]))


def postorder(roots: Iterable[Thing], successors: Callable[[Thing], Iterable[Thing]]) -> Iterator[Thing]:
    """Everything reachable, each thing once and after its successors."""
    seen: set[Thing] = set()
    for root in roots:
        stack = [] if root in seen else [(root, iter(successors(root)))]
        seen.add(root)
        while stack:
            thing, rest = stack[-1]
            for successor in rest:
                if successor not in seen:
                    seen.add(successor)
                    stack.append((successor, iter(successors(successor))))
                    break
            else:
                stack.pop()
                yield thing


def cycles(
    roots: Iterable[Thing], edges: Callable[[Thing], Iterable[tuple[Thing, Label]]]
) -> Iterator[tuple[list[Thing], Label]]:
    """Each cycle as the things along it, the first again at the end, with the label of the edge that closes it."""
    done: set[Thing] = set()
    for root in roots:
        if root in done:
            continue
        path = {root: iter(edges(root))}
        while path:
            thing, rest = next(reversed(path.items()))
            for successor, label in rest:
                if successor in path:
                    along = list(path)
                    yield [*along[along.index(successor) :], successor], label
                elif successor not in done:
                    path[successor] = iter(edges(successor))
                    break
            else:
                del path[thing]
                done.add(thing)


def _mentioned(item: tree.Item) -> list[str]:
    """Names in an item's declaration; bodies and members are checked after all declarations."""
    parts = ("type", "value", "generics", "fields", "parameters", "result", "where")
    return mentioned_names(*(getattr(item, part) for part in parts if hasattr(item, part)))


def mentioned_names(*nodes: object) -> list[str]:
    """Every name written in expressions and types, at any depth."""
    names: list[str] = []
    stack = list(nodes)
    while stack:
        node = stack.pop()
        if isinstance(node, tuple):
            stack.extend(node)
        elif isinstance(node, tree.NameExpr):
            names.append(node.name)
        elif isinstance(node, tree.PackAxis):
            names.append(node.name.text)
        elif isinstance(node, tree.NamedType):
            names.append(node.path[0].text)
            stack.append(node.args)
        elif isinstance(node, tree.Node):
            stack.extend(getattr(node, field.name) for field in fields(node) if field.name != "span")
    return names
