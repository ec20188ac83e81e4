"""Statements."""

from __future__ import annotations

from collections.abc import Callable

from linnet.language.diagnostics import Diagnostic
from linnet.language.source import Source, Span
from linnet.language.syntax.cursor import ITEM_WORDS, MEMBER_WORDS, STATEMENT_WORDS, DueBrackets, ParseError
from linnet.language.syntax.lexer import Lexed, Token
from linnet.language.syntax.parse_expressions import BEGINS_OPERAND
from linnet.language.syntax.parse_types import TypeParser
from linnet.language.syntax.tree import (
    AssignStmt,
    CallExpr,
    Expr,
    ForStmt,
    LetIndexStmt,
    LetStmt,
    Name,
    NameExpr,
    ReturnStmt,
    StaticForStmt,
    Stmt,
    WhileStmt,
    YieldStmt,
)

DECLARATIONS = ITEM_WORDS | MEMBER_WORDS

STATEMENT_HABITS = {
    "def": "a function is a `fn` of the module, or a method of a block",
    "assert": "what must hold of dimensions is said in a `where` clause",
    "elif": "write `else if`",
    "raise": "nothing is raised: what must hold of dimensions is said in a `where` clause",
    "print": "nothing prints: return the value",
    "pass": "a function ends with `return value`",
    "import": "imports stand at the top: `use std.nn.linear::{linear}`",
    "from": "imports stand at the top: `use std.nn.linear::{linear}`",
    "del": "values need no deleting",
    "with": "statements need no context",
}
"""Words that statements of other languages begin with, and what to write."""


