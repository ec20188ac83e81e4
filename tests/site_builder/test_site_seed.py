"""The pages of the seed package and of the packages that ship here, from their real records."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from linnet.registry.index import package_record
from linnet.site_builder.build import SiteReport, build_site
from linnet.site_builder.collect import PackageSource
from linnet.site_builder.worker import PAGE_BYTES, is_weighed


@pytest.fixture(scope="module")
def seed_site(seed: Path, tmp_path_factory: pytest.TempPathFactory) -> SiteReport:
    folder = seed / "qwen3-8b-fp8"
    report = build_site([PackageSource(folder, package_record(folder))], tmp_path_factory.mktemp("seed") / "site")
    assert report.ok
    assert report.unresolved == ()
    return report


def seed_page(report: SiteReport, tab: str = "") -> str:
    return (report.output / "models/qwen3-8b-fp8" / tab / "index.html").read_text(encoding="utf-8")


def words(html: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", html)).split())


def test_the_pages_say_what_the_page_that_was_had_said(seed: Path, seed_site: SiteReport) -> None:
    # That page wrote kB for 1024 bytes.
    said = (seed / "model-page.txt").read_text(encoding="utf-8").replace(" kB", " KiB")
    shown = words(seed_page(seed_site) + seed_page(seed_site, "files"))
    for line in (
        "Qwen3 8B FP8",
        "10 files · 97.3 KiB in the registry",
        "models/qwen3-8b-fp8",
        "8.2B parameters",
        "grouped-query-attention",
    ):
        assert line in said
        assert line in shown
    assert re.findall(r"<li><bdi>([^<]+)", seed_page(seed_site)) == [
        "8.2B parameters",
        "qwen3",
        "Apache-2.0",
        "text-generation",
        "decoder-only",
        "grouped-query-attention",
        "qk-norm",
        "fp8",
    ]


def test_files_are_listed_with_sizes_in_order(seed_site: SiteReport) -> None:
    page = seed_page(seed_site, "files")
    rows = re.findall(r'<code>([^<]+)</code></a></th><td class="right">([^<]+)', page)
    assert rows == [
        ("README.md", "1.6 KiB"),
        ("bindings.json", "50.5 KiB"),
        ("linnet.toml", "60 B"),
        ("nest.toml", "940 B"),
        ("src/attention.linnet", "21.2 KiB"),
        ("src/lib.linnet", "21.4 KiB"),
        ("src/norm.linnet", "680 B"),
        ("src/rope.linnet", "909 B"),
    ]
    assert re.findall(r'(Qwen/[^"]+)" rel="noopener noreferrer" aria-label="[^"]+">Hugging Face ↗', page) == [
        f"Qwen/Qwen3-8B-FP8/blob/220b46e3b2180893580a4454f21f22d3ebb187d3/model-0000{n}-of-00002.safetensors"
        for n in (1, 2)
    ]


def test_every_line_of_source_is_shown(seed: Path, seed_site: SiteReport) -> None:
    for path in (seed / "qwen3-8b-fp8/src").iterdir():
        page = (seed_site.output / f"models/qwen3-8b-fp8/source/src/{path.name}.html").read_text(encoding="utf-8")
        lines = path.read_text(encoding="utf-8").count("\n")
        assert f'id="L{lines}"' in page
        assert f'id="L{lines + 1}"' not in page


def test_names_lead_across_modules_and_into_the_library(seed_site: SiteReport) -> None:
    page = (seed_site.output / "models/qwen3-8b-fp8/source/src/attention.linnet.html").read_text(encoding="utf-8")
    for text, place in (
        ("RmsNorm", r"norm\.linnet\.html#L\d+"),
        ("Fp8BlockLinear", r"\.\./\.\./\.\./\.\./std/quant/index\.html#L\d+"),
    ):
        found = re.search(rf'<a href="({place})" data-type="block {text}[^"]*"><span class="t">{text}</span></a>', page)
        assert found, text
    assert re.search(
        r'data-type="sub q_proj: Fp8BlockLinear&lt;[^"]* = Fp8BlockLinear&lt;4096, 4096, 128, bf16&gt;"', page
    )


def test_layers_are_folded(seed_site: SiteReport) -> None:
    page = seed_page(seed_site, "parameters")
    assert "in 651 tensors, 8.8 GiB, and 253 optional that are absent." in page
    row = next(line for line in page.splitlines() if "layers.{0..35}.attention.q_proj.scale" in line)
    shown = words(row)
    assert shown.startswith(
        "layers.{0..35}.attention.q_proj.scale model.layers.{0..35}.self_attn.q_proj.weight_scale_inv 36 tensors 0 1 2"
    )
    assert shown.endswith("34 35 [32, 32] Tensor[Out / Block, In / Block; T] bf16 36 36.9K 72.0 KiB")
    assert 'href="all/index.html#layers.3.attention.q_proj.scale">3</a>' in row


def test_the_layer_is_drawn_once_with_its_count(seed_site: SiteReport) -> None:
    page = seed_page(seed_site, "architecture")
    figure = words(page.partition('<figure class="diagram">')[2].partition("</figure>")[0])
    assert "layers \N{MULTIPLICATION SIGN} 36" in figure
    assert "[B, S, 4096]" in figure
    for block in ("embedding", "attention_norm", "attention", "mlp_norm", "mlp", "norm", "lm_head"):
        assert block in figure
    inside = words(page.partition('id="inside"')[2])
    assert (
        "\N{MULTIPLICATION SIGN} 36 GroupedQueryAttention<H = 4096, Heads = 32, KvHeads = 8, HeadDim = 128, " in inside
    )
    assert "grouped_attention" in inside


def test_there_are_seventeen_entries(seed_site: SiteReport) -> None:
    page = seed_page(seed_site, "entries")
    entries = re.findall(r'<section class="entry" id="entry-([^"]+)"', page)
    assert len(entries) == 17
    assert {"forward", "prefill", "decode", "generate_until", "step_paged"} <= set(entries)
    decode = words(page.partition('id="entry-decode"')[2].partition("</section>")[0])
    assert "token Tensor[1, 1; i32] Tensor[Batch, 1; i32] pos i32 returns Tensor[1, 151936; bf16]" in decode
    assert "Keeps state: layers.{0..35}.attention." in decode


def test_pages_weigh_little(seed_site: SiteReport, shipped: SiteReport) -> None:
    for report in (seed_site, shipped):
        assert {path: size for path, size in report.pages if size > PAGE_BYTES and is_weighed(path)} == {}


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
