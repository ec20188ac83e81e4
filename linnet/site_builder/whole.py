"""What is made of all models together, and what each model adds to it.

`model_summary` and `model_files` run once for a model, in a worker, and again only when the model changed; the summary
is kept between builds. `site_files` runs in each build, over the summaries of all models: its cost is the time that one
change takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from typing import Any

from linnet.site_builder.collect import ModelPage
from linnet.site_builder.paths import Site, model_page, record_path
from linnet.site_builder.render import render_page

Summary = Mapping[str, Any]


def model_summary(page: ModelPage) -> dict[str, Any]:
    """What catalogue, search, comparison and feeds need of a model, JSON-able and small."""
    return {
        "name": page.name,
        "title": page.title,
        "summary": page.summary,
        "version": page.version,
        "chips": list(page.chips),
        "page": model_page(page.name),
    }


def model_files(page: ModelPage, site: Site) -> Iterator[tuple[str, bytes]]:
    """Files of one model that are not its pages: path in the site, bytes."""
    yield record_path(page.name), page.record.encode()


def site_files(models: Sequence[Summary], site: Site) -> Iterator[tuple[str, bytes]]:
    """Pages and documents of the whole site, given the summaries of all models, sorted by name."""
    yield "index.html", render_page("catalogue.html", "index.html", site, models=models)
    for item in files("linnet.site_builder").joinpath("static").iterdir():
        if item.is_file():
            yield f"static/{item.name}", item.read_bytes()
