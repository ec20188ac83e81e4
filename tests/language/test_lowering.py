"""From checked programs to Core IR: golden texts, and what must hold of any graph."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from lowering_support import bound, lowered, only, ops

from linnet.language.check import load
from linnet.language.program import lower
from linnet.language.program.binding import BindError, bind
from linnet.language.program.core import Graph
from linnet.language.program.lower_values import LowerError
from linnet.language.program.passes import eliminate_dead_code, merge_common_subexpressions
from linnet.language.program.printer import print_entry
from linnet.language.program.small import small_generics
from linnet.language.program.verify import verify

FOLDER = Path(__file__).parent / "lowering"
UPDATE = "UPDATE_GOLDEN"


@pytest.fixture
def passes_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every graph is verified before, between and after the passes of the lowering."""

    def checked_passes(graph: Graph) -> None:
        verify(graph)
        merge_common_subexpressions(graph)
        verify(graph)
        eliminate_dead_code(graph)
        verify(graph)

    monkeypatch.setattr(lower, "simplify", checked_passes)


def header(text: str, key: str) -> list[str]:
    """The words of a `// key: ..` line of a golden source."""
    found = re.search(rf"^// {key}: (.*)$", text, re.MULTILINE)
    return found[1].split() if found else []


def assignments(words: list[str]) -> dict[str, int | str]:
    pairs = (word.split("=") for word in words)
    return {name: int(value) if value.isdigit() else value for name, value in pairs}


@pytest.mark.parametrize("source", sorted(FOLDER.glob("*.linnet")), ids=lambda path: path.stem)
def test_lowered_text(source: Path, passes_verified: None) -> None:
    """Each source beside its `.core` text; `UPDATE_GOLDEN=1 pytest tests/language/test_lowering.py` rewrites them."""
    text = source.read_text()
    program = load(source).program
    assert program is not None
    entry, *generics = header(text, "lower")
    model = bind(program, None, assignments(header(text, "generics")))
    graph = model.lower(entry, assignments(generics), frozenset(header(text, "present")))
    printed = print_entry(graph)
    golden = source.with_suffix(".core")
    if os.environ.get(UPDATE) == "1":
        golden.write_text(printed)
    assert printed == golden.read_text(), f"{golden.name} differs; {UPDATE}=1 rewrites it"


def test_every_entry_of_the_seed_lowers(seed: Path, passes_verified: None) -> None:
    program = load(seed / "qwen3-8b-fp8" / "src" / "lib.linnet").program
    assert program is not None
    (block,) = program.blocks_with_entries()
    model = bind(program, None, small_generics(block, {"T": "f32"}))
    entries = model.entries()
    assert len(entries) == 17
    for name, entry in entries.items():
        graph = model.lower(name, small_generics(entry, model.generics))
        assert [value.name for value in entry.parameters] == [value.name for value in graph.inputs]
        assert len(graph.graph.nodes) > 40


def test_the_seed_at_its_full_size(seed: Path, passes_verified: None) -> None:
    program = load(seed / "qwen3-8b-fp8" / "src" / "lib.linnet").program
    assert program is not None
    card = {"Vocab": 151936, "H": 4096, "Heads": 32, "KvHeads": 8, "HeadDim": 128, "Inner": 12288, "Layers": 36}
    model = bind(program, "Model", {**card, "Batch": 1, "MaxSeq": 40960, "T": "bf16"})
    graph = model.lower("decode", {}).graph
    names = ops(graph)
    assert names.count("std.quant::fp8_block_linear") == 36 * 7
    assert names.count("state.read") == names.count("state.write") == 72
    # The rotary tables of 36 layers are one.
    assert names.count("cos") == names.count("sin") == 1
    bodies = {node.regions[0] for node in graph.nodes if node.op == "call"}
    assert len(bodies) < 25


DOUBLE = "op double<*S: Shape, T: Numeric>(x: Tensor[*S; T]) -> Tensor[*S; T] { return x + x }\n"


def test_bodies_are_shared_between_calls_and_entries() -> None:
    source = DOUBLE + (
        "pub entry one(x: Tensor[2; f32], y: Tensor[2; f32]) -> Tensor[2; f32] { return double(x) * double(y) }\n"
        "pub entry two(x: Tensor[2; f32]) -> Tensor[2; f32] { return double(x) }\n"
        "pub entry other(x: Tensor[3; f32]) -> Tensor[3; f32] { return double(x) }"
    )
    model = bound(source)
    calls = [n for n in model.lower("one", {}).graph.nodes if n.op == "call"]
    assert calls[0].regions[0] is calls[1].regions[0]
    assert only(model.lower("two", {}).graph, "call").regions == calls[0].regions
    assert only(model.lower("other", {}).graph, "call").regions != calls[0].regions


