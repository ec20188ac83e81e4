"""Each primitive against Python's integers, numpy, or torch by hand."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable

import numpy as np
import pytest
import torch
from graph_support import CPU, FLOATS, INTEGERS, GraphMaker, execute, integer_tensor, integers, primitive, wrapped
from hypothesis import given
from hypothesis import strategies as st

from linnet.language.program.core import PRIMITIVES
from linnet.runner.errors import IndexRangeError, IntegerDivisionError
from linnet.runner.torch.dtypes import NATIVE, WIDTH, integer_range
from linnet.runner.torch.primitives import BUILDERS, _integer_contract

CONTROL = {"param", "state.read", "state.write", "call", "while", "for", "if"}


def test_every_primitive_has_a_builder() -> None:
    assert set(BUILDERS) | CONTROL == set(PRIMITIVES)


# Integers


def truncated(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def shifted(a: int, b: int, dtype: str, left: bool) -> int:
    count = b % 2 ** WIDTH[dtype]
    if count >= WIDTH[dtype]:
        return -1 if not left and a < 0 else 0
    return a << count if left else a >> count


ARITHMETIC: dict[str, Callable[[int, int, str], int]] = {
    "add": lambda a, b, t: a + b,
    "sub": lambda a, b, t: a - b,
    "mul": lambda a, b, t: a * b,
    "div": lambda a, b, t: truncated(a, b),
    "rem": lambda a, b, t: a - truncated(a, b) * b,
    "min": lambda a, b, t: min(a, b),
    "max": lambda a, b, t: max(a, b),
    "and": lambda a, b, t: a & b,
    "or": lambda a, b, t: a | b,
    "xor": lambda a, b, t: a ^ b,
    "shl": lambda a, b, t: shifted(a, b, t, left=True),
    "shr": lambda a, b, t: shifted(a, b, t, left=False),
}
COMPARISON = {name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")}


@st.composite
def pairs(draw: st.DrawFn) -> tuple[str, list[int], list[int]]:
    """A dtype and two lists of its values, extremes and small numbers often among them."""
    dtype = draw(st.sampled_from(INTEGERS))
    least, greatest = integer_range(dtype)
    value = st.one_of(
        st.sampled_from([least, least + 1, greatest, greatest // 2 + 1]),
        st.integers(max(least, -3), 70),
        st.integers(least, greatest),
    )
    size = draw(st.integers(1, 40))
    return (
        dtype,
        draw(st.lists(value, min_size=size, max_size=size)),
        draw(st.lists(value, min_size=size, max_size=size)),
    )


@pytest.mark.parametrize("op", sorted(ARITHMETIC))
@given(case=pairs())
def test_integer_arithmetic_is_modular(op: str, case: tuple[str, list[int], list[int]]) -> None:
    dtype, a, b = case
    if op in ("div", "rem"):
        b = [v or 1 for v in b]
    made = primitive(op, [integer_tensor(a, dtype), integer_tensor(b, dtype)], [dtype] * 2, (len(a),), dtype)
    assert made.dtype == NATIVE[dtype]
    assert integers(made, dtype) == [wrapped(ARITHMETIC[op](x, y, dtype), dtype) for x, y in zip(a, b, strict=True)]


@pytest.mark.parametrize("op", sorted(COMPARISON))
@given(case=pairs())
def test_integer_comparison(op: str, case: tuple[str, list[int], list[int]]) -> None:
    dtype, a, b = case
    made = primitive(op, [integer_tensor(a, dtype), integer_tensor(b, dtype)], [dtype] * 2, (len(a),), "bool")
    assert made.tolist() == [COMPARISON[op](x, y) for x, y in zip(a, b, strict=True)]


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("op", ["shl", "shr", "div", "rem"])
def test_a_constant_operand_gives_the_same_as_a_tensor(op: str, dtype: str) -> None:
    least, greatest = integer_range(dtype)
    values = [least, least + 1, 0, 1, 5, greatest]
    for constant in (1, 3, WIDTH[dtype] - 1, WIDTH[dtype]):
        make = GraphMaker()
        x = make.input((6,), dtype)
        number = make.node("constant", [], (), dtype, value=constant)
        (made,) = execute(make.graph(make.node(op, [x, number], (6,), dtype)), integer_tensor(values, dtype))
        assert integers(made, dtype) == [wrapped(ARITHMETIC[op](v, constant, dtype), dtype) for v in values]


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("op", ["div", "rem"])
def test_integer_division_by_zero_raises(op: str, dtype: str) -> None:
    with pytest.raises(IntegerDivisionError, match="by zero"):
        primitive(op, [integer_tensor([4, 4], dtype), integer_tensor([2, 0], dtype)], [dtype] * 2, (2,), dtype)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_unary(dtype: str) -> None:
    least, greatest = integer_range(dtype)
    values = [least, 0, 1, 2, greatest]
    x = integer_tensor(values, dtype)
    for op, rule in (("neg", operator.neg), ("abs", abs), ("not", operator.invert)):
        assert integers(primitive(op, [x], [dtype], (5,), dtype), dtype) == [wrapped(rule(v), dtype) for v in values]


@given(case=pairs(), target=st.sampled_from(INTEGERS))
def test_integer_casts_keep_the_low_bits(case: tuple[str, list[int], list[int]], target: str) -> None:
    dtype, values, _ = case
    made = primitive("cast", [integer_tensor(values, dtype)], [dtype], (len(values),), target)
    assert integers(made, target) == [wrapped(v, target) for v in values]


@given(case=pairs(), target=st.sampled_from(["f32", "f64"]))
def test_integers_to_floats_round_once(case: tuple[str, list[int], list[int]], target: str) -> None:
    dtype, values, _ = case
    made = primitive("cast", [integer_tensor(values, dtype)], [dtype], (len(values),), target)
    kind = np.float32 if target == "f32" else np.float64
    assert made.tolist() == [float(kind(v)) for v in values]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_floats_to_integers_truncate_toward_zero(dtype: str) -> None:
    values = [0.0, 0.9, 1.5, 100.99] + ([-0.9, -1.5, -100.99] if dtype.startswith("i") else [])
    made = primitive("cast", [torch.tensor(values)], ["f32"], (len(values),), dtype)
    assert integers(made, dtype) == [math.trunc(v) for v in values]


def test_the_upper_half_of_u64_survives_casts() -> None:
    x = torch.tensor([2.0**63, 2.0**63 + 2**12, 1.0], dtype=torch.float64)
    made = primitive("cast", [x], ["f64"], (3,), "u64")
    assert integers(made, "u64") == [2**63, 2**63 + 2**12, 1]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_reductions(dtype: str) -> None:
    least, greatest = integer_range(dtype)
    values = [greatest, greatest, 3, least, 7, 1]
    x = integer_tensor(values, dtype).view(2, 3)
    rows = [values[:3], values[3:]]
    for kind, rule in (("sum", sum), ("prod", math.prod), ("max", max), ("min", min)):
        made = primitive("reduce", [x], [dtype], (2,), dtype, kind=kind, axes=(1,))
        assert integers(made, dtype) == [wrapped(rule(row), dtype) for row in rows], kind


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_contraction_wraps(dtype: str) -> None:
    least, greatest = integer_range(dtype)
    a, b = [greatest, 2, least, 3], [2, 5, 1, 1]
    inputs = [integer_tensor(a, dtype).view(2, 2), integer_tensor(b, dtype).view(2, 2)]
    made = primitive("contract", inputs, [dtype] * 2, (2, 2), dtype, spec="ik,jk->ij")
    expected = [sum(a[2 * i + k] * b[2 * j + k] for k in range(2)) for i in range(2) for j in range(2)]
    assert integers(made, dtype) == [wrapped(v, dtype) for v in expected]


@pytest.mark.parametrize("spec", ["ik,jk->ij", "bik,bkj->bij", "ij,j->i", "ij,kl->ijkl", "ij,ij->", "ji,k->ik"])
def test_the_contraction_for_other_devices_agrees(spec: str) -> None:
    shapes = [[{"i": 2, "j": 3, "k": 4, "l": 2, "b": 2}[c] for c in part] for part in spec.split("->")[0].split(",")]
    a, b = (torch.randint(-9, 9, shape, dtype=torch.int32) for shape in shapes)
    assert torch.equal(_integer_contract(spec, a, b), torch.einsum(spec, a.long(), b.long()).int())


# Floats


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("op", ["add", "sub", "mul", "div", "min", "max"])
def test_float_arithmetic_rounds_once_in_its_dtype(op: str, dtype: str) -> None:
    generator = torch.Generator().manual_seed(1)
    a, b = (torch.randn(50, generator=generator).to(NATIVE[dtype]) for _ in range(2))
    rule = {"add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div, "min": torch.minimum}
    exact = rule.get(op, torch.maximum)(a.double(), b.double())
    made = primitive(op, [a, b], [dtype] * 2, (50,), dtype)
    assert torch.equal(made, exact.to(NATIVE[dtype]))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("op", ["exp", "log", "sqrt", "rsqrt", "sin", "cos", "tanh", "abs", "neg"])
def test_float_unary_is_near_the_true_value(op: str, dtype: str) -> None:
    x = torch.linspace(0.1, 3.0, 40).to(NATIVE[dtype])
    made = primitive(op, [x], [dtype], (40,), dtype)
    torch.testing.assert_close(
        made.double(), getattr(torch, op)(x.double()), rtol=4 * torch.finfo(x.dtype).eps, atol=1e-7
    )


def test_remainder_of_floats_has_the_dividends_sign() -> None:
    a, b = torch.tensor([5.5, -5.5, 5.5]), torch.tensor([2.0, 2.0, -2.0])
    assert primitive("rem", [a, b], ["f32"] * 2, (3,), "f32").tolist() == [1.5, -1.5, 1.5]


def test_a_constant_is_rounded_to_its_dtype() -> None:
    make = GraphMaker()
    (made,) = execute(make.graph(make.node("constant", [], (), "bf16", value=0.1)))
    assert made.item() == torch.tensor(0.1, dtype=torch.bfloat16).item()


def test_the_least_i64_and_the_greatest_u64_are_constants() -> None:
    for dtype in ("i64", "u64"):
        for value in integer_range(dtype):
            make = GraphMaker()
            (made,) = execute(make.graph(make.node("constant", [], (), dtype, value=value)))
            assert integers(made, dtype) == [value]


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_contraction_accumulates_in_its_dtype(dtype: str) -> None:
    a = torch.randn(7, 300, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    exact = a @ a.T
    x = a.to(NATIVE[dtype])
    made = primitive("contract", [x, x], [dtype] * 2, (7, 7), dtype, spec="ik,jk->ij")
    assert (made.double() - exact).abs().max() <= 300 * torch.finfo(x.dtype).eps * 10


# Structure


def test_bool_operations() -> None:
    a, b = torch.tensor([True, True, False, False]), torch.tensor([True, False, True, False])
    for op, rule in (("and", a & b), ("or", a | b), ("xor", a ^ b), ("eq", a == b), ("ne", a != b)):
        assert torch.equal(primitive(op, [a, b], ["bool"] * 2, (4,), "bool"), rule)
    assert torch.equal(primitive("not", [a], ["bool"], (4,), "bool"), ~a)
    for kind, expected in (("any", True), ("all", False)):
        assert primitive("reduce", [a], ["bool"], (), "bool", kind=kind, axes=(0,)).item() is expected


def test_broadcasting_is_right_aligned() -> None:
    a, b = torch.randn(3, 1, 4), torch.randn(2, 4)
    assert torch.equal(primitive("add", [a, b], ["f32"] * 2, (3, 2, 4), "f32"), a + b)
    condition = torch.tensor([[True], [False]])
    made = primitive("select", [condition, a, b], ["bool", "f32", "f32"], (3, 2, 4), "f32")
    assert torch.equal(made, torch.where(condition, a, b))
    assert torch.equal(primitive("broadcast", [b], ["f32"], (5, 2, 4), "f32"), b.expand(5, 2, 4))


def test_structural_primitives() -> None:
    x = torch.arange(24.0).view(2, 3, 4)
    assert torch.equal(primitive("reshape", [x], ["f32"], (4, 6), "f32"), x.view(4, 6))
    assert torch.equal(primitive("permute", [x], ["f32"], (4, 2, 3), "f32", axes=(2, 0, 1)), x.permute(2, 0, 1))
    sliced = primitive("slice", [x], ["f32"], (1, 2, 2), "f32", starts=(1, 0, 1), stops=(2, 3, 4), steps=(1, 2, 2))
    assert torch.equal(sliced, x[1:2, 0:3:2, 1:4:2])
    assert torch.equal(primitive("concat", [x, x], ["f32"] * 2, (2, 6, 4), "f32", axis=1), torch.cat((x, x), 1))
    assert torch.equal(primitive("cumsum", [x], ["f32"], (2, 3, 4), "f32", axis=2), x.cumsum(2))


def test_cumsum_stays_in_its_dtype() -> None:
    x = integer_tensor([200, 100, 7], "u8")
    assert integers(primitive("cumsum", [x], ["u8"], (3,), "u8", axis=0), "u8") == [200, 44, 51]


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS])
def test_iota_counts(dtype: str) -> None:
    make = GraphMaker()
    (made,) = execute(make.graph(make.node("iota", [], (5,), dtype)))
    assert made.dtype == NATIVE[dtype]
    assert made.to(torch.float64).tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1), (0, 2), (1, 2), (0, 1, 2)])
@pytest.mark.parametrize("shape", [(), (4,), (2, 3)])
@pytest.mark.parametrize("index_dtype", ["i32", "i64", "u8", "u32"])
def test_gather_is_numpys_integer_indexing(axes: tuple[int, ...], shape: tuple[int, ...], index_dtype: str) -> None:
    x = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(0))
    indices = [torch.randint(0, x.shape[axis], shape) for axis in axes]
    others = [axis for axis in range(3) if axis not in axes]
    expected = np.transpose(x.numpy(), (*axes, *others))[tuple(i.numpy() for i in indices)]
    typed = [i.to(NATIVE[index_dtype]) for i in indices]
    result = (*shape, *(x.shape[axis] for axis in others))
    made = primitive("gather", [x, *typed], ["f32", *[index_dtype] * len(axes)], result, "f32", axes=axes, label="x")
    np.testing.assert_array_equal(made.numpy(), expected)


@pytest.mark.parametrize(("position", "size"), [(-1, 4), (4, 4), (2**31 - 1, 4), (0, 0)])
@pytest.mark.parametrize("axes", [(0,), (0, 1)])
def test_gather_never_wraps(position: int, size: int, axes: tuple[int, ...]) -> None:
    x = torch.zeros(size, 2)
    index = [torch.tensor([position], dtype=torch.int32), torch.tensor([0], dtype=torch.int32)][: len(axes)]
    shape = (1, 2) if len(axes) == 1 else (1,)
    with pytest.raises(IndexRangeError) as caught:
        primitive("gather", [x, *index], ["f32", *["i32"] * len(axes)], shape, "f32", axes=axes, label="table")
    assert (caught.value.label, caught.value.position, caught.value.size) == ("table", position, size)
    assert f"position {position} is outside table" in str(caught.value)


def test_gather_of_no_positions_reads_nothing() -> None:
    made = primitive(
        "gather",
        [torch.zeros(0, 2), torch.zeros(0, dtype=torch.int64)],
        ["f32", "i64"],
        (0, 2),
        "f32",
        axes=(0,),
        label="",
    )
    assert made.shape == (0, 2)


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS])
def test_reductions_over_no_elements(dtype: str) -> None:
    x = torch.zeros(2, 0, 3, dtype=NATIVE[dtype])
    floating = dtype in FLOATS
    least, greatest = (-math.inf, math.inf) if floating else integer_range(dtype)
    for kind, expected in (("sum", 0), ("prod", 1), ("max", least), ("min", greatest)):
        made = primitive("reduce", [x], [dtype], (2, 3), dtype, kind=kind, axes=(1,))
        found = made.reshape(-1).tolist() if floating else integers(made, dtype)
        assert found == [expected] * 6, kind


def test_any_and_all_over_no_elements() -> None:
    x = torch.zeros(2, 0, dtype=torch.bool)
    assert primitive("reduce", [x], ["bool"], (2,), "bool", kind="any", axes=(1,)).tolist() == [False, False]
    assert primitive("reduce", [x], ["bool"], (2,), "bool", kind="all", axes=(1,)).tolist() == [True, True]


def test_a_reduction_over_no_axes_changes_nothing() -> None:
    x = torch.randn(2, 3)
    assert torch.equal(primitive("reduce", [x], ["f32"], (2, 3), "f32", kind="sum", axes=()), x)


@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize("axes", [(0,), (2,), (0, 2), (0, 1, 2)])
def test_float_reductions(kind: str, axes: tuple[int, ...]) -> None:
    x = torch.rand(2, 3, 4, generator=torch.Generator().manual_seed(3)) + 0.5
    shape = tuple(n for axis, n in enumerate(x.shape) if axis not in axes)
    made = primitive("reduce", [x], ["f32"], shape, "f32", kind=kind, axes=axes)
    rule = {"sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min}[kind]
    np.testing.assert_allclose(made.numpy(), rule(x.numpy().astype(np.float64), axis=axes), rtol=1e-5)


# The meta device


def test_meta_tensors_pass_without_values() -> None:
    x = torch.empty(4, 3, device="meta")
    index = torch.empty(2, dtype=torch.int32, device="meta")
    made = primitive("gather", [x, index], ["f32", "i32"], (2, 3), "f32", axes=(0,), label="x")
    assert made.is_meta
    a = torch.empty(2, dtype=torch.int32, device="meta")
    assert primitive("div", [a, a], ["i32"] * 2, (2,), "i32").is_meta


def test_gradients_flow_through_every_float_primitive() -> None:
    make = GraphMaker()
    x = make.input((2, 3), "f64")
    i = make.node("iota", [], (2,), "i64")
    picked = make.node("gather", [x, i], (2, 3), "f64", axes=(0,), label="x")
    tall = make.node("concat", [picked, x], (4, 3), "f64", axis=0)
    product = make.node("contract", [tall, x], (4, 2), "f64", spec="ik,jk->ij")
    for op in ("tanh", "exp", "cos", "sin"):
        product = make.node(op, [product], (4, 2), "f64")
    summed = make.node("cumsum", [product], (4, 2), "f64", axis=0)
    top = make.node("reduce", [summed], (2,), "f64", kind="max", axes=(0,))
    graph = make.graph(top)
    start = torch.randn(2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(5)).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: execute(graph, x)[0], (start,))
    assert start.device == CPU
