"""`nest index`: one JSON file that describes every package of a folder."""

from __future__ import annotations

import click

from linnet.cli.frame import LazyGroup


class DefaultBuild(LazyGroup):
    """`nest index nests` means `nest index build nests`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        helps = {name for name in ctx.help_option_names if name in args}
        if not args or (args[0] not in self.modules and not (helps and args[0].startswith("-"))):
            args = ["build", *args]
        return super().parse_args(ctx, args)


@click.group(
    "index",
    cls=DefaultBuild,
    modules={
        "build": "linnet.cli.nest_index_build",
        "rebuild": "linnet.cli.nest_index_rebuild",
        "sign": "linnet.cli.nest_index_sign",
        "trust": "linnet.cli.nest_index_trust",
    },
)
def command() -> None:
    """Describe every package of a folder in one file: nest index DIR is short for nest index build DIR.

    Example: nest index nests
    """
