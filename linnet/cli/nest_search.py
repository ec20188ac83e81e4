"""`nest search`: packages by what they are."""

from __future__ import annotations

from typing import Any

import click

from linnet.cli.codes import FINE
from linnet.cli.frame import json_option, offline_option, registry_option
from linnet.cli.nest_list import show_listed


class ParameterCount(click.ParamType[int]):
    """`8B`, `600M`, or a plain number."""

    name = "COUNT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        from linnet.registry.listing import count_of

        found = value if isinstance(value, int) else count_of(str(value))
        if found is None:
            self.fail(f"{value!r} is no count of parameters, such as 600M or 8B.", param, ctx)
        return found


@click.command("search")
@click.argument("words", nargs=-1, metavar="[TEXT...]")
@click.option("--tag", "tags", multiple=True, help="Only packages with this tag; may be repeated.")
@click.option("--family", help="Only packages of this family.")
@click.option("--license", help="Only packages whose licence names this.")
@click.option("--min-parameters", type=ParameterCount(), help="Only models with at least so many, such as 600M.")
@click.option("--max-parameters", type=ParameterCount(), help="Only models with at most so many, such as 8B.")
@registry_option
@offline_option
@json_option
def command(
    words: tuple[str, ...],
    tags: tuple[str, ...],
    family: str | None,
    license: str | None,
    min_parameters: int | None,
    max_parameters: int | None,
    registry: str | None,
    offline: bool,
    as_json: bool,
) -> int:
    """Find packages by words of their name, title, summary, family and tags; all words must be there.

    Example: nest search attention --family qwen3 --max-parameters 8B
    """
    from linnet.registry.client import Client
    from linnet.registry.errors import nearest
    from linnet.registry.listing import Query, list_packages, search

    packages = list_packages(Client(registry, offline=offline or None), bundled=registry is None)
    found = search(packages, Query(words, tags, family, license, min_parameters, max_parameters))
    show_listed(found, as_json)
    if not found and not as_json:
        known = [item.name for item in packages]
        close = nearest(" ".join(words), known, alike=0.5) if words else None
        help = f"The nearest name is {close}." if close else "nest list shows all."
        click.echo(f"None of {len(packages)} packages is like that. {help}", err=True)
    return FINE
