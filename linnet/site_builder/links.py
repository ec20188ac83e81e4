"""The internal links of a built site: every file and anchor they name must be there."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_EXTERNAL = frozenset({"http", "https", "mailto"})
_LINKS = frozenset({"href", "src"})


@dataclass(frozen=True, slots=True)
class LinkProblem:
    """A link of `page` (a path in the site) that leads nowhere, or an id it holds twice."""

    page: str
    target: str
    reason: str

    def __str__(self) -> str:
        return f"{self.page}: {self.target}: {self.reason}"


@dataclass(slots=True)
class _Page(HTMLParser):
    ids: set[str] = field(default_factory=set)
    twice: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        HTMLParser.__init__(self)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value is not None:
                if value in self.ids:
                    self.twice.append(value)
                self.ids.add(value)
            # A canonical link names the published address, which need not be this folder.
            elif name in _LINKS and value is not None and ("rel", "canonical") not in attrs:
                self.links.append(value)


def check_links(site: Path) -> tuple[LinkProblem, ...]:
    """Every problem of the HTML pages below `site`, in the order of pages and links.

    A link must name a file (a folder would not open from the file system), stay inside the site, and name an id that is
    there. External addresses are not asked.
    """
    pages: dict[str, _Page] = {}
    for path in sorted(site.rglob("*.html")):
        page = _Page()
        page.feed(path.read_text(encoding="utf-8"))
        page.close()
        pages[path.relative_to(site).as_posix()] = page
    problems: list[LinkProblem] = []
    for name, page in pages.items():
        problems += [LinkProblem(name, f"#{anchor}", "this id stands twice on the page") for anchor in page.twice]
        for target in page.links:
            reason = _problem(site, pages, name, target)
            if reason is not None:
                problems.append(LinkProblem(name, target, reason))
    return tuple(problems)


def _problem(site: Path, pages: dict[str, _Page], page: str, target: str) -> str | None:
    parts = urlsplit(target)
    if parts.scheme in _EXTERNAL:
        return None
    if parts.scheme or parts.netloc:
        return "only https, http, mailto and relative links belong on a page"
    if parts.path.startswith("/"):
        return "a link from the root breaks under a sub-path and on the file system"
    path = posixpath.normpath(posixpath.join(posixpath.dirname(page), unquote(parts.path))) if parts.path else page
    if path.startswith("../"):
        return "leads out of the site"
    if not (site / path).is_file():
        return "there is no such file in the site"
    if parts.fragment and (path not in pages or unquote(parts.fragment) not in pages[path].ids):
        return "there is no such anchor on that page"
    return None
