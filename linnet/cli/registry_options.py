"""Options of commands that write to a registry, and how their progress is told."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from linnet.registry.records import EventRecord

target_option = click.option(
    "--registry",
    metavar="URL",
    help="The registry: a folder, hf://org/repo, s3://bucket/prefix; by default the first that LINNET_REGISTRY names, "
    "else a folder of yours.",
)


def telling(*, quiet: bool) -> Callable[[str], None]:
    """A function that tells each step on stderr, where that is a terminal."""

    def say(step: str) -> None:
        if not quiet and sys.stderr.isatty():
            click.echo(f"{step} ...", err=True)

    return say


def versioned(ctx: click.Context, param: click.Parameter, value: str) -> tuple[str, str]:
    """`NAME@WORD`, both parts there."""
    name, _, word = value.partition("@")
    if not name or not word:
        raise click.BadParameter(f"{value!r} is not of the form {param.make_metavar(ctx)}.", ctx, param)
    return name, word


def tell_event(event: EventRecord | None, said: str, registry: str, *, quiet: bool) -> None:
    """What an event changed; None where it was so before."""
    if not quiet:
        click.echo(f"{said}, in {registry}." if event is not None else f"{said} in {registry} already: nothing to do.")
