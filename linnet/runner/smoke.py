"""The smoke test: a package's entries run, first as shapes, then small, then with the real weights.

Imports torch only when it runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from linnet.language.program.binding import BindError, BoundProgram, bind
from linnet.language.program.core import EntryGraph
from linnet.language.program.lower_values import LowerError
from linnet.language.program.ranges import DEFAULT_BOUNDS, InputBoundsError, input_bounds
from linnet.language.program.small import SmallGenericsError, small_generics
from linnet.language.program.types import FLOATS
from linnet.language.program.verify import VerifyError, verify
from linnet.runner.errors import RunnerError, SizeError, SpecError, WeightsError
from linnet.runner.levels import SMOKE_LEVELS

if TYPE_CHECKING:
    from torch import Tensor

    from linnet.runner.torch.weights import WeightSource

SEED = 0
Generics = Mapping[str, int | str]


@dataclass(frozen=True, slots=True)
class SmokeOutcome:
    """One entry run once.

    `stage` is meta, small or full; `generics` are the root's and the entry's own; `message` says what was found, or
    what went wrong; `seconds` is wall time, lowering included. `fault` is one word for what went wrong, "" where
    nothing did: generics (that do not fit), source (that cannot be lowered), inputs (an index or divisor out of
    range), weights, result (not finite, or all equal), torch (an error of its own, such as too little memory), or
    linnet (a graph or a kernel that is not what it should be).
    """

    stage: str
    entry: str
    generics: dict[str, int | str]
    ok: bool
    message: str
    seconds: float
    fault: str = ""


@dataclass(frozen=True, slots=True)
class SmokeReport:
    """What the smoke test found: `level` is how far it went."""

    level: str
    outcomes: tuple[SmokeOutcome, ...]

    @property
    def ok(self) -> bool:
        return all(outcome.ok for outcome in self.outcomes)

    def failures(self) -> list[SmokeOutcome]:
        return [outcome for outcome in self.outcomes if not outcome.ok]

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return {"level": self.level, "ok": self.ok, "outcomes": [asdict(outcome) for outcome in self.outcomes]}


def smoke(
    bound: BoundProgram,
    entry: str,
    check_generics: Generics,
    *,
    level: str = "small",
    present: frozenset[str] = frozenset(),
    weights: WeightSource | None = None,
) -> SmokeReport:
    """Run the entries of a package; each level includes those before it.

    - meta: `entry`, the card's, at the full size of `bound` on the meta device, every op by its body: each value's
      shape and dtype is compared with what the graph says, and nothing takes memory.
    - small: every entry at small generics with seeded random weights and inputs, on the CPU, by bodies. Every float
      result is finite, and not all equal where it has more than one element; integers and bools only have to be there,
      with the shape and dtype that the graph says.
    - full: `entry` with the real `weights`, by native kernels; results as for small.

    Every graph is verified before it runs. `check_generics` are the card's generics for `entry`; what they leave out is
    taken small. `present` are the optional weights that the package has. A package's faults are outcomes, not
    exceptions.
    """
    if level not in SMOKE_LEVELS:
        raise ValueError(f"level={level!r} is not one of {', '.join(SMOKE_LEVELS)}")
    outcomes: list[SmokeOutcome] = []
    if level != "none":
        outcomes.append(_outcome("meta", entry, bound, lambda: _meta(bound, entry, check_generics, present)))
    if level in ("small", "full"):
        with _one_thread():
            outcomes += _small(bound, present)
    if level == "full":
        if weights is None:
            raise ValueError("level='full' needs weights")
        outcomes.append(_outcome("full", entry, bound, lambda: _full(bound, entry, check_generics, present, weights)))
    return SmokeReport(level, tuple(outcomes))


@contextmanager
def _one_thread() -> Iterator[None]:
    """Small tensors on several threads wait for each other longer than they compute."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


# What a run of one entry gives: its generics, and what was found.
Run = Callable[[], tuple[dict[str, int | str], str]]


class _BadResultError(Exception):
    """An entry ran, and its results are no good."""


# The first that an error is an instance of says what is at fault.
FAULTS: tuple[tuple[type[Exception], str], ...] = (
    (BindError, "generics"),
    (SmallGenericsError, "generics"),
    (SizeError, "generics"),
    (LowerError, "source"),
    (InputBoundsError, "inputs"),
    (VerifyError, "linnet"),
    (SpecError, "linnet"),
    (WeightsError, "weights"),
    (_BadResultError, "result"),
    (RunnerError, "inputs"),
    (RuntimeError, "torch"),
    (MemoryError, "torch"),
)
_OUTCOMES = tuple(kind for kind, _ in FAULTS)


def _outcome(stage: str, entry: str, bound: BoundProgram, run: Run) -> SmokeOutcome:
    start = time.perf_counter()
    generics = dict(bound.generics)
    fault = ""
    try:
        own, message = run()
        generics.update(own)
    except _OUTCOMES as error:
        fault, message = _described(error)
    return SmokeOutcome(stage, entry, generics, not fault, message, time.perf_counter() - start, fault)


def _described(error: Exception) -> tuple[str, str]:
    """What is at fault, and the error's words."""
    fault = next(word for kind, word in FAULTS if isinstance(error, kind))
    if fault == "result":
        return fault, str(error)
    if fault == "torch":
        # Its notes name the op. A MemoryError may say nothing.
        lines = str(error).splitlines() or [type(error).__name__]
        return fault, "; ".join([lines[0], *getattr(error, "__notes__", [])[:1]])
    return fault, f"{type(error).__name__.removesuffix('Error')}: {error}"


