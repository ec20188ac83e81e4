"""Publishing a version: the store's part of it, which knows nothing of how results came to be.

Objects first, then the version's record, which is the moment when the version is there, then index and small file,
which only say so. What a killed publisher leaves is a registry without the version, or with it; publishing again ends
what it began. At the end all is read back as a client that has never been here would.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from linnet.registry.bench import BenchReport
from linnet.registry.errors import Problem, RegistryError, listed, shown
from linnet.registry.events import package_now
from linnet.registry.generations import Written, check_writable, name_document, publicize
from linnet.registry.index import package_record
from linnet.registry.layout import name_path, object_path, version_path
from linnet.registry.locate import Located
from linnet.registry.package import name_fault, package_files
from linnet.registry.package import package_path as path_in_package
from linnet.registry.pins import pin_weights
from linnet.registry.record_reader import SCHEMA, RecordError, canonical, close_document, known_name, open_document
from linnet.registry.records import SMALL_BYTES, VERSION_BYTES, ObjectRef, VersionRecord
from linnet.registry.registry import Held, Registry
from linnet.registry.report import CheckReport
from linnet.registry.semver import in_order, next_free, version_fault
from linnet.registry.store.base import AbsentError, StoreError

# Read at once on their way to the store, in bytes.
BATCH_BYTES = 64 << 20
THREADS = 8
# Of the index record of a package, what a version keeps: the rest follows from its files.
KEPT = ("generics", "parameter_count", "size", "file_count", "entries")
Say = Callable[[str], None]


class PublishError(RegistryError):
    """A version that cannot be published: its name or number is taken or none."""


@dataclass(frozen=True, slots=True)
class Publication:
    """What is to be published: the record, and the bytes of its objects or the files that have them, by digest."""

    record: VersionRecord
    objects: Mapping[str, bytes | Path]


@dataclass(frozen=True, slots=True)
class Published:
    """A version that a fresh client can load; `created` is False where it had been published before.

    `sha256` is that of its record, `generation` an index that has it.
    """

    record: VersionRecord
    sha256: str
    created: bool
    generation: int


def make_publication(
    package: Located,
    version: str | None,
    check: CheckReport,
    bench: BenchReport | None = None,
    weights: Path | None = None,
) -> Publication:
    """A package as it would be published now, with the results that others found. Nothing is written.

    `version` is the package's own. Raises PublishError for a version that cannot be one, PackageError, HubError.
    """
    card = package.card()
    number = _checked_version(card.model.name, version)
    files = package_files(package.folder, skip=frozenset(card.weights.files))
    pinned = pin_weights(package.folder, card, weights)
    found = package_record(package, weights=weights)
    tensors = {item["tensor"] for item in found["parameters"] if item["present"]}
    manifest = canonical({"schema": SCHEMA, "parameters": found["parameters"]})
    digest = hashlib.sha256(manifest).hexdigest()
    record = VersionRecord(
        name=card.model.name,
        version=number,
        publish_id=uuid.uuid4().hex,
        published=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        files=tuple(files),
        card=card.to_dict(),
        weights=pinned.pin,
        record={**{key: found[key] for key in KEPT}, "tensor_count": len(tensors)},
        # Where the package lay is nobody's concern.
        check={**check.to_dict(), "package": card.model.name},
        bench=json.loads(bench.to_json()) if bench is not None else None,
        manifest=ObjectRef(digest, len(manifest)),
    )
    paths = {file.sha256: path_in_package(package.folder, file.path) for file in files}
    return Publication(record, {**paths, **pinned.objects, digest: manifest})


def _checked_version(name: str, version: str | None) -> str:
    if version is None:
        help = 'Write version = "0.1.0" under [package] in linnet.toml, or under [model] in nest.toml.'
        raise PublishError([Problem("publish.version", "version", f"{name} has no version.", help)])
    if fault := version_fault(version):
        help = "Write three numbers such as 0.1.0, or a pre-release such as 0.2.0-rc.1."
        raise PublishError([Problem("publish.version", "version", f"The version {shown(version)} {fault}.", help)])
    return version


def publish_version(
    registry: Registry, publication: Publication, say: Say = lambda step: None, *, fresh: Registry | None = None
) -> Published:
    """Publish, and return once a fresh client can load it. `say` is told each step; `fresh` is the registry opened
    anew, for reading back.

    The same content published before is success. Raises PublishError for a name or version that is taken, or a package
    that takes no versions; StoreError; PackageError for a file that changed meanwhile.
    """
    record = publication.record
    before = check_publishable(registry, record)
    say("objects")
    _write_objects(registry, publication)
    say("version")
    held = before or _commit(registry, record)
    created = held.document.publish_id == record.publish_id
    say("index")
    generation = publicize(registry, Written(record.name, version=record.version))
    say("reading back")
    read_back(registry, publication, held.sha256, fresh or registry)
    return Published(held.document, held.sha256, created, generation.number)


def check_publishable(registry: Registry, record: VersionRecord) -> Held[VersionRecord] | None:
    """What there is of the version already, of the same content; None where there is nothing of it.

    Raises PublishError where the name or the version is another's, or the package takes no new versions; StoreError
    where the registry takes none.
    """
    check_writable(registry, record.name)
    if (fault := name_fault(record.name)) is not None:
        raise PublishError([_name_problem(record.name, fault, "Rename the package.")])
    data = record.to_bytes()
    if len(data) > VERSION_BYTES:
        message = f"The record of {record.name} {record.version} is longer than {VERSION_BYTES} bytes."
        raise PublishError([Problem("publish.size", record.name, message, "Publish fewer files.")])
    try:
        VersionRecord.from_bytes(data, version_path(record.name, record.version))
    except RecordError as error:
        message = f"{record.name} {record.version} cannot be published, since nobody could read it:"
        raise PublishError(
            Problem("publish.record", problem.where, f"{message} {problem.message}", "Correct the package.")
            for problem in error.problems
        ) from None
    holder = _refuse_other_holder(registry, record.name)
    before = _published(registry, record)
    if before is None and holder is not None:
        package = package_now(registry, record.name)
        if package is not None and package.status in ("archived", "quarantined"):
            message = f"{record.name} is {package.status} and takes no new versions."
            help = f"To go on with it: nest status {record.name} active."
            raise PublishError([Problem("publish.status", record.name, message, help)])
    return before


def read_back(registry: Registry, publication: Publication, sha256: str, fresh: Registry) -> None:
    """Ask `fresh` for everything that a client needs, and compare the digests. Objects that are damaged or gone are
    written again. Raises StoreError where the registry does not give what it was given.
    """
    record = publication.record
    package = fresh.package(record.name)
    entry = package.entry(record.version) if package is not None else None
    if (entry is None and not (package and package.omitted)) or (entry is not None and entry.sha256 != sha256):
        raise _not_visible(registry, f"packages/{record.name}.json does not list {record.version}")
    if fresh.version(record.name, record.version).sha256 != sha256:
        raise _not_visible(registry, f"{version_path(record.name, record.version)} is not what was written")
    wanted = record.objects()
    faulty = _faulty_objects(fresh, wanted)
    for digest in faulty:
        registry.store.replace(object_path(digest), _bytes_of(publication, digest))
    if _faulty_objects(fresh, {digest: wanted[digest] for digest in faulty}):
        raise _not_visible(registry, f"{object_path(faulty[0])} does not have the bytes that were written")


def _faulty_objects(registry: Registry, wanted: Mapping[str, int]) -> list[str]:
    with ThreadPoolExecutor(THREADS) as pool:
        good = pool.map(lambda digest: _is_good(registry, digest, wanted[digest]), wanted)
        return [digest for digest, fine in zip(wanted, good, strict=True) if not fine]


def _is_good(registry: Registry, digest: str, size: int) -> bool:
    found, got = hashlib.sha256(), 0
    try:
        for block in registry.store.stream(object_path(digest)):
            found.update(block)
            got += len(block)
            if got > size:
                return False
    except AbsentError:
        return False
    return found.hexdigest() == digest


def _published(registry: Registry, record: VersionRecord) -> Held[VersionRecord] | None:
    """The version as it is published, where its content is this one's; PublishError where it is another's."""
    try:
        held = registry.version(record.name, record.version)
    except AbsentError:
        return None
    except RecordError as error:
        message = f"{record.name} {record.version} is published, and its record cannot be read."
        problem = Problem("publish.taken", record.name, message, f"{_next_version(registry, record)} is free.")
        raise PublishError([problem, *error.problems]) from None
    if held.document.content == record.content:
        return held
    what = _difference(held.document, record)
    message = f"{record.name} {record.version} is published already, on {held.document.published}, with {what}."
    help = (
        f"A published version never changes: give this one another number; {_next_version(registry, record)} is free."
    )
    raise PublishError([Problem("publish.taken", record.name, message, help)])


def _next_version(registry: Registry, record: VersionRecord) -> str:
    taken = [*registry.versions(record.name), record.version]
    return next_free(in_order(taken)[-1], taken)


def _difference(old: VersionRecord, new: VersionRecord) -> str:
    if old.files != new.files:
        before, after = ({file.path: file.sha256 for file in record.files} for record in (old, new))
        names = sorted(path for path in before | after if before.get(path) != after.get(path))
        return f"another content of {listed(names, 3)}"
    return "other weights"


def _refuse_other_holder(registry: Registry, name: str) -> str | None:
    """The package that has the name: None, or this one. Raises PublishError where it is one that is spelled alike."""
    path = name_path(name)
    try:
        table = open_document(registry.read(path, SMALL_BYTES), path)
    except AbsentError:
        return None
    holder = table.take("name", known_name, "")
    close_document(table)
    if holder != name:
        fault = f"is spelled too much like {shown(holder)}, which {registry.url} has"
        raise PublishError([_name_problem(name, fault, "Choose another name.")])
    return holder


def _write_objects(registry: Registry, publication: Publication) -> None:
    """Write the objects, and with the first of them take the name, and all that are spelled much like it, for good.

    On the Hub that is one commit. Raises PublishError where the name is another's.
    """
    name = publication.record.name
    files: dict[str, bytes] = {name_path(name): name_document(name)}
    for batch in _batches(publication.record.objects()):
        files |= {object_path(digest): _bytes_of(publication, digest) for digest in batch}
        registry.store.create_all(files)
        files = {}
    _refuse_other_holder(registry, name)


def _batches(objects: Mapping[str, int]) -> Iterator[list[str]]:
    """Digests in groups whose files fit into memory together."""
    batch: list[str] = []
    room = BATCH_BYTES
    for digest, size in objects.items():
        if batch and size > room:
            yield batch
            batch, room = [], BATCH_BYTES
        batch.append(digest)
        room -= size
    if batch:
        yield batch


def _bytes_of(publication: Publication, digest: str) -> bytes:
    """The bytes of an object, which must be those that the record means."""
    path = publication.objects[digest]
    if isinstance(path, bytes):
        return path
    # Whoever opened a pipe would wait for ever.
    data = path.read_bytes() if path.is_file() else b""
    if hashlib.sha256(data).hexdigest() != digest:
        message = f"{path} changed while it was published."
        raise PublishError([Problem("publish.changed", path.name, message, "Publish again once it is finished.")])
    return data


def _commit(registry: Registry, record: VersionRecord) -> Held[VersionRecord]:
    """Create the version's record, and find out whose it is. Raises PublishError where it is another's."""
    path = version_path(record.name, record.version)
    registry.store.create(path, record.to_bytes())
    # Also where this call made it: what counts is what is there.
    held = _published(registry, record)
    if held is None:
        raise _not_visible(registry, f"{path} cannot be read")
    return held


def _not_visible(registry: Registry, fault: str) -> StoreError:
    message = f"{registry.url} took what was published, but {fault}."
    return StoreError([Problem("publish.not-visible", registry.url, message, "Publish again; it goes on from there.")])


def _name_problem(name: str, fault: str, help: str) -> Problem:
    return Problem("publish.name", name, f"The name {shown(name)} {fault}.", help)
