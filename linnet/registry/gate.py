"""The gate's static part: what changed in a working package against its last published version.

What is measured is judged in `gate_figures`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from linnet.language.words import counted
from linnet.registry.card import TABLES
from linnet.registry.errors import Problem, listed, shown
from linnet.registry.gate_entries import differences
from linnet.registry.gate_figures import LIMITS, limits
from linnet.registry.gate_findings import NOTICE, REGRESSION, Change, GateFinding, Place, settle
from linnet.registry.gate_places import Places
from linnet.registry.gate_snapshot import Parameter, Snapshot
from linnet.registry.index import one_line
from linnet.registry.report import CheckReport, Finding
from linnet.registry.semver import next_free


def compare(
    old: Snapshot, new: Snapshot, report: CheckReport, places: Places, versions: Sequence[str] = ()
) -> list[GateFinding]:
    """What changed from the published `old` to the working `new`, the gravest first; `versions` are all published."""
    found = problem_findings(report.errors(), places)
    if new.version in versions and not old.same_content(new):
        message = f"{new.name} {new.version} is published with other content, and a published version never changes."
        help = f"Publish this as {next_free(new.version or old.version or '', versions)}."
        found.append(GateFinding("version-taken", NOTICE, "", message, help, places.version()))
    changes: list[Change] = []
    if old.parameters is not None and new.parameters is not None:
        changes = list(_manifest(old, new, places))
    if old.entries is not None and new.entries is not None:
        found += _entries(old.entries, new.entries, places)
    if old.generics is not None and new.generics is not None:
        found += _generics(old.generics, new.generics, places)
    found += _card(old.card, new.card, places)
    found += _weights(old, new, places)
    return settle(found, changes, tuple(new.card.get("gate", {}).get("allow", ())))


def problem_findings(problems: Iterable[Problem | Finding], places: Places) -> list[GateFinding]:
    """What keeps a package from passing its check, problems that are alike in several layers as one."""
    groups: dict[tuple[str, ...], list[Problem | Finding]] = {}
    for item in problems:
        groups.setdefault(tuple(map(_any_layer, (item.where, item.message, item.help))), []).append(item)
    found = []
    for (where, message, help), group in groups.items():
        first = group[0]
        text, advice = first.where.removeprefix(f"{places.folder}/"), first.help
        place = _checked_place(text, places)
        said = first.message
        if len(group) > 1:
            text, advice = where.removeprefix(f"{places.folder}/"), help
            said = f"In {counted(len(group), 'place')}: {message}"
        found.append(GateFinding("check-failed", REGRESSION, text, said, advice, place))
    return found


def _any_layer(text: str) -> str:
    """A text with `{i}` for each array position in the paths and tensors that it names."""
    return re.sub(r"(?<=[A-Za-z_]\.)[0-9]+(?=\.[A-Za-z_])", "{i}", text)


def _checked_place(where: str, places: Places) -> Place | None:
    """The check names a `file:line:column`, a file, a path of the manifest or a key of the card."""
    file, _, rest = where.partition(":")
    if (places.folder / file).is_file():
        line = rest.partition(":")[0]
        return Place(file, int(line) if line.isdigit() else None)
    if where.partition(".")[0] in TABLES:
        return places.key(where)
    return places.binding(where) if "." in where else None


# The manifest

_OWN_WEIGHTS = "whoever loads weights of their own (weights=) cannot any more"


def _manifest(old: Snapshot, new: Snapshot, places: Places) -> Iterator[Change]:
    assert old.parameters is not None
    assert new.parameters is not None
    before, after = old.parameters, new.parameters
    gone = [item for path, item in before.items() if path not in after]
    came = {path: item for path, item in after.items() if path not in before}
    by_tensor = {(item.tensor, item.shape, item.dtype): path for path, item in came.items() if item.tensor}
    for item in gone:
        heir = by_tensor.get((item.tensor, item.shape, item.dtype)) if item.tensor != item.path else None
        if heir is not None and heir in came:
            yield _renamed(item, came.pop(heir), places)
        else:
            help = f"{{where}} was {item}: restore it, since {_OWN_WEIGHTS}." if item.present else ""
            message = "The parameter {where} is gone, which read the tensor {before}."
            if not item.present:
                message = "The optional parameter {where} is gone, which the weights did not have."
            severity = REGRESSION if item.present else NOTICE
            yield Change(
                "path-removed", severity, item.path, item.tensor, "", message, help, places.parameter(item.path)
            )
    for path, item in came.items():
        message = "The parameter {where} is new, " + str(item) + ("; it may be absent." if item.optional else ".")
        help = "" if item.optional else f"Make it optional (T? = none), since {_OWN_WEIGHTS}."
        severity = NOTICE if item.optional else REGRESSION
        yield Change("path-added", severity, path, "", item.tensor, message, help, places.parameter(path))
    same = old.same_weights(new)
    for path, item in after.items():
        if path in before:
            yield from _changed(before[path], item, same, places)


def _renamed(old: Parameter, new: Parameter, places: Places) -> Change:
    message = "The path {before} is now {after}, with the same tensor."
    help = f"Keep the name, since {_OWN_WEIGHTS}, nor read it from state_dict() under its name."
    return Change("path-renamed", REGRESSION, old.path, old.path, new.path, message, help, places.parameter(new.path))


def _changed(old: Parameter, new: Parameter, same_weights: bool, places: Places) -> Iterator[Change]:
    path = new.path
    if old.tensor and new.tensor and old.tensor != new.tensor:
        message = "The parameter {where} reads the tensor {after} instead of {before}."
        help = (
            "The weights are the same as before, so it now reads other numbers: restore {before}."
            if same_weights
            else f"Restore {{before}}, since {_OWN_WEIGHTS}."
        )
        place = places.binding(path)
        yield Change("binding-renamed", REGRESSION, path, old.tensor, new.tensor, message, help, place)
    if old.shape != new.shape:
        was, now = (f"[{', '.join(map(str, shape))}]" for shape in (old.shape, new.shape))
        message = f"The shape of {{where}} is {now} instead of {was}."
        help = f"Correct the card's generics or the source, since {_OWN_WEIGHTS}."
        yield Change("shape-changed", REGRESSION, path, was, now, message, help, places.parameter(path))
    if old.dtype != new.dtype:
        message = "The dtype of {where} is {after} instead of {before}."
        help = f"Correct the card's dtype generics or the source, since {_OWN_WEIGHTS}."
        yield Change("dtype-changed", REGRESSION, path, old.dtype, new.dtype, message, help, places.parameter(path))
    if old.optional != new.optional:
        message = "The parameter {where} is {after}, and was {before}."
        words = ("optional", "required") if old.optional else ("required", "optional")
        severity, help = (REGRESSION, f"Keep it optional, since {_OWN_WEIGHTS}.") if old.optional else (NOTICE, "")
        yield Change("presence-changed", severity, path, *words, message, help, places.parameter(path))


# Entries and generics


def _entries(old: Mapping[str, str], new: Mapping[str, str], places: Places) -> Iterator[GateFinding]:
    for name in old.keys() - new.keys():
        left = f"The entries are {listed(sorted(new))}."
        message = f"The entry {name} is gone: {_shortened(old[name])}"
        help = f"Restore it, so that run_entry({name!r}, ...) goes on to work. {left}"
        yield GateFinding("entry-removed", REGRESSION, name, message, help, places.entry(name))
    for name in new.keys() - old.keys():
        yield GateFinding("entry-added", NOTICE, name, f"The entry {name} is new.", "", places.entry(name))
    for name, text in new.items():
        found = differences(old[name], text) if name in old else []
        if not found:
            continue
        breaking = any(item.breaking for item in found)
        message = f"The entry {name} changed: {'; '.join(item.text for item in found)}."
        help = "Restore its signature, or add an entry of another name." if breaking else ""
        severity = REGRESSION if breaking else NOTICE
        yield GateFinding("entry-changed", severity, name, message, help, places.entry(name))


def _shortened(signature: str) -> str:
    text = one_line(signature)
    return text if len(text) <= 200 else f"{text[:199]}…"


def _generics(old: Mapping[str, int | str], new: Mapping[str, int | str], places: Places) -> Iterator[GateFinding]:
    for name in sorted(old.keys() | new.keys()):
        place = places.key(f"generics.{name}")
        if name not in new:
            message = f"The generic {name} is gone, which was {old[name]}."
            help = f"Keep it, so that generics={{{name!r}: ...}} goes on to work."
            yield GateFinding("generic-removed", REGRESSION, name, message, help, place)
        elif name not in old:
            yield GateFinding("generic-added", NOTICE, name, f"The generic {name} is new, {new[name]}.", "", place)
        elif old[name] != new[name]:
            message = f"The generic {name} is {new[name]} instead of {old[name]}."
            yield GateFinding("generic-changed", NOTICE, name, message, "", place)


# The card


def _card(old: Mapping[str, Any], new: Mapping[str, Any], places: Places) -> Iterator[GateFinding]:
    was, now = (card.get("model", {}).get("license") for card in (old, new))
    if was != now:
        message = f"The licence is {now} instead of {was}."
        help = "Restore it: who uses the earlier versions agreed to that one."
        yield GateFinding("licence-changed", REGRESSION, "", message, help, places.key("model.license"))
    was, now = (card.get("source", {}).get("entry") for card in (old, new))
    if was != now:
        message = f"A call of the model runs the entry {now} instead of {was}."
        help = f'Restore entry = "{was}" in [source].'
        yield GateFinding("main-entry-changed", REGRESSION, "", message, help, places.key("source.entry"))
    yield from _table("tokenizer-changed", "tokenizer", old, new, places)
    yield from _table("bench-changed", "bench", old, new, places)
    for name in LIMITS:
        before, after = (limits(card)[name] for card in (old, new))
        if after > before:
            message = f"[gate] {name} allows {after:.1%}, and the published card {before:.1%}."
            yield GateFinding("limit-raised", NOTICE, name, message, "", places.key(f"gate.{name}"))


def _table(
    kind: str, table: str, old: Mapping[str, Any], new: Mapping[str, Any], places: Places
) -> Iterator[GateFinding]:
    before, after = old.get(table, {}), new.get(table, {})
    for key in sorted(before.keys() | after.keys()):
        if before.get(key) != after.get(key):
            was, now = (shown(str(each[key])) if key in each else "absent" for each in (before, after))
            message = f"[{table}] {key} is {now} instead of {was}."
            yield GateFinding(kind, NOTICE, key, message, "", places.key(f"{table}.{key}"))


# The weights


def _weights(old: Snapshot, new: Snapshot, places: Places) -> Iterator[GateFinding]:
    was, now = (
        f"{pin.repo} at {pin.revision}" if pin.repo else "beside the card" for pin in (old.weights, new.weights)
    )
    same = old.same_weights(new)
    if was != now:
        message = f"The weights are {now} instead of {was}{', the same bytes' if same else ''}."
        key = "weights.repo" if old.weights.repo != new.weights.repo else "weights.revision"
        yield GateFinding("weights-moved", NOTICE, "", message, "", places.key(key))
    before, after = old.weights.sha256, new.weights.sha256
    place = places.key("weights.files")
    for file in sorted(before.keys() - after.keys()):
        yield GateFinding("weights-removed", NOTICE, file, f"The weights file {file} is gone.", "", place)
    for file in sorted(after.keys() - before.keys()):
        yield GateFinding("weights-added", NOTICE, file, f"The weights file {file} is new.", "", place)
    for file in sorted(before.keys() & after.keys()):
        one, other = before[file], after[file]
        if one and other and one != other:
            message = f"The weights file {file} has other bytes: sha256 {other[:12]}… instead of {one[:12]}…."
            yield GateFinding("weights-changed", NOTICE, file, message, "", place)
