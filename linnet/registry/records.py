"""The documents of a registry, as they are written and read: `docs/registry.md` describes each.

All are JSON with sorted keys, without spaces, with a newline at the end: the same content is the same bytes. A reader
refuses what is not exactly such a document; one of a newer schema is told apart, since it is in order and only unknown.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from linnet.registry.bench_reader import (
    JsonTable,
    Read,
    WrongValueError,
    boolean,
    count,
    line,
    natural,
    or_null,
    sha256,
    utc_time,
)
from linnet.registry.package import PackageFile
from linnet.registry.record_reader import (
    NO_OBJECTS,
    SCHEMA,
    aliases,
    all_different,
    canonical,
    close_document,
    identity,
    known_alias,
    known_name,
    known_version,
    list_of_objects,
    numbers,
    one_of,
    open_document,
    optional,
    plain,
    reason,
    safe_path,
    summary,
    tables,
    with_listed,
)
from linnet.registry.semver import in_order, is_release, precedence

# Bounds on documents, in bytes: no reader takes more.
VERSION_BYTES, EVENT_BYTES, INDEX_BYTES, SMALL_BYTES = 4 << 20, 16 << 10, 256 << 20, 4 << 10
MANIFEST_BYTES = 64 << 20
# What a client fetches first stays small, however many versions there are.
PACKAGE_BYTES = 32_000
EVENT_KINDS = ("yank", "unyank", "alias", "status")
STATUSES = ("active", "archived", "deprecated", "quarantined")


@dataclass(frozen=True, slots=True)
class WeightRecord:
    """A weight file: `size` in bytes; with `object` the registry holds it, else the repository that the pin names."""

    path: str
    size: int
    sha256: str
    object: bool


@dataclass(frozen=True, slots=True)
class WeightsPin:
    """Where the weights are and what they must be. `repo` and its commit `revision` are None where they are objects."""

    repo: str | None
    revision: str | None
    files: tuple[WeightRecord, ...]


@dataclass(frozen=True, slots=True)
class ObjectRef:
    """Bytes that the registry holds: their sha256, and how many they are."""

    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class VersionRecord:
    """A published version, for good.

    `published` is UTC. `files` are those of the package without weights. `card` is `Card.to_dict()`, `record` is what
    lists are made of, `check`, `bench` and `gate` are results as their rooms write them. `manifest` is the object that
    lists the parameters, which a client that loads the version has no need of.
    """

    name: str
    version: str
    publish_id: str
    published: str
    files: tuple[PackageFile, ...]
    card: Mapping[str, Any]
    weights: WeightsPin
    record: Mapping[str, Any]
    check: Mapping[str, Any]
    bench: Mapping[str, Any] | None = None
    gate: Mapping[str, Any] | None = None
    manifest: ObjectRef | None = None

    @property
    def content(self) -> tuple[Any, ...]:
        """What makes two publishes the same: name, version, files and weights; not when or with what results."""
        return self.name, self.version, self.files, self.weights

    def objects(self) -> dict[str, int]:
        """The digests that the registry holds for this version, each with its size in bytes."""
        files = {file.sha256: file.size for file in self.files}
        files |= {file.sha256: file.size for file in self.weights.files if file.object}
        return files | ({self.manifest.sha256: self.manifest.size} if self.manifest else {})

    def to_bytes(self) -> bytes:
        """The document."""
        return canonical({"schema": SCHEMA, **dataclasses.asdict(self)})

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> VersionRecord:
        """The record written in `data`, which lies at the path `where`. Raises RecordError, UnknownSchemaError."""
        table = open_document(data, where)
        weights = table.sub("weights")
        record = cls(
            name=table.take("name", known_name, ""),
            version=table.take("version", known_version, ""),
            publish_id=table.take("publish_id", identity, ""),
            published=table.take("published", utc_time, ""),
            files=table.take("files", _files, ()),
            card=table.take("card", tables, {}),
            weights=_weights(weights) if weights is not None else WeightsPin(None, None, ()),
            record=table.take("record", with_listed("entries", "name", "signature"), {}),
            check=table.take("check", with_listed("sections", "name", "status", "summary"), {}),
            bench=table.take("bench", or_null(plain), None),
            gate=table.take("gate", or_null(plain), None),
            manifest=_object(table.sub("manifest", optional=True)),
        )
        try:
            # They are put into one folder.
            held = [file.path for file in record.weights.files if file.object]
            all_different([*(file.path for file in record.files), *held])
            all_different(file.path for file in record.weights.files)
        except WrongValueError as wrong:
            table.problem("files", f"and weights must be {wrong}")
        close_document(table)
        return record


@dataclass(frozen=True, slots=True)
class EventRecord:
    """Something that was said of a package after its publish; `number` counts a package's events from 1 without gaps.

    `yank` and `unyank` have a `version`; `alias` has an `alias` and the `version` it now means, None for none; `status`
    has a `status`. `at` is UTC.
    """

    name: str
    number: int
    kind: str
    at: str
    event_id: str
    reason: str = ""
    version: str | None = None
    alias: str | None = None
    status: str | None = None

    def to_bytes(self) -> bytes:
        """The document: the keys of its kind alone."""
        own = {"name", "number", "kind", "at", "event_id", "reason", *_OWN[self.kind]}
        values = {key: value for key, value in dataclasses.asdict(self).items() if key in own}
        return canonical({"schema": SCHEMA, **values})

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> EventRecord:
        """The event written in `data`, which lies at the path `where`. Raises RecordError, UnknownSchemaError."""
        table = open_document(data, where)
        kind = table.take("kind", one_of(EVENT_KINDS), "")
        own = _OWN.get(kind, ())
        version: Read[str | None] = or_null(known_version) if kind == "alias" else known_version
        event = cls(
            name=table.take("name", known_name, ""),
            number=table.take("number", count, 1),
            kind=kind,
            at=table.take("at", utc_time, ""),
            event_id=table.take("event_id", identity, ""),
            reason=table.take("reason", reason, ""),
            version=table.take("version", version, None) if "version" in own else None,
            alias=table.take("alias", known_alias, "") if "alias" in own else None,
            status=table.take("status", one_of(STATUSES), "") if "status" in own else None,
        )
        close_document(table)
        return event


_OWN: Mapping[str, tuple[str, ...]] = {
    "yank": ("version",),
    "unyank": ("version",),
    "alias": ("alias", "version"),
    "status": ("status",),
}


@dataclass(frozen=True, slots=True)
class VersionEntry:
    """A version as its package lists it: `sha256` is that of the version's record, `reason` why it was yanked.

    `schema` is not SCHEMA where a newer version wrote the record, and 0 where it is damaged; such a version is there,
    and this program cannot use it.
    """

    version: str
    sha256: str
    published: str
    yanked: bool = False
    reason: str = ""
    schema: int = SCHEMA

    @property
    def usable(self) -> bool:
        """Whether this program can read its record."""
        return self.schema == SCHEMA

    def to_dict(self) -> dict[str, Any]:
        found = {"version": self.version, "sha256": self.sha256, "published": self.published, "yanked": self.yanked}
        extra = {"reason": self.reason, "schema": self.schema if self.schema != SCHEMA else ""}
        return found | {key: value for key, value in extra.items() if value != ""}


@dataclass(frozen=True, slots=True)
class PackageRecord:
    """What is known of a package: `versions` from the first to the newest, `events` the number of the last one.

    `omitted` counts versions that are there and not listed, the oldest; whoever asks for one reads its record.
    `unknown_events` are the numbers of events that the writer could not read, and which say something that it missed.
    """

    name: str
    versions: tuple[VersionEntry, ...]
    aliases: Mapping[str, str] = field(default_factory=dict)
    status: str = "active"
    status_reason: str = ""
    events: int = 0
    omitted: int = 0
    unknown_events: tuple[int, ...] = ()

    def entry(self, version: str) -> VersionEntry | None:
        """The version of that number; None where it is not listed."""
        return next((entry for entry in self.versions if entry.version == version), None)

    def newest(self) -> VersionEntry | None:
        """What the bare name means: the newest release that is not yanked, else the newest pre-release; else None."""
        usable = [entry for entry in self.versions if entry.usable and not entry.yanked]
        releases = [entry for entry in usable if is_release(entry.version)]
        return max(releases or usable, key=lambda entry: precedence(entry.version), default=None)

    def to_dict(self) -> dict[str, Any]:
        values = {
            "name": self.name,
            "versions": [entry.to_dict() for entry in self.versions],
            "aliases": dict(self.aliases),
            "status": self.status,
            "events": self.events,
        }
        extra = {"status_reason": self.status_reason, "omitted": self.omitted}
        extra["unknown_events"] = list(self.unknown_events)
        return {**values, **{key: value for key, value in extra.items() if value}}

    def to_bytes(self) -> bytes:
        """The document `packages/<name>.json`, at most PACKAGE_BYTES: it lists as many versions as have room.

        What an alias means stays, then the newest that are not yanked.
        """
        data = canonical({"schema": SCHEMA, **self.to_dict()})
        if len(data) <= PACKAGE_BYTES:
            return data
        kept = {entry.version for entry in self.versions}
        meant = set(self.aliases.values())
        size = len(data)
        for entry in sorted(self.versions, key=lambda e: (e.version in meant, not e.yanked, precedence(e.version))):
            # The key `omitted` and its number need room too.
            if size + 32 <= PACKAGE_BYTES:
                break
            kept.discard(entry.version)
            size -= len(canonical(entry.to_dict()))
        left = tuple(entry for entry in self.versions if entry.version in kept)
        shorter = dataclasses.replace(self, versions=left, omitted=self.omitted + len(self.versions) - len(left))
        return canonical({"schema": SCHEMA, **shorter.to_dict()})

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> PackageRecord:
        """The record written in `data`, which lies at the path `where`. Raises RecordError, UnknownSchemaError."""
        table = open_document(data, where)
        record = cls.from_table(table)
        close_document(table)
        return record

    @classmethod
    def from_table(cls, table: JsonTable) -> PackageRecord:
        """The keys of a package in `table`, which is left open."""
        return cls(
            name=table.take("name", known_name, ""),
            versions=table.take("versions", _entries, ()),
            aliases=table.take("aliases", aliases, {}),
            status=table.take("status", one_of(STATUSES), "active"),
            status_reason=optional(table, "status_reason", reason, ""),
            events=table.take("events", natural, 0),
            omitted=optional(table, "omitted", natural, 0),
            unknown_events=optional(table, "unknown_events", numbers, ()),
        )


@dataclass(frozen=True, slots=True)
class IndexPackage:
    """A package in the index. `summary` describes the newest version, or the last where all are yanked: `version`,
    `model` (that table of its card), `parameter_count`, `files_size` and `weights_size` in bytes; None where this
    program can read none.
    """

    package: PackageRecord
    summary: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class IndexRecord:
    """A generation of the index: every package, sorted by name. A function of `versions/` and `events/` alone."""

    packages: tuple[IndexPackage, ...]

    def get(self, name: str) -> IndexPackage | None:
        """The package of that name."""
        return next((item for item in self.packages if item.package.name == name), None)

    def to_bytes(self) -> bytes:
        """The document."""
        packages = [{**item.package.to_dict(), "summary": item.summary} for item in self.packages]
        return canonical({"schema": SCHEMA, "packages": packages})

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> IndexRecord:
        """The index written in `data`, which lies at the path `where`. Raises RecordError, UnknownSchemaError."""
        table = open_document(data, where)
        packages = []
        for i, value in enumerate(table.take("packages", list_of_objects, NO_OBJECTS)):
            inner = JsonTable(value, f"packages[{i}]", table.problems, kind=table.kind, help=table.help)
            record = PackageRecord.from_table(inner)
            packages.append(IndexPackage(record, inner.take("summary", or_null(summary), None)))
            inner.close()
        close_document(table)
        return cls(tuple(packages))


@dataclass(frozen=True, slots=True)
class Latest:
    """`index/latest.json`: a hint at the newest generation, and the sha256 of its bytes."""

    generation: int
    sha256: str

    def to_bytes(self) -> bytes:
        """The document."""
        return canonical({"schema": SCHEMA, **dataclasses.asdict(self)})

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> Latest:
        """The hint written in `data`, which lies at the path `where`. Raises RecordError, UnknownSchemaError."""
        table = open_document(data, where)
        found = cls(table.take("generation", count, 1), table.take("sha256", sha256, ""))
        close_document(table)
        return found


def _files(value: Any) -> tuple[PackageFile, ...]:
    wrong = WrongValueError("a list of objects with path, size and sha256")
    files = []
    for item in list_of_objects(value):
        if item.keys() != {"path", "size", "sha256"}:
            raise wrong
        files.append(PackageFile(safe_path(item["path"]), natural(item["size"]), sha256(item["sha256"])))
    return tuple(files)


def _object(table: JsonTable | None) -> ObjectRef | None:
    if table is None:
        return None
    found = ObjectRef(table.take("sha256", sha256, ""), table.take("size", natural, 0))
    table.close()
    return found


def _weights(table: JsonTable) -> WeightsPin:
    pin = WeightsPin(
        repo=table.take("repo", or_null(line), None),
        revision=table.take("revision", or_null(line), None),
        files=table.take("files", _weight_files, ()),
    )
    if (pin.repo is None) != (pin.revision is None):
        table.problem("revision", "must come with a repo, and a repo with it")
    if pin.repo is None and not all(file.object for file in pin.files):
        table.problem("files", "are neither objects nor in a repository")
    table.close()
    return pin


def _weight_files(value: Any) -> tuple[WeightRecord, ...]:
    wrong = WrongValueError("a list of objects with path, size, sha256 and object")
    files = []
    for item in list_of_objects(value):
        if item.keys() != {"path", "size", "sha256", "object"}:
            raise wrong
        digest, size = sha256(item["sha256"]), natural(item["size"])
        files.append(WeightRecord(safe_path(item["path"]), size, digest, boolean(item["object"])))
    return tuple(files)


def _entries(value: Any) -> tuple[VersionEntry, ...]:
    entries = []
    for item in list_of_objects(value):
        known = {"version", "sha256", "published", "yanked"}
        if not known <= item.keys() <= known | {"reason", "schema"}:
            raise WrongValueError("a list of objects with version, sha256, published and yanked")
        schema = natural(item.get("schema", SCHEMA))
        entries.append(
            VersionEntry(
                version=known_version(item["version"]),
                sha256=sha256(item["sha256"]),
                published=utc_time(item["published"]) if schema == SCHEMA else "",
                yanked=boolean(item["yanked"]),
                reason=reason(item.get("reason", "")),
                schema=schema,
            )
        )
    versions = [entry.version for entry in entries]
    if len(set(versions)) < len(versions) or versions != in_order(versions):
        raise WrongValueError("a list of versions in order")
    return tuple(entries)
