"""What MkDocs does beside the guide's Markdown: its code gets the colours of the site, wide things scroll inside
themselves, and links to the standard library's sources lead to their pages on the site.

On a code host the links to sources lead to the files. The guide is built to lie in the site's folder `docs`.
"""

from __future__ import annotations

import re
from html import unescape

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

from linnet.site_builder.source_view import code_block, language_named

LINK = re.compile(r"\[([^\]\n]*)\]\((?:\.\./)+linnet/std/([\w/]+)\.linnet(#L\d+)?\)")
CODE = re.compile(r'<pre><code(?: class="language-([\w+-]+)")?>(.*?)</code></pre>', re.DOTALL)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    up = "../" * (page.file.src_uri.count("/") + 1)
    # Raw HTML, since MkDocs refuses a link out of the guide.
    return LINK.sub(lambda m: f'<a href="{up}std/{m[2]}/index.html{m[3] or ""}">{m[1]}</a>', markdown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    html = html.replace("<table>", '<div class="scroll" role="group" aria-label="Table" tabindex="0"><table>')
    html = html.replace("</table>", "</table></div>")
    html = re.sub(r' style="text-align: (left|right|center);"', r' class="\1"', html)
    # An empty corner heads nothing.
    html = re.sub(r"<th([^>]*)></th>", r"<td\1></td>", html)
    return CODE.sub(_code, html)


def _code(match: re.Match[str]) -> str:
    text = unescape(match[2]).rstrip("\n")
    return f'<pre tabindex="0"><code>{code_block(text, language_named(match[1] or "text"))}</code></pre>'
