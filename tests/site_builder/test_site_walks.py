"""The site walked as a person would: with a mouse, by keyboard alone, and where that makes sense without JavaScript."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

import pytest
from playwright.sync_api import Browser, FloatRect, Page, expect

from linnet.site_builder.build import SiteReport

pytestmark = pytest.mark.browser


POLICY = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'"


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """A test prints nothing."""


@pytest.fixture(scope="module")
def served(whole: SiteReport, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The site behind a web server, below `/a/nest/`."""
    top = tmp_path_factory.mktemp("served")
    (top / "a").mkdir()
    (top / "a" / "nest").symlink_to(whole.output)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(top)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/a/nest"
    server.shutdown()
    server.server_close()


@contextmanager
def visit(browser: Browser, address: str, *, javascript: bool = True, width: int = 1280) -> Iterator[Page]:
    """A page whose console stays empty and which asks for nothing outside the site."""
    context = browser.new_context(
        viewport={"width": width, "height": 900}, java_script_enabled=javascript, permissions=[]
    )
    page = context.new_page()
    faults: list[str] = []
    page.on("console", lambda message: faults.append(message.text))
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("request", lambda request: None if request.url.startswith(address) else faults.append(request.url))
    page.goto(f"{address}/index.html")
    yield page
    context.close()
    assert faults == []


@pytest.fixture(params=["file", "http"])
def address(request: pytest.FixtureRequest, whole: SiteReport) -> str:
    """The top of the site, on the file system and below a path of a web server."""
    return whole.output.as_uri() if request.param == "file" else str(request.getfixturevalue("served"))


def heading(page: Page) -> str:
    return page.get_by_role("heading", level=1).inner_text()


def place(page: Page, address: str) -> str:
    """Where the page is, from the top of the site."""
    return unquote(page.url.removeprefix(f"{address}/"))


def test_the_whole_site_has_no_fault(whole: SiteReport) -> None:
    assert whole.problems == ()


def test_a_model_is_found_by_typing(browser: Browser, address: str) -> None:
    with visit(browser, address) as page:
        page.get_by_role("searchbox", name="Search models").fill("tiny fp8")
        page.locator("#found").get_by_role("link", name="Qwen3 tiny FP8").click()
        page.wait_for_url("**/models/qwen3-tiny-fp8/index.html")
        assert heading(page) == "Qwen3 tiny FP8"


def test_everything_is_found_by_keyboard(browser: Browser, address: str) -> None:
    with visit(browser, address) as page:
        for query, steps, where in (
            ("gpt2", 0, "models/gpt2/index.html"),
            ("grouped_attention", None, "std/nn/attention/index.html"),
            ("q_norm", None, "models/qwen3-tiny/parameters/index.html"),
            ("prefill_paged", None, "models/qwen3-tiny/entries/index.html"),
            ("index notation", None, "docs/language/index-notation.html"),
        ):
            page.keyboard.press("/")
            page.keyboard.type(query)
            links = page.locator("#found a")
            wanted = page.locator(f"#found a[href*='{where}']").first
            wanted.wait_for()
            if steps is None:
                hrefs = [str(link.get_attribute("href")) for link in links.all()]
                steps = 1 + next(n for n, href in enumerate(hrefs) if where in href)
            for _ in range(steps):
                page.keyboard.press("ArrowDown")
            page.keyboard.press("Enter")
            page.wait_for_url(f"**/{where}*")


@pytest.mark.parametrize("query", ["q_norm", "q norm"])
def test_enter_opens_what_was_asked_for(browser: Browser, served: str, query: str) -> None:
    with visit(browser, served) as page:
        page.keyboard.press("/")
        page.keyboard.type(query)
        items = page.locator("#found > ul > li").first.locator("code")
        expect(items.first).to_contain_text("q_norm")
        page.keyboard.press("Enter")
        page.wait_for_url("**/models/qwen3-tiny*/parameters/**q_norm*")


