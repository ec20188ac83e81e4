"""Where a package and its weights are: what a user names, to a folder and files on this machine."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from linnet.registry.card import Card
from linnet.registry.errors import PackageError, Problem, listed, nearest, shown
from linnet.registry.package import CARD_NAME, digest_file, name_fault, package_path

# The packages that ship with this distribution; in a checkout a link to the folder at its top.
BUNDLED = Path(__file__).resolve().parents[1] / "nests"
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(@[\w./-]+)?", re.ASCII)
# What a package on the Hub is made of; weights are fetched only when they are needed.
_PACKAGE_PATTERNS = ["*.toml", "*.md", "*.json", "*.linnet", "*.jinja", "LICENSE*"]


@dataclass(frozen=True, slots=True)
class Located:
    """A package on this machine. `repo` and `revision` are set where it is a Hub repository, fetched at that commit, whose
    name its folder then bears rather than the model's."""

    folder: Path
    repo: str | None = None
    revision: str | None = None


def cache_folder() -> Path:
    """Where downloads are kept: `LINNET_CACHE`, else the user's cache folder."""
    named = os.environ.get("LINNET_CACHE")
    return Path(named).expanduser() if named else Path(platformdirs.user_cache_dir("linnet"))


def bundled_packages() -> list[str]:
    """Names of the packages that ship with this distribution, sorted."""
    return sorted(path.parent.name for path in BUNDLED.glob(f"*/{CARD_NAME}"))


def find_package(name_or_dir: str | os.PathLike[str], *, offline: bool | None = None) -> Located:
    """The package that a user names: a folder, `org/name[@revision]` on the Hub, or the name of one that ships here.

    They are tried in that order. Raises PackageError where there is none, HubError where the Hub cannot give it.
    """
    text = os.fspath(name_or_dir)
    folder = Path(text).expanduser()
    if folder.is_dir() or not isinstance(name_or_dir, str) or _is_path(text):
        return Located(folder)
    if _HUB_NAME.fullmatch(text):
        repo, _, revision = text.partition("@")
        return _from_hub(repo, revision or None, offline)
    name, _, version = text.partition("@")
    if name_fault(name) is None and (BUNDLED / name / CARD_NAME).is_file():
        if version:
            _require_version(name, version)
        return Located(BUNDLED / name)
    known = bundled_packages()
    close = nearest(name, known)
    raise PackageError(
        [
            Problem(
                "package.unknown",
                shown(text).strip('"'),
                f"There is no folder {shown(text)}, and no package of that name.",
                f"The nearest name is {close}; known are {', '.join(known)}."
                if close
                else f"Name a folder that holds a {CARD_NAME}.",
            )
        ]
    )


def local_weights(package: Located, card: Card, weights: Path | None = None) -> dict[str, Path] | None:
    """The card's weight files that are on this machine, by the name that the card gives them; None unless all are.

    `weights` names a folder that holds them, or the one file; otherwise they are looked for beside the card, then in the
    Hub's cache. Raises PackageError where `weights` lacks one of them.
    """
    files = card.weights.files
    if weights is not None:
        return _given_weights(weights, files)
    beside = {file: package_path(package.folder, file) for file in files}
    if all(path.is_file() for path in beside.values()):
        return beside
    repo, revision = weights_origin(package, card)
    if repo is None:
        return None
    from huggingface_hub import try_to_load_from_cache

    cached = {file: try_to_load_from_cache(repo, file, revision=revision) for file in files}
    found = {file: Path(path) for file, path in cached.items() if isinstance(path, str)}
    return found if len(found) == len(files) else None


def weights_origin(package: Located, card: Card) -> tuple[str | None, str | None]:
    """The Hub repository and commit that hold the weights: the card's, else those of a package that is itself there."""
    if card.weights.repo is not None:
        return card.weights.repo, card.weights.revision
    return package.repo, package.revision


def verify_digests(card: Card, files: dict[str, Path]) -> None:
    """Compare the files with the digests that the card gives. Raises PackageError with each that differs."""
    problems = []
    for file, path in files.items():
        wanted = card.weights.sha256.get(file)
        got = digest_file(path)[1] if wanted else None
        if got != wanted:
            problems.append(
                Problem(
                    "weights.sha256",
                    file,
                    f"{path} has the sha256 {got}, but the card pins {wanted}.",
                    "Remove that file and fetch it again.",
                )
            )
    if problems:
        raise PackageError(problems)


def _is_path(text: str) -> bool:
    return text.startswith((".", "~", "/")) or "\\" in text or text.count("/") > 1 or text.endswith("/")


def _given_weights(weights: Path, files: tuple[str, ...]) -> dict[str, Path]:
    if weights.is_file() and len(files) == 1:
        return {files[0]: weights}
    found = {file: weights / file for file in files}
    missing = [file for file, path in found.items() if not path.is_file()]
    if missing:
        what = "is one file, but the card names several" if weights.is_file() else f"lacks {listed(missing)}"
        raise PackageError(
            [
                Problem(
                    "weights.missing", str(weights), f"{weights} {what}.", f"Name a folder that holds {listed(files)}."
                )
            ]
        )
    return found


def _require_version(name: str, version: str) -> None:
    from linnet.registry.card import read_card

    card = read_card(BUNDLED / name)
    own = card.model.version
    if own != version:
        has = f"has version {own}" if own else "has no version"
        raise PackageError(
            [
                Problem(
                    "package.version",
                    f"{name}@{version}",
                    f"The package {name} that ships here {has}.",
                    f"Name {name}.",
                )
            ]
        )


def _from_hub(repo: str, revision: str | None, offline: bool | None) -> Located:
    """The package in a Hub repository, as a folder of plain files: the Hub's own cache is made of links."""
    from huggingface_hub import snapshot_download

    from linnet.registry.crawl import hub_errors

    with hub_errors(repo):
        snapshot = Path(
            snapshot_download(repo, revision=revision, allow_patterns=_PACKAGE_PATTERNS, local_files_only=bool(offline))
        )
    commit = snapshot.name
    folder = cache_folder() / "packages" / repo.replace("/", "--") / commit
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".copy-") as scratch:
            copy = Path(scratch) / commit
            shutil.copytree(snapshot, copy)
            try:
                os.replace(copy, folder)
            except OSError:
                # Another process may have put the same commit there meanwhile.
                if not folder.is_dir():
                    raise
    return Located(folder, repo, commit)
