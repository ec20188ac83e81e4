"""What `nest` and `linnet` share: commands loaded when they are used, exit codes, errors shown as sentences."""

from __future__ import annotations

import difflib
import gc
import importlib
import io
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn, TypeVar, cast

import click

from linnet.cli.codes import FINE, INTERRUPTED
from linnet.cli.errors import describe

Command = TypeVar("Command", bound=Callable[..., Any])


class LazyGroup(click.Group):
    """A group whose commands are named by module, so that one command's imports are never paid for by another.

    `modules` maps a command's name to the module whose `command` it is.
    """

    def __init__(self, *, modules: Mapping[str, str], **settings: Any) -> None:
        super().__init__(**settings)
        self.modules = dict(modules)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.modules:
            return None
        return cast(click.Command, importlib.import_module(self.modules[cmd_name]).command)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in self.modules and not name.startswith("-"):
            close = difflib.get_close_matches(name, self.modules, n=1)
            help = f"Did you mean {close[0]}?" if close else f"Commands are {', '.join(self.modules)}."
            raise click.UsageError(f"There is no command {name!r}. {help}", ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # The reader of the output has gone, as `head` does: nothing is wrong then, and click would say 1.
            _close_pipe()
            return FINE


def run(group: click.Group) -> NoReturn:
    """Run a command line and exit: 0 fine, 1 problems found, 2 wrong usage, 3 could not be done.

    No traceback reaches the user; `LINNET_DEBUG=1` prints it before the sentence.
    """
    # Trees and programs live until the process ends: looking through them for garbage again and again takes a sixth of
    # a check's time and finds none. At the end, looking through torch's modules would take half a second.
    gc.set_threshold(200_000, 50, 100)
    for stream in (sys.stdout, sys.stderr):
        # A file may have a name that is no text, and a terminal an encoding without the marks that messages use.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    warnings.showwarning = _show_warning
    code = exit_code(group)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _close_pipe()
    gc.freeze()
    sys.exit(code)


def exit_code(group: click.Group) -> int:
    colour = False if os.environ.get("NO_COLOR") else None
    if not sys.stderr.isatty():
        _silence_downloads()
    try:
        done = group.main(standalone_mode=False, color=colour)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        click.echo("Interrupted.", err=True)
        return INTERRUPTED
    except Exception as error:
        if os.environ.get("LINNET_DEBUG") == "1":
            traceback.print_exc()
        wording = describe(error)
        click.echo(click.style("Error: ", fg="red") + wording.text, err=True, color=colour)
        return wording.code
    return done if isinstance(done, int) else FINE


def _close_pipe() -> None:
    # Python would write what is left in its buffer when it ends, and complain.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _silence_downloads() -> None:
    # The Hub's client reads this once, when it is first imported; commands import it late.
    os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"


def _quiet(ctx: click.Context, option: click.Parameter, quiet: bool) -> bool:
    if quiet:
        _silence_downloads()
    return quiet


# What has been said: a command that looks a package up again has nothing new to warn of.
_warned: set[str] = set()


def _show_warning(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
    """A warning of ours as a sentence, once; others as Python shows them."""
    if category.__module__.partition(".")[0] == "linnet":
        if str(message) in _warned:
            return
        _warned.add(str(message))
        click.echo(click.style("Warning: ", fg="yellow") + str(message), err=True)
    else:
        sys.stderr.write(warnings.formatwarning(message, category, *place[:2]))


quiet_option = click.option(
    "--quiet",
    is_flag=True,
    callback=_quiet,
    help="Print only what was asked for: no progress, no closing remarks.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
registry_option = click.option(
    "--registry",
    metavar="URL",
    help="Where names are looked up, instead of LINNET_REGISTRY: a folder or an address; several with commas.",
)
offline_option = click.option(
    "--offline", is_flag=True, help="Ask nothing over the network: everything must be on this machine."
)
nests_option = click.option(
    "--nests",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The folder of packages; by default those that ship with this distribution.",
)


def output_option(default: str, help: str, *, folder: bool = False) -> Callable[[Command], Command]:
    """`-o`, `--output`: the file that a command writes, or the folder."""
    kind = click.Path(file_okay=not folder, dir_okay=folder, path_type=Path)
    return click.option("-o", "--output", type=kind, default=default, show_default=True, help=help)
