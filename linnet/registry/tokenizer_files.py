"""Where a package's tokenizer is: beside weights that the user names, in the package, in the caches, on the Hub."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from linnet.registry.card import Card, Tokenizer
from linnet.registry.endpoint import named_endpoint
from linnet.registry.errors import HubError, PackageError, Problem
from linnet.registry.package import package_path


@dataclass(frozen=True, slots=True)
class TokenizerFiles:
    """The tokenizer's file and its chat template's, None where the card names none."""

    file: Path
    chat_template: Path | None


def fetch_tokenizer(
    package: Path, card: Card, folder: Path | None = None, *, offline: bool | None = None
) -> TokenizerFiles:
    """The files that the card's `[tokenizer]` names, on this machine; downloaded at its commit where they are not here.

    They are looked for in `folder`, where the weights of this load were taken from, then in the package, then in the
    Hub's cache. Raises PackageError where the card has no `[tokenizer]` or a file is nowhere, HubError.
    """
    tokenizer = card.tokenizer
    if tokenizer is None:
        message = f"The card of {card.model.name} has no [tokenizer], so text cannot become tokens."
        help = "Name its tokenizer.json in the card, or give token ids from Python."
        raise PackageError([Problem("tokenizer.missing", "tokenizer", message, help)])
    file = _fetched(package, tokenizer, "file", tokenizer.file, folder, offline)
    template = tokenizer.chat_template
    if template is None:
        return TokenizerFiles(file, None)
    return TokenizerFiles(file, _fetched(package, tokenizer, "chat_template", template, folder, offline))


def _fetched(
    package: Path, tokenizer: Tokenizer, key: str, file: str, folder: Path | None, offline: bool | None
) -> Path:
    inside = package_path(package, file)
    beside = folder / file if folder is not None else inside
    for path in (beside, inside):
        if path.is_file():
            return path
    if tokenizer.repo is None:
        message = f"The file {file} of the tokenizer is not in {package}."
        raise PackageError([Problem("tokenizer.missing-file", f"tokenizer.{key}", message, "Put it there.")])
    named_endpoint()
    from huggingface_hub import hf_hub_download, try_to_load_from_cache

    from linnet.registry.hub import hub_endpoint, hub_errors

    repo, revision = tokenizer.repo, tokenizer.revision
    cached = try_to_load_from_cache(repo, file, revision=revision)
    if isinstance(cached, str):
        return Path(cached)
    if offline:
        help = "Fetch it once without offline, or give a folder that holds it (--weights, weights=)."
        message = f"The tokenizer's file {file} of {repo} is not on this machine, and offline is set."
        raise PackageError([Problem("tokenizer.missing-file", f"tokenizer.{key}", message, help)])
    try:
        with hub_errors(repo, revision, file):
            return Path(str(hf_hub_download(repo, file, revision=revision, endpoint=hub_endpoint())))
    except HubError as error:
        raise HubError(
            dataclasses.replace(
                problem,
                help=problem.help.replace("weights.files", f"tokenizer.{key}")
                .replace("weights.", "tokenizer.")
                .replace("a folder with the weights (--weights, weights=)", f"a folder that holds {file} (--weights)"),
            )
            for problem in error.problems
        ) from None
