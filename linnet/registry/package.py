"""A package folder: which paths a package may name, which files it holds."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from linnet.registry.errors import PackageError, Problem, bare, shown

CARD_NAME = "nest.toml"
README_NAME = "README.md"
MANIFEST_NAME = "linnet.toml"
NAME_CHARACTERS = 64
PATH_CHARACTERS = 1024
SEGMENT_BYTES = 255
# Bounds on a package, so that a check ends: of one file, without weights, and of how many there are.
FILE_BYTES = 64 << 20
MOST_FILES = 10_000
# Folders and files that tools leave behind; never part of a package.
LEFTOVERS = frozenset({"__pycache__", "Thumbs.db", "desktop.ini", "node_modules"})
# Names that Windows gives to devices, with any extension.
RESERVED = frozenset({"con", "prn", "aux", "nul", *(f"{d}{n}" for d in ("com", "lpt") for n in "123456789¹²³")})
UNSAFE_CHARACTERS = '<>:"|?*'


@dataclass(frozen=True, slots=True)
class PackageFile:
    """A file of a package: `path` is relative, with forward slashes; `size` in bytes; `sha256` in hex."""

    path: str
    size: int
    sha256: str


def name_fault(text: str) -> str | None:
    """Why `text` cannot name a package, as the rest of a sentence that begins with the name; None if it can."""
    if not text:
        return "is empty"
    if len(text) > NAME_CHARACTERS:
        return f"has {len(text)} characters, more than {NAME_CHARACTERS}"
    if not re.fullmatch(r"[a-z0-9.-]+", text):
        return "may hold only the letters a-z, digits, dots and hyphens"
    if not text[0].isalnum() or not text[-1].isalnum() or ".." in text:
        return "must begin and end with a letter or digit and hold no two dots in a row"
    if text.split(".")[0] in RESERVED:
        return "is a device name on Windows"
    return None


def path_fault(text: str) -> str | None:
    """Why `text` is not a plain relative path, as the rest of a sentence that begins with the path; None if it is one.

    Plain means the same file on every system and never one outside the package: forward slashes, no empty, `.` or `..`
    segment, no drive, no control character, no name that Windows changes or refuses, Unicode in its composed form.
    """
    if not text:
        return "is empty"
    if len(text) > PATH_CHARACTERS:
        return f"has {len(text)} characters, more than {PATH_CHARACTERS}"
    if "\0" in text:
        return "holds a NUL character"
    if "\\" in text:
        return "holds a backslash"
    if text.startswith("/") or re.match(r"[A-Za-z]:", text):
        return "is not relative to the package"
    if any(unicodedata.category(ch) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp") for ch in text):
        return "holds a control or invisible character"
    if any(ch in UNSAFE_CHARACTERS for ch in text):
        return f"holds one of the characters {' '.join(UNSAFE_CHARACTERS)}"
    if unicodedata.normalize("NFC", text) != text:
        return "is not in Unicode's composed form (NFC)"
    for segment in text.split("/"):
        if segment == "..":
            return "leaves the package"
        if segment in ("", "."):
            return "has an empty segment"
        if len(segment.encode()) > SEGMENT_BYTES:
            return f"has a segment of more than {SEGMENT_BYTES} bytes"
        if segment[-1] in ". " or segment[0] == " ":
            return "has a segment with a space at an end or a dot at its end"
        if segment.split(".")[0].rstrip().lower() in RESERVED:
            return "has a segment that is a device name on Windows"
    return None


def package_path(root: Path, text: str) -> Path:
    """The file that `text` names inside the package at `root`, every link followed; it need not exist.

    Every path that a package names passes through here. Raises PackageError where the path is not plain or where a
    symbolic link leads out of the package.
    """
    if fault := path_fault(text):
        raise PackageError([path_problem(text, fault)])
    base, resolved = root.resolve(), Path()
    try:
        resolved = (base / text).resolve()
    except (OSError, RuntimeError):
        # Python 3.11 reports a loop of links as RuntimeError.
        raise PackageError([path_problem(text, "is a symbolic link that leads nowhere")]) from None
    if not resolved.is_relative_to(base):
        raise PackageError([path_problem(text, "leaves the package through a symbolic link")])
    return resolved


def path_problem(text: str, fault: str, where: str = "") -> Problem:
    """The problem of a path with a fault that `path_fault` words."""
    return Problem(
        "package.path",
        where or bare(text),
        f"The path {shown(text)} {fault}.",
        "Write a path inside the package, such as src/lib.linnet, with forward slashes.",
    )


def read_file(root: Path, text: str, limit: int) -> bytes:
    """The bytes of a package's file.

    Raises PackageError where it is absent, not a plain file, or over `limit` bytes.
    """
    path = package_path(root, text)
    try:
        # Asked before opening: a pipe would block whoever opens it.
        if not stat.S_ISREG(path.stat().st_mode):
            raise PackageError([_file_problem(text, "is not a plain file", "Replace it by a file.")])
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except FileNotFoundError:
        raise PackageError([_file_problem(text, "is not in the package", f"Add {text}.", "package.missing")]) from None
    except OSError as error:
        reason = (error.strerror or "unknown error").lower()
        raise PackageError([_file_problem(text, f"cannot be read: {reason}", "Make it a readable file.")]) from None
    if len(data) > limit:
        raise PackageError([_too_large(text, limit)])
    return data


def package_files(root: Path, *, skip: frozenset[str] = frozenset()) -> list[PackageFile]:
    """Every file of the package at `root`, sorted by path, without those in `skip` (weights, which a registry does not
    keep with the sources) and without hidden files and what tools leave behind.

    Raises PackageError with every path that cannot be part of a package: one that leaves it through a link, a device or
    socket, a name that is not the same everywhere, two names that differ only in case, a file over FILE_BYTES; or where
    there are more than MOST_FILES.
    """
    problems: list[Problem] = []
    files: list[PackageFile] = []
    seen: dict[str, str] = {}
    for text in _walk(root, problems):
        if text in skip:
            continue
        if len(seen) == MOST_FILES:
            message = f"The package {root} holds more than {MOST_FILES} files."
            problems.append(Problem("package.folder", str(root), message, "Keep what the model needs."))
            break
        if fault := path_fault(text):
            problems.append(path_problem(text, fault))
            continue
        folded = unicodedata.normalize("NFC", text.casefold())
        if folded in seen:
            problems.append(path_problem(text, f"differs from {shown(seen[folded])} only in case"))
            continue
        seen[folded] = text
        try:
            path = package_path(root, text)
            if not path.is_file():
                problems.append(_file_problem(text, "is not a plain file", "Remove it or replace it by a file."))
                continue
            if path.stat().st_size > FILE_BYTES:
                problems.append(_too_large(text, FILE_BYTES))
                continue
            size, digest = digest_file(path)
        except PackageError as error:
            problems.extend(error.problems)
            continue
        except OSError as error:
            reason = (error.strerror or "unknown error").lower()
            problems.append(_file_problem(text, f"cannot be read: {reason}", "Make it readable."))
            continue
        files.append(PackageFile(text, size, digest))
    if problems:
        raise PackageError(problems)
    return sorted(files, key=lambda file: file.path)


def digest_file(path: Path) -> tuple[int, str]:
    """Size in bytes and sha256, in hex, of the bytes that were read."""
    size, digest = 0, hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            size += len(block)
            digest.update(block)
    return size, digest.hexdigest()


def human_size(size: int) -> str:
    """Bytes for people: `60 B`, `97.3 KiB`, `1.2 MiB`, `16.4 GiB`."""
    if size < 1024:
        return f"{size} B"
    amount, units = size / 1024, ["KiB", "MiB", "GiB", "TiB"]
    # Below 1023.95 the rounded figure keeps at most four digits before the point.
    while amount >= 1023.95 and len(units) > 1:
        amount /= 1024
        units.pop(0)
    return f"{amount:.1f} {units[0]}"


def _walk(root: Path, problems: list[Problem]) -> Iterator[str]:
    """Relative paths of everything under `root` that is not a folder; linked folders are not entered but reported."""
    pending = [""]
    while pending:
        prefix = pending.pop()
        try:
            entries = sorted(os.scandir(root / prefix), key=lambda entry: entry.name)
        except OSError as error:
            reason = (error.strerror or "unknown error").lower()
            problems.append(_file_problem(prefix or str(root), f"cannot be listed: {reason}", "Make it readable."))
            continue
        for entry in entries:
            if entry.name.startswith(".") or entry.name in LEFTOVERS:
                continue
            text = f"{prefix}{entry.name}"
            if entry.is_symlink() and (root / text).is_dir():
                problems.append(path_problem(text, "is a link to a folder"))
            elif entry.is_dir(follow_symlinks=False):
                pending.append(f"{text}/")
            else:
                yield text


def _too_large(text: str, limit: int) -> Problem:
    help = "Make it smaller: large data belongs in weights."
    return _file_problem(text, f"is larger than {human_size(limit)}", help)


def _file_problem(text: str, fault: str, help: str, kind: str = "package.file") -> Problem:
    return Problem(kind, bare(text), f"The file {shown(text)} {fault}.", help)
