"""Data that the pages' script loads when it is needed.

A shard is a script that hands one JSON value to `nest(name, value)`: a page opened from the file system may load
scripts of its site, but not fetch its files.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from typing import Any

_DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


def shard(name: str, value: Any) -> bytes:
    """The script `NAME.js`. U+2028 and U+2029, which older readers take for line ends, are escaped."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    text = text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return f"nest({json.dumps(name)},{text})\n".encode()


def pack_numbers(numbers: Iterable[int]) -> str:
    """Ascending numbers as text: for each run of neighbours the gap before it and its length less one.

    Each is written in digits of 64, five bits each, the sixth set where another follows. `site.js` reads it.
    """
    pieces: list[str] = []
    end = -1  # of the run before
    first = last = -2
    for number in numbers:
        if number != last + 1:
            if first >= 0:
                pieces += (_pack(first - end - 1), _pack(last - first))
                end = last
            first = number
        last = number
    if first >= 0:
        pieces += (_pack(first - end - 1), _pack(last - first))
    return "".join(pieces)


@cache
def _pack(number: int) -> str:
    digits = ""
    while number > 31:
        digits += _DIGITS[32 | (number & 31)]
        number >>= 5
    return digits + _DIGITS[number]
