"""A card as text: what `parse_card` reads back as the same card."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from linnet.registry.card import Card

LINE = 100
# As people write a card: what the model is, what computes it, what it reads, what is measured.
_ORDER = ("model", "links", "source", "generics", "check", "weights", "tokenizer", "bench", "gate")


def card_text(card: Card) -> str:
    """The `nest.toml` of a card."""
    tables = card.to_dict()
    return "\n".join(_tables({name: tables[name] for name in _ORDER if name in tables}, ""))


def _tables(data: Mapping[str, Any], prefix: str) -> Iterator[str]:
    """The lines of each table, with an empty line after it; tables inside one follow its own keys."""
    for name, table in data.items():
        path = f"{prefix}{_key(name)}"
        yield f"[{path}]"
        inner = {key: value for key, value in table.items() if isinstance(value, dict)}
        yield from (f"{_key(key)} = {_value(value)}" for key, value in table.items() if key not in inner)
        yield ""
        yield from _tables(inner, f"{path}.")


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _string(name)


def _value(value: Any) -> str:
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, list):
        line = f"[{', '.join(map(_value, value))}]"
        return line if len(line) <= LINE else "\n".join(["[", *(f"    {_value(item)}," for item in value), "]"])
    # Integers and floats are written as in Python.
    return repr(value)


def _string(text: str) -> str:
    """A basic string: JSON's escapes are TOML's, and a delete character, which JSON leaves, is in no card."""
    return json.dumps(text, ensure_ascii=False)
