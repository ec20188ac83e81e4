"""`linnet fmt`, as users run it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

Run = Callable[..., CompletedProcess[str]]

MESSY = b"module  a\r\nconst N=1 // one\r\n\r\n\r\nconst M =2"
CLEAN = b"module a\nconst N = 1 // one\n\nconst M = 2\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a file in style, one that is not, and one below it."""
    inside = tmp_path / "src" / "inner"
    inside.mkdir(parents=True)
    (tmp_path / "src" / "clean.linnet").write_bytes(CLEAN)
    (tmp_path / "src" / "messy.linnet").write_bytes(MESSY)
    (inside / "messy.linnet").write_bytes(b"\xef\xbb\xbfmodule b")
    return tmp_path / "src"


def test_fmt_rewrites_what_is_not_in_style(run: Run, folder: Path) -> None:
    messy, clean = folder / "messy.linnet", folder / "clean.linnet"
    messy.chmod(0o640)
    before = clean.stat()
    done = run("linnet", "fmt", folder)
    assert (done.returncode, done.stdout, done.stderr) == (0, "2 files changed, 1 in style.\n", "")
    assert messy.read_bytes() == CLEAN
    assert messy.stat().st_mode & 0o777 == 0o640
    assert (folder / "inner" / "messy.linnet").read_bytes() == b"module b\n"
    assert (clean.stat().st_mtime_ns, clean.stat().st_ino) == (before.st_mtime_ns, before.st_ino)
    assert sorted(path.name for path in folder.iterdir()) == ["clean.linnet", "inner", "messy.linnet"]
    assert run("linnet", "fmt", "--quiet", folder).stdout == ""


def test_fmt_check_lists_and_writes_nothing(run: Run, folder: Path) -> None:
    done = run("linnet", "fmt", "--check", folder)
    listed = [folder / "inner" / "messy.linnet", folder / "messy.linnet"]
    assert done.returncode == 1
    assert done.stdout.splitlines() == [*map(str, listed), "2 files would change, 1 in style."]
    assert (folder / "messy.linnet").read_bytes() == MESSY
    assert run("linnet", "fmt", "--check", folder / "clean.linnet").returncode == 0


def test_fmt_diff_is_a_patch(run: Run, folder: Path) -> None:
    done = run("linnet", "fmt", "--diff", "--quiet", folder / "inner" / "messy.linnet")
    name = folder / "inner" / "messy.linnet"
    assert done.returncode == 1
    assert done.stdout == (
        f"--- a/{name}\n+++ b/{name}\n@@ -1 +1 @@\n-\ufeffmodule b\n\\ No newline at end of file\n+module b\n"
    )


def test_fmt_leaves_syntax_errors_alone(run: Run, folder: Path) -> None:
    broken = folder / "broken.linnet"
    broken.write_bytes(b"module   c\nfn f( {\n")
    done = run("linnet", "fmt", folder)
    assert done.returncode == 1
    assert broken.read_bytes() == b"module   c\nfn f( {\n"
    assert (folder / "messy.linnet").read_bytes() == CLEAN
    assert "error[E1101]" in done.stdout
    assert f"{broken}:2:" in done.stdout
    assert done.stdout.endswith("2 files changed, 1 in style, 1 file left alone for syntax errors.\n")


def test_fmt_writes_through_a_link(run: Run, folder: Path) -> None:
    link = folder / "link.linnet"
    link.symlink_to(folder / "messy.linnet")
    assert run("linnet", "fmt", link).returncode == 0
    assert link.is_symlink()
    assert (folder / "messy.linnet").read_bytes() == CLEAN


def test_fmt_writes_a_file_whole_or_not_at_all(run: Run, folder: Path) -> None:
    before = "import os; os.replace = lambda old, new: os.rename(old, '/nowhere/at/all'); "
    done = run("linnet", "fmt", folder / "messy.linnet", before=before)
    assert done.returncode == 3
    assert (folder / "messy.linnet").read_bytes() == MESSY
    assert sorted(path.name for path in folder.iterdir()) == ["clean.linnet", "inner", "messy.linnet"]


def test_fmt_refuses_a_result_that_says_something_else(run: Run, folder: Path) -> None:
    before = (
        "import linnet.language.syntax.formatter as f; real = f.layout; f.layout = lambda doc: real(doc) + ' + 1'; "
    )
    done = run("linnet", "fmt", folder / "messy.linnet", before=before)
    assert done.returncode == 3
    assert "would change what it says" in done.stderr
    assert "Traceback" not in done.stderr
    assert (folder / "messy.linnet").read_bytes() == MESSY
