"""Arithmetic on scalars known at compile time.

Only results that every backend would compute bit for bit are folded: integers, bools, and conversions of integers
that the float dtype holds exactly. Float arithmetic stays in the graph, where the backend rounds it.
"""

from __future__ import annotations

from collections.abc import Callable

from linnet.language.program.types import FLOATS, INTEGERS

Number = int | float | bool
# Integers up to 2 ** bits are exact: one more than the stored bits of the significand.
SIGNIFICAND_BITS = {"f16": 11, "bf16": 8, "f32": 24, "f64": 53}


def wrap(value: int, dtype: str) -> int:
    """`value` modulo the dtype's range, as integer arithmetic wraps."""
    bits = int(dtype[1:])
    value &= (1 << bits) - 1
    return value - (1 << bits) if dtype[0] == "i" and value >> (bits - 1) else value


def _divide(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": _divide,
    "rem": lambda a, b: a - b * _divide(a, b),
    "min": min,
    "max": max,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
}
COMPARE: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


def fold_unary(op: str, value: Number, dtype: str) -> Number | None:
    """The result of a unary primitive on an integer or bool, None where it is left to the backend."""
    if op == "not" and isinstance(value, bool):
        return not value
    if dtype in INTEGERS and isinstance(value, int):
        if op == "neg":
            return wrap(-value, dtype)
        if op == "not":
            return wrap(~value, dtype)
        if op == "abs":
            return wrap(abs(value), dtype)
    return None


def fold_binary(op: str, a: Number, b: Number, dtype: str) -> Number | None:
    """The result of a binary primitive on two operands of `dtype`, None where it is left to the backend."""
    if dtype in FLOATS or isinstance(a, float) or isinstance(b, float):
        return None
    if op in COMPARE:
        return COMPARE[op](a, b)
    if op not in ARITHMETIC or (op in ("div", "rem") and b == 0):
        return None
    result = ARITHMETIC[op](a, b)
    return bool(result) if dtype == "bool" else wrap(result, dtype)


def fold_cast(value: Number, dtype: str) -> Number | None:
    """`value`, an integer or bool, as `dtype`; None where rounding would decide."""
    if isinstance(value, float):
        return None
    if dtype == "bool":
        return bool(value)
    if dtype in INTEGERS:
        return wrap(int(value), dtype)
    return float(value) if abs(value) <= 1 << SIGNIFICAND_BITS[dtype] else None


def literal(value: Number, dtype: str) -> Number:
    """A literal as the Python number that stands for it in a constant of `dtype`."""
    if dtype == "bool":
        return bool(value)
    return float(value) if dtype in FLOATS else int(value)
