"""Modules of the standard library are checked once in a process: what later checks are given is the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from linnet.language.check import CheckResult, library, load
from linnet.language.check.modules import STD_ROOT

SOURCE = """module kept

use std.nn.attention::{causal_mask}
use std.nn.norm::{RmsNorm}

pub block Model<D: Dim> {
    sub norm: RmsNorm<D, bf16>

    pub entry forward<B: Dim, T: Dim>(x: Tensor[B, T, D; bf16]) -> Tensor[B, T, D; bf16] {
        return norm.forward(x)
    }
}
"""
NORM = STD_ROOT / "nn" / "norm.linnet"


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "_KEPT", {})


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "lib.linnet"
    path.write_text(SOURCE, encoding="utf-8")
    return path


def _names(result: CheckResult) -> dict[str, list[tuple[int, int, str, str | None, tuple[str, int] | None]]]:
    return {
        source.name: [
            (
                item.span.start,
                item.span.end,
                item.name,
                item.type_text,
                (item.definition.source.name, item.definition.start) if item.definition else None,
            )
            for item in result.references.of_source(source)
        ]
        for source in result.references.sources()
    }


def _codes(result: CheckResult) -> list[str]:
    return [item.code for item in result.diagnostics]


def test_second_check_shares_modules_and_says_the_same(source: Path) -> None:
    first, second = load(source), load(source)
    assert first.program is not None
    assert second.program is not None
    assert _codes(first) == _codes(second) == ["W1001"]
    assert list(first.program.modules) == list(second.program.modules)
    for key, module in first.program.modules.items():
        assert (second.program.modules[key] is module) == key.startswith("std.")
    assert _names(first) == _names(second)


@pytest.mark.parametrize("package", ["qwen3-8b-fp8", "gpt2", "all-minilm-l6-v2"])
def test_names_are_those_of_a_check_that_shares_nothing(package: str) -> None:
    path = Path(__file__).resolve().parents[2] / "nests" / package / "src" / "lib.linnet"
    alone = _names(load(path))
    assert alone == _names(load(path))


def test_changed_module_is_checked_again_with_those_that_import_it(source: Path) -> None:
    clean = load(source)
    text = NORM.read_text("utf-8").replace("pub block RmsNorm<", "pub block RmsNorm2<")
    changed = load(source, {NORM: text})
    assert "E1201" in _codes(changed)
    again = load(source)
    assert _codes(again) == _codes(clean)
    assert again.program is not None
    other = load(source, {NORM: NORM.read_text("utf-8") + "\npub const FOUR: i64 = 4\n"})
    assert other.program is not None
    assert other.program.modules["std.nn.norm"] is not again.program.modules["std.nn.norm"]
    kept = {key for key in again.program.modules if again.program.modules[key] is other.program.modules[key]}
    assert "std.nn.softmax" in kept
    assert not kept & {"std.nn.norm", "kept"}


def test_module_with_a_warning_is_not_kept(source: Path) -> None:
    overlay = {NORM: NORM.read_text("utf-8").replace("\n\n", "\n\nuse std.nn.linear::{linear}\n\n", 1)}
    first, second = load(source, overlay), load(source, overlay)
    assert _codes(first).count("W1001") == 2
    assert _codes(first) == _codes(second)


def test_nothing_is_kept_of_a_program_with_errors(source: Path) -> None:
    source.write_text(SOURCE.replace("return norm.forward(x)", "return norm.forward(y)"), encoding="utf-8")
    assert load(source).program is None
    assert library._KEPT == {}
