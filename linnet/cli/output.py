"""How commands print: tables that line up, and progress on stderr that only a terminal sees."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

Item = TypeVar("Item")


def table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Rows as lines whose columns line up, two spaces apart."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def progress(items: Sequence[Item], label: str, *, quiet: bool) -> Iterable[Item]:
    """`items`, with a bar on stderr while they take over a second, where stderr is a terminal."""
    if quiet or not sys.stderr.isatty():
        return items
    from tqdm import tqdm

    return tqdm(items, desc=label, delay=1, leave=False, file=sys.stderr)
