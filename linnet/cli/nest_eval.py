"""`nest eval`: a model's perplexity over a text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from linnet.cli.codes import FINE
from linnet.cli.frame import json_option, quiet_option
from linnet.cli.model_options import model_options
from linnet.cli.output import progress, table

if TYPE_CHECKING:
    from linnet.evaluation import Evaluation
    from linnet.load_options import LoadOptions


@click.command("eval")
@click.argument("package", metavar="NAME")
@click.option("--text", type=click.Path(path_type=Path), help="A UTF-8 file to measure on.")
@click.option("--dataset", help="A dataset to measure on, by name: wikitext-2.")
@click.option("--split", help="Its split; test by default.")
@click.option(
    "--window", type=click.IntRange(min=2), help="Tokens that are read at once; by default the card's, or 1024."
)
@click.option(
    "--stride", type=click.IntRange(min=1), help="Tokens from one window to the next; by default half a window."
)
@click.option("--limit-tokens", type=click.IntRange(min=2), help="Measure on the first so many tokens only.")
@click.option("--batch", type=click.IntRange(min=1), default=1, show_default=True, help="Windows that are run at once.")
@model_options
@json_option
@quiet_option
def command(
    package: str,
    text: Path | None,
    dataset: str | None,
    split: str | None,
    window: int | None,
    stride: int | None,
    limit_tokens: int | None,
    batch: int,
    load: LoadOptions,
    as_json: bool,
    quiet: bool,
) -> int:
    """Measure a model's perplexity over a text, by windows that overlap, and state the protocol.

    NAME is a package's folder, org/name on the Hub, name[@version] of a registry, or one that ships here. Without
    --text or --dataset the text is the one that the card's [bench] names.

    Example: nest eval qwen3-8b-fp8 --dataset wikitext-2
    """
    from linnet import nest

    found = nest.evaluate(
        package,
        text=text,
        dataset=dataset,
        split=split,
        window=window,
        stride=stride,
        limit_tokens=limit_tokens,
        batch=batch,
        watch=progress("measuring", quiet=quiet),
        **load.arguments(),
    )
    if as_json:
        click.echo(json.dumps(found.to_dict(), indent=1, ensure_ascii=False))
        return FINE
    for line in report_lines(found):
        click.echo(line)
    return FINE


def report_lines(found: Evaluation) -> list[str]:
    """A result as a person reads it: the figure, then what it was measured with."""
    result, protocol = found.result, found.protocol
    error = f" +- {result.error:.3f}" if result.error is not None else ""
    lines = [click.style(f"{found.package}: perplexity {result.perplexity:.3f}{error}", bold=True)]
    text, tokenizer, weights = protocol["text"], protocol["tokenizer"], protocol["weights"]
    place = f"{text['dataset']} {text['split']}, {text['repo']} at {text['revision']}" if "dataset" in text else ""
    pinned = f" of {tokenizer['repo']} at {tokenizer['revision']}" if tokenizer["repo"] else ""
    source = weights.get("given") or (
        f"{weights['repo']} at {weights['revision']}" if weights.get("repo") else "beside the card"
    )
    dtypes = ", ".join(f"{name} = {value}" for name, value in protocol["dtypes"].items())
    compiled = {True: "on", False: "off"}.get(protocol["compile"], protocol["compile"])
    fp8 = [f"fp8 {protocol['fp8']}"] if protocol["fp8"] else []
    ran = [protocol["backend"], protocol["numerics"], f"compile {compiled}", *fp8]
    rows = [
        ("text", place or text["file"]),
        ("sha256", text["sha256"]),
        ("tokenizer", f"{tokenizer['file']}{pinned}"),
        ("weights", f"{source} (given, not the card's)" if "given" in weights else source),
        ("windows", f"{result.windows:,} of {protocol['window']} tokens, stride {protocol['stride']}"),
        ("scored", f"{result.tokens:,} of {text['tokens']:,} tokens, {result.nll:.5f} nats each"),
        ("run", f"entry {protocol['entry']}, batch {protocol['batch']}, {dtypes}, {', '.join(ran)}"),
        ("took", f"{result.seconds:.1f} s on {protocol['device']}, {result.tokens / result.seconds:,.0f} tokens/s"),
    ]
    return [*lines, *(f"  {line}" for line in table(rows))]
