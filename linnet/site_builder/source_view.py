"""Source text as highlighted HTML, each line with an id that a link can name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import PurePosixPath

from markupsafe import Markup

from linnet.site_builder.code import Name
from linnet.site_builder.paths import relative
from linnet.site_builder.text import BIDI, one_line
from linnet.site_builder.tokens import LEXERS, Line, token_lines

# Longer texts are shown plain: on hostile ones some lexers take a second for this many.
HIGHLIGHTED_CHARACTERS = 1 << 17
_SPECIAL = re.compile(f"[&<>\x00-\x08\x0a-\x1f\x7f-\x9f{BIDI}]")
_HIDDEN = re.compile(f"[\x00-\x08\x0a-\x1f\x7f-\x9f{BIDI}]")
_NO_TAG = (-1, -1, "")
# Where a name begins and ends in its text, and what opens there.
_Tag = tuple[int, int, str]
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
    tags = _tags(names, page)
    at, tag = 0, next(tags, None)
    for line in lines_of(text, language):
        end = at + sum(len(value) for _, value in line)
        inside: list[_Tag] = []
        while tag is not None and tag[0] < end:
            inside.append(tag)
            tag = next(tags, None)
        yield _linked(line, at, inside) if inside else plain_line(line)
        at = end + 1


def lines_of(text: str, language: str) -> tuple[Line, ...]:
    """The lines of `text`, each to be shown by `plain_line`; without highlighting where it is too long."""
    return token_lines(text, "text" if len(text) > HIGHLIGHTED_CHARACTERS else language)


def _tags(names: Sequence[Name], page: str) -> Iterator[_Tag]:
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


def plain_line(line: Line) -> str:
    """A line as HTML, without links."""
    return "".join([_run(name, value) for name, value in line])


def _run(name: str, value: str) -> str:
    shown = harmless(value) if _SPECIAL.search(value) else value
    return f'<span class="{name}">{shown}</span>' if name else shown


def _linked(line: Line, at: int, tags: Sequence[_Tag]) -> str:
    """A line that begins `at` this character of its text, with these tags in it. What is in a tag is never of the same
    run as what is outside."""
    found: list[str] = []
    rest = iter(tags)
    start, end, tag = next(rest)
    inside = False
    for name, value in line:
        piece = value
        while piece:
            if at == start and not inside:
                found.append(tag)
                inside = True
            cut = (end if inside else start) - at
            part, piece = (piece, "") if cut < 0 else (piece[:cut], piece[cut:])
            found.append(_run(name, part))
            at += len(part)
            if inside and at == end:
                found.append(f"</{tag[1 : tag.index(' ')]}>")
                start, end, tag = next(rest, _NO_TAG)
                inside = False
    return "".join(found)


def line_count(text: str) -> int:
    """How many lines a source view of `text` numbers."""
    return len(token_lines(text, "text"))


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


def harmless(piece: str) -> str:
    """Escaped, with the characters that reorder or vanish written as their code points."""
    return _HIDDEN.sub(lambda found: f'<span class="u">U+{ord(found[0]):04X}</span>', escape(piece, quote=False))
