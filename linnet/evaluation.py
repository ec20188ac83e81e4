"""Perplexity of a package over a text, with everything that another needs to measure the same."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from linnet.load_options import LoadOptions
    from linnet.registry.card import Card
    from linnet.registry.datasets import DatasetText
    from linnet.registry.locate import Located
    from linnet.runner.loaded import LoadedModel
    from linnet.runner.perplexity import Perplexity
    from linnet.runner.tokenizer import TextTokenizer

# Tokens in a window where neither the caller nor the card says, if the cache holds as many.
WINDOW = 1024


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A perplexity and its protocol; `protocol` is JSON-able."""

    package: str
    result: Perplexity
    protocol: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """JSON-able. `nll` is in nats a token; standard errors are over windows, null for a single one, as is a
        perplexity that no double holds."""
        result = self.result
        finite = math.isfinite(result.perplexity)
        return {
            "package": self.package,
            "perplexity": result.perplexity if finite else None,
            "perplexity_standard_error": result.error if finite else None,
            "nll": result.nll,
            "nll_standard_error": result.nll_error,
            "tokens_scored": result.tokens,
            "windows": result.windows,
            "seconds": result.seconds,
            "protocol": dict(self.protocol),
        }


def evaluate(
    name_or_dir: str | os.PathLike[str],
    *,
    text: str | os.PathLike[str] | None = None,
    dataset: str | None = None,
    split: str | None = None,
    window: int | None = None,
    stride: int | None = None,
    limit_tokens: int | None = None,
    batch: int = 1,
    watch: Callable[[Sequence[Any]], Iterable[Any]] = iter,
    settings: Located | None = None,
    options: LoadOptions,
) -> Evaluation:
    """See `linnet.nest.evaluate`; `settings` is another package whose `[bench]` counts instead of this one's."""
    from linnet.registry.package import digest_file
    from linnet.runner.backend import device_name
    from linnet.runner.bench import fp8_form
    from linnet.runner.perplexity import measure

    given = (text, dataset, split)
    found = prepare(
        name_or_dir, given, window=window, limit_tokens=limit_tokens, batch=batch, settings=settings, options=options
    )
    card, model, tokenizer, ids = found.card, found.model, found.tokenizer, found.ids
    window, read = found.window, found.text
    stride = stride or found.stride or max(1, window // 2)
    result = measure(model, ids, window=window, stride=stride, batch=batch, entry=card.source.entry, watch=watch)
    pinned = card.tokenizer
    protocol = {
        "text": {**read.source, "sha256": hashlib.sha256(read.text.encode()).hexdigest(), "tokens": len(ids)},
        "tokenizer": {
            "repo": pinned.repo if pinned else None,
            "revision": pinned.revision if pinned else None,
            "file": tokenizer.file.name,
            "sha256": digest_file(tokenizer.file)[1],
        },
        "weights": _weights(card, options.weights),
        "window": window,
        "stride": stride,
        "limit_tokens": limit_tokens,
        "batch": batch,
        "entry": result.entry,
        "dtypes": {name: value for name, value in model.generics.items() if isinstance(value, str)},
        "backend": options.backend,
        "numerics": model.numerics,
        "compile": model.compiled,
        "fp8": fp8_form(model),
        "device": device_name(model),
    }
    return Evaluation(card.model.name, result, protocol)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A package about to be scored: its model, its text as `ids`, the tokens of a window, and the card's stride."""

    card: Card
    model: LoadedModel
    tokenizer: TextTokenizer
    text: DatasetText
    ids: list[int]
    window: int
    stride: int | None


def prepare(
    name_or_dir: str | os.PathLike[str],
    given: tuple[str | os.PathLike[str] | None, str | None, str | None] = (None, None, None),
    *,
    window: int | None = None,
    limit_tokens: int | None = None,
    batch: int = 1,
    settings: Located | None = None,
    options: LoadOptions,
) -> Prepared:
    """Load a package and read its text: `given` are a file, a dataset and a split, else those of the `[bench]` of
    `settings`, by default the package's own. Raises what `linnet.nest.evaluate` does."""
    from linnet import nest
    from linnet.registry.locate import find_package
    from linnet.runner.errors import EvaluationError

    package = find_package(name_or_dir, offline=options.offline, registry=options.registry)
    # Once: what a name means may change between two questions.
    options = options.but(registry=package.registry or options.registry)
    card = package.card()
    asked = settings or package
    bench = asked.card().bench
    read = _text(asked.folder, asked.card(), *given, options.offline)
    places = {"weights": options.weights, "registry": options.registry, "offline": options.offline}
    tokenizer = nest.tokenizer(package.reference, **places)  # type: ignore[arg-type]
    ids = tokenizer.encode(read.text, strict=False)
    if limit_tokens is not None:
        if limit_tokens < 2:
            raise EvaluationError(f"{limit_tokens} tokens cannot be predicted: take 2 or more (--limit-tokens)")
        ids = ids[:limit_tokens]
    nest.require_torch()
    model = nest.load(package.reference, **options.arguments())
    model.tokenizer_source = lambda: tokenizer
    positions = model.generics.get("MaxSeq")
    window = window or bench.window or min(WINDOW, positions if isinstance(positions, int) else WINDOW)
    if isinstance(positions, int) and window > positions:
        raise EvaluationError(
            f"a window of {window} tokens is longer than the {positions} positions of {card.model.name} (MaxSeq): "
            "take a smaller one (--window)"
        )
    _shrink_cache(model, window, batch)
    return Prepared(card, model, tokenizer, read, ids, window, bench.stride)


def _shrink_cache(model: LoadedModel, window: int, batch: int) -> None:
    """Where a model is scored through its caches, they hold a window for each row and no more."""
    from linnet.language.program.binding import BindError
    from linnet.runner.errors import WeightsError

    wanted = {"MaxSeq": window, "Batch": batch}
    positions = model.generics.get("MaxSeq")
    if isinstance(positions, int) and "Batch" in model.generics and 0 < window <= positions and batch > 0:
        # A table of positions may be as long as the cache, or a `where` want another size: then it stays.
        with suppress(WeightsError, BindError):
            model.resize(**wanted)


def _text(
    folder: Path,
    card: Card,
    file: str | os.PathLike[str] | None,
    dataset: str | None,
    split: str | None,
    offline: bool | None,
) -> DatasetText:
    """The text that the caller names, else the one of the card's `[bench]`."""
    from linnet import nest
    from linnet.registry.datasets import DATASETS, fetch_dataset, read_text
    from linnet.registry.package import package_path

    if file is not None and dataset is not None:
        raise nest.NestError("a file and a dataset are two texts: give one of them")
    if file is not None:
        return read_text(Path(file).expanduser())
    if dataset is not None:
        return fetch_dataset(dataset, split or "test", offline=offline)
    bench = card.bench
    if bench.dataset is None:
        raise nest.NestError(
            f"there is no text to measure {card.model.name} on: give a file (--text), a dataset "
            "(--dataset wikitext-2), or name one in the card's [bench]"
        )
    if bench.dataset not in DATASETS and package_path(folder, bench.dataset).is_file():
        return read_text(package_path(folder, bench.dataset))
    return fetch_dataset(
        bench.dataset, split or bench.split or "test", revision=bench.dataset_revision, offline=offline
    )


def _weights(card: Card, given: str | os.PathLike[str] | None) -> dict[str, Any]:
    """Where the weights were taken from: a figure of other weights is never the pinned ones'."""
    if given is not None:
        return {"given": os.fspath(given)}
    return {"repo": card.weights.repo, "revision": card.weights.revision, "files": list(card.weights.files)}
