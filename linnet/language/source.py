"""Source text and the spans that every token, tree node and diagnostic carries."""

from __future__ import annotations

import errno
import os
from bisect import bisect_right
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

BYTE_ORDER_MARK = "\ufeff"
MAX_BYTES = 1 << 19
"""How long a source may be: tokens and trees take some two hundred times the memory of their text."""


def read_source(path: Path, name: str) -> Source:
    """The text of a file, `name` being what diagnostics print for it.

    A byte that is not UTF-8 becomes the lone surrogate that stands for it (PEP 383), which the lexer reports at its
    place. Of a file longer than MAX_BYTES only the size is kept: parser and formatter refuse it. Raises OSError where
    the file cannot be read, or is a pipe or a device, which would make its reader wait.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise OSError(errno.EINVAL, "not a plain file; name a source", str(path))
    with path.open("rb") as file:
        data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            return Source(name, "", os.fstat(file.fileno()).st_size)
    return Source(name, data.decode("utf-8", "surrogateescape"))


@dataclass(frozen=True, eq=False)
class Source:
    """One module's text. `name` is what diagnostics print: a path as the user wrote it.

    `size` is that of a file in bytes where it is too long to be read, and 0 elsewhere.
    """

    name: str
    text: str
    size: int = 0

    @cached_property
    def line_starts(self) -> list[int]:
        """The offset of each line's first character; a byte order mark is not one."""
        first = 1 if self.text.startswith(BYTE_ORDER_MARK) else 0
        return [first, *(i + 1 for i, ch in enumerate(self.text) if ch == "\n")]

    def position(self, offset: int) -> tuple[int, int]:
        """1-based line and column of a character offset."""
        line = max(1, bisect_right(self.line_starts, offset))
        return line, offset - self.line_starts[line - 1] + 1

    def line(self, number: int) -> str:
        """The text of 1-based line `number`, without its newline."""
        start = self.line_starts[number - 1]
        end = self.text.find("\n", start)
        return self.text[start:].rstrip("\r") if end < 0 else self.text[start:end].rstrip("\r")


@dataclass(frozen=True, slots=True)
class Span:
    """Characters `start` to `end` (exclusive) of a source."""

    source: Source = field(repr=False)
    start: int
    end: int

    def to(self, other: Span) -> Span:
        """The span from this one's start to the other's end."""
        return Span(self.source, self.start, other.end)

    @property
    def text(self) -> str:
        return self.source.text[self.start : self.end]

    def location(self) -> str:
        """`file:line:column` of the first character."""
        line, column = self.source.position(self.start)
        return f"{self.source.name}:{line}:{column}"
