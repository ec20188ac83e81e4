"""The smoke test of `nest check`: what the runner found, in the terms of the registry's report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from linnet import nest

if TYPE_CHECKING:
    from linnet.registry.headers import TensorInfo
    from linnet.registry.match import Match
    from linnet.registry.report import CheckReport, Section
    from linnet.runner.smoke import SmokeReport
    from linnet.runner.torch.weights import WeightSource


def weight_source(match: Match, files: Mapping[str, Path]) -> WeightSource:
    """A match in the runner's terms: where on this machine each parameter's tensor lies."""
    from linnet.runner.packed import Packing
    from linnet.runner.torch.weights import PackedLocation, TensorLocation, WeightSource

    def place(info: TensorInfo) -> TensorLocation:
        parts = None
        if info.packed is not None:
            packing = Packing(info.packed.bits, info.packed.group)
            parts = PackedLocation(packing, place(info.packed.scales), place(info.packed.biases))
        row = info.whole.row if info.whole is not None else None
        return TensorLocation(files[info.file], info.stored, info.dtype, info.shape, parts, row)

    found = match.tensors
    return WeightSource({path: info.name for path, info in found.items()}, {i.name: place(i) for i in found.values()})


def smoke_section(report: CheckReport, package: Path, level: str | None, weights: Path | None) -> Section:
    """The runner's smoke test of a package whose static part has gone far enough, as a section of its report."""
    from linnet.registry.bindings import read_bindings
    from linnet.registry.errors import Problem, RegistryError
    from linnet.registry.fetch import verify_digests
    from linnet.registry.report import make_section, skipped
    from linnet.registry.weights import locate_weights
    from linnet.runner.smoke import smoke

    try:
        nest.require_torch()
    except nest.TorchMissingError:
        # Asked for by name, it must run; by default a check without torch is still a check.
        if level is not None:
            raise
        return skipped("smoke", "torch is not installed")
    card, bound, match = report.card, report.bound, report.match
    if card is None or bound is None or report.section("generics").status == "error":
        return skipped("smoke", "there is no program to run")
    source = None
    try:
        bindings = read_bindings(package, card).resolve(bound.manifest)
        located = locate_weights(package, card, weights)
        if level in (None, "full") and match is not None and not match.problems and not located.remote:
            verify_digests(card, located.local)
            source = weight_source(match, located.local)
    except RegistryError as error:
        # The static part has reported all but the digests, which only matter to who reads the bytes.
        digests = [problem for problem in error.problems if problem.kind == "weights.sha256"]
        if digests:
            return make_section("smoke", "the weights are not those of the card", digests)
        return skipped("smoke", "the bindings or the weights have problems")
    if level == "full" and source is None:
        message = f"The real weights of {card.model.name} cannot be run: they are not all on this machine."
        help = "Name a folder that holds them with --weights, or run with --smoke small."
        return make_section("smoke", "no weights to run", [Problem("smoke.weights", "weights.files", message, help)])
    chosen = level or ("full" if source is not None else "small")
    optional = {entry.path for entry in bound.manifest.entries if entry.optional}
    present = match.present if match is not None else bindings.written & optional
    outcome = smoke(bound, card.source.entry, card.check, level=chosen, present=present, weights=source)
    problems = [
        Problem(
            f"smoke.{failure.stage}",
            f"{failure.entry} ({failure.stage})",
            f"{failure.message.rstrip('.')}.",
            _smoke_help(failure.stage, failure.fault),
        )
        for failure in outcome.failures()
    ]
    left_out = ""
    if level is None and source is None:
        left_out = f" (full left out: {'no local weights' if located.remote else 'the weights have problems'})"
    seconds = sum(item.seconds for item in outcome.outcomes)
    return make_section("smoke", f"{_passed(outcome)}{left_out}, {seconds:.1f} s", problems)


def _passed(outcome: SmokeReport) -> str:
    """How many entries passed each stage: `meta 1 entry, small 16 of 17 entries`."""
    ran = Counter(item.stage for item in outcome.outcomes)
    passed = Counter(item.stage for item in outcome.outcomes if item.ok)
    return ", ".join(
        f"{stage} {f'{passed[stage]} of ' * (passed[stage] < count)}{count} {'entry' if count == 1 else 'entries'}"
        for stage, count in ran.items()
    )


_SMOKE_HELP = {
    "source": "Change the source: what decides a graph's structure must be known before it runs.",
    "inputs": "Keep the index or divisor that it names in range in the source, whatever the inputs are.",
    "weights": "Fetch the weights again, or correct the bindings.",
    "torch": "If memory is short, give smaller sizes in the card's [check]; else correct the operation that it names.",
    "linnet": "The fault is this program's and not the package's: please report it, with the source.",
}


def _smoke_help(stage: str, fault: str) -> str:
    """The next step after a failure of the smoke test, by its stage and its `fault`."""
    if fault == "generics":
        if stage == "small":
            return "Widen the `where` of the block or the entry, so that small generics satisfy it."
        return "Correct the card's [check] and [generics], or the entry's `where`."
    if fault == "result":
        if stage == "full":
            return "Compare the source and the bindings with the model that the checkpoint was made for."
        return "Look through the entry's arithmetic; its weights and inputs here are small and random."
    return _SMOKE_HELP[fault]
