"""Every kind of page is free of what axe-core finds, in both themes, and asks nothing outside the site."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from linnet.site_builder.build import SiteReport

pytestmark = pytest.mark.browser

AXE = files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
MODEL = "models/qwen3-tiny"
KINDS = {
    "catalogue": "index.html",
    "comparison": "compare/index.html?model=qwen3-tiny&model=qwen3-tiny-fp8&model=gpt2",
    "card": f"{MODEL}/index.html",
    "architecture": f"{MODEL}/architecture/index.html",
    "architecture of an entry": f"{MODEL}/architecture/step_paged/index.html",
    "parameters": f"{MODEL}/parameters/index.html",
    "all parameters": f"{MODEL}/parameters/all/index.html",
    "source": f"{MODEL}/source/index.html",
    "file": f"{MODEL}/source/src/norm.linnet.html",
    "entries": f"{MODEL}/entries/index.html",
    "files": f"{MODEL}/files/index.html",
    "history": f"{MODEL}/history/index.html",
    "difference": f"{MODEL}/history/0.0.9..0.1.0/index.html",
    "benchmarks": "models/qwen3-tiny-fp8/benchmarks/index.html",
    "library": "std/index.html",
    "module": "std/nn/norm/index.html",
    "guide": "docs/language/first-block.html",
    "guide's table": "docs/cards.html",
}


def violations(page: Page, *rules: str) -> list[str]:
    """What axe-core finds, by these rules or all of WCAG 2.2 and its best practices: the rule, and the first element
    that breaks it."""
    page.evaluate(AXE)
    options = {"resultTypes": ["violations"], **({"runOnly": list(rules)} if rules else {})}
    found: dict[str, Any] = page.evaluate("options => axe.run(document, options)", options)
    return [f"{item['id']}: {item['help']}: {item['nodes'][0]['html'][:200]}" for item in found["violations"]]


def open_page(browser: Browser, address: str, scheme: str, width: int = 1280) -> Page:
    context = browser.new_context(
        viewport={"width": width, "height": 900},
        color_scheme="dark" if scheme == "dark" else "light",
        bypass_csp=True,  # so that axe can be put into the page
    )
    page = context.new_page()
    page.goto(address)
    page.wait_for_load_state("networkidle")
    return page


@pytest.mark.parametrize("kind", KINDS)
def test_no_violation(browser: Browser, whole: SiteReport, kind: str) -> None:
    page = open_page(browser, f"{whole.output.as_uri()}/{KINDS[kind]}", "light")
    page.evaluate("document.querySelectorAll('details').forEach(part => { part.open = true })")
    found = violations(page)
    # The other theme changes colours, and nothing else.
    page.emulate_media(color_scheme="dark")
    found += violations(page, "color-contrast")
    page.context.close()
    assert found == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_violation_in_what_opens(browser: Browser, whole: SiteReport, scheme: str) -> None:
    page = open_page(browser, f"{whole.output.as_uri()}/index.html", scheme, 390)
    page.get_by_label("Compare gpt2").check()
    page.get_by_label("Compare qwen3-tiny", exact=True).check()
    page.get_by_role("searchbox", name="Search models").fill("prefill")
    page.locator("#found code").first.wait_for()
    assert violations(page) == []
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Keys").click()
    assert violations(page) == []
    page.context.close()


def test_axe_finds_faults(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "bad.html").write_text("<!doctype html><img src=x><p style='color:#aaa'>faint", encoding="utf-8")
    page = open_page(browser, (tmp_path / "bad.html").as_uri(), "light")
    found = {item.partition(":")[0] for item in violations(page)}
    page.context.close()
    assert {"image-alt", "color-contrast", "document-title", "html-has-lang"} <= found


def test_kinds_are_all_kinds(whole: SiteReport) -> None:
    """A page of a model that no kind stands for is a page that nobody checked."""

    def kinds(paths: Iterable[str]) -> set[str]:
        below = {path.split("/", 2)[2] for path in paths if path.startswith("models/")}
        below = {re.sub(r"^source/(?!index\.html).*", "source/*", path) for path in below}
        return {re.sub(r"^architecture/(?!index\.html).*", "architecture/*", path) for path in below}

    assert kinds(path for path, _ in whole.pages) == kinds(KINDS.values())


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_theme_is_kept(browser: Browser, whole: SiteReport, scheme: str) -> None:
    page = open_page(browser, f"{whole.output.as_uri()}/index.html", scheme)
    ground = "getComputedStyle(document.body).backgroundColor"
    system = page.evaluate(ground)
    grounds = {}
    for theme in ("light", "dark", "system"):
        page.locator("button.theme").click()
        assert page.locator("button.theme").get_attribute("aria-label") == f"Theme: {theme}"
        grounds[theme] = page.evaluate(ground)
        page.reload()
        assert page.evaluate(ground) == grounds[theme]
    page.context.close()
    assert grounds["system"] == system == grounds[scheme]
    assert grounds["light"] != grounds["dark"]
