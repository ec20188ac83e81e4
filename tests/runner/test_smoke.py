"""The smoke test: every level, what counts as good, and a sentence for what is not."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from linnet.language.program.binding import BoundProgram, bind
from linnet.language.program.checked import Program
from linnet.language.program.core import EntryGraph, Graph
from linnet.language.program.lower_values import LowerError
from linnet.language.program.manifest import Manifest
from linnet.runner.smoke import SmokeOutcome, SmokeReport, random_inputs, smoke
from linnet.runner.torch.weights import TensorLocation, WeightSource, random_weights

CARD = {
    "Vocab": 151936, "H": 4096, "Heads": 32, "KvHeads": 8, "HeadDim": 128, "Inner": 12288, "Layers": 36,
    "Batch": 1, "MaxSeq": 40960, "T": "bf16",
}  # fmt: skip
GOOD = """
module small
use std.nn.linear::{Linear}
use std.nn.embedding::{Embedding}
pub block Root<Vocab: Dim, H: Dim, T: Float> where H % 4 == 0 {
    sub table: Embedding<Vocab, H, T>
    sub head: Linear<H, Vocab, T>
    pub entry forward<S: Dim>(tokens: Tensor[S; i32]) -> Tensor[S, Vocab; T] where S > 2 {
        return head.forward(table.forward(tokens))
    }
    pub entry masked<S: Dim>(x: Tensor[S; f32], mask: Tensor[S; bool], t: f32) -> (Tensor[S; f32], i32, bool) {
        return (select(mask, x / t, 0.0), 3, true)
    }
}
"""


@pytest.fixture(scope="module")
def good(bind_source: Callable[..., BoundProgram]) -> BoundProgram:
    return bind_source(GOOD, Vocab=1000, H=64, T="bf16")


def source_of(tmp_path: Path, tensors: dict[str, torch.Tensor]) -> WeightSource:
    file = tmp_path / "model.safetensors"
    save_file(tensors, file)
    return WeightSource({}, {name: TensorLocation(file, name, "BF16", tuple(x.shape)) for name, x in tensors.items()})


def entry_source(result: str, body: str, parameters: str = "") -> str:
    return (
        f"module bad\npub block Root<N: Dim> where N > 0 {{ pub entry run({parameters}) -> {result} {{ {body} }} }}\n"
    )


def test_the_levels_include_one_another(good: BoundProgram, tmp_path: Path) -> None:
    assert smoke(good, "forward", {}, level="none") == SmokeReport("none", ())
    assert [o.stage for o in smoke(good, "forward", {}, level="meta").outcomes] == ["meta"]
    small = smoke(good, "forward", {"S": 8})
    assert [(o.stage, o.entry, o.ok) for o in small.outcomes] == [
        ("meta", "forward", True),
        ("small", "forward", True),
        ("small", "masked", True),
    ]
    weights = source_of(tmp_path, random_weights(good.manifest, 0))
    full = smoke(good, "forward", {"S": 8}, level="full", weights=weights)
    assert full.ok
    assert full.outcomes[-1].stage == "full"
    assert "the result [8, 1000] is finite" in full.outcomes[-1].message
    assert "1 file" in full.outcomes[-1].message


def test_meta_runs_at_full_size_and_small_at_small_generics(good: BoundProgram) -> None:
    meta, small, _ = smoke(good, "forward", {"S": 8}).outcomes
    assert meta.generics == {"Vocab": 1000, "H": 64, "T": "bf16", "S": 8}
    assert small.generics == {"Vocab": 32, "H": 4, "T": "bf16", "S": 3}
    assert "have the shapes the graph says; result [8, 1000; bf16]" in meta.message
    assert small.message == "the result [3, 32] is finite"


def test_check_generics_left_out_are_small(good: BoundProgram) -> None:
    assert smoke(good, "forward", {}, level="meta").outcomes[0].generics["S"] == 3


def test_the_report_is_json(good: BoundProgram) -> None:
    report = smoke(good, "forward", {"S": 8})
    record = json.loads(json.dumps(report.to_dict()))
    assert (record["level"], record["ok"], len(record["outcomes"])) == ("small", True, 3)
    assert set(record["outcomes"][0]) == {"stage", "entry", "generics", "ok", "message", "seconds", "fault"}


def run_bad(bind_source: Callable[..., BoundProgram], source: str) -> SmokeOutcome:
    report = smoke(bind_source(source, N=4), "run", {})
    assert not report.ok
    assert report.failures()[-1].stage == "small"
    return report.failures()[-1]


def test_results_that_are_not_finite_fail(bind_source: Callable[..., BoundProgram]) -> None:
    outcome = run_bad(bind_source, entry_source("Tensor[3; f32]", "return log(cast<f32>(iota<i64>(3)))"))
    assert outcome.message == "the result [3] holds 1 values that are not finite, of 3"


def test_results_that_are_all_equal_fail(bind_source: Callable[..., BoundProgram]) -> None:
    outcome = run_bad(bind_source, entry_source("(i32, Tensor[3; f32])", "return (1, fill<f32>([3], 2.0))"))
    assert outcome.message == "all 3 values of result 1 [3] are equal"


def test_a_run_time_error_is_an_outcome(bind_source: Callable[..., BoundProgram]) -> None:
    # A position that depends on no input: nothing that is drawn could be safe.
    body = "let table = iota<i64>(2)\nlet at = iota<i64>(5)\nlet y[i] = table[at[i]]\nreturn y"
    outcome = run_bad(bind_source, entry_source("Tensor[5; i64]", body))
    assert outcome.message == "IndexRange: position 4 is outside table, whose axis has size 2: valid are 0 to 1"


def test_generics_that_break_a_where_are_an_outcome(good: BoundProgram) -> None:
    (meta,) = smoke(good, "forward", {"S": 1}, level="meta").outcomes
    assert not meta.ok
    assert "S > 2" in meta.message


def test_an_unknown_entry_is_an_outcome(good: BoundProgram) -> None:
    (meta,) = smoke(good, "backward", {}, level="meta").outcomes
    assert not meta.ok
    assert "has no entry `backward`" in meta.message


def test_a_source_without_a_graph_is_an_outcome(bind_source: Callable[..., BoundProgram]) -> None:
    source = entry_source(
        "f32",
        "let y: f32? = if c { some(x) } else { none } return match y { some(v) => v  none => x }",
        "x: f32, c: bool",
    )
    report = smoke(bind_source(source, N=4), "run", {})
    assert [(o.stage, o.fault) for o in report.outcomes] == [("meta", "source"), ("small", "source")]
    for outcome in report.outcomes:
        assert "the branches of an `if` decided at run time differ in more than their tensors" in outcome.message


def test_a_manifest_that_cannot_be_made_is_an_outcome(good: BoundProgram, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(bound: BoundProgram) -> Manifest:
        raise LowerError("an array of blocks is too long")

    monkeypatch.setattr(BoundProgram, "manifest", property(refuse))
    outcomes = smoke(good, "forward", {"S": 8}).outcomes
    assert [(o.stage, o.entry, o.fault) for o in outcomes] == [("meta", "forward", "source"), ("small", "*", "source")]
    assert outcomes[1].message == "Lower: an array of blocks is too long"


def test_too_little_memory_is_an_outcome(bind_source: Callable[..., BoundProgram]) -> None:
    huge = 2**58
    outcome = run_bad(bind_source, entry_source(f"Tensor[{huge}; i64]", f"return iota<i64>({huge})"))
    assert outcome.fault == "torch"


def test_a_graph_that_is_not_well_formed_is_an_outcome(good: BoundProgram, monkeypatch: pytest.MonkeyPatch) -> None:
    lower = BoundProgram.lower

    def broken(*given: Any) -> EntryGraph:
        entry = lower(*given)
        graph = entry.graph
        return dataclasses.replace(entry, graph=Graph(graph.inputs, graph.nodes[:-1], graph.outputs))

    monkeypatch.setattr(BoundProgram, "lower", broken)
    outcomes = smoke(good, "forward", {"S": 8}).outcomes
    assert [(o.stage, o.fault) for o in outcomes] == [("meta", "linnet"), ("small", "linnet"), ("small", "linnet")]
    assert "is not a value of its graph" in outcomes[0].message


def test_what_is_at_fault_is_one_word(
    good: BoundProgram, bind_source: Callable[..., BoundProgram], tmp_path: Path
) -> None:
    assert smoke(good, "forward", {"S": 8}, level="meta").outcomes[0].fault == ""
    assert smoke(good, "forward", {"S": 1}, level="meta").outcomes[0].fault == "generics"
    assert run_bad(bind_source, entry_source("Tensor[3; f32]", "return fill<f32>([3], 2.0)")).fault == "result"
    body = "let table = iota<i64>(2)\nlet at = iota<i64>(5)\nlet y[i] = table[at[i]]\nreturn y"
    assert run_bad(bind_source, entry_source("Tensor[5; i64]", body)).fault == "inputs"
    weights = random_weights(good.manifest, 0)
    del weights["head.weight"]
    full = smoke(good, "forward", {"S": 8}, level="full", weights=source_of(tmp_path, weights))
    assert full.outcomes[-1].fault == "weights"


def test_damaged_weights_are_an_outcome(good: BoundProgram, tmp_path: Path) -> None:
    weights = random_weights(good.manifest, 0)
    del weights["head.weight"]
    report = smoke(good, "forward", {"S": 8}, level="full", weights=source_of(tmp_path, weights))
    assert [o.stage for o in report.failures()] == ["full"]
    assert "Weights: head.weight binds to tensor head.weight, which no weights file has" in report.failures()[0].message


def test_wrong_use_is_refused(good: BoundProgram) -> None:
    with pytest.raises(ValueError, match="level='huge' is not one of none, meta, small, full"):
        smoke(good, "forward", {}, level="huge")
    with pytest.raises(ValueError, match="needs weights"):
        smoke(good, "forward", {}, level="full")


def test_inputs_are_seeded_and_within_their_bounds(good: BoundProgram) -> None:
    entry = good.lower("forward", {"S": 50})
    (tokens,) = random_inputs(entry, 1)
    assert tokens.dtype == torch.int32
    assert tokens.min() >= 0
    assert tokens.max() < 1000
    assert torch.equal(random_inputs(entry, 1)[0], tokens)
    assert not torch.equal(random_inputs(entry, 2)[0], tokens)


def test_optional_weights_that_the_package_has_are_used(bind_source: Callable[..., BoundProgram]) -> None:
    source = """
