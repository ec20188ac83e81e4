"""Text to syntax tree, by recursive descent.

Each parse function's docstring is its grammar rule: `{ x }` repeats, `[ x ]` may be absent, quoted text is a token.
Every list may end with a comma. The parser goes on after a fault, at the next statement, member or item, so that one
run reports them all.
"""

from __future__ import annotations

from linnet.language.diagnostics import Diagnostics
from linnet.language.source import Source
from linnet.language.syntax.lexer import lex
from linnet.language.syntax.parse_items import ItemParser
from linnet.language.syntax.tree import Module


def parse(source: Source, diagnostics: Diagnostics) -> Module:
    """The module in a source. Faults are added to `diagnostics`; what could not be read is absent from the tree."""
    parser = ItemParser(source, lex(source, diagnostics))
    module = parser.module()
    diagnostics.extend(parser.faults)
    return module
