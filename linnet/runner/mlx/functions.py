"""Functions of f64 on MLX, which takes most in f32: made of operations that it does take in f64."""

from __future__ import annotations

import math

import mlx.core as mx
import numpy as np


def _number(value: float) -> mx.array:
    # MLX rounds a Python float to f32 first.
    return mx.array(np.array(value), dtype=mx.float64)


# e in f64, and what it lacks, as a part of it.
_E, _BEYOND_E = _number(math.e), _number(5.31823770660576e-17)
_LOWEST = _number(-1e4)
# A quarter turn in parts: a multiple of each of the first two, of 33 bits, is exact up to 2**20 times (Cody and Waite,
# "Software Manual for the Elementary Functions", 1980).
_QUARTER = tuple(map(_number, (1.5707963267341256, 6.077100506303966e-11, 2.0222662487959506e-21)))
_QUARTERS_A_UNIT = _number(2 / math.pi)
_MOST = _number(1e6)
# Taylor's series: in half a quarter turn the next term is below half a step.
_SINE = tuple(_number((-1) ** i / math.factorial(2 * i + 1)) for i in range(9))
_COSINE = tuple(_number((-1) ** i / math.factorial(2 * i)) for i in range(10))


def exp(x: mx.array) -> mx.array:
    """Within a step of f64. MLX takes powers in f64."""
    power = mx.power(_E, x)
    # Of -inf the power is 0, and must stay so.
    return power + power * (mx.maximum(x, _LOWEST) * _BEYOND_E)


def sin(x: mx.array) -> mx.array:
    """Within two steps of f64, of numbers up to a million; of larger ones as near as f32 is."""
    return _turned(x, 0, mx.sin)


def cos(x: mx.array) -> mx.array:
    """As `sin`."""
    return _turned(x, 1, mx.cos)


def _turned(x: mx.array, quarters: int, narrow: object) -> mx.array:
    """The sine of x and some quarter turns."""
    small = mx.abs(x) < _MOST
    turns = mx.round(mx.where(small, x, mx.zeros_like(x)) * _QUARTERS_A_UNIT)
    rest = x
    for part in _QUARTER:
        rest = rest - turns * part
    square = rest * rest
    which = turns.astype(mx.int64) + quarters
    sine, cosine = rest * _series(_SINE, square), _series(_COSINE, square)
    value = mx.where(which % 2 == 0, sine, cosine)
    signed = mx.where(which % 4 < 2, value, -value)
    return mx.where(small, signed, narrow(x.astype(mx.float32)).astype(mx.float64))  # type: ignore[operator]


def _series(factors: tuple[mx.array, ...], x: mx.array) -> mx.array:
    total = factors[-1]
    for factor in factors[-2::-1]:
        total = total * x + factor
    return total