def test_a_call_names_its_op_parameters_and_generics() -> None:
    source = (
        "op f<N: Dim, *S: Shape, T: Float>(x: Tensor[*S, N; T], y: Tensor[N; T]? = none, eps: T = 0.5)"
        " -> Tensor[*S, N; T] { return match y { some(v) => x + v * eps none => x * eps } }\n"
        "pub entry run(x: Tensor[2, 3; bf16], z: Tensor[3; bf16]) -> Tensor[2, 3; bf16] "
        "{ return f(f(x), some(z), eps = 2.0) }"
    )
    first, second = (node for node in lowered(source).graph.nodes if node.op == "call")
    assert first.attributes == {
        "op": "test::f",
        "parameters": ("x", "eps"),
        "generics": {"N": 3, "S": (2,), "T": "bf16"},
    }
    assert second.attributes["parameters"] == ("x", "y", "eps")
    assert [value.name for value in second.regions[0].inputs] == ["x", "y", "eps"]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return reshape(reshape(x, [6]), [2, 3])", []),
        ("return permute(permute(x, [1, 0]), [1, 0])", []),
        ("return broadcast_to(x, [2, 3])[:, 0:3]", []),
        ("return cast<f32>(x)", []),
        ("let y[i, j] = x[i, j] return y", []),
        ("return concat(x[:, 0:0], x, axis = 1)[:, :]", ["slice", "concat"]),
        ("let unused = exp(x) return x", []),
        ("return if 2 > 1 { x } else { exp(x) }", []),
        ("let y[i, j] = select(true, x[i, j], 0.0) return y", []),
        ("return exp(x) + exp(x)", ["exp", "add"]),
    ],
)
def test_what_does_nothing_is_dropped(body: str, expected: list[str]) -> None:
    source = f"pub entry run(x: Tensor[2, 3; f32]) -> Tensor[2, 3; f32] {{ {body} }}"
    assert ops(lowered(source).graph) == expected


@pytest.mark.parametrize(
    ("expression", "type", "value"),
    [
        ("3 * 4 - 5", "i32", 7),
        ("cast<i8>(127) + 1", "i8", -128),
        ("cast<i32>(-7) / 2", "i32", -3),
        ("cast<i32>(-7) % 2", "i32", -1),
        ("cast<u8>(3) - 5", "u8", 254),
        ("!(1 < 2 && 2 < 1)", "bool", True),
        ("cast<f32>(7)", "f32", 7.0),
        ("min(3, 5) ^ 1", "i64", 2),
    ],
)
def test_scalars_are_folded(expression: str, type: str, value: Any) -> None:
    graph = lowered(f"pub entry run() -> {type} {{ return {expression} }}").graph
    node = only(graph, "constant")
    assert graph.nodes == [node]
    assert repr(node.attributes["value"]) == repr(value)


def test_float_arithmetic_is_left_to_the_backend() -> None:
    graph = lowered("pub entry run() -> f32 { return cast<f32>(16777217) * 2.0 }").graph
    assert ops(graph) == ["constant", "cast", "constant", "mul"]


def test_a_division_by_zero_is_left_to_the_run() -> None:
    graph = lowered("pub entry run() -> i32 { let zero: i32 = 0 return 1 / zero }").graph
    assert ops(graph) == ["constant", "constant", "div"]


def test_a_constant_position_outside_the_axis_is_left_to_the_run() -> None:
    source = "pub entry run(x: Tensor[2; f32]) -> f32 { static for i in 4..5 { let y = x[i] } return x[0] }"
    assert "gather" not in ops(lowered(source).graph)
    source = "pub entry run(x: Tensor[2; f32]) -> f32 { var y = x[0] static for i in 4..5 { y = x[i] } return y }"
    assert ops(lowered(source).graph) == ["constant", "gather"]


def test_no_product_is_materialised_in_a_contraction() -> None:
    source = (
        "pub entry run(x: Tensor[7, 64; f32], w: Tensor[5, 64; f32], s: Tensor[5; f32]) -> Tensor[7, 5; f32] "
        "{ let y[r, o] = sum[i] x[r, i] * w[o, i] * s[o] return y }"
    )
    graph = lowered(source).graph
    assert ops(graph) == ["reshape", "mul", "contract"]
    assert max(value.spec.size for node in graph.nodes for value in node.outputs) == 5 * 64


def test_a_state_is_read_once_and_written_once() -> None:
    source = (
        "pub block Net { state s: Tensor[2; f32]\n"
        " pub entry run(x: Tensor[2; f32]) -> Tensor[2; f32] { s = s + x s = s * x return s + s }\n"
        " pub entry look() -> Tensor[2; f32] { return s }\n"
        " pub entry set(x: Tensor[2; f32]) -> Tensor[2; f32] { s = x return s } }"
    )
    assert ops(lowered(source).graph) == ["state.read", "add", "mul", "add", "state.write"]
    assert ops(lowered(source, "look").graph) == ["state.read"]
    assert ops(lowered(source, "set").graph) == ["state.write"]


