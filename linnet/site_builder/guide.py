"""The guide that MkDocs built, as a part of the site: its files below `/docs/`, and its pages in the search."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

from markupsafe import Markup

from linnet.site_builder.collect import SiteError
from linnet.site_builder.paths import Site
from linnet.site_builder.render import render_page
from linnet.site_builder.search import ITEM, TEXT, TITLE, Document, Item, collect_words, item_files

FOLDER = "docs"
# MkDocs maps the guide alone, with the time of its building: the site has a map of its own.
_LEFT_OUT = ("sitemap.xml", "sitemap.xml.gz", "404.html")
_TITLE = re.compile(r"<title>([^<]*)</title>")
_DESCRIPTION = re.compile(r'<meta name="description" content="([^"]*)">')
_ICON = '<link rel="icon"'
_HEADINGS = frozenset({"h1", "h2", "h3", "h4"})


class _Page(HTMLParser):
    """The text of a page's article, and its headings with their ids."""

    def __init__(self) -> None:
        super().__init__()
        self.text: list[str] = []
        self.headings: list[tuple[str, str, list[str]]] = []
        self._depth = 0
        self._heading = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "article":
            self._depth += 1
        elif self._depth and tag in _HEADINGS:
            self.headings.append((tag, dict(attrs).get("id") or "", []))
            self._heading = True

    def handle_endtag(self, tag: str) -> None:
        if tag == "article":
            self._depth -= 1
        elif tag in _HEADINGS:
            self._heading = False

    def handle_data(self, data: str) -> None:
        if self._depth:
            self.text.append(data)
        if self._heading:
            self.headings[-1][2].append(data)


def guide_files(folder: Path, site: Site) -> Iterator[tuple[str, bytes]]:
    """Every file of the built guide, as path in the site and bytes; pages name where the site is published.

    Raises SiteError where `folder` holds no guide.
    """
    if not (folder / "index.html").is_file():
        raise SiteError(f"{folder} holds no guide; build it with mkdocs build -d {folder}.")
    for path in sorted(folder.rglob("*")):
        place = path.relative_to(folder).as_posix()
        if path.is_file() and place not in _LEFT_OUT:
            data = path.read_bytes()
            yield f"{FOLDER}/{place}", _addressed(data, f"{FOLDER}/{place}", site) if path.suffix == ".html" else data


def _addressed(html: bytes, path: str, site: Site) -> bytes:
    """A page with its address in its head, which MkDocs does not know."""
    text = html.decode()
    title, description = _TITLE.search(text), _DESCRIPTION.search(text)
    if not site.base_url or title is None or description is None:
        return html
    address = render_page(
        "address.html",
        path,
        site,
        title=Markup(title[1]),
        description=Markup(description[1]),
        image=site.url("share.png"),
    )
    return text.replace(_ICON, f"{address.decode()}{_ICON}", 1).encode()


def guide_search(path: str, html: bytes) -> tuple[Document, Iterator[tuple[str, bytes]]] | None:
    """A page of the guide as the search holds it, and its files of items; None for one without a heading."""
    page = _Page()
    page.feed(html.decode())
    page.close()
    headings = [(tag, anchor, "".join(words).strip()) for tag, anchor, words in page.headings]
    if not headings:
        return None
    title = headings[0][2]
    items = [Item("section", words, f"{path}#{anchor}") for _, anchor, words in headings[1:] if anchor]
    texts = [(TITLE, title), *((ITEM, item.label) for item in items), (TEXT, " ".join(page.text))]
    key = f"guide/{path.removeprefix(f'{FOLDER}/').removesuffix('.html')}"
    return Document(key, "guide", title, "", path, collect_words(texts)), item_files(key, items)
