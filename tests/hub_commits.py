"""What the local Hub knows of repositories: commits as tables of files, and a branch that moves by compare-and-swap."""

from __future__ import annotations

import base64
import fnmatch
import hashlib
import json
import threading
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LFS_BYTES = 10 << 20
BLOBS = ".blobs"


@dataclass(frozen=True, slots=True)
class Commit:
    """One state of a repository: each path, and the file on this disk that holds its bytes."""

    oid: str
    files: Mapping[str, Path]


class Overtaken(Exception):  # noqa: N818 (it is an answer, 412)
    """The parent that a commit names is not the head."""


class Repositories:
    """Below `root`: a folder for each repository, in it one for each commit that was put there by hand.

    Those made over the API are kept in memory, their bytes in `root/.blobs`.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._made: dict[str, dict[str, Commit]] = {}
        self._lock = threading.Lock()

    def create(self, repo: str) -> None:
        """An empty repository, as the Hub makes it."""
        folder = self.root / repo / hashlib.sha1(repo.encode()).hexdigest()
        folder.mkdir(parents=True)
        (folder / ".gitattributes").write_text("*.safetensors filter=lfs diff=lfs merge=lfs -text\n")

    def known(self, repo: str) -> bool:
        return (self.root / repo).is_dir()

    def names(self, owner: str) -> list[str]:
        """The repositories of an owner."""
        return [f"{owner}/{folder.name}" for folder in sorted((self.root / owner).glob("*")) if folder.is_dir()]

    def find(self, repo: str, revision: str) -> Commit | None:
        """A commit; `main` is the last one made, else the last by name."""
        made = self._made.get(repo, {})
        if revision == "main" and made:
            return next(reversed(made.values()))
        if revision in made:
            return made[revision]
        folders = sorted(path for path in (self.root / repo).glob("*") if path.is_dir())
        chosen = folders[-1:] if revision == "main" else [folder for folder in folders if folder.name == revision]
        return _folder_commit(chosen[0]) if chosen else None

    def upload_modes(self, repo: str, revision: str, asked: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Which of the files a commit takes inline, which as large files, which `.gitignore` leaves out."""
        commit = self.find(repo, revision)
        assert commit is not None
        ignore = asked.get("gitIgnore")
        if ignore is None:
            ignore = commit.files[".gitignore"].read_text() if ".gitignore" in commit.files else ""
        modes = []
        for file in asked["files"]:
            binary = b"\0" in base64.b64decode(file["sample"])
            there = commit.files.get(file["path"])
            ignored = any(fnmatch.fnmatch(file["path"], line) for line in ignore.split() if not line.startswith("#"))
            modes.append(
                {
                    "path": file["path"],
                    "uploadMode": "lfs" if binary or file["size"] > LFS_BYTES else "regular",
                    "shouldIgnore": ignored,
                    "oid": _oid(there) if there is not None else None,
                }
            )
        return modes

    def commit(self, repo: str, lines: bytes) -> Commit:
        """Carries out a commit's lines on the head. Raises Overtaken, KeyError for a large file that was not sent."""
        parent, changes = None, []
        for line in map(json.loads, lines.splitlines()):
            key, value = line["key"], line["value"]
            if key == "header":
                parent = value.get("parentCommit")
            elif key == "file":
                changes.append((value["path"], self.keep(base64.b64decode(value["content"]))))
            elif key == "lfsFile":
                changes.append((value["path"], self.large(value["oid"])))
            elif key == "deletedFile":
                changes.append((value["path"], None))
        with self._lock:
            head = self.find(repo, "main")
            assert head is not None
            if parent is not None and parent != head.oid:
                raise Overtaken
            files = dict(head.files)
            for path, blob in changes:
                if blob is None:
                    files.pop(path)
                else:
                    files[path] = blob
            made = self._made.setdefault(repo, {head.oid: head})
            oid = hashlib.sha1(head.oid.encode() + lines + str(len(made)).encode()).hexdigest()
            made[oid] = Commit(oid, files)
            return made[oid]

    def large(self, sha256: str) -> Path:
        """The bytes of that digest. Raises KeyError where they were not sent."""
        if not self.has_large(sha256):
            raise KeyError(sha256)
        return self.root / BLOBS / sha256

    def has_large(self, sha256: str) -> bool:
        return (self.root / BLOBS / sha256).is_file()

    def keep(self, data: bytes) -> Path:
        path = self.root / BLOBS / hashlib.sha256(data).hexdigest()
        if not path.is_file():
            path.parent.mkdir(exist_ok=True)
            temporary = path.parent / uuid.uuid4().hex
            temporary.write_bytes(data)
            temporary.replace(path)
        return path

    def history(self, repo: str) -> list[Commit]:
        """The commits that were made over the API, in order."""
        return list(self._made.get(repo, {}).values())[1:]


def tree_entries(commit: Commit, below: str = "") -> list[dict[str, Any]]:
    """The files of a commit below a folder, as the Hub lists them."""
    return [
        {"type": "file", "path": path, "size": file.stat().st_size, "oid": etag(file)}
        for path, file in sorted(commit.files.items())
        if not below or path.startswith(below + "/")
    ]


def etag(path: Path) -> str:
    """An identity of a file that does not need its bytes read: sparse files are large."""
    return hashlib.sha256(f"{path.name}:{path.stat().st_size}".encode()).hexdigest()


def _folder_commit(folder: Path) -> Commit:
    files = (path for path in folder.rglob("*") if path.is_file())
    return Commit(folder.name, {path.relative_to(folder).as_posix(): path for path in files})


def _oid(file: Path) -> str:
    """What git calls the bytes; a large file goes by its SHA-256."""
    data = file.read_bytes()
    if b"\0" in data[:512] or len(data) > LFS_BYTES:
        return hashlib.sha256(data).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
