"""What this machine has seen of each registry, so that none can go back to an older state unnoticed.

A file for each package of a registry, and one for its index; lines are only ever added, so that processes at once lose
nothing and need no lock, and the highest of what the lines say holds. Where the user's data folder cannot be written
to, nothing is remembered, and nothing fails for it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from linnet.registry.configured import data_folder
from linnet.registry.semver import version_fault

_GENERATIONS = ".generations"
# What is no such line was not written here, or not whole.
_NUMBER = re.compile(r"[0-9]{1,19}")
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class SeenPackage:
    """`versions`: every version that was seen -> sha256 of its record; `events`: the highest number of an event."""

    versions: Mapping[str, str] = field(default_factory=dict)
    events: int = 0


def is_local(registry: str) -> bool:
    """Whether a registry is a folder: asking it opens no socket."""
    return "://" not in registry or registry.startswith("file://")


def registry_key(registry: str) -> str:
    """A file's name for a registry: of what it is called, and a digest of its whole address."""
    address = str(Path(os.path.expanduser(registry)).absolute()) if "://" not in registry else registry.rstrip("/")
    readable = re.sub(r"[^A-Za-z0-9]+", "-", address)[-40:].strip("-")
    return f"{readable}-{hashlib.sha256(address.encode()).hexdigest()[:16]}"


class Memory:
    """What was seen of one registry, below the user's data folder; `under` a trust root, in a folder of its own there,
    since what was believed without one has not been verified.
    """

    def __init__(self, registry: str, under: str = "") -> None:
        self.folder = data_folder() / "seen" / registry_key(registry) / under

    def generation(self) -> int:
        """The highest generation of the index that was seen; 0 where none was."""
        return max((int(line) for line in self._lines(_GENERATIONS) if _NUMBER.fullmatch(line)), default=0)

    def saw_generation(self, number: int) -> None:
        """Remember a generation."""
        if number > self.generation():
            self._add(_GENERATIONS, [str(number)])

    def package(self, name: str) -> SeenPackage:
        """What was seen of a package. Of a version that has two digests the first holds."""
        versions: dict[str, str] = {}
        events = 0
        for line in self._lines(name):
            match line.split(" "):
                case ["version", version, sha256] if version_fault(version) is None and _DIGEST.fullmatch(sha256):
                    versions.setdefault(version, sha256)
                case ["events", number] if _NUMBER.fullmatch(number):
                    events = max(events, int(number))
        return SeenPackage(versions, events)

    def saw_package(self, name: str, versions: Mapping[str, str], events: int) -> None:
        """Remember versions, each with the sha256 of its record, and the number of the last event."""
        seen = self.package(name)
        lines = [f"version {version} {sha256}" for version, sha256 in versions.items() if version not in seen.versions]
        if events > seen.events:
            lines.append(f"events {events}")
        self._add(name, lines)

    def forget(self) -> None:
        """Trust the registry anew, as one that was never seen; without `under`, whatever the root."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _lines(self, name: str) -> list[str]:
        try:
            return (self.folder / name).read_text("ascii", errors="replace").splitlines()
        except OSError:
            return []

    def _add(self, name: str, lines: Iterable[str]) -> None:
        text = "".join(f"{line}\n" for line in lines)
        if text:
            with contextlib.suppress(OSError):
                self.folder.mkdir(parents=True, exist_ok=True)
                # One write of few bytes at the end of a file is whole.
                with (self.folder / name).open("ab", buffering=0) as file:
                    file.write(text.encode())
