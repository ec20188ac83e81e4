"""Perplexity over a strided window: how well a model predicts a text, each token counted once.

Windows of `window` tokens begin every `stride` tokens. The first scores every token but its first; each later one only
the tokens that no window scored before, which have at least `window - stride` tokens of context. Perplexity is
`exp` of the mean negative log-likelihood over the scored tokens, computed in f32 from the model's logits.
"""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from linnet.language.check.dims import DimError
from linnet.language.program.types import INTEGERS, TensorType
from linnet.language.words import counted
from linnet.runner.decoder import DecoderModel
from linnet.runner.errors import EvaluationError, GenerationError, NonFiniteError
from linnet.runner.generate import NOTHING_COMPUTED, decoder_vocabulary, is_tensor, vocabulary
from linnet.runner.results import as_tensor

# Rows of logits that are widened to f32 at a time: at 150,000 tokens a row has 0.6 MB.
ROWS = 128


@dataclass(frozen=True, slots=True)
class Window:
    """Tokens `begin .. end` of the text, of which the last `scored` are predicted."""

    begin: int
    end: int
    scored: int


@dataclass(frozen=True, slots=True)
class Perplexity:
    """`nll` is the mean negative log-likelihood of a token in nats; `nll_error` its standard error over windows, None
    for a single one. `tokens` were scored in `windows`, through `entry`, in `seconds`."""

    nll: float
    nll_error: float | None
    tokens: int
    windows: int
    entry: str
    seconds: float

    @property
    def perplexity(self) -> float:
        """Infinite past what a double holds, at some 709 nats a token."""
        return math.exp(self.nll) if self.nll < math.log(sys.float_info.max) else math.inf

    @property
    def error(self) -> float | None:
        """The standard error of the perplexity, to first order in that of the mean."""
        return None if self.nll_error is None else self.perplexity * self.nll_error


def windows(tokens: int, window: int, stride: int) -> list[Window]:
    """The windows over a text of `tokens` tokens. Raises EvaluationError for sizes that leave tokens out."""
    if window < 2:
        raise EvaluationError(f"a window of {counted(window, 'token')} predicts nothing: take 2 or more (--window)")
    if not 1 <= stride <= window:
        raise EvaluationError(
            f"a stride of {stride} over a window of {window} would leave tokens out: take 1 to {window} (--stride)"
        )
    if tokens < 2:
        raise EvaluationError(f"the text has {counted(tokens, 'token')}, and a prediction needs 2: give a longer one")
    found = []
    before = 1
    for begin in range(0, tokens, stride):
        end = min(begin + window, tokens)
        # A window that follows at full stride has no context for its first token.
        scored = min(end - before, end - begin - 1)
        if scored:
            found.append(Window(begin, end, scored))
        before = end
        if end == tokens:
            break
    return found


def measure(
    model: DecoderModel,
    ids: Sequence[int],
    *,
    window: int,
    stride: int,
    batch: int = 1,
    entry: str | None = None,
    watch: Callable[[Sequence[Any]], Iterable[Any]] = iter,
) -> Perplexity:
    """The perplexity of the text `ids`.

    `entry` is the card's, used where it gives logits `[B, S, Vocab]` for tokens `[B, S]`; else `prefill` and `decode`
    are, one token at a time. `batch` windows run at once where the entry leaves that open. `watch` is handed the
    batches, and hands them on (a progress bar). Raises EvaluationError for a model with neither kind of entry or sizes
    that cannot be, NonFiniteError, and what `run_entry` does.
    """
    if batch < 1:
        raise EvaluationError(f"a batch of {batch} windows is none: take 1 or more (--batch)")
    if model.device.type == "meta":
        raise EvaluationError(NOTHING_COMPUTED)
    scorer = _scorer(model, entry, batch)
    for i, token in enumerate(ids):
        if not 0 <= token < scorer.vocabulary:
            raise EvaluationError(
                f"token {i} of the text is {token}, and the model's vocabulary has {scorer.vocabulary:,} entries: "
                "name the tokenizer that the model was trained with in the card's [tokenizer]"
            )
    work = list(_batches(windows(len(ids), window, stride), scorer.rows))
    started = perf_counter()
    sums: list[tuple[float, int]] = []
    for group in watch(work):
        rows = [list(ids[item.begin : item.end]) for item in group]
        # Entries with a fixed number of rows are given it.
        filled = rows + rows[:1] * (scorer.rows - len(rows)) if scorer.fixed else rows
        scored = group[0].scored
        sums += [(total, scored) for total in scorer.totals(filled, scored)[: len(group)]]
    nll, error = _mean(sums)
    tokens = sum(count for _, count in sums)
    return Perplexity(nll, error, tokens, len(sums), scorer.name, perf_counter() - started)


def _batches(found: Sequence[Window], rows: int) -> Iterator[list[Window]]:
    """Windows that are alike and follow one another, `rows` at a time."""
    for _, group in groupby(found, key=lambda item: (item.end - item.begin, item.scored)):
        alike = list(group)
        for start in range(0, len(alike), rows):
            yield alike[start : start + rows]


