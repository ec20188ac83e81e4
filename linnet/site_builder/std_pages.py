"""The standard library as pages: each module with its source, where the models' names lead."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from markupsafe import Markup

from linnet.language.check import load
from linnet.language.check.modules import STD_ROOT
from linnet.site_builder.code import Code, Symbol
from linnet.site_builder.markdown import render_markdown
from linnet.site_builder.paths import Site, module_page
from linnet.site_builder.render import render_page
from linnet.site_builder.source_view import source_block
from linnet.site_builder.text import Anchors


@dataclass(frozen=True, slots=True)
class Module:
    """A module of the standard library; `about` is the first sentence of its documentation, `lead` the same as HTML."""

    name: str
    file: str
    page: str
    about: str
    lead: Markup
    doc: Markup
    symbols: tuple[Symbol, ...]
    public: tuple[Symbol, ...]
    lines: int
    source: Markup


def std_modules() -> list[Module]:
    """The modules of the standard library, sorted by path."""
    return [_module(path.relative_to(STD_ROOT).with_suffix("").parts) for path in sorted(STD_ROOT.rglob("*.linnet"))]


def std_pages(modules: Sequence[Module], site: Site) -> Iterator[tuple[str, bytes]]:
    """Every page of the standard library: path, bytes."""
    for module in modules:
        yield module.page, render_page("std_module.html", module.page, site, section="std", module=module)
    yield "std/index.html", render_page("std_index.html", "std/index.html", site, section="std", modules=modules)


def _module(parts: tuple[str, ...]) -> Module:
    path = STD_ROOT.joinpath(*parts).with_suffix(".linnet")
    name = ".".join(("std", *parts))
    page = module_page(name)
    checked = load(path)
    code = Code(checked, STD_ROOT / "absent", lambda _: None)
    source = next(found for found in checked.references.sources() if code.page(found) == page)
    symbols = code.symbols(source)
    doc = next(
        found.doc or ""
        for found in checked.references.of_source(source)
        if found.is_definition and found.kind == "module"
    )
    about = re.split(r"(?<=\.)\s+(?=[A-Z])", " ".join(doc.partition("\n\n")[0].split()), maxsplit=1)[0]
    return Module(
        name=name,
        file=f"std/{'/'.join(parts)}.linnet",
        page=page,
        about=about.replace("`", ""),
        lead=Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(about))),
        doc=render_markdown(doc, anchors=Anchors("content"), resolve=_nowhere, prefix="doc").html,
        symbols=tuple(symbols),
        public=tuple(symbol for symbol in symbols if "." not in symbol.name and symbol.public),
        lines=source.text.count("\n"),
        source=source_block(source.text, "linnet", code.names(source), page),
    )


def _nowhere(href: str) -> None:
    """Documentation of the library links to nothing relative."""
    del href
