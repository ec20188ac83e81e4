"""Bringing packages to this machine whole: what `nest pull` does, with their weights and tokenizers, and the lock."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path

from linnet.registry.card import Card
from linnet.registry.errors import Problem
from linnet.registry.fetch import fetch_weights
from linnet.registry.locate import Located, find_package
from linnet.registry.lock import LOCK_NAME, OFF, VARIABLE, Lock, Locked, LockError, active_lock
from linnet.registry.package import package_files
from linnet.registry.tokenizer_files import fetch_tokenizer


@dataclass(frozen=True, slots=True)
class Pulled:
    """A package that is here: its files and weights on this machine, and what they take in bytes."""

    located: Located
    card: Card
    files: int
    size: int
    weights: dict[str, Path]
    weights_size: int


def pull_package(
    name: str,
    *,
    registry: str | os.PathLike[str] | None = None,
    offline: bool | None = None,
    weights: bool = True,
    locked: bool = True,
) -> Pulled:
    """A package, named as for `nest.load`, with all that loading and running it needs; `weights` False leaves them out.

    With `locked` a lock says what a name means. Raises what `find_package`, `fetch_weights` and `fetch_tokenizer` do.
    """
    located = find_package(name, offline=offline, registry=registry, locked=locked)
    card = located.card()
    files = package_files(located.folder, skip=frozenset(card.weights.files))
    fetched: dict[str, Path] = {}
    if weights:
        fetched = fetch_weights(located.folder, card, offline=offline, registry=registry)
        if card.tokenizer is not None:
            fetch_tokenizer(located.folder, card, offline=offline)
    return Pulled(
        located=located,
        card=card,
        files=len(files),
        size=sum(file.size for file in files),
        weights=fetched,
        weights_size=sum(path.stat().st_size for path in fetched.values()),
    )


def lock_packages(packages: list[Located]) -> Path:
    """Write what these packages are into the lock, beside what it has; the file. Raises LockError, OSError."""
    if os.environ.get(VARIABLE) == OFF:
        message = f"{VARIABLE} is {OFF}, so no lock is used."
        raise LockError([Problem("lock.off", VARIABLE, message, f"Unset it to write ./{LOCK_NAME}.")])
    named = os.environ.get(VARIABLE)
    path = Path(os.path.expanduser(named)) if named else Path(LOCK_NAME)
    lock = (active_lock() if path.is_file() else None) or Lock(path)
    pinned = dict(lock.packages)
    for located in packages:
        if located.registry is None or located.version is None or located.sha256 is None:
            what = located.repo or located.folder.name
            message = f"{what} comes from no registry, so it cannot be pinned."
            help = "Pin a repository by its commit (org/name@commit); publish a folder first (nest publish)."
            raise LockError([Problem("lock.not-published", what, message, help)])
        pinned[located.folder.name] = Locked(located.version, located.sha256, located.registry)
    dataclasses.replace(lock, packages=pinned).write()
    return path
