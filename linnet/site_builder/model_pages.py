"""The pages of one model: its card and the tabs beside it, each a page that works without a script."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any
from urllib.parse import unquote, urlsplit

from markupsafe import Markup

from linnet.site_builder.architecture import architectures
from linnet.site_builder.benchmarks import charts
from linnet.site_builder.collect import FileView, ModelPage, PackageSource
from linnet.site_builder.entries import Entries
from linnet.site_builder.feeds import json_ld
from linnet.site_builder.history import VersionDiff, compare_versions, history_view
from linnet.site_builder.licences import licence_url
from linnet.site_builder.links import LinkProblem
from linnet.site_builder.listing import listing_of
from linnet.site_builder.markdown import MARKDOWN_CHARACTERS, render_markdown
from linnet.site_builder.parameter_pages import MOST_ROWS, all_rows, row_views, totals
from linnet.site_builder.paths import TABS, Site, all_parameters_page, entry_diagrams, model_page, relative
from linnet.site_builder.render import render_page
from linnet.site_builder.source_view import code_block, line_count, source_block
from linnet.site_builder.text import Anchors, fragment

LABELS = (
    ("card", "Card"),
    ("architecture", "Architecture"),
    ("parameters", "Parameters"),
    ("source", "Source"),
    ("entries", "Entries"),
    ("files", "Files"),
    ("history", "History"),
    ("benchmarks", "Benchmarks"),
)
# The ids of the card page's own sections.
SECTIONS = ("content", "card", "load", "facts", "results")
# A README that fills more than this leaves no room on its page; it is shown as text, and no more of it than this.
README_BYTES = 90_000
README_CHARACTERS = 20_000
# The first line that a link such as `lib.linnet#L12-L20` names; no file that is shown has ten digits of lines.
_LINE = re.compile(r"L([1-9][0-9]{0,8})(?:-|\Z)")


@dataclass(slots=True)
class RenderedModel:
    """A model's pages by path, and the links of its texts that lead nowhere (shown as plain text)."""

    pages: dict[str, bytes] = field(default_factory=dict)
    unresolved: list[LinkProblem] = field(default_factory=list)


def render_model(model: ModelPage, versions: Sequence[PackageSource], site: Site) -> RenderedModel:
    """Every page of a model; `versions` newest first, of which `model` shows the newest."""
    renderer = _Renderer(model, site)
    renderer.card()
    renderer.architecture()
    renderer.parameters()
    renderer.source()
    renderer.entries()
    renderer.files()
    renderer.history(versions)
    renderer.benchmarks(versions)
    return renderer.done


