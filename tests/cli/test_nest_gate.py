"""`nest gate` as users run it: a registry, a published model, and a deliberate fault of each kind."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from linnet import gating, gating_measure, nest
from linnet.benchmark import BenchError, BenchMemoryError
from linnet.load_options import LoadOptions
from linnet.parity import ParityReport
from linnet.registry.bench import BenchReport, Figure
from linnet.registry.check import check_package
from linnet.registry.events import yank
from linnet.registry.gate_report import GateReport
from linnet.registry.index import package_version
from linnet.registry.locate import Located
from linnet.registry.publish import make_publication, publish_version
from linnet.registry.registry import Registry
from linnet.registry.store.open import open_store
from linnet.runner.parity import Difference

NESTS = Path(__file__).resolve().parents[2] / "nests"
LOAD = LoadOptions(device="cpu", compile=False, offline=True)
LIMIT = 1200


def publish(registry: Path, package: Path, bench: BenchReport | None = None) -> None:
    located = Located(package)
    report = check_package(located, hub=False)
    assert report.ok, report.errors()
    version = package_version(package, located.card())
    publish_version(Registry(open_store(registry)), make_publication(located, version, report, bench))


@dataclass
class Work:
    """A working copy of qwen3-tiny, whose 0.1.0 is in the registry beside it."""

    root: Path
    registry: Path

    @property
    def package(self) -> Path:
        return self.root / "nests" / "qwen3-tiny"

    def edit(self, file: str, old: str, new: str) -> None:
        path = self.package / file
        text = path.read_text()
        assert old in text, old
        path.write_text(text.replace(old, new))

    def weights(self, change: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]) -> None:
        file = self.package / "model.safetensors"
        save_file(change(load_file(file)), file)

    def gate(self, *, bench: bool = True, **more: Any) -> GateReport:
        run = gating.gate(
            [self.package], against=str(self.registry), bench=bench, limit_tokens=LIMIT, load=LOAD.but(**more)
        )
        (report,) = run.reports
        return report


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("registry")
    publish(folder, NESTS / "qwen3-tiny")
    return folder


@pytest.fixture
def work(tmp_path: Path, registry: Path, monkeypatch: pytest.MonkeyPatch) -> Work:
    monkeypatch.setenv("LINNET_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("LINNET_DATA", str(tmp_path / "data"))
    shutil.copytree(NESTS / "qwen3-tiny", tmp_path / "nests" / "qwen3-tiny")
    return Work(tmp_path, registry)


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Instead of timing: the arguments of `run_bench`, answered by `bench.json` of qwen3-tiny-fp8 with both alike."""
    calls: list[dict[str, Any]] = []
    known = BenchReport.from_json((NESTS / "qwen3-tiny-fp8" / "bench.json").read_bytes())

    def run_bench(name: str, **arguments: Any) -> tuple[BenchReport, Path]:
        calls.append({"package": name, **arguments})
        return dataclasses.replace(known, baseline=known.package), Path("unwritten")

    monkeypatch.setattr(gating_measure, "run_bench", run_bench)
    return calls


