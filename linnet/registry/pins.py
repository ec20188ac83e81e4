"""What a publish pins of the weights: the size and sha256 of every file, wherever it stays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from linnet.registry.card import Card
from linnet.registry.errors import HubError, PackageError, Problem
from linnet.registry.package import digest_file, human_size
from linnet.registry.records import WeightRecord, WeightsPin
from linnet.registry.weights import locate_weights

# Weights up to this size, in bytes a file, are kept by the registry itself.
OBJECT_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Pinned:
    """The pin, and by digest the files here that the registry is to hold."""

    pin: WeightsPin
    objects: Mapping[str, Path]


def pin_weights(package: Path, card: Card, folder: Path | None = None) -> Pinned:
    """The pin of a package's weights, which are looked for as `locate_weights` does.

    Those of a repository stay there: their digests are the Hub's own at the commit of the card, or computed for files
    that the Hub keeps without one. Others must be here, and small enough for the registry. Raises PackageError for a
    file that is absent, too large, or not the one that the card or the Hub has; HubError.
    """
    if card.weights.repo is None:
        return _beside(package, card, folder)
    assert card.weights.revision is not None
    records = _on_hub(card.weights.repo, card.weights.revision, card.weights.files)
    problems = [
        problem
        for record in records
        if (problem := _differs_from_card(card, record, f"{card.weights.repo} has it with")) is not None
    ]
    for file, path in _lying_about(package, card, folder).items():
        record = next(record for record in records if record.path == file)
        size, digest = digest_file(path)
        if (size, digest) != (record.size, record.sha256):
            message = f"{path} is not the {file} of {card.weights.repo}, whose sha256 is {record.sha256}."
            help = "Remove it, or put it into a commit there and pin that commit in the card."
            problems.append(Problem("weights.sha256", file, message, help))
    if problems:
        raise PackageError(problems)
    return Pinned(WeightsPin(card.weights.repo, card.weights.revision, tuple(records)), {})


def _beside(package: Path, card: Card, folder: Path | None) -> Pinned:
    records, objects, problems = [], {}, []
    for file, path in locate_weights(package, card, folder).local.items():
        size = path.stat().st_size
        if size > OBJECT_BYTES:
            message = f"The weights file {file} has {human_size(size)}, and a registry holds at most "
            message += f"{human_size(OBJECT_BYTES)} of one."
            help = "Put the weights into a repository on the Hub, and name it and its commit in the card's [weights]."
            problems.append(Problem("weights.too-large", file, message, help))
            continue
        record = WeightRecord(file, *digest_file(path), object=True)
        if (problem := _differs_from_card(card, record, f"{path} has")) is not None:
            problems.append(problem)
        records.append(record)
        objects[record.sha256] = path
    if problems:
        raise PackageError(problems)
    return Pinned(WeightsPin(None, None, tuple(records)), objects)


def _on_hub(repo: str, revision: str, files: Sequence[str]) -> list[WeightRecord]:
    from huggingface_hub import HfApi, hf_hub_download
    from huggingface_hub.hf_api import RepoFile

    from linnet.registry.hub import hub_endpoint, hub_errors

    with hub_errors(repo, revision):
        found = HfApi(endpoint=hub_endpoint()).get_paths_info(repo, list(files), revision=revision)
    known = {item.path: item for item in found if isinstance(item, RepoFile)}
    absent = [file for file in files if file not in known]
    if absent:
        help = "Check weights.files and weights.revision."
        raise HubError(
            Problem("hub.file-not-found", file, f"{repo} has no {file} at {revision}.", help) for file in absent
        )
    records = []
    for file in files:
        item = known[file]
        if item.lfs is not None:
            records.append(WeightRecord(file, item.size, item.lfs.sha256, object=False))
            continue
        # Kept in git itself, whose own identity of it is no sha256; only small files are.
        with hub_errors(repo, revision, file):
            path = Path(str(hf_hub_download(repo, file, revision=revision, endpoint=hub_endpoint())))
        records.append(WeightRecord(file, *digest_file(path), object=False))
    return records


def _lying_about(package: Path, card: Card, folder: Path | None) -> Mapping[str, Path]:
    """Weight files that the check may have read though the Hub did not give them."""
    located = locate_weights(package, card, folder, caches=False)
    return located.local


def _differs_from_card(card: Card, record: WeightRecord, start: str) -> Problem | None:
    wanted = card.weights.sha256.get(record.path)
    if wanted in (None, record.sha256):
        return None
    message = f"{start} the sha256 {record.sha256}, but the card pins {wanted}."
    return Problem("weights.sha256", record.path, message, "Correct weights.sha256, or take the file that it means.")
