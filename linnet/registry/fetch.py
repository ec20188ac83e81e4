"""Bytes from the Hub: a package's small files, and weights at the commit that a card pins.

`huggingface_hub` downloads, resumes and caches; what it raises becomes HubError, told apart by reason.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import warnings
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from linnet.registry.cache import Cache, Wanted, WrongBytesError, cache_folder
from linnet.registry.card import Card
from linnet.registry.endpoint import named_endpoint
from linnet.registry.errors import HubError, PackageError, Problem, RegistryError, RegistryWarning
from linnet.registry.package import CARD_NAME, digest_file
from linnet.registry.weights import locate_weights

# Large files are hashed at once.
HASH_THREADS = 4
# What a package is made of; weights are fetched only when they are needed.
_COMMIT = re.compile(r"[0-9a-f]{40}")
_PACKAGE_PATTERNS = ["*.toml", "*.md", "*.json", "*.linnet", "*.jinja", "LICENSE*"]


def fetch_package(repo: str, revision: str | None, *, offline: bool | None = None) -> tuple[Path, str]:
    """The package in a Hub repository, as a folder, and its commit. Raises HubError.

    A commit never changes: of one that is here already, the Hub is not asked.
    """
    if revision is not None and _COMMIT.fullmatch(revision) and _package_folder(repo, revision).is_dir():
        return _package_folder(repo, revision), revision
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
    folder = _package_folder(repo, commit)
    if offline and not (snapshot / CARD_NAME).is_file():
        # Of this commit there may be weights here, and nothing else.
        message = f"The package {repo} is not on this machine, and offline is set."
        raise HubError([Problem("hub.offline", repo, message, "Fetch it once while online.")])
    if not folder.is_dir():
        # The Hub's cache is made of links, and a package may not hold links that leave it: copy what they lead to.
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".copy-") as scratch:
            copy = Path(scratch) / commit
            shutil.copytree(snapshot, copy, ignore=shutil.ignore_patterns("*.safetensors"))
            _put_in_place(copy, folder)
    return folder, commit


def _package_folder(repo: str, commit: str) -> Path:
    return cache_folder() / "packages" / repo.replace("/", "--") / commit


def fetch_weights(
    package: Path,
    card: Card,
    folder: Path | None = None,
    *,
    offline: bool | None = None,
    registry: str | os.PathLike[str] | None = None,
) -> dict[str, Path]:
    """Every weight file of the card on this machine, by the name that the card gives it, its digest verified.

    Looked for where `locate_weights` looks, else downloaded at the pinned commit; where the Hub cannot give a file, the
    registries (`registry`, else those configured) are asked for its digest. A file of a cache that is not what it
    should be is set aside, with a RegistryWarning, and fetched again. Raises PackageError for a file that is absent or
    has another digest than the card gives, HubError, WrongBytesError.
    """
    located = locate_weights(package, card, folder)
    if located.remote and offline:
        raise PackageError(_offline(card, file) for file in located.remote)
    fetching = _Fetching(package, card, offline, registry)
    # Hashing lets other threads run; the order of downloads stays that of the card.
    files = {file: located.local.get(file) or fetching.download(file) for file in card.weights.files}
    with ThreadPoolExecutor(HASH_THREADS) as pool:
        right = dict(zip(files, pool.map(lambda item: _is_right(card, *item), files.items()), strict=True))
    return {file: path if right[file] else fetching.anew(file, path) for file, path in files.items()}


@dataclass(frozen=True, slots=True)
class _Fetching:
    """Weight files of a card from elsewhere; the arguments are those of `fetch_weights`."""

    package: Path
    card: Card
    offline: bool | None
    registry: str | os.PathLike[str] | None

    def anew(self, file: str, path: Path) -> Path:
        """A file that was found with other bytes than the card pins. Raises PackageError where it is the user's."""
        wrong = PackageError([_wrong(self.card, file, path)])
        if not self._set_aside(path):
            raise wrong
        if self.offline:
            raise PackageError([_offline(self.card, file)])
        return self.download(file)

    def download(self, file: str) -> Path:
        """A file from the Hub at the card's commit, else from a registry that holds its digest.

        With a digest it is kept under that, resumable, and has been hashed; without one the Hub's own cache keeps it.
        """
        from linnet.registry.hub import hub_errors, patiently
        from linnet.registry.hub_file import ask_hub, hub_target, stream_file

        repo, revision = self.card.weights.repo, self.card.weights.revision
        assert repo is not None
        target = hub_target(repo, revision, file)
        sha256 = self.card.weights.sha256.get(file)
        if sha256 is None:
            from huggingface_hub import hf_hub_download

            def once() -> Path:
                ask_hub(target)
                with hub_errors(repo, revision, file):
                    return Path(str(hf_hub_download(repo, file, revision=revision, endpoint=target.endpoint)))

            return patiently(once)
        what = f"{file} of {self.card.model.name}"
        try:
            size = patiently(lambda: ask_hub(target))
            return Cache().fetch(Wanted(sha256, what, size), lambda start: stream_file(target, start, size))
        except (HubError, WrongBytesError) as error:
            try:
                return self.mirrored(file)
            except RegistryError:
                raise (_gone_upstream(error, self.card, file) if isinstance(error, HubError) else error) from None

    def mirrored(self, file: str) -> Path:
        """A file from any registry that holds its digest. Raises RegistryError."""
        name = self.card.model.name
        wanted = Wanted(self.card.weights.sha256[file], f"{file} of {name}")
        from linnet.registry.client import Client

        return Client(self.registry, offline=self.offline).fetch(wanted)

    def _set_aside(self, path: Path) -> bool:
        """Whether the wrong file was a cache's, and is there no more."""
        cache = Cache()
        from huggingface_hub import constants

        hub = Path(constants.HF_HUB_CACHE).resolve()
        if path.is_relative_to(self.package):
            return False
        if path.resolve().is_relative_to(hub):
            cache.set_aside(path.resolve())
            path.unlink(missing_ok=True)
        elif path.is_symlink() and path.is_relative_to(cache.root):
            path.unlink(missing_ok=True)
        elif path.is_relative_to(cache.root):
            cache.set_aside(path)
        else:
            return False
        aside = f" as {cache.wrong[-1]}" if cache.wrong else ""
        message = (
            f"{path} did not have the bytes that its digest promises; it was set aside{aside}, and is fetched again."
        )
        warnings.warn(message, RegistryWarning, stacklevel=4)
        return True


