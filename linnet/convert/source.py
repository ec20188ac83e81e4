"""What a conversion reads: a checkpoint of either form, as one interface."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from linnet.convert.config import Config
from linnet.convert.families import Design

# What weights may be rounded to.
DTYPES = ("bf16", "f16", "f32")
# Hands on names one by one, showing how far the work is.
Watch = Callable[[Sequence[str]], Iterable[str]]


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """What a package needs of a tokenizer.

    `json` is tokenizer.json's content; None where there is none, and `missing` says why. `bos` and `eos` are the texts
    of the tokens that begin and end a text.
    """

    json: Mapping[str, Any] | None
    chat_template: str | None
    bos: tuple[str, ...] = ()
    eos: tuple[str, ...] = ()
    missing: str = ""


class Source(Protocol):
    """A checkpoint that can become a package.

    `title`: the model's name for people; `license`: as the checkpoint gives it; `origin`: a paragraph on where the
    weights come from; `names`: every tensor, as transformers calls it.
    """

    title: str
    license: str | None
    config: Config
    tokenizer: Tokenizer

    @property
    def names(self) -> Collection[str]: ...

    def choose_dtype(self, design: Design, wanted: str | None) -> str:
        """The dtype that the package's weights are in. Raises ConvertError."""
        ...

    def origin(self, dtype: str) -> str: ...

    def write(self, folder: Path, design: Design, dtype: str, watch: Watch) -> tuple[str, ...]:
        """Write weights, config.json and tokenizer into `folder`, so that transformers loads it too.

        The result names the weight files. Raises ConvertError; OSError where it cannot be written.
        """
        ...
