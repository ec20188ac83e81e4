"""Semantic versions: which text is one, which of two comes first, what comes next (semver.org, 2.0.0)."""

from __future__ import annotations

import re
from collections.abc import Iterable

VERSION_CHARACTERS = 64
_NUMBER = r"(?:0|[1-9][0-9]{0,8})"
# Small letters alone: a version is a file's name, and some systems do not tell `rc` from `RC`.
_PART = rf"(?:{_NUMBER}|[0-9a-z-]*[a-z-][0-9a-z-]*)"
_VERSION = re.compile(rf"({_NUMBER})\.({_NUMBER})\.({_NUMBER})(?:-({_PART}(?:\.{_PART})*))?")
# A release sorts after all of its pre-releases; in a pre-release numbers sort before words.
Precedence = tuple[int, int, int, bool, tuple[tuple[bool, int, str], ...]]


def version_fault(text: str) -> str | None:
    """Why `text` cannot be a published version, as the rest of a sentence that begins with it; None if it can."""
    if len(text) > VERSION_CHARACTERS:
        return f"has {len(text)} characters, more than {VERSION_CHARACTERS}"
    if "+" in text:
        return "has build metadata (+...), which orders nothing, so two versions would be one"
    if _VERSION.fullmatch(text):
        return None
    if _VERSION.fullmatch(text.lower()):
        return "holds capital letters, which some file systems do not tell from small ones"
    return "is not a version of three numbers, with or without a pre-release"


def precedence(version: str) -> Precedence:
    """What versions are sorted by. `version` has no `version_fault`."""
    found = _VERSION.fullmatch(version)
    if found is None:
        raise ValueError(f"{version!r} is not a version")
    parts = found[4].split(".") if found[4] else []
    keys = tuple((not part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts)
    return int(found[1]), int(found[2]), int(found[3]), not parts, keys


def in_order(versions: Iterable[str]) -> list[str]:
    """Versions from the first to the newest."""
    return sorted(versions, key=precedence)


def is_release(version: str) -> bool:
    """Whether it is none of the pre-releases."""
    return "-" not in version


def next_free(version: str, taken: Iterable[str]) -> str:
    """The first version after `version` that is not `taken`, by its last number, or that of its pre-release."""
    known = set(taken)
    base, _, suffix = version.partition("-")
    if suffix:
        head, _, last = suffix.rpartition(".")
        stem, number = (f"{head}.", int(last)) if last.isdigit() and head else (f"{suffix}.", 1)
        prefix = f"{base}-{stem}"
    else:
        major, minor, patch = base.split(".")
        prefix, number = f"{major}.{minor}.", int(patch)
    while f"{prefix}{number}" in known or f"{prefix}{number}" == version:
        number += 1
    return f"{prefix}{number}"
