"""Where everything lies in the site: these addresses are stable, and others link to them."""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePosixPath
from urllib.parse import quote

TABS = ("architecture", "parameters", "source", "entries", "files", "history", "benchmarks")
_SEGMENT_BYTES = 255


@dataclass(frozen=True, slots=True)
class Site:
    """What all pages of one build share.

    `base_url` is where the site will be published, without a slash at its end; empty where that is not known. `names`
    are the models of the site that a page may link to. `sections` are the parts that its header leads to; `std` (the
    standard library) and `guide` are the others.
    """

    base_url: str = ""
    names: frozenset[str] = frozenset()
    sections: tuple[str, ...] = ("models", "compare", "std")

    def url(self, path: str) -> str:
        """The published address of the file `path` of the site; empty where the base is not known."""
        if not self.base_url:
            return ""
        return f"{self.base_url}/{quote(path.removesuffix('index.html'))}"


def model_page(name: str, tab: str = "") -> str:
    """A model's page: its card, or one of `TABS`."""
    return f"models/{name}/{tab}/index.html" if tab else f"models/{name}/index.html"


def record_path(name: str) -> str:
    """A model's registry entry."""
    return f"models/{name}/model.json"


def all_parameters_page(name: str) -> str:
    """The list of every parameter of a model."""
    return f"models/{name}/parameters/all/index.html"


def entry_diagrams(name: str, entries: Iterable[str]) -> dict[str, str]:
    """Where the architecture of each entry is drawn, but for the card's, which has the tab itself."""
    return file_pages(f"models/{name}/architecture", entries, "/index.html")


def diff_page(name: str, older: str, newer: str) -> str:
    """What changed between two versions of a model."""
    return f"models/{name}/history/{older}..{newer}/index.html"


def module_page(module: str) -> str:
    """A module of the standard library, `std.nn.norm`; `std` alone is the list of them."""
    return f"{module.replace('.', '/')}/index.html"


def up(page: str) -> str:
    """What leads from a page to the top of the site: `../../` for `models/x/index.html`."""
    return "../" * page.count("/")


def relative(page: str, target: str) -> str:
    """The link from a page to another file of the site, which may have a `#fragment`; percent-encoded."""
    path, mark, anchor = target.partition("#")
    anchor = quote(anchor, safe="-._~:") if not _is_plain(anchor) else anchor
    link = "" if path == page and mark else _relative_path(posixpath.dirname(page), path)
    return f"{link}#{anchor}" if mark else link


@lru_cache(maxsize=1 << 12)
def _relative_path(folder: str, path: str) -> str:
    return quote(posixpath.relpath(path, folder or "."))


def _is_plain(anchor: str) -> bool:
    """Whether nothing has to be encoded: most anchors are those of lines."""
    return anchor.isalnum() and anchor.isascii()


def file_pages(folder: str, files: Iterable[str], suffix: str) -> dict[str, str]:
    """Where the pages of a package's files lie below `folder`: `src/lib.linnet` is `FOLDER/src/lib.linnet.html`.

    A path that could not lie there beside the others (`index`, a file named like another's folder, a name too long with
    its suffix, two that differ in case), or that a `#` would end in a link, becomes a digest of itself.
    """
    pages: dict[str, str] = {}
    taken = {f"index{suffix}"}  # what lies there, with every folder on the way
    for path in sorted(files):
        place = path + suffix
        ways = [place, *(parent.as_posix() for parent in PurePosixPath(place).parents)][:-1]
        folded = [way.casefold() for way in ways]
        long = any(len(part.encode()) > _SEGMENT_BYTES for part in place.split("/"))
        if long or "#" in place or folded[0] in taken or any(f"{way}/" in taken for way in folded[1:]):
            place = f"{hashlib.sha256(path.encode()).hexdigest()[:32]}{suffix}"
            folded = [place]
        # A file's own name with a slash: nothing may lie below it.
        taken.update(folded, (f"{folded[0]}/",))
        pages[path] = f"{folder}/{place}"
    return pages
