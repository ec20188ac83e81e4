"""The distribution: built from a fresh clone, installed in a fresh environment, used in another folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterable
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PACKAGES = (
    "all-minilm-l6-v2",
    "gpt2",
    "qwen3-8b",
    "qwen3-8b-fp8",
    "qwen3-backbone-tiny",
    "qwen3-tiny",
    "qwen3-tiny-fp8",
    "smollm2-135m-instruct",
)


def run(command: list[str | Path], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run without anything of this repository on the path."""
    hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    return subprocess.run(
        [str(part) for part in command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def clone(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh clone: what is committed, and nothing else."""
    if not (root / ".git").exists():
        pytest.skip("not a git checkout, so there is nothing to clone")
    folder = tmp_path_factory.mktemp("clone") / "nest"
    done = run(["git", "clone", "--quiet", "--depth", "1", root.as_uri(), folder], root)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def built(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist, and the wheel built from it."""
    out = tmp_path_factory.mktemp("dist")
    done = run([sys.executable, "-m", "build", "--no-isolation", "--outdir", out, clone], clone)
    assert done.returncode == 0, done.stdout + done.stderr
    (sdist,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    return sdist, wheel


def needed(requirements: Iterable[str]) -> dict[str, Distribution]:
    """The installed distributions that requirements ask for, and what those ask for in turn."""
    found: dict[str, Distribution] = {}
    asked: set[tuple[str, str]] = set()
    pending = [(Requirement(line), "") for line in requirements]
    while pending:
        wanted, extra = pending.pop()
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(wanted.name)
        found[name] = found.get(name) or distribution(name)
        for own in {"", *wanted.extras}:
            if (name, own) not in asked:
                asked.add((name, own))
                pending += [(Requirement(line), own) for line in found[name].requires or ()]
    return found


@pytest.fixture(scope="module")
def environment(built: tuple[Path, Path], clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with the wheel and what it declares, the torch extra included, and nothing else.

    No index is asked: the dependencies are links to those of the environment that runs the tests.
    """
    folder = tmp_path_factory.mktemp("environment")
    done = run([sys.executable, "-m", "venv", "--without-pip", folder], folder)
    assert done.returncode == 0, done.stderr
    python = folder / "bin" / "python"
    done = run(
        [sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", built[1]], folder
    )
    assert done.returncode == 0, done.stderr
    project = tomllib.loads((clone / "pyproject.toml").read_text())["project"]
    (site,) = (folder / "lib").glob("python*/site-packages")
    for dist in needed(project["dependencies"] + project["optional-dependencies"]["torch"]).values():
        for name in {file.parts[0] for file in dist.files or ()} - {"..", "__pycache__"}:
            if not (site / name).exists():
                (site / name).symlink_to(Path(str(dist.locate_file(name))))
    done = run([sys.executable, "-m", "pip", "--python", python, "check"], folder)
    assert done.returncode == 0, done.stdout
    return folder / "bin"


def test_distributions_carry_sources_and_packages(built: tuple[Path, Path], clone: Path) -> None:
    sdist, wheel = built
    with zipfile.ZipFile(wheel) as archive:
        in_wheel = set(archive.namelist())
    with tarfile.open(sdist) as archive:
        in_sdist = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {"linnet/py.typed"}
    for pattern in (
        "**/*.py",
        "std/**/*.linnet",
        "convert/*.linnet",
        "site_builder/templates/*",
        "site_builder/static/*",
    ):
        wanted |= {path.relative_to(clone).as_posix() for path in (clone / "linnet").glob(pattern) if path.is_file()}
    packages = {f"linnet/{p.relative_to(clone).as_posix()}" for p in (clone / "nests").rglob("*") if p.is_file()}
    assert {f"linnet/nests/{name}/nest.toml" for name in PACKAGES} <= packages
    assert (wanted | packages) - in_wheel == set()
    assert (wanted | packages) - in_sdist == set()
    strangers = [name for name in in_wheel if not name.startswith(("linnet/", "linnet_nest-"))]
    assert strangers == []


def test_an_installed_nest_lists_checks_and_loads(environment: Path, tmp_path: Path) -> None:
    done = run([environment / "python", "-c", "import linnet; print(linnet.__file__)"], tmp_path)
    assert Path(done.stdout.strip()).is_relative_to(environment.parent), done.stdout + done.stderr

    done = run([environment / "nest", "list", "--json"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert [package["name"] for package in json.loads(done.stdout)] == sorted(PACKAGES)

    done = run([environment / "nest", "check", "--no-hub", "--smoke", "none", *PACKAGES], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr

    code = "from linnet import nest; print(*nest.load('qwen3-8b-fp8', device='meta').entries)"
    done = run([environment / "python", "-c", code], tmp_path)
    assert done.returncode == 0, done.stderr
    assert "prefill" in done.stdout.split()
    assert list(tmp_path.iterdir()) == []
