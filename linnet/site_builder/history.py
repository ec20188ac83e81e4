"""Versions of a model, and what changed between any two: card, generics, results, files."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any

from markupsafe import Markup

from linnet.language.words import counted
from linnet.registry.bench_text import COLUMNS, cell
from linnet.site_builder.collect import SHOWN_BYTES, ModelPage, PackageSource, VersionView
from linnet.site_builder.paths import diff_page
from linnet.site_builder.source_view import language_of, lines_of, plain_line
from linnet.site_builder.text import Anchors, one_line, path_anchor
from linnet.site_builder.tokens import Line

# How many of the newest versions are compared each with each; older ones are compared with the one before alone.
EACH_WITH_EACH = 10
# Longer texts are not compared line by line: the time grows with the product of their lengths.
COMPARED_LINES = 4_000
# Lines of all files together that one page of differences shows.
SHOWN_LINES = 800
VALUE_CHARACTERS = 400
CONTEXT = 3


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """A version, the page that compares it with the one before (empty for the first), and what that says in short."""

    view: VersionView
    previous: str
    change: str


@dataclass(frozen=True, slots=True)
class HistoryView:
    """`grid` has a row for each newer version: its label, and for each older one of `columns` the page and its name.

    `pairs` are all pages of differences with the newer and the older version; `omitted` whether some pairs have none.
    """

    rows: tuple[HistoryRow, ...]
    columns: tuple[str, ...]
    grid: tuple[tuple[str, tuple[tuple[str, str] | None, ...]], ...]
    pairs: tuple[tuple[str, PackageSource, PackageSource], ...]
    omitted: bool


@dataclass(frozen=True, slots=True)
class Change:
    """A key with its values; None where a version does not have it."""

    key: str
    old: str | None
    new: str | None


@dataclass(frozen=True, slots=True)
class FileDiff:
    """A file that differs: `status` is added, removed or changed; `lines` is HTML, empty where `note` says why."""

    path: str
    anchor: str
    status: str
    added: int
    removed: int
    lines: Markup
    note: str


@dataclass(frozen=True, slots=True)
class VersionDiff:
    older: str
    newer: str
    summary: str
    card: tuple[Change, ...]
    generics: tuple[Change, ...]
    results: tuple[Change, ...]
    files: tuple[FileDiff, ...]


def history_view(model: ModelPage, versions: Sequence[PackageSource]) -> HistoryView:
    """The history of a model; `versions` are newest first."""

    def page(newer: PackageSource, older: PackageSource) -> str:
        return diff_page(model.name, older.version, newer.version)

    rows = []
    for index, view in enumerate(model.versions):
        older = versions[index + 1] if index + 1 < len(versions) else None
        change = _short(older, versions[index]) if older is not None else ""
        rows.append(HistoryRow(view, page(versions[index], older) if older is not None else "", change))
    newest = list(versions[:EACH_WITH_EACH])
    pairs = {page(newer, older): (newer, older) for newer, older in (*combinations(newest, 2), *pairwise(versions))}
    grid = tuple(
        (
            newer.version,
            tuple(
                (page(newer, older), f"{older.version} to {newer.version}") if newest.index(newer) < index else None
                for index, older in enumerate(newest[1:], start=1)
            ),
        )
        for newer in newest[:-1]
    )
    return HistoryView(
        rows=tuple(rows),
        columns=tuple(item.version for item in newest[1:]),
        grid=grid if len(newest) > 2 else (),
        pairs=tuple((path, newer, older) for path, (newer, older) in pairs.items()),
        omitted=len(versions) > EACH_WITH_EACH,
    )


def compare_versions(older: PackageSource, newer: PackageSource) -> VersionDiff:
    """What changed from `older` to `newer`. Raises RegistryError where a file cannot be read."""
    files = tuple(_file_diffs(older, newer))
    return VersionDiff(
        older=older.version,
        newer=newer.version,
        summary=_short(older, newer),
        card=_changes(_card(older), _card(newer)),
        generics=_changes(older.record["generics"], newer.record["generics"]),
        results=_changes(_figures(older), _figures(newer)),
        files=files,
    )


def _short(older: PackageSource, newer: PackageSource) -> str:
    parts = []
    card = len(_changes(_card(older), _card(newer)))
    generics = len(_changes(older.record["generics"], newer.record["generics"]))
    files = len(_changed_paths(older, newer))
    parts += [f"{counted(card, 'key')} of the card"] if card else []
    parts += [counted(generics, "generic")] if generics else []
    parts += [counted(files, "file")] if files else []
    return ", ".join(parts) or "nothing but the number"


def _card(source: PackageSource) -> dict[str, str]:
    """The card's values by key path, without generics and the version itself."""
    card = {key: value for key, value in source.record["card"].items() if key != "generics"}
    flat = dict(_flatten(card, ""))
    flat.pop("model.version", None)
    return flat


