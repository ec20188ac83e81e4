"""Expressions, types and lists of them as documents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from linnet.language.syntax.doc import Comma, Concat, Doc, Group, Hard, Indent, Line, Text, Value
from linnet.language.syntax.formatter_cursor import NOTHING, SPACE, FormatCursor
from linnet.language.syntax.parse_expressions import PRECEDENCE
from linnet.language.syntax.tree import (
    ArrayTypeNode,
    BinaryExpr,
    CallExpr,
    EllipsisItem,
    Expr,
    Generic,
    GenericArg,
    IfExpr,
    IndexExpr,
    ListExpr,
    MatchArm,
    MatchExpr,
    MemberExpr,
    Name,
    NamedArg,
    NamedType,
    OptionalTypeNode,
    PackAxis,
    Position,
    ReduceExpr,
    ShapeArg,
    SliceItem,
    SomeExpr,
    TensorTypeNode,
    TupleExpr,
    TupleTypeNode,
    TypeNode,
    UnaryExpr,
)

N = TypeVar("N")

_BRACKETED = CallExpr | IndexExpr | SomeExpr | TupleExpr | ListExpr | IfExpr | MatchExpr | UnaryExpr
"""Values that break inside themselves before they leave the line that they begin on."""


class ExpressionFormatter(FormatCursor):
    """Each method takes the tokens of the node it is given, from the current one on, and returns their document."""

    # Lists

    def bracketed(
        self,
        opener: str,
        closer: str,
        items: Sequence[N],
        each: Callable[[N], Doc],
        is_tuple: bool = False,
    ) -> tuple[Doc, bool]:
        """A list, and whether it is to stay broken because its last item has a comma in the source.

        Its line breaks belong to the group around it. The comma after a tuple's only item is part of its meaning.
        """
        alone = is_tuple and len(items) == 1
        opening, beside = self.take(opener), self.trailing()
        inside: list[Doc] = []
        comma = False
        for position, item in enumerate(items):
            inside.append(Line(" ", self.blank_before()) if position else Line())
            inside += [self.comments_before(), each(item)]
            comma = self.at(",")
            needed = position < len(items) - 1 or (alone and comma)
            inside.append(Text(",") if needed else Comma())
            if comma:
                inside.append(self.comments_left())
                self.skip()
            inside.append(self.trailing())
        left = self.comments_left(blanks=True)
        if not items and not beside.forced and left is NOTHING:
            return Concat(opening, beside, self.take(closer)), False
        end = Line() if items else Hard()
        return Concat(opening, beside, Indent(*inside, left), end, self.take(closer)), comma and not alone

    def list_group(
        self,
        opener: str,
        closer: str,
        items: Sequence[N],
        each: Callable[[N], Doc],
        is_tuple: bool = False,
        follows: Group | None = None,
    ) -> Group:
        listed, comma = self.bracketed(opener, closer, items, each, is_tuple)
        return Group(listed, forced=comma, follows=follows)

    def enclosed(self, opener: str, closer: str, inside: Callable[[], Doc]) -> Group:
        """One thing in brackets."""
        head = Concat(self.take(opener), self.trailing())
        return Group(head, Indent(Line(), inside(), self.comments_left()), Line(), self.take(closer))

    def name(self, _: Name) -> Doc:
        return self.take()

    def path(self, path: Sequence[Name]) -> Doc:
        parts = [self.take()]
        for _ in path[1:]:
            parts += [self.take("."), self.take()]
        return Concat(*parts)

    def index_name(self, index: Name | PackAxis) -> Doc:
        return self.pack(index) if isinstance(index, PackAxis) else self.take()

    def pack(self, _: PackAxis) -> Doc:
        return Concat(self.take("*"), self.take())

    # Expressions

    def expression(self, node: Expr) -> Doc:
        before = self.comments_before()
        doc = self.grouped(node) if self.at("(") else self.bare(node)
        return doc if before is NOTHING else Concat(before, doc)

    def grouped(self, node: Expr) -> Doc:
        """An expression in its parentheses: one pair where there are several, none around a tuple.

        Where comments stand beside them, all stay.
        """
        count = self.parentheses(node)
        kept = 0 if isinstance(node, TupleExpr) else 1
        if count <= kept or self.comments_beside(count):
            kept = count
        heads = [Concat(self.take("("), self.trailing()) for _ in range(kept)]
        for _ in range(count - kept):
            self.skip()
        doc: Doc = Concat(self.comments_before(), self.bare(node))
        for _ in range(count - kept):
            self.skip()
        for head in reversed(heads):
            doc = Group(head, Indent(Line(), doc, self.comments_left()), Line(), self.take(")"))
        return doc

    def comments_beside(self, count: int) -> bool:
        """Whether comments stand right inside the `count` pairs of parentheses from the current token on."""
        inner, last = self.closing[self.index + count - 1], self.closing[self.index]
        opened = self.tokens[self.index + count].comments > self.token.comments
        return opened or self.tokens[last].comments > self.tokens[inner - 1].comments

    def parentheses(self, node: Expr) -> int:
        """How many pairs of parentheses around an expression alone open at the current token."""
        if not self.at("("):
            return 0
        index, count = self.index, 0
        close = self.closing[index]
        if self.token.start != node.span.start or self.tokens[close].end != node.span.end:
            return 0
        while self.closing.get(index) == close and self.tokens[index].kind == "(":
            if isinstance(node, TupleExpr) and self.closing.get(index + 1) != close - 1:
                break
            index, close, count = index + 1, close - 1, count + 1
        return count

    def bare(self, node: Expr) -> Doc:
        """An expression without the parentheses around it."""
        if isinstance(node, BinaryExpr):
            first, rest = self.operands(node)
            return Group(first, Indent(rest))
        if isinstance(node, CallExpr | IndexExpr | MemberExpr):
            return self.postfix(node)
        if isinstance(node, UnaryExpr):
            return self.unary(node)
        if isinstance(node, SomeExpr):
            return Concat(self.take("some"), self.enclosed("(", ")", lambda: self.expression(node.value)))
        if isinstance(node, TupleExpr):
            return self.list_group("(", ")", node.items, self.expression, is_tuple=True)
        if isinstance(node, ListExpr):
            return self.list_group("[", "]", node.items, self.axis)
        if isinstance(node, ReduceExpr):
            head, body = self.reduction(node)
            return Group(head, Indent(Line(" "), body))
        if isinstance(node, IfExpr):
            return self.if_expression(node)
        if isinstance(node, MatchExpr):
            return self.match_expression(node)
        return self.take()

    def operands(self, node: BinaryExpr) -> tuple[Doc, Doc]:
        """The first operand of a chain of operators of one precedence, and what follows it."""
        level = PRECEDENCE[node.op]
        chain: list[BinaryExpr] = []
        left: Expr = node
        while isinstance(left, BinaryExpr) and PRECEDENCE[left.op] == level:
            if chain and self.parentheses(left):
                break
            chain.append(left)
            left = left.left
        first = self.expression(left)
        rest: list[Doc] = []
        for link in reversed(chain):
            before = self.comments_left()
            rest += [SPACE, self.take(link.op), before, self.trailing(), Line(" "), self.expression(link.right)]
        return first, Concat(*rest)

    def unary(self, node: UnaryExpr) -> Doc:
        parts = [self.take(node.op)]
        operand = node.operand
        while isinstance(operand, UnaryExpr) and not self.at("("):
            parts.append(self.take(operand.op))
            operand = operand.operand
        return Concat(*parts, self.expression(operand))

    def postfix(self, node: CallExpr | IndexExpr | MemberExpr) -> Doc:
        chain: list[CallExpr | IndexExpr | MemberExpr] = []
        base: Expr = node
        while isinstance(base, CallExpr | IndexExpr | MemberExpr):
            if chain and self.parentheses(base):
                break
            chain.append(base)
            base = base.callee if isinstance(base, CallExpr) else base.object
        parts = [self.expression(base)]
        for link in reversed(chain):
            if isinstance(link, MemberExpr):
                parts += [self.take("."), self.take()]
            elif isinstance(link, IndexExpr):
                parts.append(self.list_group("[", "]", link.positions, self.position))
            else:
                generics = None
                if link.generics is not None:
                    generics = self.list_group("<", ">", link.generics, self.generic_arg)
                    parts.append(generics)
                args = (*link.args, *link.named)
                parts.append(self.list_group("(", ")", args, self.argument, follows=generics))
        return Concat(*parts)

    def argument(self, node: Expr | NamedArg) -> Doc:
        if isinstance(node, NamedArg):
            return Concat(self.take(), SPACE, self.take("="), SPACE, self.expression(node.value))
        return self.expression(node)

    def axis(self, node: Expr | PackAxis) -> Doc:
        return self.pack(node) if isinstance(node, PackAxis) else self.expression(node)

    def position(self, node: Position) -> Doc:
        if isinstance(node, PackAxis):
            return self.pack(node)
        if isinstance(node, EllipsisItem):
            return self.take()
        if not isinstance(node, SliceItem):
            return self.expression(node)
        parts: list[Doc] = []
        for part in (node.start, node.stop, node.step):
            if part is not None:
                parts.append(self.expression(part))
            if self.at(":", "::"):
                parts.append(self.take())
        return Concat(*parts)

    def reduction(self, node: ReduceExpr) -> tuple[Doc, Doc]:
        """`sum<f32>[k]` and the body."""
        parts = [self.take()]
        if node.accumulate is not None:
            parts += [self.take("<"), self.type(node.accumulate), self.take(">")]
        parts += [self.list_group("[", "]", node.indices, self.index_name), self.trailing()]
        return Concat(*parts), self.expression(node.body)

    def if_expression(self, node: IfExpr) -> Doc:
        parts: list[Doc] = []
        current: Expr = node
        while isinstance(current, IfExpr) and self.at("if"):
            parts += [self.take("if"), SPACE, self.expression(current.condition), SPACE, *self.branch(current.then)]
            parts += [SPACE, self.take("else"), SPACE]
            current = current.otherwise
        return Group(*parts, *self.branch(current))

    def branch(self, node: Expr) -> list[Doc]:
        head = [self.take("{"), self.trailing()]
        inside = Indent(Line(" "), self.expression(node), self.trailing(), self.comments_left())
        return [*head, inside, Line(" "), self.take("}")]

    def match_expression(self, node: MatchExpr) -> Doc:
        head = [self.take("match"), SPACE, self.expression(node.subject), SPACE]
        return Concat(*head, self.braces(node.arms, self.arm))

    def arm(self, arm: MatchArm) -> Doc:
        pattern = [self.take()]
        if arm.pattern.kind == "some":
            pattern += [self.take("("), self.take(), self.take(")")]
        return self.assigned([*pattern, SPACE, self.take("=>")], arm.body)

    def assigned(self, head: list[Doc], node: Expr) -> Doc:
        """A value after `=` or `=>`; it ends a line."""
        after = self.trailing()
        head.append(after)
        if after.forced or self.has_comments():
            return Concat(*head, Indent(Hard(), self.expression(node)))
        if self.parentheses(node):
            return Concat(*head, SPACE, self.expression(node))
        if isinstance(node, ReduceExpr):
            start, body = self.reduction(node)
            return Concat(*head, Value(Concat(start, SPACE, body), Group(start, Indent(Line(" "), body))))
        if isinstance(node, BinaryExpr):
            return Concat(*head, Group(Indent(Line(" "), Group(*self.operands(node)))))
        if isinstance(node, _BRACKETED):
            return Concat(*head, SPACE, self.expression(node))
        return Concat(*head, Group(Indent(Line(" "), self.expression(node))))

    def braces(self, nodes: Sequence[N], each: Callable[[N], Doc]) -> Doc:
        """A body with one node a line."""
        head = [self.take("{"), self.trailing(whole_line=True)]
        inside: list[Doc] = []
        for node in nodes:
            inside += [Hard(bool(inside) and self.blank_before()), each(node), self.trailing(whole_line=True)]
        left = self.comments_left(blanks=True)
        if not inside and left is NOTHING:
            return Concat(*head, self.take("}"))
        return Concat(*head, Indent(*inside, left), Hard(), self.take("}"))

    # Types

    def type(self, node: TypeNode) -> Doc:
        before = self.comments_before()
        doc = self.bare_type(node)
        return doc if before is NOTHING else Concat(before, doc)

    def bare_type(self, node: TypeNode) -> Doc:
        if self.at("(") and self.token.start < node.span.start:
            return self.enclosed("(", ")", lambda: self.type(node))
        if isinstance(node, OptionalTypeNode):
            return Concat(self.type(node.inner), self.take("?"))
        if isinstance(node, TensorTypeNode):
            return self.tensor(node)
        if isinstance(node, TupleTypeNode):
            return self.list_group("(", ")", node.items, self.type, is_tuple=True)
        if isinstance(node, ArrayTypeNode):
            return self.enclosed("[", "]", lambda: self.array(node))
        return self.named_type(node)

    def array(self, node: ArrayTypeNode) -> Doc:
        parts = [self.type(node.inner), self.take(";"), self.trailing(), Line(" ")]
        return Concat(*parts, self.expression(node.count))

    def named_type(self, node: NamedType) -> Doc:
        path = self.path(node.path)
        if node.args is None:
            return path
        return Concat(path, self.list_group("<", ">", node.args, self.generic_arg))

    def tensor(self, node: TensorTypeNode) -> Doc:
        head = [self.take(), self.take("["), self.trailing()]
        inside: list[Doc] = []
        for position, axis in enumerate(node.axes):
            inside += [Line(" " if position else "", bool(position) and self.blank_before()), self.axis(axis)]
            if self.at(","):
                before = self.comments_left()
                self.skip()
                inside += [Text(",") if position < len(node.axes) - 1 else NOTHING, before, self.trailing()]
        if not inside:
            inside.append(Line())
        inside += [self.take(";"), self.trailing(), Line(" "), self.named_type(node.dtype), self.comments_left()]
        return Group(*head, Indent(*inside), Line(), self.take("]"))

    def generic_arg(self, node: GenericArg) -> Doc:
        if isinstance(node, ShapeArg):
            return self.list_group("[", "]", node.axes, self.axis)
        return self.expression(node)

    def generic(self, node: Generic) -> Doc:
        parts = [self.take("*")] if node.star else []
        parts += [self.take(), self.take(":"), SPACE, self.take()]
        if node.default is not None:
            parts += [SPACE, self.take("="), SPACE, self.generic_arg(node.default)]
        return Concat(*parts)

    def generics(self, nodes: Sequence[Generic]) -> Group | None:
        """Generic parameters in their brackets; None where there are no brackets."""
        return self.list_group("<", ">", nodes, self.generic) if self.at("<") else None
