"""The card beside a source: which package a file is the source of, if any."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

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


def is_source(file: Path, folder: Path, card: Card) -> bool:
    """Whether `file` is the one that the card of `folder` names."""
    return (folder / card.source.path).resolve() == file.resolve()
