"""Where everything lies in the site: these addresses are stable, and others link to them."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from urllib.parse import quote

TABS = ("architecture", "parameters", "source", "entries", "files", "history", "benchmarks")


@dataclass(frozen=True, slots=True)
class Site:
    """What all pages of one build share.

    `base_url` is where the site will be published, without a slash at its end; empty where that is not known. `names`
    are the models of the site that a page may link to.
    """

    base_url: str = ""
    names: frozenset[str] = frozenset()

    def url(self, path: str) -> str:
        """The published address of the file `path` of the site; empty where the base is not known."""
        if not self.base_url:
            return ""
        return f"{self.base_url}/{quote(path.removesuffix('index.html'))}"


def model_page(name: str, tab: str = "") -> str:
    """A model's page: its card, or one of `TABS`."""
    return f"models/{name}/{tab}/index.html" if tab else f"models/{name}/index.html"


def record_path(name: str) -> str:
    """A model's registry entry."""
    return f"models/{name}/model.json"


def all_parameters_page(name: str) -> str:
    """The list of every parameter of a model."""
    return f"models/{name}/parameters/all/index.html"


def diff_page(name: str, older: str, newer: str) -> str:
    """What changed between two versions of a model."""
    return f"models/{name}/history/{older}..{newer}/index.html"


def module_page(module: str) -> str:
    """A module of the standard library, `std.nn.norm`; `std` alone is the list of them."""
    return f"{module.replace('.', '/')}/index.html"


def up(page: str) -> str:
    """What leads from a page to the top of the site: `../../` for `models/x/index.html`."""
    return "../" * page.count("/")


def relative(page: str, target: str) -> str:
    """The link from a page to another file of the site, which may have a `#fragment`; percent-encoded."""
    path, mark, anchor = target.partition("#")
    if path == page and mark:
        return f"#{quote(anchor, safe='-._~:')}"
    link = quote(posixpath.relpath(path, posixpath.dirname(page) or "."))
    return f"{link}#{quote(anchor, safe='-._~:')}" if mark else link
