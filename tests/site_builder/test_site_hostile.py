"""Packages that mean harm, or are far too large: every page of them is harmless and stays small."""

from __future__ import annotations

import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from linnet.site_builder.build import SiteReport
from linnet.site_builder.collect import PackageSource
from linnet.site_builder.paths import file_pages
from linnet.site_builder.worker import PAGE_BYTES, is_weighed

EVIL = '"><script>alert(1)</script><img src=x onerror=alert(1)>'
OVERRIDE = "\u202egnp.exe\u2066"
README = f"""# {EVIL} {OVERRIDE}

<script>alert(1)</script> <svg onload=alert(1)><script>alert(1)</script></svg>

[a](javascript:alert(1)) [b](data:text/html,<script>alert(1)</script>) [c](vbscript:x) [d](../../../../etc/passwd)
![e](https://evil.example/pixel.png) ![f](data:image/svg+xml;base64,PHN2Zz4=) [g](//evil.example/)

<a href="https://evil.example" onclick="alert(1)">x</a> <style>*{{display:none}}</style> <iframe src=https://evil.example>

```html
<script>alert(1)</script>
```
"""
SOURCE = f"""/// {EVIL} {OVERRIDE} [x](javascript:alert(1))
module wren

/// </code></pre>{EVIL}
pub block Model<H: Dim, T: Float> {{
    /// {EVIL}
    param weight: Tensor[H; T]

    // {OVERRIDE} </span>{EVIL}
    entry forward<B: Dim>(x: Tensor[B, H; T]) -> Tensor[B, H; T] {{
        return x * weight
    }}
}}
"""
POLICY = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'"


@pytest.fixture
def hostile(make_package: Callable[..., PackageSource], build: Callable[..., SiteReport]) -> SiteReport:
    source = make_package(
        files={
            "README.md": README,
            "src/lib.linnet": SOURCE,
            "src/evil.svg": '<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"><script>alert(1)</script></svg>',
            "evil.html": "<script>alert(1)</script>",
            "index": "not the index of the sources",
            "source.html": "<script>alert(1)</script>",
            "a&b #1 %41.txt": EVIL,
            "deep/" + "x" * 250: "a name that leaves no room for a suffix",
        }
    )
    model = source.record["card"]["model"]
    model.update(title=f"{EVIL}{OVERRIDE}", summary=EVIL, license=EVIL, family=EVIL, tags=[EVIL, OVERRIDE])
    source.record["card"]["links"] = {"homepage": "javascript:alert(1)", "github": f"https://example.org/{EVIL}"}
    source.record["card"]["weights"].update(repo=f"x/{EVIL}", revision=EVIL, files=[EVIL])
    source.record["entries"] = [{"name": "forward", "signature": EVIL, "doc": README}]
    source.record["parameters"][0].update(path=f"a.{EVIL}", tensor=EVIL, dtype=EVIL, kind=EVIL, declared=EVIL)
    return build(source)


class Tags(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))


def test_hostile_pages_are_harmless(hostile: SiteReport) -> None:
    assert hostile.problems == ()
    assert len(hostile.pages) > 15
    for path, _ in hostile.pages:
        html = (hostile.output / path).read_text(encoding="utf-8")
        for char in "\u202e\u2066\u2028\0":
            assert char not in html
        tags = Tags(html).seen
        policies = [
            a["content"] for tag, a in tags if tag == "meta" and a.get("http-equiv") == "Content-Security-Policy"
        ]
        assert policies == [POLICY], path
        for tag, attributes in tags:
            assert tag not in ("img", "iframe", "object", "embed", "style", "base"), path
            assert not any(name.startswith("on") or name == "style" for name in attributes), (path, tag, attributes)
            if tag == "script":
                assert re.fullmatch(r"(\.\./)*static/site\.js", attributes.get("src") or "") or (
                    attributes.get("type") == "application/ld+json"
                )
            for name in ("href", "src", "action", "xlink:href"):
                target = attributes.get(name) or ""
                scheme = re.match(r"[\s\x00-\x1f]*([a-zA-Z][a-zA-Z0-9+.-]*):", target)
                assert scheme is None or scheme[1] in ("https", "http", "mailto"), (path, target)
                assert not target.startswith("//"), (path, target)


