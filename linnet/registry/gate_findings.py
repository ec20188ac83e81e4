"""What the gate finds: changes of a package against its last published version, and which of them it lets pass.

A finding's id, `kind:where`, is stable: it is what a card's `[gate] allow` names, with `*` and `?` as in file names.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from linnet.language.words import counted
from linnet.registry.errors import nearest, shown

REGRESSION, NOTICE = "regression", "notice"


@dataclass(frozen=True, slots=True)
class Kind:
    """`part` of the gate that finds it, as reports group findings; `meaning` is a sentence."""

    part: str
    meaning: str


# The parts in the order of reports.
PARTS = ("package", "manifest", "entries", "card", "weights", "perplexity", "parity", "speed", "memory")

# Every kind of finding. A test compares it with docs/gate.md.
KINDS: Mapping[str, Kind] = {
    "new-package": Kind("package", "The registry has no version of the package, so that nothing is compared."),
    "check-failed": Kind("package", "The package does not pass its static check."),
    "version-taken": Kind("package", "The version is published with other content."),
    "path-removed": Kind("manifest", "A parameter path is gone."),
    "path-added": Kind("manifest", "A parameter path is new."),
    "path-renamed": Kind("manifest", "The tensor of a parameter path is read by another path."),
    "shape-changed": Kind("manifest", "A parameter has another shape."),
    "dtype-changed": Kind("manifest", "A parameter has another dtype."),
    "presence-changed": Kind("manifest", "An optional parameter is required now, or the reverse."),
    "binding-renamed": Kind("manifest", "A parameter reads a tensor of another name."),
    "entry-removed": Kind("entries", "An entry is gone."),
    "entry-added": Kind("entries", "An entry is new."),
    "entry-changed": Kind("entries", "An entry has another signature."),
    "main-entry-changed": Kind("entries", "A call of the model runs another entry."),
    "generic-removed": Kind("entries", "A generic of the root block is gone."),
    "generic-added": Kind("entries", "A generic of the root block is new."),
    "generic-changed": Kind("entries", "A generic of the root block has another value."),
    "licence-changed": Kind("card", "The licence is another one."),
    "tokenizer-changed": Kind("card", "The card names another tokenizer, template or special token."),
    "bench-changed": Kind("card", "The card measures by another text, window, prompt or baseline."),
    "limit-raised": Kind("card", "The card's [gate] allows more than the published one's."),
    "allow-unused": Kind("card", "A pattern of [gate] allow accepts nothing."),
    "weights-moved": Kind("weights", "The weights are of another repository or commit."),
    "weights-added": Kind("weights", "A weight file is new."),
    "weights-removed": Kind("weights", "A weight file is gone."),
    "weights-changed": Kind("weights", "A weight file has other bytes."),
    "perplexity-rose": Kind("perplexity", "The perplexity rose beyond the limit."),
    "perplexity-unclear": Kind("perplexity", "The perplexity rose, within what its standard error leaves open."),
    "perplexity-not-finite": Kind("perplexity", "The model has no perplexity: its logits are not all numbers."),
    "tokens-changed": Kind("perplexity", "The text has other tokens, so that perplexities do not compare."),
    "run-failed": Kind("perplexity", "The model cannot be run."),
    "not-measured": Kind("perplexity", "A quantity that the gate judges was not measured."),
    "parity-lost": Kind("parity", "The engines differ on the package beyond the tolerance."),
    "decode-slower": Kind("speed", "Decoding is slower beyond the limit."),
    "prompt-slower": Kind("speed", "A prompt takes longer beyond the limit."),
    "speed-unclear": Kind("speed", "It is slower beyond the limit by the medians, but runs overlap."),
    "memory-grew": Kind("memory", "The peak of memory grew beyond the limit."),
}


# What is no change but a fault: no card accepts it.
FAULTS = frozenset({"check-failed", "run-failed", "perplexity-not-finite"})


@dataclass(frozen=True, slots=True)
class Place:
    """A line, from 1, of a file of the package; None stands for the file as a whole."""

    file: str
    line: int | None = None


@dataclass(frozen=True, slots=True)
class GateFinding:
    """One change. `severity` is `regression`, which fails the gate, or `notice`.

    `where` is what changed: a parameter path (`layers.{i}.` where it is so in several), an entry, a generic, a key of
    the card, a weight file; empty where the kind says all. `allowed` is the pattern of `[gate] allow` that made a
    notice of a regression.
    """

    kind: str
    severity: str
    where: str
    message: str
    help: str
    place: Place | None = None
    allowed: str | None = None

    @property
    def id(self) -> str:
        return f"{self.kind}:{self.where}" if self.where else self.kind

    @property
    def part(self) -> str:
        return KINDS[self.kind].part

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        found = dataclasses.asdict(self)
        return {"id": self.id, "part": self.part, **found}


@dataclass(frozen=True, slots=True)
class Change:
    """A change at one path of the manifest, before changes that are alike in several layers become one finding.

    `message` and `help` are formatted with `where` (the path, and in how many places it is), `before` and `after`.
    """

    kind: str
    severity: str
    path: str
    before: str
    after: str
    message: str
    help: str
    place: Place | None = None


def pattern(path: str) -> str:
    """A path, or a tensor's name, with `{i}` for each array position: `layers.{i}.norm.weight`."""
    return ".".join("{i}" if part.isascii() and part.isdigit() else part for part in path.split("."))


