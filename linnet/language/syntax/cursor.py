"""The parser's place in the tokens: looking, taking, expecting, and getting on after a fault."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from linnet.language.diagnostics import MAX_SHOWN, Diagnostic, Note
from linnet.language.source import Source, Span
from linnet.language.syntax.lexer import KEYWORDS, RESERVED, Lexed, Token, words
from linnet.language.syntax.tree import Name

T = TypeVar("T")

MAX_NESTING = 64
"""How deep brackets, blocks and prefix forms may stand in each other: what keeps the parser's own recursion bounded."""

MAX_HEIGHT = 128
"""How high an expression's tree may be, long operator and member chains included: what keeps later passes bounded."""

CLOSERS = {"(": ")", "[": "]", "{": "}"}

ITEM_WORDS = words("pub const type struct enum fn op block entry use module kernel extern")
MEMBER_WORDS = words("pub fn entry op param buffer state sub")
STATEMENT_WORDS = words("let var return static while yield")


class ParseError(Exception):
    """A syntax error; `fatal` where nothing after it can be read."""

    def __init__(self, diagnostic: Diagnostic, fatal: bool = False) -> None:
        super().__init__(diagnostic.message)
        self.diagnostic = diagnostic
        self.fatal = fatal


class DueBrackets:
    """The closing brackets that are due; `kind in due` takes no longer for many."""

    def __init__(self) -> None:
        self._stack: list[str] = []
        self._counts = dict.fromkeys(CLOSERS.values(), 0)

    def __bool__(self) -> bool:
        return bool(self._stack)

    def __contains__(self, kind: str) -> bool:
        return self._counts.get(kind, 0) > 0

    def pass_token(self, kind: str) -> None:
        """Follows a token: a closing bracket also ends what was opened after its own."""
        if kind in CLOSERS:
            self._stack.append(CLOSERS[kind])
            self._counts[CLOSERS[kind]] += 1
        elif kind in self:
            closed = ""
            while closed != kind:
                closed = self._stack.pop()
                self._counts[closed] -= 1


