"""`nest convert`: a checkpoint of another form as a package."""

from __future__ import annotations

from pathlib import Path

import click

from linnet.cli.codes import FINE
from linnet.cli.frame import quiet_option
from linnet.cli.output import progress


@click.command("convert")
@click.argument("source", type=click.Path(exists=True, path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    required=True,
    help="The folder of the package, which names it. It must not be there yet, or be empty.",
)
@click.option(
    "--dtype",
    type=click.Choice(("bf16", "f16", "f32")),
    help="What the weights are rounded to: by default bf16 for GGUF, and what they are stored in for a folder.",
)
@quiet_option
def command(source: Path, output: Path, dtype: str | None, quiet: bool) -> int:
    """Make a package of a GGUF file, or of a local folder that transformers can load.

    The models known are those of the Llama, Mistral, Qwen2, Qwen3 (also in FP8) and GPT-2 families. The package holds
    the weights under transformers' names, so that transformers loads it too.

    Example: nest convert SmolLM2-135M-Instruct.Q4_1.gguf -o smollm2-q4
    """
    from linnet import nest

    done = nest.convert(source, output, dtype=dtype, watch=progress("converting", quiet=quiet))
    if not quiet:
        for line in done.lines():
            click.echo(line)
        click.echo(f"Check it: nest check {output}")
    return FINE
