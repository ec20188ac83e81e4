"""`--backend mlx` of the commands that run a model, and what loads as one value."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import jsonschema
import pytest
import torch
from text_package import TEXT, write_text_package

from linnet import nest
from linnet.load_options import LoadOptions
from linnet.registry.bench import BenchReport
from linnet.registry.bench_text import conditions

Run = Callable[..., CompletedProcess[str]]
WITHOUT_MLX = "import sys; sys.modules['mlx'] = None; sys.modules['mlx.core'] = None; "


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    package = write_text_package(tmp_path_factory.mktemp("nests") / "text")
    (package.folder / "held-out.txt").write_text(TEXT[:120])
    return package.folder


def test_run_writes_the_same_text_on_both(run: Run, text: Path) -> None:
    pytest.importorskip("mlx.core", reason="MLX is not installed")
    words = ("nest", "run", text, "The harbour", "--raw", "--max-new-tokens", "8", "--device", "cpu")
    first, second = run(*words), run(*words, "--backend", "mlx")
    assert (second.returncode, second.stderr) == (0, "")
    assert second.stdout == first.stdout


def test_eval_scores_the_same_on_both(run: Run, text: Path) -> None:
    pytest.importorskip("mlx.core", reason="MLX is not installed")
    options = ("--text", text / "held-out.txt", "--window", "24", "--device", "cpu", "--json")
    found = []
    for backend in ("torch", "mlx"):
        done = run("nest", "eval", text, "--backend", backend, *options)
        assert (done.returncode, done.stderr) == (0, "")
        found.append(json.loads(done.stdout))
        assert (found[-1]["protocol"]["backend"], found[-1]["protocol"]["device"]) == (backend, "cpu")
    assert found[0]["perplexity"] == pytest.approx(found[1]["perplexity"], rel=1e-5)


def test_bench_tells_the_backend(run: Run, text: Path, root: Path, tmp_path: Path) -> None:
    pytest.importorskip("mlx.core", reason="MLX is not installed")
    file = tmp_path / "bench.json"
    options = ("--prompt", "5", "--new", "3", "--runs", "1", "--no-perplexity", "--device", "cpu")
    done = run("nest", "bench", text, "--backend", "mlx", *options, "-o", file)
    assert (done.returncode, done.stderr) == (0, "")
    schema = root / "docs" / "schemas" / "bench.v1.schema.json"
    jsonschema.validate(json.loads(file.read_text()), json.loads(schema.read_text()))
    report = BenchReport.from_json(file.read_text())
    assert report.protocol.backend == "mlx"
    assert report.environment.device == "cpu"
    assert report.environment.mlx
    assert report.package.compile is False
    assert "--backend mlx --numerics equivalent" in report.command
    told = "\n".join(conditions(report))
    assert "mlx, numerics equivalent, interpreted" in told
    assert f", mlx {report.environment.mlx}, Python" in told


def test_what_the_backend_has_not_is_one_sentence(run: Run, text: Path) -> None:
    pytest.importorskip("mlx.core", reason="MLX is not installed")
    words = ("nest", "eval", text, "--text", text / "held-out.txt", "--backend", "mlx")
    for options, sentence in (
        (("--device", "cuda"), "device='cuda' is not one of MLX, which has cpu and gpu"),
        (("--fp8", "stream"), "fp8='stream' belongs to backend=\"torch\""),
        (("--compile", "inductor"), "compile='inductor' belongs to backend=\"torch\""),
        (("--dtype", "f16"), 'which backend="mlx" does not run in'),
    ):
        done = run(*words, *options)
        assert (done.returncode, done.stdout) == (2, "")
        assert sentence in done.stderr
        assert done.stderr.count("\n") == 1
    assert run(*words[:-1], "jax").returncode == 2


def test_without_mlx_the_commands_say_how_to_install_it(run: Run, text: Path) -> None:
    for words in (
        ("run", text, "The harbour", "--raw", "--backend", "mlx"),
        ("eval", text, "--text", text / "held-out.txt", "--backend", "mlx"),
        ("bench", text, "--no-perplexity", "--backend", "mlx"),
        ("parity", text, "--steps", "4"),
    ):
        done = run("nest", *words, before=WITHOUT_MLX)
        assert done.returncode == 3, done.stderr
        assert "pip install 'mlx[cpu]' on Linux" in done.stderr
    done = run("nest", "eval", text, "--text", text / "held-out.txt", "--device", "cpu", before=WITHOUT_MLX)
    assert (done.returncode, done.stderr) == (0, "")


def test_options_are_one_value() -> None:
    options = LoadOptions.of(dtype=torch.bfloat16, device=torch.device("cpu"), weights="~/weights", capacity=8)
    assert (options.dtype, options.device, options.weights) == ("bf16", "cpu", Path.home() / "weights")
    assert options.arguments()["capacity"] == 8
    assert options.with_positions(12).generics is None
    assert LoadOptions().with_positions(12).generics == {"MaxSeq": 12}
    assert LoadOptions(generics={"MaxSeq": 3}).with_positions(12).generics == {"MaxSeq": 3}
    shapes = LoadOptions(backend="mlx", fp8="stream", dtype="f32", compile=True, numerics="engine").shapes()
    assert shapes == LoadOptions(device="meta", dtype="f32", numerics="engine")
    with pytest.raises(nest.NestError, match="dtype='f8' is not a floating dtype"):
        LoadOptions.of(dtype="f8")
    with pytest.raises(TypeError, match="numeric"):
        nest.bench("text", numeric="fast")
