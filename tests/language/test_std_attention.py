"""Attention, masks, caches and pages of the standard library against plain torch."""

from __future__ import annotations

import pytest
import torch
from std_harness import NUMERICS, assert_within_one_rounding, random, run_std
from torch import Tensor

from linnet.runner.errors import IndexRangeError

both = pytest.mark.parametrize("numerics", NUMERICS)
SCALE = 0.35


def reference(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, sinks: Tensor | None = None
) -> Tensor:
    """Attention in f64: query [B, H, Q, D], key and value [B, Hk, K, D], mask broadcast to [B, H, Q, K], sinks [H]."""
    repeat = query.shape[1] // key.shape[1]
    key, value = key.double().repeat_interleave(repeat, 1), value.double().repeat_interleave(repeat, 1)
    scores = query.double() @ key.transpose(-1, -2) * SCALE
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    if sinks is not None:
        scores = torch.cat((scores, sinks.double()[:, None, None].expand(*scores.shape[:-1], 1)), -1)
    weights = torch.softmax(scores, -1)
    return (weights[..., :-1] if sinks is not None else weights) @ value


def attend(name: str, *inputs: Tensor, mask: str = "", dtype: str, numerics: str, sinks: bool = False) -> Tensor:
    heads = "B: Dim, H: Dim, Hk: Dim, Q: Dim, K: Dim, D: Dim"
    parameters = "q: Tensor[B, H, Q, D; T], k: Tensor[B, Hk, K, D; T], v: Tensor[B, Hk, K, D; T], "
    parameters += "sinks: Tensor[H; T], " if sinks else ""
    parameters += f"scale: f32, {f'm: Tensor[{mask}; bool]' if mask else ''}"
    names = "q, k, v, " + ("sinks, " if sinks else "") + "scale"
    names += "" if not mask else ", some(m)" if mask == "Q, K" else ", m"
    where = "where Hk > 0, H % Hk == 0"
    if name in ("attention", "attention_rows"):
        heads, parameters, where = heads.replace("Hk: Dim, ", ""), parameters.replace("Hk", "H"), ""
    entry = f"<{heads}>({parameters}) -> Tensor[B, H, Q, D; T] {where} {{ return {name}({names}) }}"
    split = 4 if sinks else 3
    scaled = [*inputs[:split], SCALE, *inputs[split:]]
    return run_std(f"use std.nn.attention::{{{name}}}", entry, *scaled, dtype=dtype, numerics=numerics)


@both
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("key_heads", [4, 2, 1])
def test_dense_and_grouped_attention(numerics, dtype, key_heads):
    query = random(2, 4, 3, 8, dtype=dtype)
    key, value = random(2, key_heads, 5, 8, dtype=dtype, seed=1), random(2, key_heads, 5, 8, dtype=dtype, seed=2)
    generator = torch.Generator().manual_seed(0)
    mask = torch.rand(2, 3, 5, generator=generator) < 0.6
    mask[..., 0] = True
    name = "attention" if key_heads == 4 else "grouped_attention"
    settings = {"dtype": dtype, "numerics": numerics}
    assert_within_one_rounding(attend(name, query, key, value, **settings), reference(query, key, value))
    assert_within_one_rounding(
        attend(name, query, key, value, mask[0], mask="Q, K", **settings), reference(query, key, value, mask[0])
    )
    assert_within_one_rounding(
        attend(f"{name}_rows", query, key, value, mask, mask="B, Q, K", **settings),
        reference(query, key, value, mask[:, None]),
    )


@both
def test_sinks_take_weight_and_give_no_value(numerics):
    query, key, value = random(2, 4, 3, 8), random(2, 2, 5, 8, seed=1), random(2, 2, 5, 8, seed=2)
    sinks, mask = random(4, seed=3), torch.ones(2, 3, 5, dtype=torch.bool).tril(2)
    found = attend(
        "sink_attention", query, key, value, sinks, mask, mask="B, Q, K", sinks=True, dtype="f32", numerics=numerics
    )
    assert_within_one_rounding(found, reference(query, key, value, mask[:, None], sinks))


@both
def test_a_query_that_sees_nothing_averages(numerics):
    query, key, value = random(1, 1, 2, 4), random(1, 1, 3, 4, seed=1), random(1, 1, 3, 4, seed=2)
    mask = torch.tensor([[False, False, False], [True, False, False]])
    found = attend("attention", query, key, value, mask, mask="Q, K", dtype="f32", numerics=numerics)
    torch.testing.assert_close(found[0, 0, 0], value[0, 0].mean(0))
    torch.testing.assert_close(found[0, 0, 1], value[0, 0, 0])


