"""TOML from strangers: what is wrong with it is told, and no form of it takes long to read."""

from __future__ import annotations

import re
import tomllib
from typing import Any

TOML_BYTES = 1 << 17
# A dotted key of this many parts is refused before it is read: the time that reading takes grows with their cube.
KEY_PARTS = 50
_LONG_KEY = re.compile(rf"""(?<![\w"'-])(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){{{KEY_PARTS}}}""")


class BadTomlError(Exception):
    """Why the bytes are not TOML, as the rest of a sentence that ends in a colon."""


def parse_toml(data: bytes) -> dict[str, Any]:
    """The table written in `data`. Raises BadTomlError."""
    if len(data) > TOML_BYTES:
        raise BadTomlError(f"it is larger than {TOML_BYTES >> 10} KiB")
    try:
        # Some editors put a byte order mark first.
        text = data.decode().removeprefix("\ufeff")
        if _LONG_KEY.search(text):
            raise BadTomlError(f"it has a key of more than {KEY_PARTS} parts")
        return tomllib.loads(text)
    except UnicodeDecodeError as error:
        raise BadTomlError(f"byte {error.start} is not UTF-8") from None
    except RecursionError:
        raise BadTomlError("its values are nested too deeply") from None
    except ValueError as error:
        # Also what int() raises for a number of thousands of digits.
        raise BadTomlError(str(error).rstrip(".")) from None
