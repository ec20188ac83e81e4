"""`linnet inspect`: what a source declares."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from linnet.cli.codes import FINE, PROBLEMS
from linnet.cli.frame import json_option
from linnet.cli.generic_options import given_generics, root_block
from linnet.cli.package_card import source_file

if TYPE_CHECKING:
    from linnet.language.program.checked import CheckedBlock
    from linnet.language.program.types import BlockType, GenericValue


@dataclass(frozen=True, slots=True)
class Parameter:
    """A weight as `--json` prints it. An axis is a number where its generics are bound, else the dimension's text."""

    path: str
    kind: str
    shape: list[int | str]
    dtype: str
    optional: bool


@click.command("inspect")
@click.argument("file", type=click.Path(exists=True, path_type=Path))
@click.option("--parameters", is_flag=True, help="List every weight of the root block, as it does by default.")
@click.option("--bind", "bindings", multiple=True, metavar="G=VALUE", help="Give a generic its value; may be repeated.")
@click.option("--root", metavar="BLOCK", help="The root block; by default the one that has entries.")
@json_option
def command(file: Path, parameters: bool, bindings: tuple[str, ...], root: str | None, as_json: bool) -> int:
    """List the weights that the root block of FILE, a source or a package's folder, reads, by path.

    Shapes are numbers where their generics are bound by --bind or have defaults, and text otherwise; an array of blocks
    whose length is not bound is written {i}.

    Example: linnet inspect --parameters --bind Layers=2 --bind H=64 src/lib.linnet
    """
    from linnet.language.check import load
    from linnet.language.diagnostics import render

    file = source_file(file)
    checked = load(file)
    if checked.program is None or not checked.ok:
        click.echo("\n\n".join(render(item) for item in checked.diagnostics), err=True)
        return PROBLEMS
    block = root_block(checked.program, root, file)
    given = given_generics(block.generics, block.name, bindings)
    if all(decl.name in given or decl.default is not None for decl in block.generics):
        from linnet.language.program.binding import bind

        # Values for every generic can break a `where`; this is what says so.
        bind(checked.program, block.name, given)
    found = list(block_parameters(block, given))
    if as_json:
        click.echo("[\n" + ",\n".join(json.dumps(asdict(item)) for item in found) + "\n]")
    else:
        width = max((len(item.path) for item in found), default=0)
        for item in found:
            shape = f"{item.dtype} [{', '.join(map(str, item.shape))}]"
            notes = [item.kind] * (item.kind != "param") + ["optional"] * item.optional
            click.echo(f"{item.path:{width}}  {shape}" + (f"  ({', '.join(notes)})" if notes else ""))
    return FINE


def block_parameters(block: CheckedBlock, given: Mapping[str, int | str]) -> Iterator[Parameter]:
    """Every param and buffer under `block`, in declaration order; `given` and defaults are put in for its generics."""
    from linnet.language.check.dims import Dim
    from linnet.language.check.substitute import substitute, substitute_value
    from linnet.language.program.types import BlockType

    mapping: dict[str, GenericValue] = {}
    for decl in block.generics:
        value = given.get(decl.name)
        if value is not None:
            mapping[decl.name] = Dim.of(value) if isinstance(value, int) else value
        elif decl.default is not None:
            mapping[decl.name] = substitute_value(decl.default, mapping)
    instance = substitute(block.self_type(), mapping)
    assert isinstance(instance, BlockType)
    yield from _walk(instance, "", optional=False)


def _walk(instance: BlockType, prefix: str, optional: bool) -> Iterator[Parameter]:
    from linnet.language.check.dims import Dim
    from linnet.language.check.substitute import substitute
    from linnet.language.program.types import BlockArrayType, BlockType, OptionalType, TensorType

    names = [decl.name for decl in instance.block.generics]
    mapping = dict(zip(names, instance.args, strict=True))
    for member in instance.block.members.values():
        declared, path = substitute(member.type, mapping), prefix + member.name
        absent = optional or isinstance(declared, OptionalType)
        if isinstance(declared, OptionalType):
            declared = declared.inner
        match declared:
            case TensorType() if member.kind in ("param", "buffer"):
                shape = [size.constant if isinstance(size, Dim) and size.constant is not None else str(size)
                         for size in declared.shape]  # fmt: skip
                yield Parameter(path, member.kind, shape, str(declared.dtype), absent)
            case BlockType():
                yield from _walk(declared, f"{path}.", absent)
            case BlockArrayType():
                count = declared.count.constant
                for position in ["{i}"] if count is None else range(count):
                    yield from _walk(declared.inner, f"{path}.{position}.", absent)
