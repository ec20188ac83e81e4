"""`nest.lock`: names pinned to the digests of what they meant when the file was written."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from linnet.registry.bench_reader import JsonTable, line, sha256
from linnet.registry.cache import write_whole
from linnet.registry.errors import PackageError, Problem
from linnet.registry.package import name_fault
from linnet.registry.record_reader import known_version
from linnet.registry.strict_json import BadJsonError, parse_json

LOCK_NAME = "nest.lock"
VARIABLE = "LINNET_LOCK"
OFF = "off"
SCHEMA = 1
LOCK_BYTES = 8 << 20


class LockError(PackageError):
    """A lock that is damaged, or does not let a name mean what was asked for."""


@dataclass(frozen=True, slots=True)
class Locked:
    """A registry's package: `sha256` is that of the version's record, and `registry` where it came from."""

    version: str
    sha256: str
    registry: str


@dataclass(frozen=True, slots=True)
class Lock:
    """`path`: the file; `packages`: name -> version."""

    path: Path
    packages: Mapping[str, Locked] = field(default_factory=dict)

    def pinned(self, name: str, wanted: str | None) -> Locked | None:
        """What the name means; None where the file does not say. Raises LockError where `wanted` is something else."""
        found = self.packages.get(name)
        if found is not None and wanted not in (None, found.version):
            message = f"{self.path} pins {name} to {found.version}, and {name}@{wanted} was asked for."
            help = f"Ask for {name}, change the file with nest pull --lock {name}@{wanted}, or set {VARIABLE}={OFF}."
            raise LockError([Problem("lock.other-version", name, message, help)])
        return found

    def write(self) -> None:
        """Write the file, whole or not at all. Raises OSError."""
        packages = {
            name: {"version": item.version, "sha256": item.sha256, "registry": item.registry}
            for name, item in self.packages.items()
        }
        text = json.dumps({"schema": SCHEMA, "packages": packages}, indent=1, sort_keys=True, ensure_ascii=False)
        write_whole(self.path, f"{text}\n".encode())


def active_lock() -> Lock | None:
    """The lock that holds: the file that `LINNET_LOCK` names, else `nest.lock` in the current folder; None where there
    is none, or `LINNET_LOCK` is `off`. Raises LockError where it is damaged or no file, or `LINNET_LOCK` names none.
    """
    named = os.environ.get(VARIABLE, "")
    if named == OFF:
        return None
    path = Path(os.path.expanduser(named)) if named else Path(LOCK_NAME)
    if not path.is_file():
        if named:
            help = f"Correct it, or unset it to use ./{LOCK_NAME}."
            raise LockError([Problem("lock.missing", VARIABLE, f"{VARIABLE} names {path}, which is no file.", help)])
        if os.path.lexists(path):
            # What it was meant to pin is not to be taken for anything.
            help = f"Restore it from version control, or set {VARIABLE}={OFF}."
            raise LockError([Problem("lock.damaged", LOCK_NAME, f"{LOCK_NAME} is no file.", help)])
        return None
    return read_lock(path)


def read_lock(path: Path) -> Lock:
    """The lock in a file. Raises LockError, OSError."""
    help = f"Restore it from version control, or write it anew: nest pull --lock NAME (in the folder of {path})."
    try:
        with path.open("rb") as file:
            value = parse_json(file.read(LOCK_BYTES))
    except BadJsonError as error:
        raise LockError([Problem("lock.damaged", str(path), f"{path} {error}.", help)]) from None
    schema = value.get("schema") if isinstance(value, dict) else None
    if schema != SCHEMA:
        message = f"{path} is no lock of this program (schema {schema})."
        raise LockError([Problem("lock.damaged", str(path), message, help)])
    problems: list[Problem] = []
    table = JsonTable(value, "", problems, {"schema"}, kind="lock.damaged", help=help)
    listed = table.sub("packages")
    packages = {}
    for name in listed.data if listed is not None else ():
        assert listed is not None
        item = listed.sub(name)
        if name_fault(name) is not None:
            listed.problem(name, "is not the name of a package")
        if item is not None:
            packages[name] = Locked(
                version=item.take("version", known_version, ""),
                sha256=item.take("sha256", sha256, ""),
                registry=item.take("registry", line, ""),
            )
            item.close()
    if listed is not None:
        listed.close()
    table.close()
    if problems:
        raise LockError(problems)
    return Lock(path, packages)
