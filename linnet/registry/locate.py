"""Which package a user means: a folder, a repository on the Hub, one in a registry, or one that ships here."""

from __future__ import annotations

import dataclasses
import os
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from linnet.registry.card import Card, read_card
from linnet.registry.errors import (
    PATH_CHARACTERS,
    HubError,
    PackageError,
    Problem,
    RegistryWarning,
    bare,
    listed,
    nearest,
    shown,
)
from linnet.registry.package import CARD_NAME, name_fault

# Whoever names a folder is spared the client of registries.
if TYPE_CHECKING:
    from linnet.registry.client import Client
    from linnet.registry.resolve import Resolved

# The packages that ship with this distribution; in a checkout a link to the folder at its top.
BUNDLED = Path(__file__).resolve().parents[1] / "nests"
# A name less like the one given than this was hardly meant.
ALIKE = 0.5
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(@[\w./-]+)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Located:
    """A package on this machine.

    `repo` and `revision` are set where it is a repository of the Hub, fetched at that commit; its folder is then
    named after the commit and not after the model. `registry`, `version` and `sha256` (of the version's record) are set
    where it came from a registry; `pins` are then the sha256 of every weight file.
    """

    folder: Path
    repo: str | None = None
    revision: str | None = None
    registry: str | None = None
    version: str | None = None
    sha256: str | None = None
    pins: Mapping[str, str] = field(default_factory=dict)

    @property
    def shared(self) -> bool:
        """Whether the folder belongs to the cache, so that nothing may be written there."""
        return self.repo is not None or self.registry is not None

    @property
    def reference(self) -> str:
        """What names exactly this package, where its `registry` is given too."""
        if self.registry is not None:
            return f"{self.folder.name}@{self.version}"
        return f"{self.repo}@{self.revision}" if self.repo is not None else str(self.folder.absolute())

    def card(self) -> Card:
        """The package's card, which names the repository where that has the weights too, and every digest that is
        pinned. Raises RegistryError.
        """
        card = read_card(self.folder, folder_name=self.repo is None)
        if self.pins:
            self._refuse_other_digests(card)
            weights = dataclasses.replace(card.weights, sha256={**card.weights.sha256, **self.pins})
            card = dataclasses.replace(card, weights=weights)
        if self.repo is None or card.weights.repo is not None:
            return card
        weights = dataclasses.replace(card.weights, repo=self.repo, revision=self.revision)
        return dataclasses.replace(card, weights=weights)

    def _refuse_other_digests(self, card: Card) -> None:
        for file, sha256 in card.weights.sha256.items():
            if self.pins.get(file, sha256) != sha256:
                message = (
                    f"The card pins {file} to the sha256 {sha256}, and the registry's record to {self.pins[file]}."
                )
                help = f"Tell whoever published {card.model.name} {self.version} in {self.registry}."
                raise PackageError([Problem("weights.sha256", f"weights.sha256.{file}", message, help)])


def package_folders(nests: Path) -> list[Path]:
    """The packages in a folder of packages, sorted by name. Raises PackageError where there is none."""
    found = sorted(path.parent for path in nests.glob(f"*/{CARD_NAME}"))
    if not found:
        help = f"Name a folder whose folders each hold a {CARD_NAME}."
        raise PackageError([Problem("package.folder", str(nests), f"{nests} holds no package.", help)])
    return found


def find_package(
    name_or_dir: str | os.PathLike[str],
    *,
    offline: bool | None = None,
    registry: str | os.PathLike[str] | None = None,
    locked: bool = True,
) -> Located:
    """The package that a user names: a folder, `org/name[@revision]` on the Hub, `name[@version]` or `name[@alias]` of
    a registry, or one that ships here.

    They are tried in that order. `registry` names what is asked instead of LINNET_REGISTRY, several with commas. With
    `offline` only the caches are looked into. A lock (`linnet.registry.lock`) pins names of registries, unless `locked`
    is False. Warns with RegistryWarning of what a registry says against a version. Raises PackageError where there is
    none, HubError where the Hub cannot give it, and what `Client.resolve` and `Client.folder` raise.
    """
    help = "Name a folder (. is this one), org/name, or a package of a registry."
    try:
        text = os.fspath(name_or_dir)
    except TypeError:
        raise _unknown("package", f"{bare(repr(name_or_dir))} cannot name a package.", help) from None
    if not text:
        raise _unknown("package", "The name of the package is empty.", help)
    try:
        path = Path(text).expanduser()
        is_folder, is_file = path.is_dir(), path.is_file()
    except (OSError, RuntimeError) as error:
        # A name longer than the system has, a folder that may not be looked into, the home of a user there is not.
        reason = getattr(error, "strerror", None) or str(error)
        message = f"The package {shown(text)} cannot be looked up: {reason.rstrip('.').lower()}."
        raise _unknown(text, message, f"Name a folder that holds a {CARD_NAME}.") from None
    if is_folder:
        _refuse_other_folders(path)
        return Located(path)
    if is_file:
        raise _unknown(text, f"{shown(text)} is a file.", f"Name the folder of a package: {bare(_enclosing(path))}.")
    named = isinstance(name_or_dir, str) and not _is_path(text)
    if named and _HUB_NAME.fullmatch(text) and not path.parent.is_dir():
        return _from_hub(text, offline)
    name, at, wanted = text.partition("@")
    if named and name_fault(name) is None and bool(at) == bool(wanted):
        from linnet.registry.client import Client

        client = Client(registry, offline=offline)
        found = _from_registries(client, name, wanted or None, locked)
        if found is not None:
            return found
        message = f"There is no folder {shown(text)}, and no package of that name in {_places(client)}."
        raise _unknown(text, message, _suggestion(path, name, client))
    message = f"There is no folder {shown(text)}" + (", and no package of that name." if "/" not in text else ".")
    raise _unknown(text, message, _suggestion(path, text))


