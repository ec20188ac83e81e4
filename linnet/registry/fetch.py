"""Bytes from the Hub: a package's small files, and weights at the commit that a card pins.

`huggingface_hub` downloads, resumes and caches; what it raises becomes HubError, told apart by reason.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from linnet.registry.cache import cache_folder
from linnet.registry.card import Card
from linnet.registry.endpoint import named_endpoint
from linnet.registry.errors import PackageError, Problem
from linnet.registry.package import digest_file
from linnet.registry.weights import locate_weights

# What a package is made of; weights are fetched only when they are needed.
_PACKAGE_PATTERNS = ["*.toml", "*.md", "*.json", "*.linnet", "*.jinja", "LICENSE*"]


def fetch_package(repo: str, revision: str | None, *, offline: bool | None = None) -> tuple[Path, str]:
    """The package in a Hub repository, as a folder, and its commit. Raises HubError."""
    named_endpoint()
    from huggingface_hub import snapshot_download

    from linnet.registry.hub import hub_endpoint, hub_errors

    with hub_errors(repo, revision):
        found = snapshot_download(
            repo,
            revision=revision,
            allow_patterns=_PACKAGE_PATTERNS,
            local_files_only=bool(offline),
            endpoint=hub_endpoint(),
        )
    snapshot = Path(str(found))
    commit = snapshot.name
    folder = cache_folder() / "packages" / repo.replace("/", "--") / commit
    if not folder.is_dir():
        # The Hub's cache is made of links, and a package may not hold links that leave it: copy what they lead to.
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".copy-") as scratch:
            copy = Path(scratch) / commit
            shutil.copytree(snapshot, copy)
            _put_in_place(copy, folder)
    return folder, commit


def fetch_weights(
    package: Path, card: Card, folder: Path | None = None, *, offline: bool | None = None
) -> dict[str, Path]:
    """Every weight file of the card on this machine, by the name that the card gives it, its digest verified.

    Looked for where `locate_weights` looks, else downloaded at the pinned commit. Raises PackageError for a file that
    is absent or has another digest than the card gives, HubError.
    """
    located = locate_weights(package, card, folder)
    files = dict(located.local)
    if located.remote and offline:
        raise PackageError(_offline(card, file) for file in located.remote)
    for file in located.remote:
        from huggingface_hub import hf_hub_download

        from linnet.registry.hub import hub_endpoint, hub_errors

        repo, revision = card.weights.repo, card.weights.revision
        assert repo is not None
        with hub_errors(repo, revision, file):
            files[file] = Path(str(hf_hub_download(repo, file, revision=revision, endpoint=hub_endpoint())))
    verify_digests(card, files)
    return {file: files[file] for file in card.weights.files}


def verify_digests(card: Card, files: Mapping[str, Path]) -> None:
    """Compare files with the digests that the card gives. Raises PackageError with each that differs."""
    problems = []
    for file, path in files.items():
        wanted = card.weights.sha256.get(file)
        got = digest_file(path)[1] if wanted else None
        if got != wanted:
            message = f"{path} has the sha256 {got}, but the card pins {wanted}."
            problems.append(Problem("weights.sha256", file, message, "Remove that file and fetch it again."))
    if problems:
        raise PackageError(problems)


def _offline(card: Card, file: str) -> Problem:
    return Problem(
        "weights.missing-file",
        file,
        f"The weights file {file} of {card.weights.repo} is not on this machine, and offline is set.",
        "Fetch it once without offline, or give a folder that holds it (--weights, weights=).",
    )


def _put_in_place(made: Path, final: Path) -> None:
    """Rename a folder to its final name; another process may have put the same one there meanwhile."""
    try:
        os.replace(made, final)
    except OSError:
        if not final.is_dir():
            raise
