"""The site of a registry: versions with dates, what changed between them, what was yanked and is damaged."""

from __future__ import annotations

import hashlib
import json
import re
import struct
from collections.abc import Callable
from html import unescape
from pathlib import Path

import pytest

from linnet.registry.check import check_package
from linnet.registry.events import set_status, yank
from linnet.registry.index import package_version
from linnet.registry.layout import object_path
from linnet.registry.locate import Located
from linnet.registry.publish import make_publication, publish_version
from linnet.registry.record_reader import RecordError
from linnet.registry.registry import Registry
from linnet.registry.store.open import open_store
from linnet.site_builder import history
from linnet.site_builder.build import SiteReport, build_site
from linnet.site_builder.collect import PackageSource, SiteError
from linnet.site_builder.registry_source import registry_sources
from linnet.site_builder.sources import folder_sources

Make = Callable[..., PackageSource]


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    (tmp_path / "registry").mkdir()
    return Registry(open_store(tmp_path / "registry"))


@pytest.fixture
def folder(make_package: Make) -> Path:
    """A package whose weights lie beside its card, since a pin of a repository would need the network."""
    header = json.dumps({"weight": {"dtype": "BF16", "shape": [64], "data_offsets": [0, 128]}}).encode()
    weights = struct.pack("<Q", len(header)) + header + bytes(128)
    made = make_package(files={"model.safetensors": weights}).folder
    card = made / "nest.toml"
    text = re.sub(r"(?m)^(repo|revision) = .*\n", "", card.read_text(encoding="utf-8"))
    card.write_text(text, encoding="utf-8")
    (made / "bindings.json").unlink()
    return made


def publish(registry: Registry, folder: Path, version: str, changes: dict[str, tuple[str, str]] | None = None) -> None:
    """Publish a folder under a version, with `changes` made before: path -> (old, new)."""
    changes = {"nest.toml": (r'version = "[^"]*"', f'version = "{version}"'), **(changes or {})}
    for path, (old, new) in changes.items():
        before = (folder / path).read_text(encoding="utf-8")
        after = re.sub(old, new, before)
        (folder / path).write_text(after, encoding="utf-8")
    package = Located(folder)
    check = check_package(package, hub=False)
    publish_version(registry, make_publication(package, package_version(folder, package.card()), check))


@pytest.fixture
def three_versions(registry: Registry, folder: Path) -> Registry:
    publish(registry, folder, "0.9.0", {"nest.toml": (r'version = "[^"]*"', 'version = "0.9.0"')})
    publish(registry, folder, "0.10.0", {"src/lib.linnet": ("scales its input", "scales what it is given")})
    publish(registry, folder, "0.11.0", {"README.md": ("the web", "the net")})
    yank(registry, "tiny-wren", "0.11.0", "the README lies")
    return registry


def site(registry: Registry, output: Path) -> SiteReport:
    return build_site(registry_sources(registry.url), output)


def words(report: SiteReport, path: str = "") -> str:
    html = (report.output / "models/tiny-wren" / path / "index.html").read_text(encoding="utf-8")
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", html.partition("<main")[2])).split())


def test_versions_are_a_history(three_versions: Registry, tmp_path: Path) -> None:
    report = site(three_versions, tmp_path / "site")
    assert report.ok
    # The bare name means the newest that stands, and numbers are ordered as numbers.
    card = words(report)
    assert "Version 0.10.0 Published 20" in card
    assert '"tiny-wren"' in card
    listed = words(report, "history")
    day = r"\d{4}-\d\d-\d\d"
    assert re.search(rf"0\.11\.0 yanked {day} .* yanked: the README lies 0\.10\.0 {day} ", listed)
    assert re.search(rf" 0\.9\.0 {day} the first", listed)
    assert "Between any two 0.10.0 0.9.0 0.11.0 diff diff 0.10.0 diff" in listed
    pages = sorted(path.name for path in (report.output / "models/tiny-wren/history").iterdir() if path.is_dir())
    assert pages == ["0.10.0..0.11.0", "0.9.0..0.10.0", "0.9.0..0.11.0"]


def test_size_and_digest_of_weights_beside_the_card_are_told(registry: Registry, folder: Path, tmp_path: Path) -> None:
    publish(registry, folder, "0.9.0")
    size = (folder / "model.safetensors").stat().st_size
    digest = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    for source in (registry_sources(registry.url), folder_sources(folder.parent)):
        report = build_site(source, tmp_path / "site")
        listed = words(report, "files")
        assert f"in the registry, {size} B of weights beside the card File Size" in listed
        assert f"model.safetensors {size} B {digest} beside the card" in listed
        assert f", and {size} B of weights" in words(report)


def test_a_difference_says_what_changed(three_versions: Registry, tmp_path: Path) -> None:
    report = site(three_versions, tmp_path / "site")
    shown = words(report, "history/0.9.0..0.10.0")
    assert "0.9.0 to 0.10.0" in shown
    assert "- // A block that scales its input." in shown
    assert "+ // A block that scales what it is given." in shown
    assert "README.md" not in shown
    both = words(report, "history/0.9.0..0.11.0")
    assert "src/lib.linnet changed, +1 " in both
    assert "README.md changed, +1 " in both


def test_older_versions_are_compared_with_the_one_before(
    three_versions: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "EACH_WITH_EACH", 2)
    report = site(three_versions, tmp_path / "site")
    pages = sorted(path.name for path in (report.output / "models/tiny-wren/history").iterdir() if path.is_dir())
    assert pages == ["0.10.0..0.11.0", "0.9.0..0.10.0"]


def test_only_what_the_registry_says_anew_is_drawn(three_versions: Registry, tmp_path: Path) -> None:
    site(three_versions, tmp_path / "site")
    assert site(three_versions, tmp_path / "site").rendered == ()
    set_status(three_versions, "tiny-wren", "deprecated", "Take big-wren.")
    report = site(three_versions, tmp_path / "site")
    assert report.rendered == ("tiny-wren",)
    assert "This package is deprecated : Take big-wren." in words(report)


def test_a_registry_without_packages_is_told(registry: Registry) -> None:
    with pytest.raises(SiteError, match="has no packages; publish one with nest publish, or name another"):
        registry_sources(registry.url)


def test_damaged_objects_are_found(three_versions: Registry, tmp_path: Path) -> None:
    record = three_versions.version("tiny-wren", "0.10.0").document
    file = next(file for file in record.files if file.path == "README.md")
    path = tmp_path / "registry" / object_path(file.sha256)
    path.chmod(0o644)
    path.write_bytes(b"# Something else\n")
    with pytest.raises(RecordError, match="has other bytes than its name says") as raised:
        site(three_versions, tmp_path / "site")
    assert raised.value.problems[0].where.startswith("tiny-wren: ")
    assert not (tmp_path / "site").exists()
