"""What the verifier refuses, each with the node it names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from lowering_support import lowered, only

from linnet.language.program.core import PRIMITIVES, CoreNode, Graph, TensorSpec, Value
from linnet.language.program.verify import RULES, VerifyError, verify

F23 = TensorSpec((2, 3), "f32")
F3 = TensorSpec((3,), "f32")
I3 = TensorSpec((3,), "i32")
B = TensorSpec((), "bool")


def node(
    kind: str, inputs: list[Value], /, *outputs: TensorSpec, regions: tuple[Graph, ...] = (), **attributes: Any
) -> CoreNode:
    return CoreNode(kind, tuple(inputs), tuple(Value(spec) for spec in outputs), attributes, regions)


def graph(inputs: list[Value], *nodes: CoreNode) -> Graph:
    return Graph(tuple(inputs), list(nodes), nodes[-1].outputs)


def refusal(inputs: list[Value], *nodes: CoreNode) -> str:
    with pytest.raises(VerifyError) as caught:
        verify(graph(inputs, *nodes))
    assert caught.value.node is nodes[-1]
    return str(caught.value)


def test_every_primitive_has_a_rule() -> None:
    assert RULES.keys() == PRIMITIVES.keys()


@pytest.mark.parametrize(
    ("specs", "make", "problem"),
    [
        ([F3], lambda x: node("exq", x, F3), "node 0, exq: there is no such operation"),
        ([F3], lambda x: node("exp", x, F23), "outputs should be [3; f32] but are [2, 3; f32]"),
        ([F3], lambda x: node("exp", x), "outputs should be [3; f32] but are none"),
        ([F3, F3], lambda x: node("exp", x, F3), "takes 1 inputs and has 2"),
        ([I3], lambda x: node("exp", x, I3), "takes floats, not i32"),
        ([F3, I3], lambda x: node("add", x, F3), "dtypes differ: [3; f32] and [3; i32]"),
        (
            [F23, TensorSpec((2,), "f32")],
            lambda x: node("add", x, F23),
            "shapes [2, 3] and [2] do not broadcast",
        ),
        ([F3, F3], lambda x: node("lt", x, F3), "outputs should be [3; bool] but are [3; f32]"),
        ([F3, F3], lambda x: node("xor", x, F3), "takes bools and integers, not f32"),
        ([F3, F3, F3], lambda x: node("select", x, F3), "the condition is f32, not bool"),
        ([F3], lambda x: node("cast", x, F3), "converts to the dtype that it is given"),
        ([], lambda x: node("constant", x, TensorSpec((), "i32"), value=1.0), "1.0 is no i32"),
        ([], lambda x: node("constant", x, F3, value=1.0), "a constant has rank 0"),
        ([], lambda x: node("iota", x, F23), "counts along one axis, in numbers"),
        ([F23], lambda x: node("reshape", x, F3), "[2, 3; f32] has another number of elements than [3; f32]"),
        ([F23], lambda x: node("broadcast", x, F3), "[2, 3; f32] does not broadcast to [3]"),
        ([F23], lambda x: node("permute", x, F23, axes=(0, 0)), "axes [0, 0] do not permute [2, 3; f32]"),
        ([F23], lambda x: node("permute", x, F23), "attribute 'axes' is missing"),
        (
            [F3],
            lambda x: node("slice", x, F3, starts=(0,), stops=(4,), steps=(1,)),
            "0:4:1 does not lie in an axis of 3",
        ),
        ([F3, I3], lambda x: node("concat", x, F3, axis=0), "[3; i32] does not stand beside [3; f32] along axis 0"),
        ([F3], lambda x: node("cumsum", x, F3, axis=1), "axis 1 is none of [3; f32]"),
        ([F23, F3], lambda x: node("gather", x, F3, axes=(0,), label="x"), "indices are integers"),
        ([F23, I3], lambda x: node("gather", x, F3, axes=(1, 0), label="x"), "axes [1, 0] are not ascending"),
        (
            [F23, I3, TensorSpec((), "i32")],
            lambda x: node("gather", x, F3, axes=(0, 1), label="x"),
            "indices have different shapes: [3; i32], i32",
        ),
        ([F23], lambda x: node("reduce", x, F3, kind="mean", axes=(0,)), "there is no reduction 'mean'"),
        ([F23], lambda x: node("reduce", x, F3, kind="all", axes=(0,)), "all does not reduce f32"),
        ([F23, F3], lambda x: node("contract", x, F3, spec="ab,a->b"), "axis a of 'ab,a->b' is both 2 and 3"),
        ([F23, F3], lambda x: node("contract", x, F3, spec="ab,b->c"), "returns an axis that it does not take"),
        ([F23, F3], lambda x: node("contract", x, F3, spec="aa,b->a"), "does not name the axes of"),
        ([], lambda x: node("state.read", x, F3), "attribute 'path' is missing"),
    ],
)
def test_malformed_primitives(specs: list[TensorSpec], make: Callable[[list[Value]], CoreNode], problem: str) -> None:
    inputs = [Value(spec) for spec in specs]
    assert problem in refusal(inputs, make(inputs))


def test_a_value_is_defined_before_it_is_used() -> None:
    x = Value(F3)
    later = node("exp", [x], F3)
    early = node("exp", [later.outputs[0]], F3)
    with pytest.raises(VerifyError, match=r"node 0, exp: input 0, \[3; f32\], is not defined before it in its graph"):
        verify(Graph((x,), [early, later], later.outputs))


def test_a_value_is_defined_once() -> None:
    x = Value(F3, "x")
    again = CoreNode("exp", (x,), (x,))
    with pytest.raises(VerifyError, match=r"`x` \[3; f32\] is defined twice"):
        verify(Graph((x,), [again], (x,)))


def test_an_output_is_a_value_of_its_graph() -> None:
    with pytest.raises(VerifyError, match=r"output 0, \[3; f32\], is not a value of its graph"):
        verify(Graph((), [], (Value(F3),)))


def test_a_region_sees_only_its_inputs() -> None:
    c, x = Value(B), Value(F3)
    leaking = Graph((), [], (x,))
    with pytest.raises(VerifyError, match="output 0"):
        verify(graph([c, x], node("if", [c], F3, regions=(leaking, leaking))))


def body(*specs: TensorSpec) -> Graph:
    """A region that returns its inputs."""
    values = tuple(Value(spec) for spec in specs)
    return Graph(values, [], values)


def test_regions_fit_their_node() -> None:
    c, x = Value(B), Value(F3)
    assert "region 0 takes [2, 3; f32] and is given [3; f32]" in refusal(
        [c, x], node("if", [c, x], F3, regions=(body(F23), body(F3)))
    )
    assert "has 2 regions, not 1" in refusal([c, x], node("if", [c, x], F3, regions=(body(F3),)))
    assert "the condition is [3; f32], not one bool" in refusal(
        [x], node("while", [x], F3, carried=1, regions=(body(F3), body(F3)))
    )
    assert "cannot carry 2 of 1 inputs" in refusal([x], node("while", [x], F3, carried=2, regions=(body(F3), body(F3))))
    counted = Graph((Value(TensorSpec((), "i64")), x := Value(F3)), [], (x, x))
    y = Value(F3)
    verify(graph([y], node("for", [y], F3, F23, carried=1, start=1, stop=3, regions=(counted,))))
    assert "outputs should be [3; f32], [2, 3; f32] but are [3; f32]" in refusal(
        [z := Value(F3)], node("for", [z], F3, carried=1, start=1, stop=3, regions=(fresh(counted),))
    )


def fresh(region: Graph) -> Graph:
    """The same region with values of its own, for one that returns its second input twice."""
    values = [Value(value.spec) for value in region.inputs]
    return Graph(tuple(values), [], (values[1], values[1]))


def test_a_call_fits_its_body() -> None:
    x = Value(F3)
    call = node("call", [x], F3, op="f", parameters=(), generics={}, regions=(body(F3),))
    assert "names 0 parameters for 1 inputs" in refusal([x], call)
    wrong = node("call", [x], F23, op="f", parameters=("x",), generics={}, regions=(body(F3),))
    assert "outputs should be [3; f32] but are [2, 3; f32]" in refusal([x], wrong)


def test_only_an_entry_reads_weights() -> None:
    weight = node("param", [], F3, path="w")
    inner = Graph((), [weight], weight.outputs)
    call = node("call", [], F3, op="f", parameters=(), generics={}, regions=(inner,))
    with pytest.raises(VerifyError, match="node 0, param: only an entry's own graph reads weights and touches states"):
        verify(graph([], call))


def test_an_error_tells_where_in_the_source() -> None:
    result = lowered("pub entry run(x: Tensor[2; f32]) -> Tensor[2; f32] {\n    return exp(x)\n}")
    only(result.graph, "exp").op = "not"
    with pytest.raises(VerifyError, match=r"node 0, not \(.*test\.linnet:3:12\): takes bools and integers, not f32"):
        verify(result.graph)
