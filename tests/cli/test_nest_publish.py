"""`nest publish` and what follows it, as users run them: plans, refusals with the next step, the quick tour."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from linnet import nest, publishing
from linnet.publishing import CheckFailedError, GateFailedError
from linnet.registry.bench import package_digest
from linnet.registry.publish import PublishError
from linnet.registry.registry import Registry
from linnet.registry.store.base import StoreError
from linnet.registry.store.open import open_store

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def versioned(tiny: Path) -> Path:
    """The tiny package, version 0.1.0."""
    set_version(tiny, "0.1.0")
    return tiny


def set_version(package: Path, version: str) -> None:
    card = package / "nest.toml"
    lines = [line for line in card.read_text().splitlines() if not line.startswith("version")]
    card.write_text("\n".join(lines).replace("[model]", f'[model]\nversion = "{version}"') + "\n")


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The registry that LINNET_REGISTRY names; nothing is there yet."""
    folder = tmp_path / "registry"
    monkeypatch.setenv("LINNET_REGISTRY", str(folder))
    return folder


def opened(folder: Path) -> Registry:
    return Registry(open_store(folder))


def test_a_package_is_published_and_published_again(run: Run, versioned: Path, registry: Path) -> None:
    first = run("nest", "publish", versioned)
    assert (first.returncode, first.stdout, first.stderr) == (0, f"Published tiny 0.1.0 to {registry}.\n", "")
    record = opened(registry).version("tiny", "0.1.0").document
    assert [file.path for file in record.files] == ["README.md", "bindings.json", "lib.linnet", "nest.toml"]
    assert [(file.path, file.object) for file in record.weights.files] == [("model.safetensors", True)]
    assert record.card["model"]["name"] == "tiny"
    assert record.record["tensor_count"] == 3
    assert record.record["entries"][0]["signature"].startswith("pub entry forward")
    assert {section["name"] for section in record.check["sections"]} >= {"card", "source", "weights", "smoke"}
    parameters = opened(registry).parameters(record)
    assert parameters is not None
    assert {item["path"] for item in parameters} == {"up.weight", "up.bias", "down.weight", "down.bias"}
    # No path of this machine is published.
    for path in registry.rglob("*.json"):
        assert str(versioned.parent) not in path.read_text()
    again = run("nest", "publish", versioned)
    assert again.returncode == 0
    assert again.stdout == (
        f"tiny 0.1.0 is in {registry} with this content, since {record.published}: nothing to do.\n"
    )


def test_a_dry_run_writes_nothing(run: Run, versioned: Path, registry: Path) -> None:
    cheap = ("nest", "publish", versioned, "--smoke", "none")
    done = run(*cheap, "--dry-run")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[1:3] == [
        "version   tiny 0.1.0",
        "check     card ok, readme ok, files ok, source ok, generics ok, bindings ok, weights ok",
    ]
    assert done.stdout.endswith("Nothing was written.\n")
    assert not registry.exists()
    plan = json.loads(run(*cheap, "--dry-run", "--json").stdout)
    assert (plan["name"], plan["version"], plan["there"], plan["files"]) == ("tiny", "0.1.0", False, 4)
    # Four files, the weights and the manifest.
    assert plan["objects"] == 6
    assert not registry.exists()
    published = json.loads(run(*cheap, "--json").stdout)
    assert published["created"] is True
    assert {key: published[key] for key in plan} == plan
    plan = json.loads(run(*cheap, "--dry-run", "--json").stdout)
    assert plan["there"] is True


def test_other_content_needs_another_version(run: Run, versioned: Path, registry: Path) -> None:
    assert run("nest", "publish", versioned, "--smoke", "none").returncode == 0
    (versioned / "README.md").write_text("# Tiny\n\nIn other words.\n")
    for options in ((), ("--dry-run",)):
        done = run("nest", "publish", versioned, "--smoke", "none", *options)
        assert (done.returncode, done.stdout) == (1, "")
        assert 'with another content of "README.md"' in done.stderr
        assert "0.1.1 is free" in done.stderr
    set_version(versioned, "0.1.1")
    assert run("nest", "publish", versioned, "--smoke", "none").returncode == 0
    assert opened(registry).versions("tiny") == ["0.1.0", "0.1.1"]


