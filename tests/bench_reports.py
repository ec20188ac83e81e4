"""A report of `bench.json`, as its reader and the pages are tested with."""

from __future__ import annotations

from typing import Any

from linnet.registry.bench import (
    BenchReport,
    Environment,
    Figure,
    Measured,
    Protocol,
    Results,
    Score,
    UsedWeights,
    WeightFile,
)

SHA = "ab" * 32


def measured(
    name: str, scale: float = 1.0, *, given: str | None = None, scored: bool = True, digest: str = SHA
) -> Measured:
    """What was measured of a package, its times `scale` times those of others; `digest` is that of its sources."""
    score = Score(12.5, 0.25, 2.526, 1000, 9, {"window": 256, "text": {"file": "held-out.txt"}}) if scored else None
    return Measured(
        name=name,
        version="0.1.0",
        repo=None,
        revision=None,
        digest=digest,
        generics={"H": 64, "T": "bf16", "MaxSeq": 192},
        compile=True,
        fp8="stream",
        weights=UsedWeights(given is None, given, "org/repo", "0" * 40, (WeightFile("model.safetensors", 10, SHA),)),
        results=Results(
            Figure((0.5 * scale, 0.25 * scale, 0.75 * scale)),
            Figure((1.5, 1.25)),
            Figure((0.0125, 0.01, 0.5)),
            Figure((238.4 * scale, 240.0 * scale, 12.25 * scale)),
            Figure((1 << 30, 1 << 31, 1 << 30)),
        ),
        perplexity=score,
    )


def report(**changes: Any) -> BenchReport:
    """The package "tiny" beside "other", which takes half as long; `changes` are fields of the report."""
    environment = Environment("0.1.0", "3.11.7", "2.11", None, "Linux 6.1", "x86_64", "cpu", "A processor", 2, 1 << 34)
    parts: dict[str, Any] = {"package": measured("tiny"), "baseline": measured("other", 0.5), **changes}
    protocol = Protocol(128, 64, 3, 0, "fast", None)
    return BenchReport("nest bench tiny --baseline other", "2026-01-31T12:00:00Z", protocol, environment, **parts)
