"""Text to tokens: kinds, values, comments, and a report instead of an exception for whatever the text holds."""

from __future__ import annotations

from pathlib import Path

import pytest
from fuzzing import fuzzed
from hypothesis import given
from hypothesis import strategies as st

from linnet.language.diagnostics import Diagnostics
from linnet.language.source import Source, read_source
from linnet.language.syntax.lexer import KEYWORDS, PUNCTUATION, RESERVED, Lexed, lex


def lexed(text: str) -> tuple[Lexed, list[tuple[str, str, str]]]:
    """The tokens of a text, and code, message and marked text of what is reported."""
    diagnostics = Diagnostics()
    found = lex(Source("test.linnet", text), diagnostics)
    return found, [(item.code, item.message, item.span.text) for item in diagnostics.items]


def kinds(text: str) -> list[str]:
    found, reported = lexed(text)
    assert reported == []
    return [token.kind for token in found.tokens]


def values(text: str) -> list[int | float | str | None]:
    found, reported = lexed(text)
    assert reported == []
    return [token.value for token in found.tokens[:-1]]


def test_names_keywords_and_reserved_words() -> None:
    assert kinds("letter let let_ kernel _x Tensor sum grad") == [
        *("name", "let", "name", "kernel", "name", "name", "name", "name", "end"),
    ]


@pytest.mark.parametrize("mark", [*PUNCTUATION, *sorted(KEYWORDS | RESERVED)])
def test_marks_and_words_are_their_own_kind(mark: str) -> None:
    assert kinds(mark) == [mark, "end"]


def test_the_longest_mark_is_taken() -> None:
    assert kinds("....<=>") == ["...", ".", "<=", ">", "end"]
    assert kinds("a::b:c") == ["name", "::", "name", ":", "name", "end"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("42", 42),
        ("1_000", 1000),
        ("007", 7),
        ("0xff", 255),
        ("0xFF_ff", 0xFFFF),
        ("0b1010", 10),
        ("18446744073709551615", 2**64 - 1),
        ("0xffff_ffff_ffff_ffff", 2**64 - 1),
        ("0" * 5000 + "1", 1),
        ("1.5", 1.5),
        ("1e-5", 1e-5),
        ("1E+5", 1e5),
        ("3.14_15", 3.1415),
        ("1.0e3", 1000.0),
        ("0.0", 0.0),
        ('"text"', "text"),
        (r'"a\n\t\\\"\0"', 'a\n\t\\"\0'),
        ('""', ""),
    ],
)
def test_literals(text: str, value: object) -> None:
    (found,) = values(text)
    assert found == value
    assert type(found) is type(value)


def test_a_range_is_two_integers() -> None:
    assert kinds("0..Steps") == ["int", "..", "name", "end"]
    assert kinds("0..10") == ["int", "..", "int", "end"]
    assert kinds("x[0].y") == ["name", "[", "int", "]", ".", "name", "end"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0x", "`0x` is not a hexadecimal number"),
        ("0xzz", "`0xzz` is not a hexadecimal number"),
        ("0b102", "`0b102` is not a binary number"),
        ("12abc", "`12abc` is not a number"),
        ("1_", "`1_` is not a number"),
        ("1.5_", "`1.5_` is not a number"),
        ("1e", "`1e` is not a number"),
        ("1.5f", "`1.5f` is not a number"),
        ("18446744073709551616", "`18446744073709551616` is larger than any integer type holds (2**64 - 1 at most)"),
        ("9" * 5000, f"`{'9' * 36}…` is larger than any integer type holds (2**64 - 1 at most)"),
        (
            "0x1_0000_0000_0000_0000",
            "`0x1_0000_0000_0000_0000` is larger than any integer type holds (2**64 - 1 at most)",
        ),
        ("1e999", "`1e999` is larger than any f64"),
        ("9" * 5000 + ".0", f"`{'9' * 36}…` is larger than any f64"),
        ("1e-999", "`1e-999` is too small for an f64 and would become zero"),
    ],
)
def test_bad_numbers(text: str, message: str) -> None:
    found, reported = lexed(text)
    assert reported == [("E1005", message, text)]
    assert [token.kind for token in found.tokens][1:] == ["end"]


