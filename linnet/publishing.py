"""`nest publish`: a package is checked, run, perhaps measured and compared, and then published.

The registry publishes plain values; what they say is found out here, by the rooms that know.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from linnet import nest
from linnet.benchmark import find_here, run_bench
from linnet.gating import gate_for_publish
from linnet.load_options import LoadOptions
from linnet.registry.bench import BENCH_NAME, BenchReport, read_bench, sources_digest
from linnet.registry.configured import configured_registries
from linnet.registry.errors import PackageError, Problem, RegistryError, bare, listed, nearest, shown
from linnet.registry.gate_report import GateReport
from linnet.registry.index import package_version
from linnet.registry.locate import ALIKE, Located
from linnet.registry.package import CARD_NAME, digest_file, name_fault, package_files
from linnet.registry.pins import OBJECT_BYTES
from linnet.registry.publish import (
    Publication,
    Published,
    PublishError,
    check_publishable,
    make_publication,
    publish_version,
)
from linnet.registry.records import VersionRecord
from linnet.registry.registry import Registry
from linnet.registry.report import CheckReport
from linnet.registry.store.open import open_store
from linnet.registry.weights import locate_weights

Watch = Callable[[Sequence[Any]], Iterable[Any]]
Say = Callable[[str], None]


class CheckFailedError(nest.NestError):
    """A package that is not published because its check failed; `report` says why."""

    def __init__(self, report: CheckReport) -> None:
        self.report = report
        super().__init__(f"{report.name or report.package} was not published: its check failed")


class GateFailedError(nest.NestError):
    """A package that is not published because it is worse than its last version, or the gate could not tell; `report`
    says in what."""

    def __init__(self, report: GateReport) -> None:
        self.report = report
        reason = f"it is worse than {report.published}" if report.regressions() else "the gate could not be done"
        super().__init__(f"{report.name} was not published: {reason}")


@dataclass(frozen=True, slots=True)
class Plan:
    """What a publish does, before anything is written: the version, what goes where, and what was found.

    `there` is whether the registry has the version with this content already. Sizes are in bytes.
    """

    registry: str
    publication: Publication
    there: bool

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        record = self.publication.record
        held = record.objects()
        return {
            "registry": self.registry,
            "name": record.name,
            "version": record.version,
            "there": self.there,
            "files": len(record.files),
            "objects": len(held),
            "objects_size": sum(held.values()),
            "weights": {
                "repo": record.weights.repo,
                "revision": record.weights.revision,
                "files": [
                    {"path": file.path, "size": file.size, "sha256": file.sha256} for file in record.weights.files
                ],
            },
            "check": {section["name"]: section["status"] for section in record.check["sections"]},
            "bench": record.bench is not None,
            "gate": record.gate,
        }


def open_registry(named: str | os.PathLike[str] | None = None) -> Registry:
    """The registry that is written to: the first of those that `named`, or else LINNET_REGISTRY, gives."""
    return Registry(open_store(configured_registries(named)[0]))


def plan_publish(
    name_or_dir: str | os.PathLike[str],
    *,
    registry: str | os.PathLike[str] | None = None,
    weights: Path | None = None,
    smoke: str | None = None,
    bench: bool = False,
    gate: bool = True,
    say: Say = lambda step: None,
    watch: Watch = iter,
) -> Plan:
    """Everything before the first write: find the package, check it, run it, measure it, pin its weights, and ask the
    registry whether it may be published. Raises as `linnet.nest.publish` does.
    """
    target = open_registry(registry)
    package = find_working(name_or_dir)
    before = _held_files(package, weights)
    say("check")
    report = nest.check(_reference(package), smoke=smoke, weights=weights)
    if not report.ok:
        raise CheckFailedError(report)
    if bench:
        say("bench")
        measure(package, weights, watch)
    say("weights")
    version, figures = package_version(package.folder, package.card()), matching_bench(package)
    publication = make_publication(package, version, report, figures, weights)
    there = check_publishable(target, publication.record) is not None
    if gate and not there:
        say("gate")
        publication = with_gate(publication, gate_for_publish(package, target, check=report, bench=figures))
    # Measuring writes its report into the package.
    _refuse_change(publication.record, before, _held_files(package, weights), but=BENCH_NAME if bench else None)
    return Plan(target.url, publication, there)


def _held_files(package: Located, weights: Path | None) -> dict[str, str]:
    """The sha256 of every file that a registry would hold of the package, as it is now; none where the check says why
    there can be none."""
    try:
        card = package.card()
        found = {file.path: file.sha256 for file in package_files(package.folder, skip=frozenset(card.weights.files))}
        beside = locate_weights(package.folder, card, weights).local if card.weights.repo is None else {}
        small = {name: path for name, path in beside.items() if path.is_file() and path.stat().st_size <= OBJECT_BYTES}
        return found | {name: digest_file(path)[1] for name, path in small.items()}
    except RegistryError:
        return {}


def _refuse_change(record: VersionRecord, before: Mapping[str, str], after: Mapping[str, str], but: str | None) -> None:
    """Raises PublishError where what was checked, run or compared is not what would be published; `but` one file."""
    held = {file.path: file.sha256 for file in record.files}
    held |= {file.path: file.sha256 for file in record.weights.files if file.object}
    names = {name for name in {*held, *before, *after} if name != but}
    changed = sorted(name for name in names if not before.get(name) == held.get(name) == after.get(name))
    if changed:
        message = f"{listed(changed, 3)} of {record.name} changed while it was checked."
        raise PublishError([Problem("publish.changed", changed[0], message, "Publish again once it is finished.")])


def find_working(name_or_dir: str | os.PathLike[str]) -> Located:
    """The package that is worked on: `NAME` of `./nests`, a folder, or a repository of the Hub; not one that only a
    registry has. Raises RegistryError.
    """
    text = os.fspath(name_or_dir)
    folder = Path("nests") / text
    if name_fault(text.partition("@")[0]) is None and not (folder / CARD_NAME).is_file() and not Path(text).exists():
        close = nearest(text, [path.parent.name for path in Path("nests").glob(f"*/{CARD_NAME}")], alike=ALIKE)
        help = f"The nearest in ./nests is {close}." if close else f"Name a folder that holds a {CARD_NAME}."
        message = f"There is no package {shown(text)} in ./nests, and no folder of that name."
        raise PackageError([Problem("package.unknown", bare(text), message, help)])
    return find_here(name_or_dir)


def with_gate(publication: Publication, report: GateReport) -> Publication:
    """The publication with what the gate found. Raises GateFailedError where that is against it."""
    if not report.ok:
        raise GateFailedError(report)
    # Where the package lay is nobody's concern.
    result = None if report.published is None else {**report.to_dict(), "folder": report.name}
    return replace(publication, record=replace(publication.record, gate=result))


def carry_out(plan: Plan, say: Say = lambda step: None) -> Published:
    """Publish what was planned. Raises as `publish_version` does."""
    fresh = Registry(open_store(plan.registry))
    return publish_version(Registry(open_store(plan.registry)), plan.publication, say, fresh=fresh)


def measure(package: Located, weights: Path | None, watch: Watch) -> BenchReport:
    """Measure the package as `nest bench` does by itself, and write `bench.json` beside its card."""
    return run_bench(
        _reference(package),
        baseline=None,
        with_baseline=True,
        baseline_weights=None,
        prompt=None,
        new=None,
        runs=3,
        perplexity=True,
        output=None,
        watch=watch,
        load=LoadOptions(weights=weights),
    )[0]


def matching_bench(package: Located) -> BenchReport | None:
    """The package's `bench.json`, where it was measured on these very sources."""
    report = read_bench(package.folder)
    if report is None:
        return None
    files = package_files(package.folder, skip=frozenset(package.card().weights.files))
    return report if report.package.digest == sources_digest(files) else None


def _reference(package: Located) -> str:
    """What names exactly this package."""
    return f"{package.repo}@{package.revision}" if package.repo else str(package.folder.absolute())
