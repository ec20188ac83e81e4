"""The gate's measuring: perplexity over windows that both versions read, and runs that take turns."""

from __future__ import annotations

import gc
import hashlib
import tempfile
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from linnet import evaluation, nest
from linnet.benchmark import NEW, PROMPT, BenchError, BenchMemoryError, run_bench
from linnet.language.program.binding import BindError
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
from linnet.runner.errors import EvaluationError, GenerationError, NonFiniteError, RunnerError

Watch = Callable[[Sequence[Any]], Iterable[Any]]
RUNS = 3


class UndoneError(Exception):
    """A part of the gate that could not be done: `problems` say why, and it is no fault of the package."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


@dataclass(frozen=True, slots=True)
class Measuring:
    """How the gate measures. `load` are arguments of `nest.load`; `weights`, where given, is a file or folder that both
    versions take, since their weights are the same."""

    load: Mapping[str, Any]
    limit_tokens: int | None = None
    runs: int = RUNS
    weights: Path | None = None
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
        done.could_not(("perplexity", "speed", "memory"), [problem])
        return done
    try:
        _perplexity(pair, how, done)
    except UndoneError as error:
        done.could_not(("perplexity",), error.problems)
    if any(finding.kind in ("run-failed", "perplexity-not-finite") for finding in done.findings):
        done.skipped |= dict.fromkeys(("speed", "memory"), "the model does not run")
        return done
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
        after = score_windows(pair.working, pair.working, how, how.weights)
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

    load = {**how.load, "weights": weights}
    # What the device holds of the model before is collected first.
    gc.collect()
    found = evaluation.prepare(str(package.folder), limit_tokens=how.limit_tokens, settings=settings, load=load)
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
    own = {key: value for key, value in how.load.items() if key != "weights"}
    _free_device(how)
    try:
        with tempfile.TemporaryDirectory(prefix="linnet-gate-") as scratch:
            report, _ = run_bench(
                str(pair.working.folder),
                baseline=str(pair.published.folder),
                with_baseline=True,
                weights=how.weights,
                baseline_weights=how.published_weights,
                prompt=None,
                new=None,
                runs=how.runs,
                perplexity=False,
                output=Path(scratch) / "bench.json",
                watch=how.watch,
                load=own,
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
    if nest.find_device(how.load.get("device")).startswith("cuda"):
        import torch

        torch.cuda.empty_cache()


def _untimed(package: Located, card: Card, how: Measuring) -> str | None:
    """Why `nest bench` has nothing to time; None where it has."""
    from linnet.runner.generate import decoder_vocabulary

    positions = (card.bench.prompt or PROMPT) + (card.bench.new or NEW)
    load = {**how.load, "device": "meta", "weights": None, "compile": None, "fp8": None}
    try:
        model = nest.load(str(package.folder), **load)
        decoder_vocabulary(model)
        nest.load(str(package.folder), **{**load, "generics": {**(load.get("generics") or {}), "MaxSeq": positions}})
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
