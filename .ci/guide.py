"""What MkDocs does beside the guide's own pages: the sources that the standard library's reference links to.

On a code host those links lead to the files. In the built guide they lead to pages made here, one for each module.
"""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pygments import highlight
from pygments.formatters import HtmlFormatter

from linnet.language.syntax.pygments_lexer import LinnetLexer

STD = Path(__file__).resolve().parent.parent / "linnet" / "std"
LINK = re.compile(r"\]\(\.\./\.\./linnet/std/([\w/]+)\.linnet#L(\d+)\)")
FORMAT = HtmlFormatter(noclasses=True, lineanchors="L", nobackground=True)


def _page(module: str) -> str:
    return f"std/source/std.{module.replace('/', '.')}.md"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for path in sorted(STD.rglob("*.linnet")):
        module = path.relative_to(STD).with_suffix("").as_posix()
        title = f"# Source of std.{module.replace('/', '.')}"
        text = highlight(path.read_text(encoding="utf-8"), LinnetLexer(), FORMAT)
        files.append(File.generated(config, _page(module), content=f"{title}\n\n{text}\n"))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    if not page.file.src_uri.startswith("std/"):
        return markdown
    return LINK.sub(lambda match: f"]({_page(match[1]).removeprefix('std/')}#L-{match[2]})", markdown)
