"""The arithmetic of a serving engine in NumPy, in f64: where it rounds is stated, and nothing else does.

Each function takes `at(point, x)`, which is told every place where an engine rounds or might: the points of `ROUNDED`
are rounded to the model's dtype, the others are not. Shapes are those of the ops.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
At = Callable[[str, Array], Array]

ROUNDED = frozenset(
    (
        "linear",  # the sum of a product, once
        "residual",  # x + y, once
        "norm: normalised",  # the first of a norm's two
        "norm: scaled",  # the second, after the weight
        "rotary table",  # cosines and sines lie in the model's dtype
        "rotary",  # the rotation, once
        "attention",  # the weighted sum, once
        "silu",  # once
        "gate",  # silu(g) * u
    )
)
# What a kernel that works in bf16 throughout would round besides.
UNROUNDED = (
    "norm: square",
    "rotary: products",
    "attention: scores",
    "attention: weights",
    "silu: sigmoid",
)


def to_bf16(x: Array) -> Array:
    """The nearest numbers with eight significant bits, ties to even, as f64."""
    mantissa, exponent = np.frexp(x)
    return np.ldexp(np.rint(mantissa * 256) / 256, exponent)


def rounding(dtype: str, *, less: Collection[str] = (), more: Collection[str] = (), nudge: float = 0.0) -> At:
    """What is done at each point under a dtype: `less` and `more` change the points, and with a `nudge` numbers are a
    little off before they are rounded, as another order of sums makes them."""
    points = (ROUNDED - set(less)) | set(more)

    def at(point: str, x: Array) -> Array:
        return to_bf16(x * (1 + nudge)) if dtype == "bf16" and point in points else x

    return at


def linear(at: At, x: Array, weight: Array) -> Array:
    return at("linear", x @ weight.T)


def residual(at: At, x: Array, y: Array) -> Array:
    return at("residual", x + y)


def rms_norm(at: At, x: Array, weight: Array, eps: float) -> Array:
    square = at("norm: square", x * x).mean(-1, keepdims=True)
    return at("norm: scaled", at("norm: normalised", x / np.sqrt(square + eps)) * weight)


def rotary_tables(at: At, positions: NDArray[np.int64], width: int, theta: float) -> tuple[Array, Array]:
    """Cosines and sines [S, D]."""
    frequencies = theta ** (-np.arange(0, width, 2) / width)
    angles = positions[:, None] * np.concatenate([frequencies, frequencies])
    return at("rotary table", np.cos(angles)), at("rotary table", np.sin(angles))


def rotate(at: At, x: Array, cos: Array, sin: Array) -> Array:
    """x [.., S, D]: the first half of D is paired with the second."""
    first, second = np.split(x, 2, axis=-1)
    swapped = np.concatenate([-second, first], axis=-1)
    return at("rotary", at("rotary: products", x * cos) + at("rotary: products", swapped * sin))


def attend(at: At, query: Array, key: Array, value: Array, scale: float, start: int) -> Array:
    """query [H, Q, D]; key, value [Hk, K, D]; query q sees the keys up to `start + q`."""
    groups = len(query) // len(key)
    key, value = key.repeat(groups, 0), value.repeat(groups, 0)
    scores = at("attention: scores", query @ key.swapaxes(1, 2) * scale)
    seen = np.arange(key.shape[1]) <= start + np.arange(query.shape[1])[:, None]
    scores = np.where(seen, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return at("attention", at("attention: weights", weights / weights.sum(-1, keepdims=True)) @ value)


def silu(at: At, x: Array) -> Array:
    return at("silu", x * at("silu: sigmoid", 1 / (1 + np.exp(-x))))


def gated(at: At, gate: Array, up: Array) -> Array:
    return at("gate", silu(at, gate) * up)


@dataclass(frozen=True)
class Decoder:
    """A decoder of the Qwen3 or Llama family for one text: weights in f64 by their Linnet paths."""

    weights: Mapping[str, Array]
    heads: int
    key_heads: int
    width: int
    layers: int
    eps: float
    theta: float

    def logits(self, at: At, tokens: NDArray[np.int64]) -> Array:
        """Of every position, [S, Vocab]."""
        return linear(at, self.hidden(at, self.weights["embedding.weight"][tokens]), self.weights["lm_head.weight"])

    def hidden(self, at: At, x: Array) -> Array:
        """What the last norm makes of embeddings [S, H] at the positions from 0 on."""
        w, count = self.weights, len(x)
        tables = rotary_tables(at, np.arange(count), self.width, self.theta)
        for i in range(self.layers):
            layer = f"layers.{i}."
            y = rms_norm(at, x, w[f"{layer}attention_norm.weight"], self.eps)
            q, k, v = (linear(at, y, w[f"{layer}attention.{n}_proj.weight"]) for n in "qkv")
            q, k = (self._turned(at, x, f"{layer}attention.{n}_norm.weight", tables) for n, x in (("q", q), ("k", k)))
            mixed = attend(at, q, k, self._by_head(v), self.width**-0.5, 0).swapaxes(0, 1).reshape(count, -1)
            x = residual(at, x, linear(at, mixed, w[f"{layer}attention.o_proj.weight"]))
            y = rms_norm(at, x, w[f"{layer}mlp_norm.weight"], self.eps)
            gate, up = (linear(at, y, w[f"{layer}mlp.{n}.weight"]) for n in ("gate", "up"))
            x = residual(at, x, linear(at, gated(at, gate, up), w[f"{layer}mlp.down.weight"]))
        return rms_norm(at, x, w["norm.weight"], self.eps)

    def _turned(self, at: At, x: Array, norm: str, tables: tuple[Array, Array]) -> Array:
        """Queries or keys by head, normalised where the family does that, and rotated."""
        heads = self._by_head(x)
        if norm in self.weights:
            heads = rms_norm(at, heads, self.weights[norm], self.eps)
        return rotate(at, heads, *tables)

    def _by_head(self, x: Array) -> Array:
        return x.reshape(len(x), -1, self.width).swapaxes(0, 1)
