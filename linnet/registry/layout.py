"""Where everything lies in a registry: paths and back."""

from __future__ import annotations

import re
from collections.abc import Iterable

from linnet.registry.package import name_fault
from linnet.registry.semver import in_order, version_fault

# A list may lag behind what writers wrote; not by so many events of one package.
MOST_UNLISTED = 1000
OBJECTS, VERSIONS, EVENTS, PACKAGES, NAMES, INDEX = "objects/", "versions/", "events/", "packages/", "names/", "index/"
LATEST = "index/latest.json"
# What a registry has at its top: one of them at least, once anything was written to it.
FOLDERS = frozenset({*(path[:-1] for path in (OBJECTS, VERSIONS, EVENTS, PACKAGES, NAMES, INDEX)), "trust", "probes"})


def object_path(sha256: str) -> str:
    """The file that holds the bytes of that digest."""
    return f"{OBJECTS}sha256/{sha256[:2]}/{sha256}"


def object_digest(path: str) -> str | None:
    """The digest that a path below `objects/` is named after; None for a path of another kind."""
    found = re.fullmatch(r"objects/sha256/([0-9a-f]{2})/(\1[0-9a-f]{62})", path)
    return found[2] if found else None


def version_path(name: str, version: str) -> str:
    """The record of a version: the commit point of its publish."""
    return f"{VERSIONS}{name}/{version}.json"


def event_path(name: str, number: int) -> str:
    """The event of a package by its number, from 1."""
    return f"{EVENTS}{name}/{number:06}.json"


def package_path(name: str) -> str:
    """The small file of a package, which a client fetches first."""
    return f"{PACKAGES}{name}.json"


def name_path(name: str) -> str:
    """The file that gives a name, and all that are spelled much like it, to one package."""
    return f"{NAMES}{folded(name)}.json"


def folded(name: str) -> str:
    """A name as collisions see it: case and the marks between words make no difference."""
    return re.sub(r"[-_.]+", "-", name.casefold())


def generation_path(number: int) -> str:
    """An index by its generation, from 1."""
    return f"{INDEX}gen-{number:08}.json"


def generation_number(path: str) -> int | None:
    """The number of a generation; None for a path of another kind."""
    found = re.fullmatch(r"index/gen-(\d{8,12})\.json", path)
    number = int(found[1]) if found else 0
    return number if found and path == generation_path(number) else None


def parse_version_path(path: str) -> tuple[str, str] | None:
    """Name and version of a version's record; None for a path of another kind."""
    found = re.fullmatch(r"versions/([^/]+)/([^/]+)\.json", path)
    if found is None or name_fault(found[1]) is not None or version_fault(found[2]) is not None:
        return None
    return found[1], found[2]


def parse_event_path(path: str) -> tuple[str, int] | None:
    """Name and number of an event; None for a path of another kind."""
    found = re.fullmatch(r"events/([^/]+)/(\d{6,9})\.json", path)
    if found is None or name_fault(found[1]) is not None:
        return None
    number = int(found[2])
    return (found[1], number) if number and path == event_path(found[1], number) else None


def listed_versions(paths: Iterable[str]) -> dict[str, list[str]]:
    """Versions by name, the first first, of the paths of version records."""
    found: dict[str, list[str]] = {}
    for name, version in filter(None, map(parse_version_path, paths)):
        found.setdefault(name, []).append(version)
    return {name: in_order(versions) for name, versions in sorted(found.items())}


def listed_events(paths: Iterable[str]) -> dict[str, list[int]]:
    """Event numbers by name, ascending, of the paths of events.

    Events have no gaps, so what comes more than MOST_UNLISTED after the one before it was not written by this program,
    and is left out: whoever believed it would ask for each number on the way there.
    """
    found: dict[str, list[int]] = {}
    for name, number in sorted(filter(None, map(parse_event_path, paths))):
        numbers = found.setdefault(name, [])
        if number - (numbers[-1] if numbers else 0) <= MOST_UNLISTED:
            numbers.append(number)
    return found
