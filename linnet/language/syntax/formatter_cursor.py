"""The formatter's place in the tokens: taking them as documents, with the comments that stand before and after."""

from __future__ import annotations

from linnet.language.source import Source
from linnet.language.syntax.cursor import CLOSERS
from linnet.language.syntax.doc import CommentText, Concat, Doc, Hard, Text
from linnet.language.syntax.lexer import Lexed, Token
from linnet.language.syntax.tree import Comment

NOTHING = Concat()
SPACE = Text(" ")
_ADJACENT = frozenset((*",)]}<>;:.?([", "::", "..", "end"))
"""Before these a comment belongs to what it follows."""


def comment_lines(comment: Comment) -> list[str]:
    """The lines of a comment, without carriage returns at their ends and without spaces there."""
    return [line.rstrip() for line in comment.text.split("\n")]


class FormatCursor:
    """Tokens with a current one (`token`), and the comments not yet written, all of which stand before it."""

    def __init__(self, source: Source, lexed: Lexed) -> None:
        self.text = source.text
        self.source = source
        self.tokens = lexed.tokens
        self.comments = lexed.comments
        self.index = 0
        self.token: Token = lexed.tokens[0]
        self.written = 0
        """How many comments are written."""
        self.end = 0
        """Where what was taken last ends, comments included."""
        self.closing = _closing_brackets(lexed.tokens)

    def at(self, *kinds: str) -> bool:
        return self.token.kind in kinds

    # Taking tokens

    def take(self, kind: str | None = None) -> Doc:
        """The current token, after the comments before it. `kind` is what it must be: a part of `>=` may be `>`."""
        before = self.comments_before()
        text = self.pass_token(kind)
        return Text(text) if before is NOTHING else Concat(before, Text(text))

    def skip(self) -> None:
        """Leaves the current token out. The comments before it are still to be written."""
        self.pass_token(None)

    def pass_token(self, kind: str | None) -> str:
        token = self.token
        if kind == ">" and token.kind == ">=":
            rest = Token("=", "=", token.start + 1, token.end, token.comments, None, False, False)
            self.tokens[self.index] = self.token = rest
            self.end = rest.start
            return ">"
        assert kind is None or token.kind == kind, f"expected {kind}, found {token.kind} at {token.start}"
        self.end = token.end
        if token.kind != "end":
            self.index += 1
            self.token = self.tokens[self.index]
        return token.text

    # Comments

    def has_comments(self) -> bool:
        """Whether a comment stands before the current token."""
        return self.written < self.token.comments

    def next_start(self) -> int:
        """Where the next comment or token begins."""
        return self.comments[self.written].span.start if self.has_comments() else self.token.start

    def lines_to(self, offset: int) -> int:
        """The line breaks from what was taken last up to an offset."""
        return self.text.count("\n", self.end, offset)

    def blank_before(self) -> bool:
        """Whether an empty line, not at the start of a bracket, stands before the next comment or token."""
        if self.index == 0 and self.written == 0:
            return False
        previous = self.tokens[self.index - 1]
        if self.index and previous.kind in CLOSERS and previous.end == self.end:
            return False
        return self.lines_to(self.next_start()) > 1

    def take_comment(self) -> CommentText:
        comment = self.comments[self.written]
        self.written += 1
        self.end = comment.span.end
        start = comment.span.start
        lines = comment_lines(comment)
        column = start - self.text.rfind("\n", 0, start) - 1 if len(lines) > 1 else 0
        return CommentText(lines, column)

    def comments_before(self) -> Doc:
        """The comments before the current token, where nothing else has written them."""
        if not self.has_comments():
            return NOTHING
        parts: list[Doc] = []
        on_own_lines = False
        while self.has_comments():
            if (self.index == 0 and self.written == 0) or self.lines_to(self.next_start()) > 0:
                on_own_lines = True
                parts.append(Hard())
            comment = self.take_comment()
            after = self.lines_to(self.next_start())
            if on_own_lines:
                parts += [comment, Hard(after > 1)] if after else [comment, *self.space_before_token()]
            elif comment.lines[0].startswith("//"):
                parts += [SPACE, comment]
            else:
                parts += [comment, SPACE] if self.space_before_token() else [SPACE, comment]
        return Concat(*parts)

    def space_before_token(self) -> list[Doc]:
        """What separates a comment from a token on its line."""
        return [] if self.at(*_ADJACENT) else [SPACE]

    def trailing(self, whole_line: bool = False) -> Doc:
        """The comments on the line of what was taken last.

        A block comment beside the next token belongs to that one, unless a line break is sure to follow: `whole_line`.
        """
        if not self.has_comments():
            return NOTHING
        parts: list[Doc] = []
        while self.has_comments() and not self.lines_to(self.next_start()):
            if not whole_line and self.precedes_token():
                break
            parts += [SPACE, self.take_comment()]
        return Concat(*parts)

    def precedes_token(self) -> bool:
        """Whether the next comment stands on the line of the current token, which it then belongs to."""
        comment = self.comments[self.written]
        beside = not self.text.count("\n", comment.span.end, self.token.start)
        return beside and not self.at(*_ADJACENT)

    def comments_left(self, blanks: bool = False) -> Doc:
        """All comments before the current token, each on its own line or at the end of what was taken last.

        With `blanks`, empty lines before them stay.
        """
        if not self.has_comments():
            return NOTHING
        parts: list[Doc] = []
        while self.has_comments():
            if self.lines_to(self.next_start()):
                parts += [Hard(blanks and self.blank_before()), self.take_comment(), Hard()]
            else:
                parts += [SPACE, self.take_comment()]
        return Concat(*parts)


def _closing_brackets(tokens: list[Token]) -> dict[int, int]:
    """The index of the bracket that closes each opening one. The tokens must have no syntax error."""
    closing: dict[int, int] = {}
    open_ones: list[int] = []
    for index, token in enumerate(tokens):
        if token.kind in CLOSERS:
            open_ones.append(index)
        elif token.kind in (")", "]", "}"):
            closing[open_ones.pop()] = index
    return closing
