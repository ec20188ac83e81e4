"""Statements, items and modules as documents."""

from __future__ import annotations

from collections.abc import Sequence

from linnet.language.syntax.doc import Concat, Doc, Group, Hard, Indent, Text
from linnet.language.syntax.formatter_cursor import NOTHING, SPACE
from linnet.language.syntax.formatter_expressions import ExpressionFormatter
from linnet.language.syntax.tree import (
    AliasItem,
    AssignStmt,
    BlockItem,
    ConstItem,
    Expr,
    Field,
    ForStmt,
    FunctionItem,
    GradClause,
    Item,
    KernelClause,
    LetIndexStmt,
    LetStmt,
    Member,
    Module,
    Name,
    Node,
    Parameter,
    ReturnStmt,
    StaticForStmt,
    Stmt,
    StructItem,
    UseDecl,
    UseName,
    WhileStmt,
    YieldStmt,
)


def _start(node: Node) -> int:
    return node.span.start


class ItemFormatter(ExpressionFormatter):
    # Statements

    def body(self, statements: Sequence[Stmt]) -> Doc:
        return self.braces(statements, self.statement)

    def statement(self, node: Stmt) -> Doc:
        if isinstance(node, LetStmt):
            return self.let(node)
        if isinstance(node, LetIndexStmt):
            head: list[Doc] = [self.take("let"), SPACE, self.take()]
            head += [self.list_group("[", "]", node.indices, self.index_name), SPACE, self.take("=")]
            return self.assigned(head, node.value)
        if isinstance(node, AssignStmt):
            return self.assigned([self.take(), SPACE, self.take("=")], node.value)
        if isinstance(node, ReturnStmt | YieldStmt):
            return Concat(self.take(), SPACE, self.expression(node.value))
        if isinstance(node, WhileStmt):
            head = [self.take("while"), SPACE, self.expression(node.condition), SPACE]
            return Concat(*head, self.body(node.body))
        return self.for_loop(node)

    def let(self, node: LetStmt) -> Doc:
        head: list[Doc] = [self.take(), SPACE]
        head.append(self.list_group("(", ")", node.names, self.name, is_tuple=True) if node.is_tuple else self.take())
        if node.type is not None:
            head += [self.take(":"), SPACE, self.type(node.type)]
        return self.assigned([*head, SPACE, self.take("=")], node.value)

    def for_loop(self, node: StaticForStmt | ForStmt) -> Doc:
        head: list[Doc] = []
        if isinstance(node, StaticForStmt):
            head += [self.take("static"), SPACE]
        elif node.result is not None:
            head += [self.take("let"), SPACE, self.take(), SPACE, self.take("="), SPACE]
        head += [self.take("for"), SPACE, self.take(), SPACE, self.take("in"), SPACE]
        if isinstance(node, StaticForStmt) and node.iterable is not None:
            head.append(self.expression(node.iterable))
        elif node.start is not None and node.stop is not None:
            head += [self.expression(node.start), self.take(".."), self.expression(node.stop)]
        return Concat(*head, SPACE, self.body(node.body))

    # Items

    def module(self, module: Module) -> Doc:
        parts: list[Doc] = [self.take("module"), SPACE, self.path(module.path), self.trailing(whole_line=True)]
        for node in sorted((*module.uses, *module.items), key=_start):
            parts.append(Hard(self.blank_before()))
            parts += [self.use(node) if isinstance(node, UseDecl) else self.item(node), self.trailing(whole_line=True)]
        return Concat(*parts, self.comments_left(blanks=True))

    def use(self, node: UseDecl) -> Doc:
        parts: list[Doc] = [self.take("use"), SPACE, self.path(node.path)]
        if node.names is not None:
            parts += [self.take("::"), self.list_group("{", "}", node.names, self.use_name)]
        elif node.alias is not None:
            parts += self.alias_name()
        return Concat(*parts)

    def use_name(self, node: UseName) -> Doc:
        return Concat(self.take(), *(self.alias_name() if node.alias is not None else ()))

    def alias_name(self) -> list[Doc]:
        return [SPACE, self.take("as"), SPACE, self.take()]

    def item(self, node: Item | Member) -> Doc:
        head: list[Doc] = [self.take("pub"), SPACE] if self.at("pub") else []
        head += [self.take(), SPACE, self.take()]
        if isinstance(node, FunctionItem):
            return self.function(head, node)
        if isinstance(node, BlockItem):
            return self.block(head, node)
        if isinstance(node, ConstItem):
            if node.type is not None:
                head += [self.take(":"), SPACE, self.type(node.type)]
            return self.assigned([*head, SPACE, self.take("=")], node.value)
        if isinstance(node, Member):
            head += [self.take(":"), SPACE, self.type(node.type)]
            if node.value is not None:
                head += [SPACE, self.take("="), SPACE, self.expression(node.value)]
            return Concat(*head)
        if isinstance(node, AliasItem):
            generics = self.generics(node.generics) or NOTHING
            return Concat(*head, generics, SPACE, self.take("="), SPACE, self.type(node.type))
        if isinstance(node, StructItem):
            generics = self.generics(node.generics) or NOTHING
            return Concat(*head, generics, SPACE, self.braces(node.fields, self.field))
        return Concat(*head, SPACE, self.braces(node.variants, self.variant))

    def field(self, node: Field) -> Doc:
        parts = [self.take(), self.take(":"), SPACE, self.type(node.type)]
        return Concat(*parts, self.comma_left_out())

    def variant(self, _: Name) -> Doc:
        return Concat(self.take(), Text(","), self.comma_left_out())

    def comma_left_out(self) -> Doc:
        """The comments before a comma that ends a line of its own, if it is there."""
        if not self.at(","):
            return NOTHING
        comments = self.comments_left()
        self.skip()
        return comments

    def block(self, head: list[Doc], node: BlockItem) -> Doc:
        generics = self.generics(node.generics) or NOTHING
        where, own_line = self.where(node.where)
        members: list[Member | FunctionItem] = sorted((*node.members, *node.methods), key=_start)
        return Concat(*head, generics, where, Hard() if own_line else SPACE, self.braces(members, self.item))

    def function(self, head: list[Doc], node: FunctionItem) -> Doc:
        generics = self.generics(node.generics)
        parameters, comma = self.bracketed("(", ")", node.parameters, self.parameter)
        signature = [parameters, SPACE, self.take("->"), SPACE, self.type(node.result)]
        parts = [*head, generics or NOTHING, Group(*signature, forced=comma, follows=generics)]
        where, own_line = self.where(node.where)
        parts.append(where)
        clauses = iter(node.clauses)
        while not self.at("{"):
            parts += [self.trailing(whole_line=True), Hard(), self.clause(next(clauses))]
            own_line = True
        parts += [Hard() if own_line else SPACE, self.body(node.body)]
        for clause in clauses:
            parts += [self.trailing(whole_line=True), Hard(), self.clause(clause)]
        return Concat(*parts)

    def parameter(self, node: Parameter) -> Doc:
        parts = [self.take(), self.take(":"), SPACE, self.type(node.type)]
        if node.default is not None:
            parts += [SPACE, self.take("="), SPACE, self.expression(node.default)]
        return Concat(*parts)

    def where(self, clauses: Sequence[Expr]) -> tuple[Doc, bool]:
        """The clauses, and whether the brace after them begins a line."""
        if not clauses:
            return NOTHING, False
        head = [self.trailing(whole_line=True), Hard(), self.take("where")]
        if len(clauses) == 1 and not self.has_comments():
            return Concat(*head, SPACE, self.expression(clauses[0]), self.comma_left_out()), False
        head.append(self.trailing(whole_line=True))
        inside: list[Doc] = []
        for clause in clauses:
            inside += [Hard(bool(inside) and self.blank_before()), self.expression(clause)]
            inside += [Text(",") if clause is not clauses[-1] else NOTHING]
            inside += [self.comma_left_out(), self.trailing(whole_line=True)]
        return Concat(*head, Indent(*inside, self.comments_left(blanks=True))), True

    def clause(self, node: KernelClause | GradClause) -> Doc:
        if isinstance(node, KernelClause):
            parts = [self.take("kernel"), SPACE, self.path(node.path)]
            if node.args is not None:
                parts.append(self.list_group("<", ">", node.args, self.generic_arg))
            return Concat(*parts)
        names = [self.take(), self.list_group("(", ")", node.names, self.name)]
        return Concat(*names, SPACE, self.body(node.body))
