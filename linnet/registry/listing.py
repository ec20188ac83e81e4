"""What there is: the packages of the registries' indexes and those that ship here, and a search through them."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from linnet.registry.card import read_card
from linnet.registry.client import Client
from linnet.registry.errors import RegistryError, RegistryWarning
from linnet.registry.index import package_record, package_version
from linnet.registry.locate import BUNDLED, package_folders
from linnet.registry.records import IndexPackage

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}


@dataclass(frozen=True, slots=True)
class Listed:
    """A package in a list, as its newest version is; `yanked` where no other is left. `registry` None: it ships here.
    Sizes are in bytes."""

    name: str
    version: str | None
    title: str
    summary: str
    license: str
    family: str
    tags: tuple[str, ...]
    parameter_count: int | None
    files_size: int | None
    weights_size: int | None
    versions: int
    status: str
    yanked: bool
    registry: str | None

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return {**asdict(self), "tags": list(self.tags)}


@dataclass(frozen=True, slots=True)
class Query:
    """What is looked for: every one of `words` in name, title, summary, family or tags; all `tags`; bounds are on the
    number of parameters."""

    words: Sequence[str] = ()
    tags: Sequence[str] = ()
    family: str | None = None
    license: str | None = None
    least: int | None = None
    most: int | None = None


def list_packages(client: Client, *, bundled: bool = True) -> list[Listed]:
    """Every package, sorted by name: of two registries that have it, as the first says; then those that ship here.

    A registry that does not answer is passed over with a RegistryWarning, if another does. Raises RegistryError else.
    """
    found: dict[str, Listed] = {}
    failures: list[RegistryError] = []
    for source in client.sources:
        try:
            packages = source.index().index.packages
        except RegistryError as error:
            failures.append(error)
            continue
        for item in packages:
            if item.summary is not None:
                found.setdefault(item.package.name, _listed(item, source.url))
    if failures and len(failures) == len(client.sources):
        raise failures[0]
    for failure in failures:
        warnings.warn(str(failure.problems[0]), RegistryWarning, stacklevel=2)
    if bundled:
        for folder in package_folders(BUNDLED):
            if folder.name not in found:
                found[folder.name] = _shipped(folder.name)
    return [found[name] for name in sorted(found)]


def search(packages: Iterable[Listed], query: Query) -> list[Listed]:
    """The packages that fit, those whose name has a word first, then by name.

    Only where a bound is given are the parameters of those that ship here counted, which checks each.
    """
    words = [word.casefold() for word in query.words]
    hits = [item for item in packages if _fits(item, query, words)]
    if query.least is not None or query.most is not None:
        hits = [item for item in map(_counted, hits) if _bounded(item.parameter_count, query)]
    return sorted(hits, key=lambda item: (not any(word in item.name for word in words), item.name))


def count_of(text: str) -> int | None:
    """How many parameters `600M` or `8B` are; None for what is no count."""
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,6})?)([kmbt]?)", text.strip().casefold())
    return round(float(found[1]) * _UNITS[found[2]]) if found else None


def _fits(item: Listed, query: Query, words: Sequence[str]) -> bool:
    text = " ".join((item.name, item.title, item.summary, item.family, *item.tags)).casefold()
    tags = {tag.casefold() for tag in item.tags}
    return (
        all(word in text for word in words)
        and all(tag.casefold() in tags for tag in query.tags)
        and (query.family is None or item.family.casefold() == query.family.casefold())
        and (query.license is None or query.license.casefold() in item.license.casefold())
    )


def _bounded(count: int | None, query: Query) -> bool:
    return count is not None and (query.least or 0) <= count and (query.most is None or count <= query.most)


def _counted(item: Listed) -> Listed:
    if item.registry is not None or item.parameter_count is not None:
        return item
    return replace(item, parameter_count=package_record(BUNDLED / item.name)["parameter_count"])


def _listed(item: IndexPackage, registry: str) -> Listed:
    summary = item.summary or {}
    model = summary.get("model", {})
    texts = {key: terminal_text(model.get(key)) for key in ("title", "summary", "license", "family")}
    tags = model.get("tags", ())
    return Listed(
        name=item.package.name,
        version=terminal_text(summary.get("version")) or None,
        tags=tuple(map(terminal_text, tags)) if isinstance(tags, list) else (),
        parameter_count=_count(summary.get("parameter_count")),
        files_size=_count(summary.get("files_size")),
        weights_size=_count(summary.get("weights_size")),
        versions=len(item.package.versions) + item.package.omitted,
        status=item.package.status,
        yanked=all(entry.yanked for entry in item.package.versions),
        registry=registry,
        **texts,
    )


def _shipped(name: str) -> Listed:
    card = read_card(BUNDLED / name)
    model = card.model
    return Listed(
        name=name,
        version=package_version(BUNDLED / name, card),
        title=model.title,
        summary=model.summary,
        license=model.license,
        family=model.family,
        tags=model.tags,
        parameter_count=model.parameters,
        files_size=None,
        weights_size=None,
        versions=0,
        status="active",
        yanked=False,
        registry=None,
    )


def terminal_text(value: Any) -> str:
    """One line of a stranger's document, as a terminal may show it; empty for what is no text."""
    text = value if isinstance(value, str) else ""
    return "".join(ch if ch.isprintable() else " " for ch in text)


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
