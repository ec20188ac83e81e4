"""The next token from logits: greedy, or drawn after temperature, top-k and top-p, in that order, in f32."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from linnet.runner.errors import SamplingError

# Colder is as good as greedy, and f32 would have no number for what is divided by it.
_COLDEST = 1e-30


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are chosen.

    `temperature` 0 takes the likeliest; otherwise logits are divided by it. `top_k` keeps that many of the likeliest
    (and those as likely as the last of them); `top_p` then keeps the fewest whose probabilities reach that sum. Under
    one `seed` the same logits give the same tokens, on every device. Raises SamplingError.
    """

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        if not _is_number(self.temperature) or not 0 <= self.temperature < math.inf:
            raise SamplingError(f"temperature={self.temperature!r} is not a number from 0 (greedy) up, such as 0.7")
        if self.top_k is not None and (not _is_integer(self.top_k) or self.top_k < 1):
            raise SamplingError(f"top_k={self.top_k!r} is not a count of tokens from 1 up; leave it out to keep all")
        if self.top_p is not None and (not _is_number(self.top_p) or not 0 < self.top_p <= 1):
            raise SamplingError(f"top_p={self.top_p!r} is not a probability above 0 and up to 1; 1 keeps all tokens")
        if self.seed is not None and (not _is_integer(self.seed) or not 0 <= self.seed < 2**63):
            raise SamplingError(f"seed={self.seed!r} is not an integer from 0 to 2**63 - 1")


class Sampler:
    """Chooses tokens one after another. Draws come from a generator of its own, on the CPU."""

    def __init__(self, sampling: Sampling) -> None:
        self._sampling = sampling
        self._generator = torch.Generator("cpu")
        if sampling.seed is not None:
            self._generator.manual_seed(sampling.seed)
        else:
            self._generator.seed()

    def choose(self, logits: Tensor) -> int:
        """A token id, from logits `[Vocab]` of any floating dtype."""
        if self._sampling.temperature == 0:
            return int(logits.argmax())
        ids, scores = candidates(logits, self._sampling)
        # A draw on the CPU looked up in the sums of probabilities: a GPU's own generator would give other tokens.
        sums = torch.softmax(scores.double(), 0).cumsum(0)
        draw = torch.rand((), generator=self._generator, dtype=torch.float64, device="cpu").to(sums.device)
        place = torch.searchsorted(sums, draw * sums[-1], right=True).clamp(max=len(ids) - 1)
        return int(ids[place])


def candidates(logits: Tensor, sampling: Sampling) -> tuple[Tensor, Tensor]:
    """The ids that may be drawn, ascending, and their scores: logits over the temperature, less their greatest.

    Where nothing is filtered these are all of `logits`, which is `[Vocab]`.
    """
    wide = logits.float()
    scores = (wide - wide.max()) / max(sampling.temperature, _COLDEST)
    ids = torch.arange(len(scores), device=scores.device)
    if sampling.top_k is not None and sampling.top_k < len(scores):
        kept = scores >= torch.topk(scores, sampling.top_k).values[-1]
        ids, scores = ids[kept], scores[kept]
    if sampling.top_p is not None and sampling.top_p < 1:
        ascending, order = torch.sort(scores)
        kept = torch.softmax(ascending, 0).cumsum(0) > 1 - sampling.top_p
        kept[-1] = True
        chosen = order[kept].sort().values
        ids, scores = ids[chosen], scores[chosen]
    return ids, scores


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
