"""Which package a user means, and what is said where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_package import MakePackage

from linnet.registry.errors import PackageError
from linnet.registry.locate import BUNDLED, Located, find_package


def refusal(name: str) -> str:
    with pytest.raises(PackageError) as caught:
        find_package(name)
    (problem,) = caught.value.problems
    assert problem.kind == "package.unknown"
    return str(problem)


def test_a_folder_comes_before_a_name(make_package: MakePackage, monkeypatch: pytest.MonkeyPatch) -> None:
    package = make_package()
    assert find_package(str(package)) == find_package(package) == Located(package)
    assert find_package("qwen3-8b") == Located(BUNDLED / "qwen3-8b")
    package.rename(package.with_name("qwen3-8b"))
    monkeypatch.chdir(package.parent)
    assert find_package("qwen3-8b") == Located(Path("qwen3-8b"))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "The name of the package is empty. Name a folder (. is this one), org/name, or a package that"),
        ("x" * 300, "cannot be looked up: file name too long. Name a folder that holds a nest.toml."),
        ("~nobody-of-that-name/x", "cannot be looked up: could not determine home directory. Name a folder"),
        ("nul\0", 'nul\\x00: There is no folder "nul\\x00", and no package of that name. The nearest name is'),
        ("qwen3-8", "The nearest name is qwen3-8b; known are"),
    ],
)
def test_a_name_that_is_none(name: str, said: str) -> None:
    assert said in refusal(name)
