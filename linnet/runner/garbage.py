"""Python's collector of garbage, kept from walking over everything while many objects are made."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def own_garbage() -> Iterator[None]:
    """Within, nothing is collected; at the end, what was made within and is not used any more.

    With torch imported, a collection walks over a million objects that live on: a tenth of a second each time. Where
    the collector is off, or objects are set aside from it already (by a program, or another thread), nothing changes.
    """
    if not gc.isenabled() or gc.get_freeze_count():
        yield
        return
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.collect()
        gc.unfreeze()
        gc.enable()


def collect_own() -> None:
    """Within `own_garbage`: let go of what was made and is not used any more, so that what follows takes its place."""
    if gc.get_freeze_count():
        gc.collect()
