"""What a check found: sections of findings, as plain values."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from linnet.language.program.binding import BoundProgram
from linnet.registry.card import Card
from linnet.registry.errors import Problem
from linnet.registry.match import Match

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem of a package, and how grave it is: `severity` is `error` or `warning`."""

    severity: str
    kind: str
    where: str
    message: str
    help: str

    def __str__(self) -> str:
        return str(Problem(self.kind, self.where, self.message, self.help))


@dataclass(frozen=True, slots=True)
class Section:
    """One part of the check. `status` is ok, warning, error or skipped; `summary` says what was found, or why not."""

    name: str
    status: str
    summary: str
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The check of one package: `package` is its folder, `name` what its card says (empty if unread).

    `card`, `bound` and `match` are what the check worked with, for whoever goes on from here; None where the check
    did not come so far. They are no part of the JSON.
    """

    package: str
    name: str
    sections: tuple[Section, ...]
    card: Card | None = field(default=None, repr=False)
    bound: BoundProgram | None = field(default=None, repr=False)
    match: Match | None = field(default=None, repr=False)

    @property
    def ok(self) -> bool:
        """No errors."""
        return not self.errors()

    @property
    def undone(self) -> bool:
        """The only errors are the Hub's: not all could be checked."""
        errors = self.errors()
        return bool(errors) and all(error.kind.startswith("hub.") for error in errors)

    def errors(self) -> list[Finding]:
        """Findings that fail the check."""
        return [finding for section in self.sections for finding in section.findings if finding.severity == "error"]

    def section(self, name: str) -> Section:
        """The section of that name. Raises KeyError."""
        return {section.name: section for section in self.sections}[name]

    def with_section(self, section: Section) -> CheckReport:
        """This report with one section more."""
        return dataclasses.replace(self, sections=(*self.sections, section))

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return {
            "schema": SCHEMA,
            "package": self.package,
            "name": self.name,
            "ok": self.ok,
            "sections": [dataclasses.asdict(section) for section in self.sections],
        }


def make_section(
    name: str, summary: str, errors: Iterable[Problem] = (), warnings: Iterable[Problem] = (), *, strict: bool = False
) -> Section:
    """A section whose status follows from its findings; under `strict` a warning is an error."""
    findings = [_finding("error", problem) for problem in errors]
    findings += [_finding("error" if strict else "warning", problem) for problem in warnings]
    severities = {finding.severity for finding in findings}
    status = "error" if "error" in severities else "warning" if severities else "ok"
    return Section(name, status, summary, tuple(findings))


def skipped(name: str, reason: str) -> Section:
    """A section that was not checked."""
    return Section(name, "skipped", reason)


def _finding(severity: str, problem: Problem) -> Finding:
    return Finding(severity, problem.kind, problem.where, problem.message, problem.help)
