"""JSON from strangers: duplicate keys, deep nesting and bad encodings are told, never resolved silently."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any


class BadJsonError(Exception):
    """Why the bytes are not JSON, as the rest of a sentence that begins with the file's name."""


class JsonObject(dict[str, Any]):
    """A parsed object that remembers which keys were written more than once."""

    duplicates: tuple[str, ...] = ()


def parse_json(data: bytes) -> Any:
    """The value written in `data`, objects as JsonObject. Raises BadJsonError."""
    try:
        return json.loads(data.decode().removeprefix("\ufeff"), object_pairs_hook=_object, parse_constant=_constant)
    except UnicodeDecodeError as error:
        raise BadJsonError(f"is not UTF-8 at byte {error.start}") from None
    except json.JSONDecodeError as error:
        reason = error.msg[:1].lower() + error.msg[1:]
        raise BadJsonError(f"is not JSON at line {error.lineno}, column {error.colno}: {reason}") from None
    except RecursionError:
        raise BadJsonError("is nested too deeply") from None
    except ValueError:
        # What int() raises for a number of thousands of digits.
        raise BadJsonError("holds a number that is out of range") from None


def _object(pairs: list[tuple[str, Any]]) -> JsonObject:
    result = JsonObject(pairs)
    if len(result) < len(pairs):
        counts = Counter(key for key, _ in pairs)
        result.duplicates = tuple(key for key, count in counts.items() if count > 1)
    return result


def _constant(text: str) -> Any:
    raise json.JSONDecodeError(f"unexpected {text}", text, 0)
