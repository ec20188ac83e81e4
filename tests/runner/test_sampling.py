"""Sampling: filters against transformers' processors, draws against their probabilities."""

from __future__ import annotations

import pytest
import torch
from transformers import LogitsProcessorList
from transformers.generation.logits_process import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from linnet.runner.errors import SamplingError
from linnet.runner.sampling import Sampler, Sampling, candidates


def theirs(logits: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """The probabilities that transformers draws from."""
    chain = LogitsProcessorList([TemperatureLogitsWarper(sampling.temperature)])
    if sampling.top_k is not None:
        chain.append(TopKLogitsWarper(sampling.top_k))
    if sampling.top_p is not None:
        chain.append(TopPLogitsWarper(sampling.top_p))
    ids = torch.zeros(1, 1, dtype=torch.long)
    return torch.softmax(chain(ids, logits.float()[None])[0], 0)


def ours(logits: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    ids, scores = candidates(logits, sampling)
    return torch.zeros(len(logits)).scatter(0, ids, torch.softmax(scores, 0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("temperature", [0.3, 1.0, 1.7])
@pytest.mark.parametrize("top_k", [None, 1, 5, 40, 1000])
@pytest.mark.parametrize("top_p", [None, 0.05, 0.5, 0.9, 1.0])
def test_filters_keep_what_transformers_keeps(
    dtype: torch.dtype, temperature: float, top_k: int | None, top_p: float | None
) -> None:
    sampling = Sampling(temperature, top_k, top_p)
    for seed in range(5):
        logits = (3 * torch.randn(200, generator=torch.Generator().manual_seed(seed))).to(dtype)
        found, wanted = ours(logits, sampling), theirs(logits, sampling)
        # bf16 has ties, and where the sum is reached within one either of the tied tokens may be kept.
        if dtype == torch.float32 or top_p is None:
            assert torch.equal(found > 0, wanted > 0)
        assert (found > 0).sum() == (wanted > 0).sum()
        torch.testing.assert_close(found.sort().values, wanted.sort().values)


def test_ties_with_the_last_of_top_k_are_kept() -> None:
    logits = torch.tensor([0.0, 2.0, 1.0, 2.0, 1.0])
    ids, _ = candidates(logits, Sampling(1.0, top_k=3))
    assert ids.tolist() == [1, 2, 3, 4]


def test_draws_follow_the_probabilities() -> None:
    logits = torch.tensor([0.0, 1.0, 2.0, -1.0])
    sampling = Sampling(0.8, seed=5)
    sampler = Sampler(sampling)
    counts = torch.zeros(4)
    for _ in range(4000):
        counts[sampler.choose(logits)] += 1
    wanted = theirs(logits, sampling)
    # Six standard deviations of a count.
    assert ((counts / 4000 - wanted).abs() < 6 * (wanted * (1 - wanted) / 4000).sqrt()).all()


def test_a_seed_draws_the_same_again() -> None:
    logits = torch.randn(50, generator=torch.Generator().manual_seed(0))

    def drawn(seed: int | None) -> list[int]:
        sampler = Sampler(Sampling(1.0, seed=seed))
        return [sampler.choose(logits) for _ in range(30)]

    assert drawn(3) == drawn(3)
    assert drawn(3) != drawn(4)
    assert drawn(None) != drawn(None)
    # Whoever else draws from torch's own generator changes nothing.
    before = torch.get_rng_state()
    drawn(3)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("temperature", [0.0, 1e-40, 1e-8])
def test_cold_draws_take_the_likeliest(temperature: float) -> None:
    logits = torch.tensor([1.0, 1.5, -3.0, 1.25])
    sampler = Sampler(Sampling(temperature, top_p=0.9, seed=0))
    assert {sampler.choose(logits) for _ in range(20)} == {1}


def test_what_is_filtered_is_never_drawn() -> None:
    logits = torch.tensor([5.0, float("-inf"), 4.0, -20.0])
    sampler = Sampler(Sampling(100.0, top_k=2, seed=0))
    assert {sampler.choose(logits) for _ in range(200)} == {0, 2}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"temperature": -0.1}, r"temperature=-0\.1 is not a number from 0"),
        ({"temperature": float("nan")}, "temperature=nan"),
        ({"temperature": float("inf")}, "temperature=inf"),
        ({"temperature": "warm"}, "temperature='warm'"),
        ({"top_k": 0}, "top_k=0 is not a count"),
        ({"top_k": 2.5}, r"top_k=2\.5 is not a count"),
        ({"top_k": True}, "top_k=True is not a count"),
        ({"top_p": 0.0}, r"top_p=0\.0 is not a probability"),
        ({"top_p": 1.1}, r"top_p=1\.1 is not a probability"),
        ({"seed": -1}, "seed=-1 is not an integer"),
        ({"seed": 2**63}, "seed=9223372036854775808 is not an integer"),
    ],
)
def test_settings_that_are_none_are_refused(settings: dict[str, object], words: str) -> None:
    with pytest.raises(SamplingError, match=words):
        Sampling(**settings)  # type: ignore[arg-type]