@pytest.mark.parametrize(("queries", "keys"), [(3, 3), (2, 5), (4, 2)])
def test_causal_mask_aligns_the_last_positions(queries, keys):
    entry = f"() -> Tensor[{queries}, {keys}; bool] {{ return causal_mask<{queries}, {keys}>() }}"
    found = run_std("use std.nn.attention::{causal_mask}", entry)
    wanted = [[k <= q + (keys - queries) for k in range(keys)] for q in range(queries)]
    assert found.tolist() == wanted


PAGED = "use std.nn.attention::{paged_attention, paged_prefill_attention}"
SIZES = "B: Dim, H: Dim, Hk: Dim, N: Dim, Pages: Dim, D: Dim"


@both
def test_paged_attention_reads_the_rows_own_pages(numerics):
    size, table = 4, torch.tensor([[5, 2, 0], [1, 99, -1], [3, 4, 77]])
    positions = torch.tensor([9, 2, 7])
    query, key, value = random(3, 4, 1, 8), random(1, 2, 24, 8, seed=1), random(1, 2, 24, 8, seed=2)
    entry = (
        f"<{SIZES}>(q: Tensor[B, H, 1, D; T], k: Tensor[1, Hk, N, D; T], v: Tensor[1, Hk, N, D; T], "
        "t: Tensor[B, Pages; i32], p: Tensor[B; i32], s: f32) -> Tensor[B, H, 1, D; T] where Hk > 0, H % Hk == 0 "
        f"{{ return paged_attention<B, H, Hk, N, Pages, {size}, D, T>(q, k, v, t, p, s) }}"
    )
    found = run_std(PAGED, entry, query, key, value, table, positions, SCALE, numerics=numerics)
    for row, position in enumerate(positions.tolist()):
        places = [int(table[row, s // size]) * size + s % size for s in range(position + 1)]
        wanted = reference(query[row : row + 1], key[:, :, places], value[:, :, places])
        assert_within_one_rounding(found[row : row + 1], wanted)


@both
def test_paged_prefill_attends_token_by_token(numerics):
    size, table = 4, torch.tensor([[5, 2], [1, 0]])
    rows, positions = torch.tensor([0, 1, 1, 0, 0]), torch.tensor([5, 0, 1, 6, 7])
    query, key, value = random(1, 4, 5, 8), random(1, 2, 24, 8, seed=1), random(1, 2, 24, 8, seed=2)
    entry = (
        "<P: Dim, H: Dim, Hk: Dim, N: Dim, Rows: Dim, Pages: Dim, D: Dim>(q: Tensor[1, H, P, D; T], "
        "k: Tensor[1, Hk, N, D; T], v: Tensor[1, Hk, N, D; T], t: Tensor[Rows, Pages; i32], r: Tensor[P; i32], "
        "p: Tensor[P; i32], s: f32) -> Tensor[1, H, P, D; T] where Hk > 0, H % Hk == 0 "
        f"{{ return paged_prefill_attention<P, H, Hk, N, Rows, Pages, {size}, D, T>(q, k, v, t, r, p, s) }}"
    )
    found = run_std(PAGED, entry, query, key, value, table, rows, positions, SCALE, numerics=numerics)
    for p, (row, position) in enumerate(zip(rows.tolist(), positions.tolist(), strict=True)):
        places = [int(table[row, s // size]) * size + s % size for s in range(position + 1)]
        wanted = reference(query[:, :, p : p + 1], key[:, :, places], value[:, :, places])
        assert_within_one_rounding(found[:, :, p : p + 1], wanted)


CACHE = "use std.nn.cache::{page_slots, write_at, write_rows, write_slot, write_slots, write_span, write_tokens}"
HEAD = "<B: Dim, H: Dim, S: Dim, D: Dim, M: Dim, N: Dim>(cache: Tensor[B, H, S, D; T], v: Tensor[M, H, N, D; T], "
WRITES = {
    "write_at": "<B: Dim, H: Dim, S: Dim, D: Dim>(cache: Tensor[B, H, S, D; T], v: Tensor[B, H, 1, D; T], at: i32)",
    "write_span": "<B: Dim, H: Dim, S: Dim, D: Dim, N: Dim>(cache: Tensor[B, H, S, D; T], v: Tensor[B, H, N, D; T],"
    " at: i32)",
    "write_rows": "<B: Dim, H: Dim, S: Dim, D: Dim>(cache: Tensor[B, H, S, D; T], v: Tensor[B, H, 1, D; T],"
    " at: Tensor[B; i32])",
    "write_slot": "<B: Dim, H: Dim, S: Dim, D: Dim, N: Dim>(cache: Tensor[B, H, S, D; T], v: Tensor[1, H, N, D; T],"
    " slot: i32, at: i32)",
    "write_slots": f"{HEAD}slots: Tensor[M; i32], at: i32)",
    "write_tokens": "<B: Dim, H: Dim, S: Dim, D: Dim, P: Dim>(cache: Tensor[B, H, S, D; T], v: Tensor[1, H, P, D; T],"
    " rows: Tensor[P; i32], positions: Tensor[P; i32])",
}


def write(name: str, numerics: str, cache: Tensor, value: Tensor, *places: Tensor | int) -> Tensor:
    names = [
        part.split(":")[0].strip()
        for part in WRITES[name].split("(", 1)[1].replace("; ", ";").split(", ")
        if ":" in part
    ]
    entry = f"{WRITES[name]} -> Tensor[B, H, S, D; T] {{ return {name}({', '.join(names)}) }}"
    return run_std(CACHE, entry, cache, value, *places, dtype="bf16", numerics=numerics)


def cases() -> dict[str, tuple[Tensor, tuple[Tensor | int, ...], list[tuple[int, int, int, int]]]]:
    """name -> value, places, and what is written: (row, slot, source row, source position)."""
    one, span = random(3, 2, 1, 4, dtype="bf16", seed=1), random(3, 2, 4, 4, dtype="bf16", seed=2)
    packed = random(1, 2, 5, 4, dtype="bf16", seed=3)
    rows, positions = torch.tensor([2, 0, 2, 1, 2]), torch.tensor([6, 0, 1, 3, 6])
    return {
        "write_at": (one, (6,), [(b, 6, b, 0) for b in range(3)]),
        "write_span": (span, (3,), [(b, 3 + n, b, n) for b in range(3) for n in range(4)]),
        "write_rows": (one, (torch.tensor([6, 0, 2]),), [(b, at, b, 0) for b, at in enumerate((6, 0, 2))]),
        "write_slot": (span[:1], (2, 1), [(2, 1 + n, 0, n) for n in range(4)]),
        "write_slots": (
            span[:2],
            (torch.tensor([2, 0]), 3),
            [(r, 3 + n, m, n) for m, r in ((0, 2), (1, 0)) for n in range(4)],
        ),
        "write_tokens": (packed, (rows, positions), [(2, 1, 0, 2), (0, 0, 0, 1), (1, 3, 0, 3), (2, 6, 0, 4)]),
    }


@both
@pytest.mark.parametrize("name", WRITES)
def test_writes_change_their_places_alone(numerics, name):
    cache = random(3, 2, 7, 4, dtype="bf16")
    value, places, written = cases()[name]
    wanted = cache.clone()
    for row, slot, m, n in written:
        wanted[row, :, slot] = value[m, :, n]
    before = cache.clone()
    assert torch.equal(write(name, numerics, cache, value, *places), wanted)
    assert torch.equal(cache, before)


@both
@pytest.mark.parametrize(
    ("name", "places"),
    [
        ("write_at", (7,)),
        ("write_at", (-1,)),
        ("write_span", (4,)),
        ("write_span", (-1,)),
        ("write_rows", (torch.tensor([0, 7, 1]),)),
        ("write_slot", (3, 0)),
        ("write_slot", (0, 4)),
        ("write_slots", (torch.tensor([0, 3]), 0)),
        ("write_slots", (torch.tensor([0, 1]), 4)),
        ("write_tokens", (torch.tensor([0, 0, 0, 3, 0]), torch.arange(5))),
        ("write_tokens", (torch.zeros(5), torch.tensor([0, 1, 2, 3, -1]))),
    ],
)
def test_a_write_outside_the_cache_is_an_error(numerics, name, places):
    places = tuple(p.to(torch.int32) if isinstance(p, Tensor) else p for p in places)
    with pytest.raises(IndexRangeError):
        write(name, numerics, random(3, 2, 7, 4, dtype="bf16"), cases()[name][0], *places)


@both
def test_empty_spans_and_packs_write_nothing(numerics):
    cache = random(3, 2, 7, 4, dtype="bf16")
    nothing = torch.zeros(0, dtype=torch.int32)
    assert torch.equal(write("write_span", numerics, cache, cache[:, :, :0], 2), cache)
    assert torch.equal(write("write_tokens", numerics, cache, cache[:1, :, :0], nothing, nothing), cache)


def test_page_slots():
    head = "<R: Dim, P: Dim>(t: Tensor[R, P; i32], p: Tensor[R; i32]) -> Tensor[R; i32]"
    entry = f"{head} {{ return page_slots<R, P, 4>(t, p) }}"
    table = torch.tensor([[3, 1], [0, 7]])
    assert run_std(CACHE, entry, table, torch.tensor([5, 3])).tolist() == [5, 3]
    assert run_std(CACHE, entry, table, torch.tensor([0, 7])).tolist() == [12, 31]
    for outside in (8, -1):
        with pytest.raises(IndexRangeError):
            run_std(CACHE, entry, table, torch.tensor([0, outside]))
