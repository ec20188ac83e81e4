"""The documents that machines read of the whole site: its index, the feed of publications, the map of its pages."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from markupsafe import Markup

from linnet.site_builder.licences import licence_url
from linnet.site_builder.listing import Listing
from linnet.site_builder.paths import Site, model_page, record_path

INDEX_SCHEMA = 1
# Publications that the feed holds, the newest first.
FEED_ENTRIES = 100
# The sitemap protocol's limit; longer sites name several maps.
SITEMAP_ADDRESSES = 50_000
# What a feed without a publication says of its last change: a build has no clock.
NEVER = "1970-01-01T00:00:00Z"


@dataclass(frozen=True, slots=True)
class Publication:
    """A version that was published, `at` a time in UTC as ISO 8601; yanked ones are left out."""

    name: str
    title: str
    summary: str
    version: str
    at: str


def index_document(listings: Sequence[Listing]) -> bytes:
    """`/index.json`, whose schema is docs/schemas/site-index.schema.json; addresses are from the top of the site."""
    models = [
        {
            "name": listing.name,
            "title": listing.title,
            "summary": listing.summary,
            "version": listing.version or None,
            "license": listing.license,
            "family": listing.family,
            "tags": list(listing.tags),
            "parameters": listing.parameters,
            "weights": listing.weights,
            "published": listing.published or None,
            "results": dict(listing.results),
            "page": model_page(listing.name),
            "record": record_path(listing.name),
        }
        for listing in listings
    ]
    return (json.dumps({"schema": INDEX_SCHEMA, "models": models}, ensure_ascii=False, indent=1) + "\n").encode()


def atom_feed(publications: Iterable[Publication], site: Site) -> bytes:
    """`/feed.xml`, Atom (RFC 4287); `site` has a base address."""
    newest = sorted(publications, key=lambda item: (item.at, item.name, item.version), reverse=True)[:FEED_ENTRIES]
    lines = [
        '<?xml version="1.0" encoding="utf-8"?>',
        '<feed xmlns="http://www.w3.org/2005/Atom">',
        "<title>Nest: models for Linnet</title>",
        f"<id>{escape(site.url('index.html'))}</id>",
        f'<link rel="self" href={quoteattr(site.url("feed.xml"))}/>',
        f"<link href={quoteattr(site.url('index.html'))}/>",
        f"<updated>{newest[0].at if newest else NEVER}</updated>",
        "<author><name>Nest</name></author>",
    ]
    for item in newest:
        address = site.url(model_page(item.name))
        lines += [
            "<entry>",
            f"<title>{_xml(f'{item.title} {item.version}')}</title>",
            # A version is one entry for good: its address names it, and the page is that of the newest.
            f"<id>{escape(address)}#{escape(item.version)}</id>",
            f"<link href={quoteattr(address)}/>",
            f"<updated>{escape(item.at)}</updated>",
            f"<published>{escape(item.at)}</published>",
            f"<summary>{_xml(item.summary)}</summary>",
            "</entry>",
        ]
    return "\n".join([*lines, "</feed>", ""]).encode()


def sitemaps(pages: Iterable[str], site: Site) -> dict[str, bytes]:
    """`/sitemap.xml` over these pages, and where they are too many for one, the maps that it names."""
    addresses = [site.url(page) for page in sorted(pages)]
    if len(addresses) <= SITEMAP_ADDRESSES:
        return {"sitemap.xml": _sitemap("urlset", "url", addresses)}
    parts = range(0, len(addresses), SITEMAP_ADDRESSES)
    maps = {
        f"sitemap-{number}.xml": _sitemap("urlset", "url", addresses[start : start + SITEMAP_ADDRESSES])
        for number, start in enumerate(parts, start=1)
    }
    return {"sitemap.xml": _sitemap("sitemapindex", "sitemap", [site.url(name) for name in maps]), **maps}


def json_ld(listing: Listing, site: Site) -> Markup:
    """A model for search engines, as schema.org's SoftwareSourceCode: the body of a script of data."""
    value: Mapping[str, Any] = {
        "@context": "https://schema.org",
        "@type": "SoftwareSourceCode",
        "name": listing.title,
        "alternateName": listing.name,
        "description": listing.summary,
        "programmingLanguage": "Linnet",
        "keywords": ", ".join((listing.family, *listing.tags)),
        "license": licence_url(listing.license) or listing.license,
        **({"version": listing.version} if listing.version else {}),
        **({"datePublished": listing.published} if listing.published else {}),
        **({"url": site.url(listing.page)} if site.base_url else {}),
    }
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    # Nothing in the data may end the element it stands in.
    return Markup(text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"))


def _sitemap(root: str, item: str, addresses: Sequence[str]) -> bytes:
    lines = ['<?xml version="1.0" encoding="utf-8"?>', f'<{root} xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">']
    lines += [f"<{item}><loc>{escape(address)}</loc></{item}>" for address in addresses]
    return "\n".join([*lines, f"</{root}>", ""]).encode()


def _xml(text: str) -> str:
    """Escaped, without what no XML document may hold: the callers have removed the other controls."""
    return escape("".join(char for char in text if not 0xD800 <= ord(char) <= 0xDFFF and char not in "\ufffe\uffff"))
