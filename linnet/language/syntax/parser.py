"""Text to syntax tree, by recursive descent.

Each parse function's docstring is its grammar rule: `{ x }` repeats, `[ x ]` may be absent, quoted text is a token.
Every list may end with a comma. The parser goes on after a fault, at the next statement, member or item, so that one
run reports them all.
"""

from __future__ import annotations

from collections.abc import Sequence

from linnet.language.diagnostics import Diagnostic, Diagnostics
from linnet.language.source import MAX_BYTES, Source, Span
from linnet.language.syntax.cursor import CLOSERS
from linnet.language.syntax.lexer import Lexed, Token, lex
from linnet.language.syntax.parse_items import ItemParser
from linnet.language.syntax.tree import Module


def parse(source: Source, diagnostics: Diagnostics) -> Module:
    """The module in a source. Faults are added to `diagnostics`; what could not be read is absent from the tree."""
    if too_long(source, diagnostics):
        return Module(Span(source, 0, 0), source, (), None, (), (), ())
    module, faults = parse_tokens(source, lex(source, diagnostics))
    diagnostics.extend(faults)
    return module


def too_long(source: Source, diagnostics: Diagnostics, what: str = "this source") -> bool:
    """Whether a source is longer than MAX_BYTES; says so of `what` it is (E2190), and that is all there is to say."""
    size = max(source.size, len(source.text))
    if size <= MAX_BYTES:
        return False
    message = f"{what} has {size:,} bytes; this version takes {MAX_BYTES:,} at most"
    diagnostics.error("E2190", message, Span(source, 0, 0), help="split it into modules")
    return True


def parse_tokens(source: Source, lexed: Lexed) -> tuple[Module, list[Diagnostic]]:
    """The module that tokens make, and what is wrong with it. `lexed` stays as it is: parsers split tokens in lists of
    their own."""
    parser = ItemParser(source, Lexed([*lexed.tokens], lexed.comments))
    module = parser.module()
    if parser.read_layout and _brackets_match(lexed.tokens):
        # White space only separates tokens: indented in whatever way, nothing is unclosed here.
        # The first reading marked tokens as suspect, so this one is of new ones.
        strict = ItemParser(source, lex(source, Diagnostics()), trusts_layout=False)
        module_of_braces = strict.module()
        if len(strict.faults) < len(parser.faults):
            return module_of_braces, strict.faults
    return module, parser.faults


def _brackets_match(tokens: Sequence[Token]) -> bool:
    """Whether each bracket is closed by its own kind, in order."""
    due: list[str] = []
    for token in tokens:
        if token.kind in CLOSERS:
            due.append(CLOSERS[token.kind])
        elif token.kind in CLOSERS.values() and (not due or due.pop() != token.kind):
            return False
    return not due