@pytest.fixture(autouse=True)
def alike(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Instead of two engines: a report in which they are alike. The tests of parity run them, or tell of others."""
    if "both_engines" not in request.fixturenames:
        monkeypatch.setattr(gating_measure, "run_parity", lambda name, **_: parity(1e-6))
        monkeypatch.setattr(nest, "require_mlx", lambda: None)


@pytest.fixture
def both_engines() -> None:
    pytest.importorskip("mlx.core", reason="MLX is not installed")


def parity(largest: float) -> ParityReport:
    apart = Difference(largest, largest / 2, 10.0)
    engines: Any = {"backends": ("torch", "mlx"), "devices": ("cpu", "cpu"), "numerics": "engine", "dtypes": {}}
    counts: Any = {"entries": ("prefill", "decode"), "prompt_tokens": 32, "steps": 64, "first_other_token": None}
    found: Any = {"output": apart, "from_f32": None, "layers": (), "tolerance": 1e-4}
    return ParityReport(package="qwen3-tiny", **engines, **counts, **found)


def regressions(report: GateReport) -> list[str]:
    return [finding.id for finding in report.regressions()]


def message(report: GateReport, kind: str) -> str:
    (found,) = [finding.message for finding in report.findings if finding.kind == kind]
    return found


def test_unchanged_is_said_and_skipped(work: Work, timed: list[dict[str, Any]]) -> None:
    report = work.gate()
    assert (report.status, report.findings, report.judged, timed) == ("unchanged", (), (), [])


def test_what_runs_alike_is_not_measured(work: Work, timed: list[dict[str, Any]]) -> None:
    work.edit("README.md", "# ", "# The ")
    report = work.gate()
    assert (report.status, timed) == ("passed", [])
    assert set(report.skipped.values()) == {"program and weights are those of 0.1.0"}
    assert [finding.kind for finding in report.findings] == ["version-taken"]


def test_a_change_that_changes_nothing_passes(work: Work, timed: list[dict[str, Any]]) -> None:
    work.edit("src/norm.linnet", "module", "// The same.\nmodule")
    report = work.gate()
    assert (report.status, regressions(report)) == ("passed", [])
    perplexity, *others = report.judged
    assert (perplexity.quantity, perplexity.verdict, perplexity.worse, perplexity.error) == ("perplexity", "fine", 0, 0)
    assert perplexity.before == perplexity.after < 100
    assert [item.quantity for item in others] == ["decode", "prompt", "memory"]
    (call,) = timed
    # Measured beside the published version, whose files were fetched from the registry.
    beside = Path(call["baseline"])
    assert beside.name == "qwen3-tiny"
    assert beside != work.package
    assert (beside / "src/norm.linnet").read_bytes() == (NESTS / "qwen3-tiny/src/norm.linnet").read_bytes()
    assert (call["package"], call["runs"], call["perplexity"]) == (str(work.package), 3, False)


def test_weights_swapped_so_that_perplexity_rises(work: Work, timed: list[dict[str, Any]]) -> None:
    def swapped(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The first two layers in each other's place: every name, shape and dtype is as before."""
        order = {"model.layers.0.": "model.layers.1.", "model.layers.1.": "model.layers.0."}
        found = {}
        for name, tensor in tensors.items():
            prefix = name[: len("model.layers.0.")]
            found[order.get(prefix, prefix) + name[len(prefix) :]] = tensor
        return found

    work.weights(swapped)
    report = work.gate()
    assert regressions(report) == ["perplexity-rose"]
    assert {finding.id for finding in report.findings} >= {"weights-changed:model.safetensors"}
    assert " over the same 5 windows: +" in message(report, "perplexity-rose")
    (judged,) = [item for item in report.judged if item.quantity == "perplexity"]
    assert judged.error is not None
    assert judged.worse > 0.01 + 2 * judged.error


def test_weights_that_are_no_numbers(work: Work, timed: list[dict[str, Any]]) -> None:
    def broken(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        tensors["model.layers.2.mlp.down_proj.weight"][0, 0] = float("nan")
        return tensors

    work.weights(broken)
    report = work.gate()
    assert regressions(report) == ["perplexity-not-finite"]
    assert "layers.2" in message(report, "perplexity-not-finite")
    assert report.skipped == dict.fromkeys(("parity", "speed", "memory"), "the model does not run")
    assert timed == []


def test_a_binding_renamed_to_another_tensor(work: Work, timed: list[dict[str, Any]]) -> None:
    work.edit("bindings.json", "mlp.gate_proj", "mlp.up_proj")
    report = work.gate()
    assert regressions(report) == ["binding-renamed:layers.{i}.mlp.gate.weight", "perplexity-rose"]
    assert message(report, "binding-renamed") == (
        "The parameter layers.{i}.mlp.gate.weight (in 4 places) reads the tensor model.layers.{i}.mlp.up_proj.weight "
        "instead of model.layers.{i}.mlp.gate_proj.weight."
    )


def test_a_shape_changed_is_named_and_not_run(work: Work, timed: list[dict[str, Any]]) -> None:
    work.edit("nest.toml", "Inner = 512", "Inner = 256")
    report = work.gate()
    assert "shape-changed:layers.{i}.mlp.gate.weight" in regressions(report)
    assert any(found.startswith("check-failed:layers.{i}.mlp") for found in regressions(report))
    assert report.skipped["perplexity"] == "the package does not pass its check"


def test_an_entry_removed(work: Work) -> None:
    text = (work.package / "src/lib.linnet").read_text()
    start = text.index("/// ", text.index("pub entry sample<"))
    begin = text.rindex("    ///", 0, text.index("    pub entry generate_until<"))
    while text[:begin].rstrip().splitlines()[-1].strip().startswith("///"):
        begin = text.rindex("    ///", 0, begin)
    assert start <= begin + 4
    end = text.index("\n    }\n", begin) + len("\n    }\n")
    (work.package / "src/lib.linnet").write_text(text[:begin].rstrip() + "\n" + text[end:])
    report = work.gate(bench=False)
    assert regressions(report) == ["entry-removed:generate_until"]
    assert message(report, "entry-removed").startswith("The entry generate_until is gone: pub entry generate_until<")
    assert report.skipped == dict.fromkeys(("perplexity", "parity", "speed", "memory"), "left out (--no-bench)")


def test_the_licence_changed_unless_allowed(work: Work) -> None:
    work.edit("nest.toml", '"Apache-2.0"', '"CC-BY-NC-4.0"')
    report = work.gate(bench=False)
    assert regressions(report) == ["licence-changed"]
    assert message(report, "licence-changed") == "The licence is CC-BY-NC-4.0 instead of Apache-2.0."
    card = work.package / "nest.toml"
    card.write_text(card.read_text() + '\n[gate]\nallow = ["licence-changed", "path-removed:*"]\n')
    report = work.gate(bench=False)
    assert report.status == "passed"
    assert '"path-removed:*" in [gate] allow accepts nothing.' in message(report, "allow-unused")


def test_other_tokens_fail(work: Work, timed: list[dict[str, Any]]) -> None:
    tokenizer = json.loads((work.package / "tokenizer.json").read_text())
    # Without merges every byte is a token.
    tokenizer["model"]["merges"] = tokenizer["model"]["merges"][:50]
    (work.package / "tokenizer.json").write_text(json.dumps(tokenizer))
    report = work.gate()
    assert regressions(report) == ["tokens-changed"]


def slower(factor: float) -> Callable[..., tuple[BenchReport, Path]]:
    known = BenchReport.from_json((NESTS / "qwen3-tiny-fp8" / "bench.json").read_bytes())

    def scaled(figure: Figure, by: float) -> Figure:
        return Figure(tuple(run * by for run in figure.runs))

    results = known.package.results
    worse = dataclasses.replace(
        results,
        decode_tokens_per_second=scaled(results.decode_tokens_per_second, 1 / factor),
        time_to_first_token_seconds=scaled(results.time_to_first_token_seconds, factor),
        peak_memory_bytes=scaled(results.peak_memory_bytes, factor) if results.peak_memory_bytes else None,
    )
    own = dataclasses.replace(known.package, results=worse)
    return lambda *words, **named: (dataclasses.replace(known, package=own, baseline=known.package), Path())


def test_slower_and_larger_than_the_published_version(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    work.edit("src/norm.linnet", "module", "// Other.\nmodule")
    monkeypatch.setattr(gating_measure, "run_bench", slower(1.5))
    report = work.gate()
    assert regressions(report) == ["decode-slower", "prompt-slower", "memory-grew"]
    assert "33.3% slower, and 10.0% is allowed" in message(report, "decode-slower")
    assert "50.0% more, and 10.0% is allowed" in message(report, "memory-grew")
    monkeypatch.setattr(gating_measure, "run_bench", slower(1.05))
    assert work.gate().status == "passed"


@pytest.mark.parametrize("error", [BenchMemoryError("qwen3-tiny does not fit"), BenchError("qwen3-tiny: it ended")])
def test_what_cannot_be_timed_is_undone(work: Work, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def refuse(*words: Any, **named: Any) -> None:
        raise error

    work.edit("src/norm.linnet", "module", "// Other.\nmodule")
    monkeypatch.setattr(gating_measure, "run_bench", refuse)
    report = work.gate()
    assert report.status == "undone"
    assert str(error) in report.undone[0].message
    assert report.skipped == dict.fromkeys(("speed", "memory"), "it could not be done")
    # What was found before counts all the same.
    assert [item.quantity for item in report.judged] == ["perplexity"]
    work.edit("bindings.json", "mlp.gate_proj", "mlp.up_proj")
    work.edit("nest.toml", "[bench]", '[gate]\nallow = ["binding-renamed:*"]\n\n[bench]')
    report = work.gate()
    assert (report.status, regressions(report)) == ("failed", ["perplexity-rose"])
    assert report.undone


def test_engines_that_part_are_a_regression(
    work: Work, timed: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    work.edit("src/norm.linnet", "module", "// Other.\nmodule")
    asked: list[LoadOptions] = []

    def apart(name: str, *, options: LoadOptions, **_: Any) -> ParityReport:
        asked.append(options)
        return parity(0.25)

    monkeypatch.setattr(gating_measure, "run_parity", apart)
    report = work.gate(numerics="fast")
    assert regressions(report) == ["parity-lost"]
    told = "The results of torch and mlx differ by 0.25, and 0.0001 is allowed."
    assert message(report, "parity-lost") == told
    assert (asked[0].dtype, asked[0].numerics, asked[0].compile) == ("f32", "engine", None)
    work.edit("nest.toml", "[bench]", '[gate]\nallow = ["parity-lost"]\n\n[bench]')
    assert work.gate().status == "passed"


def test_engines_are_compared_where_there_are_two_and_room(
    work: Work, timed: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    from linnet.runner import bench

    work.edit("src/norm.linnet", "module", "// Other.\nmodule")
    monkeypatch.setattr(bench, "free_memory", lambda device: 1000)
    assert work.gate().skipped["parity"] == "two models in f32 take 26.1 MiB, and 1000 B are free"

    def absent() -> None:
        raise nest.MlxMissingError

    monkeypatch.setattr(nest, "require_mlx", absent)
    report = work.gate()
    assert (report.status, report.skipped) == ("passed", {"parity": "MLX is not installed"})


def test_the_engines_themselves_are_run(work: Work, timed: list[dict[str, Any]], both_engines: None) -> None:
    work.edit("src/norm.linnet", "module", "// Other.\nmodule")
    report = work.gate()
    assert (report.status, report.skipped) == ("passed", {})


def test_a_publish_compares_ratios_to_the_baseline_on_record(work: Work, tmp_path: Path) -> None:
    """qwen3-tiny-fp8 names a baseline, and its published version has a ratio to it on record."""
    package = work.root / "nests" / "qwen3-tiny-fp8"
    shutil.copytree(NESTS / "qwen3-tiny-fp8", package)
    then = BenchReport.from_json((package / "bench.json").read_bytes())
    folder = tmp_path / "ratios"
    publish(folder, package, then)
    (package / "src/norm.linnet").write_text("// Other.\n" + (package / "src/norm.linnet").read_text())
    target, located = Registry(open_store(folder)), Located(package)
    report = gating.gate_for_publish(located, target, bench=then)
    unrun = {"parity": "nest gate compares the engines"}
    assert (report.status, report.skipped) == ("passed", unrun)
    assert [(item.quantity, item.basis) for item in report.judged] == [
        ("perplexity", "scores"),
        ("decode", "recorded"),
        ("prompt", "recorded"),
        ("memory", "recorded"),
    ]
    assert then.baseline is not None
    results = then.package.results
    half = Figure(tuple(run / 2 for run in results.decode_tokens_per_second.runs))
    slow = dataclasses.replace(then.package, results=dataclasses.replace(results, decode_tokens_per_second=half))
    report = gating.gate_for_publish(located, target, bench=dataclasses.replace(then, package=slow))
    assert regressions(report) == ["decode-slower"]
    ratio = then.ratio("decode_tokens_per_second")
    assert f"times qwen3-tiny in the same run, and 0.1.0 had {ratio:.2f} times: 50.0% slower" in message(
        report, "decode-slower"
    )
    elsewhere = dataclasses.replace(then.environment, device_name="Another")
    report = gating.gate_for_publish(located, target, bench=dataclasses.replace(then, environment=elsewhere))
    reason = "the figures of 0.1.0 are of another baseline, protocol or machine"
    assert (report.status, report.skipped) == ("passed", {**unrun, "speed": reason, "memory": reason})


def test_a_package_never_published_is_new(work: Work, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    (report,) = gating.gate([work.package], against=str(empty), load=LOAD).reports
    assert (report.status, report.ok) == ("new", True)
    assert message(report, "new-package") == f"{empty} has no version of qwen3-tiny: everything is new."


def test_a_card_that_cannot_be_read_fails(work: Work) -> None:
    work.edit("nest.toml", 'license = "Apache-2.0"', 'license = "Apache-3.0"')
    report = work.gate()
    assert (report.status, regressions(report)) == ("failed", ["check-failed:model.license"])


def test_the_last_published_is_neither_yanked_nor_newer(tmp_path: Path) -> None:
    folder = tmp_path / "registry"
    package = tmp_path / "qwen3-tiny"
    shutil.copytree(NESTS / "qwen3-tiny", package)
    versions = ["0.1.0", "0.2.0", "0.3.0-rc.1", "0.3.0", "1.0.0"]
    for version in versions:
        text = (package / "linnet.toml").read_text()
        (package / "linnet.toml").write_text(
            "".join(
                f'version = "{version}"\n' if line.startswith("version") else f"{line}\n" for line in text.splitlines()
            )
        )
        publish(folder, package)
    registry = Registry(open_store(folder))

    def last(version: str | None) -> str:
        known, held = gating.last_published(registry, "qwen3-tiny", version)
        assert list(known) == versions
        assert held is not None
        return held.document.version

    assert [last(version) for version in (None, "1.0.1", "1.0.0", "0.3.1", "0.3.0-rc.2", "0.2.5", "0.0.1")] == [
        "1.0.0",
        "1.0.0",
        "1.0.0",
        "0.3.0",
        "0.3.0-rc.1",
        "0.2.0",
        "1.0.0",
    ]
    yank(registry, "qwen3-tiny", "1.0.0", "broken")
    assert last("1.0.1") == "0.3.0"
    for version in versions[:-1]:
        yank(registry, "qwen3-tiny", version, "broken")
    report = gating.gate_for_publish(Located(package), registry)
    assert report.status == "new"
    assert message(report, "new-package") == f"All versions of qwen3-tiny in {folder} are yanked: everything is new."


def test_the_gate_of_a_publish(work: Work) -> None:
    target = Registry(open_store(work.registry))
    package = Located(work.package)
    assert gating.gate_for_publish(package, target).status == "unchanged"
    work.edit("nest.toml", '"Apache-2.0"', '"MIT"')
    report = gating.gate_for_publish(package, target)
    assert regressions(report) == ["licence-changed"]
    assert set(report.skipped) == {"perplexity", "parity", "speed", "memory"}


def test_the_function(work: Work) -> None:
    run = nest.gate("qwen3-tiny", against=work.registry, nests=work.root / "nests", bench=False)
    assert (run.ok, [report.status for report in run.reports]) == (True, ["unchanged"])
    work.edit("nest.toml", '"Apache-2.0"', '"MIT"')
    run = nest.gate(work.package, against=work.registry, bench=False)
    assert (run.ok, run.failed, regressions(run.reports[0])) == (False, True, ["licence-changed"])


def test_without_torch_nothing_is_measured(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> None:
        raise nest.TorchMissingError("torch")

    work.edit("src/norm.linnet", "module", "// Other.\nmodule")
    monkeypatch.setattr(nest, "require_torch", absent)
    report = work.gate()
    assert report.status == "undone"
    assert "needs torch, which is not installed" in report.undone[0].message
    assert work.gate(bench=False).status == "passed"


# The command


@pytest.fixture
def command(work: Work) -> Iterator[Callable[..., CompletedProcess[str]]]:
    def run(*words: str | Path, **environment: str) -> CompletedProcess[str]:
        code = "from linnet.cli.nest_main import main; main()"
        known = {name: value for name, value in os.environ.items() if name != "GITHUB_STEP_SUMMARY"}
        return subprocess.run(
            [sys.executable, "-W", "error", "-c", code, "gate", *map(str, words)],
            cwd=work.root,
            env={**known, "NO_COLOR": "1", **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_the_command_measures_and_writes_every_form(work: Work, command: Callable[..., CompletedProcess[str]]) -> None:
    work.edit("src/norm.linnet", "module", "// Other.\nmodule")
    work.edit("nest.toml", '"Apache-2.0"', '"MIT"')
    card = work.package / "nest.toml"
    card.write_text(
        # Whatever a busy machine does to times.
        card.read_text() + '\n[gate]\nallow = ["decode-slower*", "prompt-slower*", "memory-grew*"]\n'
    )
    summary = work.root / "summary.md"
    summary.write_text("Before.\n")
    done = command(
        "qwen3-tiny", "--against", work.registry, "--limit-tokens", "600", "--runs", "1", "--device", "cpu",
        "--junit", "report.xml", "--sarif", "report.sarif", "--json", GITHUB_STEP_SUMMARY=str(summary),
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (1, "")
    (found,) = json.loads(done.stdout)["packages"]
    assert [item["id"] for item in found["findings"] if item["severity"] == "regression"] == ["licence-changed"]
    assert [item["quantity"] for item in found["judged"]] == ["perplexity", "decode", "prompt", "memory"]
    assert found["judged"][0]["worse"] == 0
    assert found["judged"][1]["before"] > 0
    (failure,) = ElementTree.parse(work.root / "report.xml").getroot().iter("failure")
    assert failure.get("type") == "licence-changed"
    log = json.loads((work.root / "report.sarif").read_text())
    place = log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]
    assert place == {"artifactLocation": {"uri": "nests/qwen3-tiny/nest.toml"}, "region": {"startLine": 5}}
    assert summary.read_text().startswith("Before.\n## nest gate against")
    assert "| qwen3-tiny | 0.1.0 | 0.1.0 | 1 regression |" in summary.read_text()


def git(folder: Path, *words: str) -> None:
    names = ["-c", "user.name=Test", "-c", "user.email=test@example.org", "-c", "init.defaultBranch=main"]
    subprocess.run(["git", *names, "-C", str(folder), *words], check=True, capture_output=True)


def test_only_changed_packages_are_gated(work: Work, command: Callable[..., CompletedProcess[str]]) -> None:
    other = work.root / "nests" / "other"
    shutil.copytree(work.package, other)
    (other / "nest.toml").write_text((other / "nest.toml").read_text().replace('"qwen3-tiny"', '"other"'))
    git(work.root, "init", "-q")
    git(work.root, "add", "nests")
    git(work.root, "commit", "-q", "-m", "both")
    options = ("--against", work.registry, "--no-bench", "--json")
    done = command("--changed-since", "main", *options)
    assert (done.returncode, json.loads(done.stdout)["packages"]) == (0, [])
    git(work.root, "checkout", "-q", "-b", "feature")
    work.edit("nest.toml", '"Apache-2.0"', '"MIT"')
    git(work.root, "commit", "-q", "-a", "-m", "feature")
    # What happens on main meanwhile is no change of this branch; a new file that nobody committed is one.
    git(work.root, "checkout", "-q", "main")
    (other / "README.md").write_text("# Other\n")
    git(work.root, "commit", "-q", "-a", "-m", "main")
    git(work.root, "checkout", "-q", "feature")
    done = command("--changed-since", "main", *options)
    assert [item["name"] for item in json.loads(done.stdout)["packages"]] == ["qwen3-tiny"]
    assert done.returncode == 1
    (other / "new.md").write_text("new\n")
    done = command("--changed-since", "main", *options)
    assert [item["name"] for item in json.loads(done.stdout)["packages"]] == ["other", "qwen3-tiny"]
    done = command("other", "--changed-since", "main", *options)
    assert (done.returncode, [item["status"] for item in json.loads(done.stdout)["packages"]]) == (0, ["new"])
    done = command("--changed-since", "nowhere", "--no-bench")
    assert (done.returncode, done.stdout) == (3, "")
    assert 'git knows no revision "nowhere" here. Fetch it first' in done.stderr


def test_bad_input_is_one_sentence(work: Work, command: Callable[..., CompletedProcess[str]]) -> None:
    for words, code, told in (
        ((), 2, "Name a package, or give --changed-since for all that changed."),
        (("qwen-tiny",), 1, "The nearest is nests/qwen3-tiny."),
        # A registry mistyped has no version of anything, and must not pass for it.
        (("qwen3-tiny", "--against", "regsitry"), 3, 'There is no registry "regsitry": that folder does not exist.'),
        (("qwen3-tiny", "--against", "ftp://x"), 3, '"ftp://x" names no kind of registry.'),
        (("qwen3-tiny", "--changed-since", "main"), 3, "is in no git repository"),
    ):
        done = command(*words)
        assert done.returncode == code, (words, done.stderr)
        assert told in done.stderr
        assert "Traceback" not in done.stderr


def test_a_registry_that_does_not_answer_could_not_be_done(
    work: Work, command: Callable[..., CompletedProcess[str]]
) -> None:
    done = command("qwen3-tiny", "--against", "http://127.0.0.1:9/registry", "--no-bench")
    assert done.returncode == 3
    assert "could not be done" in done.stdout
    assert "127.0.0.1:9" in done.stdout
