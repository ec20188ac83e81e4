"""What `--root` and `--bind` name: a source's root block and its generics' values."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from linnet.language.program.checked import CheckedBlock, GenericDecl, Program


def root_block(program: Program, name: str | None, file: Path) -> CheckedBlock:
    """The block that `--root` names, else the one that has entries. Raises BadParameter and UsageError."""
    blocks = program.root.blocks
    if name is not None:
        if name not in blocks:
            known = ", ".join(blocks) or "none"
            raise click.BadParameter(f"{file} has no block {name}; its blocks: {known}.", param_hint="--root")
        return blocks[name]
    candidates = program.blocks_with_entries()
    if len(candidates) != 1:
        listed = ", ".join(block.name for block in candidates or blocks.values()) or "none"
        count = "several blocks that have" if candidates else "no block that has"
        raise click.UsageError(f"{file} has {count} entries: name the root with --root; its blocks: {listed}.")
    return candidates[0]


def given_generics(decls: Sequence[GenericDecl], owner: str, bindings: tuple[str, ...]) -> dict[str, int | str]:
    """The values of `--bind G=VALUE`, where `decls` are the generics of `owner`. Raises BadParameter."""
    from linnet.language.program.types import DTYPES

    given: dict[str, int | str] = {}
    names = [decl.name for decl in decls]
    for text in bindings:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{text!r} is not of the form G=VALUE, such as H=64.", param_hint="--bind")
        if name not in names:
            known = ", ".join(names) or "none"
            raise click.BadParameter(f"{owner} has no generic {name}; its generics: {known}.", param_hint="--bind")
        if value in DTYPES:
            given[name] = value
        elif value.isascii() and value.isdigit() and len(value) <= 18:
            given[name] = int(value)
        else:
            raise click.BadParameter(
                f"{name} is {value!r}, which is neither a number, such as 64, nor a dtype, such as bf16.",
                param_hint="--bind",
            )
    return given
