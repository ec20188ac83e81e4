"""Packages and imports: where a path leads, and that it cannot leave its root."""

from __future__ import annotations

from pathlib import Path

import pytest

from linnet.language.check import CheckResult, load
from linnet.language.check.modules import STD_ROOT, Loader
from linnet.language.diagnostics import Diagnostics

MANIFEST = '[package]\nname = "p"\nversion = "0.1.0"\nlanguage = "0.1"\n'
USE_A = "module p\n\nuse crate.a::{one}\n\npub fn two() -> i32 {\n    return one()\n}\n"
A = "module p.a\n\npub fn one() -> i32 {\n    return 1\n}\n"


def package(folder: Path, files: dict[str, str], manifest: str = MANIFEST) -> Path:
    """A package of the given sources; returns its `src/lib.linnet`."""
    (folder / "src").mkdir(parents=True)
    (folder / "linnet.toml").write_text(manifest)
    for name, text in files.items():
        path = folder / "src" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / "src" / "lib.linnet"


def codes(result: CheckResult) -> list[str]:
    return [item.code for item in result.diagnostics]


def test_crate_paths_lead_under_src(tmp_path: Path) -> None:
    root = package(tmp_path / "p", {"lib.linnet": USE_A, "a.linnet": A})
    result = load(root)
    assert codes(result) == []
    assert result.program is not None
    assert set(result.program.modules) == {"crate", "crate.a"}


def test_a_module_that_is_not_there_suggests_a_near_one(tmp_path: Path) -> None:
    root = package(tmp_path / "p", {"lib.linnet": USE_A.replace("crate.a", "crate.aa"), "a.linnet": A})
    (diagnostic,) = load(root).diagnostics
    assert diagnostic.code == "E1202"
    assert diagnostic.help == "did you mean `crate.a`?"


def test_a_symlink_out_of_the_package_is_not_found(tmp_path: Path) -> None:
    outside = tmp_path / "outside.linnet"
    outside.write_text(A)
    root = package(tmp_path / "p", {"lib.linnet": USE_A})
    (tmp_path / "p" / "src" / "a.linnet").symlink_to(outside)
    assert codes(load(root)) == ["E1202"]


def test_an_import_cycle_is_named(tmp_path: Path) -> None:
    cyclic = A.replace("module p.a\n", "module p.a\n\nuse crate::{two}\n").replace("return 1", "return two()")
    root = package(tmp_path / "p", {"lib.linnet": USE_A, "a.linnet": cyclic})
    assert codes(load(root)) == ["E1206"]


def test_a_private_item_is_refused_where_it_is_imported(tmp_path: Path) -> None:
    root = package(tmp_path / "p", {"lib.linnet": USE_A, "a.linnet": A.replace("pub ", "")})
    (diagnostic,) = load(root).diagnostics
    assert diagnostic.code == "E1203"
    assert diagnostic.notes[0].message == "declared here"


def test_path_dependencies(tmp_path: Path) -> None:
    package(tmp_path / "dep", {"lib.linnet": A.replace("p.a", "dep")})
    manifest = MANIFEST + '[dependencies]\nother = { path = "../dep" }\n'
    source = USE_A.replace("crate.a::", "other::")
    root = package(tmp_path / "p", {"lib.linnet": source}, manifest)
    result = load(root)
    assert codes(result) == []
    assert result.program is not None
    assert set(result.program.modules) == {"crate", "other"}


def test_a_file_outside_any_package_has_only_std(tmp_path: Path) -> None:
    alone = tmp_path / "alone.linnet"
    alone.write_text(USE_A)
    (diagnostic,) = load(alone).diagnostics
    assert diagnostic.code == "E1202"
    assert "outside any package" in diagnostic.message
    alone.write_text(
        "module alone\n\nuse std.nn.activations::{relu}\n\npub fn f(x: f32) -> f32 {\n    return relu(x)\n}\n"
    )
    assert codes(load(alone)) == []


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        ("nonsense", "not readable TOML"),
        ("[package]\n", "package.name must be"),
        (MANIFEST + "colour = 1\n", "unknown key package.colour"),
        (MANIFEST + "[tool]\n", "unknown table [tool]"),
        (MANIFEST.replace('"0.1"', '"0.9"'), 'package.language is "0.9"'),
        (MANIFEST + '[dependencies]\nx = { git = "y" }\n', "dependencies.x must be"),
        (MANIFEST + '[dependencies]\nx = { path = "../nowhere" }\n', "no linnet.toml in '../nowhere'"),
        (MANIFEST + '[dependencies]\nstd = { path = "../p" }\n', "taken by the language"),
    ],
)
def test_a_bad_manifest_is_e5001(tmp_path: Path, manifest: str, message: str) -> None:
    root = package(tmp_path / "p", {"lib.linnet": USE_A, "a.linnet": A}, manifest)
    diagnostics = [item for item in load(root).diagnostics if item.code == "E5001"]
    assert any(message in item.message for item in diagnostics), [item.message for item in diagnostics]


def test_the_seed_checks_without_a_word(seed: Path) -> None:
    result = load(seed / "qwen3-8b-fp8" / "src" / "lib.linnet")
    assert result.ok
    assert codes(result) == []


def test_a_module_of_the_standard_library_that_changes_is_read_again(tmp_path: Path) -> None:
    root = package(tmp_path / "p", {"lib.linnet": "module p\n\nuse std.linalg::{dot}\n\npub const ONE = 1\n"})
    path = (STD_ROOT / "linalg.linnet").resolve()
    assert codes(load(root)) == ["W1001"]
    assert codes(load(root, {path: path.read_text().replace("op dot", "op dots")})) == ["E1201"]
    assert codes(load(root, {path: "module std.linalg\n\npub op ("})) == ["E1101"]
    assert codes(load(root)) == ["W1001"]


def test_checks_in_one_process_share_what_they_parsed_of_the_standard_library(tmp_path: Path) -> None:
    root = package(tmp_path / "p", {"lib.linnet": "module p\n\nuse std.linalg::{dot}\n\npub const ONE = 1\n"})
    first, second = Loader(Diagnostics()).load_root(root), Loader(Diagnostics()).load_root(root)
    path = ("std", "linalg")
    assert first.imports[path] is not second.imports[path]
    assert first.imports[path].tree is second.imports[path].tree
    assert first.tree is not second.tree
