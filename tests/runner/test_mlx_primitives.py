"""Each primitive on MLX against the torch interpreter, on the same graphs and inputs."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

pytest.importorskip("mlx.core", reason="MLX is not installed")

from graph_support import FLOATS, INTEGERS, GraphMaker, execute, integer_tensor
from mlx_support import execute_on_mlx

from linnet.language.program.core import PRIMITIVES
from linnet.runner.errors import IndexRangeError, IntegerDivisionError
from linnet.runner.mlx.dtypes import from_torch, to_torch
from linnet.runner.mlx.primitives import BUILDERS
from linnet.runner.torch.dtypes import NATIVE, integer_range

CONTROL = {"param", "state.read", "state.write", "call", "while", "for", "if"}
# Steps of the dtype that two libraries' functions may differ by; f64 functions are NumPy's.
STEPS = {"f16": 1, "bf16": 1, "f32": 16, "f64": 4}
EPS = {"f16": 2**-10, "bf16": 2**-7, "f32": 2**-23, "f64": 2**-52}


def test_every_primitive_has_a_builder() -> None:
    assert set(BUILDERS) | CONTROL == set(PRIMITIVES)


def both(
    op: str, inputs: list[torch.Tensor], dtypes: list[str], shape: tuple[int, ...], dtype: str, **attributes: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """What MLX and torch make of one primitive."""
    make = GraphMaker()
    values = [make.input(tuple(x.shape), d) for x, d in zip(inputs, dtypes, strict=True)]
    graph = make.graph(make.node(op, values, shape, dtype, **attributes))
    return execute_on_mlx(graph, *inputs)[0], execute(graph, *inputs)[0]


def agree(found: torch.Tensor, expected: torch.Tensor, dtype: str, scale: float = 1.0) -> None:
    """Equal, or for floats within a few steps of the dtype; NaN at the same places."""
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    if dtype not in FLOATS:
        assert torch.equal(found, expected)
        return
    torch.testing.assert_close(
        found, expected, rtol=scale * STEPS[dtype] * EPS[dtype], atol=scale * EPS[dtype], equal_nan=True
    )


def corners(dtype: str) -> list[int]:
    """Extremes of an integer dtype, and small numbers."""
    least, greatest = integer_range(dtype)
    return [
        least,
        least + 1,
        greatest,
        greatest - 1,
        greatest // 2 + 1,
        0,
        1,
        2,
        3,
        7,
        13,
        max(least, -1),
        max(least, -5),
    ]


def pairs(dtype: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Every pair of corners."""
    values = corners(dtype)
    return (
        integer_tensor([a for a in values for _ in values], dtype),
        integer_tensor([b for _ in values for b in values], dtype),
    )


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_arithmetic(dtype: str) -> None:
    a, b = pairs(dtype)
    for op in ("add", "sub", "mul", "min", "max", "and", "or", "xor", "shl", "shr"):
        agree(*both(op, [a, b], [dtype, dtype], (len(a),), dtype), dtype)
    for op in ("eq", "ne", "lt", "le", "gt", "ge"):
        agree(*both(op, [a, b], [dtype, dtype], (len(a),), "bool"), "bool")
    for op in ("neg", "not", "abs"):
        agree(*both(op, [a], [dtype], (len(a),), dtype), dtype)
    values = corners(dtype)
    divisors = [v for v in values if v]
    a = integer_tensor([v for v in values for _ in divisors], dtype)
    b = integer_tensor([v for _ in values for v in divisors], dtype)
    for op in ("div", "rem"):
        agree(*both(op, [a, b], [dtype, dtype], (len(a),), dtype), dtype)


def test_integer_division_by_zero_is_an_error() -> None:
    one, zero = torch.ones(2, dtype=torch.int32), torch.tensor([1, 0], dtype=torch.int32)
    for op, named in (("div", "division"), ("rem", "remainder")):
        with pytest.raises(IntegerDivisionError, match=f"integer {named} by zero"):
            both(op, [one, zero], ["i32", "i32"], (2,), "i32")


NUMBERS = [0.0, -0.0, 1.0, -1.5, 0.3, 2.75, -7.0, 11.25, 80.0, math.inf, -math.inf, math.nan]


