"""The interpreter on hand-made graphs: calls, loops, branches, state, what it keeps and what it frees."""

from __future__ import annotations

import weakref

import pytest
import torch
from graph_support import CPU, GraphMaker, execute

from linnet.language.program.core import Graph
from linnet.runner.errors import IndexRangeError, SpecError
from linnet.runner.torch.interpreter import Frame, Preparation
from linnet.runner.torch.kernels import Kernel
from linnet.runner.torch.primitives import BUILDERS


def doubling() -> Graph:
    make = GraphMaker()
    x = make.input((3,), "f32")
    return make.graph(make.node("add", [x, x], (3,), "f32"))


def test_a_call_runs_its_body_and_a_kernel_replaces_it(make: GraphMaker) -> None:
    x = make.input((3,), "f32")
    attributes = {"op": "a::twice", "parameters": ("x",), "generics": {"N": 3}}
    graph = make.graph(make.node("call", [x], (3,), "f32", doubling(), **attributes))
    value = torch.tensor([1.0, 2.0, 3.0])
    assert execute(graph, value)[0].tolist() == [2.0, 4.0, 6.0]
    other = Preparation(CPU, {"a::twice": Kernel("a::twice", lambda x: 10 * x)})
    assert other.graph(graph).run(Frame({}), [value])[0].tolist() == [10.0, 20.0, 30.0]


def test_a_kernel_is_given_the_generics_and_takes_parameters_by_name(make: GraphMaker) -> None:
    x, scale = make.input((3,), "f32"), make.input((), "f32")
    attributes = {"op": "a::op", "parameters": ("scale", "x"), "generics": {"N": 3}}
    graph = make.graph(make.node("call", [scale, x], (3,), "f32", doubling(), **attributes))

    def native(x: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor | None = None, *, call: object) -> torch.Tensor:
        assert bias is None
        return x * scale + call.generics["N"]  # type: ignore[attr-defined]

    prepared = Preparation(CPU, {"a::op": Kernel("a::op", native)}).graph(graph)
    assert prepared.run(Frame({}), [torch.ones(3), torch.tensor(2.0)])[0].tolist() == [5.0, 5.0, 5.0]


def test_a_kernel_for_other_parameters_is_not_used(make: GraphMaker) -> None:
    x = make.input((3,), "f32")
    attributes = {"op": "a::twice", "parameters": ("y",), "generics": {}}
    graph = make.graph(make.node("call", [x], (3,), "f32", doubling(), **attributes))
    prepared = Preparation(CPU, {"a::twice": Kernel("a::twice", lambda x: 10 * x)}).graph(graph)
    assert prepared.run(Frame({}), [torch.ones(3)])[0].tolist() == [2.0, 2.0, 2.0]


def counting_while() -> Graph:
    """while n < limit { n = n + step; total = total * 2 }: carries n and total, captures limit and step."""
    condition, body = GraphMaker(), GraphMaker()
    n, _, limit, _ = (condition.input((), "i32") for _ in range(4))
    test = condition.graph(condition.node("lt", [n, limit], (), "bool"))
    n, total, _, step = (body.input((), "i32") for _ in range(4))
    more = body.node("add", [n, step], (), "i32")
    doubled = body.node("add", [total, total], (), "i32")
    loop = body.graph(more, doubled)
    make = GraphMaker()
    inputs = [make.input((), "i32") for _ in range(4)]
    outputs = make.nodes_of("while", inputs, [((), "i32"), ((), "i32")], test, loop, carried=2)
    return make.graph(*outputs)


@pytest.mark.parametrize(("start", "limit", "step", "passes"), [(0, 10, 3, 4), (5, 5, 1, 0), (-4, 0, 2, 2)])
def test_while(start: int, limit: int, step: int, passes: int) -> None:
    values = [torch.tensor(v, dtype=torch.int32) for v in (start, 1, limit, step)]
    n, total = execute(counting_while(), *values)
    assert (n.item(), total.item()) == (start + passes * step, 2**passes)