class Cursor:
    """Tokens with a current one (`token`)."""

    def __init__(self, source: Source, lexed: Lexed) -> None:
        self.source = source
        self.tokens = lexed.tokens
        self.comments = lexed.comments
        self.index = 0
        self.token: Token = lexed.tokens[0]
        self.faults: list[Diagnostic] = []
        self.nesting = 0
        self.height = 0
        """The height of the expression parsed last."""

    # Looking and taking

    def at(self, *kinds: str) -> bool:
        return self.token.kind in kinds

    def peek(self, offset: int = 1) -> Token:
        return self.tokens[min(self.index + offset, len(self.tokens) - 1)]

    def next(self) -> Token:
        """Takes the current token."""
        token = self.token
        if token.kind != "end":
            self.index += 1
            self.token = self.tokens[self.index]
        return token

    def accept(self, kind: str) -> Token | None:
        """Takes the current token if it is of this kind."""
        return self.next() if self.token.kind == kind else None

    def expect(self, kind: str, purpose: str = "", help: str | None = None) -> Token:
        """Takes a token of this kind; `purpose` continues "expected `kind`", as in "to end the list"."""
        if self.token.kind != kind:
            raise self.unexpected(f"`{kind}` {purpose}".rstrip(), help=help)
        return self.next()

    def close(self, kind: str, opener: Token, what: str) -> Token:
        """Takes the bracket that closes `opener`; `what` names what the brackets hold."""
        if self.token.kind != kind:
            raise self.unexpected(f"`{kind}` to close {what}", (self.opens_here(opener),))
        return self.next()

    def opens_here(self, opener: Token) -> Note:
        return Note(f"the `{opener.text}` is here", self.span_of(opener))

    def name(self, what: str, allow_reserved: bool = False) -> Name:
        """NAME; `what` says whose, with its article: "a field"."""
        token = self.token
        if token.kind == "name" or (allow_reserved and token.kind in RESERVED):
            self.next()
            return Name(self.span_of(token), token.text)
        is_word = token.kind in RESERVED or (token.kind in KEYWORDS and not self.token.first)
        if is_word:
            kind = "is reserved for a later version" if token.kind in RESERVED else "is a keyword"
            self.report(
                Diagnostic(
                    "E1004",
                    f"`{token.text}` {kind} and cannot name {what}",
                    self.span_of(token),
                    help=f"choose another name, such as `{token.text}_`",
                )
            )
            self.next()
            return Name(self.span_of(token), token.text)
        raise self.unexpected(f"a name for {what}")

    # Spans

    def span_of(self, token: Token) -> Span:
        return Span(self.source, token.start, token.end)

    def since(self, start: int) -> Span:
        """From the offset `start` to the end of the token taken last."""
        return Span(self.source, start, max(start, self.tokens[self.index - 1].end if self.index else start))

    def column(self, token: Token) -> int:
        return self.source.position(token.start)[1]

    # Faults

    def report(self, diagnostic: Diagnostic) -> None:
        """Reports a fault that needs no recovery. One more than are shown, and the rest is not read."""
        self.faults.append(diagnostic)
        if len(self.faults) > MAX_SHOWN:
            self.to_end()

    def to_end(self) -> None:
        """Passes all that is left, and says nothing about its absence."""
        self.index = len(self.tokens) - 1
        self.token = self.tokens[self.index]
        self.token.suspect = True

    def error(self, code: str, message: str, span: Span, help: str | None = None) -> None:
        self.report(Diagnostic(code, message, span, help=help))

    def unexpected(
        self, expected: str, notes: tuple[Note, ...] = (), help: str | None = None, here: bool = False
    ) -> ParseError:
        """The fault "expected .., found .." at the current token.

        Where that begins a line, what is missing is missing at the end of the line before, and is marked there, unless
        the token itself is what is wrong (`here`).
        """
        token = self.token
        span = self.span_of(token)
        if self.index and (token.kind == "end" or (self.token.first and not here)):
            last = self.tokens[self.index - 1].end
            span = Span(self.source, last, last)
        if help is None:
            help = _HELP.get(token.kind)
        return ParseError(Diagnostic("E1101", f"expected {expected}, found {describe(token)}", span, notes, help))

    def too_deep(self, span: Span) -> ParseError:
        message = f"this is nested too deeply (more than {MAX_NESTING} levels, or {MAX_HEIGHT} operators in a row)"
        help = "name parts of it with `let`, or move them to a function"
        return ParseError(Diagnostic("E1101", message, span, help=help), fatal=True)

    def deeper(self) -> None:
        """Counts a level of nesting; whoever calls it takes the level off again, or recovers."""
        self.nesting += 1
        if self.nesting > MAX_NESTING:
            raise self.too_deep(self.span_of(self.token))

    def grow(self, height: int, span_start: int) -> int:
        """The height of a node above children of `height`."""
        if height >= MAX_HEIGHT:
            raise self.too_deep(self.since(span_start))
        return height + 1

    @contextmanager
    def recovering(self, resume: Callable[[int], None]) -> Iterator[None]:
        """Reports a fault raised inside, once, and calls `resume` to find the place to go on from.

        `resume` is told the index of the first token inside. If the fault is at that token, it must pass it or end
        what it is in.
        """
        nesting, index = self.nesting, self.index
        try:
            yield
        except ParseError as fault:
            self.nesting = nesting
            previous = self.tokens[self.index - 1] if self.index else self.token
            if not (self.token.suspect or previous.suspect):
                self.report(fault.diagnostic)
            if fault.fatal:
                self.to_end()
            else:
                resume(index)

    def attempt(self, parse: Callable[[], T]) -> T | None:
        """What `parse` returns, or None and the cursor back where it was if it meets a fault."""
        index, nesting, faults = self.index, self.nesting, len(self.faults)
        try:
            return parse()
        except ParseError:
            self.index, self.nesting = index, nesting
            self.token = self.tokens[index]
            del self.faults[faults:]
            return None

    def resync(self, begun: int, stops: Callable[[DueBrackets], bool]) -> None:
        """Skips from a fault to where `stops` says so; the token at `begun`, which began it all, never stops.

        `stops` is told what would close the brackets that were opened since `begun`.
        """
        due = DueBrackets()
        for token in self.tokens[begun : self.index]:
            due.pass_token(token.kind)
        while not self.at("end") and not (self.index > begun and stops(due)):
            due.pass_token(self.next().kind)

    # Lists

    def comma_list(self, close: str, parse: Callable[[], T]) -> list[T]:
        """{ item "," } [ item ], up to `close`, which is left; sets `height` to the highest of the items."""
        items: list[T] = []
        height = 0
        while not self.at(close):
            items.append(parse())
            height = max(height, self.height)
            if self.accept(",") is None:
                break
        self.height = height
        return items

    # Documentation

    def doc(self) -> str | None:
        """The documentation of what begins at the current token: doc comments above it, else a run of `//` lines."""
        first = self.tokens[self.index - 1].comments if self.index else 0
        above = self.comments[first : self.token.comments]
        if not above:
            return None
        text = self.source.text
        previous = self.tokens[self.index - 1].end if self.index else 0
        if self.index and "\n" not in text[previous : above[0].span.start]:
            above = above[1:]
        written = [comment.text for comment in above if _is_doc(comment.text)]
        if written:
            return "\n".join(_doc_text(comment) for comment in written).strip("\n")
        lines: list[str] = []
        below = self.token.start
        for comment in reversed(above):
            gap = text[comment.span.end : below]
            if not comment.text.startswith("//") or gap.count("\n") != 1 or gap.strip():
                break
            lines.append(comment.text)
            below = comment.span.start
        return "\n".join(_doc_text(line) for line in reversed(lines)).strip("\n") or None


_HELP = {
    ";": "Linnet has no semicolons: a statement ends where the next one begins",
    "self": "there is no `self`: inside a block, members and methods are bare names",
    "::": "`::` stands only in a `use`; write `.` to reach into a module",
}


def describe(token: Token) -> str:
    """A token in words."""
    text = token.text if len(token.text) <= 40 else f"{token.text[:36]}…"
    if token.kind == "end":
        return "the end of the file"
    if token.kind in ("int", "float"):
        return f"the number `{text}`"
    if token.kind == "string":
        return "a string"
    if token.kind == "name":
        return f"the name `{text}`"
    if token.kind in KEYWORDS:
        return f"the keyword `{text}`"
    if token.kind in RESERVED:
        return f"the reserved word `{text}`"
    return f"`{text}`"


def _is_doc(comment: str) -> bool:
    line = comment.startswith("///") and not comment.startswith("////")
    return line or (comment.startswith("/**") and not comment.startswith(("/***", "/**/")))


def _doc_text(comment: str) -> str:
    """A comment's text without its marks."""
    if comment.startswith("/*"):
        lines = comment[3:].removesuffix("*/").split("\n")
        return "\n".join(line.strip().removeprefix("*").removeprefix(" ") for line in lines).strip("\n").rstrip()
    return comment.lstrip("/").removeprefix(" ").rstrip()
