"""A signed registry as a client reads it: only what the keys of a trust root signed, and not those of long ago.

The metadata are those of The Update Framework (python-tuf), below `trust/` in the registry: a root that an offline key
signs, targets in bins of hashed paths, a snapshot, and a timestamp that expires in days.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from linnet.registry.cache import write_whole
from linnet.registry.configured import data_folder
from linnet.registry.errors import Problem, RegistryError
from linnet.registry.layout import OBJECTS, package_path, parse_version_path
from linnet.registry.memory import registry_key
from linnet.registry.records import PACKAGE_BYTES, PackageRecord
from linnet.registry.registry import Registry
from linnet.registry.store.base import AbsentError, Fetched, ReadOnlyError, Store, StoreError

if TYPE_CHECKING:
    from tuf.api.metadata import TargetFile
    from tuf.ngclient import Updater

VARIABLE = "LINNET_TRUST_ROOT"
TRUST = "trust/"
# Copies of what changes in place, as it was when it was signed, by their digest.
COPIES = "trust/targets/"
METADATA_BYTES = 8 << 20
ROOT_BYTES = 512_000


class SignatureError(RegistryError):
    """What a registry gives is not, or is no longer, what its keys signed. No other registry is asked then."""


@dataclass(frozen=True, slots=True)
class TrustRoot:
    """A root that the user trusts: `file` names it in messages, `data` are its bytes, `memory` is the folder where this
    machine remembers what it saw signed."""

    file: Path
    data: bytes
    memory: Path

    @property
    def key(self) -> str:
        """A folder's name for what was believed under this root."""
        return f".signed-{self.memory.name}"


def trust_root(url: str) -> TrustRoot | None:
    """The root that the registry `url` must be signed under; None where there is none.

    It is LINNET_TRUST_ROOT, which holds for every registry, else what `nest index trust` put in the user's data folder
    for this one. Raises SignatureError where the file that is named cannot be read.
    """
    own = _own_folder(url)
    named = os.environ.get(VARIABLE)
    file = Path(os.path.expanduser(named)) if named else own / "root.json"
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        if not named:
            return None
        raise _refused(str(file), f"There is no trust root {file}.", f"Correct or unset {VARIABLE}.") from None
    except OSError as error:
        reason = (error.strerror or "unknown error").lower()
        raise _refused(str(file), f"The trust root {file} cannot be read: {reason}.", "Make it readable.") from None
    return TrustRoot(file, data, _memory(own, data))


def trusted(store: Store, url: str) -> Store:
    """The store as its reader may use it: behind its signatures where a trust root is configured, else as it is.

    Nothing is asked of it yet. Raises SignatureError.
    """
    root = trust_root(url)
    return SignedStore(store, root) if root is not None else store


def trust(url: str, root: Path) -> None:
    """Trust a root for the registry `url`, which must be signed under it now. Raises SignatureError, StoreError."""
    from linnet.registry.store.open import open_store

    own = _own_folder(url)
    data = root.read_bytes()
    SignedStore(open_store(url), TrustRoot(root, data, _memory(own, data))).check()
    write_whole(own / "root.json", data)


def distrust(url: str) -> None:
    """Ask for no signatures of the registry `url` any more, and forget what was seen signed."""
    shutil.rmtree(_own_folder(url), ignore_errors=True)


def trust_words(url: str) -> str:
    """What this machine asks of a registry before it uses what that says. Raises SignatureError."""
    root = trust_root(url)
    if root is None:
        return (
            "trusted on first use: what it says first is believed, and that later states agree with it; no signatures"
        )
    return f"must be signed by the keys of {root.file}"


def checked(registry: Registry) -> Registry:
    """The registry as its keeper sees it, its signatures asked for where it was behind them. Raises SignatureError."""
    store = registry.store
    if not isinstance(store, SignedStore):
        return registry
    store.check()
    return Registry(store.store)


