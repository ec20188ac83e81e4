"""Programs in tests/corpus: the good ones check without a word, the bad ones say exactly what stands beside them.

`bad/NAME.linnet`, or the package `bad/NAME/`, is compared with the diagnostics in `bad/NAME.txt`.
`UPDATE_GOLDEN=1 pytest tests/language/test_corpus.py` writes those files anew: look at what changed.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from linnet.language.check import load
from linnet.language.diagnostics import CODES, render
from linnet.language.program.binding import bind
from linnet.language.program.small import small_generics
from linnet.language.program.verify import verify
from linnet.runner.smoke import smoke

CORPUS = Path(__file__).resolve().parent.parent / "corpus"


def programs(folder: str) -> list[str]:
    """Paths of the programs to load, from their folder."""
    root = CORPUS / folder
    files = [*root.glob("*.linnet"), *root.glob("*/src/lib.linnet")]
    return sorted(path.relative_to(root).as_posix() for path in files)


@pytest.mark.parametrize("program", programs("good"))
def test_good(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CORPUS / "good")
    assert "\n".join(render(item) for item in load(Path(program)).diagnostics) == ""


@pytest.mark.parametrize("program", programs("good"))
def test_good_runs(program: str) -> None:
    """Every entry is lowered at small generics, and has the shapes its graph says on the meta device."""
    checked = load(CORPUS / "good" / program).program
    assert checked is not None
    blocks: list[str | None] = [block.name for block in checked.blocks_with_entries()]
    roots = blocks or [None]
    ran = 0
    for root in roots:
        generics = small_generics(checked.root.blocks[root], {}) if root is not None else {}
        bound = bind(checked, root, generics)
        for name, entry in bound.entries().items():
            own = small_generics(entry, bound.generics)
            verify(bound.lower(name, own).graph)
            (outcome,) = smoke(bound, name, {}, level="meta").outcomes
            assert outcome.ok, outcome.message
            ran += 1
    assert ran


@pytest.mark.parametrize("program", programs("bad"))
def test_bad(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CORPUS / "bad")
    golden = Path(f"{program.split('/')[0].removesuffix('.linnet')}.txt")
    result = load(Path(program))
    shown = "\n\n".join(render(item) for item in result.diagnostics) + "\n"
    if os.environ.get("UPDATE_GOLDEN") == "1":
        golden.write_text(shown, encoding="utf-8")
    expected = golden.read_text(encoding="utf-8") if golden.exists() else ""
    assert shown == expected, f"{golden} differs; if the new text is right, run again with UPDATE_GOLDEN=1"


def test_every_code_has_a_program() -> None:
    """A program named after a code (e2101_..) reports that code, and no code is without one."""
    reported: dict[str, set[str]] = {}
    for path in (CORPUS / "bad").glob("*.txt"):
        text = path.read_text(encoding="utf-8")
        reported[path.stem] = {code for code in CODES if f"[{code}]" in text}
    for name, codes in reported.items():
        assert name.split("_")[0].upper() in codes, f"{name} does not report the code it is named after"
    assert set(CODES) - set().union(*reported.values()) == set()


def test_no_golden_text_without_its_program() -> None:
    names = {program.split("/")[0].removesuffix(".linnet") for program in programs("bad")}
    assert {path.stem for path in (CORPUS / "bad").glob("*.txt")} == names