def test_the_search_opens_and_closes(browser: Browser, address: str) -> None:
    with visit(browser, address) as page:
        page.keyboard.press("s")
        page.keyboard.type("qwen")
        expect(page.locator("#found")).to_be_visible()
        expect(page.locator("#found .status")).to_have_text(re.compile(r"\d+ results"))
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Escape")
        expect(page.locator("#found")).to_be_hidden()
        expect(page.get_by_role("searchbox", name="Search models")).to_be_focused()
        page.keyboard.press("Escape")
        page.keyboard.press("?")
        expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog", name="Keys")).to_be_hidden()


def test_the_catalogue_filters_sorts_and_keeps_its_state(browser: Browser, address: str) -> None:
    with visit(browser, address) as page:
        titles = page.locator(".model h2")
        page.keyboard.press("f")
        page.keyboard.type("tiny")
        expect(titles).to_have_text(["Qwen3 tiny", "Qwen3 tiny FP8"])
        page.get_by_role("checkbox", name="fp8", exact=True).first.check()
        expect(titles).to_have_text(["Qwen3 tiny FP8"])
        expect(page.locator(".listing .status")).to_have_text("1 of 3 models")
        assert parse_qsl(urlsplit(page.url).query) == [("q", "tiny"), ("weights", "fp8")]
        page.reload()
        expect(titles).to_have_text(["Qwen3 tiny FP8"])
        expect(page.get_by_role("checkbox", name="fp8", exact=True).first).to_be_checked()
        page.go_back()
        expect(titles).to_have_text(["Qwen3 tiny", "Qwen3 tiny FP8"])
        page.get_by_label("Filter", exact=True).fill("")
        page.get_by_label("Sort by").select_option("most parameters")
        expect(titles).to_have_text(["GPT-2 small", "Qwen3 tiny", "Qwen3 tiny FP8"])
        clear = page.get_by_role("button", name="Clear filters")
        expect(clear).to_be_hidden()
        page.get_by_label("Filter", exact=True).fill("no such model")
        expect(page.locator(".listing .status")).to_have_text("No model is like that.")
        page.get_by_role("checkbox", name="fp8", exact=True).first.check()
        clear.click()
        expect(titles).to_have_text(["GPT-2 small", "Qwen3 tiny", "Qwen3 tiny FP8"])
        expect(clear).to_be_hidden()
        expect(page.get_by_label("Filter", exact=True)).to_be_focused()
        assert parse_qsl(urlsplit(page.url).query) == [("sort", "large")]
        # The field's ring of focus lies within what scrolls.
        left, within = (page.locator(place).bounding_box() for place in ("#words", ".filters"))
        assert left is not None
        assert within is not None
        assert left["x"] - within["x"] >= 5


def test_the_snippet_is_copied_by_keyboard(browser: Browser, served: str) -> None:
    with visit(browser, served) as page:
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        page.goto(f"{served}/models/gpt2/index.html")
        page.get_by_role("button", name="Copy").first.focus()
        page.keyboard.press("Enter")
        page.get_by_role("button", name="Copied").wait_for()
        assert 'nest.load("gpt2"' in page.evaluate("navigator.clipboard.readText()")


