"""Source text to tokens, in one pass.

Lexical grammar (white space is space, tab, carriage return and newline, and only separates tokens):

    name    = [A-Za-z_][A-Za-z0-9_]*
    integer = digits | "0x" hexdigits | "0b" bits          underscores may stand between digits
    float   = digits "." digits [exponent] | digits exponent
    string  = '"' characters '"' on one line, with the escapes of ESCAPES
    comment = "//" to the end of the line | "/*" .. "*/", which nests
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from linnet.language.diagnostics import Diagnostics
from linnet.language.source import BYTE_ORDER_MARK, Source, Span
from linnet.language.syntax.tree import Comment


def words(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


KEYWORDS = words(
    "module use pub crate self super as const type struct enum fn op block entry param buffer state sub let var "
    "return if else match static for in while where true false none some extern yield"
)
RESERVED = words("async await effect unsafe macro trait impl derive random rng mut ref kernel device")
"""Words kept for later versions: refused as names, allowed as path segments."""

PUNCTUATION = ("...", "..", "::", "->", "=>", "==", "!=", "<=", ">=", "&&", "||", *"()[]{}<>+-*/%=!?.,:;&|^")
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\", '"': '"'}

MAX_INTEGER = 2**64 - 1

_TOKEN = re.compile(
    r"[ \t\r\n]*(?:"
    r"(?P<name>[A-Za-z_]\w*)"
    r"|(?P<line_comment>//[^\n]*)"
    r"|(?P<block_comment>/\*)"
    r"|(?P<number>(?P<float>[0-9][0-9_]*(?:\.[0-9][0-9_]*(?:[eE][+-]?[0-9][0-9_]*)?|[eE][+-]?[0-9][0-9_]*))\w*|[0-9]\w*)"
    r'|(?P<string>"(?:[^"\\\n]|\\[^\n])*(?:(?P<closed>")|\\?))'
    rf"|(?P<punctuation>{'|'.join(re.escape(mark) for mark in PUNCTUATION)})"
    r"|(?P<quoted>'[^'\n]*')"
    r"|(?P<hash>\#[^\n]*)"
    r"|(?P<foreign_name>\w+)"
    r"|(?P<bad>.)"
    r"|(?P<end>\Z))",
    re.DOTALL,
)
_COMMENT_EDGE = re.compile(r"/\*|\*/")
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")
_BAD_BYTE = re.compile("[\udc80-\udcff]")
_DIGITS = "[0-9]+(?:_+[0-9]+)*"
_HEX = "[0-9a-fA-F]+(?:_+[0-9a-fA-F]+)*"
_INTEGER = re.compile(rf"(?:0[xX](?P<hex>{_HEX})|0[bB](?P<bits>[01]+(?:_+[01]+)*)|{_DIGITS})\Z")
_FLOAT = re.compile(rf"{_DIGITS}(?:\.{_DIGITS})?(?:[eE][+-]?{_DIGITS})?\Z")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


@dataclass(slots=True, eq=False)
class Token:
    """`kind` is "name", "int", "float", "string", "end", or the text itself for keywords, reserved words and marks.

    `comments` counts the comments before the token; `first` says that it is the first of its line; `suspect` that an
    error is already reported at it or just before it.
    """

    kind: str
    text: str
    start: int
    end: int
    comments: int
    value: int | float | str | None
    first: bool
    suspect: bool


@dataclass(frozen=True, slots=True)
class Lexed:
    """The tokens, the last of kind "end", and the comments, in order."""

    tokens: list[Token]
    comments: list[Comment]


def lex(source: Source, diagnostics: Diagnostics) -> Lexed:
    """All tokens of a source. Whatever the text holds, it is reported (E1001, E1002, E1003, E1005), never raised."""
    return _Lexer(source, diagnostics).run()


class _Lexer:
    def __init__(self, source: Source, diagnostics: Diagnostics) -> None:
        self.source = source
        self.text = source.text
        self.diagnostics = diagnostics
        self.tokens: list[Token] = []
        self.comments: list[Comment] = []
        self.suspect = False
        self.last = 0
        """Where the last token ends."""

    def run(self) -> Lexed:
        text, match_token = self.text, _TOKEN.match
        keywords = KEYWORDS | RESERVED
        if (bad_byte := _BAD_BYTE.search(text)) is not None:
            byte = ord(bad_byte[0]) - 0xDC00
            message = f"the byte 0x{byte:02x} is not UTF-8 text"
            self.error("E1001", message, bad_byte.start(), bad_byte.end(), "save the file as UTF-8")
        position = 1 if text.startswith(BYTE_ORDER_MARK) else 0
        while True:
            match = match_token(text, position)
            assert match is not None, "one alternative takes any character, another the end"
            kind = match.lastgroup
            assert kind is not None
            start, position = match.start(kind), match.end()
            word = text[start:position]
            if kind == "name":
                if not word.isascii():
                    self.foreign_name(start, word)
                self.push(word if word in keywords else "name", word, start, None)
            elif kind == "punctuation":
                self.push(word, word, start, None)
            elif kind == "line_comment":
                self.comments.append(Comment(self.span(start, position), word.rstrip("\r")))
            elif kind == "block_comment":
                position = self.block_comment(start)
            elif kind == "number":
                self.number(start, word, match["float"] is not None)
            elif kind == "string":
                self.string(start, word, match["closed"] is not None)
            elif kind == "end":
                self.push("end", "", start, None)
                return Lexed(self.tokens, self.comments)
            else:
                self.bad(kind, start, word)

    def span(self, start: int, end: int) -> Span:
        return Span(self.source, start, end)

    def error(self, code: str, message: str, start: int, end: int, help: str | None = None) -> None:
        self.diagnostics.error(code, message, self.span(start, end), help=help)

    def push(self, kind: str, word: str, start: int, value: int | float | str | None) -> None:
        end = start + len(word)
        first = self.text.find("\n", self.last, start) >= 0 or not self.tokens
        self.tokens.append(Token(kind, word, start, end, len(self.comments), value, first, self.suspect))
        self.last = end
        self.suspect = False

    def block_comment(self, start: int) -> int:
        """Skips a comment that begins at `start`; returns where it ends."""
        depth, position = 1, start + 2
        while depth:
            edge = _COMMENT_EDGE.search(self.text, position)
            if edge is None:
                self.error(
                    "E1002",
                    "this block comment is never closed",
                    start,
                    start + 2,
                    "close it with `*/`; comments nest, so each `/*` needs its own",
                )
                self.suspect = True
                position = len(self.text)
                break
            depth += 1 if edge[0] == "/*" else -1
            position = edge.end()
        self.comments.append(Comment(self.span(start, position), self.text[start:position]))
        return position

    def number(self, start: int, word: str, is_float: bool) -> None:
        if is_float:
            value: int | float = 0.0
            fault = None
            if _FLOAT.match(word) is None:
                fault = f"`{_clipped(word)}` is not a number"
            else:
                value = float(word)
                if math.isinf(value):
                    fault, value = f"`{_clipped(word)}` is larger than any f64", 0.0
                elif value == 0 and any(ch in "123456789" for ch in re.split("[eE]", word)[0]):
                    fault = f"`{_clipped(word)}` is too small for an f64 and would become zero"
        else:
            value, fault = _integer(word)
        if fault is not None:
            help = "underscores stand between digits" if "_" in word else None
            self.error("E1005", fault, start, start + len(word), help)
            self.suspect = True
        self.push("float" if is_float else "int", word, start, value)

    def string(self, start: int, word: str, closed: bool) -> None:
        if not closed:
            stop = start + len(word.rstrip())
            self.error("E1003", "this string is not closed on its line", start, stop, 'close it with `"`')
            self.suspect = True
        content = word[1:-1] if closed else word[1:]
        value = []
        last = 0
        for escape in _ESCAPE.finditer(content):
            value.append(content[last : escape.start()])
            last = escape.end()
            replacement = ESCAPES.get(escape[1])
            if replacement is None and closed:
                at = start + 1 + escape.start()
                known = ", ".join(f"`\\{name}`" for name in ESCAPES)
                message = f"`\\{_visible(escape[1])}` is not an escape"
                self.error("E1003", message, at, at + 2, f"the escapes are {known}")
                self.suspect = True
            value.append(replacement or "")
        self.push("string", word, start, "".join([*value, content[last:]]))

    def foreign_name(self, start: int, word: str) -> None:
        """Reports a name with letters outside ASCII; it stays one name, so that nothing else is said about it."""
        other = _NOT_ASCII.search(word)
        if other is None or _BAD_BYTE.search(word) is not None:
            return
        at = start + other.start()
        help = "names are made of the letters A-Z and a-z, digits and `_`"
        self.error("E1001", f"{_character(other[0])} cannot stand in a name", at, at + 1, help)
        self.suspect = True

    def bad(self, kind: str, start: int, word: str) -> None:
        """Reports what no token begins with. Neighbours of a bad character on the same run say nothing more."""
        help = None
        if kind == "foreign_name":
            self.foreign_name(start, word)
            self.push("name", word, start, None)
            return
        if kind == "quoted":
            self.error("E1003", "a string is written in double quotes", start, start + len(word), "write `\"` for `'`")
            self.suspect = True
            self.push("string", word, start, word[1:-1])
            return
        if kind == "hash":
            help = "a comment begins with `//`"
        elif word == "\x00":
            help = "this may be a binary file, or text in another encoding than UTF-8"
        elif word == "@":
            help = "a matrix product is written in index notation: `let y[i, j] = sum[k] a[i, k] * b[k, j]`"
        elif word == "\\":
            help = "lines need no continuation mark"
        if not (_BAD_BYTE.match(word) or (self.suspect and self.source.text[start - 1 : start] == word)):
            self.error("E1001", f"unexpected character {_character(word[0])}", start, start + 1, help)
        self.suspect = True


def _integer(word: str) -> tuple[int, str | None]:
    """The value of an integer literal, and what is wrong with it (its value is then 0)."""
    match = _INTEGER.match(word)
    if match is None:
        kind = {"0x": "hexadecimal ", "0b": "binary "}.get(word[:2].lower(), "")
        return 0, f"`{_clipped(word)}` is not a {kind}number"
    base = 16 if match["hex"] else 2 if match["bits"] else 10
    digits = str(match["hex"] or match["bits"] or word).replace("_", "").lstrip("0") or "0"
    # No more than 64 digits reach int(), which is quadratic and has a limit of its own.
    value = int(digits, base) if len(digits) <= 64 else MAX_INTEGER + 1
    if value > MAX_INTEGER:
        return 0, f"`{_clipped(word)}` is larger than any integer type holds (2**64 - 1 at most)"
    return value, None


def _clipped(word: str) -> str:
    return word if len(word) <= 40 else f"{word[:36]}…"


def _visible(ch: str) -> str:
    return ch if ch.isprintable() else f"\\u{{{ord(ch):x}}}"


def _character(ch: str) -> str:
    """A character for a message: itself where it can be seen, and its code point where it might be mistaken."""
    if ch.isascii() and ch.isprintable():
        return f"`{ch}`"
    code = f"U+{ord(ch):04X}"
    return f"`{ch}` ({code})" if ch.isprintable() else code
