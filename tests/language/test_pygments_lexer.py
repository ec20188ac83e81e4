"""The Pygments lexer: every source of ours and of the seed, without an error token and without losing a character."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pytest
from pygments.token import Comment, Error, Keyword, Name, Number, String, _TokenType

from linnet.language.syntax.pygments_lexer import LinnetLexer

STD = Path(str(files("linnet"))) / "std"


def tokens(text: str) -> list[tuple[_TokenType, str]]:
    """The tokens that are not white space."""
    return [(kind, value) for kind, value in LinnetLexer(ensurenl=False).get_tokens(text) if value.strip()]


def assert_faithful(text: str) -> None:
    found = list(LinnetLexer(ensurenl=False, stripnl=False).get_tokens(text))
    assert [value for kind, value in found if kind is Error] == []
    assert "".join(value for _, value in found) == text


@pytest.mark.parametrize("path", sorted(STD.rglob("*.linnet")), ids=lambda path: path.relative_to(STD).as_posix())
def test_standard_library(path: Path) -> None:
    assert_faithful(path.read_text(encoding="utf-8"))


def test_seed(seed: Path) -> None:
    sources = sorted(seed.rglob("*.linnet"))
    assert sources
    for path in sources:
        assert_faithful(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/// words", [(String.Doc, "/// words")]),
        ("// words", [(Comment.Single, "// words")]),
        ("pub fn f", [(Keyword, "pub"), (Keyword.Declaration, "fn"), (Name.Function, "f")]),
        ("block Linear", [(Keyword.Declaration, "block"), (Name.Class, "Linear")]),
        ("param weight", [(Keyword.Declaration, "param"), (Name.Variable.Instance, "weight")]),
        ("bf16", [(Keyword.Type, "bf16")]),
        ("none", [(Keyword.Constant, "none")]),
        ("0xff", [(Number.Hex, "0xff")]),
        ("1e-6", [(Number.Float, "1e-6")]),
    ],
)
def test_token_kinds(text: str, expected: list[tuple[_TokenType, str]]) -> None:
    assert tokens(text) == expected


def test_a_range_is_no_float() -> None:
    assert [value for _, value in tokens("0..Steps")] == ["0", "..", "Steps"]


def test_reductions_are_built_in_and_like_named_variables_are_not() -> None:
    assert tokens("sum<f32>[k]")[0] == (Name.Builtin, "sum")
    assert tokens("any[k]")[0] == (Name.Builtin, "any")
    assert tokens("sum + 1")[0] == (Name, "sum")


def test_block_comments_nest() -> None:
    found = tokens("/* a /* b */ c */ x")
    assert found[-1] == (Name, "x")
    assert all(kind is Comment.Multiline for kind, _ in found[:-1])