@pytest.mark.parametrize("dtype", FLOATS)
def test_float_arithmetic_and_functions(dtype: str) -> None:
    values = torch.tensor(NUMBERS, dtype=NATIVE[dtype])
    a, b = values.repeat_interleave(len(values)), values.repeat(len(values))
    for op in ("add", "sub", "mul", "div", "min", "max"):
        found, expected = both(op, [a, b], [dtype, dtype], (len(a),), dtype)
        torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
    found, expected = both("rem", [a, b], [dtype, dtype], (len(a),), dtype)
    # torch's fmod of a finite number and infinity differs between its loops; C has the number itself.
    finite = b.isfinite()
    torch.testing.assert_close(found[finite], expected[finite], rtol=0, atol=0, equal_nan=True)
    for op in ("eq", "ne", "lt", "le", "gt", "ge"):
        agree(*both(op, [a, b], [dtype, dtype], (len(a),), "bool"), "bool")
    for op in ("neg", "abs", "exp", "log", "sqrt", "rsqrt", "sin", "cos", "tanh"):
        agree(*both(op, [values], [dtype], (len(values),), dtype), dtype)


def test_bools() -> None:
    a, b = torch.tensor([True, True, False, False]), torch.tensor([True, False, True, False])
    for op in ("and", "or", "xor", "eq", "ne"):
        agree(*both(op, [a, b], ["bool", "bool"], (4,), "bool"), "bool")
    agree(*both("not", [a], ["bool"], (4,), "bool"), "bool")
    for kind in ("any", "all"):
        agree(*both("reduce", [a], ["bool"], (), "bool", kind=kind, axes=[0]), "bool")


@pytest.mark.parametrize("source", [*INTEGERS, *FLOATS, "bool"])
def test_casts(source: str) -> None:
    if source == "bool":
        x = torch.tensor([True, False])
    elif source in FLOATS:
        x = torch.tensor([0.0, 1.5, 2.5, 100.75], dtype=NATIVE[source])
    else:
        x = integer_tensor(corners(source), source)
    for result in [*INTEGERS, *FLOATS, "bool"]:
        if result != source:
            agree(*both("cast", [x], [source], (len(x),), result), result)
    if source in FLOATS:
        negative = torch.tensor([-1.5, -100.0], dtype=NATIVE[source])
        for result in ("i8", "i32", "i64", "u8", "u16", "u32"):
            agree(*both("cast", [negative], [source], (2,), result), result)


@pytest.mark.parametrize("dtype", ["i8", "u64", "f32", "bf16", "bool"])
def test_structure(dtype: str) -> None:
    x = (torch.arange(24).reshape(2, 3, 4) % 2).to(NATIVE[dtype])
    for op, shape, attributes in (
        ("reshape", (4, 6), {}),
        ("permute", (4, 2, 3), {"axes": [2, 0, 1]}),
        ("slice", (1, 2, 2), {"starts": [1, 0, 0], "stops": [2, 3, 4], "steps": [1, 2, 2]}),
        ("broadcast", (5, 2, 3, 4), {}),
    ):
        agree(*both(op, [x], [dtype], shape, dtype, **attributes), dtype)
    agree(*both("concat", [x, x], [dtype] * 2, (2, 6, 4), dtype, axis=1), dtype)
    other = (torch.arange(24).reshape(2, 3, 4) % 3 == 1).to(NATIVE[dtype])
    agree(*both("select", [x == 1, x, other], ["bool", dtype, dtype], (2, 3, 4), dtype), dtype)


def test_iota_and_constants() -> None:
    for dtype in [*INTEGERS, *FLOATS]:
        agree(*both("iota", [], [], (7,), dtype), dtype)
        agree(*both("constant", [], [], (), dtype, value=3), dtype)
    agree(*both("constant", [], [], (), "u64", value=2**64 - 1), "u64")
    agree(*both("constant", [], [], (), "f64", value=0.1), "f64")
    agree(*both("constant", [], [], (), "f32", value=-math.inf), "f32")


@pytest.mark.parametrize("dtype", ["i8", "u16", "i32", "u64", *FLOATS])
def test_reductions_and_sums(dtype: str) -> None:
    if dtype in FLOATS:
        x = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(1)).to(NATIVE[dtype])
    else:
        x = integer_tensor(corners(dtype)[:12] * 5, dtype).reshape(3, 4, 5)
    for kind in ("sum", "prod", "min", "max"):
        for axes, shape in (([0], (4, 5)), ([1, 2], (3,)), ([0, 1, 2], ()), ([], (3, 4, 5))):
            agree(*both("reduce", [x], [dtype], shape, dtype, kind=kind, axes=axes), dtype, scale=8)
        empty = torch.zeros((0, 3), dtype=NATIVE[dtype])
        agree(*both("reduce", [empty], [dtype], (3,), dtype, kind=kind, axes=[0]), dtype)
        agree(*both("reduce", [empty], [dtype], (0,), dtype, kind=kind, axes=[1]), dtype)
    agree(*both("cumsum", [x], [dtype], (3, 4, 5), dtype, axis=1), dtype, scale=8)
    agree(*both("cumsum", [empty], [dtype], (0, 3), dtype, axis=0), dtype)


