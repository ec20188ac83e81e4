"""What a package's card says of text, in the runner's terms."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from linnet.registry.card import Card
    from linnet.runner.tokenizer import TextTokenizer


def open_tokenizer(package: Path, card: Card, weights: Path | None, offline: bool | None) -> TextTokenizer:
    """The tokenizer of the card of the folder `package`, with its chat template and end tokens.

    `weights` is where the weights of this load are taken from, if not from where the card says: a tokenizer that lies
    there is theirs. Raises RegistryError for its files, TokenizerError and ChatError for what they hold.
    """
    from linnet.nest import require_torch
    from linnet.registry.tokenizer_files import fetch_tokenizer
    from linnet.runner.chat import read_chat_template
    from linnet.runner.tokenizer import TextTokenizer

    folder = weights.parent if weights is not None and weights.is_file() else weights
    files = fetch_tokenizer(package, card, folder, offline=offline)
    require_torch("tokenizers")
    template = read_chat_template(files.chat_template) if files.chat_template is not None else None
    assert card.tokenizer is not None
    return TextTokenizer(files.file, chat_template=template, bos=card.tokenizer.bos, eos=card.tokenizer.eos)
