"""The steps of an entry: runs are folded without losing or inventing a call."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linnet.language.check import load
from linnet.language.program.binding import bind
from linnet.language.program.core import CoreNode, Graph, TensorSpec, Value
from linnet.language.program.explain import Branch, OpCall, Repeated, Step, calls, op_steps

SPEC = TensorSpec((2,), "f32")


def call(op: str, body: Sequence[CoreNode] = ()) -> CoreNode:
    inputs, outputs = (Value(SPEC, "x"),), (Value(SPEC),)
    attributes = {"op": op, "parameters": ("x",), "generics": {}}
    return CoreNode("call", inputs, outputs, attributes, (Graph(inputs, list(body), outputs),))


def graph(text: str) -> Graph:
    return Graph((), [call(letter) for letter in text], ())


def shown(steps: Sequence[Step]) -> str:
    """`abab` folded twice: `2(ab)`."""
    return "".join(
        s.identity if isinstance(s, OpCall) else f"{getattr(s, 'count', '')}({shown(s.steps)})" for s in steps
    )


def written_out(steps: Sequence[Step]) -> str:
    return "".join(s.identity if isinstance(s, OpCall) else written_out(s.steps) * (s.count or 1) for s in steps)


@pytest.mark.parametrize(
    ("ops", "folded"),
    [
        ("", ""),
        ("abc", "abc"),
        ("aaa", "3(a)"),
        ("eababab", "e3(ab)"),
        ("eaabaabh", "e2(2(a)b)h"),
        ("aabaabaab", "3(2(a)b)"),
        ("abcabd", "abcabd"),
    ],
)
def test_runs_are_folded(ops: str, folded: str) -> None:
    assert shown(op_steps(graph(ops))) == folded


@given(st.text("ab", max_size=24))
def test_folding_loses_nothing(ops: str) -> None:
    steps = op_steps(graph(ops))
    assert written_out(steps) == ops
    counted: dict[str, int] = {}
    for made, times in calls(steps):
        counted[made.identity] = counted.get(made.identity, 0) + times
    assert counted == {op: ops.count(op) for op in set(ops)}


def test_calls_that_differ_in_shape_are_not_equal() -> None:
    wide = call("a")
    wide.inputs = (Value(TensorSpec((3,), "f32")),)
    assert shown(op_steps(Graph((), [call("a"), wide], ()))) == "aa"


def test_control_flow_keeps_its_calls() -> None:
    inside = Graph((), [call("a"), call("a")], ())
    loop = CoreNode("for", (), (), {"start": 1, "stop": 4, "carried": 0}, (inside,))
    choice = CoreNode("if", (), (), {}, (inside, Graph((), [call("b")], ())))
    empty = CoreNode("while", (), (), {"carried": 0}, (Graph((), [], ()), Graph((), [], ())))
    steps = op_steps(Graph((), [loop, choice, empty, call("c")], ()))
    assert [type(step) for step in steps] == [Branch, Branch, OpCall]
    assert {made.identity: 0 for made, _ in calls(steps)}.keys() == {"a", "b", "c"}
    assert [(made.identity, times) for made, times in calls(steps)] == [("a", 6), ("a", 2), ("b", 1), ("c", 1)]


def test_the_calls_of_a_body_lie_inside() -> None:
    (outer,) = op_steps(Graph((), [call("a", [call("b"), call("b")])], ()))
    assert isinstance(outer, OpCall)
    assert shown(outer.inside) == "2(b)"
    assert outer.text() == "a(x: [2; f32]) -> [2; f32]"


@pytest.mark.parametrize(
    ("ops", "folded"),
    [
        # A letter, and the layer whose weight it reads.
        ("n a0 n0 a1 n1 a2 n2 z", "n3(an)z"),
        ("n0 a0 n1 a1 n2 a2 n z", "3(na)nz"),
        ("n0 m a0 b0 n1 a1 b1 n2 a2 b2 z", "nmab2(nab)z"),
        ("n a n a n z", "2(na)nz"),
    ],
)
def test_what_repeats_is_a_layer(ops: str, folded: str) -> None:
    nodes: list[CoreNode] = []
    for word in ops.split():
        node = call(word[0])
        if word[1:]:
            weight = Value(SPEC)
            nodes.append(CoreNode("param", (), (weight,), {"path": f"layers.{word[1:]}.{word[0]}.weight"}))
            node.inputs = (weight,)
        nodes.append(node)
    assert shown(op_steps(Graph((), nodes, ()))) == folded


def test_the_layers_of_a_model_are_one_step(root: Path) -> None:
    program = load(root / "nests" / "qwen3-8b" / "src" / "lib.linnet").program
    assert program is not None
    generics = {
        "Vocab": 96, "H": 64, "Heads": 4, "KvHeads": 2, "HeadDim": 16, "Inner": 128, "Layers": 5, "Batch": 1,
        "MaxSeq": 32,
    }  # fmt: skip
    lowered = bind(program, "Model", generics).lower("decode", {})
    steps = op_steps(lowered.graph)
    (layers,) = [step for step in steps if isinstance(step, Repeated)]
    assert layers.count == 5
    nodes = [node for node in lowered.graph.nodes if node.op == "call"]
    assert written_out(steps) == "".join(node.attributes["op"] for node in nodes)
