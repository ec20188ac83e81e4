"""Places in text as the protocol counts them: lines from 0, and code units of the encoding that was agreed on."""

from __future__ import annotations

import re
from bisect import bisect_right

from linnet.language.source import BYTE_ORDER_MARK

# The protocol's own line ends: a lone carriage return is one too.
_LINE_END = re.compile(r"\r\n|\n|\r")
_CODECS = {"utf-8": ("utf-8", 1), "utf-16": ("utf-16-le", 2), "utf-32": ("utf-32-le", 4)}


class Lines:
    """The lines of one text. `encoding` is "utf-8", "utf-16" or "utf-32"."""

    def __init__(self, text: str, encoding: str) -> None:
        self._text = text
        self._codec, self._width = _CODECS[encoding]
        # Editors do not count a byte order mark.
        first = 1 if text.startswith(BYTE_ORDER_MARK) else 0
        self._starts = [first, *(match.end() for match in _LINE_END.finditer(text))]

    def position(self, offset: int) -> tuple[int, int]:
        """Line and unit of a character offset."""
        line = max(0, bisect_right(self._starts, offset) - 1)
        return line, self._units(self._text[self._starts[line] : offset])

    def offset(self, line: int, unit: int) -> int:
        """The character offset of a line and unit; what lies beyond the text or a line's end is taken back to it."""
        if line >= len(self._starts):
            return len(self._text)
        start = self._starts[line]
        ending = _LINE_END.search(self._text, start)
        end = ending.start() if ending is not None else len(self._text)
        passed = 0
        for offset in range(start, end):
            passed += self._units(self._text[offset])
            if passed > unit:
                return offset
        return end

    def _units(self, text: str) -> int:
        if text.isascii():
            return len(text)
        return len(text.encode(self._codec, "surrogatepass")) // self._width