def verify_digests(card: Card, files: Mapping[str, Path]) -> None:
    """Compare files with the digests that the card gives. Raises PackageError with each that differs."""
    if problems := wrong_digests(card, files):
        raise PackageError(problems)


def wrong_digests(card: Card, files: Mapping[str, Path]) -> list[Problem]:
    """A problem for each file that has another digest than the card gives."""
    return [_wrong(card, file, path) for file, path in files.items() if not _is_right(card, file, path)]


def _is_right(card: Card, file: str, path: Path) -> bool:
    wanted = card.weights.sha256.get(file)
    return wanted is None or digest_file(path)[1] == wanted


def _wrong(card: Card, file: str, path: Path) -> Problem:
    got, wanted = digest_file(path)[1], card.weights.sha256[file]
    message = f"{path} has the sha256 {got}, but the card pins {wanted}."
    return Problem("weights.sha256", file, message, "Remove that file and fetch it again.")


def _gone_upstream(error: HubError, card: Card, file: str) -> HubError:
    """What the Hub said, and that no registry has the file either."""
    weights = card.weights
    sha256 = weights.sha256[file]

    def word(problem: Problem) -> Problem:
        if problem.kind.removeprefix("hub.") not in ("repo-not-found", "revision-not-found", "file-not-found"):
            return problem
        message = (
            f"{file} of {card.model.name} is gone upstream: {problem.message.rstrip('.')}; and no configured registry "
            f"holds it under its digest."
        )
        help = (
            f"Find a file with the sha256 {sha256} and give its folder (--weights, weights=), or a mirror (--registry)."
        )
        return Problem(problem.kind, file, message, help)

    return HubError(map(word, error.problems))


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
