"""Where packages are found: folders, git checkouts, an organisation on the Hub; and what is passed over."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hub_server import HubServer
from tiny_package import MakePackage

from linnet.registry.discover import discover

GIT = shutil.which("git")
needs_git = pytest.mark.skipif(GIT is None, reason="git is not installed")


def make_card(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "nest.toml").write_text("")
    return folder


def found(*roots: str | Path) -> list[str]:
    result = discover(roots)
    assert result.problems == []
    return [str(package.folder) for package in result.packages]


def git(folder: Path, *arguments: str) -> None:
    settings = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main"]
    subprocess.run(["git", *settings, *arguments], cwd=folder, check=True, capture_output=True)


def test_folders_are_walked_to_their_end(tmp_path: Path) -> None:
    wanted = [make_card(tmp_path / part) for part in ("a", "group/b", "group/deep/er/c")]
    # Inside a package, hidden, left behind by tools, in a virtual environment: none of these is a package.
    for part in ("a/inner", ".git/x", "node_modules/x", "group/.venv/x", "group/__pycache__/x", "env/lib/x"):
        make_card(tmp_path / part)
    (tmp_path / "env" / "pyvenv.cfg").write_text("")
    (tmp_path / "empty").mkdir()
    (tmp_path / "nest.toml.d").mkdir()
    assert found(tmp_path) == list(map(str, wanted))


def test_a_root_may_be_a_package_and_roots_may_overlap(tmp_path: Path) -> None:
    a, b = make_card(tmp_path / "g" / "a"), make_card(tmp_path / "g" / "b")
    assert found(b) == [str(b)]
    assert found(b, tmp_path, tmp_path / "g") == [str(b), str(a)]


def test_links(tmp_path: Path) -> None:
    outside = make_card(tmp_path / "outside" / "linked")
    (tmp_path / "root").mkdir()
    own = make_card(tmp_path / "root" / "own")
    (tmp_path / "root" / "linked").symlink_to(outside)
    (tmp_path / "root" / "again").symlink_to(outside)
    (tmp_path / "root" / "loop").symlink_to(tmp_path / "root")
    (tmp_path / "root" / "folder").symlink_to(tmp_path / "outside")
    (tmp_path / "root" / "nowhere").symlink_to(tmp_path / "nothing")
    # A link to a package is that package, once; a link to a folder of packages is not followed.
    assert found(tmp_path / "root") == [str(tmp_path / "root" / "again"), str(own)]


def test_roots_that_give_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    result = discover([tmp_path / "empty", tmp_path / "file", tmp_path / "absent", "hf://a/b"])
    assert result.packages == []
    assert [str(problem).replace(f"{tmp_path}/", "") for problem in result.problems] == [
        "empty holds no package. Name a folder with folders in it that each hold a nest.toml.",
        "file is not a folder. Name a folder, or hf://org.",
        "absent does not exist. Name a folder, or hf://org.",
        'hf://a/b: "a/b" is no organisation. Write hf://org; one repository is named org/name, without hf://.',
    ]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may list every folder")
def test_a_folder_that_cannot_be_listed_is_told(tmp_path: Path) -> None:
    make_card(tmp_path / "a")
    closed = tmp_path / "closed"
    closed.mkdir()
    closed.chmod(0)
    try:
        result = discover([tmp_path])
    finally:
        closed.chmod(0o755)
    assert [str(problem) for problem in result.problems] == [
        f"{closed} cannot be listed: permission denied. Make it readable, or name the folders beside it."
    ]


@needs_git
def test_what_git_ignores_is_passed_over(tmp_path: Path) -> None:
    git(tmp_path, "init")
    (tmp_path / ".gitignore").write_text("build/\n")
    tracked, untracked = make_card(tmp_path / "nests" / "tracked"), make_card(tmp_path / "nests" / "untracked")
    ignored, forced = make_card(tmp_path / "build" / "copy"), make_card(tmp_path / "build" / "forced")
    git(tmp_path, "add", "nests/tracked")
    git(tmp_path, "add", "--force", "build/forced")
    wanted = [str(forced), str(tracked), str(untracked)]
    assert found(tmp_path) == wanted
    assert found(tmp_path / "nests") == wanted[1:]
    # Whoever names an ignored folder means it; and a folder that git knows, but that is gone, is no package.
    assert found(tmp_path / "build") == [str(ignored), str(forced)]
    shutil.rmtree(tracked)
    assert found(tmp_path / "nests") == [str(untracked)]


@needs_git
def test_a_checkout_inside_another_has_its_own_rules(tmp_path: Path) -> None:
    git(tmp_path, "init")
    outer = make_card(tmp_path / "outer")
    inner = tmp_path / "vendor"
    kept, dropped = make_card(inner / "kept"), make_card(inner / "out" / "dropped")
    git(inner, "init")
    (inner / ".gitignore").write_text("out\n")
    assert found(tmp_path) == [str(outer), str(kept)]
    assert found(tmp_path, dropped) == [str(outer), str(kept), str(dropped)]


@needs_git
def test_a_hook_of_another_repository_does_not_mislead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git(tmp_path, "init")
    (tmp_path / ".gitignore").write_text("out\n")
    kept = make_card(tmp_path / "kept")
    make_card(tmp_path / "out" / "dropped")
    other = tmp_path.parent / f"{tmp_path.name}-other"
    other.mkdir()
    git(other, "init")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    assert found(tmp_path) == [str(kept)]


@needs_git
def test_a_checkout_cannot_make_git_run_anything(tmp_path: Path) -> None:
    git(tmp_path, "init")
    card = make_card(tmp_path / "a")
    git(tmp_path, "add", ".")
    script = tmp_path / "script"
    script.write_text(f"#!{sys.executable}\nopen({str(tmp_path / 'ran')!r}, 'w')\n")
    script.chmod(0o755)
    git(tmp_path, "config", "core.fsmonitor", str(script))
    # Asked plainly, git does start what the checkout's configuration names.
    subprocess.run(["git", "status"], cwd=tmp_path, check=False, capture_output=True)
    assert (tmp_path / "ran").exists()
    (tmp_path / "ran").unlink()
    assert found(tmp_path) == [str(card)]
    assert not (tmp_path / "ran").exists()


def test_without_git_nothing_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text("out\n")
    kept = make_card(tmp_path / "out" / "kept")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert found(tmp_path) == [str(kept)]


def test_a_checkout_that_git_refuses_is_a_folder(tmp_path: Path) -> None:
    (tmp_path / ".git").write_text("gitdir: nowhere\n")
    kept = make_card(tmp_path / "kept")
    assert found(tmp_path) == [str(kept)]


def test_an_organisation_that_the_hub_does_not_tell(make_package: MakePackage, hub: HubServer) -> None:
    shutil.rmtree(hub.root)
    result = discover(["hf://nobody", make_package()])
    assert [package.folder.name for package in result.packages] == ["tiny"]
    assert [problem.kind for problem in result.problems] in (["package.folder"], ["hub.file-not-found"])
