"""`linnet explain`, as users run it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from linnet.runner.explain import default_run

Run = Callable[..., CompletedProcess[str]]

SOURCE = """\
module two

use std.nn.linear::{Linear}
use std.nn.activations::{relu}

op double<*S: Shape, T: Float>(x: Tensor[*S; T]) -> Tensor[*S; T] {
    return relu(x + x)
}

pub block Stack<H: Dim, Layers: Dim, T: Float = bf16> where H > 2 {
    sub layers: [Linear<H, H, T>; Layers]

    pub entry forward<B: Dim>(x: Tensor[B, H; T]) -> Tensor[B, H; T] {
        var y = x
        static for layer in layers {
            y = double(layer.forward(y))
        }
        return y
    }

    pub entry first(x: Tensor[H; T]) -> Tensor[H; T] where Layers > 0 {
        return layers[0].forward(x)
    }
}
"""


@pytest.fixture
def stack(tmp_path: Path) -> Path:
    file = tmp_path / "stack.linnet"
    file.write_text(SOURCE)
    return file


def test_generics_are_given_or_small(run: Run, stack: Path) -> None:
    done = run("linnet", "explain", stack, "--entry", "forward", "--bind", "Layers=4", "--bind", "B=7")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "Stack.forward",
        "",
        "generics  H = 3, Layers = 4, T = bf16",
        "entry's   B = 7",
        "inputs    x: [7, 3; bf16]",
        "results   [7, 3; bf16]",
        "",
        "torch, equivalent",
        "        4 times:",
        "native      std.nn.linear::linear(x: [7, 3; bf16], weight: [3, 3; bf16]) -> [7, 3; bf16]",
        "body        two::double(x: [7, 3; bf16]) -> [7, 3; bf16]",
        "native          std.nn.activations::relu(x: [7, 3; bf16]) -> [7, 3; bf16]",
        "",
        "8 op calls: 4 native, 4 by body. Under exact all run by body, under fast 0 are fused.",
        default_run(),
    ]


def test_json_gives_shapes_counts_and_kernels(run: Run, stack: Path) -> None:
    done = run("linnet", "explain", stack, "--entry", "forward", "--bind", "Layers=4", "--json")
    found: Any = json.loads(done.stdout)
    assert (found["entry"], found["root"], found["entry_generics"]) == ("forward", "Stack", {"B": 1})
    assert found["inputs"] == [{"name": "x", "shape": [1, 3], "dtype": "bf16"}]
    assert found["results"] == [{"shape": [1, 3], "dtype": "bf16"}]
    (layers,) = found["steps"]
    assert layers["times"] == 4
    linear, double = layers["steps"]
    assert linear["op"] == "std.nn.linear::linear"
    assert [item["name"] for item in linear["inputs"]] == ["x", "weight"]
    assert linear["kernels"] == {"torch": {"exact": "body", "equivalent": "native", "fast": "native"}}
    assert double["kernels"]["torch"]["equivalent"] == "body"
    assert [inner["op"] for inner in double["body"]] == ["std.nn.activations::relu"]


def test_the_card_gives_generics_entry_and_optional_weights(run: Run, root: Path) -> None:
    done = run("linnet", "explain", root / "nests" / "all-minilm-l6-v2" / "src" / "lib.linnet")
    assert done.returncode == 0, done.stderr
    assert "Vocab = 30522" in done.stdout
    assert "6 times:" in done.stdout
    assert "bias: [384; f32]" in done.stdout


def test_the_seed(run: Run, seed: Path) -> None:
    done = run("linnet", "explain", "--entry", "decode", "--json", seed / "qwen3-8b-fp8" / "src" / "lib.linnet")
    assert done.returncode == 0, done.stderr
    steps = json.loads(done.stdout)["steps"]
    assert [step["times"] for step in steps if "times" in step] == [36]


def test_an_entry_of_a_module(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "loss.linnet"
    file.write_text("module loss\n\nentry half<N: Dim>(x: Tensor[N; f32]) -> Tensor[N; f32] {\n    return x / 2.0\n}\n")
    done = run("linnet", "explain", file, "--bind", "N=5")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("half\n\ngenerics  none\nentry's   N = 5\n")
    assert "0 op calls" in done.stdout


def test_a_folder_stands_for_its_source(run: Run, tiny: Path) -> None:
    done = run("linnet", "explain", tiny)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == run("linnet", "explain", tiny / "lib.linnet").stdout


@pytest.mark.parametrize("words", [[], ["--entry", "half"]])
def test_a_source_without_entries(run: Run, tmp_path: Path, words: list[str]) -> None:
    file = tmp_path / "half.linnet"
    file.write_text("module half\n\npub fn half(x: f32) -> f32 {\n    return x / 2.0\n}\n")
    done = run("linnet", "explain", file, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{file} has no entry to explain: declare what a backend may run as `pub entry`." in done.stderr


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ([], 2, "has several entries: name one with --entry; its entries: forward, first."),
        (["--entry", "second"], 2, "has no entry second; its entries: forward, first."),
        (["--entry", "first", "--root", "Tower"], 2, "has no block Tower; its blocks: Stack."),
        (["--entry", "first", "--bind", "B=3"], 2, "Stack.first has no generic B; its generics: H, Layers, T."),
        (["--entry", "first", "--bind", "H=wide"], 2, "H is 'wide'"),
        (["--entry", "first", "--bind", "H=2", "--bind", "Layers=1"], 1, "`H > 2` is false for H = 2"),
        (
            ["--entry", "first", "--bind", "Layers=0"],
            1,
            "`Layers > 0` of `first` is false for the given generics. Give values",
        ),
    ],
)
def test_what_does_not_fit_is_refused(run: Run, stack: Path, words: list[str], code: int, said: str) -> None:
    done = run("linnet", "explain", stack, *words)
    assert done.returncode == code
    assert said in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


def test_a_source_that_does_not_check(run: Run, stack: Path) -> None:
    stack.write_text(SOURCE.replace("x + x", "x + z"))
    done = run("linnet", "explain", stack)
    assert done.returncode == 1
    assert "error[E1201]" in done.stderr
