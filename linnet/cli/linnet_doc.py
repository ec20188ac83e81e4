"""`linnet doc`: the reference of modules, as Markdown."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from linnet.cli.codes import FINE, PROBLEMS
from linnet.cli.frame import quiet_option

if TYPE_CHECKING:
    from linnet.language.document import DocumentedModule


@click.command("doc")
@click.argument("paths", nargs=-1, type=click.Path(exists=True, path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    help="The folder to write; docs/std for the standard library, reference for other modules.",
)
@click.option("--check", is_flag=True, help="Write nothing; exit 1 where the pages on disk are out of date.")
@quiet_option
@click.pass_context
def command(ctx: click.Context, paths: tuple[Path, ...], output: Path | None, check: bool, quiet: bool) -> int:
    """Write the reference of Linnet files, or of the standard library where none is named.

    Each module gets a page of Markdown: its public items with signatures, shapes, documentation comments and links to
    their source. Pages of modules that are gone are removed; other files in the folder are left alone.

    Example: linnet doc -o docs/std
    """
    from linnet.cli.linnet_check import source_files
    from linnet.language.check.modules import STD_ROOT
    from linnet.language.diagnostics import Diagnostics, render
    from linnet.language.document import DocumentError, read_module, reference
    from linnet.language.words import counted

    folder = output or Path("reference" if paths else "docs/std")
    # The standard library's files are called what they are called in its repository.
    home = Path() if paths else STD_ROOT.parents[1]
    files = source_files(paths or (STD_ROOT,))
    found = Diagnostics()
    named = {(file if paths else file.relative_to(home)).as_posix(): file for file in files}
    modules = [read_module(path, file, found) for file, path in named.items()]
    if found.has_errors:
        colour = ctx.color is not False and sys.stdout.isatty()
        for item in found.items:
            click.echo(render(item, color=colour) + "\n")
        return PROBLEMS

    def link(module: DocumentedModule) -> str:
        return Path(os.path.relpath(named[module.file], folder)).as_posix()

    try:
        pages = reference((module for module in modules if module), "Reference" if paths else "Standard library", link)
    except DocumentError as error:
        raise click.UsageError(f"{error}.") from error
    stale = stale_pages(folder, pages)
    if check:
        for name, state in stale.items():
            click.echo(f"{folder / name}: {state}")
        if stale:
            again = " ".join(["linnet doc", *(["-o", str(output)] if output else []), *map(str, paths)])
            click.echo(f"{counted(len(stale), 'page')} out of date; `{again}` writes them anew.")
        return PROBLEMS if stale else FINE
    folder.mkdir(parents=True, exist_ok=True)
    for name in stale:
        if name in pages:
            write_page(folder / name, pages[name])
        else:
            (folder / name).unlink()
    if not quiet:
        click.echo(f"{folder}: {counted(len(pages), 'page')}, {len(stale)} changed.")
    return FINE


def stale_pages(folder: Path, pages: dict[str, str]) -> dict[str, str]:
    """File name -> what is wrong with it. A page that `linnet doc` wrote and that `pages` lacks is left over."""
    from linnet.language.document import MARK

    states = {}
    for name, text in pages.items():
        file = folder / name
        if not file.is_file():
            states[name] = "missing"
        elif file.read_bytes() != text.encode():
            states[name] = "differs from its source"
    for file in sorted(folder.glob("*.md")):
        if file.name not in pages and file.read_bytes().startswith(MARK.encode()):
            states[file.name] = "left over: its module is gone"
    return states


def write_page(path: Path, text: str) -> None:
    """Write a page, whole or not at all. Raises OSError."""
    ready = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        ready.write_text(text, encoding="utf-8", newline="\n")
        os.replace(ready, path)
    finally:
        ready.unlink(missing_ok=True)
