"""What MkDocs does beside the guide's Markdown: a page holds what every command says of itself, code gets the colours
of the site, wide things scroll inside themselves, links to the standard library's sources lead to their pages.

On a code host the links to sources lead to the files. The guide is built to lie in the site's folder `docs`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape

import click
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from linnet.cli.linnet_main import linnet
from linnet.cli.nest_main import nest
from linnet.site_builder.source_view import code_block, language_named

LINK = re.compile(r"\[([^\]\n]*)\]\((?:\.\./)+linnet/std/([\w/]+)\.linnet(#L\d+)?\)")
CODE = re.compile(r'<pre><code(?: class="language-([\w+-]+)")?>(.*?)</code></pre>', re.DOTALL)


HELP = """# What each command says

What `--help` prints, command by command; [Commands](commands.md) says more.
"""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    sections = [*_help(nest, "nest", None), *_help(linnet, "linnet", None)]
    files.append(File.generated(config, "help.md", content="\n".join([HELP, *sections])))
    return files


def _help(command: click.Command, name: str, parent: click.Context | None) -> Iterator[str]:
    """A section for a command, and for each below it: its help, as wide as a column of the guide."""
    context = click.Context(command, info_name=name, parent=parent, terminal_width=76, max_content_width=76)
    yield f"## {context.command_path}\n\n```text\n{command.get_help(context)}\n```\n"
    if isinstance(command, click.Group):
        for word in command.list_commands(context):
            found = command.get_command(context, word)
            if found is not None:
                yield from _help(found, word, context)


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
