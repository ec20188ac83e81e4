"""A transformers config.json, read key by key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from linnet.convert.errors import ConvertError


class Config:
    """A config.json's content; `where` is what messages call it."""

    def __init__(self, data: Mapping[str, Any], where: str) -> None:
        self.data, self.where = data, where

    def integer(self, key: str, default: int | None = None) -> int:
        """A number of at least 1. Raises ConvertError; also where the key is absent or null and has no default."""
        value = self._get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise self.error(f"gives {key} as {value!r}", "A whole number of at least 1 is needed there.")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """A positive number. Raises ConvertError."""
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
            raise self.error(f"gives {key} as {value!r}", "A positive number is needed there.")
        return float(value)

    def flag(self, key: str, *, default: bool) -> bool:
        """True or false. Raises ConvertError."""
        value = self._get(key, default)
        if not isinstance(value, bool):
            raise self.error(f"gives {key} as {value!r}", "Write true or false there.")
        return value

    def table(self, key: str) -> Config | None:
        """The object under `key`; None where it is absent or null. Raises ConvertError."""
        value = self.data.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.error(f"gives {key} as {value!r}", "An object is needed there.")
        return Config(value, f"{key} of {self.where}")

    def items(self, key: str) -> list[Any]:
        """The list under `key`; an empty one where it is absent or null. Raises ConvertError."""
        value = self._get(key, [])
        if not isinstance(value, list):
            raise self.error(f"gives {key} as {value!r}", "A list is needed there.")
        return value

    def error(self, fault: str, help: str) -> ConvertError:
        return ConvertError(f"{self.where} {fault}. {help}")

    def _get(self, key: str, default: Any) -> Any:
        value = self.data.get(key)
        if value is None:
            value = default
        if value is None:
            raise self.error(f"has no {key}", "Add it, or fetch the file again.")
        return value
