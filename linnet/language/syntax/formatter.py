"""Canonical style: four spaces, a hundred columns, one way to break each construct.

Only white space, the comma after the last item of a list, commas between fields, and doubled parentheses change. An
empty line stays, several become one. A list whose last item has a comma in the source stays broken, one item a line.
"""

from __future__ import annotations

from linnet.language.diagnostics import Diagnostics
from linnet.language.source import Source
from linnet.language.syntax.compare import same_tree
from linnet.language.syntax.doc import layout
from linnet.language.syntax.formatter_cursor import comment_lines
from linnet.language.syntax.formatter_items import ItemFormatter
from linnet.language.syntax.lexer import lex
from linnet.language.syntax.parser import parse, parse_tokens, too_long
from linnet.language.syntax.tree import Module


class FormatError(Exception):
    """Formatting would have changed what a file says. It never should: the file is left as it is."""


def format_source(source: Source, diagnostics: Diagnostics) -> str | None:
    """The text of a source in canonical style, with `\\n` after each line.

    None where it has syntax errors, or would be too long (E2190), which are added to `diagnostics`. Raises FormatError
    where the result, read again, would not be the same tree with the same comments.
    """
    found = Diagnostics()
    if too_long(source, diagnostics):
        return None
    lexed = lex(source, found)
    module, faults = parse_tokens(source, lexed)
    found.extend(faults)
    if found.has_errors:
        diagnostics.extend(found.items)
        return None
    text = layout(ItemFormatter(source, lexed).module(module)) + "\n"
    if text != source.text:
        written = Source(source.name, text)
        if too_long(written, diagnostics, "in canonical style this source"):
            return None
        again = parse(written, found)
        if found.has_errors or not same_tree(module, again) or _comments(module) != _comments(again):
            raise FormatError(
                f"formatting {source.name} would change what it says, so it is left as it is; please report it with "
                "the file."
            )
    return text


def _comments(module: Module) -> list[list[str]]:
    """The lines of every comment, without what indents them."""
    return [[line.lstrip(" \t") for line in comment_lines(comment)] for comment in module.comments]
