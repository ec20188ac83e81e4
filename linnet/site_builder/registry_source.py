"""Models from a registry: every version that can be read, what was measured, what was yanked."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from linnet.language.check.modules import MANIFEST
from linnet.registry.bench import BenchReport
from linnet.registry.errors import Problem
from linnet.registry.layout import object_path
from linnet.registry.package import path_fault
from linnet.registry.record_reader import RecordError
from linnet.registry.records import PackageRecord, VersionEntry, VersionRecord
from linnet.registry.registry import Registry
from linnet.registry.semver import precedence
from linnet.registry.store.open import open_store
from linnet.site_builder.collect import SHOWN_BYTES, PackageSource, SiteError, current_version
from linnet.site_builder.sources import ModelSource


@dataclass(frozen=True, slots=True)
class RegistrySource:
    """A package of the registry at `url`, as its index lists it."""

    url: str
    package: PackageRecord

    @property
    def name(self) -> str:
        return self.package.name

    @property
    def key(self) -> str:
        """The digest of what the registry says of the package: versions never change."""
        text = json.dumps([self.package.name, self.package.to_dict()], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def packages(self, scratch: Path) -> list[PackageSource]:
        """The versions, newest first. The one that the name means has its sources in `scratch`, and alone lists its
        parameters.

        Raises StoreError where the registry does not give them, RecordError where what it gives is damaged.
        """
        registry = Registry(open_store(self.url))
        read: dict[str, bytes] = {}

        def content(digest: str) -> bytes:
            # Versions share most of their files.
            if digest not in read:
                read[digest] = _object(registry, digest)
            return read[digest]

        entries = sorted(_usable(self.package), key=lambda entry: precedence(entry.version), reverse=True)
        records = {item.version: registry.version(self.name, item.version).document for item in entries}
        found = [self._version(entry, records[entry.version], scratch, content) for entry in entries]
        current = current_version(found)
        _write_sources(current)
        parameters = registry.parameters(records[current.version]) or []
        full = replace(current, record={**current.record, "parameters": parameters})
        return [full if item is current else item for item in found]

    def _version(
        self, entry: VersionEntry, record: VersionRecord, folder: Path, content: Callable[[str], bytes]
    ) -> PackageSource:
        held: dict[str, bytes] = {}
        for file in record.files:
            if fault := path_fault(file.path):
                message = f"A file of {record.name} {record.version} {fault}."
                raise RecordError([Problem("registry.path", record.name, message, "The registry is damaged.")])
            if file.size <= SHOWN_BYTES:
                held[file.path] = content(file.sha256)
        bench = BenchReport.from_json(json.dumps(record.bench)) if record.bench is not None else None
        return PackageSource(
            folder,
            _index_record(record),
            published=record.published,
            yanked=entry.reason if entry.yanked else None,
            bench=bench,
            weight_digests={file.path: file.sha256 for file in record.weights.files},
            held=held,
            status=self.package.status,
            status_reason=self.package.status_reason,
        )


def registry_sources(url: str | os.PathLike[str]) -> list[ModelSource]:
    """Every package of a registry that has a version which this program can read.

    Raises StoreError where the registry cannot be read, RecordError where its index is damaged, SiteError where it has
    none.
    """
    registry = Registry(open_store(url))
    packages = [item.package for item in registry.index().index.packages]
    found: list[ModelSource] = [RegistrySource(registry.url, package) for package in packages if _usable(package)]
    if not found:
        raise SiteError(f"The registry {registry.url} has no packages; publish one with nest publish, or name another.")
    return found


def _write_sources(package: PackageSource) -> None:
    """Write what checking the program reads to the package's folder."""
    root = package.record["card"]["source"]["path"]
    for path, data in (package.held or {}).items():
        if path == root or path.endswith((".linnet", MANIFEST)):
            target = package.folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)


def _usable(package: PackageRecord) -> list[VersionEntry]:
    return [entry for entry in package.versions if entry.usable]


def _index_record(record: VersionRecord) -> dict[str, Any]:
    """The version's record as `package_record` would make it of its folder, but for its parameters."""
    pin = record.weights
    return {
        **record.record,
        "name": record.name,
        "version": record.version,
        "card": record.card,
        "files": [{"path": file.path, "size": file.size, "sha256": file.sha256} for file in record.files],
        "parameters": [],
        "weights": {
            "repo": pin.repo,
            "revision": pin.revision,
            "files": [file.path for file in pin.files],
            "sizes": {file.path: file.size for file in pin.files},
        },
    }


def _object(registry: Registry, digest: str) -> bytes:
    data = registry.read(object_path(digest), SHOWN_BYTES)
    if hashlib.sha256(data).hexdigest() != digest:
        message = f"The object {digest} of {registry.url} has other bytes than its name says."
        help = "The registry is damaged: nest verify tells what else is."
        raise RecordError([Problem("registry.object", object_path(digest), message, help)])
    return data
