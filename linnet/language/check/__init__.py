"""From a file to a checked program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from linnet.language.check.references import References
    from linnet.language.diagnostics import Diagnostic
    from linnet.language.program.checked import Program


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The diagnostics of a file and all that it imports; the program where there is no error among them.

    `references` say what each name means, also in a program with errors, as far as it was understood.
    """

    program: Program | None
    diagnostics: list[Diagnostic]
    references: References

    @property
    def ok(self) -> bool:
        return self.program is not None

    @property
    def errors(self) -> list[Diagnostic]:
        return [item for item in self.diagnostics if item.severity == "error"]


def load(path: Path, overlay: Mapping[Path, str] | None = None) -> CheckResult:
    """Read, parse and check the file `path` and its imports. Raises OSError where `path` itself cannot be read.

    `overlay` maps resolved paths to the text that stands for what is on disk: an editor's open files.
    """
    # The types that programs are made of import this package's `dims`, so the checker is imported when it is needed.
    from linnet.language.check.checker import Checker
    from linnet.language.check.modules import Loader
    from linnet.language.diagnostics import Diagnostics
    from linnet.language.source import Span

    diagnostics = Diagnostics()
    root = Loader(diagnostics, overlay=overlay).load_root(path)
    # Names that a broken tree lacks would only cause errors that are not there: of such a tree only the names are kept.
    program: Program | None = None
    checker = Checker(Diagnostics() if diagnostics.has_errors else diagnostics)
    try:
        program = checker.check(root)
    except RecursionError:
        where = Span(root.tree.source, 0, 0)
        diagnostics.error("E2190", "what this source declares nests too deeply to be checked", where)
    return CheckResult(None if diagnostics.has_errors else program, diagnostics.items, checker.references)
