"""Pictures of every kind of page of build/site, light and dark, on a desk and on a phone, in docs/images/."""

from __future__ import annotations

import io
import os
import shutil
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from linnet.registry.index import package_record
from linnet.site_builder.build import build_site
from linnet.site_builder.collect import PackageSource

ROOT = Path(__file__).resolve().parent.parent
SITE, IMAGES = ROOT / "build" / "site", ROOT / "docs" / "images"
MODEL = "models/qwen3-8b-fp8"
MEASURED = "models/qwen3-tiny-fp8"
PAGES = {
    "catalogue": "index.html",
    "search": "index.html",
    "compare": "compare/index.html?model=qwen3-8b&model=qwen3-8b-fp8",
    "card": f"{MODEL}/index.html",
    "architecture": f"{MODEL}/architecture/index.html",
    "parameters": f"{MODEL}/parameters/index.html",
    "all-parameters": f"{MODEL}/parameters/all/index.html",
    "source": f"{MODEL}/source/index.html",
    "file": f"{MODEL}/source/src/attention.linnet.html",
    "entries": f"{MODEL}/entries/index.html",
    "files": f"{MODEL}/files/index.html",
    "benchmarks": f"{MEASURED}/benchmarks/index.html",
    "library": "std/index.html",
    "module": "std/nn/attention/index.html",
    "guide": "docs/language/first-block.html",
}
# Of a site of their own, where a model has two versions.
VERSIONED = "qwen3-tiny"
VERSIONS = {
    "history": f"models/{VERSIONED}/history/index.html",
    "difference": f"models/{VERSIONED}/history/0.0.9..0.1.0/index.html",
}
# What the older version has otherwise: file, text of the newer, text of the older.
OLDER = (
    ("linnet.toml", '"0.1.0"', '"0.0.9"'),
    ("nest.toml", "MaxSeq = 256", "MaxSeq = 128"),
    ("nest.toml", '"text-generation"', '"text"'),
    ("src/norm.linnet", "1e-6", "1e-5"),
)
SIZES = {"desktop": (1280, 900), "phone": (390, 844)}
COLOURS = 128


def main() -> None:
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        sys.exit("No Chromium was found; run make system, or install it.")
    if not (SITE / "index.html").is_file():
        sys.exit(f"{SITE} holds no site; run make site.")
    IMAGES.mkdir(exist_ok=True)
    for old in IMAGES.glob("*.png"):
        old.unlink()
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        sites = ((SITE, PAGES), (_two_versions(Path(scratch)), VERSIONS))
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        for size, (width, height) in SIZES.items():
            for scheme in ("light", "dark"):
                context = browser.new_context(
                    viewport={"width": width, "height": height},
                    color_scheme="dark" if scheme == "dark" else "light",
                )
                page = context.new_page()
                for site, name, address in ((site, *item) for site, pages in sites for item in pages.items()):
                    page.goto(f"{site.as_uri()}/{address}")
                    page.wait_for_load_state("networkidle")
                    if name == "search":
                        _search(page)
                    _save(page.screenshot(), IMAGES / f"{name}-{scheme}-{size}.png")
                context.close()
        browser.close()


def _two_versions(scratch: Path) -> Path:
    """A site of one model, published twice."""
    newer, older = ROOT / "nests" / VERSIONED, scratch / VERSIONED
    shutil.copytree(newer, older)
    for name, new, old in OLDER:
        text = (older / name).read_text("utf-8")
        if new not in text:
            sys.exit(f"{name} of {VERSIONED} holds no {new}; write another difference.")
        (older / name).write_text(text.replace(new, old), encoding="utf-8")
    versions = [
        PackageSource(folder, package_record(folder), published=published)
        for folder, published in ((newer, "2026-02-01T10:00:00Z"), (older, "2026-01-02T10:00:00Z"))
    ]
    return build_site(versions, scratch / "site").output


def _search(page: Page) -> None:
    page.keyboard.press("/")
    page.keyboard.type("q_norm")
    page.locator("#found code").first.wait_for()
    page.wait_for_load_state("networkidle")


def _save(png: bytes, path: Path) -> None:
    """A page has few colours: a palette of them makes a third of the bytes."""
    image = Image.open(io.BytesIO(png)).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    part = path.with_suffix(".part")
    image.save(part, "PNG", optimize=True)
    os.replace(part, path)


if __name__ == "__main__":
    main()