def _mean(sums: Sequence[tuple[float, int]]) -> tuple[float, float | None]:
    """The mean over tokens of sums over windows, and its standard error with windows as the sample.

    The mean is a ratio of two sums over windows; its variance is that of the ratio estimator (Cochran, "Sampling
    Techniques", 1977, section 2.11): `k / (k - 1) * sum (s_i - mean n_i)^2 / N^2`.
    """
    tokens = sum(count for _, count in sums)
    mean = math.fsum(total for total, _ in sums) / tokens
    if len(sums) < 2:
        return mean, None
    spread = math.fsum((total - mean * count) ** 2 for total, count in sums)
    return mean, math.sqrt(len(sums) / (len(sums) - 1) * spread) / tokens


class _Scorer(ABC):
    """Runs windows through a model. `rows` run at once, exactly so many where `fixed`."""

    name: str
    vocabulary: int
    rows: int
    fixed: bool

    def __init__(self, model: DecoderModel) -> None:
        self.model = model

    @abstractmethod
    def totals(self, rows: Sequence[Sequence[int]], scored: int) -> list[float]:
        """The summed negative log-likelihood of the last `scored` tokens of each row."""

    def nll(self, logits: Tensor, targets: Tensor, entry: str, read: Sequence[Any]) -> Tensor:
        """Of each target, in f32: logits `[N, Vocab]`, targets `[N]`. `read` are inputs of `entry` that give them."""
        parts = []
        for some, wanted in zip(torch.split(logits, ROWS), torch.split(targets, ROWS), strict=True):
            wide = some.float()
            if not bool(wide.isfinite().all()):
                told = self.model.explain_nonfinite(entry, read)
                raise NonFiniteError(f"the logits of the entry {entry} are not all numbers: {told}")
            parts.append(torch.nn.functional.cross_entropy(wide, wanted, reduction="none"))
        return torch.cat(parts)


class _SequenceScorer(_Scorer):
    """Through an entry that gives the logits of all positions."""

    def __init__(self, model: DecoderModel, name: str, rows: int, fixed: bool) -> None:
        super().__init__(model)
        self.name, self.rows, self.fixed = name, rows, fixed
        self.vocabulary = vocabulary(model._functions[name], model.generics)

    def totals(self, rows: Sequence[Sequence[int]], scored: int) -> list[float]:
        logits = as_tensor(self.model.run_entry(self.name, [rows]))
        found = []
        for row, given in zip(logits, rows, strict=True):
            targets = torch.tensor(given[-scored:], device=logits.device)
            found.append(float(self.nll(row[-scored - 1 : -1], targets, self.name, [rows]).double().sum()))
        return found


class _StepScorer(_Scorer):
    """Through `prefill` over what is not scored, then `decode` for each token that is."""

    name = "prefill, decode"
    fixed = True

    def __init__(self, model: DecoderModel) -> None:
        super().__init__(model)
        self.vocabulary = decoder_vocabulary(model)
        self.rows = int(model.generics["Batch"])
        self.positions = int(model.generics["MaxSeq"])

    def totals(self, rows: Sequence[Sequence[int]], scored: int) -> list[float]:
        length = len(rows[0])
        if length - 1 > self.positions:
            raise EvaluationError(
                f"a window of {length} tokens does not fit the cache of {self.positions} positions (MaxSeq): "
                "take a smaller one (--window)"
            )
        sums = torch.zeros(len(rows), dtype=torch.float64, device="cpu")
        self.model.reset_state()
        for end in range(length - scored, length):
            read = [row[:end] for row in rows]
            if end == length - scored:
                result = self.model.run_entry("prefill", [read, 0])
            else:
                result = self.model.run_entry("decode", [[row[-1:] for row in read], end - 1])
            logits = as_tensor(result)
            targets = torch.tensor([row[end] for row in rows], device=logits.device)
            sums += self.nll(logits, targets, "prefill", [read, 0]).double().cpu()
        found: list[float] = sums.tolist()
        return found


def _scorer(model: DecoderModel, entry: str | None, batch: int) -> _Scorer:
    """The way to score a model. Raises EvaluationError where there is none."""
    function = model._functions.get(entry or "")
    first = function.parameters[0].type if function is not None and function.parameters else None
    if (
        entry is not None
        and function is not None
        and isinstance(first, TensorType)
        and is_tensor(first, 2, INTEGERS)
        and all(default is not None for default in function.defaults[1:])
        and isinstance(function.result, TensorType)
        and is_tensor(function.result, 3)
        and function.result.shape[:2] == first.shape
    ):
        rows = _size(first.shape[0], model)
        return _SequenceScorer(model, entry, rows or batch, rows is not None)
    try:
        return _StepScorer(model)
    except GenerationError as error:
        gives = (
            f"{model.entries[entry]} gives no logits [B, S, Vocab] of tokens [B, S], and " if entry and function else ""
        )
        raise EvaluationError(f"this model has no perplexity: {gives}{error}") from None


def _size(axis: Any, model: DecoderModel) -> int | None:
    """The size of an axis that the model's generics settle; None where the inputs do."""
    sizes = {name: value for name, value in model.generics.items() if isinstance(value, int)}
    try:
        return int(axis.evaluate(sizes))
    except (AttributeError, DimError):
        return None
