"""The distribution: built from the repository's files, installed in a fresh environment, used in another folder."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

PACKAGES = ("all-minilm-l6-v2", "qwen3-8b", "qwen3-8b-fp8")


def run(command: list[str | Path], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run without anything of this repository on the path."""
    hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    return subprocess.run(
        [str(part) for part in command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def built(root: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist, and the wheel built from it, of what git would put into a clone."""
    if not (root / ".git").exists():
        pytest.skip("not a git checkout, so there is no list of the files that belong to it")
    clone = tmp_path_factory.mktemp("clone")
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    for name in filter(None, listing.split("\0")):
        if not os.path.lexists(root / name):
            continue
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(root / name, clone / name, follow_symlinks=False)
    out = tmp_path_factory.mktemp("dist")
    done = run([sys.executable, "-m", "build", "--no-isolation", "--outdir", out, clone], clone)
    assert done.returncode == 0, done.stdout + done.stderr
    (sdist,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    return sdist, wheel


@pytest.fixture(scope="module")
def environment(built: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with the wheel; what it depends on is taken from the environment that runs the tests."""
    folder = tmp_path_factory.mktemp("environment")
    done = run([sys.executable, "-m", "venv", "--without-pip", folder], folder)
    assert done.returncode == 0, done.stderr
    python = folder / "bin" / "python"
    done = run(
        [sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", built[1]], folder
    )
    assert done.returncode == 0, done.stderr
    # A plain line in a .pth file adds a folder without reading the .pth files in it, so that no editable install of the
    # repository comes along.
    (site,) = (folder / "lib").glob("python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin"


def test_distributions_carry_sources_and_packages(built: tuple[Path, Path], root: Path) -> None:
    sdist, wheel = built
    with zipfile.ZipFile(wheel) as archive:
        in_wheel = set(archive.namelist())
    with tarfile.open(sdist) as archive:
        in_sdist = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {"linnet/py.typed"}
    for pattern in ("**/*.py", "std/**/*.linnet", "site_builder/templates/*", "site_builder/static/*"):
        wanted |= {path.relative_to(root).as_posix() for path in (root / "linnet").glob(pattern) if path.is_file()}
    packages = {f"linnet/{p.relative_to(root).as_posix()}" for p in (root / "nests").rglob("*") if p.is_file()}
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
