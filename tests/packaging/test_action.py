"""The GitHub Action and the workflows: every command in them exists with those options, and their steps run."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from linnet.cli.nest_main import nest

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())
# What a runner sets for every step.
RUNNER = {"RUNNER_TEMP", "GITHUB_OUTPUT", "GITHUB_ACTION_PATH", "GITHUB_STEP_SUMMARY"}


def steps() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every step of the action and of the workflows, with the file that it is in."""
    for step in ACTION["runs"]["steps"]:
        yield "action.yml", step
    for file in WORKFLOWS:
        for job in yaml.safe_load(file.read_text())["jobs"].values():
            for step in job["steps"]:
                yield file.name, step


STEPS = list(steps())
SCRIPTS = [(file, step) for file, step in STEPS if "run" in step]
IDS = [f"{file}-{step.get('name', step['run'].split()[0])}" for file, step in SCRIPTS]


def step(name: str) -> dict[str, Any]:
    (found,) = [step for _, step in SCRIPTS if step.get("name") == name]
    return found


def test_there_are_workflows_and_an_action() -> None:
    assert [file.name for file in WORKFLOWS] == ["gate.yml", "site.yml", "test.yml"]
    assert ACTION["runs"]["using"] == "composite"
    assert all(step["shell"] == "bash" for step in ACTION["runs"]["steps"] if "run" in step)


@pytest.mark.parametrize(("file", "step"), SCRIPTS, ids=IDS)
def test_scripts_take_values_by_name_and_are_bash(file: str, step: dict[str, Any]) -> None:
    script = step["run"]
    # An expression in a script would run whatever a branch is named.
    assert "${{" not in script
    assert subprocess.run(["bash", "-n"], input=script, text=True, check=False, capture_output=True).returncode == 0
    used = set(re.findall(r"\$\{?#?([A-Z][A-Z_]*)", script))
    assert used <= RUNNER | step.get("env", {}).keys()
    assert step.get("env", {}).keys() <= used


@pytest.mark.parametrize(("file", "step"), SCRIPTS, ids=IDS)
def test_commands_exist_with_their_options(file: str, step: dict[str, Any]) -> None:
    lines = step["run"].splitlines()
    for line in lines:
        words = line.split()
        if "nest" not in words:
            continue
        command: click.Command | None = nest
        for name in words[words.index("nest") + 1 :]:
            if not isinstance(command, click.Group):
                break
            command = command.get_command(click.Context(command), name)
        assert command is not None, line
        known = {option for parameter in command.params for option in parameter.opts}
        # Options are gathered in lines before, all of them for this command.
        gathered = [word for other in lines if "words+=(" in other for word in re.findall(r"--[a-z-]+", other)]
        given = [word for word in words if word.startswith("--")] + gathered
        assert given
        assert set(given) <= known, line
    for word in step["run"].split():
        if word.startswith((".ci/", "./")):
            assert os.access(ROOT / word, os.X_OK)


def test_the_workflow_gives_the_action_what_it_takes() -> None:
    own = [step for _, step in STEPS if step.get("uses") == "./"]
    assert own
    command = nest.get_command(click.Context(nest), "gate")
    assert command is not None
    known = {option for parameter in command.params for option in parameter.opts}
    for item in own:
        assert item["with"].keys() <= ACTION["inputs"].keys()
        assert set(re.findall(r"--[a-z-]+", item["with"].get("options", ""))) <= known


def test_inputs_are_used_and_outputs_made() -> None:
    text = (ROOT / "action.yml").read_text()
    used = set(re.findall(r"inputs\.([a-z-]+)", text))
    assert used == ACTION["inputs"].keys()
    assert all("default" in item and "description" in item for item in ACTION["inputs"].values())
    made = {match for _, step in SCRIPTS for match in re.findall(r'"(\w+)=\$', step["run"])}
    for output in ACTION["outputs"].values():
        (name,) = re.findall(r"steps\.gate\.outputs\.(\w+)", output["value"])
        assert name in made
    for file in (*WORKFLOWS, ROOT / "docs" / "gate.md"):
        assert set(re.findall(r"steps\.gate\.outputs\.(\w+)", file.read_text())) <= ACTION["outputs"].keys()


