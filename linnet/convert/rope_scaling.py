"""The rule by which Llama 3.1 and later stretch their rotary positions, read from a config or found in factors."""

from __future__ import annotations

from typing import Any

import numpy as np

from linnet.convert.numbers import Floats

# What every published checkpoint has, but for the factor.
LOW, HIGH, ORIGINAL = 1.0, 4.0, 8192
_TOLERANCE = 1e-4


def llama3_factors(theta: float, width: int, factor: float, low: float, high: float, original: int) -> Floats:
    """What each of the `width / 2` rotary frequencies is divided by.

    Frequencies that turn more than `high` times over `original` positions stay, those that turn less than `low` times
    are divided by `factor`, and those between are blended (`Llama3RotaryEmbedding`'s rule in config.json's words).
    """
    frequencies = theta ** (-np.arange(0, width, 2, dtype=np.float64) / width)
    turns = original * frequencies / (2 * np.pi)
    kept = np.clip((turns - low) / (high - low), 0, 1)
    return np.asarray(1 / (kept + (1 - kept) / factor), np.float32)


def find_llama3_scaling(factors: Floats, theta: float, width: int) -> dict[str, Any] | None:
    """The `rope_scaling` of a config.json that gives these factors, as GGUF stores them; None where none does."""
    factor = float(factors.max()) if factors.size else 0.0
    if factors.shape != (width // 2,) or factor < 1:
        return None
    if not np.allclose(llama3_factors(theta, width, factor, LOW, HIGH, ORIGINAL), factors, rtol=_TOLERANCE):
        return None
    return {
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": LOW,
        "high_freq_factor": HIGH,
        "original_max_position_embeddings": ORIGINAL,
    }
