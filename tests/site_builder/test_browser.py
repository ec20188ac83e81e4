"""The pages as a person meets them: headless Chromium, from the file system, phone and desktop, both colour schemes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Request

from linnet.site_builder.build import SiteReport, build_site
from linnet.site_builder.collect import PackageSource

pytestmark = pytest.mark.browser

WIDTHS = {1280: 900, 390: 844}
LONG = "x" * 400


@pytest.fixture
def site(make_package: Callable[..., PackageSource], build: Callable[..., SiteReport]) -> SiteReport:
    """Two models, one of which has everything too long and too wide."""
    readme = f"# {LONG}\n\n`{LONG}` {LONG}\n\n```\n{LONG}\n```\n\n| {LONG} | b |\n| --- | --- |\n| {LONG} | {LONG} |\n"
    wide = make_package("wide-wren", {"README.md": readme, f"src/{LONG[:120]}.linnet": f"// {LONG}\n" * 300})
    wide.record["card"]["model"].update(title=LONG, summary=LONG, family=LONG, tags=[LONG])
    wide.record["card"]["generics"] = {LONG: 1}
    return build(make_package(), wide)


class Visit:
    """An open page that keeps what went wrong on it and every address it asked for."""

    def __init__(self, browser: Browser, width: int, scheme: str, javascript: bool = True) -> None:
        self.context = browser.new_context(
            viewport={"width": width, "height": WIDTHS[width]},
            color_scheme="dark" if scheme == "dark" else "light",
            java_script_enabled=javascript,
        )
        self.page: Page = self.context.new_page()
        self.faults: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.faults.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("requestfailed", self._failed)
        self.page.on("request", lambda request: self.asked.append(request.url))

    def _failed(self, request: Request) -> None:
        # The icon of a page that is left at once is not waited for.
        if request.failure != "net::ERR_ABORTED":
            self.faults.append(f"not loaded: {request.url}")

    def __enter__(self) -> Visit:
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()


MODEL = "models/tiny-wren/index.html"


def uri(report: SiteReport, path: str) -> str:
    return f"{report.output.as_uri()}/{path}"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_pages_open_whole(browser: Browser, site: SiteReport, width: int, scheme: str) -> None:
    with Visit(browser, width, scheme) as visit:
        for path, _ in site.pages:
            if path.startswith("std/") and path != "std/nn/attention/index.html":
                continue
            visit.page.goto(uri(site, path))
            # What is folded is part of the page too.
            visit.page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
            size = visit.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
            assert size[0] <= size[1], f"{path} scrolls sideways"
        visit.page.goto(uri(site, "compare/index.html?model=tiny-wren&model=wide-wren"))
        visit.page.get_by_role("columnheader").nth(1).wait_for()
        assert visit.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        visit.page.get_by_role("searchbox", name="Search models").fill(LONG[:30])
        box = visit.page.locator("#found .what").first
        box.wait_for()
        assert visit.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        panel = visit.page.locator("#found").bounding_box()
        assert panel is not None
        assert panel["x"] >= 0
        assert panel["x"] + panel["width"] <= width
        assert visit.faults == []
        assert all(asked.startswith(site.output.as_uri()) for asked in visit.asked)


def test_the_schemes_differ(browser: Browser, site: SiteReport) -> None:
    grounds = []
    for scheme in ("light", "dark"):
        with Visit(browser, 1280, scheme) as visit:
            visit.page.goto(uri(site, MODEL))
            grounds.append(visit.page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert grounds == ["rgb(253, 252, 249)", "rgb(22, 23, 26)"]


@pytest.mark.parametrize(
    ("path", "stops"),
    [
        ("index.html", ("Models", "Theme: system", "Tiny Wren", "Compare tiny-wren", "Keys: ?")),
        (MODEL, ("Models", "GitHub", "Registry entry", "Copy", "Architecture", "the source", "Table")),
        ("models/tiny-wren/source/src/lib.linnet.html", ("Source", "src/lib.linnet", "Raw")),
    ],
)
def test_the_keyboard_reaches_everything(browser: Browser, site: SiteReport, path: str, stops: tuple[str, ...]) -> None:
    with Visit(browser, 390, "light") as visit:
        page = visit.page
        page.goto(uri(site, path))
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to content"
        skip = page.get_by_role("link", name="Skip to content").bounding_box()
        assert skip is not None
        assert skip["y"] >= 0
        seen: list[str] = []
        for _ in range(80):
            page.keyboard.press("Tab")
            active = page.evaluate(
                """() => {
                  const e = document.activeElement, s = getComputedStyle(e);
                  const ring = s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 2;
                  return e === document.body ? null : [e.getAttribute('aria-label') || e.textContent.trim(), ring];
                }"""
            )
            if active is None:
                break
            assert active[1], f"no visible focus on {active[0][:40]!r}"
            seen.append(active[0])
        assert [stop for stop in stops if stop not in seen] == []


def test_the_snippet_is_copied(browser: Browser, site: SiteReport) -> None:
    with Visit(browser, 1280, "light") as visit:
        visit.context.grant_permissions(["clipboard-read", "clipboard-write"])
        visit.page.goto(uri(site, MODEL))
        visit.page.get_by_role("button", name="Copy").click()
        visit.page.get_by_role("button", name="Copied").wait_for()
        assert visit.page.evaluate("navigator.clipboard.readText()") == (
            'from linnet import nest\n\nmodel = nest.load("nests/tiny-wren", backend="torch", numerics="fast")'
        )


def test_an_empty_catalogue_opens(browser: Browser, tmp_path: Path) -> None:
    report = build_site([], tmp_path / "empty")
    with Visit(browser, 390, "dark") as visit:
        visit.page.goto(uri(report, "index.html"))
        assert visit.page.get_by_text("No model has been published here yet.").is_visible()
        assert visit.faults == []


def test_what_the_script_draws_is_text(
    browser: Browser, make_package: Callable[..., PackageSource], build: Callable[..., SiteReport]
) -> None:
    harmful = "<img src=x onerror=alert(1)>"
    source = make_package("hostile-wren", {"README.md": f"# {harmful}\n"})
    source.record["card"]["model"].update(title=harmful, summary=harmful, family=harmful, tags=[harmful])
    source.record["card"]["generics"] = source.record["generics"] = {harmful: harmful}
    report = build(source, make_package())
    with Visit(browser, 1280, "light") as visit:
        page = visit.page
        page.goto(uri(report, "index.html?q=hostile"))
        page.get_by_text("1 of 2 models").wait_for()
        assert page.locator(".model h2").inner_text() == harmful
        page.get_by_role("searchbox", name="Search models").fill("onerror")
        page.locator("#found .what", has_text=harmful).wait_for()
        assert page.locator("img").count() == 0
        page.goto(uri(report, "compare/index.html?model=hostile-wren&model=../../x&model=%3Cimg%3E"))
        page.get_by_role("rowheader", name=harmful).wait_for()
        assert page.locator("img").count() == 0
        assert page.get_by_role("columnheader").count() == 1
        assert visit.faults == []
