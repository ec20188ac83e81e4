"""Pages as HTML text: the templates, and what they are given."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from urllib.parse import unquote, urlsplit

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from linnet.registry.package import human_size
from linnet.registry.parameters import human_count
from linnet.site_builder.collect import FileView, ModelPage, page_anchors
from linnet.site_builder.markdown import render_markdown
from linnet.site_builder.paths import Site, model_page, up
from linnet.site_builder.source_view import code_block, line_count, source_block
from linnet.site_builder.text import fragment

# The first line that a link such as `lib.linnet#L12-L20` names; no file that is shown has ten digits of lines.
_LINE = re.compile(r"L([1-9][0-9]{0,8})(?:-|\Z)")


@dataclass(frozen=True, slots=True)
class RenderedPage:
    """A page's HTML, and the links of its texts that lead nowhere."""

    html: bytes
    unresolved: tuple[str, ...]


def render_page(template: str, path: str, site: Site, **values: object) -> bytes:
    """The page `path` of the site: a template with these values, and `up`, `path`, `site` and `canonical`."""
    found = _environment().get_template(template)
    return found.render(path=path, site=site, up=up(path), canonical=site.url(path), **values).encode()


def render_model(page: ModelPage, site: Site) -> RenderedPage:
    """One model's page, whose texts may link to the site's other models as `../NAME`."""
    anchors = page_anchors(page)
    resolve = _Resolver(page, site.names)
    unresolved: list[str] = []

    def markdown(text: str, prefix: str, top: int, title: str | None = None) -> Markup:
        rendered = render_markdown(text, anchors=anchors, resolve=resolve, prefix=prefix, top=top, title=title)
        unresolved.extend(rendered.unresolved)
        return rendered.html

    html = render_page(
        "model.html",
        model_page(page.name),
        site,
        model=page,
        card=markdown(page.readme, "readme", 2, page.title),
        snippet=code_block(page.snippet, "python"),
        docs={entry.name: markdown(entry.doc, f"{entry.anchor}-doc", 4) for entry in page.entries},
        record="model.json",
    )
    return RenderedPage(html, tuple(unresolved))


class _Resolver:
    """Relative links of a package's texts, to places in the site."""

    def __init__(self, page: ModelPage, names: Collection[str]) -> None:
        self._files = {file.path: file for file in page.files}
        self._folders = {file.folder for file in page.files}
        self._names = names
        self._line_counts: dict[str, int] = {}

    def __call__(self, href: str) -> str | None:
        parts = urlsplit(href)
        path = posixpath.normpath(unquote(parts.path)) if parts.path else ""
        if path in self._files:
            return fragment(self._line_anchor(self._files[path], parts.fragment))
        if path in self._folders and path:
            return "#files"
        # `../other-model`, or its README: packages are neighbours in a registry and on the site.
        name = path.removeprefix("../").removesuffix("/README.md")
        if path.startswith("../") and name in self._names:
            return f"../{name}/index.html"
        return None

    def _line_anchor(self, file: FileView, wanted: str) -> str:
        line = _LINE.match(wanted)
        if line is None:
            return file.anchor
        # A README may have thousands of links to one file.
        if file.path not in self._line_counts:
            self._line_counts[file.path] = line_count(file.text or "")
        return f"{file.anchor}-L{line[1]}" if int(line[1]) <= self._line_counts[file.path] else file.anchor


def _source_lines(file: FileView) -> Markup:
    return source_block(file.text or "", file.language, file.anchor)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("linnet.site_builder"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(
        size=human_size,
        count=human_count,
        anchor=fragment,
        source_lines=_source_lines,
        linnet=lambda text: code_block(text, "linnet"),
    )
    return environment
