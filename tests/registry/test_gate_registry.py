"""The gate against registries: behind a web server, damaged, and of a program that knows more."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from gate_package import Stack, write_stack
from published import as_client, opened, overwrite, publish, served

from linnet import nest
from linnet.registry.gate_report import GateReport


@pytest.fixture
def stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stack:
    """The package, published as 0.1.0 in the folder `registry` beside it, and then another licence."""
    as_client(tmp_path / "client", monkeypatch)
    made = write_stack(tmp_path / "nests" / "stack")
    publish(tmp_path / "registry", made.folder, "0.1.0")
    made.edit("nest.toml", '"MIT"', '"Apache-2.0"')
    return made


def gate(stack: Stack, registry: Path | str) -> GateReport:
    (report,) = nest.gate(stack.folder, against=registry, bench=False).reports
    return report


def test_behind_a_web_server_which_lists_nothing(stack: Stack, tmp_path: Path) -> None:
    with served(tmp_path / "registry") as web:
        report = gate(stack, web.url)
        assert [finding.id for finding in report.regressions()] == ["licence-changed"]
        # The small file, the version's record, and its manifest.
        assert len(web.paths) == 3
        stack.edit("nest.toml", 'name = "stack"', 'name = "stock"')
        stack.folder = stack.folder.rename(stack.folder.with_name("stock"))
        assert gate(stack, web.url).status == "new"


def test_a_damaged_manifest_is_not_believed(stack: Stack, tmp_path: Path) -> None:
    registry = tmp_path / "registry"
    record = opened(registry).version("stack", "0.1.0").document
    assert record.manifest is not None
    digest = record.manifest.sha256
    overwrite(registry / "objects" / "sha256" / digest[:2] / digest, b'{"schema":1,"parameters":[]}\n')
    report = gate(stack, registry)
    assert report.status == "undone"
    assert "has other bytes than its name says" in report.undone[0].message


def test_a_version_of_a_newer_schema_could_not_be_compared(stack: Stack, tmp_path: Path) -> None:
    registry = tmp_path / "registry"
    file = registry / "versions" / "stack" / "0.1.0.json"
    overwrite(file, json.dumps({**json.loads(file.read_bytes()), "schema": 2}).encode())
    report = gate(stack, registry)
    assert report.status == "undone"
    assert not report.ok