def locate(client: Client, resolved: Resolved) -> Located:
    """A version of a registry as a package on this machine; what is missing is fetched, apart from weights on a Hub."""
    pins = {file.path: file.sha256 for file in resolved.record.weights.files}
    folder = client.folder(resolved)
    for path in client.cache.wrong:
        message = f"A file of the cache was not what it should be; it was set aside as {path}, and made again."
        warnings.warn(message, RegistryWarning, stacklevel=2)
    client.cache.wrong.clear()
    return Located(
        folder,
        registry=resolved.registry,
        version=resolved.record.version,
        sha256=resolved.sha256,
        pins=pins,
    )


def _from_registries(client: Client, name: str, wanted: str | None, locked: bool) -> Located | None:
    """The package of that name in a registry, else the one that ships here; None where there is none."""
    from linnet.registry.lock import active_lock
    from linnet.registry.resolve import UnreachableError

    unreachable: UnreachableError | None = None
    resolved = None
    try:
        resolved = client.resolve(name, wanted, active_lock() if locked else None)
    except UnreachableError as error:
        unreachable = error
    if resolved is not None:
        for note in resolved.notes:
            warnings.warn(str(note), RegistryWarning, stacklevel=4)
        return locate(client, resolved)
    bundled = BUNDLED / name
    if (bundled / CARD_NAME).is_file():
        from linnet.registry.index import package_version

        version = package_version(bundled, read_card(bundled))
        if wanted is None or wanted == version:
            if unreachable is not None:
                message = f"{unreachable.problems[0]} The {name} that ships here was taken."
                warnings.warn(message, RegistryWarning, stacklevel=4)
            return Located(bundled)
        if unreachable is None:
            message = f"{name}@{wanted} is in no registry, and the {name} that ships here has "
            message += f"the version {version}." if version else "no version."
            raise _unknown(f"{name}@{wanted}", message, f"Name {name} alone to take it.")
    if unreachable is not None:
        raise unreachable
    return None


def _places(client: Client) -> str:
    from linnet.registry.configured import default_registry

    urls = [source.url for source in client.sources]
    silent = [source.url for source in client.sources if not source.asked]
    if silent:
        return f"what is on this machine (offline is set, so {listed(silent)} was not asked)"
    if urls == [str(default_registry())]:
        return "your registry"
    return f"the registry {bare(urls[0], PATH_CHARACTERS)}" if len(urls) == 1 else f"the registries {listed(urls)}"


def _enclosing(file: Path) -> str:
    """The package that a file lies in, as near to how the file was named as it goes; its folder where there is none."""
    for folder in file.parents:
        if (folder / CARD_NAME).is_file():
            return str(folder)
    for folder in file.absolute().parents:
        if (folder / CARD_NAME).is_file():
            return os.path.relpath(folder)
    return str(file.parent)


def _refuse_other_folders(folder: Path) -> None:
    """Raises PackageError where a folder is no package: without a card nothing else of it can be judged."""
    if os.path.lexists(folder / CARD_NAME):
        return
    name = bare(str(folder))
    try:
        inside = any(folder.glob(f"*/{CARD_NAME}"))
    except OSError:
        inside = False
    if inside:
        raise _unknown(name, f"{name} holds packages and is none.", f"Name one of them, or all: {name}/*.")
    raise _unknown(
        name, f"{name} holds no {CARD_NAME}, so it is no package.", f"Name a folder that holds a {CARD_NAME}."
    )


def _from_hub(text: str, offline: bool | None) -> Located:
    from linnet.registry.fetch import fetch_package
    from linnet.registry.hub import OTHER_WEIGHTS

    repo, _, revision = text.partition("@")
    try:
        folder, commit = fetch_package(repo, revision or None, offline=offline)
    except HubError as error:
        # Whoever mistyped a folder's name did not mean the Hub.
        start = f"There is no folder {shown(text)}, so it was looked for on the Hub: "
        raise HubError(
            dataclasses.replace(
                problem,
                message=start + problem.message,
                help=problem.help.replace("weights.repo", "the name").replace(
                    OTHER_WEIGHTS, "name the package's folder"
                ),
            )
            for problem in error.problems
        ) from None
    return Located(folder, repo, commit)


def _suggestion(path: Path, text: str, client: Client | None = None) -> str:
    """The next step for who named a package that is not there."""
    if "/" in text:
        siblings = [card.parent.name for card in path.parent.glob(f"*/{CARD_NAME}")] if path.parent.is_dir() else []
        close = nearest(path.name, siblings, alike=ALIKE)
        return f"The nearest is {path.parent / close}." if close else f"Name a folder that holds a {CARD_NAME}."
    known = [folder.name for folder in package_folders(BUNDLED)]
    here = {card.parent.name: str(card.parent) for card in Path("nests").glob(f"*/{CARD_NAME}")}
    here = {name: folder for name, folder in here.items() if name not in known}
    published = client.names() if client is not None else []
    close = nearest(text, [*here, *published, *known], alike=ALIKE)
    ships = f"{', '.join(known)} ship here."
    if close is None:
        return f"Name a folder that holds a {CARD_NAME}; {ships}"
    return f"The nearest is {here.get(close, close)}; {ships}"


def _unknown(where: str, message: str, help: str) -> PackageError:
    return PackageError([Problem("package.unknown", bare(where), message, help)])


def _is_path(text: str) -> bool:
    return text.startswith((".", "~", "/")) or "\\" in text or text.count("/") > 1 or text.endswith("/")
