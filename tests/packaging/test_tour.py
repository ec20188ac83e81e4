"""The programs in the guide check, and following the tour word for word works."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from linnet.language.check import load
from linnet.language.diagnostics import render

FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def modules(root: Path) -> list[tuple[str, str]]:
    """Every complete Linnet module of the guide, with the page it is on; the tutorial has tests of its own."""
    pages = sorted((root / "docs").glob("*.md"))
    found = [(page.name, text) for page in pages for kind, text in FENCE.findall(page.read_text()) if kind == "linnet"]
    return [(page, text) for page, text in found if text.startswith("module ")]


def test_programs_of_the_guide_check(root: Path, tmp_path: Path) -> None:
    found = modules(root)
    assert "tour.md" in {page for page, _ in found}
    for page, text in found:
        (tmp_path / "lib.linnet").write_text(text)
        assert load(tmp_path / "lib.linnet").diagnostics == [], page


@pytest.fixture
def follow(root: Path, tmp_path: Path) -> list[str]:
    """The tour's files, written where it says; the result is its Python programs in order."""
    text = (root / "docs" / "tour.md").read_text()
    for name, content in re.findall(
        r"`(nests/two-layers/[\w./]+)`:\n\n```\w+\n(.*?)^```$", text, re.DOTALL | re.MULTILINE
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    return [program for kind, program in FENCE.findall(text) if kind == "python"]


def test_the_tour_comes_true(follow: list[str], root: Path, tmp_path: Path) -> None:
    def run(*words: str) -> str:
        environment = {**os.environ, "PYTHONPATH": str(root)}
        done = subprocess.run(
            [sys.executable, *words], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    nest = ("-c", "from linnet.cli.nest_main import main; main()")
    save, use = follow
    run("-c", save)
    checked = run(*nest, "check", "nests/two-layers")
    shown = (root / "docs" / "tour.md").read_text().partition("```text\ntwo-layers\n")[2].partition("```")[0]
    # The time that the smoke test took ends its line, and is not in the guide.
    assert re.sub(r", [\d.]+ s$", "", checked, flags=re.MULTILINE) == f"two-layers\n{shown}"
    printed = run("-c", use)
    assert "(up): Linear<" in printed
    assert "tensor([[" in printed
    run(*nest, "site", "build", "--nests", "nests", "-o", "site")
    assert (tmp_path / "site" / "index.html").is_file()


def test_the_diagnostic_that_the_guide_shows_is_the_real_one(
    follow: list[str], root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path / "nests" / "two-layers")
    source = Path("src/lib.linnet")
    source.write_text(source.read_text().replace("down: Linear<Hidden, In, T>", "down: Linear<Hidden, Hidden, T>"))
    (shown,) = [text for kind, text in FENCE.findall((root / "docs" / "diagnostics.md").read_text()) if kind == "text"]
    assert [render(item) + "\n" for item in load(source).diagnostics] == [shown]