def _lower(bound: BoundProgram, entry: str, given: Generics, present: frozenset[str]) -> EntryGraph:
    """The entry with the given generics of its own, the others small, verified. Optional inputs are left out."""
    function = bound.entries().get(entry)
    own = {} if function is None else small_generics(function, {**bound.generics, **given})
    lowered = bound.lower(entry, {**own, **given}, present)
    verify(lowered.graph)
    return lowered


def _meta(
    bound: BoundProgram, entry: str, given: Generics, present: frozenset[str]
) -> tuple[dict[str, int | str], str]:
    import torch

    from linnet.runner.torch.dtypes import CARRIED
    from linnet.runner.torch.interpreter import Frame, Preparation
    from linnet.runner.torch.weights import empty_weights

    device = torch.device("meta")
    lowered = _lower(bound, entry, given, present)
    entries = [e for e in bound.manifest.entries if not e.optional or e.path in present]
    inputs = [torch.empty(i.spec.shape, dtype=CARRIED[i.spec.dtype], device=device) for i in lowered.inputs]
    outputs = Preparation(device, verify=True).graph(lowered.graph).run(Frame(empty_weights(entries, device)), inputs)
    count = sum(1 for _ in lowered.graph.walk())
    results = ", ".join(str(value.spec) for value in lowered.graph.outputs)
    assert len(outputs) == len(lowered.graph.outputs)
    return lowered.generics, f"{count} operations have the shapes the graph says; result {results}"


def _small(bound: BoundProgram, present: frozenset[str]) -> Iterator[SmokeOutcome]:
    dtypes: dict[str, int | str] = {name: value for name, value in bound.generics.items() if isinstance(value, str)}
    start = time.perf_counter()
    try:
        small = bind(bound.program, bound.block.name, small_generics(bound.block, dtypes))
        manifest = small.manifest
    except _OUTCOMES as error:
        fault, message = _described(error)
        yield SmokeOutcome("small", "*", dtypes, False, message, time.perf_counter() - start, fault)
        return

    import torch

    from linnet.runner.torch.interpreter import Preparation
    from linnet.runner.torch.weights import random_weights

    drawn = random_weights(manifest, SEED, optional=True)
    optional = {e.path for e in manifest.entries if e.optional}
    weights = {path: tensor for path, tensor in drawn.items() if path in present or path not in optional}
    there = frozenset(optional & weights.keys())
    # Bodies that entries share are prepared once.
    preparation = Preparation(torch.device("cpu"), verify=True)

    def run(name: str) -> tuple[dict[str, int | str], str]:
        lowered = _lower(small, name, {}, there)
        return lowered.generics, _run_small(lowered, preparation, weights)

    for name in small.entries():
        yield _outcome("small", name, small, lambda name=name: run(name))  # type: ignore[misc]


def _run_small(entry: EntryGraph, preparation: Any, weights: Mapping[str, Tensor]) -> str:
    import torch

    from linnet.runner.torch.interpreter import Frame

    inputs = random_inputs(entry, SEED)
    with torch.no_grad():
        outputs = preparation.graph(entry.graph).run(Frame(weights), inputs)
    return _judge(outputs)


def _full(
    bound: BoundProgram, entry: str, given: Generics, present: frozenset[str], weights: WeightSource
) -> tuple[dict[str, int | str], str]:
    import torch

    from linnet.runner.torch.interpreter import Frame, Preparation
    from linnet.runner.torch.kernels import equivalent_kernels
    from linnet.runner.torch.weights import read_weights

    device = torch.device("cpu")
    lowered = _lower(bound, entry, given, present)
    tensors, report = read_weights(bound.manifest, weights, device)
    graph = Preparation(device, equivalent_kernels(), verify=True).graph(lowered.graph)
    with torch.no_grad():
        outputs = graph.run(Frame(tensors), random_inputs(lowered, SEED))
    return lowered.generics, f"{_judge(outputs)}; {report}"


def random_inputs(entry: EntryGraph, seed: int) -> list[Tensor]:
    """Carried tensors for an entry's inputs: integers within what `input_bounds` finds safe, floats uniform in 0.5 to
    1.5 (positive, so that temperatures and weights make sense), bools true. Raises InputBoundsError."""
    import torch

    from linnet.runner.torch.dtypes import CARRIED

    bounds = input_bounds(entry)
    generator = torch.Generator().manual_seed(seed)
    inputs: list[Tensor] = []
    for taken in entry.inputs:
        shape, dtype = taken.spec.shape, taken.spec.dtype
        if dtype in FLOATS:
            inputs.append((0.5 + torch.rand(shape, generator=generator)).to(CARRIED[dtype]))
        elif dtype == "bool":
            inputs.append(torch.ones(shape, dtype=torch.bool))
        else:
            low, high = bounds.get(taken.name, DEFAULT_BOUNDS)
            inputs.append(torch.randint(low, high + 1, shape, generator=generator).to(CARRIED[dtype]))
    return inputs


def _judge(outputs: tuple[Tensor, ...]) -> str:
    """What was found good about the results. Raises _BadResultError."""
    found: list[str] = []
    for i, x in enumerate(outputs):
        name = "the result" if len(outputs) == 1 else f"result {i}"
        shape = list(x.shape)
        if x.is_floating_point():
            unreal = int((~x.isfinite()).sum())
            if unreal:
                raise _BadResultError(f"{name} {shape} holds {unreal} values that are not finite, of {x.numel()}")
            if x.numel() > 1 and bool((x == x.reshape(-1)[0]).all()):
                raise _BadResultError(f"all {x.numel()} values of {name} {shape} are equal")
            found.append(f"{name} {shape} is finite")
        else:
            found.append(f"{name} {shape} is there")
    return ", ".join(found)