def test_the_guide_has_the_inputs_and_a_workflow_that_parses() -> None:
    text = (ROOT / "docs" / "gate.md").read_text()
    table = text[text.index("| input | meaning |") :].split("\n\n")[0]
    assert set(re.findall(r"^\| `([a-z-]+)`", table, re.MULTILINE)) == ACTION["inputs"].keys()
    (example,) = re.findall(r"^```yaml\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    parsed = yaml.safe_load(example)
    (own,) = [step for step in parsed["steps"] if "nest@" in step.get("uses", "")]
    assert own["with"].keys() <= ACTION["inputs"].keys()


# The steps, run


def programs(folder: Path) -> Path:
    """A folder with the commands that an installed Nest would have."""
    folder.mkdir()
    shim = folder / "nest"
    shim.write_text(
        f"#!/bin/sh\nexec {sys.executable} -W error -c 'from linnet.cli.nest_main import main; main()' \"$@\"\n"
    )
    shim.chmod(0o755)
    return folder


def run(
    script: str, folder: Path, temporary: Path, bin: Path, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """A step as a runner runs it: bash, stopping at the first failure."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GITHUB_")}
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
        cwd=folder,
        env={
            **kept,
            "PATH": f"{bin}:{os.environ['PATH']}",
            "RUNNER_TEMP": str(temporary),
            "GITHUB_OUTPUT": str(temporary / "output"),
            "GITHUB_STEP_SUMMARY": str(temporary / "summary.md"),
            "GITHUB_ACTION_PATH": str(ROOT),
            "NO_COLOR": "1",
            **environment,
        },
        capture_output=True,
        text=True,
        check=False,
    )


def git(folder: Path, *words: str) -> None:
    names = ["-c", "user.name=Test", "-c", "user.email=test@example.org", "-c", "init.defaultBranch=main"]
    subprocess.run(["git", *names, "-C", str(folder), *words], check=True, capture_output=True)


@pytest.fixture
def branch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with qwen3-tiny, whose branch `feature` left `main` and changes the licence."""
    monkeypatch.setenv("LINNET_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("LINNET_DATA", str(tmp_path / "data"))
    folder = tmp_path / "checkout"
    shutil.copytree(ROOT / "nests" / "qwen3-tiny", folder / "nests" / "qwen3-tiny")
    shutil.copytree(ROOT / "nests" / "qwen3-tiny", folder / "nests" / "other")
    other = folder / "nests" / "other" / "nest.toml"
    other.write_text(other.read_text().replace('"qwen3-tiny"', '"other"'))
    (folder / "constraints.txt").write_text("")
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "base")
    git(folder, "checkout", "-q", "-b", "feature")
    card = folder / "nests" / "qwen3-tiny" / "nest.toml"
    card.write_text(card.read_text().replace('"Apache-2.0"', '"MIT"'))
    git(folder, "commit", "-q", "-a", "-m", "change")
    return folder


def test_the_steps_of_the_workflow_run(branch: Path, tmp_path: Path) -> None:
    bin, temporary = programs(tmp_path / "bin"), tmp_path / "temporary"
    temporary.mkdir()
    asked = tmp_path / "pip"
    (bin / "python").write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {asked}\n')
    (bin / "python").chmod(0o755)
    done = run(step("A registry of what the base has")["run"], branch, temporary, bin, {"BASE": "main"})
    assert (done.returncode, done.stderr) == (0, "")
    assert [path.name for path in (temporary / "registry" / "versions").iterdir()] == ["qwen3-tiny"]
    gate = step("Gate")["run"]
    given = {"AGAINST": str(temporary / "registry"), "PACKAGES": "", "NESTS": "nests", "BENCH": "false", "OPTIONS": ""}
    done = run(gate, branch, temporary, bin, {**given, "SINCE": "main"})
    assert (done.returncode, done.stderr) == (1, "")
    assert "The licence is MIT instead of Apache-2.0." in done.stdout
    # Only what changed.
    assert "other 0.1.0" not in done.stdout
    assert (temporary / "output").read_text() == f"reports={temporary}/nest-gate\n"
    assert "licence-changed" in (temporary / "summary.md").read_text()
    (failure,) = ElementTree.parse(temporary / "nest-gate" / "gate.xml").getroot().iter("failure")
    assert failure.get("type") == "licence-changed"
    log = json.loads((temporary / "nest-gate" / "gate.sarif").read_text())
    assert log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"] == {
        "uri": "nests/qwen3-tiny/nest.toml"
    }
    # A new branch has no commit before: all packages; then packages by name, with options.
    done = run(gate, branch, temporary, bin, {**given, "SINCE": "0" * 40})
    assert done.returncode == 1
    assert "other 0.1.0: new" in done.stdout
    done = run(
        gate, branch, temporary, bin, {**given, "SINCE": "main", "PACKAGES": "other", "OPTIONS": "--quiet --json"}
    )
    assert (done.returncode, [item["name"] for item in json.loads(done.stdout)["packages"]]) == (0, ["other"])


@pytest.mark.parametrize(("bench", "extra"), [("true", "[torch]"), ("false", "")])
def test_what_is_installed(tmp_path: Path, bench: str, extra: str) -> None:
    bin = programs(tmp_path / "bin")
    asked = tmp_path / "pip"
    (bin / "python").write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {asked}\n')
    (bin / "python").chmod(0o755)
    script = step("Install Nest")["run"]
    done = run(script, tmp_path, tmp_path, bin, {"BENCH": bench, "PIP_OPTIONS": "--extra-index-url somewhere"})
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    words = asked.read_text().splitlines()
    assert words == [
        *("-m", "pip", "install", "--quiet", "--extra-index-url", "somewhere"),
        *("-c", f"{ROOT}/constraints.txt", f"{ROOT}{extra}"),
    ]
    assert Path(words[-2]).is_file()
    assert (Path(words[-1].removesuffix("[torch]")) / "pyproject.toml").is_file()
