"""The digest of a package: of every byte that its index record is made of, and of nothing else."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import stat
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from linnet.language.strict_toml import TOML_BYTES
from linnet.registry.headers import HEADER_BYTES, PREFIX_BYTES
from linnet.registry.locate import Located
from linnet.registry.package import CARD_NAME, FILE_BYTES, LEFTOVERS, MANIFEST_NAME, MOST_FILES

LINNET = Path(__file__).resolve().parents[1]
_WEIGHTS = ".safetensors"
# A path that begins with a dot, or that an escape may hide: it would name a file that is not counted here.
_HIDDEN = re.compile(rb"""["'/]\.|\\""")


class _UncountedError(Exception):
    """A package whose record may depend on more than the files that are counted here."""


@dataclass(frozen=True, slots=True)
class Contents:
    """`digest` of the package; `files`: its files, sorted, each as path, size in bytes and sha256.

    Of weights beside the card the sha256 is the header's, which is all of them that a record depends on.
    """

    digest: str
    files: tuple[tuple[str, int, str], ...]


def contents(package: Located) -> Contents | None:
    """What the package holds now; None where no digest can stand for it.

    That is where it holds links or what is no file, where a file is too large to be part of a package or cannot be
    read, where a path may name a hidden file, and where its source would be read as part of a folder around it.
    """
    try:
        files = tuple(_digests(package.folder))
    except (_UncountedError, OSError):
        return None
    # The card must be named as the folder is; of a repository, folder and weights depend on the commit.
    name = package.repo or folder_name(package.folder)
    return Contents(hashlib.sha256(json.dumps([name, package.revision, files]).encode()).hexdigest(), files)


def folder_name(folder: Path) -> str:
    """What a folder is called, which is what its package must be: the last part of its path, links followed."""
    if folder.name in ("", "..") or folder.is_symlink():
        return os.path.basename(os.path.realpath(folder))
    return folder.name


def source_digest(package: Located, found: Contents) -> str:
    """The digest of what the checker reads: packages that share it have the same program.

    Of each `linnet.toml` the package's name and version, which no program depends on, are left out.
    """
    parts: list[object] = [file for file in found.files if file[0].endswith(".linnet")]
    for path, _, sha256 in found.files:
        if path.rpartition("/")[2] != MANIFEST_NAME:
            continue
        try:
            table = tomllib.loads((package.folder / path).read_text("utf-8"))
            own = dict(table.get("package", {}))
            named = {key: isinstance(own[key], str) and bool(own[key]) for key in ("name", "version")}
            kept = {**table, "package": {**own, **named}}
            parts.append([path, json.dumps(kept, sort_keys=True)])
        except (OSError, ValueError, TypeError, KeyError):
            # What is wrong with it, and where, the check says.
            parts.append([path, sha256])
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


@functools.cache
def code_digest() -> str:
    """The digest of the code that makes records: the language, its standard library, the registry, Python's version."""
    digest = hashlib.sha256(repr(sys.version_info[:2]).encode())
    for folder, pattern in (("language", "*.py"), ("registry", "*.py"), ("std", "*.linnet")):
        for path in sorted((LINNET / folder).rglob(pattern)):
            data = path.read_bytes()
            digest.update(f"{path.relative_to(LINNET)} {len(data)}\n".encode())
            digest.update(data)
    return digest.hexdigest()


def _digests(folder: Path) -> Iterator[tuple[str, int, str]]:
    root = str(folder)
    paths = sorted(_files(root))
    weights = _card_weights(root) if any(path.endswith(_WEIGHTS) for path in paths) else frozenset()
    if MANIFEST_NAME not in paths and _inside_another(os.path.dirname(os.path.realpath(root))):
        raise _UncountedError
    for path in paths:
        if path in weights:
            yield _header_digest(f"{root}/{path}", path)
            continue
        data = _read(f"{root}/{path}")
        if path.rpartition("/")[2] in (CARD_NAME, MANIFEST_NAME) and _HIDDEN.search(data):
            raise _UncountedError
        yield path, len(data), hashlib.sha256(data).hexdigest()


def _files(root: str) -> Iterator[str]:
    """The files of a package as `package_files` has them, relative to `root`."""
    pending, count = [""], 0
    while pending:
        prefix = pending.pop()
        # As a list: a listing that is left half-read stays open.
        for entry in list(os.scandir(f"{root}/{prefix}")):
            if entry.name.startswith("."):
                continue
            if entry.name in LEFTOVERS:
                # No part of a package, but a source may import from it.
                raise _UncountedError
            if entry.is_dir(follow_symlinks=False):
                pending.append(f"{prefix}{entry.name}/")
                continue
            count += 1
            if count > MOST_FILES or not entry.is_file(follow_symlinks=False):
                raise _UncountedError
            yield f"{prefix}{entry.name}"


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        status = os.fstat(file.fileno())
        if status.st_size > FILE_BYTES or not stat.S_ISREG(status.st_mode):
            raise _UncountedError
        return file.readall()


def _header_digest(path: str, name: str) -> tuple[str, int, str]:
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        prefix = file.read(PREFIX_BYTES)
        length = int.from_bytes(prefix, "little")
        if length > HEADER_BYTES:
            raise _UncountedError
        return name, size, hashlib.sha256(prefix + file.read(length)).hexdigest()


def _card_weights(root: str) -> frozenset[str]:
    """The weight files that the card names. What is wrong with the card, the check says."""
    try:
        data = _read(f"{root}/{CARD_NAME}")
        files = tomllib.loads(data[:TOML_BYTES].decode())["weights"]["files"]
        return frozenset(file for file in files if isinstance(file, str))
    except (ValueError, KeyError, TypeError, RecursionError):
        raise _UncountedError from None


def _inside_another(folder: str) -> bool:
    """Whether a folder, or one around it, is a package of modules."""
    if os.path.lexists(f"{folder}/{MANIFEST_NAME}"):
        return True
    parent = os.path.dirname(folder)
    return parent != folder and _inside_another(parent)
