"""The gate's report in the forms that other programs read: JUnit XML, and Markdown for a job's summary."""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree import ElementTree

from linnet.language.words import counted
from linnet.registry.gate_figures import Judged
from linnet.registry.gate_findings import NOTICE, GateFinding
from linnet.registry.gate_report import FAILED, NEW, PASSED, UNCHANGED, UNDONE, GateReport, GateRun
from linnet.registry.package import human_size

# XML 1.0 has no way to write these characters.
_UNPRINTABLE = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
QUANTITIES = {"perplexity": "Perplexity", "decode": "Decoding", "prompt": "Prompt", "memory": "Peak memory"}


def junit(run: GateRun) -> str:
    """JUnit XML, as CI servers read it: a suite for each package, a case for each part of the gate.

    A regression is a failure of its part's case, what could not be done an error, notices are the case's output.
    """
    top = ElementTree.Element("testsuites", name="nest gate")
    for report in run.reports:
        cases = list(_cases(report))
        counts = {tag: sum(case.find(tag) is not None for case in cases) for tag in ("failure", "error", "skipped")}
        suite = ElementTree.SubElement(
            top,
            "testsuite",
            name=_clean(report.name),
            tests=str(len(cases)),
            failures=str(counts["failure"]),
            errors=str(counts["error"]),
            skipped=str(counts["skipped"]),
        )
        suite.extend(cases)
    ElementTree.indent(top)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(top, encoding="unicode") + "\n"


def _cases(report: GateReport) -> Iterator[ElementTree.Element]:
    for part in report.parts():
        case = _case(report, part)
        found = [finding for finding in report.findings if finding.part == part]
        failures = [finding for finding in found if finding.severity != NOTICE]
        if failures:
            failure = ElementTree.SubElement(
                case, "failure", type=failures[0].kind, message=_clean(failures[0].message)
            )
            failure.text = _clean("\n\n".join(map(told, failures)))
        notices = [told(finding) for finding in found if finding.severity == NOTICE]
        notices += [line for item in report.judged if PART_OF[item.quantity] == part for line in [judged_line(item)]]
        if notices:
            ElementTree.SubElement(case, "system-out").text = _clean("\n\n".join(notices))
        yield case
    for part, reason in report.skipped.items():
        if part not in report.parts():
            case = _case(report, part)
            ElementTree.SubElement(case, "skipped", message=_clean(reason))
            yield case
    if report.undone:
        case = _case(report, "done")
        first = report.undone[0]
        error = ElementTree.SubElement(case, "error", type=first.kind, message=_clean(first.message))
        error.text = _clean("\n".join(map(str, report.undone)))
        yield case


PART_OF = {"perplexity": "perplexity", "decode": "speed", "prompt": "speed", "memory": "memory"}


def _case(report: GateReport, part: str) -> ElementTree.Element:
    return ElementTree.Element("testcase", classname=f"nest.gate.{_clean(report.name)}", name=part)


def told(finding: GateFinding) -> str:
    """A finding as plain text: its id and place, the message, the next step."""
    place = finding.place
    at = f" ({place.file}{f':{place.line}' if place.line else ''})" if place else ""
    return "\n".join(filter(None, [f"{finding.id}{at}", finding.message, finding.help]))


def judged_line(item: Judged) -> str:
    """A quantity on one line: `Perplexity 12.900 -> 12.913 (0.1% worse, 1.0% allowed)`."""
    before, after = values(item)
    return f"{QUANTITIES[item.quantity]} {before} -> {after} ({change(item)}, {item.limit:.1%} allowed)"


def change(item: Judged) -> str:
    """By how much a quantity is worse, or better, with its standard error."""
    error = f" ± {item.error:.1%}" if item.error is not None else ""
    return f"{abs(item.worse):.1%}{error} {'better' if item.worse < 0 else 'worse'}"


def values(item: Judged) -> tuple[str, str]:
    """What was measured before and now, in its unit; a ratio to the baseline as `1.35x`."""

    def shown(value: float) -> str:
        if item.basis == "recorded":
            return f"{value:.2f}x"
        if item.quantity == "perplexity":
            return f"{value:.3f}"
        if item.quantity == "memory":
            return human_size(round(value))
        return f"{value:.1f} tokens/s" if item.quantity == "decode" else f"{value * 1e3:.1f} ms"

    return shown(item.before), shown(item.after)


def markdown(run: GateRun) -> str:
    """A summary in Markdown: a line for each package, then what was found in each."""
    lines = [f"## nest gate against `{run.against}`", ""]
    if not run.reports:
        return "\n".join([*lines, nothing_changed(run), ""])
    lines += ["| package | version | published | result |", "| --- | --- | --- | --- |"]
    for report in run.reports:
        cells = (report.name, report.version or "none", report.published or "never", result(report))
        lines.append(f"| {' | '.join(map(_cell, cells))} |")
    for report in run.reports:
        lines += _section(report)
    return "\n".join([*lines, ""])


def result(report: GateReport) -> str:
    """The status in words."""
    count = len(report.regressions())
    words = {
        FAILED: counted(count, "regression"),
        UNDONE: "could not be done",
        NEW: "new",
        UNCHANGED: "unchanged, skipped",
        PASSED: "passed",
    }
    return words[report.status]


def nothing_changed(run: GateRun) -> str:
    """What is said where no package is gated."""
    return f"No package changed since {run.since}."


def _section(report: GateReport) -> Iterator[str]:
    if not (report.findings or report.judged or report.undone):
        return
    yield from ("", f"### {_cell(report.name)}", "")
    if report.judged:
        yield from ("| | published | now | change | allowed | |", "| --- | --- | --- | --- | --- | --- |")
        for item in report.judged:
            before, after = values(item)
            verdict = item.verdict if item.verdict == "fine" else f"**{item.verdict}**"
            cells = (
                QUANTITIES[item.quantity],
                before,
                after,
                change(item),
                f"{item.limit:.1%}",
                verdict,
            )
            yield f"| {' | '.join(cells)} |"
        yield ""
    for finding in report.findings:
        mark = finding.severity if finding.severity == NOTICE else f"**{finding.severity}**"
        help = f" {finding.help}" if finding.help else ""
        yield f"- {mark} `{finding.id.replace('`', '')}`: {_text(finding.message + help)}"
    for problem in report.undone:
        yield f"- **could not be done** {_text(str(problem))}"
    for reason in dict.fromkeys(report.skipped.values()):
        parts = ", ".join(part for part, other in report.skipped.items() if other == reason)
        yield f"- Not looked at: {parts} ({_text(reason)})."


def _cell(text: str) -> str:
    return _text(text).replace("|", "\\|")


def _text(text: str) -> str:
    """Text from a package as Markdown may hold it: one line, no HTML, no links or pictures of its own."""
    line = _clean(" ".join(text.split()))
    return re.sub(r"([\\<>\[\]*_])", r"\\\1", line.replace("&", "&amp;"))


def _clean(text: str) -> str:
    return _UNPRINTABLE.sub("\ufffd", text)
