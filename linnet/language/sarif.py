"""Diagnostics as SARIF 2.1.0, the form that code hosts read (OASIS, "Static Analysis Results Interchange Format")."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from linnet.language.diagnostics import CODES, Diagnostic, Note
from linnet.language.source import Span

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def to_sarif(diagnostics: Sequence[Diagnostic], files: Sequence[str], version: str) -> dict[str, object]:
    """One run of the checker over `files`, as plain values.

    Lines and columns count characters from 1, as everywhere here; regions also give character and UTF-8 byte offsets.
    `version` is the checker's own.
    """
    codes = sorted({item.code for item in diagnostics})
    driver = {"name": "linnet", "semanticVersion": version, "rules": [_rule(code) for code in codes]}
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "artifacts": [{"location": _artifact(file), "sourceLanguage": "linnet"} for file in files],
        "results": [_result(item, codes.index(item.code)) for item in diagnostics],
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(code: str) -> dict[str, object]:
    meaning = _printable(CODES[code])
    return {
        "id": code,
        "shortDescription": {"text": f"{meaning[0].upper()}{meaning[1:]}."},
        "help": {
            "text": f"{meaning[0].upper()}{meaning[1:]}. The guide's page on diagnostics says what to do at {code}."
        },
        "defaultConfiguration": {"level": "warning" if code.startswith("W") else "error"},
    }


def _result(item: Diagnostic, rule: int) -> dict[str, object]:
    lines = [item.message, *(note.message for note in item.notes if note.span is None)]
    lines += [f"help: {item.help}"] if item.help is not None else []
    result: dict[str, object] = {
        "ruleId": item.code,
        "ruleIndex": rule,
        "level": item.severity,
        "message": {"text": _printable("\n".join(lines))},
        "locations": [{"physicalLocation": _place(item.span)}],
    }
    related = [_related(note, note.span) for note in item.notes if note.span is not None]
    if related:
        result["relatedLocations"] = related
    return result


def _related(note: Note, span: Span) -> dict[str, object]:
    return {"message": {"text": _printable(note.message)}, "physicalLocation": _place(span)}


def _place(span: Span) -> dict[str, object]:
    source = span.source
    line, column = source.position(span.start)
    end_line, end_column = source.position(span.end)
    return {
        "artifactLocation": _artifact(source.name),
        "region": {
            "startLine": line,
            "startColumn": column,
            "endLine": end_line,
            "endColumn": end_column,
            "charOffset": span.start,
            "charLength": span.end - span.start,
            "byteOffset": _size(source.text[: span.start]),
            "byteLength": _size(span.text),
            "snippet": {"text": _printable(span.text)},
        },
    }


def _artifact(file: str) -> dict[str, object]:
    """A relative path stays one, so that a code host finds the file in its repository."""
    path = Path(file)
    return {"uri": path.as_uri() if path.is_absolute() else quote(_printable(path.as_posix()))}


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogateescape"))


def _printable(text: str) -> str:
    """Text that UTF-8 can carry: a byte that is not UTF-8 (a lone surrogate here) becomes a question mark."""
    return text.encode("utf-8", "replace").decode("utf-8")
