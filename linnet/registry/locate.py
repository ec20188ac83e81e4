"""Which package a user means: a folder, a repository on the Hub, or one that ships with this distribution."""

from __future__ import annotations

import dataclasses
import os
import re
from dataclasses import dataclass
from pathlib import Path

from linnet.registry.card import Card, read_card
from linnet.registry.errors import HubError, PackageError, Problem, bare, nearest, shown
from linnet.registry.package import CARD_NAME, name_fault

# The packages that ship with this distribution; in a checkout a link to the folder at its top.
BUNDLED = Path(__file__).resolve().parents[1] / "nests"
# A name less like the one given than this was hardly meant.
ALIKE = 0.5
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

    They are tried in that order; with `offline` only the Hub's cache is. Raises PackageError where there is none,
    HubError where the Hub cannot give it.
    """
    help = "Name a folder (. is this one), org/name, or a package that ships here."
    try:
        text = os.fspath(name_or_dir)
    except TypeError:
        raise _unknown("package", f"{bare(repr(name_or_dir))} cannot name a package.", help) from None
    if not text:
        raise _unknown("package", "The name of the package is empty.", help)
    try:
        path = Path(text).expanduser()
        is_folder, is_file = path.is_dir(), path.is_file()
    except (OSError, RuntimeError) as error:
        # A name longer than the system has, a folder that may not be looked into, the home of a user there is not.
        reason = getattr(error, "strerror", None) or str(error)
        message = f"The package {shown(text)} cannot be looked up: {reason.rstrip('.').lower()}."
        raise _unknown(text, message, f"Name a folder that holds a {CARD_NAME}.") from None
    if is_folder:
        _refuse_other_folders(path)
        return Located(path)
    if is_file:
        raise _unknown(text, f"{shown(text)} is a file.", f"Name the folder of a package: {bare(_enclosing(path))}.")
    named = isinstance(name_or_dir, str) and not _is_path(text)
    if named and _HUB_NAME.fullmatch(text) and not path.parent.is_dir():
        return _from_hub(text, offline)
    if named and name_fault(text) is None and (BUNDLED / text / CARD_NAME).is_file():
        return Located(BUNDLED / text)
    message = f"There is no folder {shown(text)}" + (", and no package of that name." if "/" not in text else ".")
    raise _unknown(text, message, _suggestion(path, text))


def _enclosing(file: Path) -> str:
    """The package that a file lies in, as near to how the file was named as it goes; its folder where there is none."""
    for folder in file.parents:
        if (folder / CARD_NAME).is_file():
            return str(folder)
    for folder in file.absolute().parents:
        if (folder / CARD_NAME).is_file():
            return os.path.relpath(folder)
    return str(file.parent)


def _refuse_other_folders(folder: Path) -> None:
    """Raises PackageError where a folder is no package: without a card nothing else of it can be judged."""
    if os.path.lexists(folder / CARD_NAME):
        return
    name = bare(str(folder))
    try:
        inside = any(folder.glob(f"*/{CARD_NAME}"))
    except OSError:
        inside = False
    if inside:
        raise _unknown(name, f"{name} holds packages and is none.", f"Name one of them, or all: {name}/*.")
    raise _unknown(
        name, f"{name} holds no {CARD_NAME}, so it is no package.", f"Name a folder that holds a {CARD_NAME}."
    )


def _from_hub(text: str, offline: bool | None) -> Located:
    from linnet.registry.fetch import fetch_package

    repo, _, revision = text.partition("@")
    try:
        folder, commit = fetch_package(repo, revision or None, offline=offline)
    except HubError as error:
        # Whoever mistyped a folder's name did not mean the Hub.
        start = f"There is no folder {shown(text)}, so it was looked for on the Hub: "
        raise HubError(
            dataclasses.replace(
                problem,
                message=start + problem.message,
                help=problem.help.replace("weights.repo", "the name").replace(
                    "give a folder with the weights (--weights, weights=)", "name the package's folder"
                ),
            )
            for problem in error.problems
        ) from None
    return Located(folder, repo, commit)


def _suggestion(path: Path, text: str) -> str:
    """The next step for who named a package that is not there."""
    if "/" in text:
        siblings = [card.parent.name for card in path.parent.glob(f"*/{CARD_NAME}")] if path.parent.is_dir() else []
        close = nearest(path.name, siblings, alike=ALIKE)
        return f"The nearest is {path.parent / close}." if close else f"Name a folder that holds a {CARD_NAME}."
    known = [folder.name for folder in package_folders(BUNDLED)]
    here = {card.parent.name: str(card.parent) for card in Path("nests").glob(f"*/{CARD_NAME}")}
    close = nearest(text, [*here, *known], alike=ALIKE)
    ships = f"{', '.join(known)} ship here."
    if close is None:
        return f"Name a folder that holds a {CARD_NAME}; {ships}"
    return f"The nearest is {close if close in known else here[close]}; {ships}"


def _unknown(where: str, message: str, help: str) -> PackageError:
    return PackageError([Problem("package.unknown", bare(where), message, help)])


def _is_path(text: str) -> bool:
    return text.startswith((".", "~", "/")) or "\\" in text or text.count("/") > 1 or text.endswith("/")
