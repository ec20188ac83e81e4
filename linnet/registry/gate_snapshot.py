"""A package as its users see it, published or in a working folder: what the gate compares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from linnet.registry.bench import sources_digest
from linnet.registry.bindings import read_bindings
from linnet.registry.card import Card
from linnet.registry.errors import RegistryError
from linnet.registry.index import package_version
from linnet.registry.locate import Located
from linnet.registry.package import PackageFile, digest_file, package_files
from linnet.registry.records import VersionRecord
from linnet.registry.report import CheckReport
from linnet.registry.weights import locate_weights


@dataclass(frozen=True, slots=True)
class Parameter:
    """A path of the manifest, and the tensor that it reads; an optional one may not be `present` in the weights."""

    path: str
    tensor: str
    shape: tuple[int, ...]
    dtype: str
    optional: bool
    present: bool

    def __str__(self) -> str:
        return f"{self.dtype} [{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class Pin:
    """The weights of a package: `sha256` has a file's digest, None where the card of a repository gives none."""

    repo: str | None
    revision: str | None
    sha256: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A package as its users see it.

    `parameters`, `entries` (name -> signature) and `generics` are None where the package does not check so far. `files`
    are those of the package without weights.
    """

    name: str
    version: str | None
    card: Mapping[str, Any]
    files: tuple[PackageFile, ...]
    weights: Pin
    parameters: Mapping[str, Parameter] | None
    entries: Mapping[str, str] | None
    generics: Mapping[str, int | str] | None

    def same_content(self, other: Snapshot) -> bool:
        """Whether the two hold the same files and weights."""
        return self.files == other.files and self.same_weights(other)

    def same_program(self, other: Snapshot) -> bool:
        """Whether they run alike: they differ in README and figures at most."""
        return sources_digest(self.files) == sources_digest(other.files) and self.same_weights(other)

    def same_weights(self, other: Snapshot) -> bool:
        """Whether the weights are the same bytes: by digest, or as the same file of the same commit."""
        mine, theirs = self.weights, other.weights
        if mine.sha256.keys() != theirs.sha256.keys():
            return False
        pinned = mine.repo is not None and (mine.repo, mine.revision) == (theirs.repo, theirs.revision)
        return all(
            theirs.sha256[file] == digest if digest and theirs.sha256[file] else pinned
            for file, digest in mine.sha256.items()
        )


def published_snapshot(record: VersionRecord, parameters: Sequence[Mapping[str, Any]] | None) -> Snapshot:
    """A published version; `parameters` are those that its registry has for it."""
    entries = record.record.get("entries")
    return Snapshot(
        name=record.name,
        version=record.version,
        card=record.card,
        files=record.files,
        weights=Pin(
            record.weights.repo, record.weights.revision, {file.path: file.sha256 for file in record.weights.files}
        ),
        parameters=None if parameters is None else {item["path"]: _parameter(item) for item in parameters},
        entries=None if entries is None else {item["name"]: item["signature"] for item in entries},
        generics=record.record.get("generics"),
    )


def working_snapshot(package: Located, card: Card, report: CheckReport) -> Snapshot:
    """A package folder whose check gave `report`.

    What cannot be read is left out: the check has a finding for it.
    """
    bound = report.bound
    parameters = None
    if bound is not None:
        tensors: Mapping[str, str] = {}
        present = report.match.present if report.match else frozenset()
        with suppress(RegistryError):
            found = read_bindings(package.folder, card).resolve(bound.manifest)
            tensors, present = found.tensors, present or found.written
        parameters = {
            entry.path: Parameter(
                path=entry.path,
                tensor=tensors.get(entry.path, ""),
                shape=entry.shape,
                dtype=entry.dtype,
                optional=entry.optional,
                present=not entry.optional or entry.path in present,
            )
            for entry in bound.manifest.entries
        }
    own = {file: card.weights.sha256.get(file) for file in card.weights.files}
    files: tuple[PackageFile, ...] = ()
    with suppress(RegistryError):
        files = tuple(package_files(package.folder, skip=frozenset(card.weights.files)))
        if card.weights.repo is None:
            local = locate_weights(package.folder, card).local
            own = {file: digest_file(local[file])[1] for file in card.weights.files}
    return Snapshot(
        name=card.model.name,
        version=package_version(package.folder, card),
        card=card.to_dict(),
        files=files,
        weights=Pin(card.weights.repo, card.weights.revision, own),
        parameters=parameters,
        entries={name: entry.signature.text for name, entry in bound.entries().items()} if bound else None,
        generics=dict(bound.generics) if bound else None,
    )


def _parameter(item: Mapping[str, Any]) -> Parameter:
    return Parameter(
        path=item["path"],
        tensor=item["tensor"],
        shape=tuple(item["shape"]),
        dtype=item["dtype"],
        optional=item["optional"],
        present=item["present"],
    )
