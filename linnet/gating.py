"""`nest gate`: working packages against their last published versions, in CI and before a publish.

The registry compares what is written (`linnet.registry.gate`) and judges what is measured
(`linnet.registry.gate_figures`); here packages are found, checked, put side by side and measured.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from linnet.gating_measure import Measurement, Measuring, Pair, measure_pair
from linnet.load_options import LoadOptions
from linnet.registry.bench import BenchReport
from linnet.registry.cache import Cache
from linnet.registry.changes import changed_packages
from linnet.registry.check import check_package
from linnet.registry.client import Client
from linnet.registry.configured import configured_registries
from linnet.registry.errors import CardError, PackageError, Problem, RegistryError, nearest, shown
from linnet.registry.gate import compare, problem_findings
from linnet.registry.gate_figures import Judged, comparable, judge_recorded, judge_scores, limits
from linnet.registry.gate_findings import NOTICE, PARTS, GateFinding, judge, ordered, unused
from linnet.registry.gate_places import Places
from linnet.registry.gate_report import GateReport, GateRun
from linnet.registry.gate_snapshot import Snapshot, published_snapshot, working_snapshot
from linnet.registry.locate import Located
from linnet.registry.package import CARD_NAME, name_fault
from linnet.registry.records import VersionRecord
from linnet.registry.registry import Held, Registry
from linnet.registry.report import CheckReport
from linnet.registry.resolve import Resolved, Source
from linnet.registry.semver import is_release, precedence, version_fault
from linnet.registry.store.base import StoreError

NESTS = Path("nests")
MEASURED = ("perplexity", "parity", "speed", "memory")


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured with: see `linnet.nest.gate`."""

    limit_tokens: int | None
    runs: int
    watch: Callable[[Sequence[Any]], Iterable[Any]]
    load: LoadOptions


@dataclass(frozen=True, slots=True)
class Compared:
    """A working package beside its last published version, before anything is measured. `sha256` is the record's."""

    package: Located
    new: Snapshot
    record: VersionRecord | None
    sha256: str
    old: Snapshot | None
    findings: tuple[GateFinding, ...]

    @property
    def unchanged(self) -> bool:
        return self.old is not None and self.old.same_content(self.new)

    @property
    def checked_wrong(self) -> bool:
        return any(finding.kind == "check-failed" for finding in self.findings)

    @property
    def allow(self) -> tuple[str, ...]:
        return tuple(self.new.card.get("gate", {}).get("allow", ()))

    def report(
        self,
        findings: Iterable[GateFinding] | None = None,
        judged: Iterable[Judged] = (),
        skipped: Mapping[str, str] | None = None,
        undone: Iterable[Problem] = (),
    ) -> GateReport:
        """The report, with `findings` in place of its own."""
        found = list(self.findings if findings is None else findings)
        left_out = dict(skipped or {})
        if self.old is not None and None in (self.old.parameters, self.new.parameters):
            reason = f"{self.old.version} lists none" if self.old.parameters is None else "it does not check so far"
            left_out = {"manifest": reason, **left_out}
        if self.old is not None and not self.unchanged:
            found += unused(self.allow, found, left_out)
        return GateReport(
            name=self.new.name,
            folder=str(self.package.folder),
            version=self.new.version,
            published=self.record.version if self.record else None,
            findings=tuple(ordered(found)),
            judged=tuple(judged),
            skipped=left_out,
            undone=tuple(undone),
            unchanged=self.unchanged,
        )


def gate(
    packages: Sequence[str | os.PathLike[str]],
    *,
    against: str | os.PathLike[str] | None = None,
    bench: bool = True,
    since: str | None = None,
    nests: Path = NESTS,
    limit_tokens: int | None = None,
    runs: int = 3,
    watch: Callable[[Sequence[Any]], Iterable[Any]] = iter,
    load: LoadOptions,
) -> GateRun:
    """See `linnet.nest.gate`."""
    folders = [working_folder(name, nests) for name in packages]
    if since is not None:
        changed = changed_packages(nests, since)
        here = {folder.resolve() for folder in changed}
        folders = [folder for folder in folders if folder.resolve() in here] if folders else changed
    registry = Source(configured_registries(against)[0], Cache()).registry
    how = Plan(limit_tokens, runs, watch, load) if bench else None
    return GateRun(registry.url, tuple(_gate(folder, registry, how) for folder in folders), since)


def gate_for_publish(
    package: Located,
    registry: Registry,
    *,
    check: CheckReport | None = None,
    bench: BenchReport | None = None,
) -> GateReport:
    """The gate of a package that is about to be published: nothing is measured here.

    `check` is its check where it was made before. The figures of `bench`, this package's own, are judged against those
    that the published version has on record, as far as they compare. Raises RegistryError for a registry that does not
    answer and a package that cannot be read.
    """
    compared = _compare(package, registry, check)
    old, findings = compared.old, list(compared.findings)
    if compared.record is None or compared.unchanged or old is None:
        return compared.report()
    skipped = {"parity": "nest gate compares the engines"}
    judged = []
    then = recorded_bench(compared.record)
    version = compared.record.version
    allowed = limits(compared.new.card)
    if bench is None:
        skipped |= dict.fromkeys(MEASURED, "nothing was measured (nest bench, nest gate)")
    elif then is None:
        skipped |= dict.fromkeys(("perplexity", "speed", "memory"), f"{version} has no figures on record")
    else:
        found, more = judge_scores(then.package.perplexity, bench.package.perplexity, allowed, version)
        judged += [found] if found is not None else []
        findings += judge(more, compared.allow)
        if comparable(then, bench):
            several, more = judge_recorded(bench, then, allowed, version)
            judged += several
            findings += judge(more, compared.allow)
        else:
            reason = f"the figures of {version} are of another baseline, protocol or machine"
            skipped |= {"speed": reason, "memory": reason}
    return compared.report(findings, judged, skipped)


