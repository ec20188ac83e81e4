"""`nest bench`: a package beside its baseline, measured by processes that take turns.

Each run of each package is a process of its own, which loads the model, measures and ends. So peaks of memory are a
package's own, loading is measured as often as the rest, two models need not fit on a device together, and a busy moment
of the machine falls on both alike: runs alternate, and so does which package goes first.
"""

from __future__ import annotations

import gc
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from linnet import nest
from linnet.language.words import counted
from linnet.load_options import LoadOptions
from linnet.registry.bench import (
    BENCH_NAME,
    FIGURES,
    BenchReport,
    Environment,
    Figure,
    Measured,
    Protocol,
    Results,
    Score,
    UsedWeights,
    WeightFile,
    package_digest,
)
from linnet.registry.card import Card
from linnet.registry.errors import bare
from linnet.registry.index import package_version, write_text
from linnet.registry.locate import Located, find_package
from linnet.registry.package import CARD_NAME, digest_file, human_size, name_fault, package_path
from linnet.runner.errors import ContextError, EvaluationError, GenerationError, RunnerError

PROMPT, NEW, RUNS, SEED = 128, 64, 3, 0
# Run by the process that measures. Its modules come from where this process found them.
_BOOTSTRAP = (
    "import json, sys; job = json.load(sys.stdin); sys.path[:] = job['path']; "
    "from linnet.benchmark_worker import main; main(job)"
)
Watch = Callable[[Sequence[Any]], Iterable[Any]]


class BenchError(RunnerError):
    """A package that cannot be measured; the message names it, the reason and the next step."""


class BenchMemoryError(BenchError):
    """A model that the device has no room for."""


class BenchOutputError(nest.NestError):
    """A place that the report cannot be written to."""


@dataclass(frozen=True, slots=True)
class _Subject:
    """A package that is measured: what a process loads, and what is known of it before."""

    located: Located
    card: Card
    given: Path | None
    weights: UsedWeights
    load: Mapping[str, Any]
    needed: int

    @property
    def name(self) -> str:
        return self.card.model.name

    @property
    def reference(self) -> str:
        """What `nest.load` takes for exactly this package."""
        return self.located.reference


def run_bench(
    name_or_dir: str | os.PathLike[str],
    *,
    baseline: str | os.PathLike[str] | None,
    with_baseline: bool,
    baseline_weights: Path | None,
    prompt: int | None,
    new: int | None,
    runs: int,
    perplexity: bool,
    output: Path | None,
    watch: Watch,
    load: LoadOptions,
) -> tuple[BenchReport, Path]:
    """See `linnet.nest.bench`; also gives the file that was written."""
    package = find_here(name_or_dir, load.offline, registry=load.registry)
    card = package.card()
    target = _output(package, card, output)
    prompt = prompt if prompt is not None else card.bench.prompt or PROMPT
    new = new if new is not None else card.bench.new or NEW
    if prompt < 1 or new < 2 or runs < 1:
        raise nest.NestError(
            f"{counted(prompt, 'token')} of prompt, {new} new and {counted(runs, 'run')} measure nothing: take a "
            "prompt of at least 1, 2 new ones (the first belongs to the prompt), and 1 run"
        )
    other = _baseline(package, card, baseline, load) if with_baseline else None
    nest.require_torch()
    place = _place(load)
    subjects = [_subject(package, prompt, new, place, load)]
    if other is not None:
        subjects.append(_subject(other, prompt, new, place, load.but(weights=baseline_weights)))
    elif baseline_weights is not None:
        raise nest.NestError(f"weights are given for a baseline, and {card.model.name} has none: name one (--baseline)")
    # Before the timing: a text that is not there should not cost it.
    wanted = perplexity and card.bench.dataset is not None
    scores = [_score(subject, package, watch, load) if wanted else None for subject in subjects]
    job = {"prompt": prompt, "new": new, "seed": SEED}
    found: list[list[dict[str, Any]]] = [[] for _ in subjects]
    turns = [index for run in range(runs) for index in _order(run, len(subjects))]
    for index in watch(turns):
        found[index].append(_measure(subjects[index], job))
    measured = [_measured(*each) for each in zip(subjects, found, scores, strict=True)]
    environment = Environment(linnet=version("linnet-nest"), **found[0][0]["environment"])
    report = BenchReport(
        command=_command(subjects, prompt, new, runs, perplexity, environment.device, load),
        date=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        protocol=Protocol(prompt, new, runs, SEED, load.numerics, load.dtype, load.backend),
        environment=environment,
        package=measured[0],
        baseline=measured[1] if len(measured) > 1 else None,
    )
    write_text(report.to_json(), target)
    return report, target


# What is measured


def find_here(
    name: str | os.PathLike[str],
    offline: bool | None = None,
    beside: Path | None = None,
    registry: str | None = None,
) -> Located:
    """A package by name: one in the folder `beside` or in `./nests` comes before what `nest.load` takes."""
    text = os.fspath(name)
    if name_fault(text) is None:
        for folder in (beside, Path("nests")):
            if folder is not None and (folder / text / CARD_NAME).is_file():
                return Located(folder / text)
    return find_package(name, offline=offline, registry=registry)


