"""Signing a registry: keys, and metadata of The Update Framework over the state that the index has.

Three keys: `root`, which is kept offline and says what the others are; `targets`, which signs what is published; and
`refresh`, which signs snapshot and timestamp, and so only that a signed state is still the newest.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from linnet.registry.errors import Problem
from linnet.registry.layout import LATEST, generation_path, package_path, version_path
from linnet.registry.records import INDEX_BYTES, VERSION_BYTES, Latest, PackageRecord
from linnet.registry.registry import Registry
from linnet.registry.signing import COPIES, METADATA_BYTES, TRUST, SignatureError
from linnet.registry.store.base import AbsentError

if TYPE_CHECKING:
    from securesystemslib.signer import CryptoSigner
    from tuf.api.metadata import Metadata, Root, Snapshot, SuccinctRoles, Targets, Timestamp

KEYS = ("root", "targets", "refresh")
ROOT_DAYS, TARGETS_DAYS, REFRESH_DAYS = 365, 365, 7
# What expires sooner is signed again, when the rest is.
RENEW_DAYS = 90
LEAST_BITS, MOST_BITS = 4, 12
# Removing is a request for each file, or on the Hub a commit.
MOST_STALE = 64
TRIES = 5
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Signed:
    """What a signing did: the versions of its timestamp and snapshot, when they expire, and the `changed` paths."""

    registry: str
    timestamp: int
    snapshot: int
    expires: datetime
    changed: tuple[str, ...]


def require_tuf() -> None:
    """Raises SignatureError where what signs is not installed."""
    try:
        import_module("tuf.api.metadata")
        import_module("cryptography")
    except ModuleNotFoundError as error:
        help = "Install it: pip install cryptography 'securesystemslib[crypto]' tuf."
        raise _refused("sign", f"Signing needs {error.name}, which is not installed.", help) from None


def make_keys(folder: Path, names: Iterable[str] = KEYS) -> None:
    """Write new private keys (Ed25519, PEM), for their owner's eyes only, to `folder`.

    Raises SignatureError for one that is there.
    """
    from securesystemslib.signer import CryptoSigner

    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        data = CryptoSigner.generate_ed25519().private_bytes
        try:
            handle = os.open(folder / f"{name}.pem", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            message = f"There is a key {folder / f'{name}.pem'} already."
            raise _refused(str(folder), message, "Name another folder with --keys, or leave --init out.") from None
        with os.fdopen(handle, "wb") as file:
            file.write(data)


def start_signing(
    registry: Registry, keys: Path, now: datetime | None = None, *, days: int = REFRESH_DAYS, say: Say = lambda _: None
) -> Signed:
    """Make keys in the folder `keys`, write the first root to the registry and to `keys/root.json`, and `sign`.

    Raises SignatureError where the registry is signed already, and as `sign` does.
    """
    if any(_listed(registry)):
        message = f"{registry.url} is signed already."
        raise _refused(registry.url, message, "Sign what is new without --init.")
    make_keys(keys)
    _write_root(registry, keys, 1, now or _now(), _key(keys, "root"))
    return sign(registry, keys, now, days=days, say=say)


def renew_root(registry: Registry, keys: Path, now: datetime | None = None) -> int:
    """Sign a new root with the key `root`, for which the other keys are those in the folder now; a missing one is made.

    Clients that trust an earlier root take it. Sign again afterwards. Returns its version. Raises SignatureError.
    """
    old = _root(registry, keys)
    make_keys(keys, [name for name in KEYS[1:] if not (keys / f"{name}.pem").is_file()])
    root = _key(keys, "root")
    if root.public_key.keyid not in old.signed.roles["root"].keyids:
        message = f"{keys / 'root.pem'} is not the key of the root of {registry.url}."
        raise _refused(str(keys), message, "Name the folder of that key with --keys.")
    version = 1 + max(_listed(registry).get("root", 0), old.signed.version)
    _write_root(registry, keys, version, now or _now(), root)
    return version


def sign(
    registry: Registry, keys: Path, now: datetime | None = None, *, days: int = REFRESH_DAYS, say: Say = lambda _: None
) -> Signed:
    """Sign the state that the registry's newest index has, with the keys `targets` and `refresh`.

    Snapshot and timestamp expire in `days`. Every file is written under a number that nobody has, the timestamp last:
    until then clients see the state before. Raises SignatureError, StoreError, RecordError.
    """
    time = now or _now()
    for _ in range(TRIES):
        before = _State.read(registry, _root(registry, keys))
        found = _sign_once(registry, keys, time, days, before, say)
        if found is not None:
            _remove_stale(registry, before)
            return found
    message = f"Others sign {registry.url} at the same time."
    raise _refused(registry.url, message, "Let one sign after the other.")


def refresh(registry: Registry, keys: Path, now: datetime | None = None, *, days: int = REFRESH_DAYS) -> Signed:
    """Sign again, with the key `refresh` alone, that the state signed last is still the newest.

    Raises SignatureError where its signatures have expired: whoever holds the key `targets` has to look then.
    """
    time = now or _now()
    before = _State.read(registry, _root(registry, keys))
    if before.snapshot is None or before.timestamp is None:
        raise _refused(registry.url, f"{registry.url} is not signed yet.", "Begin with --init.")
    for signed in (before.snapshot.signed, before.timestamp.signed):
        if signed.is_expired(time):
            message = f"The {signed.type} of {registry.url} expired at {signed.expires:%Y-%m-%d %H:%M} UTC."
            raise _refused(registry.url, message, "Sign anew without --refresh, with the key targets.")
    found = _finish(registry, keys, time, days, before, before.snapshot.signed.meta, ())
    if found is None:
        raise _refused(registry.url, f"Others sign {registry.url} at the same time.", "Try again.")
    return found


@dataclass(slots=True)
class _State:
    """What is signed now, each part verified with the keys of the root; None and empty where it is not.

    `numbers` are the highest numbers of each role's files in the registry.
    """

    numbers: Mapping[str, int]
    timestamp: Metadata[Timestamp] | None = None
    snapshot: Metadata[Snapshot] | None = None
    targets: Metadata[Targets] | None = None
    bins: Mapping[str, Metadata[Targets]] | None = None

    @classmethod
    def read(cls, registry: Registry, root: Metadata[Root]) -> _State:
        from tuf.api.exceptions import UnsignedMetadataError

        state = cls(_listed(registry))
        try:
            state.timestamp = _verified(registry, f"{TRUST}timestamp.json", root.signed, "timestamp")
            version = state.timestamp.signed.snapshot_meta.version
            state.snapshot = _verified(registry, f"{TRUST}{version}.snapshot.json", root.signed, "snapshot")
            version = state.snapshot.signed.meta["targets.json"].version
            state.targets = _verified(registry, f"{TRUST}{version}.targets.json", root.signed, "targets")
            bins: dict[str, Metadata[Targets]] = {}
            for name in _bin_names(state.targets.signed):
                version = state.snapshot.signed.meta[f"{name}.json"].version
                bins[name] = _verified(registry, f"{TRUST}{version}.{name}.json", state.targets.signed, name)
            state.bins = bins
        except (AbsentError, KeyError, UnsignedMetadataError):
            # The rest is signed anew: by other keys after a rotation, or because it is damaged.
            return state
        return state


def _sign_once(registry: Registry, keys: Path, time: datetime, days: int, before: _State, say: Say) -> Signed | None:
    """One attempt; None where somebody else took one of its numbers."""
    from tuf.api.metadata import Delegations, Metadata, MetaFile, SuccinctRoles, TargetFile, Targets

    signer = _key(keys, "targets")
    say("reading the index")
    contents, lengths = _published(registry)
    roles = SuccinctRoles([signer.public_key.keyid], 1, _bits(len(contents)), f"b{_bits(len(contents))}")
    wanted: dict[str, dict[str, Any]] = {name: {} for name in roles.get_roles()}
    for path, (length, sha256) in lengths.items():
        wanted[roles.get_role_for_target(path)][path] = TargetFile(length, {"sha256": sha256}, path)
    old = dict(before.bins or {})
    known = {path: file for item in old.values() for path, file in item.signed.targets.items()}
    changed = sorted({path for item in wanted.values() for path, file in item.items() if known.get(path) != file})
    changed += sorted(path for path in known if path not in lengths)
    soon = time + timedelta(days=RENEW_DAYS)
    files: dict[str, bytes | Path] = {}
    meta: dict[str, MetaFile] = {}
    for name, targets in wanted.items():
        item = old.get(name)
        if item is None or item.signed.targets != targets or item.signed.is_expired(soon):
            version = before.numbers.get(name, 0) + 1
            expires = time + timedelta(days=TARGETS_DAYS)
            files[f"{TRUST}{version}.{name}.json"] = _signed(
                Metadata(Targets(version, expires=expires, targets=targets)), signer
            )
        else:
            version = item.signed.version
        meta[f"{name}.json"] = MetaFile(version)
    top = before.targets
    same = top is not None and top.signed.delegations is not None and top.signed.delegations.succinct_roles == roles
    if top is None or not same or top.signed.is_expired(soon):
        version = before.numbers.get("targets", 0) + 1
        delegations = Delegations({signer.public_key.keyid: signer.public_key}, succinct_roles=roles)
        made = Targets(version, expires=time + timedelta(days=TARGETS_DAYS), delegations=delegations)
        files[f"{TRUST}{version}.targets.json"] = _signed(Metadata(made), signer)
    else:
        version = top.signed.version
    meta["targets.json"] = MetaFile(version)
    say("writing what is signed")
    # Named after their digests: whoever wrote one before wrote the same.
    copies = {f"{COPIES}{hashlib.sha256(data).hexdigest()}": data for path, data in contents.items() if path in changed}
    registry.store.create_all(copies)
    if files and registry.store.create_all(files):
        return None
    return _finish(registry, keys, time, days, before, meta, changed)


def _finish(
    registry: Registry,
    keys: Path,
    time: datetime,
    days: int,
    before: _State,
    meta: Mapping[str, Any],
    changed: Iterable[str],
) -> Signed | None:
    """Snapshot, then timestamp; None where somebody else took one of their numbers."""
    from tuf.api.metadata import Metadata, MetaFile, Snapshot, Timestamp

    signer = _key(keys, "refresh")
    expires = time + timedelta(days=days)
    number = before.numbers.get("snapshot", 0) + 1
    data = _signed(Metadata(Snapshot(number, expires=expires, meta=dict(meta))), signer)
    if not registry.store.create(f"{TRUST}{number}.snapshot.json", data):
        return None
    version = before.timestamp.signed.version + 1 if before.timestamp is not None else 1
    pointer = MetaFile(number, len(data), {"sha256": hashlib.sha256(data).hexdigest()})
    stamp = _signed(Metadata(Timestamp(version, expires=expires, snapshot_meta=pointer)), signer)
    registry.store.replace(f"{TRUST}timestamp.json", stamp)
    return Signed(registry.url, version, number, expires, tuple(changed))


def _published(registry: Registry) -> tuple[dict[str, bytes], dict[str, tuple[int, str]]]:
    """The files that change in place, as the newest index says they are; and length and sha256 of all that is signed.

    The records of versions need no signature of their own where their package's file lists them with their digest.
    """
    generation = registry.index()
    contents: dict[str, bytes] = {}
    signed: dict[str, tuple[int, str]] = {}
    if generation.number:
        contents[LATEST] = Latest(generation.number, generation.sha256).to_bytes()
        data = registry.read(generation_path(generation.number), INDEX_BYTES)
        if hashlib.sha256(data).hexdigest() != generation.sha256:
            raise _refused(registry.url, "The index changed while it was read.", "Try again.")
        signed[generation_path(generation.number)] = (len(data), generation.sha256)
    for item in generation.index.packages:
        name = item.package.name
        data = contents[package_path(name)] = item.package.to_bytes()
        listed = {entry.version for entry in PackageRecord.from_bytes(data, package_path(name)).versions}
        for entry in item.package.versions:
            if entry.version in listed:
                continue
            path = version_path(name, entry.version)
            record = registry.read(path, VERSION_BYTES)
            if hashlib.sha256(record).hexdigest() != entry.sha256:
                message = f"{path} in {registry.url} has other bytes than the index says."
                raise _refused(path, message, "Look into it: nest verify --registry.")
            signed[path] = (len(record), entry.sha256)
    signed |= {path: (len(data), hashlib.sha256(data).hexdigest()) for path, data in contents.items()}
    return contents, signed


def _bits(packages: int) -> int:
    """How many bits choose a bin: the snapshot grows with the bins, and a bin with the packages in it."""
    return max(LEAST_BITS, min(MOST_BITS, round(math.log2(2 * math.sqrt(packages + 1)))))


def _bin_names(targets: Targets) -> list[str]:
    roles: SuccinctRoles | None = targets.delegations.succinct_roles if targets.delegations is not None else None
    return list(roles.get_roles()) if roles is not None else []


def _write_root(registry: Registry, keys: Path, version: int, now: datetime, signer: CryptoSigner) -> None:
    from tuf.api.metadata import Metadata, Root
    from tuf.api.serialization.json import JSONSerializer

    root = Root(version, expires=now + timedelta(days=ROOT_DAYS), consistent_snapshot=True)
    for role, name in {"root": "root", "targets": "targets", "snapshot": "refresh", "timestamp": "refresh"}.items():
        root.add_key(_key(keys, name).public_key, role)
    made = Metadata(root)
    made.sign(signer)
    data = made.to_bytes(JSONSerializer())
    path = f"{TRUST}{version}.root.json"
    if not registry.store.create(path, data):
        raise _refused(registry.url, f"Somebody else wrote {path} meanwhile.", "Try again.")
    # Only now: a root that no registry has would be of no use.
    temporary = keys / ".root.json"
    temporary.write_bytes(data)
    os.replace(temporary, keys / "root.json")


def _root(registry: Registry, keys: Path) -> Metadata[Root]:
    """The root that lies beside the keys: what the registry says of itself is not believed."""
    from tuf.api.exceptions import RepositoryError
    from tuf.api.metadata import Metadata, Root

    file = keys / "root.json"
    try:
        return Metadata[Root].from_bytes(file.read_bytes())
    except FileNotFoundError:
        message = f"There is no {file}, which says whose signatures count."
        raise _refused(str(keys), message, f"Begin to sign {registry.url} with --init.") from None
    except RepositoryError as error:
        raise _refused(str(file), f"{file} is no root: {error}.", "Put back the one that --init wrote.") from None


def _key(keys: Path, name: str) -> CryptoSigner:
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
    from securesystemslib.signer import CryptoSigner

    file = keys / f"{name}.pem"
    try:
        return CryptoSigner(load_pem_private_key(file.read_bytes(), None))
    except FileNotFoundError:
        message = f"There is no key {file}."
        raise _refused(str(keys), message, "Name the folder that holds it with --keys.") from None
    except (ValueError, TypeError):
        message = f"{file} is no private key without a password."
        raise _refused(str(keys), message, "Put back the one that --init wrote.") from None


def _verified(registry: Registry, path: str, delegator: Any, role: str) -> Any:
    from tuf.api.metadata import Metadata

    found: Metadata[Any] = Metadata.from_bytes(registry.read(path, METADATA_BYTES))
    delegator.verify_delegate(role, found.signed_bytes, found.signatures)
    return found


def _signed(metadata: Metadata[Any], signer: CryptoSigner) -> bytes:
    from tuf.api.serialization.json import JSONSerializer

    metadata.sign(signer)
    return metadata.to_bytes(JSONSerializer(compact=True))


def _listed(registry: Registry) -> dict[str, int]:
    """The highest number of each role's files that the registry lists."""
    highest: dict[str, int] = {}
    for path in registry.store.list(TRUST):
        if found := re.fullmatch(r"trust/(\d+)\.([a-z0-9-]+)\.json", path):
            highest[found[2]] = max(highest.get(found[2], 0), int(found[1]))
    return highest


def _remove_stale(registry: Registry, before: _State) -> None:
    """Remove metadata and copies that neither the state signed now nor the one before needs."""
    if before.snapshot is None:
        return
    oldest = {name.removesuffix(".json"): file.version for name, file in before.snapshot.signed.meta.items()}
    oldest["snapshot"] = before.snapshot.signed.version
    needed = {f"{COPIES}{hashlib.sha256(data).hexdigest()}" for data in _published(registry)[0].values()}
    needed |= {
        f"{COPIES}{file.hashes['sha256']}"
        for item in (before.bins or {}).values()
        for file in item.signed.targets.values()
    }
    stale = []
    for path in registry.store.list(TRUST):
        found = re.fullmatch(r"trust/(\d+)\.([a-z0-9-]+)\.json", path)
        old = found is not None and int(found[1]) < oldest.get(found[2], 0)
        if old or (path.startswith(COPIES) and path not in needed):
            stale.append(path)
    if len(stale) > MOST_STALE:
        for path in stale:
            registry.store.remove(path)


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


def _refused(where: str, message: str, help: str) -> SignatureError:
    return SignatureError([Problem("signature.signing", where, message, help)])
