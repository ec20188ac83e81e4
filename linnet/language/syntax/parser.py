"""Text to syntax tree, by recursive descent.

Each parse function's docstring is its grammar rule: `{ x }` repeats, `[ x ]` may be absent, quoted text is a token.
Every list may end with a comma. The parser goes on after a fault, at the next statement, member or item, so that one
run reports them all.
"""

from __future__ import annotations

from linnet.language.diagnostics import Diagnostic, Diagnostics
from linnet.language.source import Source
from linnet.language.syntax.lexer import Lexed, lex
from linnet.language.syntax.parse_items import ItemParser
from linnet.language.syntax.tree import Module


def parse(source: Source, diagnostics: Diagnostics) -> Module:
    """The module in a source. Faults are added to `diagnostics`; what could not be read is absent from the tree."""
    module, faults = parse_tokens(source, lex(source, diagnostics))
    diagnostics.extend(faults)
    return module


def parse_tokens(source: Source, lexed: Lexed) -> tuple[Module, list[Diagnostic]]:
    """The module that tokens make, and what is wrong with it. `lexed` stays as it is: parsers split tokens in lists of
    their own."""
    parser = ItemParser(source, Lexed([*lexed.tokens], lexed.comments))
    module = parser.module()
    if parser.read_layout:
        # White space only separates tokens: what is indented in a way of its own is wrong only if its braces are.
        # The first reading marked tokens as suspect, so it is made of new ones.
        strict = ItemParser(source, lex(source, Diagnostics()), trusts_layout=False)
        module_of_braces = strict.module()
        if len(strict.faults) < len(parser.faults):
            return module_of_braces, strict.faults
    return module, parser.faults
