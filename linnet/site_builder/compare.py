"""What the page that compares models loads of each: facts, generics, entries, parameters by block, results."""

from __future__ import annotations

from linnet.registry.package import human_size
from linnet.registry.parameters import human_count
from linnet.site_builder.collect import ModelPage
from linnet.site_builder.listing import Listing
from linnet.site_builder.parameters import Parameter
from linnet.site_builder.shards import shard


def compare_path(name: str) -> str:
    """Where a model's part of a comparison lies."""
    return f"models/{name}/compare.js"


def compare_shard(page: ModelPage, listing: Listing) -> bytes:
    """The script of `compare_path`: groups of rows, `[label, value]` each, that stand beside those of other models."""
    value = {
        "name": page.name,
        "title": page.title,
        "page": listing.page,
        "groups": [
            ["Card", _card(page, listing)],
            ["Results", _results(page)],
            ["Generics", [list(item) for item in page.generics]],
            ["Parameters by block", _blocks(page.all_parameters)],
            ["Entries", [[entry.name, _signature(entry.signature)] for entry in page.entries]],
        ],
    }
    return shard(f"models/{page.name}/compare", value)


def _card(page: ModelPage, listing: Listing) -> list[list[str]]:
    rows = [
        ["Summary", page.summary],
        ["Version", page.version],
        ["Family", page.family],
        ["Licence", page.license],
        ["Tags", ", ".join(page.tags)],
        ["Parameters", f"{page.parameter_count:,}"],
        ["Weights", listing.weights],
        ["Checkpoint", page.repo or "beside the card"],
        ["Entry of the card", page.entry],
    ]
    return [row for row in rows if row[1]]


def _results(page: ModelPage) -> list[list[str]]:
    if page.results is None or page.results.rows[0].note:
        return []
    cells = zip(page.results.labels, page.results.rows[0].cells, strict=True)
    rows = [[label, f"{cell.value} ({cell.spread})" if cell.spread else cell.value] for label, cell in cells]
    return [*rows, ["Measured with", "; ".join(page.results.conditions)]]


def _blocks(parameters: tuple[Parameter, ...]) -> list[list[str]]:
    """Elements and bytes of the parameters below each path of two steps, layers together: `layers.*.attention`."""
    totals: dict[str, list[int]] = {}
    for parameter in parameters:
        if parameter.present:
            total = totals.setdefault(_block(parameter.path), [0, 0])
            total[0] += parameter.elements
            total[1] += parameter.size
    return [[block, f"{human_count(count)} · {human_size(size)}"] for block, (count, size) in totals.items()]


def _signature(text: str) -> str:
    """On one line, without the words that all entries share."""
    return " ".join(text.split()).removeprefix("pub ").removeprefix("entry ")


def _block(path: str) -> str:
    steps = ["*" if step.isdecimal() else step for step in path.split(".")[:-1]]
    named = 0
    for index, step in enumerate(steps):
        named += step != "*"
        if named == 2:
            return ".".join(steps[: index + 1])
    return ".".join(steps) or path
