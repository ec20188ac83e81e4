"""`nest parity`: two engines on one package, told apart by what they give."""

from __future__ import annotations

import json
from collections.abc import Callable
from math import hypot
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import jsonschema
import pytest
import torch
from text_package import write_text_package

pytest.importorskip("mlx.core", reason="MLX is not installed")

from linnet import nest
from linnet.cli.nest_parity import command, report_lines
from linnet.parity import ParityReport
from linnet.runner import parity as compared
from linnet.runner.errors import ContextError, ModeError, NonFiniteError
from linnet.runner.mlx.kernels import kernels, policy_of

Run = Callable[..., CompletedProcess[str]]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_text_package(tmp_path_factory.mktemp("nests") / "text").folder


@pytest.fixture(scope="module")
def schema(root: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((root / "docs" / "schemas" / "parity.v1.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(found)
    return found


def test_a_decoder_is_compared_step_by_step(text: Path, schema: dict[str, Any]) -> None:
    found = nest.parity(text, steps=6, prompt="The harbour was quiet")
    assert found.ok
    assert found.entries == ("prefill", "decode")
    assert (found.backends, found.steps, found.first_other_token) == (("torch", "mlx"), 6, None)
    assert found.prompt_tokens == len(nest.tokenizer(text).encode("The harbour was quiet"))
    assert found.output.largest == 0 < found.output.magnitude
    assert [layer.name for layer in found.layers] == ["layers.0", "layers.1"]
    assert found.devices == ("cpu", "cpu")
    assert (found.from_f32, found.dtypes) == (None, {"T": "f32"})
    jsonschema.validate(found.to_dict(), schema)
    # Each by its own sums.
    found = nest.parity(text, steps=6, prompt="The harbour was quiet", numerics="equivalent")
    assert 0 < found.output.mean <= found.output.largest <= 1e-5 * found.output.magnitude
    assert (found.ok, found.tolerance) == (True, 1e-4)


def test_bf16_is_held_to_the_distance_from_f32(text: Path, schema: dict[str, Any]) -> None:
    found = nest.parity(text, steps=6, dtype="bf16")
    assert found.from_f32 is not None
    assert found.prompt_tokens == 32
    assert found.tolerance == min(apart.largest for apart in found.from_f32)
    other = nest.parity(text, steps=6, dtype="bf16", numerics="fast")
    assert other.from_f32 is not None
    assert other.tolerance == hypot(*(apart.largest for apart in other.from_f32))
    assert found.from_f32[0].mean > 0
    assert found.dtypes == {"T": "bf16"}
    jsonschema.validate(found.to_dict(), schema)


def test_an_encoder_runs_its_entry_once(root: Path, minilm_checkpoint: Path) -> None:
    found = nest.parity(root / "nests" / "all-minilm-l6-v2", weights=minilm_checkpoint)
    assert found.ok
    assert (found.entries, found.steps, found.prompt_tokens, found.first_other_token) == (("embed",), 0, 0, None)
    assert len(found.layers) == 5
    with pytest.raises(nest.NestError, match="decodes nothing, so that it reads no prompt"):
        nest.parity(root / "nests" / "all-minilm-l6-v2", weights=minilm_checkpoint, prompt="x")


def test_floats_that_an_entry_takes_are_of_each_engines_dtype() -> None:
    found = nest.parity("qwen3-backbone-tiny", dtype="bf16")
    assert found.ok
    assert found.entries == ("forward",)
    assert found.from_f32 is not None
    assert 0 < found.from_f32[0].mean < found.output.magnitude / 100
    assert len(found.layers) == 2


@pytest.fixture
def other_arithmetic(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel of MLX's that is far off."""
    kernel = kernels(policy_of("engine", "cpu"))["std.nn.linear::linear"]
    right = kernel._function
    monkeypatch.setattr(kernel, "_function", lambda *words, **named: -right(*words, **named))


def test_engines_that_differ_are_told(text: Path, other_arithmetic: None) -> None:
    found = nest.parity(text, steps=6)
    assert not found.ok
    assert found.output.largest > 0.1
    assert found.first_other_token is not None
    lines = list(report_lines(found))
    assert "text: torch and mlx are beyond the tolerance of" in lines[0]
    assert any("another one at" in line for line in lines)


def test_the_command_tells_and_ends_by_the_tolerance(run: Run, text: Path, tmp_path: Path) -> None:
    options = ("--steps", "3", "--offline")
    done = run("nest", "parity", text, *options, "-o", tmp_path / "parity.json")
    assert (done.returncode, done.stderr) == (0, "")
    first, *rest = done.stdout.splitlines()
    assert first == "text: torch and mlx are within the tolerance of 0.0001"
    assert any("the same 4, after 32 of prompt" in line for line in rest)
    assert sum(line.lstrip().startswith("layers.") for line in rest) == 2
    document = json.loads((tmp_path / "parity.json").read_text())
    assert document["ok"] is True

    done = run("nest", "parity", text, *options, "--tolerance", "0", "--numerics", "equivalent", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["ok"] is False


def test_bad_input_is_one_sentence(run: Run, text: Path) -> None:
    with pytest.raises(nest.NestError, match="backend='numpy' is not known; write one of torch, mlx"):
        nest.parity(text, backends=("torch", "numpy"))
    for backends, said in (
        (("mlx", "mlx"), "mlx, mlx are named: give two different ones of torch, mlx"),
        (("torch", "mlx", "torch"), "torch, mlx, torch are named"),
        (("mlx",), "mlx is named"),
        ((), "none is named"),
    ):
        with pytest.raises(nest.NestError, match=f"two engines are compared, and {said}"):
            nest.parity(text, backends=backends)
    for devices, said in ((("cpu",), "cpu is named: give two, such as cpu,cpu"), ((), "none is named")):
        with pytest.raises(nest.NestError, match=f"each engine runs on a device, and {said}"):
            nest.parity(text, devices=devices)
    with pytest.raises(nest.NestError, match=r"device='cpu' says where one engine runs: name one for each, devices="):
        nest.parity(text, device="cpu")
    with pytest.raises(ModeError, match="device='tpu' is not one of MLX"):
        nest.parity(text, devices=("cpu", "tpu"), steps=1)
    with pytest.raises(nest.NestError, match="0 steps decode nothing"):
        nest.parity(text, steps=0)
    with pytest.raises(ContextError, match="the cache holds 64"):
        nest.parity(text, steps=33)
    with pytest.raises(nest.NestError, match="a tolerance of -1 is none"):
        nest.parity(text, tolerance=-1)
    with pytest.raises(nest.NestError, match="dtype='f8' is not a floating dtype"):
        nest.parity(text, dtype="f8")
    done = run("nest", "parity", text, "--dtype", "f16")
    assert done.returncode == 2


def test_a_file_that_cannot_be_written_is_told_before_anything_runs(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nest, "parity", lambda *words, **named: pytest.fail("it ran"))
    output = tmp_path / "absent" / "parity.json"
    with pytest.raises(FileNotFoundError) as told:
        command.main([str(text), "-o", str(output)], standalone_mode=False)
    assert told.value.filename == str(output)


def test_logits_that_are_no_numbers_are_told() -> None:
    with pytest.raises(NonFiniteError, match="the second engine are not all numbers"):
        compared.difference(torch.zeros(2), torch.tensor([0.0, torch.nan]))


def test_the_first_other_token_is_that_of_any_row() -> None:
    reference = torch.tensor([[[0.0, 1], [0, 1]], [[0, 1], [0, 1]], [[0, 1], [0, 1]]])
    other = reference.clone()
    assert compared.first_other_token(reference, other) is None
    other[1, 1] = torch.tensor([3.0, 1])
    assert compared.first_other_token(reference, other) == 1


def test_a_report_without_layers_is_told_too() -> None:
    none = compared.Difference(0.0, 0.0, 0.0)
    report = ParityReport("a", ("torch", "mlx"), ("cpu", "cpu"), "engine", {}, ("f",), 0, 0, none, None, None, (), 0.0)
    assert report.ok
    assert len(list(report_lines(report))) == 3
