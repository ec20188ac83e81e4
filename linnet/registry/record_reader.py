"""Reading the documents of a registry strictly: what each value must be, and what a document is at all."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any

from linnet.registry.bench_reader import LARGEST, JsonTable, Read, Value, WrongValueError, count, mapping
from linnet.registry.errors import Problem, RegistryError
from linnet.registry.package import name_fault, path_fault
from linnet.registry.semver import version_fault
from linnet.registry.strict_json import BadJsonError, parse_json

SCHEMA = 1
REASON_CHARACTERS = 200
ALIAS_CHARACTERS = 32
# How deep a value goes that a document holds as it is: whoever writes it anew does so a call for each level.
DEPTH = 64
NO_OBJECTS: tuple[dict[str, Any], ...] = ()


class RecordError(RegistryError):
    """A document of a registry that is damaged or was not written by this program."""


class UnknownSchemaError(RecordError):
    """A document that a newer version wrote; `schema` is its number."""

    def __init__(self, where: str, schema: int) -> None:
        self.schema = schema
        message = f"{where} has the schema {schema}, and this version reads {SCHEMA}."
        super().__init__([Problem("registry.schema", where, message, "Install a newer linnet-nest.")])


def canonical(value: Any) -> bytes:
    """JSON in its one form: sorted keys, no spaces, a newline at the end."""
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return f"{text}\n".encode()


def open_document(data: bytes, where: str) -> JsonTable:
    """A document of this schema, ready to be read. Raises RecordError, UnknownSchemaError."""
    help = "Ask for it again; if it stays so, the registry's copy is damaged."
    try:
        value = parse_json(data)
    except BadJsonError as error:
        raise RecordError([Problem("registry.damaged", where, f"{where} {error}.", help)]) from None
    schema = value.get("schema") if isinstance(value, dict) else None
    if isinstance(schema, int) and not isinstance(schema, bool) and schema > SCHEMA:
        raise UnknownSchemaError(where, schema)
    if not isinstance(schema, int) or isinstance(schema, bool) or schema != SCHEMA:
        raise RecordError([Problem("registry.damaged", where, f"{where} is no document of a registry.", help)])
    help = f"{where} is damaged: {help[0].lower()}{help[1:]}"
    return JsonTable(value, "", [], {"schema"}, kind="registry.damaged", help=help)


def known_name(value: Any) -> str:
    """The name of a package."""
    if not isinstance(value, str) or name_fault(value) is not None:
        raise WrongValueError("the name of a package")
    return value


def known_version(value: Any) -> str:
    """A version that can be published."""
    if not isinstance(value, str) or version_fault(value) is not None:
        raise WrongValueError("a version")
    return value


def known_alias(value: Any) -> str:
    """What may follow the @ of a name and is no version."""
    if not isinstance(value, str) or alias_fault(value) is not None:
        raise WrongValueError("an alias")
    return value


def alias_fault(text: str) -> str | None:
    """Why `text` cannot be an alias, as the rest of a sentence that begins with it; None if it can."""
    if len(text) > ALIAS_CHARACTERS:
        return f"has {len(text)} characters, more than {ALIAS_CHARACTERS}"
    if not re.fullmatch(r"[a-z][a-z0-9-]*", text):
        return "must begin with a letter and hold only a-z, digits and hyphens"
    return None


def reason(value: Any) -> str:
    """A line that may be empty."""
    fits = isinstance(value, str) and len(value) <= REASON_CHARACTERS and (not value or value.isprintable())
    if not fits:
        raise WrongValueError(f"one line of at most {REASON_CHARACTERS} characters")
    return str(value)


def identity(value: Any) -> str:
    """32 hexadecimal digits: what tells one writer's document from another's."""
    if not isinstance(value, str) or not re.fullmatch(r"[0-9a-f]{32}", value):
        raise WrongValueError("32 hexadecimal digits")
    return value


def one_of(words: tuple[str, ...]) -> Read[str]:
    """One of a few words."""

    def read(value: Any) -> str:
        if value not in words:
            raise WrongValueError(f"one of {', '.join(words)}")
        return str(value)

    return read


def optional(table: JsonTable, key: str, read: Read[Value], default: Value) -> Value:
    """A key that may be left out, where its value is `default`."""
    return table.take(key, read, default) if key in table.data else default


def list_of_objects(value: Any) -> tuple[dict[str, Any], ...]:
    """A list of objects."""
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise WrongValueError("a list of objects")
    return tuple(value)


def safe_path(value: Any) -> str:
    """A path that a client may write to, and that a package may hold: no part of it is hidden."""
    if not isinstance(value, str) or path_fault(value) is not None or value.startswith(".") or "/." in value:
        raise WrongValueError("a list of files inside the package")
    return value


def all_different(paths: Iterable[str]) -> None:
    """No two paths are one file anywhere, and none is a folder of another."""
    names = [unicodedata.normalize("NFC", path.casefold()) for path in paths]
    known = set(names)
    if len(known) < len(names):
        raise WrongValueError("a list without two files of one name")
    if any(name[:end] in known for name in names for end, ch in enumerate(name) if ch == "/"):
        raise WrongValueError("a list without a file that is a folder of another")


def plain(value: Any) -> Mapping[str, Any]:
    """An object of whatever a document can hold: numbers that are finite and below LARGEST, text that UTF-8 has, at
    most DEPTH levels."""
    found = mapping(value)
    _refuse_large(found)
    try:
        canonical(found)
    except ValueError:
        raise WrongValueError("an object without infinities and halves of characters") from None
    return found


def _refuse_large(found: Mapping[str, Any]) -> None:
    level: list[Any] = [found]
    for _ in range(DEPTH):
        inner = [item for outer in level for item in (outer.values() if isinstance(outer, dict) else outer)]
        if any(isinstance(item, int) and abs(item) >= LARGEST for item in inner):
            raise WrongValueError("an object without numbers of more than 63 bits")
        level = [item for item in inner if isinstance(item, dict | list)]
        if not level:
            return
    raise WrongValueError(f"an object of at most {DEPTH} levels")


def tables(value: Any) -> Mapping[str, Any]:
    """An object of objects, as a card is."""
    found = plain(value)
    if not all(isinstance(table, dict) for table in found.values()):
        raise WrongValueError("an object of objects")
    return found


def summary(value: Any) -> Mapping[str, Any]:
    """What the index says of a version."""
    found = plain(value)
    mapping(found.get("model", {}))
    return found


def with_listed(key: str, *texts: str) -> Read[Mapping[str, Any]]:
    """An object in which a list at `key`, if it is there, is of objects that each have these texts."""

    def read(value: Any) -> Mapping[str, Any]:
        found = plain(value)
        for item in list_of_objects(found.get(key, [])):
            if not all(isinstance(item.get(text), str) for text in texts):
                raise WrongValueError(f"an object whose {key} have {', '.join(texts)}")
        return found

    return read


def parameters(value: Any) -> list[dict[str, Any]]:
    """The parameters of a version, each as an index record has it."""
    kinds = {"path": str, "tensor": str, "shape": list, "dtype": str, "optional": bool, "present": bool}
    found = list(list_of_objects(value))
    for item in found:
        right = all(isinstance(item.get(key), kind) for key, kind in kinds.items())
        if not right or not all(isinstance(size, int) for size in item["shape"]):
            raise WrongValueError("a list of objects with path, tensor, shape, dtype, optional and present")
    return found


def aliases(value: Any) -> Mapping[str, str]:
    """What each alias means."""
    return {known_alias(key): known_version(version) for key, version in mapping(value).items()}


def numbers(value: Any) -> tuple[int, ...]:
    """A list of whole numbers of at least 1."""
    if not isinstance(value, list):
        raise WrongValueError("a list of numbers")
    return tuple(count(item) for item in value)


def close_document(table: JsonTable) -> None:
    """Raises RecordError where anything in the document is not as it must be, keys that are not known included."""
    table.close()
    if table.problems:
        raise RecordError(table.problems)