def test_nothing_of_a_package_is_served_as_a_page(hostile: SiteReport) -> None:
    own = {"index.html", "model.json", "compare.js", "share.png"}
    for path in (hostile.output / "models").rglob("*"):
        # A package's own files end in .txt, or are shown in pages.
        assert path.is_dir() or path.suffix in (".html", ".txt") or path.name in own
    assert (hostile.output / "models/tiny-wren/files/raw/evil.html.txt").is_file()
    assert (hostile.output / "models/tiny-wren/source/evil.html.html").is_file()


def test_files_with_clashing_names_each_have_their_page() -> None:
    files = ["index", "INDEX", "a", "A", "a.html/b", "a.html", "b/c", "b", "B/c", "x" * 255, "é" * 127, "d/index"]
    pages = file_pages("source", files, ".html")
    assert sorted(pages) == sorted(files)
    folded = [page.casefold() for page in pages.values()]
    assert len(set(folded)) == len(files)
    assert "source/index.html" not in folded
    # No page lies where another's folder must be.
    assert not {page for page in folded if any(other.startswith(f"{page}/") for other in folded)}
    assert all(len(part.encode()) <= 255 for page in pages.values() for part in page.split("/"))
    assert pages["d/index"] == "source/d/index.html"
    assert pages["a"] != pages["A"]


def test_files_that_differ_in_case_are_shown_apart(
    make_package: Callable[..., PackageSource], build: Callable[..., SiteReport]
) -> None:
    report = build(make_package(files={"notes.txt": "small", "NOTES.txt": "LARGE"}))
    assert report.ok
    shown = [
        (report.output / path).read_text(encoding="utf-8")
        for path, _ in report.pages
        if re.search(r"source/(?!.*(README|bindings|nest|index|lib))", path)
    ]
    assert sorted("LARGE" in html for html in shown) == [False, True]


def test_large_packages_make_small_pages(
    make_package: Callable[..., PackageSource], build: Callable[..., SiteReport]
) -> None:
    source = make_package(
        files={
            "README.md": "# Tiny Wren\n\n" + "word " * (4 << 20),
            "src/lib.linnet": "module wren\n" + "// a line\n" * 100_000,
            "bindings.json": "{" + ",\n".join(f'"layers.{i}.x{i}": "t{i}"' for i in range(20_000)) + "}",
        }
    )
    parameter = source.record["parameters"][0]
    source.record["parameters"] = [
        {**parameter, "path": f"block{i}.weight{i}", "tensor": f"tensor.{i}"} for i in range(20_000)
    ]
    report = build(source)
    assert report.ok
    assert {path: size for path, size in report.pages if size > PAGE_BYTES and is_weighed(path)} == {}
    full = (report.output / "models/tiny-wren/parameters/all/index.html").read_text(encoding="utf-8")
    assert full.count("<tr id=") == 20_000
    lines = (report.output / "models/tiny-wren/source/src/lib.linnet.html").read_text(encoding="utf-8")
    assert 'id="L100001"' in lines
    folded = (report.output / "models/tiny-wren/parameters/index.html").read_text(encoding="utf-8")
    assert "19800 more paths are in" in folded


def test_a_readme_that_swells_is_cut(
    make_package: Callable[..., PackageSource], build: Callable[..., SiteReport]
) -> None:
    report = build(make_package(files={"README.md": "# Tiny Wren\n\n" + "[a](https://example.org/b)\n\n" * 2_300}))
    page = report.output / "models/tiny-wren/index.html"
    assert page.stat().st_size < PAGE_BYTES
    assert '<a href="source/README.md.html">Read all of it</a>' in page.read_text(encoding="utf-8")


@pytest.mark.browser
def test_a_browser_runs_nothing_of_it(browser: Browser, hostile: SiteReport) -> None:
    context = browser.new_context()
    page = context.new_page()
    faults: list[str] = []
    asked: list[str] = []
    page.on("dialog", lambda dialog: (faults.append(dialog.message), dialog.dismiss()))
    page.on("console", lambda message: faults.append(message.text))
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    for path, _ in hostile.pages:
        if path.startswith("models/"):
            page.goto((hostile.output / path).as_uri())
            page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    for path in Path(hostile.output / "models/tiny-wren/files/raw").rglob("*.txt"):
        page.goto(path.as_uri())
    context.close()
    assert faults == []
    assert all(url.startswith(hostile.output.as_uri()) for url in asked)