class SignedStore:
    """A store of which only what is signed is there, read-only. Methods raise SignatureError, and as a Store does.

    What was signed last is one state of the registry: what was published since is not there yet. Files named after
    their own digest pass, since whoever asks for them compares it.
    """

    writable = False

    def __init__(self, store: Store, root: TrustRoot) -> None:
        self.store = store
        self.url = store.url
        self.root = root
        self._targets: dict[str, TargetFile | None] = {}
        self._updater: Updater | None = None
        self._folder = Path()

    def read(self, path: str, *, limit: int, tag: str | None = None) -> Fetched | None:
        """A file whose bytes are signed; its tag is its sha256. Absent where nothing of that name is signed."""
        if path.startswith(OBJECTS):
            return self.store.read(path, limit=limit, tag=tag)
        target = self._target(path)
        if target is None:
            return self._listed(path, limit, tag)
        sha256 = target.hashes["sha256"]
        if tag == sha256:
            return None
        if target.length > limit:
            message = f"{path} in {self.url} is signed as {target.length} bytes long, more than {limit}."
            raise _refused(path, message, "Ask whoever keeps the registry.")
        for place in (path, f"{COPIES}{sha256}"):
            with contextlib.suppress(AbsentError):
                fetched = self.store.read(place, limit=limit)
                if fetched is not None and hashlib.sha256(fetched.data).hexdigest() == sha256:
                    return Fetched(fetched.data, sha256)
        message = f"{self.url} has no {path} with the sha256 {sha256}, which is signed."
        raise _refused(path, message, "Ask whoever keeps the registry to sign it anew: nest index sign.")

    def _listed(self, path: str, limit: int, tag: str | None) -> Fetched | None:
        """The record of a version that its package's signed file lists with its sha256."""
        parsed = parse_version_path(path)
        if parsed is None:
            raise AbsentError(self.url, path)
        name, version = parsed
        signed = self.read(package_path(name), limit=PACKAGE_BYTES)
        assert signed is not None
        entry = PackageRecord.from_bytes(signed.data, package_path(name)).entry(version)
        if entry is None:
            raise AbsentError(self.url, path)
        if tag == entry.sha256:
            return None
        fetched = self.store.read(path, limit=limit)
        assert fetched is not None
        if hashlib.sha256(fetched.data).hexdigest() != entry.sha256:
            message = f"{path} in {self.url} has another sha256 than {entry.sha256}, which is signed."
            raise _refused(path, message, "Ask whoever keeps the registry: nest verify --registry.")
        return Fetched(fetched.data, entry.sha256)

    def stream(self, path: str, start: int = 0) -> Iterator[bytes]:
        """The bytes of an object, which are compared with its name by who asks."""
        if not path.startswith(OBJECTS):
            raise _refused(path, f"{path} of {self.url} is not read in pieces, because it is signed.", "Read it whole.")
        return self.store.stream(path, start)

    def list(self, prefix: str) -> Iterator[str]:
        """Lists are not signed."""
        raise StoreError([Problem("store.no-list", prefix, f"{self.url} is signed, and lists are not.", "")])

    def create(self, path: str, data: bytes | Path) -> bool:
        self._read_only(path)

    def create_all(self, files: Mapping[str, bytes | Path]) -> set[str]:
        self._read_only(next(iter(files), ""))

    def replace(self, path: str, data: bytes) -> None:
        self._read_only(path)

    def remove(self, path: str) -> None:
        self._read_only(path)

    def check(self) -> None:
        """Ask for the newest signatures. Raises SignatureError, StoreError."""
        with self._told():
            self._refreshed()

    def _read_only(self, path: str) -> NoReturn:
        help = "Write to the registry itself, and sign it again."
        raise ReadOnlyError([Problem("store.read-only", path, f"{self.url} is read behind its signatures.", help)])

    def _target(self, path: str) -> TargetFile | None:
        if path not in self._targets:
            with self._told():
                self._targets[path] = self._refreshed().get_targetinfo(path)
                self._remember()
        return self._targets[path]

    def _refreshed(self) -> Updater:
        """The client of the framework, its metadata the newest that the registry has."""
        if self._updater is None:
            from tuf.ngclient import Updater, UpdaterConfig

            # A folder of its own: several processes would trip over each other's files.
            self._folder = Path(tempfile.mkdtemp(prefix="linnet-trust-"))
            weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
            with contextlib.suppress(OSError):
                shutil.copytree(self.root.memory, self._folder, dirs_exist_ok=True)
            config = UpdaterConfig(targets_max_length=METADATA_BYTES, root_max_length=ROOT_BYTES)
            updater = Updater(
                str(self._folder), TRUST, fetcher=_fetcher(self.store), config=config, bootstrap=self.root.data
            )
            updater.refresh()
            self._updater = updater
            self._remember()
        return self._updater

    def _remember(self) -> None:
        """Keep what was seen signed; where that cannot be, nothing fails for it, and a return to it goes unnoticed."""
        with contextlib.suppress(OSError):
            self.root.memory.mkdir(parents=True, exist_ok=True)
            if _seen_state(self.root.memory) > _seen_state(self._folder):
                # Another process has seen a newer state meanwhile.
                return
            # The timestamp last: whatever it stands for is there by then.
            files = [path for path in self._folder.rglob("*.json") if not path.is_symlink()]
            for file in sorted(files, key=lambda path: path.name == "timestamp.json"):
                place = self.root.memory / file.relative_to(self._folder)
                write_whole(place, file.read_bytes())

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """Turns what the framework raises into SignatureError, and gives back the store's own errors."""
        try:
            from tuf.api import exceptions
        except ModuleNotFoundError:
            message = f"{self.url} must be signed under {self.root.file}, and what checks signatures is not installed."
            raise _refused(
                self.url, message, "Install it: pip install cryptography 'securesystemslib[crypto]' tuf."
            ) from None
        keeper = "Ask whoever keeps the registry"
        try:
            yield
        except exceptions.ExpiredMetadataError as error:
            message = f"The signatures of {self.url} have expired: {_words(error)} by this machine's clock."
            help = f"Check the clock; if it is right, somebody may be keeping back newer ones. {keeper}."
            raise _refused(self.url, message, help, "expired") from None
        except exceptions.BadVersionNumberError as error:
            message = f"{self.url} shows older or other signatures than this machine has seen: {_words(error)}."
            help = f"{keeper}; a new root is trusted with nest index trust."
            raise _refused(self.url, message, help, "rollback") from None
        except exceptions.UnsignedMetadataError as error:
            message = f"{self.url} is not signed by the keys of {self.root.file}: {_words(error)}."
            help = f"{keeper} for its trust root, and never take it from the registry itself."
            raise _refused(self.url, message, help, "wrong-key") from None
        except exceptions.LengthOrHashMismatchError as error:
            message = f"The signatures of {self.url} do not belong together: {_words(error)}."
            raise _refused(self.url, message, f"Try again later. {keeper}.", "mixed") from None
        except exceptions.DownloadHTTPError as error:
            message = f"{self.url} is not signed, or not wholly: {_words(error)}."
            raise _refused(self.url, message, f"{keeper} to sign it: nest index sign.", "missing") from None
        except (exceptions.RepositoryError, exceptions.DownloadLengthMismatchError, ValueError) as error:
            message = f"The signatures of {self.url} are damaged: {_words(error)}."
            raise _refused(self.url, message, f"{keeper} to sign it again: nest index sign.", "damaged") from None
        except exceptions.DownloadError as error:
            if isinstance(error.__cause__, StoreError):
                raise error.__cause__ from None
            message = f"The signatures of {self.url} could not be read: {_words(error)}."
            raise _refused(self.url, message, f"Try again later. {keeper}.", "unreadable") from None


