"""Who may import whom: the linter refuses what crosses a border between rooms."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOMS = ("language", "registry", "runner", "site_builder", "cli")
ALLOWED = {
    "language": set(),
    "registry": {"linnet.language"},
    "runner": {"linnet.language", "torch"},
    "site_builder": {"linnet.language", "linnet.registry"},
    "cli": {"linnet.language", "linnet.registry", "linnet.runner", "linnet.site_builder", "linnet.nest", "torch"},
}
FOREIGN = (
    "linnet.language",
    "linnet.registry",
    "linnet.runner",
    "linnet.site_builder",
    "linnet.cli",
    "linnet.nest",
    "torch",
    "registry",
    "runner",
    "site_builder",
)


def findings(root: Path, path: str, text: str) -> set[str]:
    """The codes that ruff reports for `text` as the file `path` of the repository."""
    command = [sys.executable, "-m", "ruff", "check", "--no-cache", "--select", "TID", "--output-format", "json"]
    done = subprocess.run(
        [*command, "--stdin-filename", str(root / path), "-"], input=text, capture_output=True, text=True, check=False
    )
    assert done.stdout, done.stderr
    return {found["code"] for found in json.loads(done.stdout)}


@pytest.mark.parametrize("room", ROOMS)
@pytest.mark.parametrize("module", FOREIGN)
def test_imports_across_borders_are_refused(root: Path, room: str, module: str) -> None:
    refused = module != f"linnet.{room}" and module not in ALLOWED[room]
    parent, _, name = module.rpartition(".")
    forms = [f"import {module}\n", f"import {module}.deep\n", f"from {module}.deep import name\n"]
    forms += [f"from {parent} import {name}\n"] if parent else []
    forms.append(f"def late() -> None:\n    from {module} import name\n")
    for form in forms:
        found = findings(root, f"linnet/{room}/probe.py", form)
        assert ("TID251" in found) == refused, f"{form!r} in {room}: {found}"


@pytest.mark.parametrize("room", ROOMS)
def test_relative_imports_are_refused(root: Path, room: str) -> None:
    assert "TID252" in findings(root, f"linnet/{room}/probe.py", "from .card import Card\n")


def test_every_room_repeats_the_bans_of_the_root(root: Path) -> None:
    tables = [tomllib.loads((path).read_text()) for path in sorted((root / "linnet").glob("*/ruff.toml"))]
    project = tomllib.loads((root / "pyproject.toml").read_text())
    bans = project["tool"]["ruff"]["lint"]["flake8-tidy-imports"]["banned-api"]
    assert len(tables) == 4
    for table in tables:
        own = table["lint"]["flake8-tidy-imports"]["banned-api"]
        assert bans.items() <= own.items()


def test_links_at_the_top_lead_into_the_package(root: Path) -> None:
    for room in ("registry", "runner", "site_builder"):
        assert (root / room).is_symlink()
        assert (root / room).resolve() == (root / "linnet" / room).resolve()
    assert (root / "linnet" / "nests").resolve() == (root / "nests").resolve()
