"""How far two engines are apart on one model: the same weights and tokens, logits and layers side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from linnet.language.program.core import Graph, Value
from linnet.language.program.types import FLOATS, DTypeVar, OptionalType, TensorType
from linnet.runner.decoder import DecoderModel
from linnet.runner.errors import NonFiniteError
from linnet.runner.layers import boundaries
from linnet.runner.results import as_tensor
from linnet.runner.torch.dtypes import NATIVE


@dataclass(frozen=True, slots=True)
class Difference:
    """Of two tensors that should be alike: the largest and the mean magnitude of what lies between them, and the
    largest magnitude of the first."""

    largest: float
    mean: float
    magnitude: float


@dataclass(frozen=True, slots=True)
class LayerDrift:
    """How far apart what a layer gives is, after the same inputs of the entry."""

    name: str
    difference: Difference


@dataclass(frozen=True, slots=True)
class Engine:
    """A model, and the backend that runs it."""

    backend: str
    model: Any


def difference(reference: Tensor, other: Tensor) -> Difference:
    """Computed in f64. Raises NonFiniteError where either holds NaN or infinity."""
    wide, theirs = reference.double(), other.double()
    for whose, x in (("first", wide), ("second", theirs)):
        if not bool(x.isfinite().all()):
            raise NonFiniteError(f"the results of the {whose} engine are not all numbers: nest run says where from")
    if not wide.numel():
        return Difference(0.0, 0.0, 0.0)
    apart = (wide - theirs).abs()
    return Difference(float(apart.max()), float(apart.mean()), float(wide.abs().max()))


def greedy(model: DecoderModel, prompt: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """Read `prompt` [Batch, N] and decode `steps` times the likeliest token of each row.

    The tokens that were decoded, [steps, Batch], and the logits after the prompt and after each, [steps + 1, Batch,
    Vocab] on the CPU.
    """
    return _decoded(model, prompt, None, steps)


def follow(model: DecoderModel, prompt: Tensor, tokens: Tensor) -> Tensor:
    """The logits of `greedy` for the tokens of another model, [steps, Batch]."""
    return _decoded(model, prompt, tokens, len(tokens))[1]


def first_other_token(reference: Tensor, other: Tensor) -> int | None:
    """The first of the logits [steps + 1, Batch, Vocab] whose likeliest token differs in some row; None where none."""
    differs = (reference.argmax(-1) != other.argmax(-1)).any(-1).nonzero()
    return int(differs[0, 0]) if len(differs) else None


def layer_drift(reference: Engine, other: Engine, entry: str, inputs: Sequence[Any]) -> list[LayerDrift]:
    """What each layer gives in an entry that is run from empty states; empty for a model without block arrays."""
    names: list[str] = []

    def choose(graph: Graph) -> list[Value]:
        found = boundaries(graph)
        names[:] = [boundary.name for boundary in found]
        return [boundary.value for boundary in found]

    first, second = (_tapped(engine, entry, inputs, choose) for engine in (reference, other))
    pairs = zip(names, first, second, strict=True)
    return [LayerDrift(name, difference(a, b)) for name, a, b in pairs]


def entry_outputs(engine: Engine, entry: str, inputs: Sequence[Any]) -> list[Tensor]:
    """An entry's floating results, on the CPU, run from empty states."""

    def choose(graph: Graph) -> list[Value]:
        return [value for value in graph.outputs if value.spec.dtype in ("f16", "bf16", "f32", "f64")]

    return _tapped(engine, entry, inputs, choose)


def flat(tensors: Sequence[Tensor]) -> Tensor:
    """Several tensors as one vector, in f64."""
    return torch.cat([x.double().flatten() for x in tensors]) if tensors else torch.zeros(0, dtype=torch.float64)


def _tapped(engine: Engine, entry: str, inputs: Sequence[Any], choose: Any) -> list[Tensor]:
    taps: Any = import_module(f"linnet.runner.{engine.backend}.taps")
    found: list[Tensor] = taps.tapped(engine.model, entry, _in_its_dtypes(engine.model, entry, inputs), choose)
    return found


def _in_its_dtypes(model: Any, entry: str, inputs: Sequence[Any]) -> list[Any]:
    """The inputs of an entry, floats among them in what its generics say that the model runs in."""
    found = list(inputs)
    for i, (parameter, value) in enumerate(zip(model._functions[entry].parameters, inputs, strict=False)):
        type = parameter.type.inner if isinstance(parameter.type, OptionalType) else parameter.type
        if isinstance(type, TensorType) and isinstance(type.dtype, DTypeVar) and isinstance(value, Tensor):
            dtype = model.generics.get(type.dtype.name)
            found[i] = value.to(NATIVE[dtype]) if dtype in FLOATS and value.is_floating_point() else value
    return found


def _decoded(model: DecoderModel, prompt: Tensor, forced: Tensor | None, steps: int) -> tuple[Tensor, Tensor]:
    """Greedy, or with `forced` tokens [steps, Batch]."""
    with model._lock:
        model.reset_state()
        logits = [_rows(model, "prefill", prompt, 0)]
        tokens: list[Tensor] = []
        for step in range(steps):
            token = logits[-1].argmax(-1) if forced is None else forced[step]
            tokens.append(token)
            logits.append(_rows(model, "decode", token[:, None], prompt.shape[1] + step))
        model.reset_state()
    return torch.stack(tokens) if tokens else prompt.new_zeros(0, len(prompt)), torch.stack(logits)


def _rows(model: DecoderModel, entry: str, tokens: Tensor, position: int) -> Tensor:
    """The logits [Batch, Vocab] as a torch tensor on the CPU."""
    return as_tensor(model.run_entry(entry, [tokens, position])).cpu()
