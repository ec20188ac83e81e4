"""Source text as highlighted HTML, each line with an id that a link can name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from html import escape
from pathlib import PurePosixPath

from markupsafe import Markup
from pygments.lexer import Lexer
from pygments.lexers.configs import TOMLLexer
from pygments.lexers.data import JsonLexer, YamlLexer
from pygments.lexers.markup import MarkdownLexer
from pygments.lexers.python import PythonLexer
from pygments.lexers.shell import BashLexer
from pygments.lexers.special import TextLexer
from pygments.token import Token, _TokenType

from linnet.language.syntax.pygments_lexer import LinnetLexer
from linnet.site_builder.code import Name
from linnet.site_builder.paths import relative
from linnet.site_builder.text import BIDI, one_line

# What the stylesheet colours; a token takes the class of its nearest listed ancestor, and most take none.
CLASSES: dict[_TokenType, str] = {
    Token.Comment: "c",
    Token.Keyword: "k",
    Token.Keyword.Constant: "n",
    Token.Keyword.Type: "t",
    Token.Operator.Word: "k",
    Token.Literal.String: "s",
    Token.Literal.String.Doc: "c",
    Token.Literal.Number: "n",
    Token.Name.Builtin: "b",
    Token.Name.Class: "t",
    Token.Name.Constant: "n",
    Token.Name.Decorator: "a",
    Token.Name.Function: "f",
    Token.Name.Namespace: "m",
    Token.Name.Tag: "a",
    Token.Name.Variable.Instance: "a",
    Token.Generic.Heading: "h",
    Token.Generic.Subheading: "h",
    Token.Generic.Strong: "h",
}
LEXERS: dict[str, type[Lexer]] = {
    "bash": BashLexer,
    "json": JsonLexer,
    "linnet": LinnetLexer,
    "markdown": MarkdownLexer,
    "python": PythonLexer,
    "text": TextLexer,
    "toml": TOMLLexer,
    "yaml": YamlLexer,
}
# Longer texts are shown plain: on hostile ones some lexers take a second for this many.
HIGHLIGHTED_CHARACTERS = 1 << 17
# The class of runs that are markup already.
_RAW = "<"
_NO_TAG = (-1, -1, "")
ALIASES = {"console": "bash", "md": "markdown", "py": "python", "sh": "bash", "shell": "bash", "yml": "yaml"}


def language_of(path: str) -> str:
    """The language that a file's suffix names, a key of `LEXERS`; `text` where none fits."""
    return language_named(PurePosixPath(path).suffix.removeprefix(".").lower())


def language_named(name: str) -> str:
    """The language of a fence's info word or a suffix, a key of `LEXERS`; `text` where none fits."""
    name = ALIASES.get(name, name)
    return name if name in LEXERS else "text"


def highlight_lines(text: str, language: str, names: Sequence[Name] = (), page: str = "") -> Iterator[str]:
    """The lines of `text` as HTML without line ends, highlighted as `language` (a key of `LEXERS`).

    A text of more than HIGHLIGHTED_CHARACTERS is escaped, but not highlighted. Line ends become `\\n`; a last
    line without one counts as a line, an empty text has none. `names`, in order, become links from the file `page` of
    the site to their definitions, with their types; their text must have no other line ends than `\\n`.
    """
    if len(text) > HIGHLIGHTED_CHARACTERS:
        language = "text"
    # Runs of one class: neighbouring tokens share a span, as in a string and its quotes.
    runs: list[tuple[str, str]] = []
    tags = _tags(names, page)
    start, end, tag = next(tags, _NO_TAG)
    at, inside = 0, False
    for name, value in _tokens(text, language):
        for index, piece in enumerate(value.split("\n")):
            if index:
                yield _line(runs)
                runs.clear()
                at += 1
            while piece:
                if at == start and not inside:
                    runs.append((_RAW, tag))
                    inside = True
                cut = (end if inside else start) - at
                part, piece = (piece, "") if cut < 0 else (piece[:cut], piece[cut:])
                if runs and runs[-1][0] == name:
                    runs[-1] = (name, runs[-1][1] + part)
                else:
                    runs.append((name, part))
                at += len(part)
                if inside and at == end:
                    runs.append((_RAW, f"</{tag[1 : tag.index(' ')]}>"))
                    start, end, tag = next(tags, _NO_TAG)
                    inside = False
    if runs:
        yield _line(runs)


def _tags(names: Sequence[Name], page: str) -> Iterator[tuple[int, int, str]]:
    """The names that become tags: where each begins and ends, and the tag that opens there."""
    links: dict[str, str] = {}
    for name in names:
        if name.target not in links:
            links[name.target] = escape(relative(page, name.target)) if name.target else ""
        type = f' data-type="{escape(one_line(name.type))}"' if name.type else ""
        if name.target:
            yield name.start, name.end, f'<a href="{links[name.target]}"{type}>'
        elif type:
            yield name.start, name.end, f"<span{type}>"


def _line(runs: list[tuple[str, str]]) -> str:
    return "".join(
        text if name is _RAW else f'<span class="{name}">{harmless(text)}</span>' if name else harmless(text)
        for name, text in runs
    )


def line_count(text: str) -> int:
    """How many lines a source view of `text` numbers."""
    return sum(1 for _ in highlight_lines(text, "text"))


def source_block(text: str, language: str, names: Sequence[Name] = (), page: str = "") -> Markup:
    """The body of a `<pre>`: each line numbered, its id `L12` linking to itself."""
    return Markup(
        "".join(
            f'<span class="line" id="L{number}"><a href="#L{number}" tabindex="-1">{number}</a>{line}\n</span>'
            for number, line in enumerate(highlight_lines(text, language, names, page), start=1)
        )
    )


def code_block(text: str, language: str) -> Markup:
    """The body of a `<pre>` without line numbers, for snippets and fences."""
    return Markup("\n".join(highlight_lines(text, language)))


@lru_cache(maxsize=32)
def _tokens(text: str, language: str) -> tuple[tuple[str, str], ...]:
    """The pieces of a text with their classes. One file is shown on its own page, in entries and in differences."""
    plain = text.replace("\r\n", "\n").replace("\r", "\n")
    return tuple((_token_class(kind), value) for kind, value in _lexer(language).get_tokens(plain))


@cache
def _lexer(language: str) -> Lexer:
    # Leading blank lines stay: line numbers must be the file's own.
    return LEXERS[language](stripnl=False, ensurenl=False)


@cache
def _token_class(kind: _TokenType) -> str:
    ancestor: _TokenType | None = kind
    while ancestor is not None:
        if ancestor in CLASSES:
            return CLASSES[ancestor]
        ancestor = ancestor.parent
    return ""


def harmless(piece: str) -> str:
    """Escaped, with the characters that reorder or vanish written as their code points."""
    shown = escape(piece, quote=False)
    if shown.isascii() and shown.isprintable():
        return shown
    return "".join(
        f'<span class="u">U+{ord(char):04X}</span>'
        if char in BIDI or (ord(char) < 32 and char != "\t") or 127 <= ord(char) < 160
        else char
        for char in shown
    )
