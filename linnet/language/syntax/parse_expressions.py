"""Expressions, index positions and generic arguments."""

from __future__ import annotations

from linnet.language.diagnostics import Diagnostic, Note
from linnet.language.source import Span
from linnet.language.syntax.cursor import Cursor, ParseError
from linnet.language.syntax.lexer import KEYWORDS, RESERVED, Token
from linnet.language.syntax.tree import (
    Axis,
    BinaryExpr,
    BoolLiteral,
    CallExpr,
    EllipsisItem,
    Expr,
    FloatLiteral,
    GenericArg,
    IfExpr,
    IndexExpr,
    IntLiteral,
    ListExpr,
    MatchArm,
    MatchExpr,
    MemberExpr,
    Name,
    NamedArg,
    NamedType,
    NameExpr,
    NoneLiteral,
    PackAxis,
    Pattern,
    Position,
    ReduceExpr,
    ShapeArg,
    SliceItem,
    SomeExpr,
    StringLiteral,
    TupleExpr,
    UnaryExpr,
)

PRECEDENCE = {
    operator: level
    for level, operators in enumerate(
        ("||", "&&", "== !=", "< <= > >=", "|", "^", "&", "+ -", "* / %"),
        start=1,
    )
    for operator in operators.split()
}
"""Binary operators, all left-associative, from loosest (1) to tightest."""

DIMENSION = PRECEDENCE["+"]
"""The loosest operators of a generic argument, so that `>` ends a list of them."""

PREFIX = frozenset("!-+")
REDUCTIONS = frozenset(("sum", "prod", "max", "min", "any", "all"))


BEGINS_OPERAND = frozenset("name int float string true false none some if match ( [".split())
"""Tokens that an operand begins with."""

MISSING_COMMA = "put a `,` between two items"

WORD_OPERATORS = {
    "and": "between scalar bools write `&&`, between bool tensors `&`",
    "or": "between scalar bools write `||`, between bool tensors `|`",
    "is": "compare with `==`; an optional is taken apart: `match v { some(x) => .. none => .. }`",
}
"""Operators of other languages that are words, and what to write."""