class StatementParser(TypeParser):
    """`trusts_layout`: a declaration no further right than what encloses it shows that a `}` is missing. `read_layout`
    says whether one was found so."""

    def __init__(self, source: Source, lexed: Lexed, *, trusts_layout: bool = True) -> None:
        super().__init__(source, lexed)
        self.trusts_layout = trusts_layout
        self.read_layout = False
        self.semicolon_reported = False
        # The token before which something ended without its `}`.
        self.unclosed_at = -1

    def body(self, what: str, owner: Token) -> tuple[Stmt, ...]:
        """body = "{" { statement } "}"

        `what` names what the body belongs to, `owner` is its first token: a declaration that begins no further right
        than `owner` ends an unclosed body.
        """
        opener = self.expect("{", f"to open {what}")
        statements: list[Stmt] = []
        ended = False

        def resume(begun: int) -> None:
            nonlocal ended
            ended = self.next_statement(owner, begun)

        while not ended and not self.at("}"):
            if self.semicolon():
                continue
            with self.recovering(resume):
                self.check_unclosed(opener, what, owner)
                statement = self.statement(owner)
                if statement is not None:
                    statements.append(statement)
        if not ended:
            self.next()
        return tuple(statements)

    def semicolon(self) -> bool:
        """Takes a stray `;`. Whoever ends statements with it does so everywhere: the first is reported for all."""
        if not self.at(";"):
            return False
        if not self.semicolon_reported:
            help = "Linnet has no semicolons: a statement ends where the next one begins; remove them all"
            self.error("E1101", "a `;` stands between statements", self.span_of(self.token), help)
            self.semicolon_reported = True
        self.next()
        return True

    def check_unclosed(self, opener: Token, what: str, owner: Token) -> None:
        """The fault that `}` is missing, where it is; unless it is reported already for something inside."""
        if self.unclosed_at == self.index:
            self.token.suspect = True
        if self.at("end") or self.ends_unclosed(owner):
            self.close("}", opener, what)

    def ends_unclosed(self, owner: Token) -> bool:
        """Whether a declaration begins here, no further right than `owner`: then a `}` is missing before it."""
        declares = self.trusts_layout and self.token.kind in DECLARATIONS and self.token.first
        if not declares or self.column(self.token) > self.column(owner):
            return False
        self.read_layout = True
        return True

    def next_statement(self, owner: Token, begun: int) -> bool:
        """Skips to where a statement may begin or the body ends; True if it ended without its `}`."""

        def stops(due: DueBrackets) -> bool:
            kind = self.token.kind
            if kind in STATEMENT_WORDS:
                # Inside brackets it may belong to what cannot be read, unless it begins a line no further right.
                outside = self.token.first and self.column(self.token) <= self.column(self.tokens[begun])
                return not due or outside
            if due:
                return False
            names = kind == "name" and self.peek().kind == "="
            return kind == ";" or ((names or kind in ("for", "if", "match")) and self.token.first)

        return self.resync_or_end(owner, begun, stops)

    def resync_or_end(self, owner: Token, begun: int, stops: Callable[[DueBrackets], bool]) -> bool:
        """`resync`, no further than the `}` of what `owner` began, or to where it ends without one: then True."""

        def stops_or_ends(due: DueBrackets) -> bool:
            return (self.at("}") and "}" not in due) or self.ends_unclosed(owner) or stops(due)

        if not self.ends_unclosed(owner):
            self.resync(begun, stops_or_ends)
        if self.at("end") or self.ends_unclosed(owner):
            self.unclosed_at = self.index
            return True
        return False

    def statement(self, owner: Token) -> Stmt | None:
        """statement = let | var | assignment | return | yield | static_for | while | for"""
        token = self.token
        kind = token.kind
        if kind in ("let", "var"):
            return self.let(owner)
        if kind == "name" and self.peek().kind == "=":
            name = self.name("a variable")
            self.next()
            value = self.expression()
            return AssignStmt(self.since(token.start), name, value)
        if kind in ("return", "yield"):
            self.next()
            if self.at("}"):
                raise self.unexpected(f"a value after `{kind}`")
            value = self.expression()
            return (ReturnStmt if kind == "return" else YieldStmt)(self.since(token.start), value)
        if kind == "static":
            return self.static_for(owner)
        if kind == "while":
            self.deeper()
            self.next()
            condition = self.expression()
            body = self.body("the `while` loop", owner)
            self.nesting -= 1
            return WhileStmt(self.since(token.start), condition, body)
        if kind == "for":
            return self.for_loop(None, token.start, owner)
        if kind == "name" and not token.suspect:
            self.not_a_statement()
            return None
        if kind == "self" and self.peek().kind == ".":
            help = "there is no `self`: members are bare names, and a block assigns its own `state`: `name = ..`"
            raise self.unexpected("a statement or `}`", help=help, here=True)
        if kind == "if" and not token.first:
            raise self.unexpected("a statement or `}`", help="a choice is written `if c { a } else { b }`", here=True)
        if kind in ("if", "match"):
            article = "an" if kind == "if" else "a"
            help = f"{article} `{kind}` is an expression: write `let x = {kind} ..` or `x = {kind} ..`"
            raise self.unexpected("a statement or `}`", help=help, here=True)
        local = "a local constant is written `let`" if kind == "const" else None
        if kind == ":":
            local = (
                "a body stands in braces, `{ .. }`" if self.peek().first else "a type stands behind the name of a `let`"
            )
        raise self.unexpected("a statement or `}`", help=local, here=True)

    def let(self, owner: Token) -> Stmt:
        """let = ( "let" | "var" ) ( NAME [ ":" type ] | "(" names ")" | NAME indices ) "=" ( expression | for )"""
        token = self.next()
        mutable = token.kind == "var"
        if self.at("mut") and self.peek().kind == "name":
            self.error(
                "E1101", "there is no `let mut`", self.span_of(self.token), "write `var` for a local that changes"
            )
            self.next()
            mutable = True
        names: list[Name]
        is_tuple = False
        if self.at("("):
            opener = self.next()
            is_tuple = True
            names = self.comma_list(")", lambda: self.name("a variable"))
            if not names:
                raise self.unexpected("a name for a variable")
            self.close(")", opener, "the names")
        else:
            names = [self.name("a variable")]
            if self.at("[") and not mutable:
                indices = self.indices(f"`{names[0].text}`")
                self.expect("=", "after the indices")
                value = self.expression()
                return LetIndexStmt(self.since(token.start), names[0], indices, value)
            if self.at("["):
                raise self.unexpected("`:` or `=` after the name", help="a tensor defined by its elements is a `let`")
        annotation = self.type() if self.accept(":") else None
        self.expect("=", f"and a value after `{token.kind} {names[0].text}`" if not is_tuple else "after the names")
        if self.at("for") and not is_tuple and not mutable and annotation is None:
            return self.for_loop(names[0], token.start, owner)
        if self.at("for"):
            raise self.unexpected("an expression", help="only a plain `let name = for ..` collects what a loop yields")
        value = self.expression()
        return LetStmt(self.since(token.start), tuple(names), is_tuple, mutable, annotation, value)

    def static_for(self, owner: Token) -> StaticForStmt:
        """static_for = "static" "for" NAME "in" expression [ ".." expression ] body"""
        self.deeper()
        start = self.next().start
        self.expect("for", "after `static`")
        name = self.loop_variable()
        first = self.expression()
        self.refuse_range_call(first)
        stop = self.expression() if self.accept("..") else None
        body = self.body("the `static for` loop", owner)
        self.nesting -= 1
        span = self.since(start)
        if stop is None:
            return StaticForStmt(span, name, first, None, None, body)
        return StaticForStmt(span, name, None, first, stop, body)

    def for_loop(self, result: Name | None, start: int, owner: Token) -> ForStmt:
        """for = "for" NAME "in" expression ".." expression body"""
        self.deeper()
        self.next()
        name = self.loop_variable()
        first = self.expression()
        self.refuse_range_call(first)
        self.expect("..", "and the end of the range", help="a loop over a `sub` array is a `static for`")
        stop = self.expression()
        body = self.body("the `for` loop", owner)
        self.nesting -= 1
        return ForStmt(self.since(start), result, name, first, stop, body)

    def loop_variable(self) -> Name:
        """NAME "in" """
        if self.at("("):
            bare = "write `for i in a..b { .. }`, without parentheses"
            raise self.unexpected("a name for the loop variable", help=bare)
        name = self.name("the loop variable")
        self.expect("in", "after the loop variable", help="a loop has one variable" if self.at(",") else None)
        return name

    def refuse_range_call(self, first: Expr) -> None:
        """Refuses `range(..)` as what a loop runs over."""
        if not isinstance(first, CallExpr) or not isinstance(first.callee, NameExpr) or first.callee.name != "range":
            return
        bounds = [arg.span.text for arg in first.args[:2]]
        written = "..".join(bounds if len(bounds) == 2 else ["0", *bounds]) if bounds else "0..N"
        message = "a loop runs over a range, which is no call"
        raise ParseError(Diagnostic("E1101", message, first.span, help=f"write `{written}`"))

    def not_a_statement(self) -> None:
        """Reports a statement that begins with a name and assigns to something other than a name, or to nothing."""
        token = self.token
        if self.peek().kind in ("+", "-", "*", "/", "%", "|", "&", "^") and self.peek(2).kind == "=":
            operator = self.peek().kind
            self.next()
            help = f"write `{token.text} = {token.text} {operator} ..`"
            span = Span(self.source, self.token.start, self.peek().end)
            self.error("E1101", f"there is no `{operator}=`", span, help)
            self.next()
            self.next()
            self.expression()
            return
        if self.peek().kind in ("+", "-") and self.peek(2).kind == self.peek().kind:
            operator = self.peek().kind
            message = f"there is no `{operator}{operator}`"
            help = f"write `{token.text} = {token.text} {operator} 1`"
            raise ParseError(Diagnostic("E1101", message, self.span_of(token), help=help))
        if token.text in STATEMENT_HABITS and (self.peek().kind in BEGINS_OPERAND or self.peek().kind == ":"):
            help = STATEMENT_HABITS[token.text]
            raise ParseError(Diagnostic("E1101", f"there is no `{token.text}`", self.span_of(token), help=help))
        target: Expr = self.postfix()
        if self.at(":") and isinstance(target, NameExpr):
            help = f"a typed local is written `let {target.name}: .. = ..`"
            raise ParseError(Diagnostic("E1101", "an expression is not a statement", target.span, help=help))
        if self.at(","):
            help = "a tuple is taken apart by `let (a, b) = ..`; a `var` is assigned alone"
            raise ParseError(Diagnostic("E1101", "an expression is not a statement", target.span, help=help))
        if self.at("="):
            self.next()
            self.expression()
            if target.span.text.endswith("]"):
                message = "an element of a tensor cannot be assigned"
                help = "tensors are values: define a new one with `let name[i] = ..`"
            else:
                message = "a member of something else cannot be assigned"
                help = "a block assigns only its own `state`: give the child a method that does it"
            self.error("E2108", message, target.span, help)
            return
        text = target.span.text if len(target.span.text) <= 40 and "\n" not in target.span.text else f"{token.text} .."
        help = f"name its value, as in `let y = {text}`, or `return` it"
        self.error("E1101", "an expression is not a statement", target.span, help)
