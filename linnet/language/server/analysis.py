"""A file checked with what editors have open: its diagnostics, its names, and where its modules lie."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from linnet.language.check import CheckResult, load
from linnet.language.check.modules import STD_ROOT
from linnet.language.check.references import Reference
from linnet.language.diagnostics import Diagnostic
from linnet.language.source import Source


@dataclass(frozen=True)
class Analysis:
    """What the check of `path` found."""

    path: Path
    result: CheckResult

    @cached_property
    def sources(self) -> Mapping[Path, Source]:
        """The sources that were read, by resolved path."""
        found = {path_of(source): source for source in self.result.references.sources()}
        for item in self.result.diagnostics:
            found.setdefault(path_of(item.span.source), item.span.source)
        return found

    @cached_property
    def diagnostics(self) -> Mapping[Path, list[Diagnostic]]:
        """What is said about each file."""
        found: dict[Path, list[Diagnostic]] = {}
        for item in self.result.diagnostics:
            found.setdefault(path_of(item.span.source), []).append(item)
        return found

    def reference(self, offset: int) -> Reference | None:
        """The name at a character offset of the file itself."""
        source = self.sources.get(self.path)
        return self.result.references.at(source, offset) if source is not None else None


def analyse(path: Path, overlay: Mapping[Path, str]) -> Analysis:
    """Check the resolved `path`, reading open files from `overlay`. Raises OSError where it cannot be read."""
    return Analysis(path, load(path, overlay))


def path_of(source: Source) -> Path:
    """Where a source lies; the standard library's are named by module."""
    path = Path(source.name)
    return path.resolve() if path.is_absolute() else STD_ROOT.parent / path
