"""Package folders: paths that leave them, files that cannot be part of them, sizes and digests."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linnet.registry import package
from linnet.registry.errors import PackageError, bare, listed, nearest, shown
from linnet.registry.package import (
    human_size,
    name_fault,
    package_files,
    package_path,
    path_fault,
    read_file,
)


def test_a_path_inside(tmp_path: Path) -> None:
    assert package_path(tmp_path, "src/lib.linnet") == tmp_path.resolve() / "src" / "lib.linnet"
    assert path_fault("src/été/中文.linnet") is None


@pytest.mark.parametrize(
    "text", ["../x", "/x", "a\\b", "a\0b", "C:x", "a/../../x", "", ".", "..", "a/./b", "a//b", "a/"]
)
def test_a_path_that_leaves_is_refused_before_it_is_opened(tmp_path: Path, text: str) -> None:
    with pytest.raises(
        PackageError, match=r"^.*The path .* (leaves|is not relative|holds|is empty|has an empty segment)"
    ):
        package_path(tmp_path, text)
    with pytest.raises(PackageError):
        read_file(tmp_path, text, 10)


def test_a_link_that_leaves(tmp_path: Path) -> None:
    folder, outside = tmp_path / "package", tmp_path / "secret"
    folder.mkdir()
    outside.write_text("secret")
    (folder / "out").symlink_to(outside)
    (folder / "folder").symlink_to(tmp_path)
    (folder / "loop").symlink_to(folder / "loop")
    (folder / "inside.md").write_text("text")
    (folder / "link.md").symlink_to(folder / "inside.md")
    assert read_file(folder, "link.md", 10) == b"text"
    for text in ("out", "folder/secret", "folder/package/inside.md/../../secret"):
        with pytest.raises(PackageError):
            package_path(folder, text)
    with pytest.raises(PackageError) as caught:
        package_path(folder, "out")
    assert str(caught.value) == (
        'out: The path "out" leaves the package through a symbolic link. Write a path inside the package, such as '
        "src/lib.linnet, with forward slashes."
    )
    with pytest.raises(PackageError, match="is a symbolic link that leads nowhere"):
        package_path(folder, "loop")
    with pytest.raises(PackageError) as caught:
        package_files(folder)
    assert [problem.where for problem in caught.value.problems] == ["folder", "loop", "out"]


def test_the_package_may_itself_be_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "README.md").write_text("# A")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert read_file(tmp_path / "link", "README.md", 10) == b"# A"
    assert [file.path for file in package_files(tmp_path / "link")] == ["README.md"]


def test_what_is_not_a_plain_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.md")
    (tmp_path / "folder.md").mkdir()
    with pytest.raises(PackageError, match=r'The file "pipe\.md" is not a plain file\.'):
        read_file(tmp_path, "pipe.md", 10)
    with pytest.raises(PackageError, match=r'The file "folder\.md" is not a plain file\.'):
        read_file(tmp_path, "folder.md", 10)
    with pytest.raises(PackageError, match=r'The file "pipe\.md" is not a plain file\.'):
        package_files(tmp_path)


def test_files_with_sizes_and_digests(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "b.linnet").write_bytes(b"b" * 3)
    (tmp_path / "a.md").write_bytes(b"a")
    (tmp_path / "model.safetensors").write_bytes(b"w")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").write_text("x")
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "x.pyc").write_text("x")
    files = package_files(tmp_path, skip=frozenset({"model.safetensors"}))
    assert [(file.path, file.size) for file in files] == [("a.md", 1), ("src/b.linnet", 3)]
    assert files[0].sha256 == hashlib.sha256(b"a").hexdigest()


def test_names_that_are_not_the_same_everywhere(tmp_path: Path) -> None:
    for name in ("Readme.md", "README.md", "con.md", "odd\u202ename.md", "bad|name"):
        (tmp_path / name).write_text("x")
    os.close(os.open(os.fsencode(tmp_path) + b"/\xff.md", os.O_CREAT | os.O_WRONLY))
    with pytest.raises(PackageError) as caught:
        package_files(tmp_path)
    assert sorted(problem.message for problem in caught.value.problems) == [
        'The path "Readme.md" differs from "README.md" only in case.',
        'The path "\\udcff.md" holds a control or invisible character.',
        'The path "bad|name" holds one of the characters < > : " | ? *.',
        'The path "con.md" has a segment that is a device name on Windows.',
        'The path "odd\\u202ename.md" holds a control or invisible character.',
    ]


def test_a_package_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "big.md").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(PackageError, match=r'The file "big\.md" is larger than 64\.0 MiB\. Make it smaller'):
        package_files(tmp_path)
    assert package_files(tmp_path, skip=frozenset({"big.md"})) == []
    (tmp_path / "big.md").unlink()
    monkeypatch.setattr(package, "MOST_FILES", 2)
    for name in ("a", "b", "c"):
        (tmp_path / name).write_text("x")
    with pytest.raises(PackageError, match="holds more than 2 files"):
        package_files(tmp_path)
    (tmp_path / "c").unlink()
    assert len(package_files(tmp_path)) == 2


def test_a_file_over_its_limit(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(b"x" * 11)
    with pytest.raises(PackageError, match=r'The file "big" is larger than 10 B\.'):
        read_file(tmp_path, "big", 10)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"), (60, "60 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (99597, "97.3 KiB"), (1 << 20, "1.0 MiB"),
        ((1 << 20) - 1, "1.0 MiB"), (16 * (1 << 30), "16.0 GiB"), (1 << 40, "1.0 TiB"), (1 << 51, "2048.0 TiB"),
    ],
)  # fmt: skip
def test_sizes_for_people(size: int, text: str) -> None:
    assert human_size(size) == text


@given(st.text(max_size=40))
def test_a_plain_path_never_leaves(text: str) -> None:
    root = Path("/package")
    if path_fault(text) is None:
        joined = os.path.normpath(root / text)
        assert joined.startswith("/package/")
        assert joined == str(root / text)


@given(st.text(max_size=70))
def test_a_name_is_a_plain_path(text: str) -> None:
    if name_fault(text) is None:
        assert path_fault(text) is None
        assert "/" not in text


@given(st.text())
def test_what_is_shown_is_one_printable_line(text: str) -> None:
    assert shown(text).isprintable()
    assert len(bare(text)) <= 80 * 10
    shown(text).encode()


def test_names_in_sentences() -> None:
    assert listed(["a", "b"]) == '"a", "b"'
    assert listed(map(str, range(10)), most=2) == '"0", "1" and 8 more'
    assert nearest("tilte", ["title", "tags"]) == "title"
    assert nearest("x", []) is None
    assert shown("a" * 100) == '"' + "a" * 79 + '…"'
