"""How each kernel is cut up, by device, shape and rows: a table, so that nothing is timed while a model runs.

Nothing here has been measured on a GPU. The values follow from arithmetic (programs that fit on a multiprocessor at
the registers and shared memory that the compiler reports, bytes in flight) and from the sizes that serving engines
publish for Hopper; `bench/gpu.py` measures them. A lookup takes the nearest entry: capability, then multiprocessors,
then shape, then rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Generic, TypeVar


@dataclass(frozen=True)
class Place:
    """Where an entry belongs: multiprocessors, the weight's sides, the input's rows."""

    capability: int
    sms: int
    out: int
    inner: int
    rows: int


@dataclass(frozen=True)
class Gemv:
    """A program takes `block_n` weight rows (of the gate and of up, when gated), `block_k` inputs at a time."""

    block_n: int
    block_k: int
    warps: int


@dataclass(frozen=True)
class SmallRows:
    """`block_n` weight rows by `block_m` input rows, the inputs divided among `splits` programs."""

    block_m: int
    block_n: int
    splits: int
    warps: int
    stages: int


@dataclass(frozen=True)
class Tile:
    """`block_m` input rows by `block_n` weight rows; `group` row tiles share their weights."""

    block_m: int
    block_n: int
    group: int
    warps: int
    stages: int


# Bytes of shared memory that the compiler may take beside tiles.
BARRIERS = 1024

Config = TypeVar("Config", Gemv, SmallRows, Tile)


@dataclass(frozen=True)
class Entry(Generic[Config]):
    place: Place
    config: Config


def _entries(
    capability: int, sms: int, table: Sequence[tuple[tuple[int, int], int, Config]]
) -> tuple[Entry[Config], ...]:
    return tuple(Entry(Place(capability, sms, out, inner, rows), config) for (out, inner), rows, config in table)


# The projections of Qwen3-8B: q, k and v joined, the attention's output, gate and up joined, down.
QKV, OUTPUT, GATE_UP, DOWN = (6144, 4096), (4096, 4096), (24576, 4096), (4096, 12288)

GEMV = _entries(
    9,
    132,
    [
        (QKV, 1, Gemv(4, 1024, 4)),
        (OUTPUT, 1, Gemv(8, 1024, 4)),
        (GATE_UP, 1, Gemv(8, 1024, 4)),
        (DOWN, 1, Gemv(8, 1024, 4)),
    ],
)
GATED_GEMV = _entries(9, 132, [(GATE_UP, 1, Gemv(4, 1024, 4))])
SMALL_ROWS = _entries(
    9,
    132,
    [
        (QKV, 16, SmallRows(16, 64, 4, 4, 4)),
        (QKV, 32, SmallRows(32, 64, 4, 4, 4)),
        (OUTPUT, 16, SmallRows(16, 64, 4, 4, 4)),
        (OUTPUT, 32, SmallRows(32, 64, 4, 4, 4)),
        (GATE_UP, 16, SmallRows(16, 64, 1, 4, 4)),
        (GATE_UP, 32, SmallRows(32, 64, 1, 4, 4)),
        (DOWN, 16, SmallRows(16, 64, 8, 4, 4)),
        (DOWN, 32, SmallRows(32, 64, 8, 4, 4)),
    ],
)
TILE = _entries(
    9,
    132,
    [
        (QKV, 64, Tile(64, 64, 8, 4, 4)),
        (QKV, 128, Tile(64, 128, 8, 4, 4)),
        (QKV, 256, Tile(128, 128, 8, 8, 4)),
        (OUTPUT, 64, Tile(64, 64, 8, 4, 4)),
        (OUTPUT, 256, Tile(64, 128, 8, 4, 4)),
        (OUTPUT, 512, Tile(128, 128, 8, 8, 4)),
        (GATE_UP, 64, Tile(64, 128, 8, 4, 4)),
        (GATE_UP, 128, Tile(128, 128, 8, 8, 4)),
        (DOWN, 64, Tile(64, 64, 8, 4, 4)),
        (DOWN, 256, Tile(64, 128, 8, 4, 4)),
        (DOWN, 512, Tile(128, 128, 8, 8, 4)),
    ],
)


def nearest(entries: Sequence[Entry[Config]], place: Place) -> Config:
    """The entry for `place`; sizes are compared by their ratio."""

    def distance(entry: Entry[Config]) -> tuple[float, ...]:
        other = entry.place
        shape = _ratio(other.out, place.out) + _ratio(other.inner, place.inner)
        return (
            abs(other.capability - place.capability),
            _ratio(other.sms, place.sms),
            shape,
            _ratio(other.rows, place.rows),
        )

    return min(entries, key=distance).config


def _ratio(one: int, other: int) -> float:
    return abs(math.log(one / other))


@cache
def gemv(place: Place) -> Gemv:
    return nearest(GEMV, place)


@cache
def gated_gemv(place: Place) -> Gemv:
    return nearest(GATED_GEMV, place)


@cache
def small_rows(place: Place) -> SmallRows:
    """Holds at least `place.rows`, and no split is without inputs."""
    fitting = [entry for entry in SMALL_ROWS if entry.config.block_m >= place.rows]
    config = nearest(fitting, place)
    blocks = place.inner // 128
    # As many splits as the inputs fill when each takes an equal share, rounded up.
    splits = -(-blocks // -(-blocks // config.splits))
    return replace(config, splits=splits)


@cache
def tile(place: Place, shared: int) -> Tile:
    """With as many stages as `shared` bytes hold, each of E4M3 tiles 128 inputs deep."""
    config = nearest(TILE, place)
    stages = (shared - BARRIERS) // ((config.block_m + config.block_n) * 128)
    return replace(config, stages=min(config.stages, stages))
