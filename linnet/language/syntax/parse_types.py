"""Types, generics and `where` clauses."""

from __future__ import annotations

from difflib import get_close_matches

from linnet.language.program.types import DTYPES
from linnet.language.syntax.parse_expressions import ExpressionParser
from linnet.language.syntax.tree import (
    ArrayTypeNode,
    Expr,
    Generic,
    OptionalTypeNode,
    TensorTypeNode,
    TupleTypeNode,
    TypeNode,
)

KINDS = ("Dim", "Shape", "DType", "Numeric", "Integer", "Float")
"""What a generic may stand for."""


class TypeParser(ExpressionParser):
    def type(self) -> TypeNode:
        """type = ( tensor | tuple | array | named_type ) { "?" }"""
        self.deeper()
        start = self.token.start
        node = self.plain_type()
        if self.accept("?"):
            node = OptionalTypeNode(self.since(start), node)
        while extra := self.accept("?"):
            help = "it holds a value or `none`, and one `?` says so"
            self.error("E1101", "an optional cannot be made optional again", self.span_of(extra), help)
        self.nesting -= 1
        return node

    def plain_type(self) -> TypeNode:
        """plain_type = "Tensor" "[" axes ";" dtype "]" | "(" types ")" | "[" type ";" expression "]" | named_type"""
        token = self.token
        if token.kind == "name" and token.text == "Tensor" and self.peek().kind == "[":
            return self.tensor_type()
        if token.kind == "(":
            self.next()
            if self.at(")"):
                raise self.unexpected("a type")
            items = self.comma_list(")", self.type)
            self.close(")", token, "the tuple type")
            if len(items) == 1 and self.tokens[self.index - 2].kind != ",":
                return items[0]
            return TupleTypeNode(self.since(token.start), tuple(items))
        if token.kind == "[":
            self.next()
            inner = self.type()
            self.expect(";", "and the number of blocks", help="a block array is written `[Layer<H, T>; Layers]`")
            count = self.expression()
            self.close("]", token, "the block array")
            return ArrayTypeNode(self.since(token.start), inner, count)
        if token.kind == "name" and self.peek().kind == "[":
            return self.misspelt_tensor()
        return self.named_type()

    def misspelt_tensor(self) -> TensorTypeNode:
        """A name before `[` that is not `Tensor`: reported as that where it is like it, and read as one."""
        name = self.token
        if not get_close_matches(name.text.lower(), ["tensor"], 1):
            self.next()
            help = f"a tensor is `Tensor[..; f32]`; generic arguments stand in angles: `{name.text}<..>`"
            raise self.unexpected("the end of the type", help=help)
        self.error("E1201", f"unknown type `{name.text}`", self.span_of(name), "did you mean `Tensor`?")
        return self.tensor_type()

    def tensor_type(self) -> TensorTypeNode:
        """tensor = "Tensor" "[" { axis "," } [ axis ] ";" named_type "]" """
        start = self.next().start
        opener = self.next()
        axes = self.comma_list(";", self.axis)
        if self.at("]"):
            written = [axis.span.text for axis in axes]
            dtype_text = written.pop() if written and written[-1] in DTYPES else "f32"
            help = f"for example `Tensor[{', '.join(written)}; {dtype_text}]`"
            raise self.unexpected("`;` and an element type after the axes", help=help)
        self.expect(";", "after the axes")
        dtype = self.named_type()
        self.close("]", opener, "the tensor type")
        return TensorTypeNode(self.since(start), tuple(axes), dtype)

    def generics(self) -> tuple[Generic, ...]:
        """generics = [ "<" { generic "," } [ generic ] ">" ]"""
        if not self.at("<"):
            return ()
        opener = self.next()
        found = self.comma_list(">", self.generic)
        self.close_angle(opener)
        return tuple(found)

    def generic(self) -> Generic:
        """generic = [ "*" ] NAME ":" KIND [ "=" generic_arg ]"""
        start = self.token.start
        star = self.accept("*") is not None
        name = self.name("a generic")
        self.expect(":", f"and the kind of `{name.text}`", help=f"the kinds are {', '.join(KINDS)}")
        if not self.at("name") or self.token.text not in KINDS:
            raise self.unexpected(f"a kind ({', '.join(KINDS)})")
        kind = self.name("a kind")
        default = None
        if self.accept("="):
            was_in_generics, self.in_generics = self.in_generics, True
            try:
                default = self.generic_arg()
            finally:
                self.in_generics = was_in_generics
        if star != (kind.text == "Shape"):
            message = (
                f"a generic with `*` is a `Shape`, not a `{kind.text}`"
                if star
                else "a `Shape` generic is written with a `*`"
            )
            help = f"write `*{name.text}: Shape`"
            self.error("E1101", message, self.since(start), help)
        return Generic(self.since(start), name, star, kind, default)

    def where(self) -> tuple[Expr, ...]:
        """where = [ "where" expression { "," expression } [ "," ] ]"""
        if not self.accept("where"):
            return ()
        clauses: list[Expr] = []
        while not (self.at("{") or self.at_clause()):
            clauses.append(self.expression())
            if self.accept(",") is None:
                break
        if not clauses:
            raise self.unexpected("a condition after `where`")
        return tuple(clauses)

    def at_clause(self) -> bool:
        """Whether a `kernel` or `grad` clause begins here."""
        if self.at("kernel"):
            return self.peek().kind == "name"
        return self.at("name") and self.token.text == "grad" and self.peek().kind == "("
