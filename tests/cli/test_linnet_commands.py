"""`linnet check` and `linnet inspect`, as users run them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

Run = Callable[..., CompletedProcess[str]]


def test_check_accepts_the_seed_package(run: Run, seed: Path) -> None:
    done = run("linnet", "check", seed / "qwen3-8b-fp8" / "src" / "lib.linnet")
    assert (done.returncode, done.stdout, done.stderr) == (0, "1 file checked: no problem.\n", "")


def test_check_shows_the_line_and_its_code(run: Run, tiny: Path) -> None:
    source = tiny / "lib.linnet"
    source.write_text(source.read_text().replace("up.forward(x)", "up.forward(y)"))
    done = run("linnet", "check", source)
    assert done.returncode == 1
    assert done.stderr == ""
    assert "error[E1201]" in done.stdout
    assert "return down.forward(relu(up.forward(y)))" in done.stdout
    assert done.stdout.endswith("1 file checked: 1 error.\n")
    assert "\x1b[" not in done.stdout

    found = json.loads(run("linnet", "check", "--json", tiny).stdout)
    assert (found["ok"], found["files"]) == (False, [str(source)])
    (item,) = found["diagnostics"]
    assert (item["code"], item["severity"], item["line"]) == ("E1201", "error", 13)


def test_check_warns_without_failing(run: Run, tiny: Path) -> None:
    source = tiny / "lib.linnet"
    source.write_text(source.read_text().replace("{relu}", "{relu, silu}"))
    done = run("linnet", "check", source)
    assert done.returncode == 0
    assert "warning[W1001]" in done.stdout
    assert done.stdout.endswith("1 file checked: 1 warning.\n")
    assert "checked" not in run("linnet", "check", "--quiet", source).stdout


def test_check_wants_files(run: Run, tmp_path: Path) -> None:
    done = run("linnet", "check", tmp_path / "absent.linnet")
    assert done.returncode == 2
    assert "absent.linnet" in done.stderr
    done = run("linnet", "check", tmp_path / "here")
    assert done.returncode == 2
    assert "holds no .linnet file" in done.stderr
    assert "Traceback" not in done.stderr


def test_check_reads_plain_files_only(run: Run, tiny: Path) -> None:
    pipe = tiny / "pipe.linnet"
    os.mkfifo(pipe)
    done = run("linnet", "check", pipe)
    assert done.returncode == 2
    assert f"{pipe} is not a plain file; name a file" in done.stderr
    for words in (["inspect", "--parameters"], ["explain"]):
        done = run("linnet", *words, pipe)
        assert (done.returncode, done.stdout) == (3, "")
        assert f"{pipe}: not a plain file; name a source." in done.stderr
    (tiny / "folder.linnet").mkdir()
    done = run("linnet", "check", tiny)
    assert (done.returncode, done.stdout) == (0, "1 file checked: no problem.\n")
    assert done.stderr == f"{pipe} is not a plain file and was not checked.\n"
    (tiny / "lib.linnet").unlink()
    assert "holds no .linnet file" in run("linnet", "check", tiny).stderr


def test_inspect_gives_text_where_nothing_is_bound(run: Run, tiny: Path) -> None:
    done = run("linnet", "inspect", "--parameters", "--json", tiny / "lib.linnet")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [
        {"path": "up.weight", "kind": "param", "shape": ["Hidden", "In"], "dtype": "f32", "optional": False},
        {"path": "up.bias", "kind": "param", "shape": ["Hidden"], "dtype": "f32", "optional": True},
        {"path": "down.weight", "kind": "param", "shape": ["In", "Hidden"], "dtype": "f32", "optional": False},
        {"path": "down.bias", "kind": "param", "shape": ["In"], "dtype": "f32", "optional": True},
    ]


def test_inspect_gives_numbers_where_generics_are_bound(run: Run, tiny: Path) -> None:
    done = run("linnet", "inspect", "--parameters", "--json", "--bind", "In=3", "--bind", "T=bf16", tiny / "lib.linnet")
    first = json.loads(done.stdout)[0]
    assert (first["shape"], first["dtype"]) == (["Hidden", 3], "bf16")
    done = run("linnet", "inspect", "--parameters", "--bind", "In=3", "--bind", "Hidden=4", tiny / "lib.linnet")
    assert done.stdout.splitlines()[:2] == ["up.weight    f32 [4, 3]", "up.bias      f32 [4]  (optional)"]


def test_inspect_takes_a_folder_and_needs_no_flag(run: Run, tiny: Path) -> None:
    listed = run("linnet", "inspect", "--parameters", tiny / "lib.linnet").stdout
    assert listed
    done = run("linnet", "inspect", tiny)
    assert (done.returncode, done.stdout) == (0, listed)
    (tiny / "nest.toml").unlink()
    done = run("linnet", "inspect", tiny)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{tiny} holds neither a nest.toml nor src/lib.linnet; name a source file." in done.stderr
    (tiny / "src").mkdir()
    (tiny / "lib.linnet").rename(tiny / "src" / "lib.linnet")
    assert run("linnet", "inspect", tiny).stdout == listed


def test_inspect_agrees_with_the_manifest(run: Run, seed: Path) -> None:
    from linnet.language.check import load
    from linnet.language.program.binding import bind

    source = seed / "qwen3-8b-fp8" / "src" / "lib.linnet"
    generics = {
        "Vocab": 151936, "H": 4096, "Heads": 32, "KvHeads": 8, "HeadDim": 128, "Inner": 12288, "Layers": 36,
        "Batch": 1, "MaxSeq": 40960,
    }  # fmt: skip
    words = [word for name, value in generics.items() for word in ("--bind", f"{name}={value}")]
    done = run("linnet", "inspect", "--parameters", "--json", *words, "--root", "Model", source)
    assert done.returncode == 0, done.stderr
    listed = json.loads(done.stdout)
    program = load(source).program
    assert program is not None
    manifest = bind(program, "Model", generics).manifest
    assert listed == [
        {"path": e.path, "kind": e.kind, "shape": list(e.shape), "dtype": e.dtype, "optional": e.optional}
        for e in manifest.entries
    ]
    assert sum(not item["optional"] for item in listed) == 651


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--bind", "In"], 2, "'In' is not of the form G=VALUE"),
        (["--bind", "Depth=3"], 2, "Tiny has no generic Depth; its generics: In, Hidden, T"),
        (["--bind", "In=-3"], 2, "In is '-3'"),
        (["--bind", "In=wide"], 2, "In is 'wide'"),
        (["--root", "Huge"], 2, "has no block Huge; its blocks: Tiny"),
        (["--bind", "In=0", "--bind", "Hidden=4"], 1, "In"),
        (["--bind", "In=3", "--bind", "Hidden=4", "--bind", "T=i32"], 1, "T"),
    ],
)
def test_inspect_refuses_what_does_not_fit(run: Run, tiny: Path, words: list[str], code: int, said: str) -> None:
    done = run("linnet", "inspect", "--parameters", *words, tiny / "lib.linnet")
    assert done.returncode == code
    assert said in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


def test_inspect_shows_why_a_source_does_not_check(run: Run, tiny: Path) -> None:
    (tiny / "lib.linnet").write_text("module tiny\npub block Tiny {\n    param w: Tensor[N; f32]\n}\n")
    done = run("linnet", "inspect", "--parameters", tiny / "lib.linnet")
    assert done.returncode == 1
    assert "error[E1201]" in done.stderr


def test_check_prints_sarif(run: Run, tiny: Path) -> None:
    source = tiny / "lib.linnet"
    source.write_text(source.read_text().replace("up.forward(x)", "up.forward(y)"))
    done = run("linnet", "check", "--format", "sarif", source)
    assert (done.returncode, done.stderr) == (1, "")
    log = json.loads(done.stdout)
    (result,) = log["runs"][0]["results"]
    assert (log["version"], result["ruleId"], result["level"]) == ("2.1.0", "E1201", "error")
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == source.as_uri()


def test_check_has_one_json(run: Run, tiny: Path) -> None:
    assert run("linnet", "check", "--format", "json", tiny).stdout == run("linnet", "check", "--json", tiny).stdout
    done = run("linnet", "check", "--format", "sarif", "--json", tiny)
    assert done.returncode == 2
    assert "--json and --format sarif exclude each other" in done.stderr


def test_check_takes_linnet_files_only(run: Run, tiny: Path) -> None:
    done = run("linnet", "check", tiny / "nest.toml")
    assert done.returncode == 2
    assert "nest.toml is not a .linnet file; name one" in done.stderr
