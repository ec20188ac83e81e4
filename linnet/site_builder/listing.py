"""What the catalogue and the documents for machines say of one model: plain values, small enough to keep for each."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from math import prod
from typing import Any

from linnet.registry.bench_text import COLUMNS
from linnet.registry.parameters import human_count
from linnet.site_builder.collect import ModelPage
from linnet.site_builder.paths import model_page
from linnet.site_builder.results import ResultsView

# Measurements that a list shows; the page of benchmarks has all.
HEADLINES = ("perplexity", "decode_tokens_per_second", "peak_memory_bytes")
# Blocks of std.quant by the format of the weights they hold.
_FORMATS = {"Fp8": "fp8", "Int8": "int8", "Int4": "int4", "Mxfp4": "mxfp4"}
# The classes of size that the catalogue filters by: the first whose bound is above the count of parameters.
SIZES = (("under 100M", 10**8), ("100M to 1B", 10**9), ("1B to 10B", 10**10), ("10B to 100B", 10**11))
LARGEST = "100B and more"


@dataclass(frozen=True, slots=True)
class Listing:
    """A model as a list shows it.

    `weights` is the format of most of its weights (`bf16`, `fp8`, `int4`, ...); `published` the day of this version as
    `2026-01-31`, empty where it has not been published; `results` the headline measurements as label and value.
    """

    name: str
    title: str
    summary: str
    version: str
    license: str
    family: str
    tags: tuple[str, ...]
    parameters: int
    weights: str
    published: str
    results: tuple[tuple[str, str], ...]

    @property
    def page(self) -> str:
        return model_page(self.name)

    @property
    def size(self) -> str:
        """The class of size that the catalogue filters by."""
        return next((label for label, bound in SIZES if self.parameters < bound), LARGEST)

    @property
    def count(self) -> str:
        return f"{human_count(self.parameters)} parameters"

    @property
    def chips(self) -> tuple[str, ...]:
        """Family, licence, format of the weights, tags; each once."""
        return tuple(filter(None, dict.fromkeys((self.family, self.license, self.weights, *self.tags))))

    def to_dict(self) -> dict[str, Any]:
        """JSON-able, for what is kept between builds."""
        return asdict(self)

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Listing:
        """The value that `to_dict` wrote."""
        lists = {"tags": tuple(value["tags"]), "results": tuple((label, text) for label, text in value["results"])}
        return cls(**{**value, **lists})


def listing_of(page: ModelPage) -> Listing:
    """The listing of a model's newest version."""
    return Listing(
        name=page.name,
        title=page.title,
        summary=page.summary,
        version=page.version,
        license=page.license,
        family=page.family,
        tags=page.tags,
        parameters=page.parameter_count,
        weights=weight_format(json.loads(page.record)["parameters"]),
        published=page.newest.published[:10],
        results=headlines(page.results),
    )


def headlines(results: ResultsView | None) -> tuple[tuple[str, str], ...]:
    """The measurements that a list shows, with their units; none where they are of weights that are not the card's."""
    if results is None or results.rows[0].note:
        return ()
    values = dict(zip(results.labels, results.rows[0].cells, strict=True))
    labels = [COLUMNS[key] for key in HEADLINES]
    return tuple((label, values[label].value) for label in labels if label in values and values[label].value)


def weight_format(parameters: Iterable[Mapping[str, Any]]) -> str:
    """The format that holds most elements of the weights: `fp8` for those of std.quant's FP8 blocks, else a dtype."""
    elements: Counter[str] = Counter()
    for parameter in parameters:
        if parameter["present"]:
            elements[_format(parameter)] += prod(parameter["shape"])
    return max(sorted(elements), key=elements.__getitem__, default="")


def _format(parameter: Mapping[str, Any]) -> str:
    block = str(parameter.get("owner", ""))
    if block.startswith("std.quant::") and parameter["path"].rpartition(".")[2] != "scale":
        block = block.removeprefix("std.quant::")
        return next((label for prefix, label in _FORMATS.items() if block.startswith(prefix)), str(parameter["dtype"]))
    return str(parameter["dtype"])
