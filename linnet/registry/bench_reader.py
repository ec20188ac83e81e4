"""Reading JSON that we write: what each kind of value must be, and every problem told with its key path."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from linnet.registry.errors import Problem, bare, nearest

Value = TypeVar("Value")
# No size, count or number of anything comes near it, and every reader of JSON takes what is below.
LARGEST = 2**63


class WrongValueError(Exception):
    """What a value must be, as the rest of a sentence."""


Read = Callable[[Any], Value]


@dataclass(slots=True)
class JsonTable:
    """A JSON object as it is read: each key is taken once, and what is left over is unknown.

    `kind` and `help` are those of its problems.
    """

    data: Mapping[str, Any]
    path: str
    problems: list[Problem]
    taken: set[str] = dataclasses.field(default_factory=set)
    kind: str = "bench.value"
    help: str = "Measure again with nest bench: the file is not meant to be written by hand."

    def where(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key

    def problem(self, key: str, message: str) -> None:
        where = self.where(key)
        self.problems.append(Problem(self.kind, where, f"{bare(where)} {message}.", self.help))

    def take(self, key: str, read: Read[Value], default: Value) -> Value:
        """The value at `key`, which must be there; the problem and `default` where it is not, or not of its kind."""
        self.taken.add(key)
        if key not in self.data:
            self.problem(key, "is missing")
            return default
        try:
            return read(self.data[key])
        except WrongValueError as wrong:
            self.problem(key, f"must be {wrong}")
            return default

    def sub(self, key: str, *, optional: bool = False) -> JsonTable | None:
        """The object at `key`; None where it is null and may be, or where it is none."""
        self.taken.add(key)
        value = self.data.get(key)
        if isinstance(value, dict):
            return JsonTable(value, self.where(key), self.problems, kind=self.kind, help=self.help)
        if key not in self.data:
            self.problem(key, "is missing")
        elif value is not None or not optional:
            self.problem(key, "must be an object" + (" or null" if optional else ""))
        return None

    def close(self) -> None:
        for key in self.data:
            if key not in self.taken:
                close = nearest(key, self.taken)
                self.problem(key, "is not a key of the schema" + (f" (the nearest is {close})" if close else ""))
        for key in getattr(self.data, "duplicates", ()):
            self.problem(key, "is there more than once")


def line(value: Any) -> str:
    """Text on one line, not blank."""
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise WrongValueError("a line of text")
    return value


def count(value: Any) -> int:
    """A whole number of at least 1, below LARGEST."""
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value < LARGEST:
        raise WrongValueError("a whole number of at least 1")
    return value


def natural(value: Any) -> int:
    """A whole number of at least 0, below LARGEST."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < LARGEST:
        raise WrongValueError("a whole number of at least 0")
    return value


def number(value: Any) -> float:
    """A finite number of at least 0."""
    try:
        finite = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:
        finite = False
    if not finite or value < 0:
        raise WrongValueError("a number of at least 0")
    return value  # type: ignore[no-any-return]


def quantity(value: Any) -> float:
    """A finite number above 0."""
    if (found := number(value)) == 0:
        raise WrongValueError("a number above 0")
    return found


def boolean(value: Any) -> bool:
    """true or false."""
    if not isinstance(value, bool):
        raise WrongValueError("true or false")
    return value


def sha256(value: Any) -> str:
    """64 hexadecimal digits, in small letters."""
    if not isinstance(value, str) or not re.fullmatch(r"[0-9a-f]{64}", value):
        raise WrongValueError("a sha256 in hex")
    return value


def utc_time(value: Any) -> str:
    """A time in UTC, to the second."""
    wrong = WrongValueError("a time in UTC, such as 2026-01-31T12:00:00Z")
    if not isinstance(value, str) or not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", value, re.ASCII):
        raise wrong
    try:
        datetime.fromisoformat(value)
    except ValueError:
        raise wrong from None
    return value


def mode(value: Any) -> bool | str:
    """true, false, or a name."""
    return value if isinstance(value, bool) else line(value)


def mapping(value: Any) -> Mapping[str, Any]:
    """Any object."""
    if not isinstance(value, dict):
        raise WrongValueError("an object")
    return value


def generic_values(value: Any) -> Mapping[str, int | str]:
    """An object of whole numbers and dtypes."""
    known = mapping(value)
    for item in known.values():
        if isinstance(item, bool) or not isinstance(item, int | str):
            raise WrongValueError("an object of whole numbers and dtypes")
    return known


def or_null(read: Read[Value]) -> Read[Value | None]:
    """`read`, or None for null."""
    return lambda value: None if value is None else read(value)