def test_a_package_without_a_version_is_told_where_to_write_one(tiny: Path, registry: Path) -> None:
    with pytest.raises(PublishError, match=r'Write version = "0\.1\.0" under \[package\] in linnet\.toml'):
        nest.publish(tiny, smoke="none")


@pytest.mark.parametrize("version", ["1.0", "1.0.0+5", "1.0.0-RC"])
def test_what_linnet_toml_calls_a_version_may_be_none(tiny: Path, registry: Path, version: str) -> None:
    text = f'[package]\nname = "tiny"\nversion = "{version}"\nlanguage = "0.1"\n'
    (tiny / "linnet.toml").write_text(text)
    with pytest.raises((PublishError, CheckFailedError)):
        nest.publish(tiny, smoke="none")
    assert not registry.exists()


def test_a_package_that_fails_its_check_is_not_published(run: Run, versioned: Path, registry: Path) -> None:
    (versioned / "bindings.json").write_text('{"up.weights": "fc1.weight"}')
    done = run("nest", "publish", versioned, "--smoke", "none")
    assert (done.returncode, done.stdout) == (1, "")
    assert 'binds "up.weights", a path that the source does not have' in done.stderr
    assert done.stderr.endswith("tiny was not published: its check failed.\n")
    assert not registry.exists()
    with pytest.raises(CheckFailedError) as caught:
        nest.publish(versioned, smoke="none")
    assert caught.value.report.section("bindings").status == "error"


def test_a_package_that_got_worse_is_not_published(run: Run, versioned: Path, registry: Path) -> None:
    assert run("nest", "publish", versioned, "--smoke", "none").returncode == 0
    set_version(versioned, "0.2.0")
    source = (versioned / "lib.linnet").read_text()
    (versioned / "lib.linnet").write_text(source.replace("entry forward<B", "entry apply<B"))
    card = versioned / "nest.toml"
    card.write_text(card.read_text().replace('entry = "forward"', 'entry = "apply"'))
    done = run("nest", "publish", versioned, "--smoke", "none")
    assert (done.returncode, done.stdout) == (1, "")
    assert "forward" in done.stderr
    assert "tiny was not published: it is worse than 0.1.0" in done.stderr
    assert opened(registry).versions("tiny") == ["0.1.0"]
    with pytest.raises(GateFailedError):
        nest.publish(versioned, smoke="none")
    assert run("nest", "publish", versioned, "--smoke", "none", "--no-gate").returncode == 0
    record = opened(registry).version("tiny", "0.2.0").document
    assert record.gate is None


def test_what_the_gate_found_is_published_with_the_version(versioned: Path, registry: Path) -> None:
    steps: list[str] = []
    first = nest.publish(versioned, smoke="none", say=steps.append)
    assert first.record.gate is None
    assert steps == ["check", "weights", "gate", "objects", "version", "index", "reading back"]
    set_version(versioned, "0.2.0")
    gate = nest.publish(versioned, smoke="none").record.gate
    assert gate is not None
    assert (gate["status"], gate["published"], gate["folder"]) == ("passed", "0.1.0", "tiny")