def _baseline(package: Located, card: Card, named: str | os.PathLike[str] | None, load: LoadOptions) -> Located | None:
    """The package to compare with. Raises NestError for the package itself, RegistryError for one there is not."""
    name = named or card.bench.baseline
    if name is None:
        return None
    neighbours = None if package.shared else package.folder.absolute().parent
    found = find_here(name, load.offline, neighbours, load.registry)
    if found.folder.resolve() == package.folder.resolve():
        where = "--baseline" if named else "the card's [bench] baseline"
        raise nest.NestError(f"{card.model.name} cannot be its own baseline: name another package ({where})")
    return found


def _place(load: LoadOptions) -> str:
    """The device, once it is sure that the model can run there in the way that is asked for."""
    from linnet.runner.backend import find_backend

    place = nest.backend_device(load.backend, load.device)
    if place.split(":")[0] == "meta":
        raise nest.NestError("on the meta device nothing is computed: name one that computes, such as --device cpu")
    find_backend(load.backend).choose_mode(load.compile, load.fp8, load.numerics, place, False)
    return place


def _subject(located: Located, prompt: int, new: int, place: str, load: LoadOptions) -> _Subject:
    """A package with its weights on this machine, once its program is known to take the prompt."""
    from linnet.language.program.binding import BindError
    from linnet.registry.fetch import fetch_weights
    from linnet.runner.bench import cache_bytes
    from linnet.runner.generate import decoder_vocabulary

    card = located.card()
    name = card.model.name
    reference, registry, given = located.reference, located.registry or load.registry, load.weights
    generics = dict(load.generics or {})
    shapes = load.shapes().but(registry=registry)
    try:
        # Shapes only: what a card says of its entries and sizes needs no weights.
        meta = nest.load(reference, **shapes.arguments())
        decoder_vocabulary(meta)
    except GenerationError as error:
        raise BenchError(f"{name} cannot be timed: {error}") from None
    given_positions = "MaxSeq" in generics
    positions = generics.setdefault("MaxSeq", prompt + new)
    if isinstance(positions, int) and positions < prompt + new:
        raise ContextError(prompt, new, positions)
    try:
        model = nest.load(reference, **shapes.but(generics=generics).arguments())
    except BindError as error:
        raise BenchError(
            f"{name} does not take {counted(prompt, 'token')} of prompt and {new} new ones: {_first(error)}; "
            "ask for fewer (--prompt, --new)"
        ) from None
    most = meta.generics["MaxSeq"]
    if not given_positions and isinstance(most, int) and most < prompt + new:
        raise ContextError(prompt, new, most)
    files = fetch_weights(located.folder, card, given, offline=load.offline, registry=load.registry)
    used = _used_weights(located, card, files, given)
    needed = sum(file.size for file in used.files) + cache_bytes(model)
    options = load.but(device=place, generics=generics, registry=registry, offline=True)
    # A job is written as JSON.
    arguments = {**options.arguments(), "weights": str(given.absolute()) if given is not None else None}
    return _Subject(located, card, given, used, arguments, needed)


def _first(error: Exception) -> str:
    problems = getattr(error, "problems", None) or [error]
    return str(problems[0]).rstrip(".")


def _used_weights(located: Located, card: Card, files: Mapping[str, Path], given: Path | None) -> UsedWeights:
    """Which bytes are measured, and whether they are those that the card pins."""
    pinned, found = True, []
    for file, path in files.items():
        size, digest = digest_file(path)
        found.append(WeightFile(file, size, digest))
        beside = given is None and path == package_path(located.folder, file)
        # A file that lies beside a card of a repository may be any file of that name, unless its digest is given.
        certain = given is None and not (beside and card.weights.repo)
        pinned = pinned and (certain or card.weights.sha256.get(file) == digest)
    name = bare(given.absolute().name) if given is not None else None
    return UsedWeights(pinned, name, card.weights.repo, card.weights.revision, tuple(found))


# Measuring


def _order(run: int, subjects: int) -> Iterable[int]:
    return range(subjects) if run % 2 == 0 else reversed(range(subjects))


