"""What the gate says of each package, as plain values and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from linnet.registry.errors import Problem
from linnet.registry.gate_figures import Judged
from linnet.registry.gate_findings import KINDS, PARTS, REGRESSION, GateFinding

SCHEMA = 1
PASSED, FAILED, UNDONE, NEW, UNCHANGED = "passed", "failed", "undone", "new", "unchanged"


@dataclass(frozen=True, slots=True)
class GateReport:
    """The gate of one package in `folder`: `version` is its own, `published` the one that it is compared with.

    `parts` are those that were looked at; `skipped` maps a part that was not to the reason. `undone` are the problems
    that kept the gate from coming to an end; a regression found before them still counts.
    """

    name: str
    folder: str
    version: str | None
    published: str | None
    findings: tuple[GateFinding, ...] = ()
    judged: tuple[Judged, ...] = ()
    skipped: dict[str, str] = field(default_factory=dict)
    undone: tuple[Problem, ...] = ()
    unchanged: bool = False

    @property
    def status(self) -> str:
        """`failed` (a regression), `undone`, `new` (never published), `unchanged` (nothing to judge) or `passed`."""
        if self.regressions():
            return FAILED
        if self.undone:
            return UNDONE
        if self.published is None:
            return NEW
        return UNCHANGED if self.unchanged else PASSED

    @property
    def ok(self) -> bool:
        """Whether it may be published, as far as the gate can say."""
        return self.status not in (FAILED, UNDONE)

    def regressions(self) -> list[GateFinding]:
        """The findings that fail the gate."""
        return [finding for finding in self.findings if finding.severity == REGRESSION]

    def parts(self) -> list[str]:
        """The parts that were looked at, in the order of reports."""
        if self.status in (NEW, UNCHANGED):
            return ["package"]
        found = {finding.part for finding in self.findings}
        return [part for part in PARTS if part in found or part not in self.skipped]

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return {
            "name": self.name,
            "folder": self.folder,
            "version": self.version,
            "published": self.published,
            "status": self.status,
            "findings": [finding.to_dict() for finding in self.findings],
            "judged": [item.to_dict() for item in self.judged],
            "skipped": self.skipped,
            "undone": [
                {"kind": item.kind, "where": item.where, "message": item.message, "help": item.help}
                for item in self.undone
            ],
        }


@dataclass(frozen=True, slots=True)
class GateRun:
    """The gate of several packages against one registry; `since` is the git revision whose changes were looked for."""

    against: str
    reports: tuple[GateReport, ...]
    since: str | None = None

    @property
    def ok(self) -> bool:
        return all(report.ok for report in self.reports)

    @property
    def failed(self) -> bool:
        """Whether any package has a regression."""
        return any(report.status == FAILED for report in self.reports)

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return {
            "schema": SCHEMA,
            "against": self.against,
            "since": self.since,
            "ok": self.ok,
            "packages": [report.to_dict() for report in self.reports],
        }


def kinds_found(reports: Sequence[GateReport]) -> list[str]:
    """The kinds of all findings, in the order of `KINDS`."""
    found = {finding.kind for report in reports for finding in report.findings}
    return [kind for kind in KINDS if kind in found]
