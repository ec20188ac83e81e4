"""Memory that a device does not have: what torch says of it, in one sentence with what was needed and what is free."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import torch

from linnet.runner.errors import AllocationError
from linnet.runner.torch.compiled.store import free_bytes

_UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_WANTED = re.compile(r"tried to allocate ([\d.]+) (bytes|KiB|MiB|GiB)", re.IGNORECASE)


def allocation_error(error: BaseException, what: str, device: torch.device) -> AllocationError | None:
    """`error`, raised by torch or Python as `what` ran on `device`, where memory was short; None where it says another
    thing, or all of this already."""
    wanted = _WANTED.search(str(error))
    short = wanted is not None or isinstance(error, MemoryError | torch.OutOfMemoryError)
    if not short or isinstance(error, AllocationError):
        return None
    needed = int(float(wanted[1]) * _UNITS[wanted[2]]) if wanted is not None else None
    return AllocationError(what, str(device), needed, _free(device))


def refuse_beyond(what: str, needed: int, device: torch.device) -> None:
    """Raises AllocationError where `what` needs more bytes than a CPU has free, before it takes any.

    A system that lends memory which it does not have would end the process. Other devices say so themselves.
    """
    available = _free(device)
    if device.type == "cpu" and available is not None and needed > available + _swap():
        raise AllocationError(what, str(device), needed, available)


@contextmanager
def loading(needed: int, device: torch.device) -> Iterator[None]:
    """While weights of `needed` bytes are put on `device`. Raises AllocationError with those, and what was free
    before."""
    what = "loading the weights"
    refuse_beyond(what, needed, device)
    short = AllocationError(what, str(device), needed, _free(device))
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if allocation_error(error, "", device) is None:
            raise
        raise short from error


def _free(device: torch.device) -> int | None:
    """Bytes that may still be taken on the device; None where nobody can tell."""
    with suppress(RuntimeError, AssertionError):
        return free_bytes(device) or None
    return None


def _swap() -> int:
    """Bytes of swap that are free; 0 where nobody can tell."""
    with suppress(OSError, ValueError, StopIteration), open("/proc/meminfo") as lines:
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("SwapFree:"))
    return 0
