"""How diagnostics are shown, as text and as JSON."""

from __future__ import annotations

import json

from linnet.language.diagnostics import CODES, Diagnostic, Diagnostics, Note, render, to_json
from linnet.language.source import Source, Span

SOURCE = Source("src/a.linnet", "module a\n\nfn f(x: f32) -> f32 {\n\treturn x + wide\n}\n")


def mark(text: str, source: Source = SOURCE) -> Span:
    """The span of the first occurrence of a text."""
    start = source.text.index(text)
    return Span(source, start, start + len(text))


def test_message_place_line_notes_and_help() -> None:
    note = Note("`x` is f32", mark("x: f32"))
    diagnostic = Diagnostic("E2103", "dtypes differ", mark("wide"), (note, Note("`wide` is f64")), "cast it")
    assert render(diagnostic).splitlines() == [
        "error[E2103]: dtypes differ",
        " --> src/a.linnet:4:13",
        "4 |     return x + wide",
        "  |                ^^^^",
        "note: `x` is f32",
        " --> src/a.linnet:3:6",
        "3 | fn f(x: f32) -> f32 {",
        "  |      ^^^^^^",
        "note: `wide` is f64",
        "help: cast it",
    ]


def test_warnings_are_named_so() -> None:
    assert render(Diagnostic("W1001", "unused import", mark("f32"))).startswith("warning[W1001]: unused import\n")


def test_a_span_of_several_lines_is_marked_on_its_first() -> None:
    shown = render(Diagnostic("E2120", "missing `return`", mark("{\n\treturn x"))).splitlines()
    assert shown[1:] == [
        " --> src/a.linnet:3:21",
        "3 | fn f(x: f32) -> f32 {",
        "  |                     ^",
    ]


def test_line_numbers_of_different_width_share_a_gutter() -> None:
    source = Source("b", "\n" * 8 + "first\n" + "second\n")
    shown = render(Diagnostic("E1201", "m", mark("second", source), (Note("n", mark("first", source)),)))
    assert shown.splitlines() == [
        *("error[E1201]: m", "  --> b:10:1", "10 | second", "   | ^^^^^^"),
        *("note: n", "  --> b:9:1", " 9 | first", "   | ^^^^^"),
    ]


def test_an_empty_span_is_one_caret_past_the_end() -> None:
    source = Source("c", "abc\r\n")
    assert render(Diagnostic("E1101", "m", Span(source, 3, 3))).splitlines()[2:] == ["1 | abc", "  |    ^"]
    assert render(Diagnostic("E1101", "m", Span(source, 5, 5))).splitlines()[1:] == [" --> c:2:1", "2 |", "  | ^"]
    assert render(Diagnostic("E1102", "m", Span(Source("d", ""), 0, 0))).splitlines()[1] == " --> d:1:1"


def test_wide_and_unprintable_characters_keep_the_carets_in_place() -> None:
    source = Source("e", "“漢” \0 \x1b[31m\udce9 x")
    shown = render(Diagnostic("E1001", "m", mark("x", source))).splitlines()
    assert shown[2] == "1 | “漢” \ufffd \ufffd[31m\ufffd x"
    assert shown[3] == f"  | {' ' * 14}^"
    assert "\x1b" not in "".join(shown)


def test_a_long_line_is_shown_around_the_span() -> None:
    source = Source("f", "a + " * 1000 + "here" + " + b" * 1000)
    shown = render(Diagnostic("E1201", "m", mark("here", source))).splitlines()
    assert shown[1] == " --> f:1:4001"
    assert len(shown[2]) < 180
    assert shown[2].startswith("1 | …")
    assert shown[2].endswith("…")
    start = shown[3].index("^")
    assert shown[2][start : start + 4] == "here"
    assert shown[3].count("^") == 4


def test_colour_adds_only_escapes() -> None:
    diagnostic = Diagnostic("E2103", "m", mark("wide"), (Note("n", mark("x")),), "h")
    colored = render(diagnostic, color=True)
    plain = colored
    for code in ("0", "1", "2", "1;31", "1;36", "1;32"):
        plain = plain.replace(f"\x1b[{code}m", "")
    assert colored != plain
    assert plain == render(diagnostic)


def test_json_has_lines_columns_and_utf8_offsets() -> None:
    source = Source("g.linnet", '// größe\nlet x = "é" + y\n')
    diagnostic = Diagnostic("E1201", "m", mark("y", source), (Note("here", mark("x", source)), Note("bare")), "h")
    shown = to_json(diagnostic)
    data = source.text.encode()
    assert data[shown["start"] : shown["end"]] == b"y"
    assert json.loads(json.dumps(shown)) == {
        "code": "E1201",
        "severity": "error",
        "message": "m",
        "file": "g.linnet",
        "line": 2,
        "column": 15,
        "end_line": 2,
        "end_column": 16,
        "start": 26,
        "end": 27,
        "notes": [
            {
                "message": "here",
                "file": "g.linnet",
                "line": 2,
                "column": 5,
                "end_line": 2,
                "end_column": 6,
                "start": 15,
                "end": 16,
            },
            {"message": "bare"},
        ],
        "help": "h",
    }


def test_json_counts_the_bytes_of_a_byte_order_mark_and_of_bad_bytes() -> None:
    source = Source("h", "\ufeffa\udce9b")
    shown = to_json(Diagnostic("E1001", "m", mark("b", source)))
    assert (shown["line"], shown["column"], shown["start"]) == (1, 3, 5)


def test_collected_by_position_and_once() -> None:
    diagnostics = Diagnostics()
    other = Source("a", "text")
    diagnostics.warning("W1002", "later", mark("wide"))
    assert not diagnostics.has_errors
    diagnostics.error("E1201", "first", mark("x"))
    diagnostics.error("E1201", "first", mark("x"))
    diagnostics.error("E1201", "other file", Span(other, 2, 3))
    assert diagnostics.has_errors
    assert [item.message for item in diagnostics.items] == ["other file", "first", "later"]


def test_codes_have_one_line_each() -> None:
    assert all(meaning and "\n" not in meaning for meaning in CODES.values())
    assert all(len(code) == 5 and code[0] in "EW" and code[1:].isdigit() for code in CODES)
