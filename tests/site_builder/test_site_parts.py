"""Anchors, source views, parameter rows, link checks."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linnet.site_builder.links import LinkProblem, check_links
from linnet.site_builder.parameters import Parameter, ParameterRow, fold_parameters
from linnet.site_builder.source_view import LEXERS, highlight_lines, language_of, source_block
from linnet.site_builder.text import Anchors, fragment, one_line, path_anchor


def test_path_anchors() -> None:
    assert path_anchor("src/lib.linnet") == "src-lib.linnet"
    assert path_anchor("a b/ü.md") == "a_20b-_C3_BC.md"
    assert path_anchor("src/lib.linnet-L3") == "src-lib.linnet-L3_"
    assert fragment(path_anchor("a b")) == "#a_20b"


def test_anchors_are_given_once() -> None:
    anchors = Anchors("files")
    assert [anchors.claim(name) for name in ("a", "files", "a", "files")] == ["a", "files-2", "a-2", "files-3"]


def test_one_line_hides_and_reorders_nothing() -> None:
    assert one_line("safe\u202egnp.exe\nnext\x00") == "safe gnp.exe next"


def test_languages() -> None:
    paths = ["src/a.linnet", "nest.toml", "bindings.json", "README.md", "LICENSE", "x.PY", "a.html"]
    assert [language_of(path) for path in paths] == ["linnet", "toml", "json", "markdown", "text", "python", "text"]


@given(
    st.text(alphabet=st.sampled_from("ab \t\n\r<>&\"'{}[]:=#/`1\u202e\x07"), max_size=60),
    st.sampled_from(sorted(LEXERS)),
)
def test_highlighting_keeps_lines_and_escapes(text: str, language: str) -> None:
    normal = text.replace("\r\n", "\n").replace("\r", "\n")
    lines = normal.split("\n")
    if lines[-1] == "":
        lines.pop()
    shown = [_plain(line) for line in highlight_lines(text, language)]
    assert shown == [line.replace("\u202e", "U+202E").replace("\x07", "U+0007") for line in lines]


def _plain(html: str) -> str:
    """The text of highlighted HTML; nothing but our spans may be markup."""
    bare = re.sub(r'<span class="[a-z]">|</span>', "", html)
    assert "<" not in bare
    assert ">" not in bare
    return unescape(bare)


def test_each_line_has_its_own_link() -> None:
    block = source_block("\n\n[a]\n", "toml", "nest.toml")
    assert block.count('class="line"') == 3
    assert '<span class="line" id="nest.toml-L3"><a href="#nest.toml-L3" tabindex="-1">3</a>' in block


def parameter(path: str, shape: tuple[int, ...] = (4,), dtype: str = "bf16") -> Parameter:
    return Parameter(path, "param", shape, dtype, False)


def row(pattern: str, count: int, shape: tuple[int, ...] = (4,), dtype: str = "bf16") -> ParameterRow:
    return ParameterRow(pattern, "param", shape, dtype, False, count)


def test_layers_fold_into_one_row() -> None:
    parameters = [parameter("embedding.weight", (9, 4))]
    parameters += [parameter(f"layers.{i}.{name}.weight") for i in range(36) for name in ("q", "k")]
    assert fold_parameters(parameters) == (
        row("embedding.weight", 1, (9, 4)),
        row("layers.{0..35}.q.weight", 36),
        row("layers.{0..35}.k.weight", 36),
    )
    assert fold_parameters(parameters)[0].elements == 36


def test_rows_part_where_weights_differ() -> None:
    parameters = [parameter("layers.0.w", (4, 4)), parameter("layers.1.w", (8, 4)), parameter("layers.2.w", (4, 4))]
    assert fold_parameters(parameters) == (row("layers.{0,2}.w", 2, (4, 4)), row("layers.1.w", 1, (8, 4)))


def test_two_numbers_fold_where_all_combinations_are_there() -> None:
    full = [parameter(f"a.{i}.b.{j}.w") for i in range(3) for j in range(2)]
    assert fold_parameters(full) == (row("a.{0..2}.b.{0..1}.w", 6),)
    assert fold_parameters(full[1:]) == (
        row("a.0.b.1.w", 1),
        row("a.1.b.{0..1}.w", 2),
        row("a.2.b.{0..1}.w", 2),
    )


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), unique=True))
def test_rows_count_every_parameter(points: list[tuple[int, int]]) -> None:
    rows = fold_parameters(parameter(f"a.{i}.b.{j}") for i, j in points)
    assert sum(item.count for item in rows) == len(points)


LINKS = [
    ('<a href="other.html">', None),
    ('<a href="other.html#here">', None),
    ('<a href="#top">', None),
    ('<a href="sub/../other.html">', None),
    ('<a href="https://example.org/gone">', None),
    ('<a href="gone.html">', "there is no such file in the site"),
    ('<a href="sub/">', "there is no such file in the site"),
    ('<a href="sub">', "there is no such file in the site"),
    ('<a href="#gone">', "there is no such anchor on that page"),
    ('<a href="other.html#gone">', "there is no such anchor on that page"),
    ('<a href="../secret.html">', "leads out of the site"),
    ('<a href="/other.html">', "a link from the root breaks under a sub-path and on the file system"),
    ('<a href="//example.org/">', "only https, http, mailto and relative links belong on a page"),
    ('<a href="javascript:1">', "only https, http, mailto and relative links belong on a page"),
    ('<script src="gone.js">', "there is no such file in the site"),
]


@pytest.mark.parametrize(("tag", "reason"), LINKS)
def test_links_are_followed(tmp_path: Path, tag: str, reason: str | None) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "index.html").write_text(f'<p id="top">{tag}', encoding="utf-8")
    (tmp_path / "other.html").write_text('<p id="here">', encoding="utf-8")
    problems = check_links(tmp_path)
    assert [problem.reason for problem in problems] == ([reason] if reason else [])


def test_an_id_stands_once(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<p id="x"><p id="x">', encoding="utf-8")
    assert check_links(tmp_path) == (LinkProblem("a.html", "#x", "this id stands twice on the page"),)
    assert str(check_links(tmp_path)[0]) == "a.html: #x: this id stands twice on the page"
