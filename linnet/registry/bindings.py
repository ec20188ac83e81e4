"""Bindings: which checkpoint tensor each parameter path reads."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from linnet.language.program.manifest import Manifest
from linnet.registry.card import Card
from linnet.registry.errors import BindingsError, Problem, bare, listed, nearest, shown
from linnet.registry.package import read_file
from linnet.registry.strict_json import BadJsonError, JsonObject, parse_json

BINDINGS_BYTES = 16 << 20
MOST_SUGGESTIONS = 10
_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
_ARITHMETIC = re.compile(r"\{[^{}]*[\w\s][-+*/%][^{}]*\}")
_POSITION = re.compile(r"[0-9]+")


@dataclass(frozen=True, slots=True)
class Bindings:
    """The entries of `bindings.json` as written: path -> tensor name, where `{i}` stands for an array position.

    Paths that no entry names bind to the tensor of the same name. `file` is what messages call the file.
    """

    entries: Mapping[str, str] = field(default_factory=dict)
    file: str = "bindings.json"

    def resolve(self, manifest: Manifest, *, shrunk: bool = False) -> ResolvedBindings:
        """Every path of the manifest with its tensor.

        With `shrunk` (generics smaller than the card's), entries for paths that the manifest lacks are passed over.
        Raises BindingsError with every path that the manifest lacks and every path that two entries name.
        """
        problems: list[Problem] = []
        paths = manifest.by_path()
        by_shape: dict[str, list[str]] = defaultdict(list)
        for path in paths:
            by_shape[_shape(path)].append(path)
        tensors: dict[str, str] = {}
        written: dict[str, str] = {}
        exact: set[str] = set()
        for key, value in self.entries.items():
            expanded = dict(_expand(key, value, paths, by_shape))
            if not expanded and not shrunk:
                suggestion = _nearest_path(key, by_shape) if len(problems) < MOST_SUGGESTIONS else None
                problems.append(self._unknown_path(key, suggestion))
            for path, tensor in expanded.items():
                if path in written:
                    problems.append(
                        Problem(
                            "bindings.twice",
                            path,
                            f"{self.file} binds the path {path} twice: by {shown(written[path])} and by {shown(key)}.",
                            "Remove one of the two entries.",
                        )
                    )
                    continue
                written[path], tensors[path] = key, tensor
                if path == key:
                    exact.add(path)
        if problems:
            raise BindingsError(problems)
        return ResolvedBindings({path: tensors.get(path, path) for path in paths}, frozenset(written), frozenset(exact))

    def _unknown_path(self, key: str, suggestion: str | None) -> Problem:
        help = f"The nearest path is {suggestion}." if suggestion else "Remove the entry, or correct its path."
        message = f"{self.file} binds {shown(key)}, a path that the source does not have."
        return Problem("bindings.unknown-path", bare(key), message, help)


@dataclass(frozen=True, slots=True)
class ResolvedBindings:
    """Manifest path -> tensor name for all paths; `written` were named by an entry, `exact` by one without `{i}`."""

    tensors: Mapping[str, str]
    written: frozenset[str]
    exact: frozenset[str]


def read_bindings(package: Path, card: Card) -> Bindings:
    """The package's bindings; none where the card names no file.

    Raises BindingsError, or PackageError where the file is absent or unreadable.
    """
    if card.weights.bindings is None:
        return Bindings()
    return parse_bindings(read_file(package, card.weights.bindings, BINDINGS_BYTES), card.weights.bindings)


def parse_bindings(data: bytes, file: str = "bindings.json") -> Bindings:
    """The bindings written in `data`. Raises BindingsError with all that is wrong with them."""

    def fail(kind: str, where: str, message: str, help: str) -> Problem:
        return Problem(f"bindings.{kind}", where, message, help)

    help = 'Write one flat object: { "path": "tensor name" }.'
    try:
        value = parse_json(data)
    except BadJsonError as error:
        raise BindingsError([fail("json", file, f"{file} {error}.", help)]) from None
    if not isinstance(value, JsonObject):
        raise BindingsError([fail("json", file, f"{file} is not a JSON object.", help)])
    problems = [
        fail("twice", bare(key), f"{file} has two entries for {shown(key)}.", "Remove one of the two entries.")
        for key in value.duplicates
    ]
    for key, tensor in value.items():
        where = bare(key)
        if not isinstance(tensor, str) or not tensor:
            message = f"{file} binds {shown(key)} to something that is not a tensor's name."
            problems.append(fail("value", where, message, help))
            continue
        if arithmetic := _ARITHMETIC.search(key) or _ARITHMETIC.search(tensor):
            problems.append(
                fail(
                    "placeholder",
                    where,
                    f"{file} computes with a position, {arithmetic[0]}, but bindings have no arithmetic.",
                    "Write one line for each position whose tensor has another number.",
                )
            )
            continue
        if stray := [part for part in key.split(".") if set(part) & set("{}") and not _PLACEHOLDER.fullmatch(part)]:
            problems.append(
                fail(
                    "placeholder",
                    where,
                    f"{file} has the key {shown(key)}, where {shown(stray[0])} is not an array position.",
                    "A placeholder such as {i} stands alone between dots.",
                )
            )
            continue
        wanted, given = set(_PLACEHOLDER.findall(key)), set(_PLACEHOLDER.findall(tensor))
        if wanted != given:
            names = listed(sorted(wanted ^ given))
            problems.append(
                fail(
                    "placeholder",
                    where,
                    f"{file} binds {shown(key)} to {shown(tensor)}, but {names} is in only one of the two.",
                    "Write the same placeholders in the path and in the tensor's name.",
                )
            )
    if problems:
        raise BindingsError(problems)
    return Bindings(dict(value), file)


def _shape(path: str) -> str:
    """A path with every array position and placeholder replaced by `#`."""
    parts = path.split(".")
    return ".".join("#" if _POSITION.fullmatch(part) or _PLACEHOLDER.fullmatch(part) else part for part in parts)


def _nearest_path(key: str, by_shape: Mapping[str, list[str]]) -> str | None:
    # Among thousands of layers the nearest spelling is found by shape first, then by position.
    close = nearest(_shape(key), by_shape)
    return nearest(key, by_shape[close][:2000]) if close else None


def _expand(
    key: str, value: str, paths: Mapping[str, object], by_shape: Mapping[str, list[str]]
) -> Iterator[tuple[str, str]]:
    """The manifest paths that a key stands for, each with its tensor."""
    if "{" not in key:
        if key in paths:
            yield key, value
        return
    parts = key.split(".")
    for path in by_shape.get(_shape(key), ()):
        positions: dict[str, str] = {}
        for part, actual in zip(parts, path.split("."), strict=True):
            found = _PLACEHOLDER.fullmatch(part)
            # The same placeholder twice means the same position twice.
            if (positions.setdefault(found[1], actual) if found else part) != actual:
                break
        else:
            yield path, _filled(value, positions)


def _filled(value: str, positions: Mapping[str, str]) -> str:
    return _PLACEHOLDER.sub(lambda match: positions[match[1]], value)
