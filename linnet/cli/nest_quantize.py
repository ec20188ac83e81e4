"""`nest quantize`: a package with its weights in few bits."""

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
    "--mlx-bits",
    type=click.Choice(("4", "8")),
    help="Dense layers and embeddings as numbers of so many bits, in MLX's layout.",
)
@click.option(
    "--group",
    type=click.Choice(("32", "64", "128")),
    help="With --mlx-bits: the weights that share a scale and a bias; by default 64.",
)
@click.option(
    "--keep",
    metavar="PATHS",
    help="With --mlx-bits: blocks or parameters that stay as they are, with commas: lm_head,embedding.",
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
    mlx_bits: str | None,
    group: str | None,
    keep: str | None,
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

    if fp8_block is None and mlx_bits is None:
        raise click.UsageError("Say how to quantise: --fp8-block 128, or --mlx-bits 4.")
    if fp8_block is not None and mlx_bits is not None:
        raise click.UsageError("--fp8-block and --mlx-bits are two forms of weights: give one of them.")
    if mlx_bits is None and (group is not None or keep is not None):
        raise click.UsageError("--group and --keep belong to --mlx-bits: give it too, or leave them out.")
    watch = progress("quantising", quiet=quiet)
    places: dict[str, Any] = {"weights": weights, "registry": registry, "offline": offline or None}
    form: dict[str, Any] = {"fp8_block": fp8_block}
    if mlx_bits is not None:
        kept = [name.strip() for name in keep.split(",") if name.strip()] if keep is not None else []
        form = {"mlx_bits": int(mlx_bits), "group": int(group or 64), "keep": kept}
    made = nest.quantize(package, output, watch=watch, **form, **places)
    if not quiet:
        for line in made.lines():
            click.echo(line)
    return FINE
