"""READMEs and doc comments as HTML that cannot harm: two walls, the second not trusting the first.

The parser is CommonMark with tables and without raw HTML, which is shown as the text it is. Images become links, since
a page asks nothing of third parties. The result then passes an allow-list of tags, attributes and URL schemes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

import nh3
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict
from markupsafe import Markup

from linnet.site_builder.source_view import code_block, language_named
from linnet.site_builder.text import Anchors, fragment, slug, without_overrides
from linnet.site_builder.tokens import CLASSES

SCHEMES = frozenset({"http", "https", "mailto"})
_HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
_TAGS = _HEADINGS | frozenset(
    "a blockquote br code del em hr li ol p pre s span strong table tbody td th thead tr ul".split()
)
_ALIGNMENTS = {"left", "center", "right"}
_ATTRIBUTES: dict[str, set[str]] = {
    "a": {"href", "title", "rel"},
    "ol": {"start"},
    **{heading: {"id"} for heading in _HEADINGS},
}
_CLEANER = nh3.Cleaner(
    tags=set(_TAGS),
    attributes=_ATTRIBUTES,
    allowed_classes={"span": {*CLASSES.values(), "u"}, "td": _ALIGNMENTS, "th": _ALIGNMENTS},
    url_schemes=set(SCHEMES),
    link_rel=None,  # the renderer sets it, on external links alone
)
# Longer texts are shown as they are written: the parser's time grows with the square of what a hostile text nests.
MARKDOWN_CHARACTERS = 1 << 16
# A relative link of the text, to what it becomes on the page; None where it leads nowhere.
Resolve = Callable[[str], str | None]


@dataclass(frozen=True, slots=True)
class Rendered:
    """HTML ready for a page, and the relative links that lead nowhere (shown as plain text)."""

    html: Markup
    unresolved: tuple[str, ...]


def render_markdown(
    text: str,
    *,
    anchors: Anchors,
    resolve: Resolve,
    prefix: str,
    top: int = 2,
    title: str | None = None,
) -> Rendered:
    """`text` as harmless HTML.

    Headings get the ids `PREFIX-words` from `anchors`, and their levels move so that the highest is `top`. A first
    heading that repeats `title` is dropped. `resolve` maps the relative links; links to the text's own headings are
    mapped here. A text of more than MARKDOWN_CHARACTERS is shown as it is written.
    """
    if len(text) > MARKDOWN_CHARACTERS:
        return Rendered(Markup(f'<pre tabindex="0"><code>{code_block(text, "text")}</code></pre>\n'), ())
    parser = _parser()
    tokens = parser.parse(without_overrides(text))
    if title is not None:
        tokens = _without_title(tokens, title)
    own = _name_headings(tokens, anchors, prefix, top)
    _fit_cells(tokens)
    unresolved: list[str] = []
    _map_links(tokens, own, resolve, unresolved)
    html = _CLEANER.clean(parser.renderer.render(tokens, parser.options, {}))
    # Wide tables and code scroll inside themselves, so the keyboard must reach them. Text is escaped: these are tags.
    html = html.replace("<table>", '<div class="scroll" role="group" aria-label="Table" tabindex="0"><table>')
    html = html.replace("</table>", "</table></div>").replace("<pre>", '<pre tabindex="0">')
    return Rendered(Markup(html), tuple(unresolved))


def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    # Every destination is kept until `_map_links` judges it: the parser's own filter would leave the Markdown as text.
    parser.validateLink = lambda url: True  # type: ignore[method-assign]
    parser.add_render_rule("fence", _fence)
    parser.add_render_rule("code_block", _fence)
    return parser


def _fence(renderer: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType) -> str:
    token = tokens[index]
    words = token.info.lower().split()
    code = code_block(token.content, language_named(words[0] if words else "text"))
    return f"<pre><code>{code}</code></pre>\n"


def _without_title(tokens: list[Token], title: str) -> list[Token]:
    opens = len(tokens) > 2 and tokens[0].type == "heading_open" and tokens[0].tag == "h1"
    same = opens and tokens[1].content.strip().casefold() == title.strip().casefold()
    return tokens[3:] if same else tokens


def _name_headings(tokens: Sequence[Token], anchors: Anchors, prefix: str, top: int) -> dict[str, str]:
    """Give headings their ids and levels; the result maps the slug a link would use to the id."""
    own: dict[str, str] = {}
    highest = min((int(token.tag[1]) for token in tokens if token.type == "heading_open"), default=1)
    for index, token in enumerate(tokens):
        if token.type not in ("heading_open", "heading_close"):
            continue
        token.tag = f"h{min(int(token.tag[1]) - highest + top, 6)}"
        if token.type == "heading_open":
            words = "".join(
                child.content for child in tokens[index + 1].children or [] if child.type in ("text", "code_inline")
            )
            anchor = anchors.claim(f"{prefix}-{slug(words)}")
            token.attrSet("id", anchor)
            own.setdefault(slug(words), anchor)
    return own


def _fit_cells(tokens: Sequence[Token]) -> None:
    for index, token in enumerate(tokens):
        # The pages' content policy allows no style attributes: alignment becomes a class.
        if style := token.attrs.pop("style", None):
            token.attrSet("class", str(style).removeprefix("text-align:"))
        # An empty corner heads nothing.
        if token.type == "th_open" and not tokens[index + 1].content:
            token.tag = tokens[index + 2].tag = "td"


def _map_links(tokens: Sequence[Token], own: dict[str, str], resolve: Resolve, unresolved: list[str]) -> None:
    for token in tokens:
        if token.children is None:
            continue
        children: list[Token] = []
        kept: list[bool] = []  # for each link that is open: whether it still leads somewhere
        for child in token.children:
            if child.type == "link_open":
                href = _destination(str(child.attrGet("href") or ""), own, resolve, unresolved)
                kept.append(href is not None)
                if href is not None:
                    children.append(_link(href, child.attrGet("title")))
            elif child.type == "link_close":
                if kept.pop():
                    children.append(child)
            elif child.type == "image":
                href = _destination(str(child.attrGet("src") or ""), own, resolve, unresolved)
                label = Token("text", "", 0, content=f"{child.content or 'image'} (image)")
                # A link inside a link is no HTML: within one, an image is its words.
                linked = href is not None and not any(kept)
                children += [_link(href, None), label, Token("link_close", "a", -1)] if linked and href else [label]
            else:
                children.append(child)
        token.children = children


def _link(href: str, title: str | int | float | None) -> Token:
    token = Token("link_open", "a", 1, attrs={"href": href})
    if title:
        token.attrSet("title", str(title))
    if urlsplit(href).scheme in ("http", "https"):
        token.attrSet("rel", "noopener noreferrer")
    return token


def _destination(href: str, own: dict[str, str], resolve: Resolve, unresolved: list[str]) -> str | None:
    """Where a link of the text leads: an allowed external address, a place in the site, or nowhere (None)."""
    try:
        parts = urlsplit(href)
    except ValueError:
        unresolved.append(href)
        return None
    if parts.scheme in SCHEMES and (parts.netloc or parts.scheme == "mailto"):
        return href
    if not parts.scheme and not parts.netloc:
        anchor = own.get(slug(unquote(parts.fragment))) if not parts.path and parts.fragment else None
        target = fragment(anchor) if anchor else resolve(href)
        if target is not None:
            return target
    unresolved.append(href)
    return None