def test_sums_of_halves_are_kept_in_f32() -> None:
    ones = torch.ones(1001, dtype=torch.bfloat16)
    for op, attributes in (("reduce", {"kind": "sum", "axes": [0]}), ("cumsum", {"axis": 0})):
        shape = () if op == "reduce" else (1001,)
        found, expected = both(op, [ones], ["bf16"], shape, "bf16", **attributes)
        assert torch.equal(found, expected)
        assert found.reshape(-1)[-1] == 1000
    found, expected = both("contract", [ones[None], ones[:, None]], ["bf16"] * 2, (1, 1), "bf16", spec="ij,jk->ik")
    assert torch.equal(found, expected)
    assert found.item() == 1000


def test_reductions_carry_nan() -> None:
    x = torch.ones(40)
    x[21] = math.nan
    for kind in ("min", "max", "sum"):
        found, _ = both("reduce", [x], ["f32"], (), "f32", kind=kind, axes=[0])
        assert found.isnan()


@pytest.mark.parametrize("dtype", ["i32", "u8", *FLOATS])
@pytest.mark.parametrize(
    ("spec", "a", "b", "shape"),
    [
        ("ij,jk->ik", (3, 4), (4, 5), (3, 5)),
        ("bij,bkj->bik", (2, 3, 4), (2, 5, 4), (2, 3, 5)),
        ("i,j->ij", (3,), (4,), (3, 4)),
        ("ij,ij->", (3, 4), (3, 4), ()),
        ("ij,k->k", (3, 4), (5,), (5,)),
        ("ijk,lk->jil", (2, 3, 4), (5, 4), (3, 2, 5)),
        ("ij,jk->ik", (3, 0), (0, 5), (3, 5)),
    ],
)
def test_contractions(dtype: str, spec: str, a: tuple[int, ...], b: tuple[int, ...], shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(3)
    if dtype in FLOATS:
        left, right = (torch.randn(s, generator=generator).to(NATIVE[dtype]) for s in (a, b))
    else:
        left, right = (torch.randint(0, 100, s, generator=generator).to(NATIVE[dtype]) for s in (a, b))
    agree(*both("contract", [left, right], [dtype] * 2, shape, dtype, spec=spec), dtype, scale=8)


@pytest.mark.parametrize("unsigned", ["i32", "i64", "u8", "u64"])
def test_gathers(unsigned: str) -> None:
    x = torch.arange(60.0).reshape(3, 4, 5)
    i, j = (torch.tensor(v).to(NATIVE[unsigned]) for v in ([[2, 0], [1, 1]], [[3, 0], [2, 1]]))
    for axis, size in ((0, (4, 5)), (1, (3, 5)), (2, (3, 4))):
        index = i if axis == 0 else j
        found, expected = both("gather", [x, index], ["f32", unsigned], (2, 2, *size), "f32", axes=[axis], label="x")
        assert torch.equal(found, expected)
    for axes, rest in (([0, 1], (5,)), ([0, 2], (4,)), ([1, 2], (3,))):
        dtypes = ["f32", unsigned, unsigned]
        found, expected = both("gather", [x, i, j], dtypes, (2, 2, *rest), "f32", axes=axes, label="x")
        assert torch.equal(found, expected)


def test_gathers_outside_are_errors() -> None:
    x = torch.arange(6.0).reshape(2, 3)
    for index, position in ([2], 2), ([0, -1], -1), ([5, 1], 5):
        tensor = torch.tensor(index, dtype=torch.int32)
        with pytest.raises(IndexRangeError, match=f"position {position} is outside table") as caught:
            both("gather", [x, tensor], ["f32", "i32"], (len(index), 3), "f32", axes=[0], label="table")
        assert caught.value.size == 2


def test_tensors_survive_the_way_to_mlx_and_back() -> None:
    for name, dtype in NATIVE.items():
        x = integer_tensor(corners(name), name) if name in INTEGERS else torch.tensor([0, 1, 1, 0]).to(dtype)
        found = to_torch(from_torch(x, name))
        assert found.dtype == dtype
        assert torch.equal(found, x)
