"""The catalogue: its static pages, what one can filter by, and the rows that the script filters and sorts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from linnet.site_builder.listing import LARGEST, SIZES, Listing
from linnet.site_builder.paths import Site
from linnet.site_builder.render import render_page
from linnet.site_builder.shards import shard

# Models on one static page, and in one file of rows: a page stays far below 150 kB.
PER_PAGE = 50
PER_SHARD = 400
# Values of a facet that are shown at once; the rest unfold.
SHOWN_VALUES = 8
# Values of a facet that the page names at all: a reader types the rest.
NAMED_VALUES = 120
_SIZE_ORDER = [*(label for label, _ in SIZES), LARGEST]


@dataclass(frozen=True, slots=True)
class Facet:
    """One way to narrow the list: `key` is its name in the address, `values` each with its number of models."""

    key: str
    label: str
    values: tuple[tuple[str, int], ...]

    @property
    def shown(self) -> tuple[tuple[str, int], ...]:
        return self.values[:SHOWN_VALUES]

    @property
    def folded(self) -> tuple[tuple[str, int], ...]:
        return self.values[SHOWN_VALUES:]


def facets(listings: Sequence[Listing]) -> tuple[Facet, ...]:
    """What the models can be filtered by: the most frequent values first, sizes from small to large."""
    sizes = Counter(listing.size for listing in listings)
    return (
        _facet("family", "Family", Counter(listing.family for listing in listings)),
        Facet("size", "Size", tuple((label, sizes[label]) for label in _SIZE_ORDER if sizes[label])),
        _facet("weights", "Weights", Counter(listing.weights for listing in listings)),
        _facet("tag", "Tags", Counter(tag for listing in listings for tag in listing.tags)),
        _facet("licence", "Licence", Counter(listing.license for listing in listings)),
    )


def catalogue_files(listings: Sequence[Listing], site: Site) -> Iterator[tuple[str, bytes]]:
    """The pages of the catalogue and their rows; `listings` are sorted by name."""
    starts = range(0, max(1, len(listings)), PER_PAGE)
    pages = [catalogue_page(number) for number in range(1, len(starts) + 1)]
    choices = facets(listings)
    for number, start in enumerate(starts, start=1):
        yield (
            pages[number - 1],
            render_page(
                "catalogue.html",
                pages[number - 1],
                site,
                models=listings[start : start + PER_PAGE],
                total=len(listings),
                first=start + 1,
                number=number,
                pages=pages,
                # The filters stand on the first page, which they search all models from.
                facets=choices if number == 1 else (),
                shards=row_shards(listings),
                per_page=PER_PAGE,
            ),
        )
    for number, start in enumerate(range(0, len(listings), PER_SHARD)):
        name = f"catalogue/{number}"
        yield f"{name}.js", shard(name, [_row(listing) for listing in listings[start : start + PER_SHARD]])


def row_shards(listings: Sequence[Listing]) -> int:
    """How many files of rows, `catalogue/0.js` and on, hold all models."""
    return -(-len(listings) // PER_SHARD)


def catalogue_page(number: int) -> str:
    """Where the catalogue's page of this number lies; the first is the site's front page."""
    return "index.html" if number == 1 else f"page/{number}/index.html"


def _facet(key: str, label: str, counts: Counter[str]) -> Facet:
    del counts[""]
    return Facet(key, label, tuple(sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:NAMED_VALUES]))


def _row(listing: Listing) -> list[object]:
    """In the order that `site.js` reads."""
    return [
        listing.name,
        listing.title,
        listing.summary,
        listing.version,
        listing.family,
        listing.license,
        listing.weights,
        listing.size,
        listing.count,
        listing.parameters,
        listing.published,
        listing.tags,
        listing.results,
    ]
