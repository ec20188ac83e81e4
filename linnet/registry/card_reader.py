"""Reading a table of the card: closed keys, checked values, every problem kept with its key path."""

from __future__ import annotations

import datetime
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, TypeVar
from urllib.parse import urlsplit

from linnet.language.program.types import DTYPES
from linnet.registry.errors import Problem, bare, nearest, shown
from linnet.registry.package import name_fault, path_fault

Value = TypeVar("Value")
# Checks one value: returns it, or raises UnfitError.
Check = Callable[[Any], Value]

LINE_CHARACTERS = 1000
LARGEST_INTEGER = 2**63 - 1
# Known at once, and suggested; `packaging` knows the whole SPDX list.
COMMON_LICENSES = (
    "Apache-2.0", "MIT", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MPL-2.0", "GPL-2.0-only", "GPL-3.0-only",
    "GPL-3.0-or-later", "AGPL-3.0-only", "LGPL-3.0-only", "CC0-1.0", "CC-BY-4.0", "CC-BY-SA-4.0", "CC-BY-NC-4.0",
    "CC-BY-NC-SA-4.0", "Unlicense",
)  # fmt: skip


class UnfitError(Exception):
    """A value that its key cannot take: what is wrong, as the rest of a sentence, and the next step."""

    def __init__(self, fault: str, help: str, kind: str = "value") -> None:
        self.fault, self.help, self.kind = fault, help, kind
        super().__init__(fault)


class Table:
    """One table of the card, read key by key. Problems go to the list that all tables of a card share.

    `known` are the keys that the table may have; `elsewhere` are those of every table, so that a key in the wrong table
    is told where it belongs.
    """

    def __init__(
        self,
        data: Mapping[str, Any],
        path: str,
        known: Collection[str] | None,
        elsewhere: Mapping[str, Collection[str]],
        problems: list[Problem],
    ) -> None:
        self.data, self.path, self.elsewhere, self.problems = data, path, elsewhere, problems
        for key in data:
            if known is not None and key not in known:
                self._unknown(key, known)

    def table(self, key: str, *, required: bool = False) -> Table:
        """The table under `key`; an empty one where it is absent (a problem when `required`) or no table."""
        value = self.data.get(key)
        if value is None and required:
            self.missing(key, f"Add a [{key}] table.")
            return _Absent({}, self._at(key), (), self.elsewhere, self.problems)
        if value is not None and not isinstance(value, dict):
            self.problem(key, "type", f"{self._at(key)} must be a table, not {_kind(value)}.", f"Write it as [{key}].")
            return _Absent({}, self._at(key), (), self.elsewhere, self.problems)
        return Table(value or {}, self._at(key), self.elsewhere[key], self.elsewhere, self.problems)

    def sub(self, key: str) -> Table:
        """The table under `key`, with keys of the author's choosing."""
        value = self.data[key]
        if not isinstance(value, dict):
            path = self._at(key)
            self.problem(key, "type", f"{path} must be a table, not {_kind(value)}.", f"Write it as [{path}].")
            value = {}
        return Table(value, self._at(key), None, self.elsewhere, self.problems)

    def free_table(self, key: str, check: Check[Value]) -> dict[str, Value]:
        """The table under `key`, whose keys are Linnet names."""
        table = self.sub(key) if key in self.data else Table({}, key, None, self.elsewhere, self.problems)
        for name in table.data:
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
                help = "Use letters, digits and underscores."
                table.problem(name, "generic-name", f"{shown(name)} is not a Linnet name.", help)
        return table.free(check)

    def free(self, check: Check[Value]) -> dict[str, Value]:
        """Every key of the table with its checked value."""
        checked = ((key, self._checked(key, value, check)) for key, value in self.data.items())
        return {key: value for key, value in checked if value is not None}

    def optional(self, key: str, check: Check[Value]) -> Value | None:
        """The value of `key`; None where it is absent or unfit."""
        return self._checked(key, self.data[key], check) if key in self.data else None

    def required(self, key: str, check: Check[str]) -> str:
        """The value of `key`, a string; an empty one, and a problem, where it is absent or unfit."""
        if key not in self.data:
            self.missing(key)
            return ""
        return self._checked(key, self.data[key], check) or ""

    def strings(self, key: str, check: Check[str], *, required: bool = False, empty: bool = True) -> tuple[str, ...]:
        """A list of strings, each checked and no two alike."""
        if key not in self.data:
            if required:
                self.missing(key)
            return ()
        value = self.data[key]
        if not isinstance(value, list):
            message = f"{self._at(key)} must be a list of strings, not {_kind(value)}."
            self.problem(key, "type", message, 'Write ["a", "b"].')
            return ()
        if not value and not empty:
            self.problem(key, "value", f"{self._at(key)} is empty.", "Name at least one.")
        items = tuple(self._each(key, value, check))
        for item, count in Counter(items).items():
            if count > 1:
                self.problem(key, "value", f"{self._at(key)} names {shown(item)} more than once.", "Name it once.")
        return items

    def missing(self, key: str, help: str = "") -> None:
        """Report that `key` is absent."""
        self.problem(key, "missing", f"{self._at(key)} is missing.", help or f"Add {key} to the [{self.path}] table.")

    def problem(self, key: str, kind: str, message: str, help: str) -> None:
        """Report something wrong with the value of `key`."""
        self.problems.append(Problem(f"card.{kind}", self._at(key), message, help))

    def _each(self, key: str, value: list[Any], check: Check[str]) -> Iterator[str]:
        for index, item in enumerate(value):
            checked = self._checked(f"{key}[{index}]", item, check)
            if checked is not None:
                yield checked

    def _checked(self, key: str, value: Any, check: Check[Value]) -> Value | None:
        try:
            return check(value)
        except UnfitError as unfit:
            self.problem(key, unfit.kind, f"{self._at(key)} {unfit.fault}.", unfit.help)
            return None

    def _unknown(self, key: str, known: Collection[str]) -> None:
        homes = [name for name, keys in self.elsewhere.items() if key in keys]
        name = "table" if not self.path else "key"
        if self.path and homes:
            help = f"{key} belongs in {' or '.join(f'[{home}]' for home in homes)}."
        else:
            help = f"The nearest known {name} is {nearest(key, known)}; known are {', '.join(known)}."
        self.problem(key, "unknown-key", f"{self._at(key)} is not a {name} of the card.", help)

    def _at(self, key: str) -> str:
        name = key if re.fullmatch(r"[A-Za-z0-9_.\[\]-]{1,80}", key) else shown(key)
        return f"{self.path}.{name}" if self.path else name


