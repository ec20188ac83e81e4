"""`nest check`, `index`, `list`, `show` and `site`, as users run them."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from hub_server import HubServer
from seed_checkpoint import write_seed_checkpoint

Run = Callable[..., CompletedProcess[str]]


def test_check_reports_sections(run: Run, tiny: Path) -> None:
    done = run("nest", "check", "--no-hub", tiny)
    assert done.returncode == 0, done.stdout + done.stderr
    first, *lines = done.stdout.splitlines()
    assert first == "tiny"
    names = [line.split()[1] for line in lines]
    assert names[:7] == ["card", "readme", "files", "source", "generics", "bindings", "weights"]
    assert {line.split()[0] for line in lines} == {"ok"}

    (report,) = json.loads(run("nest", "check", "--no-hub", "--json", tiny).stdout)
    assert report["ok"]
    assert [section["name"] for section in report["sections"]] == names


def test_check_accepts_the_seed_against_a_hub(run: Run, seed: Path, tmp_path: Path) -> None:
    write_seed_checkpoint(tmp_path / "hub")
    with HubServer(tmp_path / "hub") as server:
        done = run("nest", "check", seed / "qwen3-8b-fp8", HF_ENDPOINT=server.endpoint, HF_HOME=str(tmp_path / "home"))
        traffic = server.traffic
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    lines = [re.split(r" {2,}", line.strip()) for line in done.stdout.splitlines()[1:]]
    assert [words[0].split()[0] for words in lines] == ["ok"] * 8
    assert [words[1] for words in lines[:7]] == ["card", "readme", "files", "source", "generics", "bindings", "weights"]
    assert lines[6][2] == "8.2B parameters in 651 tensors, headers from Qwen/Qwen3-8B-FP8"
    assert lines[7][1] == "smoke"
    assert lines[7][2].startswith("meta 1 entry, small 17 entries (full left out: no local weights), ")
    assert len([line for line in traffic.requests if "/resolve/" in line]) == 4
    assert 0 < traffic.bytes < 300_000


def test_the_smoke_summary_tells_what_passed(run: Run, tiny: Path) -> None:
    source = tiny / "lib.linnet"
    bad = "    pub entry bad<B: Dim>(x: Tensor[B, In; T]) -> Tensor[B, In; T] {\n        return x / (x - x)\n    }\n"
    source.write_text(source.read_text().removesuffix("}\n") + bad + "}\n")
    done = run("nest", "check", "--no-hub", "--smoke", "small", tiny)
    assert done.returncode == 1
    assert re.search(r"error +smoke +meta 1 entry, small 1 of 2 entries, ", done.stdout), done.stdout


def test_an_empty_name_is_not_this_folder(run: Run, tiny: Path) -> None:
    done = run("nest", "check", "", before=f"import os; os.chdir({str(tiny)!r})\n")
    assert (done.returncode, done.stdout) == (1, "")
    assert "The name of the package is empty." in done.stderr


def test_check_runs_the_real_weights_where_they_are(run: Run, tiny: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "weights"
    elsewhere.mkdir()
    (tiny / "model.safetensors").rename(elsewhere / "model.safetensors")
    done = run("nest", "check", "--no-hub", "--smoke", "full", "--weights", elsewhere, tiny)
    assert done.returncode == 0, done.stdout + done.stderr
    done = run("nest", "check", "--no-hub", "--smoke", "full", tiny)
    assert done.returncode == 1
    assert "model.safetensors" in done.stdout


def test_check_fails_with_what_is_wrong_and_the_next_step(run: Run, tiny: Path) -> None:
    card = tiny / "nest.toml"
    card.write_text(card.read_text().replace("entry =", "enrty ="))
    done = run("nest", "check", "--no-hub", tiny)
    assert done.returncode == 1
    assert "source.enrty" in done.stdout
    assert "entry" in done.stdout
    assert "Traceback" not in done.stderr
    quiet = run("nest", "check", "--no-hub", "--quiet", tiny)
    assert quiet.returncode == 1
    assert len(quiet.stdout) < len(done.stdout)


def test_weights_belong_to_one_package(run: Run, tiny: Path) -> None:
    done = run("nest", "check", "--weights", tiny, tiny, tiny)
    assert done.returncode == 2
    assert "--weights belongs to one package" in done.stderr


def test_strict_makes_warnings_errors(run: Run, tiny: Path) -> None:
    source = tiny / "lib.linnet"
    source.write_text(source.read_text().replace("{relu}", "{relu, silu}"))
    assert run("nest", "check", "--no-hub", "--smoke", "none", tiny).returncode == 0
    assert run("nest", "check", "--no-hub", "--smoke", "none", "--strict", tiny).returncode == 1


def test_without_torch_all_but_running_works(run: Run, tiny: Path) -> None:
    no_torch = "import sys; sys.modules['torch'] = None\n"
    done = run("nest", "check", "--no-hub", tiny, before=no_torch)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "smoke     torch is not installed" in done.stdout
    done = run("nest", "check", "--no-hub", "--smoke", "meta", tiny, before=no_torch)
    assert done.returncode == 3
    assert "needs torch, which is not installed: pip install numpy safetensors tokenizers torch " in done.stderr
    for words in (["index", tiny.parent], ["show", tiny], ["site", "build", "--nests", tiny.parent]):
        assert run("nest", *words, before=no_torch).returncode == 0


def test_an_unreachable_hub_is_not_a_problem_of_the_package(run: Run, tiny: Path) -> None:
    card = tiny / "nest.toml"
    pin = f'repo = "owner/tiny"\nrevision = "{"0" * 40}"\n'
    card.write_text(card.read_text().replace("[weights]\n", f"[weights]\n{pin}"))
    (tiny / "model.safetensors").unlink()
    done = run("nest", "check", "--smoke", "none", tiny, HF_ENDPOINT="http://127.0.0.1:9")
    assert done.returncode == 3
    assert "127.0.0.1:9" in done.stdout
    assert run("nest", "check", "--smoke", "none", "--no-hub", tiny).returncode == 0


@pytest.mark.parametrize("command", [["check"], ["show"]])
def test_an_unknown_package_is_told_the_nearest_name(run: Run, command: list[str]) -> None:
    done = run("nest", *command, "qwen3-8b-fp")
    assert done.returncode == 1
    assert "The nearest is qwen3-8b-fp8; " in done.stderr
    assert "Traceback" not in done.stderr


def test_index_is_one_file_written_whole(run: Run, tiny: Path, tmp_path: Path) -> None:
    here = tmp_path / "here"
    for words, said in (
        (["index", tiny.parent, "--no-cache"], "1 package."),
        (["index", tiny.parent], "1 package."),
        (["index", "build", tiny.parent], "1 package, 1 unchanged."),
    ):
        done = run("nest", *words, LINNET_CACHE=str(tmp_path / "cache"))
        assert (done.returncode, done.stdout) == (0, f"index.json: {said}\n"), done.stderr
        first = (here / "index.json").read_bytes()
        assert [record["name"] for record in json.loads(first)["packages"]] == ["tiny"]
    assert run("nest", "index", tiny.parent, "--quiet", "-o", "again.json").stdout == ""
    assert (here / "again.json").read_bytes() == first

    other = shutil.copytree(tiny, tmp_path / "more" / "other")
    (other / "nest.toml").write_text((tiny / "nest.toml").read_text().replace('"tiny"', '"other"', 1))
    (tiny / "nest.toml").write_text("[model]\n")
    done = run("nest", "index", tiny.parent, "-o", "bad.json")
    assert done.returncode == 1
    assert "model.name is missing" in done.stderr
    assert sorted(path.name for path in here.iterdir()) == ["again.json", "index.json"]

    done = run("nest", "index", "build", tiny.parent, other.parent, "--keep-going", "--processes", "2")
    assert done.returncode == 1
    assert "model.name is missing" in done.stderr
    assert done.stdout.startswith("index.json: 1 package. ")
    assert done.stdout.endswith(" problems, so that packages are missing.\n")
    assert [record["name"] for record in json.loads((here / "index.json").read_bytes())["packages"]] == ["other"]


def test_what_cannot_be_written_is_named_as_the_user_named_it(run: Run, tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for words, code, said in (
        (["index", tiny.parent, "-o", tmp_path / "no" / "x.json"], 3, f"{tmp_path}/no/x.json is not there"),
        (
            ["index", tiny.parent, "-o", tmp_path / "file" / "x.json"],
            3,
            f"{tmp_path}/file/x.json cannot be: a part of its path",
        ),
        (["site", "build", "--nests", tiny.parent, "-o", "/proc/x"], 3, "/proc/x is not there"),
        (
            ["site", "build", "--nests", tiny.parent, "-o", tmp_path / "file" / "x"],
            1,
            f"{tmp_path}/file is not a folder",
        ),
    ):
        done = run("nest", *words)
        assert (done.returncode, done.stdout) == (code, "")
        assert done.stderr.startswith(f"Error: {said}")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "here", "nests"]


def test_index_says_when_a_folder_holds_no_package(run: Run, tmp_path: Path) -> None:
    done = run("nest", "index", tmp_path / "here")
    assert done.returncode == 1
    assert "holds no package" in done.stderr
    assert run("nest", "index", tmp_path / "absent").returncode == 2
    assert run("nest", "index").returncode == 2  # there is no ./nests
    assert "nest index DIR" in run("nest", "index", "--help").stdout


def test_list_and_show(run: Run, tiny: Path, root: Path) -> None:
    done = run("nest", "list", "--nests", tiny.parent)
    assert done.stdout == "tiny  mlp  Apache-2.0  Tiny\n"
    shipped = sorted(card.parent.name for card in root.glob("nests/*/nest.toml"))
    assert "qwen3-8b-fp8" in shipped
    assert [package["name"] for package in json.loads(run("nest", "list", "--json").stdout)] == shipped
    done = run("nest", "show", tiny)
    assert done.returncode == 0, done.stderr
    assert "Two linear layers." in done.stdout
    assert "lib.linnet" in done.stdout
    record = json.loads(run("nest", "show", "--json", tiny).stdout)
    # 4 x 3 + 4 + 3 x 4: the optional bias of `down` is bound to nothing.
    assert record["parameter_count"] == 28


def test_site_is_built_and_only_a_site_is_replaced(run: Run, tiny: Path, tmp_path: Path) -> None:
    site = tmp_path / "here" / "site"
    done = run("nest", "site", "build", "--nests", tiny.parent)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(rf"\d+ pages, 1 model drawn: {re.escape(str(site))}/index\.html\n", done.stdout)
    assert run("nest", "site", "build", "--nests", tiny.parent, "--quiet").stdout == ""
    precious = tmp_path / "here" / "precious"
    precious.mkdir()
    (precious / "notes.txt").write_text("keep")
    done = run("nest", "site", "build", "--nests", tiny.parent, "-o", "precious")
    assert done.returncode == 1
    assert [path.name for path in precious.iterdir()] == ["notes.txt"]


def test_colour_only_on_a_terminal_and_never_with_no_color(run: Run, tiny: Path) -> None:
    for environment in ({}, {"NO_COLOR": "1"}):
        assert "\x1b[" not in run("nest", "check", "--no-hub", "--smoke", "none", tiny, **environment).stdout


def test_version_and_help(run: Run) -> None:
    assert run("nest", "--version").stdout.startswith("nest, version ")
    assert "Exit codes" in run("nest", "--help").stdout
    done = run("nest", "chek", "x")
    assert done.returncode == 2
    assert "There is no command 'chek'. Did you mean check?" in done.stderr


def test_an_unknown_name_among_others_is_one_report(run: Run, tiny: Path) -> None:
    done = run("nest", "check", "--no-hub", "--smoke", "none", "tinny-zzz", tiny)
    assert done.returncode == 1
    assert "error   package  no package" in done.stdout
    assert "ok      card " in done.stdout
    both = json.loads(run("nest", "check", "--no-hub", "--smoke", "none", "--json", "tinny-zzz", tiny).stdout)
    assert [report["ok"] for report in both] == [False, True]


def test_show_prints_the_signatures_of_entries(run: Run, tiny: Path) -> None:
    done = run("nest", "show", tiny)
    assert "pub entry forward<B: Dim>(x: Tensor[B, In; T]) -> Tensor[B, In; T]" in done.stdout
    assert "28 in 3 tensors" in done.stdout


def test_a_reader_that_leaves_ends_the_command_quietly(run: Run, tiny: Path) -> None:
    leave = "import os\nr, w = os.pipe()\nos.close(r)\nos.dup2(w, 1)\n"
    for words in (["list"], ["show", "qwen3-8b"]):
        done = run("nest", *words, before=leave)
        assert (done.returncode, done.stderr) == (0, "")
