"""The timings' verdict; that the figures themselves hold is for an idle machine to say, not for a test."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def bench(root: Path) -> dict[str, Any]:
    return runpy.run_path(str(root / "bench" / "check.py"))


def test_a_median_past_its_limit_fails(bench: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    within = {name: [limit * 0.5, limit, limit * 9] for name, limit in bench["LIMITS"].items()}
    assert bench["show_limits"](within)
    assert "past" not in capsys.readouterr().out
    assert not bench["show_limits"](within | {"nest check": [2.0, 3.1, 3.2]})
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "past the limit" in line]
    assert line.split()[:5] == ["nest", "check", "3.10s", "2.00s", "3.00s"]


def test_the_seed_is_timed_where_it_is(bench: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINNET_SHARED", str(tmp_path))
    assert bench["default_package"]() == bench["ROOT"] / "nests" / "qwen3-8b-fp8"
    seed = tmp_path / "seed" / "qwen3-8b-fp8"
    seed.mkdir(parents=True)
    (seed / "nest.toml").touch()
    assert bench["default_package"]() == seed
