"""Places in text: the units that editors count, whatever the line ends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linnet.language.server.positions import Lines

TEXT = "a\r\nñ𝄞b\rc\n"


@pytest.mark.parametrize(
    ("encoding", "unit"),
    [("utf-8", 6), ("utf-16", 3), ("utf-32", 2)],
)
def test_units_are_those_of_the_encoding(encoding: str, unit: int) -> None:
    lines = Lines(TEXT, encoding)
    assert lines.position(TEXT.index("b")) == (1, unit)
    assert lines.offset(1, unit) == TEXT.index("b")
    assert lines.position(TEXT.index("c")) == (2, 0)
    assert lines.position(len(TEXT)) == (3, 0)


def test_what_lies_beyond_is_taken_back() -> None:
    lines = Lines(TEXT, "utf-16")
    assert lines.offset(0, 99) == 1
    assert lines.offset(99, 0) == len(TEXT)
    # Between the two halves of a character is at its start.
    assert lines.offset(1, 2) == TEXT.index("𝄞")


def test_a_byte_order_mark_is_not_counted() -> None:
    lines = Lines("\ufeffmodule a\n", "utf-16")
    assert lines.position(1) == (0, 0)
    assert lines.offset(0, 7) == 8


@given(st.text("a\n\rñ𝄞\udc80", max_size=12), st.sampled_from(["utf-8", "utf-16", "utf-32"]))
def test_offsets_come_back(text: str, encoding: str) -> None:
    lines = Lines(text, encoding)
    for offset in range(len(text) + 1):
        # Inside a line's end there is no place.
        if text[offset - 1 : offset + 1] != "\r\n":
            assert lines.offset(*lines.position(offset)) == offset
