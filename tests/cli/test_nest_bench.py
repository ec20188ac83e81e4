"""`nest bench` and `nest.bench`: two packages measured by processes, the file that is written, and bad input."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import jsonschema
import pytest
import torch
from safetensors.torch import load_file, save_file
from text_package import TEXT, TextPackage, write_text_package

from linnet import benchmark, nest
from linnet.benchmark import BenchError, BenchMemoryError
from linnet.registry.bench import BenchReport, package_digest
from linnet.registry.errors import RegistryError
from linnet.runner.errors import ContextError, ModeError

Run = Callable[..., CompletedProcess[str]]
QUICK = ("--prompt", "6", "--new", "4", "--runs", "1", "--device", "cpu")
SMALL: dict[str, Any] = {"prompt": 6, "new": 4, "runs": 1, "device": "cpu"}


def add_bench(package: TextPackage, *lines: str) -> None:
    card = package.folder / "nest.toml"
    card.write_text(card.read_text() + "\n[bench]\n" + "".join(f"{line}\n" for line in lines))


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`text`, whose card names the baseline `other` and a text; `plain` has no [bench]."""
    folder = tmp_path_factory.mktemp("packages")
    text = write_text_package(folder / "text")
    write_text_package(folder / "other", seed=1)
    write_text_package(folder / "plain", seed=2)
    (text.folder / "held-out.txt").write_text(TEXT[:200])
    add_bench(
        text, 'baseline = "other"', 'dataset = "held-out.txt"', "window = 24", "stride = 12", "prompt = 5", "new = 3"
    )
    return folder


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Instead of processes: the jobs that they would be given."""
    jobs: list[dict[str, Any]] = []

    def measure(subject: Any, sizes: dict[str, int]) -> dict[str, Any]:
        jobs.append({"name": subject.name, **sizes, **subject.load})
        timing = dict.fromkeys(benchmark.FIGURES, float(len(jobs)))
        names = ("python", "torch", "system", "machine", "device_name")
        environment = {**dict.fromkeys(names, "x"), "device": "cpu", "cuda": None, "threads": 1, "memory_bytes": None}
        return {"timing": timing, "compile": True, "fp8": None, "generics": {}, "environment": environment}

    monkeypatch.setattr(benchmark, "_measure", measure)
    return jobs


def test_it_measures_both_and_writes_beside_the_card(run: Run, packages: Path, root: Path) -> None:
    done = run("nest", "bench", packages / "text", "--runs", "2", "--numerics", "fast", "--device", "cpu")
    assert (done.returncode, done.stderr) == (0, "")
    file = packages / "text" / "bench.json"
    written = file.read_text()
    file.unlink()
    schema = root / "docs" / "schemas" / "bench.v1.schema.json"
    jsonschema.validate(json.loads(written), json.loads(schema.read_text()))
    found = BenchReport.from_json(written)
    assert (found.protocol.prompt, found.protocol.new, found.protocol.runs) == (5, 3, 2)
    assert found.command == (
        "nest bench text --baseline other --prompt 5 --new 3 --runs 2 --numerics fast --device cpu"
    )
    assert found.baseline is not None
    for item, name in ((found.package, "text"), (found.baseline, "other")):
        folder = packages / name
        assert item.name == name
        assert item.generics["MaxSeq"] == 8
        assert item.compile is True
        assert item.fp8 is None
        assert item.digest == package_digest(folder, ["model.safetensors"])
        assert item.weights.pinned
        (weights,) = item.weights.files
        assert weights.sha256 == hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
        results = item.results
        assert len(results.load_seconds.runs) == 2
        assert results.load_seconds.median < results.load_and_first_token_seconds.median
        assert item.perplexity is not None
        # Both are scored on the text of the package, by its windows.
        protocol = item.perplexity.protocol
        assert (protocol["text"]["file"], protocol["window"], protocol["stride"]) == ("held-out.txt", 24, 12)
        assert item.perplexity.perplexity == pytest.approx(
            nest.evaluate(
                folder, text=packages / "text" / "held-out.txt", window=24, stride=12, numerics="fast", device="cpu"
            ).result.perplexity
        )
    shown = done.stdout.splitlines()
    assert shown[0].split() == ["text", "other", "ratio"]
    assert [line.split("  ")[0] for line in shown[1:7]] == [
        "perplexity",
        "time to first token",
        "decoding",
        "peak memory",
        "load",
        "load and first token",
    ]
    assert shown[-1] == f"Written to {file}."


def test_given_weights_are_named_as_such(run: Run, packages: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    shutil.copy(packages / "other" / "model.safetensors", mine)
    output = tmp_path / "out" / "figures.json"
    output.parent.mkdir()
    done = run("nest", "bench", packages / "plain", "--weights", mine, "-o", output, "--json", *QUICK)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == output.read_text()
    assert os.listdir(output.parent) == ["figures.json"]
    assert output.stat().st_mode & 0o777 == 0o644
    found = BenchReport.from_json(done.stdout)
    assert found.baseline is None
    assert found.package.perplexity is None
    assert (found.package.weights.pinned, found.package.weights.given) == (False, "mine")
    assert found.command.startswith("nest bench plain --no-baseline --weights mine --prompt 6 ")
    assert str(tmp_path) not in done.stdout


def test_bad_input_is_one_sentence(run: Run, packages: Path, tiny: Path, tmp_path: Path) -> None:
    def refused(*words: str | Path, code: int) -> str:
        done = run("nest", "bench", *words)
        assert (done.returncode, done.stdout) == (code, ""), done.stderr
        assert "Traceback" not in done.stderr
        return done.stderr

    plain = packages / "plain"
    told = refused(tiny, code=1)
    assert "tiny cannot be timed: generating text needs the entries prefill and decode" in told
    told = refused(plain, "--prompt", "500", code=1)
    assert "plain does not take 500 tokens of prompt and 64 new ones: `MaxSeq <= Positions` is false" in told
    assert "ask for fewer (--prompt, --new)" in told
    told = refused(plain, "--baseline", plain, *QUICK, code=2)
    assert "plain cannot be its own baseline: name another package (--baseline)" in told
    assert 'There is no folder "nobody"' in refused(plain, "--baseline", "nobody", *QUICK, code=1)
    assert "contradict each other" in refused(plain, "--baseline", "other", "--no-baseline", code=2)
    told = refused(plain, "-o", tmp_path / "none" / "b.json", *QUICK, code=2)
    assert "cannot be written to" in told
    assert "no such file or directory; name another file with -o" in told
    assert "Invalid value for '--new'" in refused(plain, "--new", "1", code=2)
    assert not list(packages.glob("*/bench.json"))


# What a process of its own tells.


def test_a_process_that_finds_nan_says_where(tmp_path: Path) -> None:
    package = write_text_package(tmp_path / "text")
    file = package.folder / "model.safetensors"
    weights = load_file(file)
    weights["ln_f.bias"][3] = torch.nan
    save_file(weights, file)
    with pytest.raises(BenchError, match=r"^text: the logits after 6 tokens .* NaN appears first in norm"):
        nest.bench(package.folder, **SMALL)
    assert not (package.folder / "bench.json").exists()


def test_a_model_without_room_is_told_with_both_sizes(root: Path, tmp_path: Path) -> None:
    huge = {"MaxSeq": 10**13}
    words = (
        r"^qwen3-tiny does not fit into the memory of cpu: its weights and caches take [\d.]+ TiB, and [\d.]+ GiB were"
    )
    with pytest.raises(BenchMemoryError, match=words):
        nest.bench("qwen3-tiny", output=tmp_path / "b.json", generics=huge, perplexity=False, **SMALL)
    assert not list(tmp_path.iterdir())


def test_a_process_that_is_killed_is_told(packages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # What a system that is short of memory does, and then any other end.
    for signal, kind, words in (
        ("SIGKILL", BenchMemoryError, "plain does not fit into the memory of cpu"),
        ("SIGTERM", BenchError, "plain: the process that measures it ended with code -15: it printed nothing"),
    ):
        end = f"import os, signal, sys; sys.stdin.read(); os.kill(os.getpid(), signal.{signal})"
        monkeypatch.setattr(benchmark, "_BOOTSTRAP", end)
        with pytest.raises(kind, match=words):
            nest.bench(packages / "plain", **SMALL)
    monkeypatch.setattr(benchmark, "_BOOTSTRAP", "import sys; sys.stdin.read(); sys.exit('no such thing')")
    with pytest.raises(BenchError, match="ended with code 1: no such thing"):
        nest.bench(packages / "plain", **SMALL)


# What they are asked for.


def test_runs_take_turns_and_so_does_who_goes_first(
    packages: Path, quick: list[dict[str, Any]], tmp_path: Path
) -> None:
    turns: list[Any] = []

    def watch(items: Any) -> Any:
        turns.append(list(items))
        return items

    output = tmp_path / "b.json"
    settings: dict[str, Any] = {**SMALL, "runs": 3, "perplexity": False, "compile": False, "fp8": "stream"}
    report = nest.bench(packages / "text", output=output, watch=watch, dtype=torch.bfloat16, **settings)
    assert [job["name"] for job in quick] == ["text", "other", "other", "text", "text", "other"]
    assert turns == [[0, 1, 1, 0, 0, 1]]
    for job in quick:
        assert (job["generics"], job["offline"], job["device"]) == ({"MaxSeq": 10}, True, "cpu")
        assert (job["compile"], job["fp8"], job["dtype"], job["numerics"]) == (False, "stream", "bf16", "equivalent")
    assert report.package.results.load_seconds.runs == (1, 4, 5)
    assert report.command.endswith("--dtype bf16 --compile off --fp8 stream --no-perplexity")
    assert BenchReport.from_json(output.read_text()) == report


def test_nests_comes_before_what_ships(
    packages: Path, quick: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = write_text_package(tmp_path / "nests" / "gpt2")
    monkeypatch.chdir(tmp_path)
    report = nest.bench("gpt2", baseline=packages / "other", **SMALL)
    assert report.package.digest == package_digest(own.folder, ["model.safetensors"])
    assert report.baseline is not None
    assert (own.folder / "bench.json").is_file()
    assert nest.bench(packages / "text", baseline=False, output=tmp_path, perplexity=False, **SMALL).baseline is None
    assert (tmp_path / "bench.json").is_file()


def test_pinned_weights_are_known_by_place_or_digest(quick: list[dict[str, Any]], tmp_path: Path) -> None:
    package = write_text_package(tmp_path / "text")
    weights = package.folder / "model.safetensors"
    digest = hashlib.sha256(weights.read_bytes()).hexdigest()

    def pinned(given: Path | None = None) -> tuple[bool, str | None]:
        used = nest.bench(package.folder, weights=given, **SMALL).package.weights
        return used.pinned, used.given

    assert pinned() == (True, None)
    assert pinned(weights) == (False, "model.safetensors")
    # A file beside a card that names a repository may be any file of that name, unless the card gives its digest.
    package.edit("[weights]\n", f'[weights]\nrepo = "org/repo"\nrevision = "{"0" * 40}"\n')
    assert pinned() == (False, None)
    card = package.folder / "nest.toml"
    card.write_text(card.read_text() + f'\n[weights.sha256]\n"model.safetensors" = "{digest}"\n')
    assert pinned() == (True, None)
    assert pinned(weights) == (True, "model.safetensors")


def test_what_cannot_be_measured_is_refused_before_any_process(
    packages: Path, quick: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = packages / "plain"
    with pytest.raises(ContextError, match="a prompt of 6 tokens and 4 new ones make 10, but the cache holds 9"):
        nest.bench(plain, generics={"MaxSeq": 9}, **SMALL)
    with pytest.raises(ContextError, match="a prompt of 9999999 tokens and 4 new ones make 10000003, but the cache"):
        nest.bench("qwen3-tiny", output=tmp_path / "b.json", **{**SMALL, "prompt": 9999999})
    with pytest.raises(nest.NestError, match="6 tokens of prompt, 1 new and 1 run measure nothing"):
        nest.bench(plain, **{**SMALL, "new": 1})
    with pytest.raises(nest.NestError, match="weights are given for a baseline, and plain has none"):
        nest.bench(plain, baseline_weights=plain, **SMALL)
    with pytest.raises(nest.NestError, match="on the meta device nothing is computed"):
        nest.bench(plain, **{**SMALL, "device": "meta"})
    with pytest.raises(nest.NestError, match="numerics='quick' is not known"):
        nest.bench(plain, numerics="quick", **SMALL)
    with pytest.raises(nest.DeviceError, match="device='nowhere' is not known"):
        nest.bench(plain, **{**SMALL, "device": "nowhere"})
    with pytest.raises(ModeError, match="'reduce-overhead' replays CUDA graphs, and the device is cpu"):
        nest.bench(plain, compile="reduce-overhead", **SMALL)
    with pytest.raises(RegistryError, match=r"model\.safetensors is not in"):
        nest.bench(plain, weights=tmp_path, **SMALL)
    with pytest.raises(RegistryError, match="offline is set"):
        nest.bench("gpt2", output=tmp_path / "b.json", offline=True, **SMALL)
    monkeypatch.setattr("linnet.registry.datasets.DATASETS", {})
    (packages / "text" / "held-out.txt").rename(tmp_path / "held-out.txt")
    with pytest.raises(RegistryError, match=r'There is no dataset "held-out\.txt"'):
        nest.bench(packages / "text", **SMALL)
    (tmp_path / "held-out.txt").rename(packages / "text" / "held-out.txt")
    assert quick == []
