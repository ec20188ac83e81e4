"""The tutorial in docs/language is true: its programs check, its errors are the real ones, its commands run.

A block whose lead-in is a path and a colon is that file. Another Linnet block is a program on its own where it begins
with `module`, and else a quotation from a file. The text after a program, a command or a piece of Python is what it
prints.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import pytest

from linnet.language.check import load
from linnet.language.check.context import PRELUDE
from linnet.language.diagnostics import Diagnostics, render
from linnet.language.source import Source
from linnet.language.syntax.formatter import format_source
from linnet.language.syntax.lexer import KEYWORDS, RESERVED

CHAPTERS = (
    "index",
    "first-block",
    "shapes",
    "index-notation",
    "ops",
    "blocks",
    "attention",
    "control-flow",
    "packages",
    "testing",
    "habits",
    "reference",
)
BLOCK = re.compile(
    r"(?:^`(?P<file>\w+/[\w./-]+)`:\n\n)?^```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE
)
# Runs pieces of Python in one process and prints what each printed, as JSON.
DRIVER = """
import contextlib, io, json, sys
scope, printed = {"__name__": "__main__"}, []
for piece in json.load(sys.stdin):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(piece, "<tutorial>", "exec"), scope)
    printed.append(out.getvalue())
json.dump(printed, sys.stdout)
"""


@dataclass(frozen=True)
class Block:
    """A fenced block: the file it is, if any, and the text block that directly follows it."""

    file: str | None
    kind: str
    text: str
    shown: str | None


def blocks(page: str) -> list[Block]:
    found = list(BLOCK.finditer(page))
    result = []
    for match, after in zip_longest(found, found[1:]):
        adjacent = after is not None and after["kind"] == "text" and not page[match.end() : after.start()].strip()
        shown = after["text"] if adjacent and after is not None else None
        result.append(Block(match["file"], match["kind"], match["text"], shown))
    return result


def read(root: Path, chapter: str) -> list[Block]:
    return blocks((root / "docs" / "language" / f"{chapter}.md").read_text())


@pytest.fixture
def folder(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with every file of the tutorial, which becomes the current one."""
    for chapter in CHAPTERS:
        for block in read(root, chapter):
            if block.file is not None:
                (tmp_path / block.file).parent.mkdir(parents=True, exist_ok=True)
                (tmp_path / block.file).write_text(block.text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(words: list[str], root: Path, given: str = "") -> str:
    environment = {**os.environ, "PYTHONPATH": str(root), "NO_COLOR": "1"}
    done = subprocess.run(
        [sys.executable, *words], input=given, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def printed(pieces: list[str], root: Path) -> list[str]:
    return json.loads(run(["-c", DRIVER], root, json.dumps(pieces))) if pieces else []


def outcome(block: Block) -> str | None:
    """What checking a program on its own says, as `linnet check` prints it; None without a word."""
    path = Path("src/lib.linnet")
    path.parent.mkdir(exist_ok=True)
    path.write_text(block.text)
    return "\n".join(render(item) + "\n" for item in load(path).diagnostics) or None


def command(line: str, root: Path) -> str:
    tool, *words = line.split()
    return without_times(run(["-c", f"from linnet.cli.{tool}_main import main; main()", *words], root))


def without_times(text: str) -> str:
    """The times that a check took end their lines, and are not in the guide."""
    return re.sub(r", [\d.]+ s$", "", text, flags=re.MULTILINE)


def test_every_chapter_is_tested(root: Path) -> None:
    assert {path.stem for path in (root / "docs" / "language").glob("*.md")} == set(CHAPTERS)


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_programs_check_and_errors_are_the_real_ones(root: Path, folder: Path, chapter: str) -> None:
    for block in read(root, chapter):
        if block.kind != "linnet":
            continue
        if block.file is not None:
            assert load(Path(block.file)).diagnostics == [], block.file
        elif block.text.startswith("module "):
            assert outcome(block) == block.shown, block.text


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_programs_are_in_canonical_style(root: Path, chapter: str) -> None:
    for block in read(root, chapter):
        if block.kind == "linnet" and block.text.startswith(("module ", "//")):
            assert format_source(Source("lib.linnet", block.text), Diagnostics()) == block.text


def test_quotations_are_from_the_files(root: Path, folder: Path) -> None:
    files = [textwrap.dedent(path.read_text()) for path in folder.rglob("*.linnet")]
    sources = [re.sub(r"^ +", "", text, flags=re.MULTILINE) for text in files]
    for chapter in CHAPTERS:
        for block in read(root, chapter):
            if block.kind == "linnet" and block.file is None and not block.text.startswith("module "):
                quoted = re.sub(r"^ +", "", block.text, flags=re.MULTILINE)
                assert any(quoted in source for source in sources), block.text


@pytest.mark.parametrize("chapter", ["first-block", "packages", "testing"])
def test_commands_and_python_print_what_is_shown(root: Path, folder: Path, chapter: str) -> None:
    # The last chapter runs the package whose weights the one before it makes.
    if chapter == "testing":
        printed([block.text for block in read(root, "packages") if block.kind == "python"], root)
    for steps in stretches(read(root, chapter)):
        if steps[0].kind == "sh":
            assert command(steps[0].text.strip(), root) == (steps[0].shown or ""), steps[0].text
        else:
            outputs = printed([step.text for step in steps], root)
            assert outputs == [step.shown or "" for step in steps]


def stretches(every: list[Block]) -> Iterator[list[Block]]:
    """Each command alone, and the pieces of Python between commands together: they share their variables."""
    run_together: list[Block] = []
    for block in every:
        if block.kind == "python":
            run_together.append(block)
        elif block.kind == "sh":
            if run_together:
                yield run_together
            run_together = []
            yield [block]
    if run_together:
        yield run_together


def test_a_page_that_lies_is_found(folder: Path) -> None:
    program = "module lie\n\npub fn f(x: f32) -> f32 {\n    return y\n}\n"
    (block,) = blocks(f"```linnet\n{program}```\n\nprose\n\n```text\nnothing\n```\n")[:1]
    assert block.shown is None
    said = outcome(block)
    assert said is not None
    assert said.startswith("error[E1201]")


def proofs(root: Path) -> list[tuple[str, str]]:
    """The rows of the reference's table of proofs: clauses, separated by commas, and what follows from them."""
    page = (root / "docs" / "language" / "reference.md").read_text()
    rows = re.findall(
        r"^\| (.+) \| `(.+)` \|$", page.partition("| from | follows |")[2].partition("\n\n")[0], re.MULTILINE
    )
    return [(", ".join(re.findall(r"`([^`]+)`", facts)), goal) for facts, goal in rows]


def test_the_proofs_of_the_reference_are_found(root: Path, folder: Path) -> None:
    table = proofs(root)
    assert len(table) == 12
    for facts, goal in table:
        names = sorted(set(re.findall(r"[A-Z]", facts + goal)))
        generics = ", ".join(f"{name}: Dim" for name in names)
        assumed = f" where {facts}" if facts else ""
        text = (
            f"module proof\n\nfn goal<{generics}>(x: f32) -> f32 where {goal} {{\n    return x\n}}\n\n"
            f"pub fn caller<{generics}>(x: f32) -> f32{assumed} {{\n    return goal<{', '.join(names)}>(x)\n}}\n"
        )
        assert outcome(Block(None, "linnet", text, None)) is None, (facts, goal)


def test_the_reference_names_every_word_of_the_language(root: Path) -> None:
    page = " ".join((root / "docs" / "language" / "reference.md").read_text().split())
    for word in KEYWORDS | RESERVED | PRELUDE:
        assert re.search(rf"[` \"]{word}[` <(\"]", page), word


# Nothing in the habits' program is used.
UNUSED = {"W1001", "W1002", "W1003"}
HABIT = """module habit

use std.nn.embedding::{{Embedding}}
use std.nn.linear::{{Linear, linear}}
use std.nn.norm::{{layer_norm}}
use std.nn.softmax::{{softmax}}

pub block Net<H: Dim> where H > 0 {{
    param weight: Tensor[H; f32]
    param bias: Tensor[H; f32]
    sub up: Linear<H, H, f32>
    sub tokens: Embedding<H, H, f32>
    sub table: Embedding<H, H, f32>

    pub entry forward<B: Dim, S: Dim>(
        x: Tensor[B, S, H; f32],
        half: Tensor[B, S, H; bf16],
        mask: Tensor[B, S, H; bool],
        tokens: Tensor[B, S; i32],
        pos: i32,
    ) -> Tensor[B, S, H; f32]
    where S > 0 {{
        let y = {}
        return x
    }}
}}
"""


def test_habits_are_answered_as_the_page_says(root: Path, folder: Path) -> None:
    page = (root / "docs" / "language" / "habits.md").read_text()
    rows = re.findall(r"^\| `(.+)` \| ([EW]\d+) \| `(.+)` \|$", page, re.MULTILINE)
    assert len(rows) == page.count("\n| ") - 2
    for habit, code, instead in rows:
        answer = outcome(Block(None, "linnet", HABIT.format(habit), None)) or ""
        said = [found for found in re.findall(r"^\w+\[(\w+)\]", answer, re.MULTILINE) if found not in UNUSED]
        assert said == [code], habit
        better = outcome(Block(None, "linnet", HABIT.format(instead), None)) or ""
        assert set(re.findall(r"^\w+\[(\w+)\]", better, re.MULTILINE)) <= UNUSED, instead
