"""`nest parity`: one package on two engines, side by side."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from linnet.cli.codes import FINE, PROBLEMS
from linnet.cli.frame import json_option, offline_option, quiet_option, registry_option
from linnet.cli.model_options import NUMERICS, generics_option, weights_option
from linnet.cli.output import progress, table

if TYPE_CHECKING:
    from linnet.parity import ParityReport
    from linnet.runner.parity import Difference


@click.command("parity")
@click.argument("package", metavar="NAME")
@click.option(
    "--backends", default="torch,mlx", show_default=True, metavar="A,B", help="The engines; the first is the reference."
)
@click.option(
    "--devices",
    default="cpu,cpu",
    show_default=True,
    metavar="A,B",
    help="Where each engine runs, such as cpu,gpu; the CPU is where engine gives the same bits on both.",
)
@click.option(
    "--numerics", type=click.Choice(NUMERICS), default="engine", show_default=True, help="Which kernels run, on both."
)
@click.option("--dtype", type=click.Choice(("f32", "bf16")), default="f32", show_default=True, help="What both run in.")
@click.option("--prompt", metavar="TEXT", help="The text that is read first; by default 32 ids that are drawn.")
@click.option(
    "--steps", type=click.IntRange(min=1), default=64, show_default=True, help="Tokens that are decoded after it."
)
@click.option(
    "--tolerance",
    type=click.FloatRange(min=0),
    help="What the largest difference may be; by default 1e-4 in f32, and in bf16 the smaller distance of the two "
    "from f32 (the root of the sum of both squares where numerics is not engine).",
)
@weights_option
@generics_option
@registry_option
@offline_option
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write the JSON to a file as well."
)
@json_option
@quiet_option
def command(
    package: str,
    backends: str,
    devices: str,
    prompt: str | None,
    steps: int,
    tolerance: float | None,
    generics: tuple[tuple[str, int | str], ...],
    output: Path | None,
    as_json: bool,
    quiet: bool,
    offline: bool,
    **load: Any,
) -> int:
    """Run a package on two engines with the same weights and tokens, and tell how far apart they are.

    NAME is a package's folder, org/name on the Hub, name[@version] of a registry, or one that ships here.
    A prompt is read, then tokens are decoded, the likeliest to the first engine; compared are all logits, the likeliest
    tokens, and what each layer gives. A package that decodes nothing runs the card's entry once.

    Exit codes: 1 where the largest difference is beyond the tolerance.

    Example: nest parity qwen3-tiny --backends torch,mlx --dtype bf16
    """
    from linnet import nest
    from linnet.registry.index import write_text

    if output is not None and not output.parent.is_dir():
        # The comparison takes minutes: what it could not be written to is told before.
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(output))
    report = nest.parity(
        package,
        backends=_names(backends),
        devices=_names(devices),
        prompt=prompt,
        steps=steps,
        tolerance=tolerance,
        watch=progress("comparing", quiet=quiet),
        generics=dict(generics) or None,
        offline=True if offline else None,
        **load,
    )
    document = json.dumps(report.to_dict(), indent=1, ensure_ascii=False)
    if output is not None:
        write_text(document + "\n", output)
    if as_json:
        click.echo(document)
    else:
        for line in report_lines(report):
            click.echo(line)
    return FINE if report.ok else PROBLEMS


def _names(text: str) -> tuple[str, ...]:
    """The parts of a list with commas."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def report_lines(report: ParityReport) -> Iterator[str]:
    """A report as a person reads it: the verdict, what was compared, and the layers."""
    verdict = "within" if report.ok else "beyond"
    title = f"{report.package}: {' and '.join(report.backends)} are {verdict} the tolerance of {report.tolerance:.3g}"
    yield click.style(title, bold=True, fg=None if report.ok else "red")
    dtypes = ", ".join(f"{name} = {value}" for name, value in report.dtypes.items())
    rows = [
        ("largest difference", _told(report.output)),
        ("run", f"entry {' and '.join(report.entries)}, {report.numerics}, {dtypes}"),
    ]
    if report.steps:
        first = report.first_other_token
        same = f"the same {report.steps + 1}" if first is None else f"another one at {first} of {report.steps}"
        rows.insert(1, ("likeliest tokens", f"{same}, after {report.prompt_tokens} of prompt"))
    if report.from_f32 is not None:
        for backend, apart in zip(report.backends, report.from_f32, strict=True):
            rows.append((f"{backend} from f32", _told(apart)))
    yield from (f"  {line}" for line in table(rows))
    if report.layers:
        head = ("layer", "largest", "mean", "magnitude")
        layers = [(layer.name, *_numbers(layer.difference)) for layer in report.layers]
        yield from (f"  {line}" for line in table([head, *layers]))


def _told(apart: Difference) -> str:
    largest, mean, magnitude = _numbers(apart)
    return f"{largest} (mean {mean}, in numbers up to {magnitude})"


def _numbers(apart: Difference) -> tuple[str, str, str]:
    return f"{apart.largest:.3g}", f"{apart.mean:.3g}", f"{apart.magnitude:.3g}"
