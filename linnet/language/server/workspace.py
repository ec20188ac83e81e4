"""The open files and what is known of them: each is checked again only when something that it reads has changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from linnet.language.diagnostics import Diagnostic, Diagnostics
from linnet.language.program.environment import Concrete
from linnet.language.server.analysis import Analysis, analyse
from linnet.language.server.concrete import FindPackage, Instances, instances
from linnet.language.server.scope import surroundings
from linnet.language.source import Source
from linnet.language.syntax.parser import parse


class OpenFiles:
    """Texts by resolved path, with cached analyses. `find_package` reads the card that a file belongs to."""

    def __init__(self, find_package: FindPackage) -> None:
        self.texts: dict[Path, str] = {}
        self._find_package = find_package
        self._analyses: dict[Path, Analysis] = {}
        self._instances: dict[Path, Instances] = {}
        self._generation = 0

    def put(self, path: Path, text: str) -> None:
        """The text of an open file, now."""
        if self.texts.get(path) != text:
            self.texts[path] = text
            self.changed([path])

    def close(self, path: Path) -> None:
        """From now on the file on disk counts."""
        if self.texts.pop(path, None) is not None:
            self._analyses.pop(path, None)
            self.changed([path])

    def changed(self, paths: Iterable[Path]) -> None:
        """Forget what was read from `paths`; and analyses with errors, which may have missed one of them."""
        touched = set(paths)
        self._generation += 1
        self._instances.clear()
        for path, analysis in list(self._analyses.items()):
            if not analysis.result.ok or not touched.isdisjoint(analysis.sources):
                del self._analyses[path]

    def stale(self) -> list[Path]:
        """The open files that have changed, or read something that has, since they were checked."""
        return [path for path in self.texts if path not in self._analyses]

    def analysis(self, path: Path) -> Analysis:
        """The analysis of a file as it is now. Raises OSError where it is neither open nor there."""
        found = self._analyses.get(path)
        if found is None:
            generation = self._generation
            found = analyse(path, dict(self.texts))
            # The editor may have gone on meanwhile.
            if generation == self._generation:
                self._analyses[path] = found
        return found

    def diagnostics(self) -> dict[Path, list[Diagnostic]]:
        """What is said about each open file by its own analysis, and about others by those that import them."""
        found: dict[Path, list[Diagnostic]] = {path: [] for path in self.texts}
        for path in self.texts:
            analysis = self._analyses.get(path)
            for other, items in analysis.diagnostics.items() if analysis is not None else ():
                if other == path or (other not in self.texts and other not in found):
                    found[other] = items
        return found

    def generics(self, path: Path, offset: int) -> list[Mapping[str, Concrete]]:
        """The values that the package of `path` gives to the generics in scope at a character offset."""
        package = self._find_package(path)
        if package is None:
            return []
        source = package.source.resolve()
        if source not in self._instances:
            try:
                program = self.analysis(source).result.program
            except OSError:
                program = None
            self._instances[source] = instances(program, package) if program is not None else {}
        return self._in_scope(path, offset, self._instances[source])

    def _in_scope(self, path: Path, offset: int, found: Instances) -> list[Mapping[str, Concrete]]:
        text = self.texts.get(path)
        if text is None:
            return []
        module = parse(Source(str(path), text), Diagnostics())
        around = surroundings(module, offset)
        name = ".".join(part.text for part in module.path)
        block = f"{name}::{around.block.name.text}" if around.block is not None else None
        if around.function is not None:
            entry = f"{block}.{around.function.name.text}" if block else f"{name}::{around.function.name.text}"
            if entry in found:
                return found[entry]
        return found.get(block, []) if block is not None else []
