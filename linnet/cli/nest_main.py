"""`nest`: packages, their checks, index, pages and models."""

from __future__ import annotations

from typing import NoReturn

import click

from linnet.cli.frame import LazyGroup, run

COMMANDS = {
    "check": "linnet.cli.nest_check",
    "index": "linnet.cli.nest_index",
    "list": "linnet.cli.nest_list",
    "search": "linnet.cli.nest_search",
    "show": "linnet.cli.nest_show",
    "pull": "linnet.cli.nest_pull",
    "verify": "linnet.cli.nest_verify",
    "site": "linnet.cli.nest_site",
    "convert": "linnet.cli.nest_convert",
    "quantize": "linnet.cli.nest_quantize",
    "run": "linnet.cli.nest_run",
    "eval": "linnet.cli.nest_eval",
    "bench": "linnet.cli.nest_bench",
    "parity": "linnet.cli.nest_parity",
    "gate": "linnet.cli.nest_gate",
    "publish": "linnet.cli.nest_publish",
    "yank": "linnet.cli.nest_yank",
    "unyank": "linnet.cli.nest_unyank",
    "alias": "linnet.cli.nest_alias",
    "status": "linnet.cli.nest_status",
    "prune": "linnet.cli.nest_prune",
    "push": "linnet.cli.nest_push",
    "demo": "linnet.cli.nest_demo",
}


@click.group(cls=LazyGroup, modules=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="linnet-nest", prog_name="nest")
def nest() -> None:
    """Nest, a registry of models written in Linnet.

    Exit codes: 0 fine, 1 problems found, 2 wrong usage, 3 could not be done.

    Example: nest check nests/qwen3-8b-fp8
    """


def main() -> NoReturn:
    run(nest)
