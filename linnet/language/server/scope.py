"""What surrounds a place in a module: the item, method and statements there, from the tree alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from linnet.language.syntax import tree


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The block and the function that a place is inside of; `in_body` where it is among the function's statements."""

    block: tree.BlockItem | None
    function: tree.FunctionItem | None
    in_body: bool

    @property
    def generics(self) -> tuple[tree.Generic, ...]:
        outer = self.block.generics if self.block is not None else ()
        return (*outer, *(self.function.generics if self.function is not None else ()))


def surroundings(module: tree.Module, offset: int) -> Surroundings:
    """What surrounds a character offset."""
    item = next((item for item in module.items if item.span.start <= offset <= item.span.end), None)
    block = item if isinstance(item, tree.BlockItem) else None
    functions = block.methods if block is not None else [item] if isinstance(item, tree.FunctionItem) else []
    function = next((f for f in functions if f.span.start <= offset <= f.span.end), None)
    in_body = function is not None and offset > function.signature.end
    return Surroundings(block, function, in_body)


def locals_at(function: tree.FunctionItem, offset: int) -> list[tree.Name]:
    """The locals that may be named at an offset inside a function's body: those declared before, innermost last."""
    return [parameter.name for parameter in function.parameters] + list(_declared(function.body, offset))


def _declared(statements: Sequence[tree.Stmt], offset: int) -> Iterator[tree.Name]:
    for statement in statements:
        if statement.span.start >= offset:
            return
        inside = offset <= statement.span.end
        match statement:
            case tree.LetStmt() if not inside:
                yield from statement.names
            case tree.LetIndexStmt():
                if inside:
                    yield from (i.name if isinstance(i, tree.PackAxis) else i for i in statement.indices)
                else:
                    yield statement.name
            case tree.StaticForStmt() | tree.ForStmt():
                if inside:
                    yield statement.name
                    yield from _declared(statement.body, offset)
                elif isinstance(statement, tree.ForStmt) and statement.result is not None:
                    yield statement.result
            case tree.WhileStmt() if inside:
                yield from _declared(statement.body, offset)
