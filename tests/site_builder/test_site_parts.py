"""Anchors, source views, parameter rows, link checks."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linnet.site_builder.build import SiteReport
from linnet.site_builder.collect import PackageSource
from linnet.site_builder.links import LinkProblem, check_links
from linnet.site_builder.parameters import Parameter, fold_parameters
from linnet.site_builder.source_view import (
    HIGHLIGHTED_CHARACTERS,
    LEXERS,
    highlight_lines,
    language_of,
    line_count,
    source_block,
)
from linnet.site_builder.text import Anchors, fragment, one_line, path_anchor


def test_path_anchors() -> None:
    assert path_anchor("src/lib.linnet") == "src-lib.linnet"
    assert path_anchor("a b/ü.md") == "a_20b-_C3_BC.md"
    assert path_anchor("src/lib.linnet-L3") == "src-lib.linnet-L3_"
    assert fragment(path_anchor("a b")) == "#a_20b"


def test_anchors_are_given_once() -> None:
    anchors = Anchors("files")
    assert [anchors.claim(name) for name in ("a", "files", "a", "a-2", "a")] == ["a", "files-2", "a-2", "a-2-2", "a-3"]


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
    assert line_count(text) == len(lines)


def _plain(html: str) -> str:
    """The text of highlighted HTML; nothing but our spans may be markup."""
    bare = re.sub(r'<span class="[a-z]">|</span>', "", html)
    assert "<" not in bare
    assert ">" not in bare
    return unescape(bare)


def test_each_line_has_its_own_link() -> None:
    block = source_block("\n\n[a]\n", "toml")
    assert block.count('class="line"') == 3
    assert '<span class="line" id="L3"><a href="#L3" tabindex="-1">3</a>' in block


def test_what_is_very_long_is_not_highlighted() -> None:
    text = '"a" ' * (HIGHLIGHTED_CHARACTERS // 4)
    assert "<span" in next(highlight_lines(text, "json"))
    assert next(highlight_lines(f"{text} ", "json")) == f"{text} "


@pytest.mark.parametrize(
    ("text", "wanted", "anchor"),
    [
        ("a\nb\n", "L2", "notes.txt.html#L2"),
        ("a\nb\n", "L1-L2", "notes.txt.html#L1"),
        ("a\nb\n", "L3", "notes.txt.html"),
        ("a\nb\n", "L0", "notes.txt.html"),
        ("a\nb\n", "L1x", "notes.txt.html"),
        ("a\nb\n", "L" + "1" * 5000, "notes.txt.html"),
        ("a\x0cb\x0bc\x85d\u2028e\n", "L3", "notes.txt.html"),
        ("a\x0cb\r\nc\rd", "L3", "notes.txt.html#L3"),
        ("\ufeff\ufeff", "L1", "notes.txt.html"),
    ],
)
def test_links_to_lines_find_them(
    make_package: Callable[..., PackageSource],
    build: Callable[..., SiteReport],
    text: str,
    wanted: str,
    anchor: str,
) -> None:
    report = build(make_package(files={"notes.txt": text, "README.md": f"[notes](notes.txt#{wanted})"}))
    page = (report.output / "models" / "tiny-wren" / "index.html").read_text(encoding="utf-8")
    assert f'<a href="source/{anchor}">notes</a>' in page
    assert report.problems == ()


def parameter(path: str, shape: tuple[int, ...] = (4,), tensor: str = "t") -> Parameter:
    return Parameter(path, tensor, "param", shape, "bf16", "Tensor[H; T]", False)


def rows_of(*parameters: Parameter) -> list[tuple[str, str, int]]:
    return [(row.pattern, row.tensor, row.count) for row in fold_parameters(parameters)]


def test_layers_fold_into_one_row() -> None:
    parameters = [parameter("embedding.weight", (9, 4), "embed")]
    parameters += [parameter(f"layers.{i}.{n}.weight", tensor=f"model.h.{i}.{n}") for i in range(36) for n in "qk"]
    assert rows_of(*parameters) == [
        ("embedding.weight", "embed", 1),
        ("layers.{0..35}.q.weight", "model.h.{0..35}.q", 36),
        ("layers.{0..35}.k.weight", "model.h.{0..35}.k", 36),
    ]
    assert [row.elements for row in fold_parameters(parameters)] == [36, 144, 144]


def test_rows_part_where_weights_differ() -> None:
    shapes = [(4, 4), (8, 4), (4, 4)]
    parameters = [parameter(f"layers.{i}.w", shape) for i, shape in enumerate(shapes)]
    assert rows_of(*parameters) == [("layers.{0,2}.w", "t", 2), ("layers.1.w", "t", 1)]


def test_rows_part_where_tensors_are_numbered_otherwise() -> None:
    assert rows_of(*(parameter(f"layers.{i}.w", tensor=f"h.{i + 1}.w") for i in range(2))) == [
        ("layers.0.w", "h.1.w", 1),
        ("layers.1.w", "h.2.w", 1),
    ]


def test_two_numbers_fold_where_all_combinations_are_there() -> None:
    full = [parameter(f"a.{i}.b.{j}.w") for i in range(3) for j in range(2)]
    assert rows_of(*full) == [("a.{0..2}.b.{0..1}.w", "t", 6)]
    assert rows_of(*full[1:]) == [
        ("a.0.b.1.w", "t", 1),
        ("a.1.b.{0..1}.w", "t", 2),
        ("a.2.b.{0..1}.w", "t", 2),
    ]


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), unique=True))
def test_rows_count_every_parameter(points: list[tuple[int, int]]) -> None:
    rows = fold_parameters(parameter(f"a.{i}.b.{j}") for i, j in points)
    assert sum(item.count for item in rows) == len(points)


def test_what_no_array_counts_is_a_name() -> None:
    names = ["a.007.w", "a.008.w", f"a.{'9' * 5000}.w", "a.\u0663.w"]
    assert rows_of(*map(parameter, names)) == [(name, "t", 1) for name in names]


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
    ('<td title="a href=" hidden class=" id=">', None),
    ('<span class="k">x</span><span class="u" id="top">', "this id stands twice on the page"),
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