class ExpressionParser(Cursor):
    in_generics = False
    """Whether generic arguments are being read: inside them `<` never opens others."""

    def unexpected(
        self, expected: str, notes: tuple[Note, ...] = (), help: str | None = None, here: bool = False
    ) -> ParseError:
        """As the cursor says it, with the way out of another language's habit where one led here."""
        return super().unexpected(expected, notes, self.comment_help() or help or self.habit_help(), here)

    def comment_help(self) -> str | None:
        """The help for a line that `//` cut off where a division was meant, as in `[H // 2]`."""
        previous = self.tokens[self.index - 1] if self.index else self.token
        cut = self.comments[previous.comments : self.token.comments]
        if not cut or not cut[0].text.startswith("//") or cut[0].text.startswith("///"):
            return None
        apart = self.source.text[previous.end : cut[0].span.start]
        divisor = cut[0].text[2:].lstrip()
        if "\n" in apart or not (divisor[:1].isdigit() or divisor[:1] == "(" or divisor[:1].isupper()):
            return None
        return "`//` begins a comment; integers are divided by `/`" if set(divisor) & set(")]};,>") else None

    def habit_help(self) -> str | None:
        """The help for a token that other languages have in this place."""
        token = self.token
        if token.kind == ":" and self.peek().first:
            return "there are no `:` blocks: a body stands in braces, `{ .. }`"
        if token.kind == "?":
            return "a choice is written `if c { a } else { b }`"
        if token.kind == "string" and self.index and self.tokens[self.index - 1].end == token.start:
            return "there are no format strings: text has no use in an expression"
        return None

    def begins_item(self) -> bool:
        """Whether another item of a list seems to begin here."""
        return self.token.kind in BEGINS_OPERAND and not self.at("(", "[")

    def close(self, kind: str, opener: Token, what: str) -> Token:
        """Takes the bracket that closes `opener`; a `,` may be what lacks before something that looks like an item."""
        if self.token.kind != kind and (kind != "}" or what in ("the imports", "the enum")) and self.begins_item():
            here = (self.opens_here(opener),)
            raise self.unexpected(f"`,` or `{kind}` in {what}", here, help=MISSING_COMMA)
        return super().close(kind, opener, what)

    def expression(self, loosest: int = 1) -> Expr:
        """expression = prefix { BINARY prefix }, by precedence; prefix = { "!" | "-" | "+" } postfix

        `loosest` is the loosest binary operator to take.
        """
        self.deeper()
        operands: list[tuple[Expr, int]] = []
        operators: list[Token] = []
        while True:
            operands.append(self.prefix())
            self.refuse_word_operator()
            level = PRECEDENCE.get(self.token.kind, 0)
            if level < loosest:
                level = 0
            while operators and PRECEDENCE[operators[-1].kind] >= level:
                self.reduce(operands, operators.pop())
            if not level:
                break
            operators.append(self.next())
        self.nesting -= 1
        value, self.height = operands[0]
        return value

    def refuse_word_operator(self) -> None:
        """Refuses `a and b`: nothing that is a name stands behind an operand in its line."""
        token = self.token
        if token.kind == "name" and token.text in WORD_OPERATORS and not token.first:
            following = self.peek().kind
            if following in BEGINS_OPERAND or following in PREFIX:
                fault = Diagnostic(
                    "E1101",
                    f"there is no operator `{token.text}`",
                    self.span_of(token),
                    help=WORD_OPERATORS[token.text],
                )
                raise ParseError(fault)

    def reduce(self, operands: list[tuple[Expr, int]], operator: Token) -> None:
        """Joins the last two operands."""
        (left, left_height), (right, right_height) = operands[-2:]
        height = self.grow(max(left_height, right_height), left.span.start)
        span = left.span.to(right.span)
        operands[-2:] = [(BinaryExpr(span, operator.kind, left, right, self.span_of(operator)), height)]

    def prefix(self) -> tuple[Expr, int]:
        """prefix = { "!" | "-" | "+" } postfix"""
        operators: list[Token] = []
        while self.token.kind in PREFIX:
            operators.append(self.next())
        operand = self.postfix()
        height = self.height
        for operator in reversed(operators):
            height = self.grow(height, operator.start)
            operand = UnaryExpr(Span(self.source, operator.start, operand.span.end), operator.kind, operand)
        return operand, height

    def postfix(self) -> Expr:
        """postfix = primary { "." NAME | [ generics ] "(" arguments ")" | "[" positions "]" }

        What follows a name and `<` is generics if it reads as such, closes with `>` and is followed by `(`.
        """
        start = self.token.start
        value = self.primary()
        height = self.height
        while True:
            kind = self.token.kind
            if kind == "(":
                value = self.call(value, None)
                height = max(height, self.height)
            elif kind == "[":
                opener = self.next()
                positions = self.comma_list("]", self.position)
                height = max(height, self.height)
                if not positions:
                    raise self.unexpected("an index or a slice")
                self.close("]", opener, "the index")
                value = IndexExpr(self.since(start), value, tuple(positions))
            elif kind == ".":
                self.next()
                name = self.name("a member", allow_reserved=True)
                value = MemberExpr(self.since(start), value, name)
            elif kind == "<" and not self.in_generics and isinstance(value, NameExpr | MemberExpr):
                # No operand begins with `*`, so `f<*S>(x)` cannot be a comparison and is worth a fault of its own.
                sure = self.peek().kind == "*"
                generics = self.call_generics() if sure else self.attempt(self.call_generics)
                if generics is None:
                    break
                height = max(height, self.height)
                value = self.call(value, generics)
                height = max(height, self.height)
            else:
                break
            height = self.grow(height, start)
        self.height = height
        return value

    def call_generics(self) -> tuple[GenericArg, ...]:
        """The generic arguments of a call; a fault unless `(` follows them."""
        generics = self.generic_args(splits=False)
        if not self.at("("):
            raise self.unexpected("`(`")
        return generics

    def call(self, callee: Expr, generics: tuple[GenericArg, ...] | None) -> CallExpr:
        """call = "(" { argument "," } [ argument ] ")"; argument = [ NAME "=" ] expression; named ones stand last"""
        opener = self.next()
        args: list[Expr] = []
        named: list[NamedArg] = []
        for argument in self.comma_list(")", self.argument):
            if isinstance(argument, NamedArg):
                named.append(argument)
            elif named:
                help = "write positional arguments first"
                self.error("E1101", "a positional argument stands after a named one", argument.span, help)
            else:
                args.append(argument)
        if self.at(":") and args and isinstance(args[-1], NameExpr):
            help = f"a named argument is written `{args[-1].name} = ..`"
            raise self.unexpected("`,` or `)` in the argument list", (self.opens_here(opener),), help)
        self.close(")", opener, "the argument list")
        return CallExpr(self.since(callee.span.start), callee, generics, tuple(args), tuple(named))

    def argument(self) -> Expr | NamedArg:
        """argument = [ NAME "=" ] expression"""
        if self.token.kind != "name" or self.peek().kind != "=":
            return self.expression()
        start = self.token.start
        name = self.name("an argument")
        self.next()
        value = self.expression()
        return NamedArg(self.since(start), name, value)

    def position(self) -> Position:
        """position = "..." | "*" NAME | expression | [ expression ] ":" [ expression ] [ ":" [ expression ] ]"""
        start = self.token.start
        if self.accept("..."):
            self.height = 1
            return EllipsisItem(self.since(start))
        if self.at("*"):
            return self.pack()
        parts = [None if self.at(":", "::") else self.expression()]
        height = self.height if parts[0] is not None else 1
        while self.at(":", "::") and len(parts) < 3:
            if self.next().kind == "::":
                parts.append(None)
            absent = self.at(":", "::", ",", "]")
            parts.append(None if absent else self.expression())
            height = max(height, 1 if absent else self.height)
        self.height = height
        if len(parts) == 1 and parts[0] is not None:
            if self.at(".."):
                raise self.unexpected("`,`, `:` or `]` after the index", help="a slice is written `start:stop`")
            return parts[0]
        if len(parts) > 3 or self.at(":", "::"):
            raise self.unexpected(
                "`,` or `]` after the slice", help="a slice is written `start:stop` or `start:stop:step`"
            )
        return SliceItem(self.since(start), *parts, *[None] * (3 - len(parts)))

    def primary(self) -> Expr:
        """primary = literal | NAME | "some" "(" expression ")" | "none" | tuple | list | if | match | reduction"""
        token = self.token
        kind = token.kind
        self.height = 1
        if kind == "name":
            if token.text in REDUCTIONS and self.at_reduction():
                return self.reduction()
            self.next()
            if token.text == "not" and not self.token.first and self.at("name", "true", "false", "none"):
                negation = "write `!` before a scalar bool; a bool tensor is negated by `x == false`"
                raise ParseError(Diagnostic("E1101", "there is no operator `not`", self.span_of(token), help=negation))
            if token.text == "lambda" and self.at("name", ":") and not self.token.first:
                declare = "declare a `fn` and call it by its name"
                raise ParseError(Diagnostic("E1101", "there is no `lambda`", self.span_of(token), help=declare))
            return NameExpr(self.span_of(token), token.text)
        if kind == "int":
            self.next()
            assert isinstance(token.value, int)
            return IntLiteral(self.span_of(token), token.value)
        if kind == "(":
            return self.tuple_or_group()
        if kind == "[":
            opener = self.next()
            items = self.comma_list("]", self.axis)
            self.height = self.grow(self.height, token.start)
            self.close("]", opener, "the list")
            return ListExpr(self.since(token.start), tuple(items))
        if kind == "float":
            self.next()
            assert isinstance(token.value, float)
            return FloatLiteral(self.span_of(token), token.value)
        if kind in ("true", "false"):
            self.next()
            return BoolLiteral(self.span_of(token), kind == "true")
        if kind == "string":
            self.next()
            assert isinstance(token.value, str)
            return StringLiteral(self.span_of(token), token.value)
        if kind == "none":
            self.next()
            return NoneLiteral(self.span_of(token))
        if kind == "some":
            self.next()
            opener = self.expect("(", "after `some`", help="write `some(value)`")
            value = self.expression()
            self.height = self.grow(self.height, token.start)
            self.close(")", opener, "`some`")
            return SomeExpr(self.since(token.start), value)
        if kind == "if":
            return self.if_expression()
        if kind == "match":
            return self.match_expression()
        if kind in RESERVED:
            # A module import may bind a reserved word: `random.split`.
            self.next()
            return NameExpr(self.span_of(token), token.text)
        help = None
        if kind == "=" and self.tokens[self.index - 1].kind == "..":
            help = "a range ends before its stop, `0..4` at 3: write the number behind the last"
        if kind == "*" and self.tokens[self.index - 1].kind == "*":
            help = "there is no power operator: multiply, or use `exp` and `log`"
        raise self.unexpected("an expression", help=help)

    def tuple_or_group(self) -> Expr:
        """tuple = "(" expression "," .. ")"; parentheses around one expression only group"""
        opener = self.next()
        if self.at(")"):
            raise self.unexpected("an expression")
        items = self.comma_list(")", self.expression)
        closing = self.close(")", opener, "the parentheses")
        if len(items) == 1 and self.tokens[self.index - 2].kind != ",":
            items[0].span = Span(self.source, opener.start, closing.end)
            return items[0]
        self.height = self.grow(self.height, opener.start)
        return TupleExpr(self.since(opener.start), tuple(items))

    def if_expression(self) -> IfExpr:
        """if = "if" expression "{" expression "}" "else" ( "{" expression "}" | if )"""
        self.deeper()
        start = self.next()
        condition = self.expression()
        height = self.height
        then = self.branch("the `if` branch")
        height = max(height, self.height)
        help = "an `if` is an expression and always has a value: give it an `else`"
        self.expect("else", "after the `if` branch", help=help)
        otherwise = self.if_expression() if self.at("if") else self.branch("the `else` branch")
        self.height = self.grow(max(height, self.height), start.start)
        self.nesting -= 1
        return IfExpr(self.since(start.start), condition, then, otherwise)

    def branch(self, what: str) -> Expr:
        """branch = "{" expression "}" """
        opener = self.expect("{", f"to open {what}")
        if self.at("let", "var", "return", "for", "while", "static"):
            help = "a branch is one expression: put statements before the `if`"
            raise self.unexpected("an expression", help=help, here=True)
        value = self.expression()
        self.close("}", opener, what)
        return value

    def match_expression(self) -> MatchExpr:
        """match = "match" expression "{" { pattern "=>" expression } "}" """
        start = self.next()
        subject = self.expression()
        height = self.height
        opener = self.expect("{", "to open the arms of the `match`")
        arms: list[MatchArm] = []
        while not self.at("}", "end"):
            at = self.token.start
            pattern = self.pattern()
            self.expect("=>", "after the pattern", help="an arm is written `pattern => value`")
            body = self.expression()
            height = max(height, self.height)
            arms.append(MatchArm(self.since(at), pattern, body))
            if self.at(","):
                raise self.unexpected("the next arm or `}`", help="arms are separated by white space alone")
        self.close("}", opener, "the `match`")
        self.height = self.grow(height, start.start)
        return MatchExpr(self.since(start.start), subject, tuple(arms))

    def pattern(self) -> Pattern:
        """pattern = "some" "(" NAME ")" | "none" | NAME"""
        start = self.token.start
        if self.accept("none"):
            return Pattern(self.since(start), "none", None)
        if self.accept("some"):
            opener = self.expect("(", "after `some`")
            name = self.name("the value inside")
            self.close(")", opener, "the pattern")
            return Pattern(self.since(start), "some", name)
        if not self.at("name", *RESERVED):
            raise self.unexpected("a pattern (`some(name)`, `none` or a variant)")
        name = self.name("a variant")
        if self.at("."):
            raise self.unexpected("`=>` after the pattern", help="write the variant alone, without its enum")
        return Pattern(self.since(start), "variant", name)

    # Index notation

    def at_reduction(self) -> bool:
        """Whether the word is followed by `[`, or by `<dtype>[`."""
        offset = 1
        if self.peek().kind == "<":
            offset = 2
            while self.peek(offset).kind == "name" and self.peek(offset + 1).kind == ".":
                offset += 2
            if self.peek(offset).kind != "name" or self.peek(offset + 1).kind != ">":
                return False
            offset += 2
        return self.peek(offset).kind == "["

    def reduction(self) -> ReduceExpr:
        """reduction = ( "sum" | "prod" | "max" | "min" | "any" | "all" ) [ "<" dtype ">" ] indices expression"""
        start = self.token.start
        kind = self.name("a reduction")
        accumulate = None
        if angle := self.accept("<"):
            accumulate = self.named_type()
            self.close_angle(angle)
        indices = self.indices(f"`{kind.text}`")
        body = self.expression()
        self.height = self.grow(self.height, start)
        return ReduceExpr(self.since(start), kind, accumulate, indices, body)

    def indices(self, what: str) -> tuple[Name | PackAxis, ...]:
        """indices = "[" { index "," } [ index ] "]"; index = NAME | "*" NAME"""
        opener = self.expect("[", "to open the indices")
        if self.at("]"):
            raise self.unexpected(f"an index for {what}")
        found = self.comma_list("]", self.index_name)
        self.close("]", opener, f"the indices of {what}")
        return tuple(found)

    def index_name(self) -> Name | PackAxis:
        """index = NAME | "*" NAME"""
        if self.at("*"):
            return self.pack()
        self.height = 1
        if not self.at("name", *KEYWORDS, *RESERVED):
            help = "indices are new names here, as in `let y[i, j] = ..` and `sum[k] ..`"
            raise self.unexpected("the name of an index", help=help)
        return self.name("an index")

    # Axes and generic arguments

    def axis(self) -> Axis:
        """axis = "*" NAME | expression"""
        return self.pack() if self.at("*") else self.expression()

    def pack(self) -> PackAxis:
        """pack = "*" NAME"""
        start = self.next().start
        self.height = 1
        name = self.name("a pack")
        return PackAxis(self.since(start), name)

    def named_type(self) -> NamedType:
        """named_type = NAME { "." NAME } [ generic_args ]"""
        start = self.token.start
        if not self.at("name", *RESERVED):
            raise self.unexpected("a type")
        path = [self.name("a type", allow_reserved=self.peek().kind == ".")]
        while self.accept("."):
            path.append(self.name("a type"))
        args = self.generic_args() if self.at("<") else None
        return NamedType(self.since(start), tuple(path), args)

    def generic_args(self, splits: bool = True) -> tuple[GenericArg, ...]:
        """generic_args = "<" { generic_arg "," } [ generic_arg ] ">" """
        opener = self.next()
        was_in_generics, self.in_generics = self.in_generics, True
        try:
            args = self.comma_list(">", self.generic_arg)
            if not args:
                raise self.unexpected("a generic argument")
            self.close_angle(opener, splits)
        finally:
            self.in_generics = was_in_generics
        return tuple(args)

    def generic_arg(self) -> GenericArg:
        """generic_arg = "[" { axis "," } [ axis ] "]" | expression of `+ - * / %` and tighter"""
        if self.at("*") and self.peek().kind == "name":
            help = f"a shape argument is written in brackets: `[*{self.peek().text}]`"
            raise self.unexpected("a generic argument", help=help)
        if not self.at("["):
            return self.expression(DIMENSION)
        opener = self.next()
        axes = self.comma_list("]", self.axis)
        self.close("]", opener, "the shape")
        return ShapeArg(self.since(opener.start), tuple(axes))

    def close_angle(self, opener: Token, splits: bool = True) -> None:
        """Takes `>`, also from the front of `>=` if it `splits`, as in `param bias: Bias<H>= none`."""
        if splits and self.at(">="):
            token = self.token
            self.tokens[self.index] = self.token = Token(
                "=", "=", token.start + 1, token.end, token.comments, None, False, token.suspect
            )
            return
        if not self.at(">"):
            help = MISSING_COMMA if self.begins_item() else None
            raise self.unexpected("`,` or `>` in the generic arguments", (self.opens_here(opener),), help)
        self.next()
