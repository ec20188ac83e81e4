"""The models that a site is made of: where they come from, and what tells that one has changed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Protocol

from linnet.language.check import CheckResult, load
from linnet.registry.card import read_card
from linnet.registry.contents import contents, folder_name
from linnet.registry.index import package_record
from linnet.registry.locate import Located, package_folders
from linnet.registry.package import FILE_BYTES, digest_file
from linnet.registry.weights import locate_weights, read_tensors
from linnet.site_builder.collect import PackageSource, SiteError


class ModelSource(Protocol):
    """A model with all its versions. It travels to another process, so it is small and can be pickled."""

    @property
    def name(self) -> str: ...

    @property
    def key(self) -> str | None:
        """Changes with anything that the model's pages show; None where nothing can tell."""

    def packages(self, scratch: Path) -> list[PackageSource]:
        """The versions, newest first. What they need on disk may be written to the folder `scratch`.

        Raises RegistryError, OSError.
        """


@dataclass(frozen=True, slots=True)
class FolderSource:
    """A package in a folder: one version, which need not have a number."""

    folder: Path
    name: str
    key: str | None

    def packages(self, scratch: Path) -> list[PackageSource]:
        """The one version."""
        del scratch
        checked: list[CheckResult] = []

        def load_once(path: Path) -> CheckResult:
            checked.append(load(path))
            return checked[-1]

        record = package_record(self.folder, load_once)
        found = checked[-1] if checked else None
        source = PackageSource(self.folder, record, tensor_files=_tensor_files(self.folder), checked=found)
        return [replace(source, weight_digests=_weight_digests(self.folder))]


@dataclass(frozen=True, slots=True)
class GivenSource:
    """A model whose records are already there, its versions newest first."""

    versions: tuple[PackageSource, ...]
    key: str | None = None

    @property
    def name(self) -> str:
        return str(self.versions[0].record["card"]["model"]["name"])

    def packages(self, scratch: Path) -> list[PackageSource]:
        """The versions that were given."""
        del scratch
        return list(self.versions)


def _tensor_files(folder: Path) -> dict[str, str] | None:
    """The file of each tensor, where several lie beside the card; the Hub and its cache are not asked, so that a site
    is the same on every machine."""
    card = read_card(folder)
    if card.weights.repo is not None or len(card.weights.files) < 2:
        return None
    located = locate_weights(folder, card)
    if located.remote:
        return None
    table = read_tensors(located, card)
    return {name: table[name].file for name in table}


def _weight_digests(folder: Path) -> dict[str, str]:
    """The sha256 of each file of weights beside the card that is no larger than a file of a package may be: larger ones
    would take longer than the pages."""
    card = read_card(folder)
    if card.weights.repo is not None:
        return {}
    local = locate_weights(folder, card, caches=False).local
    return {file: digest_file(path)[1] for file, path in local.items() if path.stat().st_size <= FILE_BYTES}


def folder_sources(nests: Path) -> list[ModelSource]:
    """The packages in the folder `nests`. Raises PackageError where there is none."""
    return [_folder_source(folder) for folder in package_folders(nests)]


def _folder_source(folder: Path) -> FolderSource:
    found = contents(Located(folder))
    key = None
    if found is not None:
        # Where the folder lies is part of what `nest.load` takes on its page.
        parts = json.dumps([found.digest, folder.parent.name])
        key = hashlib.sha256(parts.encode()).hexdigest()
    return FolderSource(folder.resolve(), folder_name(folder), key)


def given_sources(packages: Iterable[PackageSource]) -> list[ModelSource]:
    """Models from packages, those of one name being its versions, given newest first. Raises SiteError for two packages
    of one name and version."""

    def name(package: PackageSource) -> str:
        return str(package.record["card"]["model"]["name"])

    found: list[ModelSource] = []
    for key, group in groupby(sorted(packages, key=name), key=name):
        versions = tuple(group)
        if len({package.version for package in versions}) < len(versions):
            raise SiteError(f'Two packages have the name "{key}"; give each its own.')
        found.append(GivenSource(versions))
    return found
