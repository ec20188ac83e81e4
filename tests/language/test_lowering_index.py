"""Index notation against its definition: random programs, computed element by element from the typed tree."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lowering_support import bound, checked, lowered, only, ops

from linnet.language.check.dims import Dim
from linnet.language.program.checked import (
    Access,
    Build,
    IndexVar,
    Let,
    Literal,
    Local,
    Primitive,
    Reduce,
    Typed,
)
from linnet.language.program.verify import verify
from linnet.runner.torch.module import load_model

SIZES = {"i": 2, "j": 3, "k": 4}
# The length of an axis that is read at a constant or gathered position.
PLACES = 3
OPERATIONS: Mapping[str, Callable[..., int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "min": min,
    "max": max,
    "neg": lambda a: -a,
    "lt": lambda a, b: a < b,
    "eq": lambda a, b: a == b,
    "and": lambda a, b: a and b,
    "select": lambda c, a, b: a if c else b,
    "cast": lambda a: a,
}
REDUCTIONS: Mapping[str, Callable[[list[int]], int]] = {
    "sum": sum,
    "prod": math.prod,
    "min": min,
    "max": max,
    "any": any,
    "all": all,
}


def element(node: Typed, tensors: Mapping[str, np.ndarray], at: Mapping[IndexVar, int]) -> int:
    """The value of a scalar body at one place, as the language defines it."""
    if isinstance(node, Literal):
        assert not isinstance(node.value, str)
        return int(node.value)
    if isinstance(node, Primitive):
        return OPERATIONS[node.op](*(element(arg, tensors, at) for arg in node.args))
    if isinstance(node, Reduce):
        ranges = [range(extent(index)) for index in node.indices]
        places = (dict(zip(node.indices, place, strict=True)) for place in itertools.product(*ranges))
        return REDUCTIONS[node.kind]([element(node.body, tensors, {**at, **place}) for place in places])
    assert isinstance(node, Access)
    assert isinstance(node.value, Local)
    position = tuple(place(p, tensors, at) for p in node.positions)
    return int(tensors[node.value.var.name][position])


def place(position: IndexVar | Dim | Typed, tensors: Mapping[str, np.ndarray], at: Mapping[IndexVar, int]) -> int:
    if isinstance(position, IndexVar):
        return at[position]
    if isinstance(position, Dim):
        return position.evaluate({})
    return element(position, tensors, at)


def extent(index: IndexVar) -> int:
    (size,) = index.extent
    assert isinstance(size, Dim)
    return size.evaluate({})


@dataclass
class Source:
    """A program in the making: its inputs, and how deep reductions are nested."""

    draw: st.DrawFn
    inputs: dict[str, np.ndarray] = field(default_factory=dict)

    def tensor(self, shape: tuple[int, ...], low: int, high: int) -> str:
        """A new input of small integers."""
        name = f"t{len(self.inputs)}"
        count = math.prod(shape)
        values = self.draw(st.lists(st.integers(low, high), min_size=count, max_size=count))
        self.inputs[name] = np.array(values, dtype=np.int64).reshape(shape)
        return name

    def access(self, indices: list[str], depth: int = 0) -> str:
        """An access whose positions are indices (repeated or not), constants and, above the deepest level, gathers."""
        kinds = ["index", "index", "index", "constant"] + ["gather"] * (depth < 2)
        positions, shape = [], []
        for _ in range(self.draw(st.integers(1, 3))):
            kind = self.draw(st.sampled_from(kinds))
            if kind == "index":
                name = self.draw(st.sampled_from(indices))
                positions.append(name)
                shape.append(SIZES[name])
            elif kind == "constant":
                positions.append(str(self.draw(st.integers(0, PLACES - 1))))
                shape.append(PLACES)
            else:
                positions.append(self.gathered(indices, depth + 1))
                shape.append(PLACES)
        return f"{self.tensor(tuple(shape), -2, 2)}[{', '.join(positions)}]"

    def gathered(self, indices: list[str], depth: int) -> str:
        """An expression whose value is a position: an access of a tensor that holds positions."""
        names = self.draw(st.lists(st.sampled_from(indices), min_size=1, max_size=2))
        return f"{self.tensor(tuple(SIZES[n] for n in names), 0, PLACES - 1)}[{', '.join(names)}]"

    def expression(self, indices: list[str], depth: int = 0) -> str:
        kinds = ["access"] if depth > 2 else ["access", "binary", "negative", "select", "reduction", "reduction"]
        kind = self.draw(st.sampled_from(kinds))
        if kind == "access":
            return self.access(indices)
        if kind == "negative":
            return f"-({self.expression(indices, depth + 1)})"
        if kind == "reduction" and "k" not in indices:
            return self.reduction(indices, depth + 1)
        first, second = (self.expression(indices, depth + 1) for _ in range(2))
        if kind == "select":
            test = self.draw(st.sampled_from(["<", "=="]))
            return f"select({first} {test} {second}, {first}, {self.access(indices)})"
        operator = self.draw(st.sampled_from(["{} + {}", "{} - {}", "({}) * ({})", "min({}, {})", "max({}, {})"]))
        return operator.format(first, second)

    def reduction(self, indices: list[str], depth: int) -> str:
        """A reduction over `k`, sometimes of a product, which is where contractions come from."""
        inner = [*indices, "k"]
        kind = self.draw(st.sampled_from(["sum", "sum", "prod", "min", "max"]))
        weight = f"{self.tensor((SIZES['k'],), -1, 1)}[k]"
        if self.draw(st.booleans()):
            factors = [self.access(inner) for _ in range(self.draw(st.integers(1, 3)))]
            body = " * ".join([*factors, weight])
        else:
            body = f"({self.expression(inner, depth + 1)}) + {weight}"
        return f"({kind}[k] {body})"


@st.composite
def programs(draw: st.DrawFn) -> tuple[str, dict[str, np.ndarray]]:
    """A program with one tensor defined over `i` and `j`, and its inputs."""
    source = Source(draw)
    order = draw(st.sampled_from([["i", "j"], ["j", "i"]]))
    body = source.expression(["i", "j"])
    # Every index on the left has to be used.
    used = f"{source.tensor((SIZES['i'], SIZES['j']), -1, 1)}[i, j]"
    parameters = ", ".join(f"{name}: Tensor[{', '.join(map(str, x.shape))}; i64]" for name, x in source.inputs.items())
    shape = ", ".join(str(SIZES[index]) for index in order)
    text = (
        f"pub entry run({parameters}) -> Tensor[{shape}; i64] {{\n"
        f"    let y[{', '.join(order)}] = {body} + {used}\n    return y\n}}"
    )
    return text, source.inputs


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(programs())
def test_a_definition_means_what_it_says_at_every_place(program: tuple[str, dict[str, np.ndarray]]) -> None:
    text, inputs = program
    definition = checked(text).root.functions["run"].body[0]
    assert isinstance(definition, Let)
    assert isinstance(definition.value, Build)
    build = definition.value
    shape = tuple(extent(index) for index in build.axes)
    expected = np.empty(shape, dtype=np.int64)
    for position in itertools.product(*map(range, shape)):
        expected[position] = element(build.body, inputs, dict(zip(build.axes, position, strict=True)))
    model = bound(text)
    verify(model.lower("run", {}).graph)
    found = load_model(model, {}, entry="run")(*(torch.from_numpy(x) for x in inputs.values()))
    assert np.array_equal(found.numpy(), expected), text


def run(body: str, *inputs: torch.Tensor, parameters: str, result: str) -> torch.Tensor:
    text = f"pub entry run({parameters}) -> {result} {{ {body} }}"
    lowered(text)
    output = load_model(bound(text), {}, entry="run")(*inputs)
    assert isinstance(output, torch.Tensor)
    return output


def test_packs_stand_for_several_axes() -> None:
    source = (
        "fn outer<*S: Shape, N: Dim, M: Dim>(x: Tensor[*S, N; f32], w: Tensor[M; f32]) -> Tensor[M, *S, N; f32] "
        "{ let y[m, *s, n] = x[*s, n] * w[m] return y }\n"
        "pub entry run(x: Tensor[2, 3, 4; f32], w: Tensor[5; f32]) -> Tensor[5, 2, 3, 4; f32] { return outer(x, w) }"
    )
    x, w = torch.randn(2, 3, 4), torch.randn(5)
    graph = lowered(source).graph
    assert ops(graph) == ["reshape", "mul"]
    found = load_model(bound(source), {}, entry="run")(x, w)
    assert torch.equal(found, torch.einsum("abc,d->dabc", x, w))


def test_a_pack_gathers_with_a_pack() -> None:
    source = (
        "fn look<*S: Shape, N: Dim>(ids: Tensor[*S; i32], table: Tensor[N, *S; f32]) -> Tensor[*S; f32] "
        "{ let y[*s] = table[ids[*s], *s] return y }\n"
        "pub entry run(ids: Tensor[2, 3; i32], table: Tensor[4, 2, 3; f32]) -> Tensor[2, 3; f32] "
        "{ return look(ids, table) }"
    )
    ids, table = torch.tensor([[0, 1, 3], [2, 2, 0]], dtype=torch.int32), torch.randn(4, 2, 3)
    node = only(lowered(source).graph, "gather")
    assert node.attributes["axes"] == (0, 1, 2)
    found = load_model(bound(source), {}, entry="run")(ids, table)
    assert torch.equal(found, table.gather(0, ids.long()[None])[0])


def test_an_index_beside_a_gather_of_others_stays_whole() -> None:
    parameters = "x: Tensor[1, 2, 3, 4; f32], at: Tensor[5; i32]"
    body = "let y[b, h, d] = x[0, h, at[b], d] return y"
    text = f"pub entry run({parameters}) -> Tensor[5, 2, 4; f32] {{ {body} }}"
    node = only(lowered(text).graph, "gather")
    assert node.attributes == {"axes": (1,), "label": "x"}
    assert [value.spec.shape for value in node.inputs] == [(2, 3, 4), (5,)]


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_sums_in_narrow_dtypes_round_every_product(dtype: str) -> None:
    text = (
        f"pub entry run(x: Tensor[2, 3; {dtype}], w: Tensor[4, 3; {dtype}]) -> Tensor[2, 4; {dtype}] "
        "{ let y[r, o] = sum[i] x[r, i] * w[o, i] return y }"
    )
    assert ops(lowered(text).graph) == ["reshape", "mul", "reduce"]


def test_a_dot_product_is_no_contraction() -> None:
    text = "pub entry run(x: Tensor[3; f32], y: Tensor[3; f32]) -> f32 { return sum[i] x[i] * y[i] }"
    assert ops(lowered(text).graph) == ["mul", "reduce"]


def test_a_condition_on_scalars_selects_per_element() -> None:
    x = torch.tensor([1.0, -2.0, 3.0])
    found = run(
        "let y[i] = if x[i] > 0.0 { x[i] } else { 10.0 } return y",
        x,
        parameters="x: Tensor[3; f32]",
        result="Tensor[3; f32]",
    )
    assert found.tolist() == [1.0, 10.0, 3.0]


def test_an_index_that_only_counts_still_spans_its_axis() -> None:
    x = torch.arange(3.0)
    found = run(
        "let y[i, j] = x[i] + cast<f32>(iota<i64>(2)[j]) return y",
        x,
        parameters="x: Tensor[3; f32]",
        result="Tensor[3, 2; f32]",
    )
    assert torch.equal(found, x[:, None] + torch.arange(2.0))
