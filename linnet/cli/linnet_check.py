"""`linnet check`: do these files check?"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from linnet.cli.codes import FINE, PROBLEMS
from linnet.cli.frame import json_option, quiet_option


@click.command("check")
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option(
    "--format",
    "form",
    type=click.Choice(("text", "json", "sarif")),
    help="How problems are printed: as text, as JSON for scripts, or as SARIF for code hosts.",
)
@json_option
@quiet_option
@click.pass_context
def command(ctx: click.Context, paths: tuple[Path, ...], form: str | None, as_json: bool, quiet: bool) -> int:
    """Check Linnet files, and every file of the folders named.

    Errors and warnings are shown with their source line; a warning alone does not fail.

    Example: linnet check nests/qwen3-8b-fp8/src/lib.linnet
    """
    from linnet.language.check import load
    from linnet.language.diagnostics import Diagnostics, render, to_json
    from linnet.language.words import counted

    if as_json and form not in (None, "json"):
        raise click.UsageError(f"--json and --format {form} exclude each other; give one of them.")
    files = source_files(paths)
    for file in passed_over(paths) if not quiet else ():
        click.echo(f"{file} is not a plain file and was not checked.", err=True)
    found = Diagnostics()
    for file in files:
        found.extend(load(file).diagnostics)
    errors = sum(item.severity == "error" for item in found.items)
    if form == "sarif":
        from importlib.metadata import version

        from linnet.language.sarif import to_sarif

        sarif = to_sarif(found.items, [str(file) for file in files], version("linnet-nest"))
        click.echo(json.dumps(sarif, indent=2, ensure_ascii=False))
    elif as_json or form == "json":
        report = {
            "ok": errors == 0,
            "files": [str(file) for file in files],
            "diagnostics": [*map(to_json, found.items)],
        }
        click.echo(json.dumps(report, indent=2, ensure_ascii=False))
    else:
        colour = ctx.color is not False and sys.stdout.isatty()
        for item in found.items:
            click.echo(render(item, color=colour) + "\n")
        if not quiet:
            click.echo(f"{counted(len(files), 'file')} checked: {summary(errors, len(found.items) - errors)}.")
    return PROBLEMS if errors else FINE


def source_files(paths: tuple[Path, ...]) -> list[Path]:
    """The plain files named and those under the folders named, each once.

    A pipe would make its reader wait. Raises UsageError for one that is named, and for a folder without any file.
    """
    files: dict[Path, None] = {}
    for path in paths:
        if not path.is_dir() and not path.is_file():
            raise click.UsageError(f"{path} is not a plain file; name a file, or a folder that has some.")
        if path.is_file() and path.suffix != ".linnet":
            raise click.UsageError(f"{path} is not a .linnet file; name one, or a folder that has some.")
        found = sorted(path.rglob("*.linnet")) if path.is_dir() else [path]
        inside = [file for file in found if file.is_file()]
        if not inside:
            raise click.UsageError(f"{path} holds no .linnet file; name a file, or a folder that has some.")
        files.update(dict.fromkeys(inside))
    return list(files)


def passed_over(paths: tuple[Path, ...]) -> list[Path]:
    """What lies under the folders named and has a source's name, but is neither a plain file nor a folder."""
    found = {file for path in paths if path.is_dir() for file in path.rglob("*.linnet")}
    return sorted(file for file in found if not file.is_file() and not file.is_dir())


def summary(errors: int, warnings: int) -> str:
    """`no problem`, `1 error`, `2 errors and 1 warning`."""
    from linnet.language.words import counted

    parts = [counted(errors, "error")] if errors else []
    parts += [counted(warnings, "warning")] if warnings else []
    return " and ".join(parts) or "no problem"