module optional
pub block Root<N: Dim> where N > 1 {
    param bias: Tensor[N; f32]? = none
    pub entry run() -> Tensor[N; f32] {
        return match bias { some(b) => b  none => fill<f32>([N], 0.0) }
    }
}
"""
    bound = bind_source(source, N=8)
    assert not smoke(bound, "run", {}).ok
    assert smoke(bound, "run", {}, present=frozenset({"bias"})).ok


@pytest.fixture(scope="module")
def seed_report(seed_program: Program) -> SmokeReport:
    return smoke(bind(seed_program, "Model", CARD), "forward", {"B": 1, "S": 8})


def test_the_seed_passes_at_full_size_and_every_entry_small(seed_report: SmokeReport) -> None:
    assert seed_report.ok, seed_report.failures()
    meta, *small = seed_report.outcomes
    assert "result [1, 8, 151936; bf16]" in meta.message
    assert meta.generics["Layers"] == 36
    assert len(small) == 17
    for outcome in small:
        assert outcome.generics["Layers"] == 2
        assert outcome.generics["Vocab"] == 32
        assert outcome.generics["T"] == "bf16"


def test_the_smoke_test_imports_torch_only_when_it_runs_and_never_its_compiler(seed: Path) -> None:
    program = f"""
import sys
from pathlib import Path
from linnet.language.check import load
from linnet.language.program.binding import bind
from linnet.runner.smoke import smoke
assert "torch" not in sys.modules
bound = bind(load(Path({str(seed / "qwen3-8b-fp8" / "src" / "lib.linnet")!r})).program, "Model", {CARD!r})
assert smoke(bound, "forward", {{"B": 1, "S": 8}}).ok
assert "torch" in sys.modules
print([name for name in ("torch._dynamo", "torch._inductor", "sympy", "transformers") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