class _Absent(Table):
    """Stands for a table that is not there, which is one problem: its keys are not missed one by one."""

    def missing(self, key: str, help: str = "") -> None:
        return


# Checks of one value.


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise UnfitError(f"must be a string, not {_kind(value)}", "Write it in quotes.", "type")
    return value


def _integer(value: Any) -> int:
    # In Python a bool is an int; in TOML it is not.
    if not isinstance(value, int) or isinstance(value, bool):
        raise UnfitError(f"must be an integer, not {_kind(value)}", "Write a whole number without quotes.", "type")
    if value > LARGEST_INTEGER:
        raise UnfitError("is larger than 64 bits hold", "Write a smaller number.")
    return value


def line_of_text(value: Any) -> str:
    """One line of text that is not empty and shows as it is written."""
    text = _string(value)
    if not text.strip():
        raise UnfitError("is empty", "Write at least one word.")
    if len(text) > LINE_CHARACTERS:
        raise UnfitError(f"has {len(text)} characters, more than {LINE_CHARACTERS}", "Shorten it; the README has room.")
    if any(unicodedata.category(ch) in ("Cc", "Cs", "Zl", "Zp") or ch in _BIDIRECTIONAL for ch in text):
        raise UnfitError("holds a line break or a control character", "Write it on one line of plain text.")
    return text


# Characters that reorder the text around them, which can make a line read as something else.
_BIDIRECTIONAL = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c")


def package_name(value: Any) -> str:
    """A package's name."""
    text = _string(value)
    if fault := name_fault(text):
        raise UnfitError(f"{shown(text)} {fault}", "Write a name such as qwen3-8b-fp8.")
    return text


def plain_path(suffix: str = "") -> Check[str]:
    """A path inside the package, ending in `suffix`."""

    def check(value: Any) -> str:
        text = _string(value)
        if fault := path_fault(text):
            help = "Write a path inside the package with forward slashes."
            raise UnfitError(f"is {shown(text)}, a path that {fault}", help, "path")
        if not text.endswith(suffix):
            raise UnfitError(f"is {shown(text)}, which does not end in {suffix}", f"Name a {suffix} file.", "path")
        return text

    return check


weights_file = plain_path(".safetensors")


def license_expression(value: Any) -> str:
    """An SPDX expression in its canonical spelling, `LicenseRef-...`, or `other`."""
    text = line_of_text(value)
    if text.lower() == "other":
        return "other"
    if text in COMMON_LICENSES:
        return text
    # The whole SPDX list is a third of a megabyte, which who loads a model seldom needs.
    from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

    try:
        return str(canonicalize_license_expression(text))
    except (InvalidLicenseExpression, RecursionError):
        close = nearest(text, COMMON_LICENSES)
        raise UnfitError(
            f"is {shown(text)}, which is not an SPDX licence expression",
            f"The nearest common one is {close}; one without an SPDX name is written LicenseRef-its-name, or other.",
            "license",
        ) from None


