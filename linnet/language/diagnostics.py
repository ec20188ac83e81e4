"""Diagnostics: what they hold, how they are collected, and how they are shown to people and to programs."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from linnet.language.source import Source, Span

CODES: dict[str, str] = {
    "E1001": "bad character",
    "E1002": "unclosed block comment",
    "E1003": "bad string",
    "E1004": "reserved word as a name",
    "E1005": "bad number",
    "E1101": "unexpected token",
    "E1102": "no `module` at the start",
    "E1103": "reserved syntax",
    "E1201": "unknown name",
    "E1202": "module not found",
    "E1203": "item is not `pub`",
    "E1204": "two items of one name",
    "E1205": "two parameters, generics, fields, members, variants or locals of one name",
    "E1206": "import cycle",
    "E1207": "prelude name redeclared",
    "E1208": "name of the wrong kind",
    "E2101": "wrong type",
    "E2102": "wrong arguments",
    "E2103": "dtypes differ",
    "E2104": "operator not defined for the type",
    "E2105": "literal does not fit its dtype",
    "E2106": "not callable",
    "E2107": "no such member",
    "E2108": "assignment to something that is neither a `var` nor an own `state`",
    "E2109": "assignment changes a type",
    "E2110": "generic cannot be inferred",
    "E2111": "wrong generic arguments",
    "E2112": "dtype outside a generic's kind",
    "E2113": "`none` without a type",
    "E2114": "condition is not a scalar `bool`",
    "E2115": "branches differ in type",
    "E2116": "`&&`, `||` or `!` on a value that is not a scalar `bool`",
    "E2117": "impossible pattern",
    "E2118": "`match` is not exhaustive",
    "E2119": "recursion",
    "E2120": "missing or misplaced `return`",
    "E2121": "`static for` over something that is not static",
    "E2122": "self-referential definition",
    "E2123": "not a compile-time integer",
    "E2190": "not implemented",
    "E2201": "index with conflicting extents",
    "E2202": "wrong shape",
    "E2203": "reshape count unproven",
    "E2204": "wrong number of indices",
    "E2205": "divisor not proven positive",
    "E2206": "`where` unproven at a call",
    "E2207": "broadcast unproven",
    "E2208": "negative dimension",
    "E2209": "bad index or slice bound",
    "E2210": "bad axis or permutation",
    "E3101": "free index",
    "E3102": "reduction index unused",
    "E3103": "output index unused",
    "E3104": "not valid in index notation",
    "E3105": "index listed twice",
    "E3106": "pack used as a plain index, or the reverse",
    "E4101": "member with a type it cannot have",
    "E4102": "`param` with a value",
    "E5001": "bad `linnet.toml`",
    "W1001": "unused import",
    "W1002": "unused local",
    "W1003": "unused member",
    "W1004": "term behind a reduction that does not use its index",
    "W1005": "integer division of dimensions becomes a float",
}
"""Every diagnostic code and what it means, in one line."""

MAX_SHOWN = 100
"""How many errors, and how many warnings, of one source are kept: nobody reads more, and a file can hold 200,000."""

TAB_WIDTH = 4
LINE_WIDTH = 160
"""Longer source lines are shown in part, around the marked span."""


@dataclass(frozen=True, slots=True)
class Note:
    """One of the things that disagree, at its place if it has one."""

    message: str
    span: Span | None = None


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """An error or a warning (a code that begins with W) about a span of source."""

    code: str
    message: str
    span: Span
    notes: tuple[Note, ...] = ()
    help: str | None = None

    @property
    def severity(self) -> str:
        return "warning" if self.code.startswith("W") else "error"

    @property
    def sort_key(self) -> tuple[str, int, int, str, str]:
        return self.span.source.name, self.span.start, self.span.end, self.code, self.message


@dataclass(slots=True)
class Diagnostics:
    """Collects diagnostics; the same one reported twice is kept once.

    Of each source the first MAX_SHOWN errors and as many warnings are kept; the last of them says so if there are more.
    """

    _items: dict[tuple[str, int, int, str, str], Diagnostic] = field(default_factory=dict)
    _kept: Counter[tuple[str, str]] = field(default_factory=Counter)
    _cut: set[tuple[str, str]] = field(default_factory=set)
    _has_errors: bool = False

    def add(self, diagnostic: Diagnostic) -> None:
        key, severity = diagnostic.sort_key, diagnostic.severity
        self._has_errors = self._has_errors or severity == "error"
        if key in self._items:
            return
        kind = (diagnostic.span.source.name, severity)
        if self._kept[kind] < MAX_SHOWN:
            self._kept[kind] += 1
            self._items[key] = diagnostic
        else:
            self._cut.add(kind)

    def extend(self, diagnostics: Iterable[Diagnostic]) -> None:
        for diagnostic in diagnostics:
            self.add(diagnostic)

    def error(self, code: str, message: str, span: Span, notes: tuple[Note, ...] = (), help: str | None = None) -> None:
        """Adds an error. `code` is one of `CODES` that begins with E."""
        self.add(Diagnostic(code, message, span, notes, help))

    def warning(
        self, code: str, message: str, span: Span, notes: tuple[Note, ...] = (), help: str | None = None
    ) -> None:
        """Adds a warning. `code` is one of `CODES` that begins with W."""
        self.add(Diagnostic(code, message, span, notes, help))

    @property
    def items(self) -> list[Diagnostic]:
        """What was reported, by file name and position."""
        items = [self._items[key] for key in sorted(self._items)]
        last = {(item.span.source.name, item.severity): index for index, item in enumerate(items)}
        for kind in self._cut:
            item = items[last[kind]]
            note = Note(f"there are more {kind[1]}s in this file; {MAX_SHOWN} are shown at a time")
            items[last[kind]] = replace(item, notes=(*item.notes, note))
        return items

    def is_full(self, source: Source) -> bool:
        """Whether further errors of a source would not be shown."""
        return self._kept[source.name, "error"] >= MAX_SHOWN

    @property
    def has_errors(self) -> bool:
        return self._has_errors


# Showing them


_COLORS = {"error": "\x1b[1;31m", "warning": "\x1b[1;33m", "note": "\x1b[1;36m", "help": "\x1b[1;32m"}
_BOLD, _DIM, _RESET = "\x1b[1m", "\x1b[2m", "\x1b[0m"


def render(diagnostic: Diagnostic, color: bool = False) -> str:
    """The diagnostic as text: its message, the source line with the span marked, notes and help; no final newline."""
    spans = [diagnostic.span, *(note.span for note in diagnostic.notes if note.span is not None)]
    gutter = max(len(str(span.source.position(span.start)[0])) for span in spans)
    lines = [
        _heading(diagnostic.severity, f"{diagnostic.severity}[{diagnostic.code}]", diagnostic.message, color),
        *_excerpt(diagnostic.span, gutter, diagnostic.severity, color),
    ]
    for note in diagnostic.notes:
        lines.append(_heading("note", "note", note.message, color))
        if note.span is not None:
            lines.extend(_excerpt(note.span, gutter, "note", color))
    if diagnostic.help is not None:
        lines.append(_heading("help", "help", diagnostic.help, color))
    return "\n".join(lines)


def _heading(kind: str, label: str, message: str, color: bool) -> str:
    return f"{_COLORS[kind]}{label}{_RESET}{_BOLD}: {message}{_RESET}" if color else f"{label}: {message}"


def _excerpt(span: Span, gutter: int, kind: str, color: bool) -> list[str]:
    """The location, the first line of the span, and carets below what it covers of that line."""
    number, column = span.source.position(span.start)
    line = span.source.line(number)
    start = min(column - 1, len(line))
    end = max(min(start + span.end - span.start, len(line)), start)
    before, line, after = _clip(line, start, end)
    start, end = start - before, min(end - before, len(line))
    shown = [_shown(ch) for ch in line]
    lead = ("…" if before else "") + "".join(shown[:start])
    marked = "".join(shown[start:end])
    carets = "^" * max(1, _width(marked))
    text = f"{lead}{marked}{''.join(shown[end:])}{'…' if after else ''}"
    mark = " " * _width(lead) + (f"{_COLORS[kind]}{carets}{_RESET}" if color else carets)
    dim, reset = (_DIM, _RESET) if color else ("", "")
    return [
        f"{dim}{' ' * gutter}--> {span.location()}{reset}",
        f"{dim}{number:>{gutter}} | {reset}{text}".rstrip(),
        f"{dim}{' ' * gutter} | {reset}{mark}",
    ]


def _clip(line: str, start: int, end: int) -> tuple[int, str, bool]:
    """The part of a long line around `start`: characters cut before, what is left, whether some are cut after."""
    if len(line) <= LINE_WIDTH:
        return 0, line, False
    first = max(0, start - LINE_WIDTH // 4)
    last = min(len(line), first + LINE_WIDTH)
    return first, line[first:last], last < len(line)


def _shown(ch: str) -> str:
    """A character as a terminal can show it: tabs as spaces, what has no glyph as a replacement character."""
    if ch == "\t":
        return " " * TAB_WIDTH
    return ch if ch.isprintable() else "\ufffd"


def _width(text: str) -> int:
    """Terminal columns: wide East Asian characters take two, combining marks none."""
    return sum(0 if unicodedata.combining(ch) else 2 if unicodedata.east_asian_width(ch) in "WF" else 1 for ch in text)


def to_json(diagnostic: Diagnostic) -> dict[str, object]:
    """The diagnostic as plain values. Lines and columns count characters from 1; `start` and `end` are UTF-8 bytes."""
    return {
        "code": diagnostic.code,
        "severity": diagnostic.severity,
        "message": diagnostic.message,
        **_place(diagnostic.span),
        "notes": [
            {"message": note.message, **(_place(note.span) if note.span is not None else {})}
            for note in diagnostic.notes
        ],
        "help": diagnostic.help,
    }


def _place(span: Span) -> dict[str, object]:
    source = span.source
    line, column = source.position(span.start)
    end_line, end_column = source.position(span.end)
    start = len(source.text[: span.start].encode("utf-8", "surrogateescape"))
    return {
        "file": source.name,
        "line": line,
        "column": column,
        "end_line": end_line,
        "end_column": end_column,
        "start": start,
        "end": start + len(span.text.encode("utf-8", "surrogateescape")),
    }