def test_while_on_meta_proves_shapes_once() -> None:
    n, total = execute(counting_while(), *[torch.empty((), dtype=torch.int32, device="meta")] * 4)
    assert n.is_meta
    assert total.is_meta


def scan(start: int, stop: int) -> Graph:
    """h = h + k * i for each i, yielding h and i."""
    body = GraphMaker()
    i, h, k = body.input((), "i64"), body.input((2,), "i64"), body.input((), "i64")
    grown = body.node("add", [h, body.node("mul", [k, i], (), "i64")], (2,), "i64")
    loop = body.graph(grown, grown, i)
    make = GraphMaker()
    h, k = make.input((2,), "i64"), make.input((), "i64")
    count = stop - start
    results = [((2,), "i64"), ((count, 2), "i64"), ((count,), "i64")]
    return make.graph(*make.nodes_of("for", [h, k], results, loop, carried=1, start=start, stop=stop))


def test_for_carries_and_stacks() -> None:
    h, every, counters = execute(scan(2, 5), torch.tensor([0, 1]), torch.tensor(10))
    assert h.tolist() == [90, 91]
    assert every.tolist() == [[20, 21], [50, 51], [90, 91]]
    assert counters.tolist() == [2, 3, 4]


def test_for_over_nothing() -> None:
    h, every, counters = execute(scan(3, 3), torch.tensor([4, 5]), torch.tensor(1))
    assert h.tolist() == [4, 5]
    assert every.shape == (0, 2)
    assert counters.shape == (0,)


def test_for_on_meta_has_the_stacks_shapes() -> None:
    x = torch.empty(2, dtype=torch.int64, device="meta")
    h, every, counters = execute(scan(0, 1000), x, torch.empty((), dtype=torch.int64, device="meta"))
    assert (h.shape, every.shape, counters.shape) == ((2,), (1000, 2), (1000,))


def branching() -> Graph:
    then, otherwise = GraphMaker(), GraphMaker()
    a, b = then.input((), "i32"), then.input((), "i32")
    first = then.graph(then.node("div", [a, b], (), "i32"))
    a, b = otherwise.input((), "i32"), otherwise.input((), "i32")
    second = otherwise.graph(otherwise.node("add", [a, b], (), "i32"))
    make = GraphMaker()
    inputs = [make.input((), "bool"), make.input((), "i32"), make.input((), "i32")]
    return make.graph(make.node("if", inputs, (), "i32", first, second))


def test_if_runs_one_branch() -> None:
    six, zero = torch.tensor(6, dtype=torch.int32), torch.tensor(0, dtype=torch.int32)
    assert execute(branching(), torch.tensor(False), six, zero)[0].item() == 6
    assert execute(branching(), torch.tensor(True), six, six)[0].item() == 1


def counter_graph(value: int) -> Graph:
    """seen = value read from the state; the state grows by `value`."""
    make = GraphMaker()
    step = make.node("constant", [], (), "i64", value=value)
    old = make.node("state.read", [], (2,), "i64", path="a.count")
    make.nodes_of("state.write", [make.node("add", [old, step], (2,), "i64")], [], path="a.count")
    again = make.node("state.read", [], (2,), "i64", path="a.count")
    return make.graph(old, again)


def test_state_is_read_as_it_was_at_the_start() -> None:
    frame = Frame({})
    old, again = execute(counter_graph(3), frame=frame)
    assert old.tolist() == again.tolist() == [0, 0]
    assert frame.written["a.count"].tolist() == [3, 3]
    following = Frame({}, states={**frame.allocated, **frame.written})
    assert execute(counter_graph(4), frame=following)[0].tolist() == [3, 3]
    assert following.written["a.count"].tolist() == [7, 7]


