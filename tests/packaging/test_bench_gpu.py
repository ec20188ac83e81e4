"""The GPU benchmark without a GPU: that it says so, and that its steps run at toy sizes. Its figures are for a GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

# Everything that the project may install beside torch: a bare checkout has none of it.
ABSENT = """
import importlib.abc, runpy, sys
absent = {"click", "httpx2", "huggingface_hub", "markdown_it", "nh3", "platformdirs", "pygments", "safetensors",
          "tokenizers", "tqdm", "transformers"}
class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
sys.path[:] = [place for place in sys.path if place != ROOT]
sys.path.insert(0, ROOT + "/bench")
sys.argv = ["gpu.py", *sys.argv[1:]]
runpy.run_path(ROOT + "/bench/gpu.py", run_name="__main__")
"""


def run_bare(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """bench/gpu.py where torch and what torch needs are all that is installed."""
    code = ABSENT.replace("ROOT", repr(str(root)))
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=root.parent)


@pytest.fixture
def modules(root: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[ModuleType, ModuleType]:
    monkeypatch.syspath_prepend(str(root / "bench"))
    import gpu
    import gpu_models

    return gpu, gpu_models


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_no_gpu_is_said(root: Path) -> None:
    done = run_bare(root)
    assert done.returncode == 3
    assert done.stdout == ""
    (line,) = [line for line in done.stderr.splitlines() if "Warning" not in line and line.startswith("bench")]
    assert line == "bench/gpu.py measures an NVIDIA GPU of compute capability 9.0 or later: torch sees no GPU here."


def test_every_step_runs_on_torch_alone(root: Path) -> None:
    results = root / "bench" / "results"
    before = sorted(results.glob("*")) if results.exists() else []
    done = run_bare(root, "--self-test")
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    for part in ("copy within memory", "quantise ", "linear (reference)", "bf16 linear", "tokens/s", "first 16 ms"):
        assert part in done.stdout
    models = done.stdout.partition("tokens/s")[2].splitlines()[1:3]
    assert [line.split()[0] for line in models] == ["bf16", "FP8"]
    assert "transformers is not installed: not measured beside it" in done.stdout
    assert "these figures mean nothing" in done.stdout
    assert (sorted(results.glob("*")) if results.exists() else []) == before


def test_transformers_gives_the_same_logits(modules: tuple[ModuleType, ModuleType]) -> None:
    gpu, gpu_models = modules
    bench = gpu.Bench(torch.device("cpu"), gpu.TOY)
    bench.results.copy_bytes_per_second = 1e9
    gpu_models.run_model(bench, "qwen3-8b", "bf16", {"numerics": "fast"})
    gpu_models.run_transformers(bench)
    ours, theirs = bench.results.models
    assert theirs["bytes_a_token"] == ours["bytes_a_token"]
    assert 0 < theirs["logits_from_bf16"] < gpu_models.TOLERANCE
    assert bench.results.failures == []


def test_a_wrong_kernel_fails_the_run(modules: tuple[ModuleType, ModuleType]) -> None:
    gpu, _ = modules
    bench = gpu.Bench(torch.device("cpu"), gpu.TOY)
    x = torch.ones(4)
    gpu.record(bench, "right", "output", 1, x, x)
    assert bench.results.failures == []
    gpu.record(bench, "wrong", "output", 1, x * 1.1, x)
    gpu.record(bench, "broken", "output", 1, x * float("nan"), x)
    assert [text.partition(",")[0] for text in bench.results.failures] == ["wrong", "broken"]


def test_what_there_is_no_time_for_is_said(modules: tuple[ModuleType, ModuleType]) -> None:
    gpu, _ = modules
    bench = gpu.Bench(torch.device("cpu"), gpu.TOY)
    bench.start -= gpu.DEADLINE + 1
    bench.attempt("a step", lambda: pytest.fail("was run"))
    assert bench.results.notes == ["a step: not reached within 210 s"]


def test_results_are_written_for_the_device(
    modules: tuple[ModuleType, ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu, _ = modules
    monkeypatch.setattr(gpu, "ROOT", tmp_path)
    (tmp_path / "bench").mkdir()
    bench = gpu.Bench(torch.device("cpu"), gpu.TOY)
    bench.results.environment |= {"date": "2026-01-02", "device": "NVIDIA H100 80GB HBM3"}
    path = gpu.write(bench)
    assert path == tmp_path / "bench" / "results" / "2026-01-02-nvidia-h100-80gb-hbm3.json"
    assert json.loads(path.read_text())["checks"] == []
    assert [item.name for item in path.parent.iterdir()] == [path.name]