def _measure(subject: _Subject, sizes: Mapping[str, int]) -> dict[str, Any]:
    """One run in a process of its own. Raises BenchError for what went wrong there."""
    from linnet.runner.bench import free_memory

    free = free_memory("cpu") if subject.load["device"] == "cpu" else None
    job = {"path": [str(Path(entry).absolute()) for entry in sys.path], "package": subject.reference}
    done = subprocess.run(
        [sys.executable, "-P", "-c", _BOOTSTRAP],
        input=json.dumps({**job, **sizes, "load": subject.load}),
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    if os.environ.get("LINNET_DEBUG") == "1":
        sys.stderr.write(done.stderr)
    lines = done.stdout.splitlines()
    if done.returncode == 0 and lines:
        found: dict[str, Any] = json.loads(lines[-1])
        if "error" not in found:
            return found
        _fail(subject, found["kind"], found["error"], found["free"])
    # A system short of memory ends a process so.
    if done.returncode == -9:
        _fail(subject, "memory", "", free)
    last = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
    raise BenchError(f"{subject.name}: the process that measures it ended with code {done.returncode}: {last}")


def _fail(subject: _Subject, kind: str, message: str, free: int | None) -> None:
    if kind == "memory":
        device = subject.load["device"]
        had = f", and {human_size(free)} were free" if free is not None else ""
        raise BenchMemoryError(
            f"{subject.name} does not fit into the memory of {device}: its weights and caches take "
            f"{human_size(subject.needed)}{had}; take fewer tokens (--prompt, --new) or another --device"
        )
    if kind == "known":
        raise BenchError(f"{subject.name}: {message}")
    raise BenchError(
        f"{subject.name}: the process that measures it failed with {kind}: {message}; LINNET_DEBUG=1 prints where"
    )


def _score(subject: _Subject, settings: Located, watch: Watch, load: LoadOptions) -> Score:
    """The perplexity of a package on the text, and by the windows, of the `[bench]` of `settings`."""
    from linnet import evaluation

    options = load.but(weights=subject.given)
    found = evaluation.evaluate(subject.reference, watch=watch, settings=settings, options=options)
    result = found.result
    if not math.isfinite(result.perplexity):
        raise EvaluationError(f"{subject.name} has no perplexity that a number holds: {result.nll:.1f} nats a token")
    # The model is on the device until it is collected, and the processes need the room.
    gc.collect()
    if str(found.protocol["device"]).startswith("cuda"):
        import torch

        torch.cuda.empty_cache()
    protocol = {key: value for key, value in found.protocol.items() if key != "weights"}
    return Score(result.perplexity, result.error, result.nll, result.tokens, result.windows, protocol)


# Telling


def _measured(subject: _Subject, runs: Sequence[Mapping[str, Any]], score: Score | None) -> Measured:
    columns = {name: tuple(run["timing"][name] for run in runs) for name in FIGURES}
    figures = {name: None if None in column else Figure(column) for name, column in columns.items()}
    results: Any = Results
    located, card = subject.located, subject.card
    return Measured(
        name=card.model.name,
        version=package_version(located.folder, card),
        repo=located.repo,
        revision=located.revision,
        digest=package_digest(located.folder, card.weights.files),
        generics=runs[0]["generics"],
        compile=runs[0]["compile"],
        fp8=runs[0]["fp8"],
        weights=subject.weights,
        results=results(**figures),
        perplexity=score,
    )


def _command(
    subjects: Sequence[_Subject],
    prompt: int,
    new: int,
    runs: int,
    perplexity: bool,
    device: str,
    load: LoadOptions,
) -> str:
    """The command that measures the same, every default written out; files by their names alone."""
    words = ["nest", "bench", _name(subjects[0])]
    words += ["--baseline", _name(subjects[1])] if len(subjects) > 1 else ["--no-baseline"]
    for option, subject in zip(("--weights", "--baseline-weights"), subjects, strict=False):
        words += [option, subject.weights.given] if subject.weights.given else []
    words += ["--prompt", str(prompt), "--new", str(new), "--runs", str(runs)]
    words += ["--backend", load.backend] if load.backend != "torch" else []
    words += ["--numerics", load.numerics, "--device", device]
    modes: dict[bool | str | None, str | None] = {True: "on", False: "off"}
    chosen = modes.get(load.compile, str(load.compile) if load.compile is not None else None)
    for option, value in (("--dtype", load.dtype), ("--compile", chosen), ("--fp8", load.fp8)):
        words += [option, str(value)] if value is not None else []
    for name, size in (load.generics or {}).items():
        words += ["--generic", f"{name}={size}"]
    words += [] if perplexity else ["--no-perplexity"]
    return " ".join(words)


def _name(subject: _Subject) -> str:
    return subject.reference if subject.located.shared else subject.name


def _output(package: Located, card: Card, output: Path | None) -> Path:
    """The file to write. Raises BenchOutputError now, and not after the measuring, where it cannot be."""
    if output is None and package.shared:
        named = package.repo or package.reference
        raise BenchOutputError(f"{named} is not a folder of yours to write to: name a file, -o {BENCH_NAME}")
    target = output.expanduser().absolute() if output is not None else package.folder.absolute() / BENCH_NAME
    if target.is_dir():
        target /= BENCH_NAME
    try:
        with tempfile.TemporaryFile(dir=target.parent):
            return target
    except OSError as error:
        reason = (error.strerror or "it cannot be written to").lower()
        raise BenchOutputError(
            f"the figures of {card.model.name} cannot be written to {target}: {reason}; name another file with -o"
        ) from None