@pytest.mark.parametrize("javascript", [True, False])
def test_a_name_leads_to_the_library_and_back(browser: Browser, address: str, javascript: bool) -> None:
    with visit(browser, address, javascript=javascript) as page:
        page.get_by_role("link", name="Qwen3 tiny", exact=True).click()
        page.get_by_role("navigation", name="Qwen3 tiny").get_by_role("link", name="Source").click()
        page.get_by_role("main").get_by_role("link", name="attention.linnet").first.click()
        source = place(page, address)
        name = page.locator(".lines a", has_text=re.compile("^grouped_attention$")).last
        name.focus()
        page.keyboard.press("Enter")
        page.wait_for_url("**/std/nn/attention/index.html#L*")
        line = page.locator(f"[id='{urlsplit(page.url).fragment}']")
        expect(line).to_be_in_viewport()
        assert "grouped_attention" in line.inner_text()
        page.go_back()
        assert place(page, address) == source


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light")])
def test_a_name_shows_its_type(browser: Browser, address: str, width: int, scheme: str) -> None:
    shown = """link => {
        const style = getComputedStyle(link, "::after");
        return [style.content, style.display, style.visibility, style.position, style.color, style.backgroundColor];
    }"""
    with visit(browser, address, javascript=False, width=width) as page:
        page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        page.goto(f"{address}/models/qwen3-tiny/source/src/attention.linnet.html")
        link = page.locator(".src a[data-type*='Linear<']").first
        link.evaluate("link => link.scrollIntoView({block: 'center'})")
        box = link.bounding_box()
        assert box is not None
        below: FloatRect = {"x": box["x"] + 4, "y": box["y"] + box["height"] + 8, "width": 60, "height": 12}
        type = str(link.get_attribute("data-type"))
        assert link.evaluate(shown)[0] == "none"
        before = page.screenshot(clip=below)
        link.hover()
        content, display, visibility, position, ink, ground = link.evaluate(shown)
        assert content == f'"{type}"'
        assert (display, visibility, position) == ("block", "visible", "fixed")
        assert ink != ground
        assert page.screenshot(clip=below) != before
        page.mouse.move(0, 0)
        assert link.evaluate(shown)[0] == "none"
        link.focus()
        page.keyboard.press("Shift+Tab")
        page.keyboard.press("Tab")
        assert link.evaluate("link => link.matches(':focus-visible')")
        assert link.evaluate(shown)[0] == f'"{type}"'
        # The page does not grow by a tip.
        last = page.locator(".src .line a[data-type]").last
        last.hover()
        assert last.evaluate(shown)[1] == "block"
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("javascript", [True, False])
def test_a_block_unfolds(browser: Browser, address: str, javascript: bool) -> None:
    with visit(browser, address, javascript=javascript) as page:
        page.goto(f"{address}/models/qwen3-tiny/architecture/index.html")
        part = page.locator("details.block", has_text="layers.mlp").first
        expect(part.locator("svg.flow")).to_be_hidden()
        part.locator("summary").focus()
        page.keyboard.press("Enter")
        expect(part.locator("svg.flow")).to_be_visible()
        expect(part.locator("svg.flow").get_by_text("gate", exact=True).first).to_be_visible()


@pytest.mark.parametrize("width", [1280, 390])
def test_a_picture_is_seen_whole_or_says_that_it_goes_on(browser: Browser, served: str, width: int) -> None:
    measure = """figure => {
        const flow = figure.querySelector(".flow").getBoundingClientRect();
        const [first, frame] = [figure.querySelector("rect"), figure].map(item => item.getBoundingClientRect());
        return {
            scale: flow.width / figure.querySelector(".flow").getAttribute("width"),
            hidden: figure.scrollWidth - figure.clientWidth,
            begins: first.left >= frame.left - 1 && first.right <= frame.right + 1,
        };
    }"""
    wide = 0
    with visit(browser, served, width=width) as page:
        for name in ("gpt2/architecture", "gpt2/architecture/decode", "qwen3-tiny/architecture/decode"):
            page.goto(f"{served}/models/{name}/index.html")
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            for figure in page.locator(".diagram:visible").all():
                found = figure.evaluate(measure)
                assert found["scale"] >= 0.749
                assert found["begins"]
                if found["hidden"] <= 0:
                    continue
                wide += 1
                assert found["scale"] == pytest.approx(0.75, abs=0.002)
                # Below the boxes nothing but the ground is drawn: there the shadow alone makes a difference.
                figure.evaluate("figure => figure.scrollIntoView({block: 'end'})")
                box = figure.bounding_box()
                assert box is not None
                right, bottom = box["x"] + box["width"], box["y"] + box["height"]
                corner: FloatRect = {"x": right - 4, "y": bottom - 6, "width": 3, "height": 3}
                figure.evaluate("figure => figure.scrollLeft = 0")
                before = page.screenshot(clip=corner)
                figure.evaluate("figure => figure.scrollLeft = figure.scrollWidth")
                assert page.screenshot(clip=corner) != before
    assert (wide > 0) == (width == 390)


