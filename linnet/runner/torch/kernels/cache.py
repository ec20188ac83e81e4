"""Writes into a key/value cache [B, H, S, D] by index instead of by comparing every position.

Each returns a new cache: the old one is what a failed entry goes back to, and what gradients flow through.
"""

from __future__ import annotations

import torch
from torch import Tensor

from linnet.runner.bounds import Bound, Shapes
from linnet.runner.torch.kernels import kernel


def _span(shapes: Shapes) -> list[Bound]:
    return [Bound("at", shapes["cache"][2], "cache", shapes["value"][2])]


def _rows(shapes: Shapes) -> list[Bound]:
    return [Bound("at", shapes["cache"][2], "cache")]


def _slots(shapes: Shapes) -> list[Bound]:
    return [Bound("slots", shapes["cache"][0], "cache"), *_span(shapes)]


def _slot(shapes: Shapes) -> list[Bound]:
    return [Bound("slot", shapes["cache"][0], "cache"), *_span(shapes)]


def _tokens(shapes: Shapes) -> list[Bound]:
    return [Bound("rows", shapes["cache"][0], "cache"), Bound("positions", shapes["cache"][2], "cache")]


@kernel("std.nn.cache::write_at", _span)
@kernel("std.nn.cache::write_span", _span)
def write_span(cache: Tensor, value: Tensor, at: Tensor) -> Tensor:
    """value [B, H, N, D] at positions at .. at + N of every row; `at` i32 scalar."""
    places = at + torch.arange(value.shape[2], device=cache.device)
    return cache.index_copy(2, places, value) if value.shape[2] else cache


@kernel("std.nn.cache::write_rows", _rows)
def write_rows(cache: Tensor, value: Tensor, at: Tensor) -> Tensor:
    """value [B, H, 1, D]: row b at its own position, at [B] i32."""
    rows = torch.arange(cache.shape[0], device=cache.device)
    return cache.transpose(1, 2).index_put((rows, at.long()), value[:, :, 0]).transpose(1, 2)


@kernel("std.nn.cache::write_slots", _slots)
def write_slots(cache: Tensor, value: Tensor, slots: Tensor, at: Tensor) -> Tensor:
    """value [M, H, N, D] at positions at .. at + N of rows slots [M] i32; of equal slots the last wins."""
    m, h, n, d = value.shape
    positions = at + torch.arange(n, device=cache.device)
    tokens = value.transpose(0, 1).reshape(1, h, m * n, d)
    return _write(cache, tokens, slots.repeat_interleave(n), positions.repeat(m))


@kernel("std.nn.cache::write_slot", _slot)
def write_slot(cache: Tensor, value: Tensor, slot: Tensor, at: Tensor) -> Tensor:
    """value [1, H, N, D] at positions at .. at + N of row `slot`; both i32 scalars."""
    return write_slots(cache, value, slot.view(1), at)


@kernel("std.nn.cache::write_tokens", _tokens)
def write_tokens(cache: Tensor, value: Tensor, rows: Tensor, positions: Tensor) -> Tensor:
    """value [1, H, P, D]: token p at positions[p] of row rows[p], both [P] i32; for one place the last wins."""
    return _write(cache, value, rows, positions)


def _write(cache: Tensor, value: Tensor, rows: Tensor, positions: Tensor) -> Tensor:
    b, h, s, d = cache.shape
    count = value.shape[2]
    if not count:
        return cache
    order = torch.arange(count, device=cache.device)
    # The last token for each place, -1 where there is none: an indexed write of equal places has no order of its own.
    last = torch.full((b * s,), -1, device=cache.device)
    last = last.scatter_reduce(0, rows.long() * s + positions, order, "amax")
    newest = value[0].index_select(1, last.clamp(min=0)).view(h, b, s, d).transpose(0, 1)
    return torch.where((last >= 0).view(b, 1, s, 1), newest, cache)
