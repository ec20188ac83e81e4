"""How commands print: tables that line up, and progress on stderr that only a terminal sees."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

Item = TypeVar("Item")


def table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Rows as lines whose columns line up, two spaces apart."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def progress(label: str, *, quiet: bool) -> Callable[[Sequence[Item]], Iterable[Item]]:
    """A function that hands on items one by one, with a bar on stderr where that is a terminal.

    The bar appears once the work has taken a second, and is gone at the end.
    """

    def watch(items: Sequence[Item]) -> Iterable[Item]:
        if quiet or not sys.stderr.isatty():
            return items
        from tqdm import tqdm

        return tqdm(items, desc=label, delay=1, leave=False, file=sys.stderr)

    return watch
