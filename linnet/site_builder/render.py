"""Pages as HTML text: the templates, and what every one of them is given."""

from __future__ import annotations

from functools import cache, partial

from jinja2 import Environment, PackageLoader, StrictUndefined

from linnet.registry.package import human_size
from linnet.registry.parameters import human_count
from linnet.site_builder.paths import Site, relative, up
from linnet.site_builder.source_view import code_block


def render_page(template: str, path: str, site: Site, **values: object) -> bytes:
    """The page `path` of the site: a template with these values.

    It also has `path`, `site`, `up` (`../../`), `canonical`, `to(file)`, the link to another file of the site, and
    `section`, the item of the top navigation that it belongs to, where `values` do not say.
    """
    found = _environment().get_template(template)
    given = {"section": "models", **values, "to": partial(relative, path)}
    return found.render(path=path, site=site, up=up(path), canonical=site.url(path), **given).encode()


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("linnet.site_builder"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(
        size=human_size,
        count=human_count,
        linnet=lambda text: code_block(text, "linnet"),
    )
    return environment
