"""`nest site`: packages as pages."""

from __future__ import annotations

import click

from linnet.cli.frame import LazyGroup


@click.group(
    "site", cls=LazyGroup, modules={"build": "linnet.cli.nest_site_build", "serve": "linnet.cli.nest_site_serve"}
)
def command() -> None:
    """Make a site of packages.

    Example: nest site build --nests nests -o site
    """
