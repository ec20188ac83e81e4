"""`nest run`: a text, or an answer, from a model."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from linnet.cli.codes import FINE
from linnet.cli.frame import quiet_option
from linnet.cli.model_options import model_options

if TYPE_CHECKING:
    from linnet.load_options import LoadOptions
    from linnet.runner.generate import Generation
    from linnet.runner.loaded import LoadedModel
    from linnet.runner.tokenizer import TextTokenizer

# A model may write what a terminal would obey; newlines and tabs are text.
_CONTROLS = {code: "\N{REPLACEMENT CHARACTER}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}
# Caches grow in steps, so that prompts of about one length find the same graphs.
_POSITIONS = 64


@click.command("run")
@click.argument("package", metavar="NAME")
@click.argument("prompt")
@click.option("--chat", "chat", flag_value=True, default=None, help="Put the prompt into the chat template.")
@click.option("--raw", "chat", flag_value=False, help="Go on from the prompt as it stands, though there is a template.")
@click.option("--system", metavar="TEXT", help="The system message, ahead of the prompt in the chat template.")
@click.option(
    "--max-new-tokens", type=click.IntRange(min=1), help="Stop after so many; by default 256, if the cache holds them."
)
@click.option(
    "--temperature",
    type=click.FloatRange(min=0),
    default=0.0,
    show_default=True,
    help="0 takes the likeliest token each time; above it tokens are drawn, the more freely the higher.",
)
@click.option("--top-k", type=click.IntRange(min=1), help="Draw among so many of the likeliest tokens.")
@click.option(
    "--top-p",
    type=click.FloatRange(min=0, max=1, min_open=True),
    help="Draw among the fewest tokens whose probabilities reach this sum.",
)
@click.option("--seed", type=click.IntRange(min=0, max=2**63 - 1), help="Draw the same tokens again under one seed.")
@click.option("--stop", multiple=True, metavar="TEXT", help="End before this text; may be repeated.")
@click.option("--stats", is_flag=True, help="Print the time to first token and tokens/s, though no terminal is there.")
@model_options
@quiet_option
def command(
    package: str,
    prompt: str,
    chat: bool | None,
    system: str | None,
    max_new_tokens: int | None,
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    seed: int | None,
    stop: tuple[str, ...],
    stats: bool,
    load: LoadOptions,
    quiet: bool,
) -> int:
    """Write what follows PROMPT; - reads it from stdin. Where the card names a chat template, PROMPT is put into it.

    NAME is a package's folder, org/name on the Hub, name[@version] of a registry, or one that ships here. What
    the model writes goes to stdout as it is made. On a terminal, the time it took is told on stderr.

    Example: nest run qwen3-8b-fp8 "What is the capital of France?"
    """
    from linnet import nest
    from linnet.registry.locate import find_package
    from linnet.runner.generate import decoder_vocabulary, prompt_ids

    # Once: what a name means may change between two questions.
    located = find_package(package, offline=load.offline, registry=load.registry)
    package, load = located.reference, load.but(registry=located.registry or load.registry)
    # Shapes tell whether the model generates at all, before a tokenizer is looked for or weights are fetched.
    decoder_vocabulary(nest.load(package, **load.shapes().arguments()))
    text = _stdin() if prompt == "-" else prompt
    tokenizer = nest.tokenizer(package, weights=load.weights, registry=load.registry, offline=load.offline)
    ids = prompt_ids(tokenizer, _prompt(tokenizer, text, chat, system))
    model = nest.load(package, **load.arguments())
    model.tokenizer_source = lambda: tokenizer
    _fit_cache(model, len(ids), max_new_tokens, load.generics or {})
    generation = model.generate(
        ids,
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
        stop=stop,
        stream=True,
    )
    _write(generation)
    if stats or (sys.stderr.isatty() and not quiet):
        click.echo(_stats(generation), err=True)
    return FINE


def _stdin() -> str:
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as error:
        message = f"stdin is not UTF-8: its byte {error.start} cannot be read; convert it first."
        raise click.BadParameter(message, param_hint="PROMPT") from None


def _prompt(tokenizer: TextTokenizer, text: str, chat: bool | None, system: str | None) -> Any:
    """The text itself, or a conversation that it begins."""
    if chat is None:
        chat = tokenizer.chat_template is not None or system is not None
    if not chat:
        if system is not None:
            raise click.UsageError("--system is a message of a conversation, and --raw asks for none: leave one out.")
        return text
    if not text:
        return ""
    first = [{"role": "system", "content": system}] if system is not None else []
    return [*first, {"role": "user", "content": text}]


def _fit_cache(model: LoadedModel, prompt: int, new: int | None, given: Mapping[str, int | str]) -> None:
    """Give the caches the rows and positions that this text needs, unless they were asked for."""
    from linnet.language.program.binding import BindError
    from linnet.runner.errors import WeightsError
    from linnet.runner.generate import new_tokens

    positions = int(model.generics["MaxSeq"])
    needed = prompt + new_tokens(prompt, new, positions)
    wanted = {"Batch": 1, "MaxSeq": min(positions, -(-needed // _POSITIONS) * _POSITIONS)}
    # A model may have a table of positions as long as its cache, or want other sizes: then they stay.
    with suppress(WeightsError, BindError):
        model.resize(**{name: value for name, value in wanted.items() if name not in given})


def _write(generation: Generation) -> None:
    terminal = sys.stdout.isatty()
    last = ""
    try:
        for piece in generation:
            last = piece.translate(_CONTROLS) if terminal else piece
            click.echo(last, nl=False)
            sys.stdout.flush()
    finally:
        if not last.endswith("\n"):
            click.echo()


def _stats(generation: Generation) -> str:
    from linnet.language.words import counted

    new, rest = len(generation.tokens), generation.seconds - generation.first_seconds
    speed = f", then {(new - 1) / rest:.1f} tokens/s" if new > 1 and rest > 0 else ""
    ends = {"eos": "the model ended", "stop": "a stop text came", "length": "the limit was reached"}
    return (
        f"{counted(len(generation.prompt), 'token')} read, {new} generated ({ends[generation.finish or 'length']}); "
        f"first token after {generation.first_seconds:.2f} s{speed}"
    )
