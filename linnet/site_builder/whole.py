"""What is made of all models together, and what each model adds to it.

`model_summary` and `model_files` run once for a model, in a worker, and again only when the model changed; the summary
is kept between builds. `site_files` runs in each build, over the summaries of all models: its cost is the time that one
change takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote

from linnet.registry.parameters import human_count
from linnet.site_builder.catalogue import catalogue_files, row_shards
from linnet.site_builder.collect import ModelPage
from linnet.site_builder.compare import compare_path, compare_shard
from linnet.site_builder.feeds import Publication, atom_feed, index_document
from linnet.site_builder.guide import guide_files, guide_search
from linnet.site_builder.listing import Listing, listing_of
from linnet.site_builder.paths import Site, model_page, record_path
from linnet.site_builder.render import render_page
from linnet.site_builder.search import (
    ITEM,
    NAME,
    TAG,
    TEXT,
    TITLE,
    Document,
    Item,
    collect_words,
    item_files,
    search_shards,
)
from linnet.site_builder.share import share_image, share_path
from linnet.site_builder.std_pages import Module

Summary = Mapping[str, Any]
_ABOUT = "A registry of models for Linnet, a small typed language for neural networks."


def model_summary(page: ModelPage) -> dict[str, Any]:
    """What catalogue, search, comparison and feeds need of a model, JSON-able and small."""
    return {
        "listing": listing_of(page).to_dict(),
        "search": _document(page).to_dict(),
        "published": [[item.version, item.published] for item in page.versions if item.published and not item.yanked],
    }


def model_files(page: ModelPage, site: Site) -> Iterator[tuple[str, bytes]]:
    """Files of one model that are not its pages: path in the site, bytes."""
    yield record_path(page.name), page.record.encode()
    listing = listing_of(page)
    yield compare_path(page.name), compare_shard(page, listing)
    if site.base_url:
        facts = (listing.count, listing.family, listing.weights, listing.license)
        yield share_path(page.name), share_image(listing.title, listing.summary, facts, page.name)
    yield from item_files(_key(page.name), _items(page))


def library_summary(modules: Sequence[Module]) -> dict[str, Any]:
    """What the search needs of the standard library, JSON-able."""
    return {"search": [_library_document(module).to_dict() for module in modules]}


def library_files(modules: Sequence[Module]) -> Iterator[tuple[str, bytes]]:
    """What can be found inside each module of the standard library: path in the site, bytes."""
    for module in modules:
        yield from item_files(f"std/{module.name}", _library_items(module))


def site_files(
    models: Sequence[Summary], library: Summary, site: Site, guide: Path | None = None
) -> Iterator[tuple[str, bytes]]:
    """Pages and documents of the whole site, given the summaries of all models, sorted by name.

    `guide` is a folder that MkDocs wrote. Raises SiteError where it holds no guide.
    """
    listings = [Listing.from_dict(model["listing"]) for model in models]
    documents = [Document.from_dict(item) for item in (*(model["search"] for model in models), *library["search"])]
    yield from catalogue_files(listings, site)
    shards = row_shards(listings)
    yield "compare/index.html", render_page("compare.html", "compare/index.html", site, shards=shards)
    for path, data in guide_files(guide, site) if guide else ():
        yield path, data
        if path.endswith(".html") and (found := guide_search(path, data)):
            document, items = found
            documents.append(document)
            yield from items
    yield from search_shards(documents)
    yield "index.json", index_document(listings)
    if site.base_url:
        yield "feed.xml", atom_feed(_publications(listings, models), site)
        yield (
            "share.png",
            share_image("Nest", "A registry of models for Linnet, a small typed language for neural networks.", ()),
        )
    for item in files("linnet.site_builder").joinpath("static").iterdir():
        if item.is_file():
            yield f"static/{item.name}", item.read_bytes()


def _library_document(module: Module) -> Document:
    items = _library_items(module)
    words = collect_words(
        (
            (TITLE, module.name),
            *((ITEM, item.label) for item in items),
            (TEXT, module.about),
            *((TEXT, symbol.doc) for symbol in module.symbols),
        )
    )
    return Document(f"std/{module.name}", "module", module.name, module.about, module.page, words)


def _library_items(module: Module) -> list[Item]:
    return [Item(symbol.kind, symbol.name, symbol.target) for symbol in module.symbols]


def _publications(listings: Sequence[Listing], models: Sequence[Summary]) -> Iterator[Publication]:
    for listing, model in zip(listings, models, strict=True):
        for version, at in model["published"]:
            yield Publication(listing.name, listing.title, listing.summary, version, at)


def _key(name: str) -> str:
    return f"model/{name}"


def _document(page: ModelPage) -> Document:
    words = collect_words(
        (
            (NAME, page.name),
            (TITLE, page.title),
            (TAG, page.family),
            *((TAG, tag) for tag in page.tags),
            (TAG, page.license),
            (TEXT, page.summary),
            *((ITEM, item.label) for item in _items(page)),
            *((TEXT, symbol.doc) for symbol in page.symbols),
            (TEXT, page.readme),
        )
    )
    note = " · ".join(filter(None, (page.name, human_count(page.parameter_count), page.family, page.license)))
    return Document(_key(page.name), "model", page.title, note, model_page(page.name), words)


def _items(page: ModelPage) -> list[Item]:
    parameters = model_page(page.name, "parameters")
    return [
        *(Item("entry", entry.name, f"{model_page(page.name, 'entries')}#{entry.anchor}") for entry in page.entries),
        *(Item(item.kind, item.name, item.target) for item in page.symbols if item.kind != "entry"),
        *(Item("parameter", row.pattern, f"{parameters}?filter={quote(row.pattern)}") for row in page.parameters),
    ]
