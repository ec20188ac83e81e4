"""Where a package's weight files are: a folder that the user names, beside the card, the caches, the Hub."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from linnet.registry.cache import kept_weights
from linnet.registry.card import Card
from linnet.registry.endpoint import named_endpoint
from linnet.registry.errors import PackageError, Problem
from linnet.registry.headers import TensorTable, join_headers, read_headers
from linnet.registry.package import package_path


@dataclass(frozen=True, slots=True)
class LocatedWeights:
    """`local`: file, as the card names it -> path on this machine; `remote`: the files that only the Hub has."""

    local: Mapping[str, Path]
    remote: tuple[str, ...]


def locate_weights(package: Path, card: Card, folder: Path | None = None, *, caches: bool = True) -> LocatedWeights:
    """Look for every declared file, and fetch nothing.

    They are looked for in `folder` (which may be the one file itself); without it beside the card, then, with `caches`,
    in the Hub's cache at the pinned commit and among the files kept under the digest that the card gives. Raises
    PackageError with every file that is neither here nor on the Hub.
    """
    files = card.weights.files
    local: dict[str, Path] = {}
    if folder is not None and not folder.exists():
        message = f"There is no file or folder {folder} to take weights from."
        raise PackageError([Problem("weights.missing-file", str(folder), message, "Correct --weights or weights=.")])
    for file in files:
        path = _in_folder(folder, file, files) if folder else _found(package, card, file, caches)
        if path is not None:
            local[file] = path
    absent = tuple(file for file in files if file not in local)
    if absent and (folder or card.weights.repo is None):
        help = "Put it there, give a folder that holds it (--weights, weights=), or name weights.repo in the card."
        if folder:
            help = "Give a folder that holds every file of the card (--weights, weights=)."
        raise PackageError(
            Problem("weights.missing-file", file, f"The weights file {file} is not in {folder or package}.", help)
            for file in absent
        )
    return LocatedWeights(local, absent)


def read_tensors(located: LocatedWeights, card: Card) -> TensorTable:
    """Every tensor of the located files: local headers are read, remote ones asked of the Hub.

    Raises HeaderError, HubError, or PackageError for a local file that cannot be read.
    """
    try:
        headers = read_headers(located.local)
    except OSError as error:
        reason = (error.strerror or "unknown error").lower()
        message = f"The weights file {error.filename} cannot be read: {reason}."
        raise PackageError([Problem("weights.unreadable", "weights.files", message, "Make it readable.")]) from None
    if located.remote:
        # Imported where it is needed: a check that asks no Hub is spared the HTTP stack.
        from linnet.registry.crawl import crawl_headers

        # The card's reader sees to it that a repository comes with its commit.
        repo, revision = card.weights.repo or "", card.weights.revision or ""
        headers.update(crawl_headers(repo, revision, located.remote))
    return join_headers({file: headers[file] for file in card.weights.files})


def _in_folder(folder: Path, file: str, files: tuple[str, ...]) -> Path | None:
    if folder.is_file():
        return folder if len(files) == 1 else None
    path = folder / file
    return path if path.is_file() else None


def _found(package: Path, card: Card, file: str, caches: bool) -> Path | None:
    digest = card.weights.sha256.get(file)
    beside = _beside(package, file)
    if beside or not caches:
        return beside
    return _in_cache(card, file) or (kept_weights(digest) if digest else None)


def _beside(package: Path, file: str) -> Path | None:
    path = package_path(package, file)
    return path if path.is_file() else None


def _in_cache(card: Card, file: str) -> Path | None:
    if card.weights.repo is None:
        return None
    named_endpoint()
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(card.weights.repo, file, revision=card.weights.revision)
    return Path(found) if isinstance(found, str) else None
