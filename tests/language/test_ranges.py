"""Safe input ranges: what is drawn from them never leaves an axis, and they are no tighter than they have to be."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lowering_support import lowered

from linnet.language.check import load
from linnet.language.program.binding import BoundProgram, bind
from linnet.language.program.checked import Program
from linnet.language.program.core import EntryGraph, TensorSpec
from linnet.language.program.intervals import Interval
from linnet.language.program.ranges import InputBoundsError, input_bounds
from linnet.runner.errors import IndexRangeError
from linnet.runner.torch.module import load_model

INDEX = "fn at<N: Dim>(x: Tensor[N; f32], i: i64) -> f32 { return x[i] }\n"


def bounds(body: str, parameters: str = "p: i32", result: str = "f32", size: int = 10) -> dict[str, Interval]:
    """The bounds of a program that may index `x`, of `size` elements, by `at`."""
    text = f"pub entry run(x: Tensor[{size}; f32], {parameters}) -> {result} {{ {body} }}"
    return input_bounds(lowered(INDEX + text))


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        ("p", (0, 9)),
        ("p + 3", (-3, 6)),
        ("p - 1", (1, 10)),
        ("4 - p", (-5, 4)),
        ("-p", (-9, 0)),
        ("p * 3", (0, 3)),
        ("p * -2", (-4, 0)),
        ("p / 3", (-2, 29)),
        ("p % 4", (0, 2147483647)),
        ("p % 20", (0, 9)),
        ("(p + 100) % 20 + 3", (-103, -94)),
        ("max(p, 0)", (-2147483648, 9)),
        ("min(max(p, 0), 9)", (-2147483648, 2147483647)),
        ("min(p, 5)", (0, 2147483647)),
        ("shl(p, 1)", (0, 4)),
        ("p & 7", (-2147483648, 2147483647)),
        ("select(p > 3, p, 0)", (-2147483648, 9)),
        ("select(p <= 3, 3, p)", (-2147483648, 9)),
        ("select(p < 2, p, 1)", (0, 2147483647)),
        ("select(p % 5 >= 4, p % 5, 2)", (-2147483648, 2147483647)),
        ("if p == 4 { p } else { 4 }", (0, 9)),
    ],
)
def test_the_bounds_of_one_position(position: str, expected: Interval) -> None:
    low, high = expected
    # An open end is drawn near zero, or near the other end.
    high = max(low, 1) if high == 2147483647 else high
    low = min(high, 0) if low == -2147483648 else low
    assert bounds(f"let i: i32 = {position} return at(x, cast<i64>(i))") == {"p": (low, high)}


def test_an_input_that_indexes_nothing_is_drawn_small() -> None:
    assert bounds("return x[0] + cast<f32>(p)") == {"p": (0, 1)}


def test_only_integers_have_bounds() -> None:
    assert bounds("return x[0] + y", "y: f32, c: bool") == {}


def test_the_bounds_of_every_use_hold_together() -> None:
    assert bounds("return at(x, cast<i64>(p + 2)) + at(x, cast<i64>(p - 1))") == {"p": (1, 7)}


def test_no_value_is_safe() -> None:
    with pytest.raises(InputBoundsError, match=r"no value of `p` keeps every position inside its axis"):
        bounds("return at(x, cast<i64>(p + 20)) + at(x, cast<i64>(p))")


def test_two_inputs_share_an_axis() -> None:
    body = "return at(x, cast<i64>(p + q))"
    found = bounds(body, "p: i32, q: i32")
    assert sum(high for _, high in found.values()) <= 9
    assert sum(low for low, _ in found.values()) >= 0
    assert found == {"p": (0, 9), "q": (0, 0)}
    # Where the other is already bounded, the first takes what is left.
    found = bounds(body + " + x[q + 2]", "p: i32, q: i32", size=10)
    assert found == {"p": (2, 2), "q": (-2, 7)}


def test_tensors_of_positions_through_structure() -> None:
    body = (
        "let a[i] = p[i, 0] + q[i] let both = concat(a, reshape(p, [6])[0:3], axis = 0) "
        "let t = broadcast_to(both, [2, 6]) let y[b, i] = x[cast<i64>(t[b, i])] + cast<f32>(b_of()[b]) return y"
    )
    text = (
        "fn b_of() -> Tensor[2; i32] { return iota<i32>(2) }\n"
        "pub entry run(x: Tensor[10; f32], p: Tensor[3, 2; i32], q: Tensor[3; u8]) -> Tensor[2, 6; f32] { BODY }"
    )
    cast_q = body.replace("q[i]", "cast<i32>(q[i])")
    assert input_bounds(lowered(text.replace("BODY", cast_q))) == {"p": (0, 9), "q": (0, 0)}


def test_a_table_of_pages() -> None:
    text = (
        "use std.nn.cache::{page_slots}\n"
        "pub entry run(pool: Tensor[24; f32], table: Tensor[2, 3; i32], positions: Tensor[2; i32]) -> Tensor[2; f32] "
        "{ let slots = page_slots<2, 3, 4>(table, positions) let y[r] = pool[slots[r]] return y }"
    )
    assert input_bounds(lowered(text)) == {"table": (0, 5), "positions": (0, 11)}


def test_a_counter_of_a_loop_is_bounded_by_its_condition() -> None:
    loop = "var i: i32 = 0 var y = x[0] while i < 4 && y < 3.0 { y = y + at(x, cast<i64>(p + i)) i = i + 1 } return y"
    assert bounds(loop) == {"p": (0, 6)}
    reversed_loop = "var i: i32 = 7 var y = x[0] while i >= 2 { y = y + x[p - i] i = i - 1 } return y"
    assert bounds(reversed_loop) == {"p": (7, 11)}


def test_a_carried_position_keeps_its_range() -> None:
    assert bounds("var i = p var y = x[0] while y < 3.0 { y = y + x[i] i = min(i + 1, 9) } return y") == {"p": (0, 9)}


def test_the_counter_of_a_range_loop() -> None:
    assert bounds("var y = x[0] for t in 2..5 { y = y + x[t + cast<i64>(p)] } return y") == {"p": (-2, 5)}
    scan = "let y = for t in 0..3 { let v = x[t + cast<i64>(p)] yield v } return y"
    assert bounds(scan, result="Tensor[3; f32]") == {"p": (0, 7)}


def test_both_branches_count() -> None:
    assert bounds("return if x[0] < 1.0 { x[p] } else { x[p + 4] }") == {"p": (0, 5)}


def test_a_conversion_that_may_wrap() -> None:
    assert bounds("return x[cast<u8>(p)]", size=300) == {"p": (0, 1)}
    assert bounds("return x[cast<u8>(p)]", size=100) == {"p": (0, 99)}


@cache
def seed_source(seed: Path) -> Program:
    program = load(seed / "qwen3-8b-fp8" / "src" / "lib.linnet").program
    assert program is not None
    return program


def seed_program(seed: Path, **generics: int | str) -> BoundProgram:
    card = {"Vocab": 32, "H": 128, "Heads": 2, "KvHeads": 1, "HeadDim": 128, "Inner": 128, "Layers": 1}
    return bind(seed_source(seed), "Model", {**card, "Batch": 2, "MaxSeq": 8, "PageSize": 2, "T": "f32", **generics})


ENTRY_GENERICS = {"B": 2, "S": 3, "P": 3, "M": 1, "Rows": 2, "Pages": 2, "Steps": 2, "MaxNew": 3}
EXPECTED: dict[str, dict[str, Interval]] = {
    "forward": {"tokens": (0, 31)},
    "decode": {"token": (0, 31), "pos": (0, 7)},
    "prefill": {"tokens": (0, 31), "pos": (0, 5)},
    "prefill_slots": {"tokens": (0, 31), "slots": (0, 1), "lengths": (1, 3)},
    "loss_packed": {"tokens": (0, 31), "positions": (0, 7), "segments": (0, 1), "targets": (0, 31)},
    "decode_paged": {"tokens": (0, 31), "positions": (0, 3), "table": (0, 3)},
    "prefill_paged": {
        "tokens": (0, 31),
        "positions": (0, 7),
        "rows": (0, 1),
        "slots": (0, 7),
        "last": (0, 2),
        "table": (0, 3),
    },
    "generate": {"token": (0, 31), "pos": (0, 6)},
    "sample": {"token": (0, 31), "pos": (0, 6), "key": (0, 1)},
    "generate_until": {"token": (0, 31), "pos": (0, 5), "eos": (0, 1)},
}


def own_generics(model: BoundProgram, entry: str, values: dict[str, int]) -> dict[str, int | str]:
    return {decl.name: values[decl.name] for decl in model.entries()[entry].generics}


@pytest.mark.parametrize("entry", EXPECTED)
def test_the_bounds_of_the_seeds_entries(seed: Path, entry: str) -> None:
    model = seed_program(seed)
    graph = model.lower(entry, own_generics(model, entry, ENTRY_GENERICS))
    assert input_bounds(graph) == EXPECTED[entry]


def test_a_prompt_longer_than_the_cache_has_no_safe_position(seed: Path) -> None:
    with pytest.raises(InputBoundsError, match="no value of `pos`"):
        input_bounds(seed_program(seed, MaxSeq=4).lower("prefill", {"S": 5}))


def random_weights(model: BoundProgram) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    made = {}
    for weight in model.manifest.required():
        values = torch.rand(weight.shape, generator=generator)
        made[weight.path] = (values * 100).to(torch.uint8) if weight.dtype == "u8" else values * 0.01
    return made


def tensor(spec: TensorSpec, between: Interval | None, how: str) -> torch.Tensor:
    """An input: an integer one at the bottom or top of its range, or drawn from it."""
    if between is None:
        return torch.full(spec.shape, 0.7)
    low, high = {"low": (between[0], between[0]), "high": (between[1], between[1]), "any": between}[how]
    return torch.randint(low, high + 1, spec.shape, dtype={"i32": torch.int32, "i64": torch.int64}[spec.dtype])


def inputs_for(graph: EntryGraph, how: str) -> dict[str, torch.Tensor]:
    found = input_bounds(graph)
    return {value.name: tensor(value.spec, found.get(value.name), how) for value in graph.inputs}


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(["decode", "prefill", "prefill_slots", "step_packed", "decode_paged", "step_paged", "sample"]),
    st.fixed_dictionaries({name: st.integers(1, 4) for name in ENTRY_GENERICS}),
    st.integers(1, 3),
    st.integers(5, 9),
)
def test_what_is_drawn_from_the_bounds_runs(
    seed: Path, entry: str, values: dict[str, int], page_size: int, length: int
) -> None:
    model = seed_program(seed, PageSize=page_size, MaxSeq=length)
    generics = own_generics(model, entry, values)
    graph = model.lower(entry, generics)
    loaded = load_model(model, random_weights(model))
    for how in ("low", "high", "any"):
        loaded.run_entry(entry, inputs_for(graph, how), generics)


@pytest.mark.parametrize(
    ("entry", "name"), [("decode", "pos"), ("prefill", "pos"), ("decode_paged", "table"), ("prefill_slots", "lengths")]
)
def test_the_value_past_the_bounds_does_not_run(seed: Path, entry: str, name: str) -> None:
    model = seed_program(seed)
    generics = own_generics(model, entry, ENTRY_GENERICS)
    graph = model.lower(entry, generics)
    loaded = load_model(model, random_weights(model))
    inputs = inputs_for(graph, "high")
    inputs[name] = inputs[name] + 1
    with pytest.raises(IndexRangeError):
        loaded.run_entry(entry, inputs, generics)
