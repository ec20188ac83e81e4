"""The gate's findings as SARIF 2.1.0, which code hosts show beside the lines of a change."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

from linnet.language.sarif import SCHEMA
from linnet.registry.gate_findings import KINDS, NOTICE, GateFinding, Place
from linnet.registry.gate_report import GateReport, GateRun, kinds_found
from linnet.registry.package import CARD_NAME


def sarif(run: GateRun, version: str) -> dict[str, Any]:
    """One run of the gate, as plain values; `version` is the gate's own.

    Regressions are errors, those that the card accepts suppressed ones; notices are notes. Paths are relative where the
    packages' folders are. A fingerprint keeps a finding the same one from run to run, wherever its line moves.
    """
    kinds = kinds_found(run.reports)
    results = [
        _result(report, finding, kinds.index(finding.kind)) for report in run.reports for finding in report.findings
    ]
    notifications = [
        {
            "level": "error",
            "message": {"text": _printable(f"{report.name}: {problem}")},
            "descriptor": {"id": problem.kind},
        }
        for report in run.reports
        for problem in report.undone
    ]
    invocation: dict[str, Any] = {"executionSuccessful": not notifications}
    if notifications:
        invocation["toolExecutionNotifications"] = notifications
    driver = {"name": "nest gate", "semanticVersion": version, "rules": [_rule(kind) for kind in kinds]}
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "invocations": [invocation], "results": results}],
    }


def _rule(kind: str) -> dict[str, Any]:
    return {
        "id": kind,
        "shortDescription": {"text": KINDS[kind].meaning},
        "help": {"text": f"{KINDS[kind].meaning} The guide's page on the gate says what to do."},
        "properties": {"part": KINDS[kind].part},
    }


def _result(report: GateReport, finding: GateFinding, rule: int) -> dict[str, Any]:
    lines = [f"{report.name}: {finding.message}", *([finding.help] if finding.help else [])]
    result: dict[str, Any] = {
        "ruleId": finding.kind,
        "ruleIndex": rule,
        "level": "note" if finding.severity == NOTICE and not finding.allowed else "error",
        "message": {"text": _printable("\n".join(lines))},
        "locations": [{"physicalLocation": _physical(report, finding.place or Place(CARD_NAME))}],
        "partialFingerprints": {"nestGate/v1": _printable(f"{report.name}/{finding.id}")},
    }
    if finding.allowed:
        justification = f"Accepted by [gate] allow: {finding.allowed}"
        result["suppressions"] = [{"kind": "inSource", "justification": _printable(justification)}]
    return result


def _physical(report: GateReport, place: Place) -> dict[str, Any]:
    path = Path(report.folder) / place.file
    uri = path.as_uri() if path.is_absolute() else quote(_printable(path.as_posix()))
    found: dict[str, Any] = {"artifactLocation": {"uri": uri}}
    # A code host shows nothing without a line.
    found["region"] = {"startLine": place.line or 1}
    return found


def _printable(text: str) -> str:
    """Text that UTF-8 can carry."""
    return text.encode("utf-8", "replace").decode("utf-8")
