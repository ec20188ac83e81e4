"""Linnet for Pygments: what colours sources on pages and in documentation."""

from __future__ import annotations

from typing import ClassVar

from pygments.lexer import RegexLexer, bygroups, words
from pygments.token import (
    Comment,
    Keyword,
    Name,
    Number,
    Operator,
    Punctuation,
    String,
    Whitespace,
    _TokenType,
)

from linnet.language.program.types import DTYPES
from linnet.language.syntax.lexer import KEYWORDS, RESERVED
from linnet.language.syntax.parse_types import KINDS

PRELUDE = (
    *("cast", "exp", "log", "sqrt", "rsqrt", "sin", "cos", "tanh", "abs", "min", "max", "shl", "shr", "select"),
    *("reshape", "permute", "broadcast_to", "concat", "cumsum", "iota", "fill"),
)
_CONSTANTS = ("true", "false", "none")
_DECLARATIONS = ("const", "let", "var", "param", "buffer", "state", "sub")
_PLAIN_KEYWORDS = sorted(
    KEYWORDS.difference(
        _CONSTANTS, _DECLARATIONS, ("module", "use", "type", "struct", "enum", "block", "fn", "op", "entry")
    )
)
_NAME = r"[A-Za-z_]\w*"


def _groups(*kinds: _TokenType) -> object:
    """One kind for each group of a rule's pattern."""
    return bygroups(*kinds)  # type: ignore[no-untyped-call]


class LinnetLexer(RegexLexer):
    """Highlights `.linnet` sources."""

    name = "Linnet"
    aliases: ClassVar[list[str]] = ["linnet"]
    filenames: ClassVar[list[str]] = ["*.linnet"]
    mimetypes: ClassVar[list[str]] = ["text/x-linnet"]
    url = ""

    tokens: ClassVar[dict[str, list[object]]] = {
        "root": [
            (r"\s+", Whitespace),
            (r"///(?!/)[^\n]*", String.Doc),
            (r"//[^\n]*", Comment.Single),
            (r"/\*\*(?![*/])", String.Doc, "doc_comment"),
            (r"/\*", Comment.Multiline, "comment"),
            (r'"', String.Double, "string"),
            (rf"(module)(\s+)({_NAME}(?:\.{_NAME})*)", _groups(Keyword.Namespace, Whitespace, Name.Namespace)),
            (rf"(use)(\s+)({_NAME}(?:\.{_NAME})*)", _groups(Keyword.Namespace, Whitespace, Name.Namespace)),
            (rf"(fn|op|entry)(\s+)({_NAME})", _groups(Keyword.Declaration, Whitespace, Name.Function)),
            (rf"(type|struct|enum|block)(\s+)({_NAME})", _groups(Keyword.Declaration, Whitespace, Name.Class)),
            (
                rf"(param|buffer|state|sub)(\s+)({_NAME})",
                _groups(Keyword.Declaration, Whitespace, Name.Variable.Instance),
            ),
            (rf"(const)(\s+)({_NAME})", _groups(Keyword.Declaration, Whitespace, Name.Constant)),
            (
                words((*_DECLARATIONS, "type", "struct", "enum", "block", "fn", "op", "entry"), r"\b", r"\b"),
                Keyword.Declaration,
            ),
            (words(("module", "use"), r"\b", r"\b"), Keyword.Namespace),
            (words(_CONSTANTS, r"\b", r"\b"), Keyword.Constant),
            (words(_PLAIN_KEYWORDS, r"\b", r"\b"), Keyword),
            (words(sorted(RESERVED), r"\b", r"\b"), Keyword.Reserved),
            (words((*DTYPES, *KINDS, "Tensor"), r"\b", r"\b"), Keyword.Type),
            # A reduction: a contextual word before its indices.
            (r"(sum|prod|max|min|any|all)(?=(?:<[\w.]+>)?\[)", Name.Builtin),
            (words(PRELUDE, r"(?<!\.)\b", r"(?=\s*[(<])"), Name.Builtin),
            (rf"{_NAME}(?=\s*\()", Name.Function),
            (rf"(\.)({_NAME})", _groups(Punctuation, Name.Attribute)),
            (r"[A-Z]\w*", Name.Class),
            (_NAME, Name),
            (r"0[xX][0-9a-fA-F_]+", Number.Hex),
            (r"0[bB][01_]+", Number.Bin),
            (r"\d[\d_]*(?:\.\d[\d_]*(?:[eE][+-]?\d[\d_]*)?|[eE][+-]?\d[\d_]*)", Number.Float),
            (r"\d[\d_]*", Number.Integer),
            (r"\.\.\.?|->|=>|==|!=|<=|>=|&&|\|\||[-+*/%<>=!|^&?]", Operator),
            (r"::|[()\[\]{},:;.]", Punctuation),
        ],
        "string": [
            (r'"', String.Double, "#pop"),
            (r"\\.", String.Escape),
            (r'[^"\\\n]+', String.Double),
            # A string ends with its line, closed or not.
            (r"\n", Whitespace, "#pop"),
        ],
        "comment": [
            (r"/\*", Comment.Multiline, "#push"),
            (r"\*/", Comment.Multiline, "#pop"),
            (r"[^*/]+|[*/]", Comment.Multiline),
        ],
        "doc_comment": [
            (r"/\*", String.Doc, "#push"),
            (r"\*/", String.Doc, "#pop"),
            (r"[^*/]+|[*/]", String.Doc),
        ],
    }
