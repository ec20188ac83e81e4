"""The gate's measuring: perplexity over windows that both versions read, and runs that take turns."""

from __future__ import annotations

import gc
import hashlib
import math
import tempfile
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from linnet import evaluation, nest
from linnet.benchmark import NEW, PROMPT, BenchError, BenchMemoryError, run_bench
from linnet.language.program.binding import BindError
from linnet.load_options import LoadOptions
from linnet.parity import run_parity
from linnet.registry.bench import BenchReport
from linnet.registry.card import Card
from linnet.registry.errors import Problem, RegistryError
from linnet.registry.gate_figures import (
    Judged,
    Windows,
    judge_beside,
    judge_windows,
    not_finite,
)
from linnet.registry.gate_findings import NOTICE, REGRESSION, GateFinding
from linnet.registry.locate import Located
from linnet.registry.package import human_size
from linnet.runner.errors import EvaluationError, GenerationError, ModeError, NonFiniteError, RunnerError

Watch = Callable[[Sequence[Any]], Iterable[Any]]
RUNS = 3


class UndoneError(Exception):
    """A part of the gate that could not be done: `problems` say why, and it is no fault of the package."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


@dataclass(frozen=True, slots=True)
class Measuring:
    """How the gate measures. The weights of `load` are the working package's, and `published_weights` the published
    version's, where they are the same."""

    load: LoadOptions
    limit_tokens: int | None = None
    runs: int = RUNS
    published_weights: Path | None = None
    watch: Watch = iter


@dataclass(frozen=True, slots=True)
class Pair:
    """A working package and the folder that its published `version` was put into. `limits` are those of the working
    card."""

    working: Located
    card: Card
    published: Located
    version: str
    limits: Mapping[str, float]


@dataclass(slots=True)
class Measurement:
    """What was judged, what was found, which parts were left out for which reason, and what kept others from being
    done."""

    judged: list[Judged] = field(default_factory=list)
    findings: list[GateFinding] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    undone: list[Problem] = field(default_factory=list)

    def could_not(self, parts: Iterable[str], problems: Iterable[Problem]) -> None:
        """Parts that could not be done."""
        self.undone += problems
        self.skipped |= dict.fromkeys(parts, "it could not be done")


def measure_pair(pair: Pair, how: Measuring) -> Measurement:
    """Measure both versions here and judge the working one."""
    done = Measurement()
    try:
        nest.require_torch()
    except nest.TorchMissingError as error:
        problem = Problem("gate.torch", pair.card.model.name, f"{error}.", "Or measure nothing: --no-bench.")
        done.could_not(("perplexity", "parity", "speed", "memory"), [problem])
        return done
    try:
        _perplexity(pair, how, done)
    except UndoneError as error:
        done.could_not(("perplexity",), error.problems)
    if any(finding.kind in ("run-failed", "perplexity-not-finite") for finding in done.findings):
        done.skipped |= dict.fromkeys(("parity", "speed", "memory"), "the model does not run")
        return done
    try:
        _parity(pair, how, done)
    except RegistryError as error:
        done.could_not(("parity",), error.problems)
    try:
        _speed(pair, how, done)
    except (UndoneError, RegistryError) as error:
        done.could_not(("speed", "memory"), error.problems)
    return done


def _perplexity(pair: Pair, how: Measuring, done: Measurement) -> None:
    if pair.card.bench.dataset is None:
        done.skipped["perplexity"] = "the card's [bench] names no dataset"
        return
    try:
        after = score_windows(pair.working, pair.working, how, how.load.weights)
    except EvaluationError as error:
        done.skipped["perplexity"] = str(error)
        return
    except NonFiniteError as error:
        done.findings.append(not_finite(str(error)))
        return
    except (RegistryError, RunnerError, BindError) as error:
        done.findings.append(_failed(error))
        return
    try:
        before = score_windows(pair.published, pair.working, how, how.published_weights)
    except RegistryError as error:
        raise UndoneError(error.problems) from None
    except (RunnerError, BindError) as error:
        message = f"{pair.version} cannot be scored here: {error}."
        done.findings.append(GateFinding("not-measured", NOTICE, "perplexity", message, ""))
        return
    judged, findings = judge_windows(before, after, pair.limits, pair.version)
    done.judged += [judged] if judged is not None else []
    done.findings += findings


def score_windows(package: Located, settings: Located, how: Measuring, weights: Path | None) -> Windows:
    """Score a package on the text of the `[bench]` of `settings`, in windows that do not overlap.

    Each window stands alone, so that the same window of another model is its pair. Raises what `nest.evaluate` does.
    """
    from linnet.runner.perplexity import measure

    options = how.load.but(weights=weights)
    # What the device holds of the model before is collected first.
    gc.collect()
    found = evaluation.prepare(str(package.folder), limit_tokens=how.limit_tokens, settings=settings, options=options)
    starts = range(0, max(1, len(found.ids) - 1), found.window)
    sums: list[float] = []
    tokens: list[int] = []
    for begin in how.watch(list(starts)):
        part = found.ids[begin : begin + found.window]
        scored = measure(found.model, part, window=found.window, stride=found.window, entry=found.card.source.entry)
        sums.append(scored.nll * scored.tokens)
        tokens.append(scored.tokens)
    digest = hashlib.sha256(array("q", found.ids).tobytes()).hexdigest()
    return Windows(tuple(sums), tuple(tokens), digest)