def https_url(value: Any) -> str:
    """An https link with a host and nothing that a page could not show."""
    text = line_of_text(value)
    help = "Write a link such as https://github.com/owner/project."
    if not text.isascii() or any(ch in text for ch in ' "<>\\^`{|}'):
        raise UnfitError(f"is {shown(text)}, which holds a character that a link cannot have", help, "link")
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise UnfitError(f"is {shown(text)}, which is not a link", help, "link") from None
    if parts.scheme != "https":
        raise UnfitError(f"is {shown(text)}, which does not begin with https://", help, "link")
    if not host or parts.username is not None or port == 0 or not re.fullmatch(r"[A-Za-z0-9.:-]+", host):
        raise UnfitError(f"is {shown(text)}, which names no host", help, "link")
    return text


def repository(value: Any) -> str:
    """A Hub repository: `owner/name`, or a bare name."""
    text = _string(value)
    part = r"\w(?:[\w.-]{0,94}\w)?"
    parts_fit = re.fullmatch(rf"{part}(/{part})?", text, re.ASCII)
    if not parts_fit or "--" in text or ".." in text or text.endswith(".git"):
        help = "Write owner/name as the Hub shows it."
        raise UnfitError(f"is {shown(text)}, which is not a Hub repository", help, "repository")
    return text


def git_commit(value: Any) -> str:
    """A full commit hash."""
    text = _string(value)
    if not re.fullmatch(r"[0-9a-f]{40}", text):
        raise UnfitError(
            f"is {shown(text)}, which is not a full commit hash",
            "Write the 40 hexadecimal digits of the commit: branches and tags move.",
            "revision",
        )
    return text


def sha256_hex(value: Any) -> str:
    """A sha256 digest."""
    text = _string(value)
    if not re.fullmatch(r"[0-9a-f]{64}", text):
        help = "Write the 64 hexadecimal digits that sha256sum prints."
        raise UnfitError(f"is {shown(text)}, which is not a sha256", help, "sha256")
    return text


def version_number(value: Any) -> str:
    """A version: three numbers, perhaps a pre-release."""
    text = _string(value)
    number, suffix = r"(?:0|[1-9][0-9]{0,8})", r"(?:-[0-9A-Za-z]+(?:[.-][0-9A-Za-z]+)*)?"
    if len(text) > 64 or not re.fullmatch(rf"{number}\.{number}\.{number}{suffix}", text):
        raise UnfitError(f"is {shown(text)}, which is not a version", "Write three numbers such as 0.1.0.", "version")
    return text


def dtype_or_integer(value: Any) -> int | str:
    """What a generic may be: an integer, at least 0, or a dtype."""
    if isinstance(value, str):
        if value not in DTYPES:
            raise UnfitError(
                f"is {shown(value)}, which is not a dtype",
                f"The nearest dtype is {nearest(value, DTYPES)}; dimensions are written without quotes.",
                "generic",
            )
        return value
    if isinstance(value, bool) or not isinstance(value, int):
        help = 'Write a number, or a dtype such as "bf16".'
        raise UnfitError(f"must be an integer or a dtype, not {_kind(value)}", help, "type")
    if _integer(value) < 0:
        raise UnfitError(
            f"is {value}, and a dimension is at least 0", "Write a number that is not negative.", "generic"
        )
    return value


def positive(value: Any) -> int:
    """An integer, at least 1."""
    number = _integer(value)
    if number < 1:
        raise UnfitError(f"is {number}, less than 1", "Write a positive whole number.")
    return number


def fraction(value: Any) -> float:
    """A finite number, at least 0."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UnfitError(f"must be a number, not {_kind(value)}", "Write a fraction such as 0.01.", "type")
    if not math.isfinite(value) or value < 0 or value > LARGEST_INTEGER:
        raise UnfitError(f"is {bare(str(value))}, which is not a fraction", "Write a number such as 0.01, at least 0.")
    return float(value)


def string_or_strings(value: Any) -> tuple[str, ...]:
    """One token's text or a list of them."""
    items = value if isinstance(value, list) else [value]
    if not items or any(not isinstance(item, str) or not item or len(item) > LINE_CHARACTERS for item in items):
        help = f'Write a token such as "<s>", not {_kind(value)}.'
        raise UnfitError("must be a string or a list of strings", help, "type")
    return tuple(items)


def _kind(value: Any) -> str:
    """A TOML value's type in TOML's words."""
    kinds: dict[type, str] = {bool: "a boolean", int: "an integer", float: "a float", str: "a string", list: "an array"}
    if isinstance(value, datetime.date | datetime.time):
        return "a date or time"
    return kinds.get(type(value), "a table")