def test_parameters_filter(browser: Browser, address: str) -> None:
    with visit(browser, address) as page:
        page.goto(f"{address}/models/qwen3-tiny/parameters/index.html")
        rows = page.locator("#parameter-table tbody tr:visible")
        whole = rows.count()
        page.keyboard.press("f")
        page.keyboard.type("q_norm")
        expect(rows.first).to_contain_text("layers.{0..3}.attention.q_norm.weight")
        assert 0 < rows.count() < whole
        assert urlsplit(page.url).query == "filter=q_norm"
        page.reload()
        assert 0 < rows.count() < whole


def test_a_folded_path_is_found_by_one_of_its_numbers(browser: Browser, address: str) -> None:
    with visit(browser, address) as page:
        page.goto(f"{address}/models/qwen3-tiny-fp8/parameters/index.html")
        rows = page.locator("#parameter-table tbody tr:visible")
        field, status = page.get_by_label("Filter", exact=True), page.locator(".filter .status")
        whole = rows.count()
        for query in ("layers.3.attention.q_norm.weight", "model.layers.0.self_attn.q_norm.weight"):
            field.fill(query)
            expect(status).to_have_text(f"1 of {whole} rows")
            expect(rows).to_contain_text("layers.{0..3}.attention.q_norm.weight")
        for query in ("layers.3", "model.layers.3"):
            field.fill(query)
            assert 1 < rows.count() < whole
        field.fill("layers.4")
        expect(status).to_have_text(f"0 of {whole} rows. Look among every parameter")
        page.get_by_role("link", name="Look among every parameter").click()
        page.wait_for_url("**/parameters/all/index.html?filter=layers.4")


def test_two_models_are_compared_by_keyboard(browser: Browser, address: str) -> None:
    with visit(browser, address) as page:
        for name in ("qwen3-tiny", "qwen3-tiny-fp8"):
            page.get_by_label(f"Compare {name}", exact=True).focus()
            page.keyboard.press("Space")
        page.get_by_role("link", name="Compare 2 models").focus()
        page.keyboard.press("Enter")
        table = page.get_by_role("table")
        expect(table.get_by_role("row", name=re.compile("^Weights"))).to_have_text("Weightsbf16fp8")
        expect(table.get_by_role("rowheader", name="layers.*.attention", exact=True)).to_be_visible()
        expect(table.get_by_role("rowheader", name="prefill_paged")).to_be_visible()
        licence = table.get_by_role("row", name=re.compile("^Licence"))
        expect(licence).to_be_visible()
        page.get_by_label("Only rows that differ").focus()
        page.keyboard.press("Space")
        expect(licence).to_be_hidden()
        page.get_by_label("Add a model").focus()
        page.keyboard.type("gpt2")
        page.keyboard.press("Enter")
        expect(table.get_by_role("columnheader")).to_have_count(3)
        assert urlsplit(page.url).query == "model=qwen3-tiny&model=qwen3-tiny-fp8&model=gpt2"
        page.get_by_role("button", name="Remove qwen3-tiny-fp8").press("Enter")
        expect(table.get_by_role("columnheader")).to_have_count(2)
        page.get_by_label("Add a model").fill("no-such-model")
        page.get_by_role("button", name="Add", exact=True).click()
        expect(page.get_by_text("There is no model “no-such-model”.")).to_be_visible()


