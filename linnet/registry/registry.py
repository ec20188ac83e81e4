"""A registry over its store: what is published, read and never written here."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from linnet.registry.errors import Problem
from linnet.registry.layout import (
    EVENTS,
    INDEX,
    LATEST,
    VERSIONS,
    event_path,
    generation_number,
    generation_path,
    listed_events,
    listed_versions,
    object_path,
    package_path,
    version_path,
)
from linnet.registry.record_reader import RecordError, close_document, open_document, parameters
from linnet.registry.records import (
    EVENT_BYTES,
    INDEX_BYTES,
    MANIFEST_BYTES,
    PACKAGE_BYTES,
    SMALL_BYTES,
    VERSION_BYTES,
    EventRecord,
    IndexRecord,
    Latest,
    PackageRecord,
    VersionRecord,
)
from linnet.registry.store.base import AbsentError, Store, StoreError

Document = TypeVar("Document")
TRIES = 5


@dataclass(frozen=True, slots=True)
class Held(Generic[Document]):
    """A document as a registry holds it; `sha256` is that of its bytes."""

    document: Document
    sha256: str


@dataclass(frozen=True, slots=True)
class Generation:
    """An index and its number; number 0, of no packages, is before the first."""

    number: int
    sha256: str
    index: IndexRecord


NO_GENERATION = Generation(0, "", IndexRecord(()))


class Registry:
    """What a store holds, as documents. Methods raise StoreError, and RecordError for what is damaged."""

    def __init__(self, store: Store) -> None:
        self.store = store

    @property
    def url(self) -> str:
        return self.store.url

    def version(self, name: str, version: str) -> Held[VersionRecord]:
        """The record of a version. Raises AbsentError."""
        path = version_path(name, version)
        data = self.read(path, VERSION_BYTES)
        record = VersionRecord.from_bytes(data, path)
        if (record.name, record.version) != (name, version):
            raise self._misplaced(path, f"{record.name} {record.version}")
        return Held(record, hashlib.sha256(data).hexdigest())

    def parameters(self, record: VersionRecord) -> list[dict[str, Any]] | None:
        """The parameters of a version, as an index record has them; None where it lists none.

        Raises RecordError where the bytes are not those that the version means.
        """
        if record.manifest is None:
            return None
        path = object_path(record.manifest.sha256)
        data = self.read(path, MANIFEST_BYTES)
        if hashlib.sha256(data).hexdigest() != record.manifest.sha256:
            message = f"{path} in {self.url} has other bytes than its name says."
            raise RecordError([Problem("registry.wrong-bytes", path, message, "Try another registry or mirror.")])
        table = open_document(data, path)
        nothing: list[dict[str, Any]] = []
        found = table.take("parameters", parameters, nothing)
        close_document(table)
        return found

    def versions(self, name: str) -> list[str]:
        """The versions of a package, the first first, as the store lists them."""
        return listed_versions(self.store.list(f"{VERSIONS}{name}/")).get(name, [])

    def event(self, name: str, number: int) -> EventRecord:
        """An event of a package. Raises AbsentError."""
        path = event_path(name, number)
        event = EventRecord.from_bytes(self.read(path, EVENT_BYTES), path)
        if (event.name, event.number) != (name, number):
            raise self._misplaced(path, f"event {event.number} of {event.name}")
        return event

    def event_numbers(self, name: str) -> list[int]:
        """The numbers of a package's events, ascending, as the store lists them."""
        return listed_events(self.store.list(f"{EVENTS}{name}/")).get(name, [])

    def package(self, name: str) -> PackageRecord | None:
        """The package's small file, a hint that may lag behind; None where there is none."""
        path = package_path(name)
        try:
            data = self.read(path, PACKAGE_BYTES)
        except AbsentError:
            return None
        record = PackageRecord.from_bytes(data, path)
        if record.name != name:
            raise self._misplaced(path, record.name)
        return record

    def index(self) -> Generation:
        """The newest generation of the index; NO_GENERATION where there is none.

        `index/latest.json` says where to begin to look, and the store's list, where it can make one. Raises RecordError
        where the newest is damaged.
        """
        for _ in range(TRIES):
            hint = self.latest()
            try:
                listed = self.newest_generation()
            except StoreError:
                # A static host lists nothing.
                if hint is None:
                    raise
                listed = 0
            hinted = hint.generation if hint else 0
            found = self._generation(max(hinted, listed))
            if found.number < listed:
                # The hint is at one that there is not.
                found = self._generation(listed)
            # Written since, or what a list that lags does not show.
            while (later := self._generation(found.number + 1)).number > found.number:
                found = later
            if found.number or hinted == listed == 0:
                return found
            # Removed between the two questions, because so many newer ones were written.
        raise AbsentError(self.url, generation_path(max(hinted, listed)))

    def newest_generation(self) -> int:
        """The highest number of a generation that the store lists; 0 where there is none."""
        return max(self.generations(), default=0)

    def generations(self) -> list[int]:
        """The numbers of the generations that the store lists, ascending."""
        return sorted(number for path in self.store.list(INDEX) if (number := generation_number(path)) is not None)

    def latest(self) -> Latest | None:
        """The hint at the newest generation; None where there is none, or where it is damaged."""
        try:
            return Latest.from_bytes(self.read(LATEST, SMALL_BYTES), LATEST)
        except (AbsentError, RecordError):
            return None

    def read(self, path: str, limit: int) -> bytes:
        """A small file, whole. Raises AbsentError, and RecordError for one of over `limit` bytes, or no file at all."""
        try:
            fetched = self.store.read(path, limit=limit)
        except StoreError as error:
            if any(problem.kind in ("store.too-large", "store.no-file") for problem in error.problems):
                raise RecordError(error.problems) from None
            raise
        # None answers a tag, and none was sent.
        assert fetched is not None
        return fetched.data

    def _generation(self, number: int) -> Generation:
        if number == 0:
            return NO_GENERATION
        path = generation_path(number)
        try:
            data = self.read(path, INDEX_BYTES)
        except AbsentError:
            return NO_GENERATION
        return Generation(number, hashlib.sha256(data).hexdigest(), IndexRecord.from_bytes(data, path))

    def _misplaced(self, path: str, holds: str) -> RecordError:
        message = f"{path} in {self.url} is the document of {holds}."
        return RecordError([Problem("registry.misplaced", path, message, "The registry's copy is damaged.")])
