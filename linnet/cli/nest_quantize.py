"""`nest quantize`: a package with its projections in few bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from linnet.cli.codes import FINE
from linnet.cli.frame import offline_option, quiet_option, registry_option
from linnet.cli.output import progress


@click.command("quantize")
@click.argument("package", metavar="NAME")
@click.option(
    "--fp8-block",
    type=click.IntRange(min=1),
    metavar="N",
    help="Projections of the layers as E4M3 bytes, one scale for each block of N by N weights. FP8 kernels want 128.",
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), required=True, help="The folder of the new package, named as it."
)
@click.option(
    "--weights", type=click.Path(exists=True, path_type=Path), help="A folder with the weight files, or the one file."
)
@registry_option
@offline_option
@quiet_option
def command(
    package: str,
    fp8_block: int | None,
    output: Path,
    weights: Path | None,
    registry: str | None,
    offline: bool,
    quiet: bool,
) -> int:
    """Write a package anew with its weights in few bits: source, card, bindings and safetensors.

    NAME is a package's folder, org/name on the Hub, name[@version] of a registry, or one that ships here.

    Example: nest quantize qwen3-tiny --fp8-block 128 -o mine/qwen3-tiny-fp8
    """
    from linnet import nest

    if fp8_block is None:
        raise click.UsageError("Say how to quantise: --fp8-block 128.")
    watch = progress("quantising", quiet=quiet)
    places: dict[str, Any] = {"weights": weights, "registry": registry, "offline": offline or None}
    made = nest.quantize(package, output, fp8_block=fp8_block, watch=watch, **places)
    if not quiet:
        for line in made.lines():
            click.echo(line)
    return FINE
