"""`linnet fmt`: files in canonical style."""

from __future__ import annotations

import difflib
import os
import shutil
import sys
import tempfile
from pathlib import Path

import click

from linnet.cli.codes import FINE, PROBLEMS
from linnet.cli.frame import quiet_option
from linnet.cli.linnet_check import source_files


@click.command("fmt")
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option(
    "--check", is_flag=True, help="Write nothing; list the files that would change, and fail if there are any."
)
@click.option("--diff", is_flag=True, help="Write nothing; show what would change, and fail if anything would.")
@quiet_option
@click.pass_context
def command(ctx: click.Context, paths: tuple[Path, ...], check: bool, diff: bool, quiet: bool) -> int:
    """Rewrite Linnet files, and every file of the folders named, in canonical style.

    Comments and empty lines stay, and a file never comes to say something else. A file with syntax errors is left as it
    is and its errors are shown.

    Example: linnet fmt --check nests
    """
    from linnet.language.diagnostics import Diagnostics, render
    from linnet.language.source import read_source
    from linnet.language.syntax.formatter import format_source
    from linnet.language.words import counted

    found = Diagnostics()
    changed = 0
    files = source_files(paths)
    for file in files:
        source = read_source(file, str(file))
        text = format_source(source, found)
        if text is None or text == source.text:
            continue
        changed += 1
        if diff:
            click.echo(_difference(str(file), source.text, text), nl=False)
        elif check:
            click.echo(str(file))
        else:
            _replace(file, text)
    colour = ctx.color is not False and sys.stdout.isatty()
    for item in found.items:
        click.echo(render(item, color=colour) + "\n")
    broken = len({item.span.source.name for item in found.items})
    dry = check or diff
    if not quiet:
        done = f"{counted(changed, 'file')} {'would change' if dry else 'changed'}"
        left = f", {counted(broken, 'file')} left alone for syntax errors" if broken else ""
        click.echo(f"{done}, {len(files) - changed - broken} in style{left}.")
    return PROBLEMS if broken or (dry and changed) else FINE


def _difference(name: str, before: str, after: str) -> str:
    """A unified diff. Only `\\n` ends a line in it, and a last line without one is marked as patch expects it."""
    lines = difflib.unified_diff(_lines(before), _lines(after), f"a/{name}", f"b/{name}")
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _lines(text: str) -> list[str]:
    *whole, last = text.split("\n")
    return [f"{line}\n" for line in whole] + ([last] if last else [])


def _replace(file: Path, text: str) -> None:
    """Writes a file whole or not at all, keeping its mode; a link stays one."""
    target = file.resolve()
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(text.encode())
        shutil.copymode(target, name)
        os.replace(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
