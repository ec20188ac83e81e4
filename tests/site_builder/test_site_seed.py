"""The pages of the seed package and of the packages that ship here, from their real records."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from linnet.registry.index import package_record
from linnet.site_builder.build import SiteReport, build_site
from linnet.site_builder.collect import PackageSource

BUDGET = 150_000  # bytes of a page before its sources


@pytest.fixture(scope="module")
def seed_page(seed: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = seed / "qwen3-8b-fp8"
    report = build_site([PackageSource(folder, package_record(folder))], tmp_path_factory.mktemp("seed") / "site")
    assert report.ok
    assert report.unresolved == ()
    return (report.output / "models/qwen3-8b-fp8/index.html").read_text(encoding="utf-8")


def test_the_seed_page_says_what_the_page_it_had_said(seed: Path, seed_page: str) -> None:
    said = (seed / "model-page.txt").read_text(encoding="utf-8")
    shown = re.sub(r"<[^>]+>", "", seed_page)
    for line in (
        "Qwen3 8B FP8",
        "10 files · 97.3 kB in the registry",
        "models/qwen3-8b-fp8",
        "8.2B parameters",
        "grouped-query-attention",
    ):
        assert line in said
        assert line in shown
    assert re.findall(r"<li><bdi>([^<]+)", seed_page) == [
        "8.2B parameters",
        "qwen3",
        "Apache-2.0",
        "text-generation",
        "decoder-only",
        "grouped-query-attention",
        "qk-norm",
        "fp8",
    ]


def test_the_seed_page_shows_files_with_sizes_in_order(seed_page: str) -> None:
    files = re.findall(r'<summary class="bar"><code>([^<]+)</code><span class="size">([^<]+)', seed_page)
    assert files == [
        ("README.md", "1.6 kB"),
        ("bindings.json", "50.5 kB"),
        ("linnet.toml", "60 B"),
        ("nest.toml", "940 B"),
        ("attention.linnet", "21.2 kB"),
        ("lib.linnet", "21.4 kB"),
        ("norm.linnet", "680 B"),
        ("rope.linnet", "909 B"),
    ]
    assert re.findall(r'(Qwen/[^"]+)" rel="noopener noreferrer">Hugging Face ↗', seed_page) == [
        f"Qwen/Qwen3-8B-FP8/blob/220b46e3b2180893580a4454f21f22d3ebb187d3/model-0000{n}-of-00002.safetensors"
        for n in (1, 2)
    ]


def test_the_seed_page_shows_every_line_of_source(seed: Path, seed_page: str) -> None:
    for path in (seed / "qwen3-8b-fp8/src").iterdir():
        lines = path.read_text(encoding="utf-8").count("\n")
        assert f'id="src-{path.name}-L{lines}"' in seed_page
        assert f'id="src-{path.name}-L{lines + 1}"' not in seed_page


def test_the_seed_page_folds_layers(seed_page: str) -> None:
    assert "651 tensors, and 253 optional that are absent." in seed_page
    row = next(line for line in seed_page.splitlines() if "layers.{0..35}.attention.q_proj.scale" in line)
    shown = re.sub(r"<[^>]+>", " ", row).split()
    assert (
        shown
        == (
            "layers.{0..35}.attention.q_proj.scale model.layers.{0..35}.self_attn.q_proj.weight_scale_inv "
            "[32, 32] Tensor[Out / Block, In / Block; T] bf16 36 36.9K"
        ).split()
    )


def test_the_seed_page_has_its_seventeen_entries(seed_page: str) -> None:
    entries = re.findall(r'<section class="entry" id="entry-([^"]+)"', seed_page)
    assert len(entries) == 17
    assert {"forward", "prefill", "decode", "generate_until", "step_paged"} <= set(entries)


def test_pages_are_small_before_their_sources(seed_page: str, shipped: SiteReport) -> None:
    pages = [seed_page] + [(shipped.output / path).read_text(encoding="utf-8") for path, _ in shipped.pages]
    for page in pages:
        assert len(re.sub(r'<pre class="lines".*?</pre>', "", page, flags=re.DOTALL).encode()) <= BUDGET


def test_the_shipped_packages_make_a_whole_site(shipped: SiteReport) -> None:
    assert shipped.problems == ()
    assert shipped.unresolved == ()


@pytest.mark.browser
@pytest.mark.parametrize("width", [1280, 390])
def test_the_shipped_pages_open_whole(browser: Browser, shipped: SiteReport, width: int) -> None:
    page = browser.new_page(viewport={"width": width, "height": 844})
    faults: list[str] = []
    page.on("console", lambda message: faults.append(message.text))
    page.on("pageerror", lambda error: faults.append(str(error)))
    for path, _ in shipped.pages:
        page.goto((shipped.output / path).as_uri())
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
    page.close()
    assert faults == []