def settle(findings: Sequence[GateFinding], changes: Sequence[Change], allow: Sequence[str]) -> list[GateFinding]:
    """All findings, those that `allow` accepts as notices, and changes that are alike in several layers as one.

    A pattern accepts a change by its own path as well as by that of its group.
    """
    groups: dict[tuple[str | None, ...], list[Change]] = {}
    for item in changes:
        ids = (f"{item.kind}:{item.path}", f"{item.kind}:{pattern(item.path)}")
        allowed = _accepting(ids, allow) if item.severity == REGRESSION else None
        key = (allowed, item.kind, item.severity, item.message, item.help)
        groups.setdefault((*key, *map(pattern, (item.path, item.before, item.after))), []).append(item)
    grouped = [_as_finding(group, allowed=key[0]) for key, group in groups.items()]
    return ordered([*grouped, *judge(findings, allow)])


def judge(findings: Iterable[GateFinding], allow: Sequence[str]) -> list[GateFinding]:
    """The findings, regressions that `allow` accepts as notices."""
    return [
        _allow(item, _accepting([item.id], allow)) if item.severity == REGRESSION and item.kind not in FAULTS else item
        for item in findings
    ]


def unused(allow: Sequence[str], findings: Sequence[GateFinding], skipped: Iterable[str]) -> list[GateFinding]:
    """A notice for each pattern that accepted none of `findings`, the whole of a package's, unless the parts that it is
    about were `skipped`."""
    used = {finding.allowed for finding in findings}
    left_out = set(skipped)
    found = []
    for text in allow:
        kinds = [kind for kind in KINDS if fnmatchcase(kind, text.partition(":")[0])]
        if text not in used and not (kinds and left_out.issuperset(KINDS[kind].part for kind in kinds)):
            found.append(_unused(text, kinds, findings))
    return found


def ordered(findings: Iterable[GateFinding]) -> list[GateFinding]:
    """Regressions first, then by part, kind and place."""
    return sorted(findings, key=_order)


def _accepting(ids: Iterable[str], allow: Sequence[str]) -> str | None:
    """The first pattern that one of the ids fits."""
    known = list(ids)
    return next((text for text in allow if any(fnmatchcase(id, text) for id in known)), None)


def _as_finding(group: Sequence[Change], allowed: str | None) -> GateFinding:
    first = group[0]
    many = len(group) > 1
    before, after, path = (pattern(text) if many else text for text in (first.before, first.after, first.path))
    where = f"{path} (in {counted(len(group), 'place')})" if many else path
    words = {"where": where, "before": before, "after": after}
    finding = GateFinding(
        first.kind, first.severity, path, first.message.format(**words), first.help.format(**words), first.place
    )
    return _allow(finding, allowed)


def _allow(finding: GateFinding, text: str | None) -> GateFinding:
    if text is None:
        return finding
    return dataclasses.replace(finding, severity=NOTICE, help=f"Accepted by [gate] allow: {shown(text)}.", allowed=text)


def _unused(text: str, kinds: Sequence[str], found: Sequence[GateFinding]) -> GateFinding:
    close = nearest(text, [item.id for item in found if item.severity == REGRESSION], alike=0.6)
    help = f"The nearest regression is {close}." if close else "Remove it, so that it accepts no later change unseen."
    if kinds and FAULTS.issuperset(kinds):
        help = "Correct what it is about: that is no change, and no card accepts it."
    if not kinds:
        word = text.partition(":")[0]
        help = f"{shown(word)} is no kind of finding; the nearest is {nearest(word, KINDS)}."
    message = f"{shown(text)} in [gate] allow accepts nothing."
    return GateFinding("allow-unused", NOTICE, text, message, help, Place("nest.toml"))


def _order(finding: GateFinding) -> tuple[bool, int, str, str]:
    return finding.severity != REGRESSION, PARTS.index(finding.part), finding.kind, finding.where