@pytest.mark.parametrize(
    ("text", "code", "message", "marked"),
    [
        ('"abc', "E1003", "this string is not closed on its line", '"abc'),
        ('"abc\r\nx', "E1003", "this string is not closed on its line", '"abc'),
        ('"abc\\', "E1003", "this string is not closed on its line", '"abc\\'),
        (r'"a\q"', "E1003", r"`\q` is not an escape", r"\q"),
        ("'abc'", "E1003", "a string is written in double quotes", "'abc'"),
        ("x $ y", "E1001", "unexpected character `$`", "$"),
        ("x \0 y", "E1001", "unexpected character U+0000", "\0"),
        ("x\u00a0y", "E1001", "unexpected character U+00A0", "\u00a0"),
        ("x “y", "E1001", "unexpected character `“` (U+201C)", "“"),
        ("@@@@", "E1001", "unexpected character `@`", "@"),
        ("naïve", "E1001", "`ï` (U+00EF) cannot stand in a name", "ï"),
        ("größe", "E1001", "`ö` (U+00F6) cannot stand in a name", "ö"),
        ("été", "E1001", "`é` (U+00E9) cannot stand in a name", "é"),
        ("# a comment, 'quoted'", "E1001", "unexpected character `#`", "#"),
        ("a\ufeff", "E1001", "unexpected character U+FEFF", "\ufeff"),
        ("/* /* */", "E1002", "this block comment is never closed", "/*"),
        ("/*/", "E1002", "this block comment is never closed", "/*"),
    ],
)
def test_one_report_for_one_fault(text: str, code: str, message: str, marked: str) -> None:
    assert lexed(text)[1] == [(code, message, marked)]


def test_a_byte_order_mark_is_accepted_at_the_start() -> None:
    found, reported = lexed("\ufeffmodule a")
    assert reported == []
    source = Source("a", "\ufeffmodule a")
    assert source.position(found.tokens[0].start) == (1, 1)
    assert source.line(1) == "module a"


def test_comments_are_kept_and_nest() -> None:
    found, reported = lexed("// one\r\na /* two /* three */ */ /// four\n")
    assert reported == []
    assert [comment.text for comment in found.comments] == ["// one", "/* two /* three */ */", "/// four"]
    assert [(token.text, token.comments) for token in found.tokens] == [("a", 1), ("", 3)]


def test_what_follows_a_reported_fault_is_suspect() -> None:
    found, _ = lexed('a $ b "c')
    assert [(token.text, token.suspect) for token in found.tokens] == [
        *(("a", False), ("b", True), ('"c', True), ("", False)),
    ]


def test_bytes_that_are_not_utf8_are_reported_at_the_first(tmp_path: Path) -> None:
    path = tmp_path / "a.linnet"
    path.write_bytes(b"module a\n// caf\xe9 \xff\n")
    source = read_source(path, "a.linnet")
    diagnostics = Diagnostics()
    lex(source, diagnostics)
    (item,) = diagnostics.items
    assert (item.code, item.message) == ("E1001", "the byte 0xe9 is not UTF-8 text")
    assert item.span.location() == "a.linnet:2:7"


@given(
    st.text(st.sampled_from("ab_19.eE+-x\"\\'/*\n\r\t <>=&|:;#@é\0\ufeff\udce9“"), max_size=60) | st.text(max_size=60)
)
@fuzzed(100)
def test_tokens_and_comments_tile_any_text(text: str) -> None:
    """Tokens and comments do not overlap, and only white space and reported characters lie between them."""
    found, reported = lexed(text)
    assert found.tokens[-1].kind == "end"
    pieces = [(token.start, token.end) for token in found.tokens]
    pieces += [(comment.span.start, comment.span.end) for comment in found.comments]
    between = []
    last = 0
    for start, end in sorted(pieces):
        assert last <= start <= end
        between.append(text[last:start])
        last = end
    assert last == len(text)
    if not reported:
        assert "".join(between).removeprefix("\ufeff").strip(" \t\r\n") == ""
    for token in found.tokens[:-1]:
        assert token.text == text[token.start : token.end]
        assert token.text