def test_loop_inputs_are_what_the_body_uses() -> None:
    source = (
        "pub block Net { param w: Tensor[2; f32]\n"
        " pub entry run(x: Tensor[2; f32], n: i32) -> (Tensor[2; f32], i32) "
        "{ var h = x var i: i32 = 0 let unused = exp(x) "
        "while i < n { let t = h * w h = t + x i = i + 1 } return (h, i) } }"
    )
    graph = lowered(source).graph
    loop = only(graph, "while")
    assert loop.attributes == {"carried": 2}
    assert [value.name for value in loop.regions[1].inputs] == ["x", "", "n", "w", "x"]
    assert [value.name for value in loop.outputs] == ["h", "i"]
    assert "exp" not in ops(graph)


def test_two_loops_do_not_share_their_locals() -> None:
    source = (
        "pub entry run(x: Tensor[2; f32], n: i32) -> Tensor[2; f32] { var h = x static for k in 0..2 "
        "{ var i: i32 = 0 while i < n { let t = h + x h = t i = i + 1 } } return h }"
    )
    first, second = (node for node in lowered(source).graph.nodes if node.op == "while")
    assert first.attributes["carried"] == second.attributes["carried"] == 2


def test_an_assignment_in_a_condition_is_refused() -> None:
    source = (
        "pub block Net { state s: i32\n fn next() -> i32 { s = s + 1 return s }\n"
        " pub entry run() -> i32 { var i: i32 = 0 while next() < 3 { i = i + 1 } return i } }"
    )
    with pytest.raises(LowerError, match="the condition of a `while` assigns a state; assign it in the body"):
        lowered(source)


OPTIONAL = (
    "fn pick(x: Tensor[2; f32], y: Tensor[2; f32]?) -> Tensor[2; f32] "
    "{ return match y { some(v) => v none => x } }\n"
    "pub entry run(x: Tensor[2; f32], y: Tensor[2; f32]? = none) -> Tensor[2; f32] { return pick(x, y) }"
)


def test_an_optional_input_is_left_out_unless_given() -> None:
    model = bound(OPTIONAL)
    assert [value.name for value in model.lower("run", {}).inputs] == ["x"]
    graph = model.lower("run", {}, given=frozenset({"y"}))
    assert [value.name for value in graph.inputs] == ["x", "y"]
    assert graph.graph.outputs == (graph.graph.inputs[1],)


def test_an_optional_chosen_at_run_time_has_no_graph() -> None:
    source = OPTIONAL + (
        "\npub entry other(x: Tensor[2; f32], c: bool) -> Tensor[2; f32] "
        "{ return pick(x, if c { some(x) } else { none }) }"
    )
    with pytest.raises(LowerError, match="the branches of an `if` decided at run time differ in more"):
        lowered(source, "other")


def test_the_generics_of_an_entry_are_checked() -> None:
    source = "pub entry run<N: Dim, T: Float>(x: Tensor[N; T]) -> Tensor[N; T] where N > 2 { return x }"
    model = bound(source)
    with pytest.raises(BindError) as caught:
        model.lower("run", {"N": -1, "M": 3})
    assert caught.value.problems == (
        "`run` has no generic `M`; it has N, T",
        "generic `N` is -1; a dimension is 0 or more",
        "`run` needs a value for the generic `T` (one of f16, bf16, f32, f64)",
    )
    with pytest.raises(BindError, match=r"`N > 2` is false for N = 2"):
        model.lower("run", {"N": 2, "T": "f32"})
    with pytest.raises(BindError, match="has no entry `runn`; did you mean `run`"):
        model.lower("runn", {})


def test_the_printed_text_is_the_same_each_time() -> None:
    source = (FOLDER / "control_flow.linnet").read_text().split("\n", 3)[3]
    first, second = (print_entry(bound(source, H=3).lower("run", {"Steps": 2})) for _ in range(2))
    assert first == second


@pytest.mark.parametrize(
    ("start", "then", "what"),
    [("E.P", "E.Q", "to another variant"), ("some(x)", "none", "between present and absent")],
)
def test_structure_is_fixed_in_a_run_time_loop(start: str, then: str, what: str) -> None:
    text = f"""
enum E {{ P, Q }}
pub entry run(x: f32) -> f32 {{
    var e{": f32?" if start != "E.P" else ""} = {start}
    var i = 0
    while i < 2 {{
        e = {then}
        i = i + 1
    }}
    return match e {{ {"P => x Q => 1.0" if start == "E.P" else "some(v) => v none => x"} }}
}}
"""
    with pytest.raises(LowerError, match=f"`e` changes {what} in a run-time loop"):
        lowered(text)