def _parity(pair: Pair, how: Measuring, done: Measurement) -> None:
    """Both engines on the working package, in f32."""
    reason = _one_engine(pair, how)
    if reason is not None:
        done.skipped["parity"] = reason
        return
    options = how.load.but(dtype="f32", numerics="engine", device=None, compile=None, fp8=None)
    gc.collect()
    try:
        found = run_parity(str(pair.working.folder), watch=how.watch, options=options)
    except (ModeError, GenerationError, EvaluationError) as error:
        done.skipped["parity"] = str(error)
        return
    except (RunnerError, BindError) as error:
        done.findings.append(_failed(error))
        return
    if not found.ok:
        first, second = found.backends
        worst = f"differ by {found.output.largest:.3g}, and {found.tolerance:.3g} is allowed"
        help = "nest parity tells where they part: in most cases an op whose body says less than it means."
        message = f"The results of {first} and {second} {worst}."
        done.findings.append(GateFinding("parity-lost", REGRESSION, "", message, help))


def _one_engine(pair: Pair, how: Measuring) -> str | None:
    """Why the engines are not compared; None where they are."""
    from linnet.runner.bench import free_memory

    try:
        nest.require_mlx()
    except nest.MlxMissingError:
        return "MLX is not installed"
    model = nest.load(str(pair.working.folder), **how.load.shapes().arguments())
    needed = 2 * 4 * sum(math.prod(entry.shape) for entry in model._bound.manifest.entries)
    free = free_memory("cpu")
    if free is not None and needed > free:
        return f"two models in f32 take {human_size(needed)}, and {human_size(free)} are free"
    return None


def _speed(pair: Pair, how: Measuring, done: Measurement) -> None:
    fault = _untimed(pair.working, pair.card, how)
    if fault is not None:
        if _untimed(pair.published, pair.published.card(), how) is None:
            message = f"It cannot be timed any more, as {pair.version} can: {fault}."
            help = "Restore the entries prefill and decode, and the sizes that they take."
            done.findings.append(GateFinding("run-failed", REGRESSION, "speed", message, help))
        done.skipped |= {"speed": fault, "memory": fault}
        return
    judged, findings = judge_beside(_bench(pair, how), pair.limits, pair.version)
    done.judged += judged
    done.findings += findings


def _bench(pair: Pair, how: Measuring) -> BenchReport:
    """Time the working package beside the published version. Raises UndoneError."""
    _free_device(how)
    try:
        with tempfile.TemporaryDirectory(prefix="linnet-gate-") as scratch:
            report, _ = run_bench(
                str(pair.working.folder),
                baseline=str(pair.published.folder),
                with_baseline=True,
                baseline_weights=how.published_weights,
                prompt=None,
                new=None,
                runs=how.runs,
                perplexity=False,
                output=Path(scratch) / "bench.json",
                watch=how.watch,
                load=how.load,
            )
        return report
    except BenchMemoryError as error:
        problem = Problem(
            "gate.memory", pair.card.model.name, f"{error}.", "Gate it on a larger device, or --no-bench."
        )
        raise UndoneError([problem]) from None
    except BenchError as error:
        problem = Problem(
            "gate.bench", pair.card.model.name, f"It could not be timed: {error}.", "Run nest bench alone."
        )
        raise UndoneError([problem]) from None


def _free_device(how: Measuring) -> None:
    """The models that were scored are collected: the processes that are timed need the room."""
    gc.collect()
    if how.load.backend == "torch" and nest.find_device(how.load.device).startswith("cuda"):
        import torch

        torch.cuda.empty_cache()


def _untimed(package: Located, card: Card, how: Measuring) -> str | None:
    """Why `nest bench` has nothing to time; None where it has."""
    from linnet.runner.generate import decoder_vocabulary

    positions = (card.bench.prompt or PROMPT) + (card.bench.new or NEW)
    shapes = how.load.shapes()
    try:
        decoder_vocabulary(nest.load(str(package.folder), **shapes.arguments()))
        sized = shapes.but(capacity=None, generics={**(shapes.generics or {}), "MaxSeq": positions})
        nest.load(str(package.folder), **sized.arguments())
    except GenerationError as error:
        return str(error)
    except BindError as error:
        return f"{error.problems[0]}, with MaxSeq = {positions} for the prompt and the new tokens of [bench]"
    return None


def _failed(error: Exception) -> GateFinding:
    """A working package that cannot be run. Raises UndoneError for what is no fault of its own."""
    problems = getattr(error, "problems", ())
    if isinstance(error, RegistryError) and not any(_is_fault(problem) for problem in error.problems):
        raise UndoneError(error.problems) from None
    if isinstance(error, MemoryError):
        raise UndoneError([Problem("gate.memory", "device", str(error), "Gate it on a larger device.")]) from None
    first = str(problems[0]) if problems else str(error)
    help = "nest check --smoke full runs it alone."
    return GateFinding("run-failed", REGRESSION, "", f"The model cannot be run: {first.rstrip('.')}.", help)


def _is_fault(problem: Problem) -> bool:
    """Whether a problem is the package's: its weights do not match, rather than not being here."""
    room, _, rest = problem.kind.partition(".")
    return room in ("weights", "bindings", "card", "source") and rest != "missing-file"
