"""Where a finding of the gate is: a line of the card, of the bindings or of the source."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from linnet.language.program.binding import BoundProgram
from linnet.language.program.checked import CheckedBlock
from linnet.language.program.types import BlockArrayType, BlockType, OptionalType, Type
from linnet.language.source import Span
from linnet.registry.bindings import BINDINGS_BYTES
from linnet.registry.card import Card
from linnet.registry.errors import RegistryError
from linnet.registry.gate_findings import Place, pattern
from linnet.registry.package import CARD_NAME, MANIFEST_NAME, read_file


@dataclass
class Places:
    """Lines of the package in `folder`. `card` and `bound` are as much of it as could be read."""

    folder: Path
    card: Card | None
    bound: BoundProgram | None
    _texts: dict[str, list[str]] = field(default_factory=dict)
    _bindings: Mapping[str, int] | None = None

    def key(self, where: str) -> Place:
        """A key of the card by its path, `model.license`; its table where it is absent, the file where that is."""
        return self._key(CARD_NAME, where)

    def version(self) -> Place:
        """Where the package says its version."""
        own = self.card is not None and self.card.model.version is not None
        return self.key("model.version") if own else self._key(MANIFEST_NAME, "package.version")

    def _key(self, file: str, where: str) -> Place:
        table, _, name = where.rpartition(".")
        found: int | None = None
        inside = False
        for number, line in enumerate(self._lines(file), start=1):
            if header := re.match(r"\s*\[([^\[\]]+)\]", line):
                inside = header[1].strip() == table
                found = number if inside else found
            elif inside and re.match(rf"""\s*["']?{re.escape(name)}["']?\s*=""", line):
                return Place(file, number)
        return Place(file, found)

    def binding(self, path: str) -> Place:
        """The entry of the bindings that names a parameter path, else where the source declares it."""
        file = self.card.weights.bindings if self.card else None
        if file is None:
            return self.parameter(path)
        if self._bindings is None:
            self._bindings = {}
            for number, line in enumerate(self._lines(file), start=1):
                for key in re.findall(r'"((?:[^"\\]|\\.)*)"\s*:', line):
                    # Whatever its placeholders are called.
                    self._bindings.setdefault(re.sub(r"\{\w+\}", "{i}", key), number)
        number = self._bindings.get(path, self._bindings.get(pattern(path), 0))
        return Place(file, number) if number else self.parameter(path)

    def parameter(self, path: str) -> Place:
        """The innermost declaration within the package on the way to a path; the source where there is none."""
        place = Place(self.card.source.path if self.card else CARD_NAME)
        block: CheckedBlock | None = self.bound.block if self.bound else None
        for part in path.split("."):
            if part.isdigit():
                continue
            member = block.members.get(part) if block else None
            if member is None:
                break
            place = self._span(member.span) or place
            block = _block_of(member.type)
        return place

    def entry(self, name: str) -> Place:
        """The declaration of an entry; that of the root block where it is gone."""
        if self.bound is None:
            return self.parameter("")
        function = self.bound.entries().get(name)
        return self._span(function.span if function else self.bound.block.span) or self.parameter("")

    def _span(self, span: Span) -> Place | None:
        """A span's line, if it is of a file in the package."""
        try:
            file = Path(span.source.name).resolve().relative_to(self.folder.resolve())
        except ValueError:
            return None
        return Place(file.as_posix(), span.source.position(span.start)[0])

    def _lines(self, file: str) -> list[str]:
        if file not in self._texts:
            try:
                data = read_file(self.folder, file, BINDINGS_BYTES)
            except RegistryError:
                # The check has said so; a finding then has no line.
                data = b""
            self._texts[file] = data.decode(errors="replace").split("\n")
        return self._texts[file]


def _block_of(kind: Type) -> CheckedBlock | None:
    """The block that a member is, or is an array of, or may be."""
    while isinstance(kind, BlockArrayType | OptionalType):
        kind = kind.inner
    return kind.block if isinstance(kind, BlockType) else None