class _Renderer:
    def __init__(self, model: ModelPage, site: Site) -> None:
        self.model = model
        self.site = site
        self.done = RenderedModel()
        self.pages = {"card": model_page(model.name), **{tab: model_page(model.name, tab) for tab in TABS}}
        self._lines: dict[str, int] = {}
        self.diagrams: dict[str, str] = {}

    def card(self) -> None:
        path = self.pages["card"]
        readme, more = self._readme(path)
        self._add(
            "model_card.html",
            path,
            "",
            snippet=code_block(self.model.snippet, "python"),
            readme=readme,
            readme_more=more,
            json_ld=json_ld(listing_of(self.model), self.site),
            license_url=licence_url(self.model.license),
            weight_bytes=self._weight_bytes(),
            file_count=len(self.model.files) + len(self.model.unkept),
        )

    def architecture(self) -> None:
        names = [entry.name for entry in self.model.entries]
        own = self.pages["architecture"]
        places = {self.model.entry: own, **entry_diagrams(self.model.name, names), self.model.entry: own}
        drawn = architectures(self.model, places)
        self.diagrams = {name: places[name] for name in names if name in drawn}
        for entry in dict.fromkeys((self.model.entry, *self.diagrams)):
            other = entry != self.model.entry
            self._add(
                "model_architecture.html",
                places[entry],
                "architecture",
                here=entry if other else "Architecture",
                tab_title=f"Architecture of {entry}" if other else "Architecture",
                trail=(("Architecture", own),) if other else (),
                entry=entry,
                entry_anchor=self._entry_anchor(entry),
                drawn=drawn.get(entry),
                diagrams=self.diagrams,
            )

    def _entry_anchor(self, name: str) -> str:
        return next((fragment(entry.anchor) for entry in self.model.entries if entry.name == name), "")

    def parameters(self) -> None:
        full = all_parameters_page(self.model.name)
        self._add(
            "model_parameters.html",
            self.pages["parameters"],
            "parameters",
            rows=row_views(self.model),
            totals=totals(self.model),
            left_out=max(0, len(self.model.parameters) - MOST_ROWS),
            all_page=full,
            weight_bytes=self._weight_bytes(),
        )
        self._add(
            "model_all_parameters.html",
            full,
            "parameters",
            here="all",
            trail=(("Parameters", self.pages["parameters"]),),
            rows=all_rows(self.model),
            sharded=any(item.shard for item in self.model.all_parameters),
        )

    def source(self) -> None:
        files = self.model.files
        by_page = {file.page: file.path for file in files if file.page}
        symbols: dict[str, list[Any]] = {file.path: [] for file in files}
        for symbol in self.model.symbols:
            place = by_page.get(symbol.target.partition("#")[0])
            if place is not None:
                symbols[place].append(symbol)
        folders = [(folder, list(group)) for folder, group in groupby(files, key=lambda file: file.folder)]
        top = {path: [s for s in found if "." not in s.name] for path, found in symbols.items()}
        self._add("model_source.html", self.pages["source"], "source", folders=folders, symbols=top)
        code = self.model.code
        sources = code.sources() if code is not None else {}
        for file in files:
            if not file.page or file.text is None:
                continue
            names = []
            source = sources.get(file.path)
            if code is not None and source is not None and source.text == file.text and "\r" not in file.text:
                names = code.names(source)
            self._add(
                "model_file.html",
                file.page,
                "source",
                here=file.path,
                trail=(("Source", self.pages["source"]),),
                file=file,
                lines=self._line_count(file),
                outline=symbols[file.path],
                source=source_block(file.text, file.language, names, file.page),
            )

    def entries(self) -> None:
        path = self.pages["entries"]
        found = Entries(self.model, path)
        anchors = Anchors("content", "states", *(entry.anchor for entry in self.model.entries))
        resolve = self._resolver(path)
        docs = {}
        for entry in self.model.entries:
            done = render_markdown(entry.doc, anchors=anchors, resolve=resolve, prefix=f"{entry.anchor}-doc", top=3)
            self.done.unresolved += [_nowhere(path, link) for link in done.unresolved]
            docs[entry.name] = done.html
        self._add(
            "model_entries.html",
            path,
            "entries",
            entries=found.details(),
            diagrams=self.diagrams,
            docs=docs,
            states=found.states,
            state_index={state: index for index, state in enumerate(found.states)},
            state_bytes=sum(state.size for state in found.states),
        )

    def files(self) -> None:
        count = len(self.model.files) + len(self.model.unkept)
        self._add("model_files.html", self.pages["files"], "files", file_count=count)
        for file in self.model.files:
            if file.raw and file.text is not None:
                self.done.pages[file.raw] = file.text.encode()

    def history(self, versions: Sequence[PackageSource]) -> None:
        view = history_view(self.model, versions)
        self._add(
            "model_history.html",
            self.pages["history"],
            "history",
            versions=view.rows,
            grid=view.grid,
            grid_columns=view.columns,
            omitted=view.omitted,
        )
        for path, newer, older in view.pairs:
            diff: VersionDiff = compare_versions(older, newer)
            self._add(
                "model_diff.html",
                path,
                "history",
                here=f"{diff.older}..{diff.newer}",
                trail=(("History", self.pages["history"]),),
                diff=diff,
            )

    def benchmarks(self, versions: Sequence[PackageSource]) -> None:
        self._add("model_benchmarks.html", self.pages["benchmarks"], "benchmarks", charts=charts(versions))

    def _add(self, template: str, path: str, tab: str, **values: object) -> None:
        label = dict(LABELS)[tab or "card"]
        baseline = self.model.baseline
        given = {
            "model": self.model,
            "pages": self.pages,
            "tabs": LABELS,
            "tab": tab,
            "tab_title": values.get("here", label),
            "here": label,
            "trail": (),
            "entry_anchor": self._entry_anchor(self.model.entry),
            "baseline_page": model_page(baseline) if baseline in self.site.names else "",
            **values,
        }
        self.done.pages[path] = render_page(template, path, self.site, **given)

    def _weight_bytes(self) -> int:
        return sum({item.tensor: item.size for item in self.model.all_parameters if item.present}.values())

    def _readme(self, path: str) -> tuple[Markup, str]:
        """The README as HTML, and where all of it is where that is only its beginning."""
        text = self.model.readme
        anchors = Anchors(*SECTIONS)
        if len(text) <= MARKDOWN_CHARACTERS:
            title, resolve = self.model.title, self._resolver(path)
            done = render_markdown(text, anchors=anchors, resolve=resolve, prefix="readme", title=title)
            if len(done.html.encode()) <= README_BYTES:
                self.done.unresolved += [_nowhere(path, link) for link in done.unresolved]
                return done.html, ""
        code = code_block(text[:README_CHARACTERS], "text")
        more = next((file.page for file in self.model.files if file.text == text), "")
        return Markup(f'<pre tabindex="0"><code>{code}</code></pre>\n'), more

    def _resolver(self, path: str) -> _Resolver:
        return _Resolver(self.model, self.site, path, self._line_count)

    def _line_count(self, file: FileView) -> int:
        # A README may have thousands of links to one file.
        if file.path not in self._lines:
            self._lines[file.path] = line_count(file.text or "")
        return self._lines[file.path]


@dataclass(frozen=True, slots=True)
class _Resolver:
    """Relative links of a package's texts, to places in the site."""

    model: ModelPage
    site: Site
    page: str
    line_count: Any

    def __call__(self, href: str) -> str | None:
        parts = urlsplit(href)
        path = posixpath.normpath(unquote(parts.path)) if parts.path else ""
        for file in self.model.files:
            if file.path == path:
                return relative(self.page, self._line(file, parts.fragment)) if file.page else None
        if path and any(file.folder == path for file in self.model.files):
            return relative(self.page, model_page(self.model.name, "source"))
        # `../other-model`, or its README: packages are neighbours in a registry and on the site.
        name = path.removeprefix("../").removesuffix("/README.md")
        if path.startswith("../") and name in self.site.names:
            return relative(self.page, model_page(name))
        return None

    def _line(self, file: FileView, wanted: str) -> str:
        line = _LINE.match(wanted)
        return f"{file.page}#L{line[1]}" if line and int(line[1]) <= self.line_count(file) else file.page


def _nowhere(page: str, link: str) -> LinkProblem:
    return LinkProblem(page, link, "leads to nothing in the site")
