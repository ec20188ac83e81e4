"""The match: every parameter of the manifest against the checkpoint's tensors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from linnet.language.program.manifest import Manifest, ManifestEntry
from linnet.language.program.types import SAFETENSORS
from linnet.registry.bindings import ResolvedBindings
from linnet.registry.errors import Problem, listed, nearest, shown
from linnet.registry.fused import with_parts
from linnet.registry.headers import TensorInfo, TensorTable
from linnet.registry.recipe import NAME_IT, packed_unnamed

MOST_SUGGESTIONS = 10
MOST_LISTED = 5


@dataclass(frozen=True, slots=True)
class Match:
    """What the manifest found in a checkpoint.

    `tensors`: path -> tensor, for every path that has one; `present`: the optional paths among them; `problems`: what
    keeps the checkpoint from being loaded; `unused`: tensors that no path reads and no pattern of the card expects.
    """

    tensors: Mapping[str, TensorInfo]
    present: frozenset[str]
    problems: tuple[Problem, ...]
    unused: tuple[str, ...]


def match_weights(
    manifest: Manifest, bindings: ResolvedBindings, table: TensorTable, unused: Iterable[str] = ()
) -> Match:
    """Match a manifest with a checkpoint; `unused` are the card's patterns of tensors that nothing binds on purpose.

    Shape and dtype must agree exactly. An optional parameter may lack its tensor, unless an entry of the bindings names
    that very path. Of fused projections each parameter reads its rows.
    """
    table, fused, told = with_parts(manifest, bindings, table)
    tensors: dict[str, TensorInfo] = {}
    present: set[str] = set()
    problems = list(fused)
    missing: list[tuple[ManifestEntry, str]] = []
    for entry in manifest.entries:
        name = bindings.tensors[entry.path]
        if name not in table:
            if name not in told and (not entry.optional or entry.path in bindings.exact):
                missing.append((entry, name))
            continue
        info = table[name]
        if problem := _mismatch(entry, info, table):
            problems.append(problem)
            continue
        tensors[entry.path] = info
        if entry.optional:
            present.add(entry.path)
    bound = {bindings.tensors[entry.path] for entry in manifest.entries}
    patterns = tuple(unused)
    loose = [name for name in table if name not in bound]
    for index, (entry, name) in enumerate(missing):
        problems.append(_missing(entry, name, table, loose if index < MOST_SUGGESTIONS else ()))
    left = tuple(name for name in loose if not any(fnmatchcase(name, pattern) for pattern in patterns))
    return Match(tensors, frozenset(present), tuple(problems), left)


def few(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """The first problems of each kind, and one that counts the rest of them."""
    kinds: dict[str, list[Problem]] = {}
    for problem in problems:
        kinds.setdefault(problem.kind, []).append(problem)
    found: list[Problem] = []
    for kind, each in kinds.items():
        found += each[:MOST_LISTED]
        if len(each) > MOST_LISTED:
            message = f"So it is with {len(each) - MOST_LISTED} more."
            found.append(Problem(kind, "weights", message, "`nest check` lists all of them."))
    return tuple(found)


def unread(match: Match, table: TensorTable) -> Problem:
    """What is to be said of the unused tensors of a match, of which there are some."""
    what = "one tensor" if len(match.unused) == 1 else f"{len(match.unused)} tensors"
    return Problem(
        "weights.unused",
        "weights",
        f"Nothing reads {what} of {listed(table.files)}: {listed(match.unused, MOST_LISTED)}.",
        "Bind them, or list them in weights.unused.",
    )


def under_other_generics(problems: Iterable[Problem], given: Iterable[str]) -> tuple[Problem, ...]:
    """Problems of a match whose manifest has other generics than the card's: `given` are the names of those."""
    cause = f"The value given for {', '.join(given)} is not the card's"
    fit = f"{cause}: leave it out, or name weights that fit it."
    dtype = f"{cause}: to convert weights as they load, give dtype= (--dtype) in its place."
    helps = {"weights.dtype": dtype, "weights.missing-tensor": fit, "weights.shape": fit}
    return tuple(replace(problem, help=helps.get(problem.kind, problem.help)) for problem in problems)


def _mismatch(entry: ManifestEntry, info: TensorInfo, table: TensorTable) -> Problem | None:
    declared = f"{entry.dtype} [{', '.join(map(str, entry.shape))}]"
    if entry.dtype != "u32" and (packed := packed_unnamed(info, table)):
        return Problem("weights.packed", entry.path, f"{entry.path} is declared {declared}, but {packed}.", NAME_IT)
    tensor = f"the tensor {shown(info.name)} in {info.file} is {info}"
    if entry.shape != info.shape:
        return Problem(
            "weights.shape",
            entry.path,
            f"The shapes of {entry.path} differ: the source declares {declared}, but {tensor}.",
            _shape_help(entry, info),
        )
    if SAFETENSORS.get(info.dtype) != entry.dtype:
        return Problem(
            "weights.dtype",
            entry.path,
            f"The dtypes of {entry.path} differ: the source declares {declared}, but {tensor}.",
            "Correct the card's dtype generics or the source: no dtype is converted while binding.",
        )
    return None


def _shape_help(entry: ManifestEntry, info: TensorInfo) -> str:
    if len(info.shape) == 2 and entry.shape == info.shape[::-1]:
        return "It looks transposed: bindings do not transpose, so store it as declared or declare it as stored."
    return "Correct the card's generics (or generics=), the binding or the source."


def _missing(entry: ManifestEntry, name: str, table: TensorTable, loose: Iterable[str]) -> Problem:
    suggestion = nearest(name, loose)
    help = f"The nearest tensor that nothing binds is {shown(suggestion)}." if suggestion else "Correct the binding."
    return Problem(
        "weights.missing-tensor",
        entry.path,
        f"The parameter {entry.path} reads the tensor {shown(name)}, which is not in {listed(table.files)}.",
        help,
    )
