"""Options of commands that load a model: those of `nest.load`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from linnet.cli.frame import Command, offline_option, registry_option
from linnet.load_options import LoadOptions

BACKENDS = ("torch", "mlx")
NUMERICS = ("exact", "equivalent", "fast", "engine")
DTYPES = ("f16", "bf16", "f32", "f64")
COMPILE: dict[str, bool | str] = {
    "off": False,
    "on": True,
    "inductor": "inductor",
    "reduce-overhead": "reduce-overhead",
}
FP8 = ("stream", "decoded")


class GenericValue(click.ParamType[tuple[str, int | str]]):
    """`G=VALUE`, a generic of the root block and its value."""

    name = "G=VALUE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int | str]:
        from linnet.language.program import types

        if isinstance(value, tuple):
            return value
        name, equals, text = str(value).partition("=")
        if not equals or not name:
            self.fail(f"{value!r} is not of the form G=VALUE, such as MaxSeq=4096.", param, ctx)
        if text in types.DTYPES:
            return name, text
        if text.isascii() and text.isdigit() and len(text) <= 18:
            return name, int(text)
        self.fail(
            f"{name} is {text!r}, which is neither a number, such as 4096, nor a dtype, such as bf16.", param, ctx
        )


weights_option = click.option(
    "--weights",
    type=click.Path(exists=True, path_type=Path),
    help="A folder that holds the weight files, or the one file, used instead of the Hub.",
)
generics_option = click.option(
    "--generic",
    "generics",
    type=GenericValue(),
    multiple=True,
    metavar="G=VALUE",
    help="Another value for a generic of the card, such as MaxSeq=4096; may be repeated.",
)

_OPTIONS = (
    weights_option,
    generics_option,
    click.option(
        "--backend", type=click.Choice(BACKENDS), default="torch", show_default=True, help="The engine that runs it."
    ),
    click.option(
        "--numerics",
        type=click.Choice(NUMERICS),
        default="equivalent",
        show_default=True,
        help="Which kernels run: ops by their definitions, those that keep the accumulation, the fastest, an engine's.",
    ),
    click.option(
        "--compile", "compiled", type=click.Choice(tuple(COMPILE)), help="How entries run; by default the best."
    ),
    click.option(
        "--fp8", type=click.Choice(FP8), help="How fast multiplies by FP8 weights; by default by free memory."
    ),
    click.option(
        "--device", help="A device of the engine's, such as cpu or cuda:1; by default the GPU where there is one."
    ),
    click.option("--dtype", type=click.Choice(DTYPES), help="Convert floating weights as they load, and run in that."),
    registry_option,
    offline_option,
)


def model_options(command: Command) -> Command:
    """The options of `nest.load`, collected into the one argument `load`, a LoadOptions."""

    @functools.wraps(command)
    def collected(*words: Any, **named: Any) -> Any:
        names = ("backend", "weights", "numerics", "device", "dtype", "fp8", "registry")
        given = {name: named.pop(name) for name in names}
        compiled = named.pop("compiled")
        load = LoadOptions(
            **given,
            generics=dict(named.pop("generics")) or None,
            offline=True if named.pop("offline") else None,
            compile=COMPILE[compiled] if compiled is not None else None,
        )
        return command(*words, load=load, **named)

    decorated: Callable[..., Any] = collected
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated  # type: ignore[return-value]
