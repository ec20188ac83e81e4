"""Which package a user means, and what is said where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_package import MakePackage

from linnet.registry.errors import HubError, PackageError
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
        ("", "The name of the package is empty. Name a folder (. is this one), org/name, or a package of a"),
        ("x" * 300, "cannot be looked up: file name too long. Name a folder that holds a nest.toml."),
        ("~nobody-of-that-name/x", "cannot be looked up: could not determine home directory. Name a folder"),
        ("nul\0", 'nul\\x00: There is no folder "nul\\x00", and no package of that name. Name a folder'),
        ("qwen3-8", "The nearest is qwen3-8b; all-minilm-l6-v2, gpt2, qwen3-8b, "),
    ],
)
def test_a_name_that_is_none(name: str, said: str) -> None:
    assert said in refusal(name)


def packages(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).mkdir(parents=True)
        (folder / name / "nest.toml").write_text("")


def test_a_mistyped_folder_is_not_asked_of_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packages(tmp_path / "nests", "two-layers")
    monkeypatch.chdir(tmp_path)
    assert refusal("nests/two-layer").endswith('There is no folder "nests/two-layer". The nearest is nests/two-layers.')
    assert refusal("nests/zzzz").endswith('There is no folder "nests/zzzz". Name a folder that holds a nest.toml.')
    assert "The nearest is nests/two-layers; all-minilm-l6-v2, " in refusal("two-layers")


@pytest.mark.parametrize("offline", [None, True])
def test_what_may_be_a_mistyped_folder_says_that_the_hub_was_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offline: bool | None
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(HubError) as caught:
        find_package("nsets/two-layers", offline=offline)
    (problem,) = caught.value.problems
    assert problem.message.startswith('There is no folder "nsets/two-layers", so it was looked for on the Hub: ')
    assert caught.value.reasons == (("offline" if offline else "unreachable"),)


def test_a_folder_of_packages_and_a_file_are_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packages(tmp_path / "nests", "one")
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    assert refusal("nests") == "nests holds packages and is none. Name one of them, or all: nests/*."
    assert refusal("empty") == "empty holds no nest.toml, so it is no package. Name a folder that holds a nest.toml."
    said = '"nests/one/nest.toml" is a file. Name the folder of a package: nests/one.'
    assert refusal("nests/one/nest.toml").endswith(said)
    (tmp_path / "nests" / "one" / "src").mkdir()
    (tmp_path / "nests" / "one" / "src" / "lib.linnet").write_text("module one\n")
    assert refusal("nests/one/src/lib.linnet").endswith("is a file. Name the folder of a package: nests/one.")
    monkeypatch.chdir(tmp_path / "nests" / "one" / "src")
    assert refusal("lib.linnet").endswith("Name the folder of a package: ...")
    assert refusal("../../../empty").startswith("../../../empty holds no nest.toml")


def test_only_text_and_paths_name_packages() -> None:
    assert "3 cannot name a package." in refusal(3)  # type: ignore[arg-type]


def test_a_name_like_no_other_gets_no_nearest() -> None:
    assert "nearest" not in refusal("zzzz")
