"""The card beside a source: which package a file is the source of, if any."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from linnet.registry.card import Card


def card_of(file: Path) -> tuple[Path, Card] | None:
    """The nearest folder above `file` that has a `nest.toml`, and its card. Raises RegistryError for a bad card."""
    from linnet.registry.card import read_card
    from linnet.registry.package import CARD_NAME

    for folder in file.resolve().parents:
        if (folder / CARD_NAME).is_file():
            return folder, read_card(folder, folder_name=False)
    return None


def source_file(path: Path) -> Path:
    """The source that `path` names: the file itself, or of a package's folder what its card names, else src/lib.linnet.

    Raises UsageError for a folder that has none, RegistryError for a bad card.
    """
    from linnet.registry.card import read_card
    from linnet.registry.package import CARD_NAME

    if not path.is_dir():
        return path
    if (path / CARD_NAME).is_file():
        return path / read_card(path, folder_name=False).source.path
    library = path / "src" / "lib.linnet"
    if not library.is_file():
        raise click.UsageError(f"{path} holds neither a {CARD_NAME} nor src/lib.linnet; name a source file.")
    return library


def is_source(file: Path, folder: Path, card: Card) -> bool:
    """Whether `file` is the one that the card of `folder` names."""
    return (folder / card.source.path).resolve() == file.resolve()
