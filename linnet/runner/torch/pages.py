"""Pages of memory on a CPU: large ones for what every step reads, and giving back those that nobody needs."""

from __future__ import annotations

import ctypes
import errno
import math
import mmap
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress

import torch
from torch import Tensor

# What x86 and most of ARM call a huge page.
HUGE_PAGE = 2 * 2**20
# Linux's number for "make one large page of these now".
MADV_COLLAPSE = 25
# Linux maps so many bytes of a file at once where it has them (fault_around_bytes), from a multiple of as many on.
AROUND = 64 * 2**10
# Flags in the last byte of each page's eight in /proc/self/pagemap (Linux's admin-guide/mm/pagemap.rst).
IN_MEMORY, SWAPPED, OF_FILE = 0x80, 0x40, 0x20


def allocate(count: int, dtype: torch.dtype) -> Tensor:
    """A tensor [count] of zeros that begins with a large page, should the system make one: see `enlarge`. Raises
    MemoryError."""
    nbytes = count * dtype.itemsize
    if not nbytes or sys.platform != "linux":
        return torch.zeros(count, dtype=dtype)
    # The tensor keeps the mapping; a page that nobody touches takes no memory.
    whole = torch.frombuffer(_map(nbytes + HUGE_PAGE), dtype=torch.uint8)
    return whole.narrow(0, -whole.data_ptr() % HUGE_PAGE, nbytes).view(dtype)


def enlarge(tensor: Tensor) -> None:
    """Put a tensor of `allocate` on large pages, where the system can (Linux 6.1 or later), whatever else it is used
    for meanwhile.

    A product of one row takes as long as reading its weights does, and with pages of 4 KiB a part of that goes into
    finding them (`bench/gemv.py`). Not done as it is allocated: a system may take long to find large pages.
    """
    if sys.platform != "linux":
        return
    advise = ctypes.CDLL(None, use_errno=True).madvise
    for place in range(tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes - HUGE_PAGE + 1, HUGE_PAGE):
        refused = advise(ctypes.c_void_p(place), ctypes.c_size_t(HUGE_PAGE), MADV_COLLAPSE) != 0
        # One page may be in use for a moment; a system that makes none makes no other either.
        if refused and ctypes.get_errno() != errno.EAGAIN:
            return


def zeros(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """A tensor of zeros; on a CPU what nobody writes to takes no memory, however small the whole is."""
    count = math.prod(shape)
    if device.type != "cpu" or count * dtype.itemsize < mmap.PAGESIZE:
        return torch.zeros(shape, dtype=dtype, device=device)
    return torch.frombuffer(_map(count * dtype.itemsize), dtype=dtype).view(*shape)


def _map(nbytes: int) -> mmap.mmap:
    """Memory of this process alone, as zeros."""
    private = {} if sys.platform == "win32" else {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS}
    try:
        return mmap.mmap(-1, nbytes, **private)
    except OSError as error:
        raise MemoryError(f"tried to allocate {nbytes} bytes") from error


def give_back() -> None:
    """Return to the system what an entry's first run freed: copies made for packing, wide activations. glibc would
    keep it."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def give_back_file(tensor: Tensor) -> None:
    """Give back the memory of a tensor that is mapped from a file: the system has it, and maps it again should anyone
    ask. What was changed since stays, unless another thread changes it at this moment. Only saves memory: where the
    system does not do it, nothing happens."""
    if sys.platform == "linux" and tensor.device.type == "cpu":
        start, end = _extent(tensor)
        _give_back(-(-start // mmap.PAGESIZE) * mmap.PAGESIZE, end // mmap.PAGESIZE * mmap.PAGESIZE)


def give_back_edges(tensors: Iterable[Tensor]) -> None:
    """Give back what the system mapped of their files around the ends of tensors, as `give_back_file` does."""
    files: list[tuple[int, int]] | None = None
    for tensor in tensors if sys.platform == "linux" else ():
        if files is None:
            files = _mapped_files()
        start, end = _extent(tensor)
        for low, high in files:
            if low <= start and end <= high:
                for place in (start, end - 1):
                    around = place // AROUND * AROUND
                    _give_back(max(low, around), min(high, around + AROUND))
                break


def _extent(tensor: Tensor) -> tuple[int, int]:
    return tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes


def _mapped_files() -> list[tuple[int, int]]:
    """Where files are mapped that no code is taken from. Nothing beside them may be given back: a page that is not
    there yet may be in another thread's hands the next moment."""
    found = []
    with suppress(OSError), open("/proc/self/maps") as lines:
        for line in lines:
            place, rights, _, _, inode, *_ = line.split(maxsplit=5)
            if inode != "0" and "x" not in rights:
                low, high = (int(end, 16) for end in place.split("-"))
                found.append((low, high))
    return found


def _give_back(first: int, last: int) -> None:
    """Let go of whole pages where each is one of a file's."""
    if first < last and _unchanged(first // mmap.PAGESIZE, (last - first) // mmap.PAGESIZE):
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).madvise(ctypes.c_void_p(first), ctypes.c_size_t(last - first), mmap.MADV_DONTNEED)


def _unchanged(first: int, count: int) -> bool:
    """Whether each of `count` pages from page `first` on is one of a file's, or in no memory at all."""
    try:
        with open("/proc/self/pagemap", "rb") as table:
            table.seek(8 * first)
            entries = table.read(8 * count)
    except OSError:
        return False
    flags = set(entries[7::8])
    # A page that was written to is a copy of the process's own, in memory or swapped out.
    own = any(flag & SWAPPED or flag & (IN_MEMORY | OF_FILE) == IN_MEMORY for flag in flags)
    return len(entries) == 8 * count and not own