def working_folder(name: str | os.PathLike[str], nests: Path = NESTS) -> Path:
    """The folder of a package that one works on: NAME in `nests`, or a folder. Raises PackageError."""
    text = os.fspath(name)
    if name_fault(text) is None and (nests / text / CARD_NAME).is_file():
        return nests / text
    folder = Path(text).expanduser()
    if (folder / CARD_NAME).is_file():
        return folder
    known = {card.parent.name: card.parent for card in nests.glob(f"*/{CARD_NAME}")}
    close = nearest(text, known, alike=0.5)
    help = f"The nearest is {known[close]}." if close else f"Name a folder that holds a {CARD_NAME}."
    message = f"There is no package {shown(text)} in {nests}, nor a folder of that name with a {CARD_NAME}."
    raise PackageError([Problem("package.unknown", text, message, help)])


def _gate(folder: Path, registry: Registry, plan: Plan | None) -> GateReport:
    """One package. What could not be done is in its report."""
    name = folder.resolve().name
    try:
        compared = _compare(Located(folder), registry, None)
    except CardError as error:
        findings = tuple(problem_findings(error.problems, Places(folder, None, None)))
        return GateReport(name, str(folder), None, None, findings, skipped=_all_but_package("there is no card"))
    except RegistryError as error:
        skipped = _all_but_package("it could not be done")
        return GateReport(name, str(folder), None, None, undone=error.problems, skipped=skipped)
    if compared.record is None or compared.unchanged:
        return compared.report()
    reason = _unmeasurable(compared, plan)
    if plan is None or reason is not None:
        return compared.report(skipped=dict.fromkeys(MEASURED, reason or ""))
    try:
        done = _measure(compared, registry, plan)
    except RegistryError as error:
        return compared.report(undone=error.problems, skipped=dict.fromkeys(MEASURED, "it could not be done"))
    found = [*compared.findings, *judge(done.findings, compared.allow)]
    return compared.report(found, done.judged, done.skipped, done.undone)


def _all_but_package(reason: str) -> dict[str, str]:
    return {part: reason for part in PARTS if part != "package"}


def _unmeasurable(compared: Compared, plan: Plan | None) -> str | None:
    """Why nothing is measured; None where it is."""
    if plan is None:
        return "left out (--no-bench)"
    if compared.checked_wrong:
        return "the package does not pass its check"
    assert compared.old is not None
    if compared.old.same_program(compared.new) and plan.load.weights is None:
        return f"program and weights are those of {compared.old.version}"
    return None


def _measure(compared: Compared, registry: Registry, plan: Plan) -> Measurement:
    assert compared.record is not None
    assert compared.old is not None
    record = compared.record
    published = Client(registry.url, offline=plan.load.offline).folder(Resolved(registry.url, record, compared.sha256))
    same = compared.old.same_weights(compared.new)
    how = Measuring(plan.load, plan.limit_tokens, plan.runs, plan.load.weights if same else None, plan.watch)
    pair = Pair(
        working=compared.package,
        card=compared.package.card(),
        published=Located(published),
        version=record.version,
        limits=limits(compared.new.card),
    )
    return measure_pair(pair, how)


# Comparing


def _compare(package: Located, registry: Registry, check: CheckReport | None) -> Compared:
    # The weights' bytes are not the registry's to judge, and the Hub is not asked.
    report = check or check_package(package, hub=False)
    new = working_snapshot(package, report.card or package.card(), report)
    places = Places(package.folder, report.card, report.bound)
    versions, held = last_published(registry, new.name, new.version)
    if held is None:
        message = f"{registry.url} has no version of {new.name}: everything is new."
        if versions:
            message = f"All versions of {new.name} in {registry.url} are yanked: everything is new."
        finding = GateFinding("new-package", NOTICE, "", message, "Publish it with nest publish.")
        return Compared(package, new, None, "", None, (finding, *problem_findings(report.errors(), places)))
    record = held.document
    old = published_snapshot(record, registry.parameters(record))
    found = () if old.same_content(new) else tuple(compare(old, new, report, places, versions))
    return Compared(package, new, record, held.sha256, old, found)


def last_published(
    registry: Registry, name: str, version: str | None
) -> tuple[tuple[str, ...], Held[VersionRecord] | None]:
    """All versions of a package, and the record of the one that a working `version` is compared with.

    That is the newest that is neither yanked nor newer than `version`; for a release the newest release, if there is
    one. Where all are newer, the newest of them. Raises StoreError, RecordError.
    """
    package = registry.package(name)
    entries = {entry.version: entry for entry in package.versions} if package is not None else {}
    try:
        listed = registry.versions(name)
    except StoreError as error:
        # A static host lists nothing: there the package's own file is all there is.
        if error.problems[0].kind != "store.no-list":
            raise
        listed = []
    known = sorted({*entries, *listed}, key=precedence)
    usable = [text for text in known if text not in entries or (entries[text].usable and not entries[text].yanked)]
    limit = precedence(version) if version is not None and version_fault(version) is None else None
    earlier = [text for text in usable if limit is None or precedence(text) <= limit] or usable
    releases = [text for text in earlier if is_release(text)]
    wanted = releases if version is None or version_fault(version) is not None or is_release(version) else earlier
    chosen = (wanted or earlier)[-1:]
    return tuple(known), registry.version(name, chosen[0]) if chosen else None


def recorded_bench(record: VersionRecord) -> BenchReport | None:
    """The figures that a version has on record; None where it has none, or none that this program can read."""
    if record.bench is None:
        return None
    try:
        return BenchReport.from_json(json.dumps(record.bench))
    except RegistryError:
        return None