@pytest.mark.parametrize("javascript", [True, False])
def test_a_difference_is_read(browser: Browser, address: str, javascript: bool) -> None:
    with visit(browser, address, javascript=javascript) as page:
        page.goto(f"{address}/models/qwen3-tiny/index.html")
        page.get_by_role("navigation", name="Qwen3 tiny").get_by_role("link", name="History").press("Enter")
        page.get_by_role("main").locator("a[href*='0.0.9..0.1.0']").first.press("Enter")
        page.wait_for_url("**/models/qwen3-tiny/history/0.0.9..0.1.0/index.html")
        text = page.get_by_role("main").inner_text()
        assert "MaxSeq" in text
        assert "128" in text
        assert "const EPS: f32 = 1e-5" in text
        assert "const EPS: f32 = 1e-6" in text


@pytest.mark.parametrize("javascript", [True, False])
def test_the_guide_is_a_part_of_the_site(browser: Browser, address: str, javascript: bool) -> None:
    with visit(browser, address, javascript=javascript, width=390) as page:
        page.get_by_role("navigation", name="Site").get_by_role("link", name="Guide").click()
        page.get_by_role("navigation", name="Guide").get_by_text("Guide").first.click()
        if page.get_by_role("link", name="Tour", exact=True).first.is_hidden():
            page.get_by_role("navigation", name="Guide").get_by_text("Guide").first.click()
        page.get_by_role("link", name="Tour", exact=True).first.click()
        assert heading(page) == "Tour"
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.goto(f"{address}/docs/std/std.nn.norm.html")
        page.locator("article a[href*='/std/nn/norm/index.html#L']").first.click()
        assert "/std/nn/norm/index.html" in page.url
        page.get_by_role("navigation", name="Site").get_by_role("link", name="Models").click()
        assert heading(page) == "Models"


def test_without_javascript_nothing_is_offered_that_needs_it(browser: Browser, address: str) -> None:
    with visit(browser, address, javascript=False) as page:
        assert page.get_by_role("searchbox").count() == 0
        assert page.get_by_role("button").count() == 0
        assert page.get_by_role("checkbox").count() == 0
        page.get_by_role("navigation", name="Site").get_by_role("link", name="Compare").click()
        expect(page.get_by_text("The comparison is put together by")).to_be_visible()


def test_pages_and_script_keep_their_budgets(whole: SiteReport, shipped: SiteReport) -> None:
    free = re.compile(r"/source/|/parameters/all/")
    for report in (whole, shipped):
        assert {path: size for path, size in report.pages if size > 150_000 and not free.search(path)} == {}
        assert (report.output / "static/site.js").stat().st_size <= 30_000
        assert [path.name for path in (report.output / "static").glob("*.js")] == ["site.js"]


def test_every_page_has_the_policy(whole: SiteReport) -> None:
    for path, _ in whole.pages:
        html = Path(whole.output / path).read_text(encoding="utf-8")
        assert POLICY in html
        assert re.findall(r"<script(?![^>]* src=)(?! type=\"application/ld\+json\")", html) == []
        assert " style=" not in re.sub(r"<pre.*?</pre>", "", html, flags=re.DOTALL)


def test_a_phone_shows_two_models_beside_each_other(browser: Browser, served: str) -> None:
    with visit(browser, served, width=390) as page:
        page.goto(f"{served}/compare/index.html?model=qwen3-tiny&model=gpt2")
        heads = page.get_by_role("columnheader")
        expect(heads).to_have_count(2)
        for cell in (*heads.all(), *page.get_by_role("row", name=re.compile("^Licence")).get_by_role("cell").all()):
            box = cell.bounding_box()
            assert box is not None
            assert box["x"] + box["width"] <= 390


def test_a_phone_folds_the_outline_of_a_file(browser: Browser, served: str) -> None:
    with visit(browser, served, width=390) as page:
        page.goto(f"{served}/models/qwen3-tiny/source/src/attention.linnet.html")
        outline = page.locator(".outline")
        expect(outline).to_be_hidden()
        page.get_by_text("In this file").click()
        expect(outline.get_by_role("link").last).to_be_visible()
        assert outline.evaluate("list => list.scrollHeight <= list.clientHeight")
