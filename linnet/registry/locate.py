"""Which package a user means: a folder, a repository on the Hub, or one that ships with this distribution."""

from __future__ import annotations

import dataclasses
import os
import re
from dataclasses import dataclass
from pathlib import Path

from linnet.registry.card import Card, read_card
from linnet.registry.errors import PackageError, Problem, bare, nearest, shown
from linnet.registry.package import CARD_NAME, name_fault

# The packages that ship with this distribution; in a checkout a link to the folder at its top.
BUNDLED = Path(__file__).resolve().parents[1] / "nests"
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(@[\w./-]+)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Located:
    """A package on this machine.

    `repo` and `revision` are set where it is a repository of the Hub, fetched at that commit; its folder is then
    named after the commit and not after the model.
    """

    folder: Path
    repo: str | None = None
    revision: str | None = None

    def card(self) -> Card:
        """The package's card, which names the repository where that has the weights too. Raises RegistryError."""
        card = read_card(self.folder, folder_name=self.repo is None)
        if self.repo is None or card.weights.repo is not None:
            return card
        weights = dataclasses.replace(card.weights, repo=self.repo, revision=self.revision)
        return dataclasses.replace(card, weights=weights)


def package_folders(nests: Path) -> list[Path]:
    """The packages in a folder of packages, sorted by name. Raises PackageError where there is none."""
    found = sorted(path.parent for path in nests.glob(f"*/{CARD_NAME}"))
    if not found:
        help = f"Name a folder whose folders each hold a {CARD_NAME}."
        raise PackageError([Problem("package.folder", str(nests), f"{nests} holds no package.", help)])
    return found


def find_package(name_or_dir: str | os.PathLike[str], *, offline: bool | None = None) -> Located:
    """The package that a user names: a folder, `org/name[@revision]` on the Hub, or the name of one that ships here.

    They are tried in that order. Raises PackageError where there is none, HubError where the Hub cannot give it.
    """
    text = os.fspath(name_or_dir)
    if not text:
        help = "Name a folder (. is this one), org/name, or a package that ships here."
        raise PackageError([Problem("package.unknown", "package", "The name of the package is empty.", help)])
    try:
        folder = Path(text).expanduser()
        is_folder = folder.is_dir()
    except (OSError, RuntimeError) as error:
        # A name longer than the system has, a folder that may not be looked into, the home of a user there is not.
        reason = getattr(error, "strerror", None) or str(error)
        help = f"Name a folder that holds a {CARD_NAME}."
        message = f"The package {shown(text)} cannot be looked up: {reason.rstrip('.').lower()}."
        raise PackageError([Problem("package.unknown", bare(text), message, help)]) from None
    if is_folder or not isinstance(name_or_dir, str) or _is_path(text):
        return Located(folder)
    if _HUB_NAME.fullmatch(text):
        from linnet.registry.fetch import fetch_package

        repo, _, revision = text.partition("@")
        folder, commit = fetch_package(repo, revision or None, offline=offline)
        return Located(folder, repo, commit)
    if name_fault(text) is None and (BUNDLED / text / CARD_NAME).is_file():
        return Located(BUNDLED / text)
    known = [path.name for path in package_folders(BUNDLED)]
    close = nearest(text, known)
    help = f"Name a folder that holds a {CARD_NAME}."
    if close:
        help = f"The nearest name is {close}; known are {', '.join(known)}."
    message = f"There is no folder {shown(text)}, and no package of that name."
    raise PackageError([Problem("package.unknown", bare(text), message, help)])


def _is_path(text: str) -> bool:
    return text.startswith((".", "~", "/")) or "\\" in text or text.count("/") > 1 or text.endswith("/")