def _flatten(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flatten(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, (list, tuple)):
        yield path, ", ".join(map(str, value))
    elif value is not None:
        yield path, str(value)


def _figures(source: PackageSource) -> dict[str, str]:
    report = source.measured()
    if report is None:
        return {}
    found = {label: cell(report.package, key).value for key, label in COLUMNS.items()}
    values = {label: value for label, value in found.items() if value}
    return {**values, "Measured on": f"{report.environment.device_name}, {report.date[:10]}"}


def _changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[Change, ...]:
    return tuple(
        Change(one_line(str(key)), _shown(old.get(key)), _shown(new.get(key)))
        for key in dict.fromkeys((*old, *new))
        if old.get(key) != new.get(key)
    )


def _shown(value: Any) -> str | None:
    if value is None:
        return None
    text = one_line(str(value))
    return text if len(text) <= VALUE_CHARACTERS else f"{text[: VALUE_CHARACTERS - 1]}…"


def _changed_paths(older: PackageSource, newer: PackageSource) -> list[str]:
    old, new = _digests(older), _digests(newer)
    return sorted(path for path in {*old, *new} if old.get(path) != new.get(path))


def _digests(source: PackageSource) -> dict[str, str]:
    return {str(file["path"]): str(file["sha256"]) for file in source.record["files"]}


def _file_diffs(older: PackageSource, newer: PackageSource) -> Iterator[FileDiff]:
    old, new = _digests(older), _digests(newer)
    left = SHOWN_LINES
    anchors = Anchors("content", "file-changes", "card-changes", "generics-changes", "results-changes")
    for path in _changed_paths(older, newer):
        status = "added" if path not in old else "removed" if path not in new else "changed"
        before = _text(older, path) if path in old else ""
        after = _text(newer, path) if path in new else ""
        anchor = anchors.claim(f"file-{path_anchor(path)}")
        note = ""
        if before is None or after is None:
            note = "Not text, or too large to compare here."
        elif max(before.count("\n"), after.count("\n")) > COMPARED_LINES:
            note = f"More than {COMPARED_LINES:,} lines are not compared here."
        if note:
            yield FileDiff(path, anchor, status, 0, 0, Markup(""), note)
            continue
        lines, added, removed = _lines(before or "", after or "", language_of(path))
        shown = lines[:left]
        left -= len(shown)
        if len(shown) < len(lines):
            shown.append(f'<span class="line cut">{counted(len(lines) - len(shown), "more line")}\n</span>')
        yield FileDiff(path, anchor, status, added, removed, Markup("".join(shown)), "" if shown else "No lines.")


def _text(source: PackageSource, path: str) -> str | None:
    size = next(int(file["size"]) for file in source.record["files"] if file["path"] == path)
    if size > SHOWN_BYTES:
        return None
    try:
        text = source.read(path).decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def _lines(before: str, after: str, language: str) -> tuple[list[str], int, int]:
    """The lines of a unified difference as HTML, and how many were added and removed."""
    old, new = before.splitlines(), after.splitlines()
    shown_old, shown_new = _highlighted(before, old, language), _highlighted(after, new, language)
    lines: list[str] = []
    added = removed = 0
    matcher = difflib.SequenceMatcher(None, old, new)
    for group in matcher.get_grouped_opcodes(CONTEXT):
        first = group[0]
        place = f"@@ {first[1] + 1} → {first[3] + 1} @@"
        lines.append(f'<span class="line hunk">{place}\n</span>')
        for tag, i, j, k, m in group:
            if tag == "equal":
                lines += [
                    f'<span class="line"><span class="sign"> </span>{plain_line(line)}\n</span>'
                    for line in shown_new[k:m]
                ]
                continue
            lines += [
                f'<span class="line del"><span class="sign">-</span><del>{plain_line(line)}</del>\n</span>'
                for line in shown_old[i:j]
            ]
            lines += [
                f'<span class="line add"><span class="sign">+</span><ins>{plain_line(line)}</ins>\n</span>'
                for line in shown_new[k:m]
            ]
            removed += j - i
            added += m - k
    return lines, added, removed


def _highlighted(text: str, lines: Sequence[str], language: str) -> Sequence[Line]:
    shown = lines_of(text, language)
    # What splits lines elsewhere than a line feed is shown plain, so that both lists go together.
    return shown if len(shown) == len(lines) else lines_of("\n".join(map(one_line, lines)), "text")
