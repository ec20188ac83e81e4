"""Texts as runs of highlighted characters, line by line, by the lexers of Pygments.

A lexer of Pygments tries the patterns of its state one after the other, sixteen for each token of Linnet. Here those of
a state are one pattern, whose alternatives are tried in the same order within the regular expression itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, lru_cache
from typing import Any

from pygments.lexer import Lexer, RegexLexer
from pygments.lexers.configs import TOMLLexer
from pygments.lexers.data import JsonLexer, YamlLexer
from pygments.lexers.markup import MarkdownLexer
from pygments.lexers.python import PythonLexer
from pygments.lexers.shell import BashLexer
from pygments.lexers.special import TextLexer
from pygments.token import Token, Whitespace, _TokenType

from linnet.language.syntax.pygments_lexer import LinnetLexer

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
# Of one class each; neighbours differ in theirs.
Run = tuple[str, str]
Line = tuple[Run, ...]
# A rule as Pygments compiles it: how it matches, what it gives, where it leads.
_Rule = tuple[Callable[[str, int], "re.Match[str] | None"], Any, Any]
# Several rules as one pattern, the rule of each by the number of the empty group behind its alternative.
_Step = tuple[Callable[[str, int], "re.Match[str] | None"], dict[int, _Rule]]
# What means something else among other alternatives: references to groups by number or name, flags.
_ALONE = re.compile(r"\\[1-9]|\(\?P|\(\?\(|\(\?[aiLmsux]")


@lru_cache(maxsize=64)
def token_lines(text: str, language: str) -> tuple[Line, ...]:
    """The lines of `text` without their ends, as runs with the classes of `language`, a key of `LEXERS`.

    Line ends are `\\r\\n`, `\\r` or `\\n`; a last line without one counts as a line, an empty text has none. What was
    read last is kept: one file is shown on its own page, in entries and in differences.
    """
    plain = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    if language == "text":
        lines = plain.split("\n")
        return tuple((("", line),) if line else () for line in (lines if lines[-1] else lines[:-1]))
    return tuple(_lines(plain, language))


def _lines(text: str, language: str) -> Iterator[Line]:
    line: list[Run] = []
    last = None
    for _, kind, value in _lexer(language).get_tokens_unprocessed(text):
        name, part = _token_class(kind), value
        if "\n" in value:
            part, *rest = value.split("\n")
            for following in rest:
                if part:
                    line.append((name, line.pop()[1] + part) if last == name else (name, part))
                yield tuple(line)
                line.clear()
                last, part = None, following
        if part:
            line.append((name, line.pop()[1] + part) if last == name else (name, part))
            last = name
    if line:
        yield tuple(line)


class _Joined(RegexLexer):
    """A lexer whose states match as one pattern each, otherwise like the one that stands behind it."""

    def get_tokens_unprocessed(
        self, text: str, stack: Iterable[str] = ("root",)
    ) -> Iterator[tuple[int, _TokenType, str]]:
        """As Pygments', which describes what rules may say."""
        at, states = 0, list(stack)
        steps = _steps(type(self), states[-1])
        while True:
            for match_any, rules in steps:
                matched = match_any(text, at)
                if matched:
                    match_one, action, target = rules[matched.lastindex or 0]
                    if isinstance(action, _TokenType):
                        yield at, action, matched.group()
                    elif action is not None:
                        yield from action(self, match_one(text, at))
                    at = matched.end()
                    if target is not None:
                        _go(states, target)
                        steps = _steps(type(self), states[-1])
                    break
            else:
                if at >= len(text):
                    return
                # What no rule knows; a line end ends whatever was open.
                if text[at] == "\n":
                    states = ["root"]
                    steps = _steps(type(self), "root")
                yield at, Whitespace if text[at] == "\n" else Token.Error, text[at]
                at += 1


def _go(stack: list[str], target: Any) -> None:
    """Leave or enter states as a rule says: a number of states to leave, `#push`, or names and both of these."""
    if isinstance(target, int):
        del stack[max(1, len(stack) + target) :]
        return
    for state in (target,) if isinstance(target, str) else target:
        if state == "#pop":
            del stack[max(1, len(stack) - 1) :]
        else:
            stack.append(stack[-1] if state == "#push" else state)


@cache
def _steps(lexer: Any, state: str) -> tuple[_Step, ...]:
    """The rules of a lexer's state, neighbours as one pattern where that matches the same."""
    steps: list[_Step] = []
    together: list[_Rule] = []
    for rule in lexer._tokens[state]:
        if _ALONE.search(_pattern(rule)):
            steps += _joined(together, lexer.flags)
            together = []
            steps.append((rule[0], dict.fromkeys(range(rule[0].__self__.groups + 1), rule)))
        else:
            together.append(rule)
    return (*steps, *_joined(together, lexer.flags))


def _joined(rules: Sequence[_Rule], flags: int) -> list[_Step]:
    if not rules:
        return []
    groups = 0
    numbered: dict[int, _Rule] = {}
    for rule in rules:
        groups += re.compile(_pattern(rule), flags).groups + 1
        numbered[groups] = rule
    # The empty group behind each alternative tells which it was.
    return [(re.compile("|".join(f"(?:{_pattern(rule)})()" for rule in rules), flags).match, numbered)]


def _pattern(rule: _Rule) -> str:
    matcher: Any = rule[0]
    return str(matcher.__self__.pattern)


@cache
def _lexer(language: str) -> Lexer:
    own = LEXERS[language]
    if own.get_tokens_unprocessed is RegexLexer.get_tokens_unprocessed:
        own = type(own.__name__, (_Joined, own), {})
    # Leading blank lines stay: line numbers must be the file's own.
    return own(stripnl=False, ensurenl=False)


@cache
def _token_class(kind: _TokenType) -> str:
    ancestor: _TokenType | None = kind
    while ancestor is not None:
        if ancestor in CLASSES:
            return CLASSES[ancestor]
        ancestor = ancestor.parent
    return ""
