"""The links of the site's pages: every file and anchor that they name must be there."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from functools import lru_cache
from html import unescape
from pathlib import Path
from urllib.parse import unquote, urlsplit

_EXTERNAL = frozenset({"http", "https", "mailto"})
# What escaping leaves of a `<` is no tag, and a `"` in a tag always delimits a value: pages are written here. Most tags
# only colour a source.
_TAG = re.compile(r'<(?!span class="[a-z]+">)[a-zA-Z][^<>"]*(?:"[^"]*"[^<>"]*)*>')
# All attributes are matched, so that none is seen inside the value of another.
_ATTRIBUTE = re.compile(r'\s(?:(id|href|src)|[\w:-]+)="([^"]*)"')


@dataclass(frozen=True, slots=True)
class LinkProblem:
    """A link of `page` (a path in the site) that leads nowhere, or an id it holds twice."""

    page: str
    target: str
    reason: str

    def __str__(self) -> str:
        return f"{self.page}: {self.target}: {self.reason}"


@dataclass(frozen=True, slots=True)
class PageLinks:
    """What a page links to within the site, as files with `#anchor`; its ids; and what is wrong with it by itself."""

    page: str
    ids: frozenset[str]
    targets: tuple[tuple[str, str], ...]  # the link as written, and the file of the site with its anchor
    problems: tuple[LinkProblem, ...]


def read_links(page: str, html: str) -> PageLinks:
    """The links of a page, whose own anchors are checked at once."""
    ids: set[str] = set()
    links: dict[str, None] = {}
    problems: list[LinkProblem] = []
    for name, raw in _ATTRIBUTE.findall("".join(_TAG.findall(html))):
        value = unescape(raw) if "&" in raw else raw
        if name == "id":
            if value in ids:
                problems.append(LinkProblem(page, f"#{value}", "this id stands twice on the page"))
            ids.add(value)
        elif name:
            links[value] = None
    targets: list[tuple[str, str]] = []
    folder = posixpath.dirname(page)
    for link in links:
        # Nearly all links of a source view are to its own lines.
        if link.startswith("#"):
            if link[1:] not in ids and unquote(link[1:]) not in ids:
                problems.append(LinkProblem(page, link, "there is no such anchor on that page"))
            continue
        path, reason = _resolve(folder, link)
        if reason:
            problems.append(LinkProblem(page, link, reason))
        elif path:
            targets.append((link, path))
    return PageLinks(page, frozenset(ids), tuple(targets), tuple(problems))


@lru_cache(maxsize=1 << 14)
def _resolve(folder: str, link: str) -> tuple[str, str]:
    """The file of the site that a link names, with its anchor, empty for one outside; or why it must not be there."""
    parts = urlsplit(link)
    if parts.scheme in _EXTERNAL:
        return "", ""
    if parts.scheme or parts.netloc:
        return "", "only https, http, mailto and relative links belong on a page"
    if parts.path.startswith("/"):
        return "", "a link from the root breaks under a sub-path and on the file system"
    path = posixpath.normpath(posixpath.join(folder, unquote(parts.path)))
    if path.startswith("../") or path == "..":
        return "", "leads out of the site"
    # A folder would not open from the file system, and what is no folder has no slash at its end.
    path += "/" if parts.path.endswith("/") else ""
    return f"{path}#{unquote(parts.fragment)}" if parts.fragment else path, ""


def check_targets(
    pages: Iterable[PageLinks], files: Container[str], ids_of: Callable[[str], Container[str]]
) -> list[LinkProblem]:
    """The links that lead to no file of the site, or to no anchor there. `ids_of` gives the ids of a page."""
    return [
        LinkProblem(page.page, link, reason)
        for page in pages
        for link, target in page.targets
        if (reason := fault_of(target, files, ids_of))
    ]


def fault_of(target: str, files: Container[str], ids_of: Callable[[str], Container[str]]) -> str:
    """Why a file of the site with its anchor cannot be linked to; empty where it can."""
    path, _, anchor = target.partition("#")
    if path not in files:
        return "there is no such file in the site"
    if anchor and (not path.endswith(".html") or anchor not in ids_of(path)):
        return "there is no such anchor on that page"
    return ""


def check_links(site: Path) -> tuple[LinkProblem, ...]:
    """Every problem of the HTML pages below `site`, in the order of pages and links.

    A link must name a file (a folder would not open from the file system), stay inside the site, and name an id that is
    there. External addresses are not asked.
    """
    files = {path.relative_to(site).as_posix() for path in site.rglob("*") if path.is_file()}
    pages = {
        name: read_links(name, (site / name).read_text(encoding="utf-8"))
        for name in sorted(files)
        if name.endswith(".html")
    }
    problems = [problem for page in pages.values() for problem in page.problems]
    return (*problems, *check_targets(pages.values(), files, lambda path: pages[path].ids))