def test_figures_are_published_if_they_are_of_these_sources(
    versioned: Path, registry: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[Path] = []

    def measure(package: Any, weights: Path | None, watch: Any) -> None:
        from linnet.registry.locate import BUNDLED

        measured.append(package.folder)
        report = json.loads((BUNDLED / "qwen3-tiny-fp8" / "bench.json").read_text())
        report["package"] |= {"name": "tiny", "digest": package_digest(package.folder, ["model.safetensors"])}
        (package.folder / "bench.json").write_text(json.dumps(report))

    monkeypatch.setattr(publishing, "measure", measure)
    bench = nest.publish(versioned, smoke="none", bench=True).record.bench
    assert measured == [versioned]
    assert bench is not None
    assert bench["package"]["name"] == "tiny"
    # Of another source they are a file of the package like any other, and no result of this one.
    (versioned / "lib.linnet").write_text((versioned / "lib.linnet").read_text() + "\n")
    set_version(versioned, "0.2.0")
    record = nest.publish(versioned, smoke="none").record
    assert record.bench is None
    assert "bench.json" in {file.path for file in record.files}


def test_events_are_said_and_shown(run: Run, versioned: Path, registry: Path) -> None:
    for version in ("0.1.0", "0.2.0"):
        set_version(versioned, version)
        nest.publish(versioned, smoke="none")
    done = run("nest", "yank", "tiny@0.2.0", "--reason", "wrong")
    assert (done.returncode, done.stdout) == (0, f"tiny 0.2.0 is yanked, in {registry}.\n")
    done = run("nest", "yank", "tiny@0.2.0", "--reason", "wrong")
    assert done.stdout == f"tiny 0.2.0 is yanked in {registry} already: nothing to do.\n"
    assert run("nest", "alias", "tiny@stable", "0.1.0").stdout == f"tiny@stable means 0.1.0, in {registry}.\n"
    assert run("nest", "unyank", "tiny@0.2.0", "--quiet").stdout == ""
    assert run("nest", "status", "tiny", "deprecated", "--reason", "use tiny-2").returncode == 0
    package = opened(registry).package("tiny")
    assert package is not None
    assert (package.aliases, package.status, package.status_reason) == ({"stable": "0.1.0"}, "deprecated", "use tiny-2")
    assert not any(entry.yanked for entry in package.versions)
    assert run("nest", "alias", "tiny@stable", "--remove").stdout == f"tiny@stable means nothing, in {registry}.\n"
    rebuilt = run("nest", "index", "rebuild")
    assert rebuilt.stdout.startswith(f"{registry}: 1 package with 2 versions; generation ")
    assert rebuilt.stdout.endswith(" was right.\n")
    shutil.rmtree(registry / "index")
    (registry / "packages" / "tiny.json").unlink()
    rebuilt = run("nest", "index", "rebuild", "--json")
    assert json.loads(rebuilt.stdout) | {"sha256": ""} == {
        "registry": str(registry), "generation": 1, "sha256": "", "changed": True, "packages": 1, "versions": 2,
        "rewritten": ["tiny"], "warnings": [],
    }  # fmt: skip
    pruned = run("nest", "prune", "--keep", "1", "--orphans", "--days", "0")
    assert pruned.stdout == f"{registry}: 0 old generations and 0 orphans removed.\n"


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (("yank", "tiny@0.1.0"), 2, "Missing option '--reason'"),
        (("yank", "tiny", "--reason", "x"), 2, "is not of the form NAME@VERSION"),
        (("yank", "tiny@0.1.0", "--reason", "x"), 1, 'has no package "tiny". nest list shows what it has.'),
        (("alias", "tiny@stable"), 2, "Give the version that tiny@stable means, or --remove."),
        (("alias", "tiny@stable", "1.0.0", "--remove"), 2, "Give the version that tiny@stable means, or --remove."),
        (("status", "tiny", "dead"), 2, "'dead' is not one of"),
        (("publish", "nowhere"), 1, 'There is no package "nowhere" in ./nests, and no folder of that name.'),
        (("publish", "nowhere", "--registry", "ftp://x"), 3, "names no kind of registry"),
        (("prune", "--registry", "ftp://x"), 3, "names no kind of registry"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_bad_input_is_told(run: Run, registry: Path, words: tuple[str, ...], code: int, sentence: str) -> None:
    done = run("nest", *words)
    assert sentence in done.stderr
    assert done.returncode == code
    assert not registry.exists()


def test_a_registry_that_cannot_be_written_to_is_a_fault_of_the_place(
    run: Run, versioned: Path, tmp_path: Path
) -> None:
    file = tmp_path / "a-file"
    file.write_text("")
    done = run("nest", "publish", versioned, "--smoke", "none", "--registry", file)
    assert (done.returncode, done.stdout) == (3, "")
    with pytest.raises(StoreError):
        nest.publish(versioned, smoke="none", registry=file)


def test_the_first_of_several_registries_is_written_to(
    versioned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    monkeypatch.setenv("LINNET_REGISTRY", f"{one},{other}")
    nest.publish(versioned, smoke="none")
    assert opened(one).versions("tiny") == ["0.1.0"]
    assert not other.exists()


def test_what_is_published_is_loaded(
    versioned: Path, registry: Path, tensors: dict[str, torch.Tensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nest.publish(versioned, smoke="none")
    # Nothing of the working folder is needed any more.
    shutil.rmtree(versioned)
    monkeypatch.setenv("LINNET_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("LINNET_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    loaded = nest.load("tiny", numerics="exact", device="cpu")
    assert torch.equal(loaded.state_dict()["up.weight"], tensors["fc1.weight"])
    assert torch.isfinite(loaded(torch.ones(2, 3))).all()


def test_weights_elsewhere_are_published(versioned: Path, registry: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (versioned / "model.safetensors").rename(elsewhere / "model.safetensors")
    with pytest.raises(CheckFailedError):
        nest.publish(versioned, smoke="none")
    assert nest.publish(versioned, smoke="none", weights=elsewhere).created
    # Other weights under the same version are other content.
    save_file(
        {"fc1.weight": torch.ones(4, 3), "fc1.bias": torch.ones(4), "fc2.weight": torch.ones(3, 4)},
        elsewhere / "model.safetensors",
    )
    with pytest.raises(PublishError, match="with other weights"):
        nest.publish(versioned, smoke="none", weights=elsewhere)


def test_the_quick_tour(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Word for word, from the top of the repository; then, elsewhere, the model is loaded from what was published."""
    monkeypatch.setenv("LINNET_REGISTRY", str(tmp_path / "registry"))
    monkeypatch.setenv("LINNET_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("LINNET_DATA", str(tmp_path / "data"))

    def words(*words: str, cwd: Path = root) -> str:
        program = "from linnet.cli.nest_main import main; main()"
        done = subprocess.run(
            [sys.executable, "-c", program, *words], cwd=cwd, capture_output=True, text=True, check=True
        )
        return done.stdout

    assert words("publish", "qwen3-tiny-fp8") == f"Published qwen3-tiny-fp8 0.1.0 to {tmp_path / 'registry'}.\n"
    assert "qwen3-tiny-fp8" in words("list")
    assert not (tmp_path / "cache" / "versions").exists()
    load = "from linnet import nest; print(*nest.load('qwen3-tiny-fp8').entries)"
    done = subprocess.run([sys.executable, "-c", load], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "prefill" in done.stdout
    # From the registry, not what ships here.
    assert [path.name for path in (tmp_path / "cache" / "versions").glob("*/*/*")] == ["qwen3-tiny-fp8"]
    assert words("run", "qwen3-tiny-fp8@0.1.0", "Once", "--max-new-tokens", "4", "--raw", "--quiet", cwd=tmp_path)
    assert words("gate", "qwen3-tiny-fp8", "--no-bench") == "qwen3-tiny-fp8 0.1.0: unchanged, skipped\n"
    record = opened(tmp_path / "registry").version("qwen3-tiny-fp8", "0.1.0").document
    assert record.bench is not None
    # What a client fetches before the files is small.
    held = [path for part in ("packages", "versions") for path in (tmp_path / "registry" / part).rglob("*.json")]
    assert sum(path.stat().st_size for path in held) < 50_000


@pytest.mark.parametrize("file", ["lib.linnet", "model.safetensors", "new.md"])
@pytest.mark.parametrize("step", ["check", "gate"])
def test_what_changes_while_it_is_checked_is_not_published(
    versioned: Path, registry: Path, monkeypatch: pytest.MonkeyPatch, step: str, file: str
) -> None:
    """An editor that saves meanwhile: the results would be those of other bytes."""
    module, name = {"check": (nest, "check"), "gate": (publishing, "gate_for_publish")}[step]
    real = getattr(module, name)

    def then_change(*arguments: Any, **named: Any) -> Any:
        found = real(*arguments, **named)
        data = (versioned / file).read_bytes() if (versioned / file).exists() else b"# "
        (versioned / file).write_bytes(data[:-1] + bytes([data[-1] ^ 0x10]) if file.endswith("s") else data + b"\n")
        return found

    monkeypatch.setattr(module, name, then_change)
    with pytest.raises(PublishError, match=f'"{file}" of tiny changed while it was checked'):
        publishing.plan_publish(versioned, smoke="none")
    assert not registry.exists()
