"""`nest parity`: one package on two engines, side by side."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from linnet import nest
from linnet.load_options import LoadOptions
from linnet.registry.locate import Located, find_package
from linnet.runner.errors import ContextError, EvaluationError, GenerationError

if TYPE_CHECKING:
    from torch import Tensor

    from linnet.registry.card import Card
    from linnet.runner.parity import Difference, Engine, LayerDrift

SCHEMA = 1
BACKENDS = ("torch", "mlx")
# Where `engine` takes sums and functions in f64, so that both give the same numbers.
DEVICES = ("cpu", "cpu")
PROMPT, STEPS, SEED = 32, 64, 0
# What two engines may be apart in f32.
F32_TOLERANCE = 1e-4
Watch = Callable[[Sequence[Any]], Iterable[Any]]


@dataclass(frozen=True, slots=True)
class ParityReport:
    """What lies between two engines.

    `devices` are the engines' names of them, `dtypes` the generics of the model that are dtypes.
    `output` is of all logits (of an entry's results, for a model that decodes nothing), `first_other_token` counts the
    logits after the prompt as 0, `layers` are after the prompt alone. `from_f32` is how far each engine is from the
    first in f32; None where they run in it. `tolerance` is what the largest difference may be.
    """

    package: str
    backends: tuple[str, str]
    devices: tuple[str, str]
    numerics: str
    dtypes: dict[str, str]
    entries: tuple[str, ...]
    prompt_tokens: int
    steps: int
    output: Difference
    from_f32: tuple[Difference, Difference] | None
    first_other_token: int | None
    layers: tuple[LayerDrift, ...]
    tolerance: float

    @property
    def ok(self) -> bool:
        return self.output.largest <= self.tolerance

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        fields = dataclasses.asdict(self)
        found = {key: list(value) if isinstance(value, tuple) else value for key, value in fields.items()}
        layers = [{"name": layer.name, **dataclasses.asdict(layer.difference)} for layer in self.layers]
        return {"schema": SCHEMA, **found, "layers": layers, "ok": self.ok}


def run_parity(
    name_or_dir: str | os.PathLike[str],
    *,
    backends: Sequence[str] = BACKENDS,
    devices: Sequence[str] = DEVICES,
    prompt: str | None = None,
    steps: int = STEPS,
    tolerance: float | None = None,
    watch: Watch = iter,
    options: LoadOptions,
) -> ParityReport:
    """See `linnet.nest.parity`. `options.backend` is not looked at."""
    from linnet.runner.backend import device_name
    from linnet.runner.parity import Engine, difference, first_other_token, layer_drift

    _refuse(backends, devices, options.device, steps, tolerance)
    package = find_package(name_or_dir, offline=options.offline, registry=options.registry)
    # Once: what a name means may change between two questions.
    options = options.but(registry=package.registry or options.registry)
    card = package.card()
    shapes = nest.load(package.reference, **options.shapes().arguments())
    decodes = _decodes(shapes)
    if not decodes and prompt is not None:
        raise nest.NestError(f"{card.model.name} decodes nothing, so that it reads no prompt: leave it out (--prompt)")
    inputs = _prompt(package, shapes, prompt, options) if decodes else _inputs(shapes, card)
    if decodes:
        length, most = inputs[0].shape[1], int(shapes.generics["MaxSeq"])
        if length + steps > most:
            raise ContextError(length, steps, most)
        options = options.with_positions(length + steps)

    def load(backend: str, device: str, dtype: str | None) -> Engine:
        found = options.but(backend=backend, device=device, dtype=dtype)
        return Engine(backend, nest.load(package.reference, **found.arguments()))

    run = _Decoding(inputs[0], steps) if decodes else _Entry(card.source.entry, inputs)
    wanted = [(backend, device, options.dtype) for backend, device in zip(backends, devices, strict=True)]
    narrow = any(value in ("bf16", "f16") for value in (options.dtype or "", *shapes.generics.values()))
    wide = options.dtype != "f32" and narrow
    wanted += [(backends[0], devices[0], "f32")] if wide else []
    engines: list[Engine] = []
    results: list[Tensor] = []
    for backend, device, dtype in watch(wanted):
        engines.append(load(backend, device, dtype))
        results.append(run(engines[-1]))
    first, second = engines[:2]
    output = difference(results[0], results[1])
    apart = (difference(results[2], results[0]), difference(results[2], results[1])) if wide else None
    entry = "prefill" if decodes else card.source.entry
    drift = layer_drift(first, second, entry, [*inputs, 0] if decodes else inputs)
    if tolerance is None:
        tolerance = default_tolerance(options.numerics, apart)
    return ParityReport(
        package=card.model.name,
        backends=(first.backend, second.backend),
        devices=(device_name(first.model), device_name(second.model)),
        numerics=options.numerics,
        dtypes={name: value for name, value in first.model.generics.items() if isinstance(value, str)},
        entries=("prefill", "decode") if decodes else (entry,),
        prompt_tokens=inputs[0].shape[1] if decodes else 0,
        steps=steps if decodes else 0,
        output=output,
        from_f32=apart,
        first_other_token=first_other_token(results[0], results[1]) if decodes else None,
        layers=tuple(drift),
        tolerance=tolerance,
    )


def default_tolerance(numerics: str, from_f32: tuple[Difference, Difference] | None) -> float:
    """Under `engine`, whose rounding points engines share, no more than what the nearer one is from f32; under other
    policies what two runs are apart whose roundings have nothing to do with each other."""
    if from_f32 is None:
        return F32_TOLERANCE
    distances = [item.largest for item in from_f32]
    return min(distances) if numerics == "engine" else math.hypot(*distances)


class _Decoding:
    """Logits [steps + 1, Batch, Vocab] after a prompt [Batch, N]: greedy for the first engine, whose tokens the others
    then read."""

    def __init__(self, prompt: Tensor, steps: int) -> None:
        self._prompt, self._steps = prompt, steps
        self._tokens: Tensor | None = None

    def __call__(self, engine: Engine) -> Tensor:
        from linnet.runner.parity import follow, greedy

        if self._tokens is None:
            self._tokens, logits = greedy(engine.model, self._prompt, self._steps)
            return logits
        return follow(engine.model, self._prompt, self._tokens)


class _Entry:
    """The floating results of an entry, as one vector."""

    def __init__(self, entry: str, inputs: Sequence[Any]) -> None:
        self._entry, self._inputs = entry, inputs

    def __call__(self, engine: Engine) -> Tensor:
        from linnet.runner.parity import entry_outputs, flat

        found = flat(entry_outputs(engine, self._entry, self._inputs))
        if not found.numel():
            raise EvaluationError(f"the entry {self._entry} gives no floats to compare")
        return found


def _decodes(model: Any) -> bool:
    from linnet.runner.generate import decoder_vocabulary

    try:
        return decoder_vocabulary(model) > 0
    except GenerationError:
        return False


def _prompt(package: Located, model: Any, prompt: str | None, options: LoadOptions) -> list[Tensor]:
    """The prompt's ids [Batch, N], every row alike; drawn at random where there is no text."""
    import torch

    from linnet.runner.bench import random_tokens
    from linnet.runner.generate import decoder_vocabulary, prompt_ids

    rows = int(model.generics["Batch"])
    if prompt is None:
        return [random_tokens(decoder_vocabulary(model), rows, PROMPT, SEED)]
    places = {"weights": options.weights, "registry": options.registry, "offline": options.offline}
    ids = prompt_ids(nest.tokenizer(package.reference, **places), prompt)  # type: ignore[arg-type]
    return [torch.tensor([ids] * rows)]


def _inputs(model: Any, card: Card) -> list[Tensor]:
    """Seeded random inputs of the card's entry at the sizes of its [check]."""
    from linnet.language.program.small import small_generics
    from linnet.runner.smoke import random_inputs
    from linnet.runner.torch.dtypes import to_native

    bound = model._bound
    own = small_generics(bound.entries()[card.source.entry], {**bound.generics, **card.check})
    lowered = bound.lower(card.source.entry, {**own, **card.check}, model._present)
    drawn = random_inputs(lowered, SEED)
    return [to_native(x, item.spec.dtype) for x, item in zip(drawn, lowered.inputs, strict=True)]


def _refuse(
    backends: Sequence[str], devices: Sequence[str], device: str | None, steps: int, tolerance: float | None
) -> None:
    from linnet.runner.backend import BACKENDS as KNOWN

    known = ", ".join(KNOWN)
    for name in backends:
        if name not in KNOWN:
            raise nest.NestError(f"backend={name!r} is not known; write one of {known}")
    if len(backends) != 2 or backends[0] == backends[1]:
        named = f"{', '.join(backends) or 'none'} {'is' if len(backends) < 2 else 'are'} named"
        raise nest.NestError(f"two engines are compared, and {named}: give two different ones of {known}")
    if device is not None:
        raise nest.NestError(f"device={device!r} says where one engine runs: name one for each, devices=(A, B)")
    if len(devices) != 2:
        named = f"{', '.join(devices) or 'none'} {'is' if len(devices) < 2 else 'are'} named"
        raise nest.NestError(f"each engine runs on a device, and {named}: give two, such as {','.join(DEVICES)}")
    if steps < 1:
        raise nest.NestError(f"{steps} steps decode nothing: take 1 or more (--steps)")
    if tolerance is not None and not 0 <= tolerance < float("inf"):
        raise nest.NestError(f"a tolerance of {tolerance} is none: give a number from 0 up (--tolerance)")
