"""The pages as a person meets them: headless Chromium, from the file system, phone and desktop, both colour schemes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from playwright.sync_api import Browser, Page

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
        self.page.on("requestfailed", lambda request: self.faults.append(f"not loaded: {request.url}"))
        self.page.on("request", lambda request: self.asked.append(request.url))

    def __enter__(self) -> Visit:
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()


def uris(report: SiteReport) -> list[str]:
    return [(report.output / path).as_uri() for path, _ in report.pages]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_pages_open_whole(browser: Browser, site: SiteReport, width: int, scheme: str) -> None:
    with Visit(browser, width, scheme) as visit:
        for uri in uris(site):
            visit.page.goto(uri)
            size = visit.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
            assert size[0] <= size[1], f"{uri} scrolls sideways"
            # The folded files are part of the page too.
            visit.page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
            size = visit.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
            assert size[0] <= size[1], f"{uri} scrolls sideways once its files are unfolded"
        assert visit.faults == []
        assert all(asked.startswith(site.output.as_uri()) for asked in visit.asked)


def test_every_link_resolves(browser: Browser, site: SiteReport) -> None:
    with Visit(browser, 1280, "light") as visit:
        for uri in uris(site):
            visit.page.goto(uri)
            targets = visit.page.evaluate("[...document.querySelectorAll('a[href]')].map(a => a.href)")
            assert targets
            broken = visit.page.evaluate(
                """here => [...document.querySelectorAll('a[href]')].map(a => new URL(a.href))
                .filter(u => u.href.split('#')[0] === here && u.hash)
                .filter(u => !document.getElementById(decodeURIComponent(u.hash.slice(1)))).map(u => u.href)""",
                uri,
            )
            assert broken == []
            for target in {target.split("#")[0] for target in targets}:
                parts = urlsplit(target)
                assert parts.scheme == "https" or Path(unquote(parts.path)).is_file(), target


def test_the_schemes_differ(browser: Browser, site: SiteReport) -> None:
    grounds = []
    for scheme in ("light", "dark"):
        with Visit(browser, 1280, scheme) as visit:
            visit.page.goto(uris(site)[1])
            grounds.append(visit.page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert grounds == ["rgb(253, 252, 249)", "rgb(22, 23, 26)"]


@pytest.mark.parametrize("javascript", [True, False])
def test_from_the_catalogue_to_a_line_and_back(browser: Browser, site: SiteReport, javascript: bool) -> None:
    with Visit(browser, 390, "light", javascript) as visit:
        page = visit.page
        page.goto(uris(site)[0])
        page.get_by_role("link", name="Tiny Wren").click()
        assert page.get_by_role("heading", level=1).inner_text() == "Tiny Wren"
        assert page.get_by_role("group", name="src/lib.linnet").is_visible()
        assert not page.get_by_role("group", name="bindings.json").is_visible()
        page.get_by_role("link", name="the source").click()
        assert urlsplit(page.url).fragment == "src-lib.linnet-L3"
        line = page.locator("[id='src-lib.linnet-L3']")
        box = line.bounding_box()
        assert box is not None
        assert 0 <= box["y"] < 844
        page.locator("summary", has_text="bindings.json").click()
        assert page.get_by_role("group", name="bindings.json").is_visible()
        page.get_by_role("navigation", name="Breadcrumb").get_by_role("link", name="Models").click()
        assert page.get_by_role("heading", level=1).inner_text() == "Models"
        assert visit.faults == []


def test_a_link_to_a_line_unfolds_its_file(browser: Browser, site: SiteReport) -> None:
    with Visit(browser, 1280, "light") as visit:
        visit.page.goto(uris(site)[1] + "#bindings.json-L2")
        assert visit.page.locator("[id='bindings.json-L2']").is_visible()


def test_the_keyboard_reaches_everything(browser: Browser, site: SiteReport) -> None:
    with Visit(browser, 390, "light") as visit:
        page = visit.page
        page.goto(uris(site)[1])
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to content"
        skip = page.get_by_role("link", name="Skip to content").bounding_box()
        assert skip is not None
        assert skip["y"] >= 0
        page.keyboard.press("Enter")
        seen: list[str] = []
        for _ in range(60):
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
        for stop in ("Models", "GitHub", "Registry entry", "Copy", "the source", "Table", "src/lib.linnet"):
            assert stop in seen
        assert any(stop.startswith("bindings.json") for stop in seen)


def test_the_snippet_is_copied(browser: Browser, site: SiteReport) -> None:
    with Visit(browser, 1280, "light") as visit:
        visit.context.grant_permissions(["clipboard-read", "clipboard-write"])
        visit.page.goto(uris(site)[1])
        visit.page.get_by_role("button", name="Copy").click()
        visit.page.get_by_role("button", name="Copied").wait_for()
        assert visit.page.evaluate("navigator.clipboard.readText()") == (
            'from linnet import nest\n\nmodel = nest.load("nests/tiny-wren", backend="torch", numerics="fast")'
        )


def test_without_javascript_there_is_no_button(browser: Browser, site: SiteReport) -> None:
    with Visit(browser, 1280, "light", javascript=False) as visit:
        visit.page.goto(uris(site)[1])
        assert visit.page.get_by_role("button", name="Copy").count() == 0


def test_an_empty_catalogue_opens(browser: Browser, tmp_path: Path) -> None:
    report = build_site([], tmp_path / "empty")
    with Visit(browser, 390, "dark") as visit:
        visit.page.goto(uris(report)[0])
        assert visit.page.get_by_text("No model has been published here yet.").is_visible()
        assert visit.faults == []