def test_weights_are_read_by_path_and_as_bits_where_torch_lacks_the_dtype(make: GraphMaker) -> None:
    weight = make.node("param", [], (2,), "u32", path="w")
    one = make.node("constant", [], (), "u32", value=1)
    graph = make.graph(make.node("add", [weight, one], (2,), "u32"))
    weights = {"w": torch.tensor([2**32 - 1, 5], dtype=torch.uint32)}
    assert execute(graph, frame=Frame(weights))[0].tolist() == [0, 6]


def test_what_depends_on_no_input_is_computed_once(make: GraphMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[str] = []
    build = BUILDERS["cos"]

    def counting(node: object, target: object) -> object:
        function = build(node, target)  # type: ignore[arg-type]

        def count(x: torch.Tensor) -> torch.Tensor:
            counted.append("cos")
            return function(x)

        return count

    monkeypatch.setitem(BUILDERS, "cos", counting)  # type: ignore[arg-type]
    x = make.input((4,), "f32")
    table = make.node("cos", [make.node("iota", [], (4,), "f32")], (4,), "f32")
    prepared = Preparation(CPU).graph(make.graph(make.node("mul", [x, table], (4,), "f32")))
    first, second = (prepared.run(Frame({}), [torch.ones(4)])[0] for _ in range(2))
    assert counted == ["cos"]
    assert torch.equal(first, second)
    assert torch.equal(first, torch.arange(4.0).cos())


def test_values_are_freed_after_their_last_use(make: GraphMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    alive: list[weakref.ref[torch.Tensor]] = []
    most: list[int] = []

    def tracked(node: object, target: object) -> object:
        def run(x: torch.Tensor) -> torch.Tensor:
            most.append(sum(ref() is not None for ref in alive))
            made = x + 1
            alive.append(weakref.ref(made))
            return made

        return run

    monkeypatch.setitem(BUILDERS, "exp", tracked)  # type: ignore[arg-type]
    value = make.input((4,), "f32")
    for _ in range(20):
        value = make.node("exp", [value], (4,), "f32")
    prepared = Preparation(CPU).graph(make.graph(value))
    assert prepared.run(Frame({}), [torch.zeros(4)])[0].tolist() == [20.0] * 4
    assert max(most) == 1


def test_an_index_error_names_the_innermost_op(make: GraphMaker) -> None:
    body = GraphMaker()
    table, ids = body.input((4, 2), "f32"), body.input((1,), "i32")
    inner = body.graph(body.node("gather", [table, ids], (1, 2), "f32", axes=(0,), label="table"))
    table, ids = make.input((4, 2), "f32"), make.input((1,), "i32")
    attributes = {"op": "std.nn.embedding::embedding", "parameters": ("table", "ids"), "generics": {}}
    graph = make.graph(make.node("call", [table, ids], (1, 2), "f32", inner, **attributes))
    with pytest.raises(IndexRangeError) as caught:
        execute(graph, torch.zeros(4, 2), torch.tensor([4], dtype=torch.int32))
    assert str(caught.value) == (
        "id 4 is outside the embedding table of 4 rows (std.nn.embedding::embedding): valid are 0 to 3"
    )


def test_torchs_own_errors_say_where_they_happened(make: GraphMaker) -> None:
    a, b = make.input((2,), "f32"), make.input((2,), "f32")
    prepared = Preparation(CPU).graph(make.graph(make.node("add", [a, b], (2,), "f32")))
    with pytest.raises(RuntimeError) as caught:
        prepared.run(Frame({}), [torch.zeros(2), torch.zeros(3)])
    assert caught.value.__notes__ == ["while running add([2; f32], [2; f32])"]


def test_verification_finds_a_wrong_spec(make: GraphMaker) -> None:
    x = make.input((2,), "f32")
    graph = make.graph(make.node("neg", [x], (3,), "f32"))
    with pytest.raises(SpecError, match=r"neg.*the graph says \[3; f32\]"):
        execute(graph, torch.zeros(2))


def test_bodies_shared_by_calls_are_prepared_once() -> None:
    preparation = Preparation(CPU)
    shared = doubling()
    assert preparation.graph(shared) is preparation.graph(shared)