def _own_folder(url: str) -> Path:
    return data_folder() / "trust" / registry_key(url)


def _memory(own: Path, root: bytes) -> Path:
    return own / hashlib.sha256(root).hexdigest()[:16]


def _fetcher(store: Store) -> Any:
    from tuf.api.exceptions import DownloadHTTPError
    from tuf.ngclient import FetcherInterface

    class StoreFetcher(FetcherInterface):
        """Metadata from a store, whose paths are what the framework takes for addresses."""

        def _fetch(self, url: str) -> Iterator[bytes]:
            try:
                fetched = store.read(url, limit=METADATA_BYTES)
            except AbsentError:
                raise DownloadHTTPError(f"there is no {url}", 404) from None
            assert fetched is not None
            return iter([fetched.data])

    return StoreFetcher()


def _seen_state(folder: Path) -> tuple[int, int]:
    """The versions of the root and of the timestamp in a folder, 0 where there is none: under a new root timestamps may
    be numbered from the beginning.
    """
    from securesystemslib.exceptions import StorageError
    from tuf.api.exceptions import RepositoryError
    from tuf.api.metadata import Metadata

    roots = [
        int(name) for path in folder.glob("root_history/*.root.json") if (name := path.name.split(".")[0]).isdigit()
    ]
    stamp = 0
    with contextlib.suppress(OSError, ValueError, StorageError, RepositoryError):
        # What is no metadata counts for nothing.
        stamp = int(Metadata.from_file(str(folder / "timestamp.json")).signed.version)
    return max(roots, default=0), stamp


def _words(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


def _refused(where: str, message: str, help: str, kind: str = "refused") -> SignatureError:
    return SignatureError([Problem(f"signature.{kind}", where, message, help)])
