"""A loaded model on MLX, with the interface of the torch backend's."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import RLock
from typing import Any

import mlx.core as mx
import torch
from torch import Tensor

from linnet.language.program.binding import BoundProgram
from linnet.language.program.checked import CheckedFunction
from linnet.language.program.core import EntryGraph, Graph, TensorSpec
from linnet.language.program.types import FLOATS, INTEGERS
from linnet.runner.decoder import TextGeneration
from linnet.runner.errors import (
    IndexRangeError,
    ModeError,
)
from linnet.runner.front import ProgramFront, entry_key, preparing
from linnet.runner.mlx.dtypes import DTYPES, element, from_torch, host, to_torch
from linnet.runner.mlx.interpreter import Frame, Input, Preparation, PreparedGraph
from linnet.runner.mlx.joined import JoinedWeights
from linnet.runner.mlx.kernels import kernels, policy_of
from linnet.runner.mlx.passes import rewrite
from linnet.runner.mlx.quantised import Weight, arrays_of, dense, quantised_weight, weight_bytes
from linnet.runner.mlx.room import check_room, states_of
from linnet.runner.mlx.spans import Lengths, Writes, find_writes
from linnet.runner.packed import PackedTensor
from linnet.runner.results import arrange
from linnet.runner.torch.compiled.store import free_bytes
from linnet.runner.torch.dtypes import BITS
from linnet.runner.torch.inputs import EntryInputs, check_generics, convert_inputs
from linnet.runner.torch.nonfinite import explain_nonfinite
from linnet.runner.torch.weights import WeightSource, WeightsReport, check_tensors, read_stored, read_weights

NUMERICS = ("exact", "equivalent", "fast", "engine")
DEVICES = {"cpu": mx.cpu, "gpu": mx.gpu}
HOST = torch.device("cpu")


def choose_mode(wanted: bool | str | None, fp8: str | None, numerics: str, device: Any, trainable: bool) -> bool:
    """Whether entries are compiled: by default on a GPU, except under `exact`.

    On a CPU MLX compiles each function of elementwise operations with the system's C++ compiler, seconds for each shape
    of the inputs. Raises ModeError for what cannot be had.
    """
    place = find_device(device)
    if trainable:
        raise ModeError('trainable=True needs gradients, which backend="mlx" keeps none of: load with backend="torch"')
    if fp8 is not None:
        where = "on MLX FP8 weights are decoded once where there is room, otherwise for each product"
        raise ModeError(f'fp8={fp8!r} belongs to backend="torch": {where}')
    if wanted is None:
        return numerics != "exact" and place == "gpu"
    if not isinstance(wanted, bool):
        raise ModeError(f'compile={wanted!r} belongs to backend="torch": write True (mx.compile) or False')
    return wanted


def find_device(device: Any) -> str:
    """The MLX device of that name, "cpu" or "gpu"; None is MLX's own choice. Raises ModeError for others."""
    if device is None:
        return "gpu" if mx.default_device() == mx.Device(mx.gpu) else "cpu"
    name = str(device)
    if name not in DEVICES:
        raise ModeError(f"device={name!r} is not one of MLX, which has cpu and gpu: name one of them, or leave it out")
    if name == "gpu" and not mx.is_available(mx.Device(mx.gpu)):
        raise ModeError("device='gpu' cannot be used here, since this MLX has no GPU: leave it out")
    return name


@dataclass(frozen=True)
class PreparedEntry:
    """An entry lowered with its generics and prepared, and what it writes."""

    entry: EntryGraph
    graph: PreparedGraph
    writes: Writes
    states: Mapping[str, TensorSpec]


class Model(TextGeneration, ProgramFront):
    """A bound program with its weights, ready to run on MLX.

    `model(...)` runs the card's entry. Weights and results are MLX arrays, by their Linnet paths; weights that a recipe
    packs stay so, and are multiplied by as they are, but under `exact`. States start as zeros and live between calls.
    Inputs may be MLX arrays, and all that the torch backend takes.

    Threads may share a model: calls follow one another.
    """

    def __init__(
        self,
        bound: BoundProgram,
        weights: Mapping[str, Weight],
        *,
        entry: str | None = None,
        numerics: str = "exact",
        device: str | None = None,
        compile: bool | None = None,
        report: WeightsReport | None = None,
    ) -> None:
        if numerics not in NUMERICS:
            raise ValueError(f"numerics={numerics!r} is not one of {', '.join(NUMERICS)}")
        check_floats(bound)
        self._device = find_device(device)
        self._compile = choose_mode(compile, None, numerics, self._device, False)
        self._bound = bound
        self._functions = bound.entries()
        self._entry = entry
        self._numerics = numerics
        self._joined = JoinedWeights(dict(weights), self._decoded_dtype())
        self._present = frozenset(e.path for e in bound.manifest.entries if e.optional and e.path in weights)
        self.weights_report = report or WeightsReport()
        self._states: dict[str, mx.array] = {}
        self._lengths = Lengths()
        self._prepared: dict[tuple[Any, ...], PreparedEntry] = {}
        self._walked: dict[str, str] = {}
        self._preparation = self._prepare_policy()
        self._lock = RLock()

    # What the model is

    @property
    def _weights(self) -> dict[str, Weight]:
        """By path; and wholes of several, which the entries that are prepared read, by theirs."""
        return self._joined.weights

    @property
    def compiled(self) -> bool:
        """Whether entries run under `mx.compile`, where they can."""
        return self._compile

    @property
    def fallbacks(self) -> dict[str, str]:
        """The entries that have run and could not be compiled as a whole, with the reason."""
        return dict(self._walked)

    @property
    def device(self) -> mx.Device:
        return mx.Device(DEVICES[self._device])

    def state_dict(self) -> dict[str, mx.array]:
        """The weights by path, packed ones decoded."""
        entries = self._bound.manifest.entries
        return {entry.path: dense(self._weights[entry.path]) for entry in entries if entry.path in self._weights}

    def bytes_per_token(self) -> int:
        """Bytes of weights that decoding one token reads. Raises UnknownEntryError where the model has no `decode`."""
        function = self._function("decode")
        rows = int(self._bound.generics["Batch"])
        taken = convert_inputs(function, [[[0]] * rows, 0], self._bound.generics, HOST)
        return weight_bytes(self._prepare(function, taken, {}).graph.graph, self._weights)

    @property
    def length(self) -> int | None:
        """How many positions the caches hold, from 0 on; None after an entry that writes them by rows, slots or
        pages, or in a loop whose end depends on values."""
        return self._lengths.common

    def reset_state(self) -> None:
        """Back to zeros; memory is freed until the next use."""
        with self._lock:
            self._forget()

    def _forget(self) -> None:
        self._states.clear()
        self._lengths.clear()

    def resize(self, **generics: int) -> None:
        """Give generics that no weight depends on, such as `MaxSeq`, other values; states start again.

        Raises BindError for values that do not fit, WeightsError where a weight's shape would change.
        """
        bound = self._rebound(generics)
        with self._lock:
            self._bound = bound
            self._functions = bound.entries()
            self._forget()
            self._prepared.clear()
            self._preparation = self._prepare_policy()

    def __repr__(self) -> str:
        generics = ", ".join(f"{name}={value}" for name, value in self.generics.items())
        return f"Model({self._bound.block.name}<{generics}> on MLX {self._device})"

    # Running

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """Run the card's entry. Raises InputError for inputs by name, which `run_entry` takes, as it does generics."""
        return self.run_entry(self._card_entry(named), inputs)

    def run_entry(
        self, name: str, inputs: Sequence[Any] | Mapping[str, Any] = (), generics: Mapping[str, int | str] | None = None
    ) -> Any:
        """Run an entry on arrays, tensors, numbers or lists; returns MLX arrays, arranged as the entry's result type.

        As of the torch backend: generics that the inputs do not determine are given in `generics`, and if it refuses a
        value, no state has changed. Raises UnknownEntryError, InputError, IndexRangeError, IntegerDivisionError,
        CapacityError for a context longer than the caches, PositionGapError for a position beyond what they hold,
        AllocationError for states that a CPU has no memory for.
        """
        function = self._function(name)
        given = check_generics(function, generics)
        values = {key: host(value) for key, value in inputs.items()} if isinstance(inputs, Mapping) else inputs
        values = [host(value) for value in values] if isinstance(values, list | tuple) else values
        with self._lock, mx.stream(self.device):
            taken = convert_inputs(function, values, {**self._bound.generics, **given}, HOST)
            prepared = self._prepare(function, taken, given)
            specs = [item.spec.dtype for item in prepared.entry.inputs]
            arrays = [from_torch(x, dtype) for x, dtype in zip(taken.tensors, specs, strict=True)]
            known = {
                id(array): Input(array, int(x.min()), int(x.max()))
                for x, array, dtype in zip(taken.tensors, arrays, specs, strict=True)
                if dtype in INTEGERS and dtype not in BITS and x.numel()
            }
            return arrange(prepared.entry.result, self._run(prepared, arrays, known))

    def _run(self, prepared: PreparedEntry, inputs: list[mx.array], known: dict[int, Input]) -> list[mx.array]:
        """The entry's outputs, computed; states change once all that must hold of values does."""

        def position(symbol: int | str) -> int:
            array = inputs[symbol] if isinstance(symbol, int) else self._states.get(symbol)
            return 0 if array is None else element(array)

        lengths = self._lengths.after(prepared.entry.name, prepared.writes, position)
        check_room(prepared.entry.name, prepared.states, self._states, self._device)
        frame = Frame(self._weights, self._states, inputs=known)
        try:
            outputs = prepared.graph.run(frame, inputs)
            frame.settle()
        except IndexRangeError as error:
            error.entry = prepared.entry.name
            raise
        changed = {**frame.allocated, **frame.written}
        # MLX writes into an array that nothing else holds: the caches are handed over before they are computed.
        self._states.update(changed)
        del frame
        try:
            mx.eval(outputs, changed)
        except RuntimeError:
            self._forget()
            raise
        self._lengths.set(lengths)
        return outputs

    def _prepare(self, function: CheckedFunction, taken: EntryInputs, given: dict[str, int | str]) -> PreparedEntry:
        """The entry for inputs of these specs; lowered and prepared once for each."""
        key = entry_key(function, taken, given)
        known = self._prepared.get(key)
        if known is not None:
            return known
        with preparing(function):
            entry = self._lowered(function, taken, given)
            states = states_of(entry.graph)
            check_room(function.name, states, self._states, self._device)
            graph = self._preparation.graph(self._rewritten(entry.graph))
        if graph.walked is not None:
            self._walked[function.name] = graph.walked
        prepared = self._prepared[key] = PreparedEntry(entry, graph, find_writes(entry.graph), states)
        return prepared

    def _decoded_dtype(self) -> mx.Dtype | None:
        """What FP8 weights are decoded to, f32 where they are not to be rounded; None where that would take more than
        half of the memory that is free, or there is where nobody can tell."""
        dtype = "f32"
        if self._numerics == "fast":
            dtype = next((str(v) for v in self._bound.generics.values() if v in FLOATS), dtype)
        bytes_each = DTYPES[dtype].size
        entries = self._bound.manifest.entries
        decoded = sum(bytes_each * math.prod(entry.shape) for entry in entries if entry.dtype == "u8")
        room = free_bytes(HOST) or os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return DTYPES[dtype] if 2 * decoded <= room else None

    def _rewritten(self, graph: Graph) -> Graph:
        if self._numerics == "exact":
            return graph
        return rewrite(graph, self._preparation.kernels, self._joined, policy_of(self._numerics, self._device))

    def _prepare_policy(self) -> Preparation:
        return Preparation(kernels(policy_of(self._numerics, self._device)), compiled=self._compile)

    def _first_row(self, entry: str, inputs: Sequence[Any]) -> Tensor:
        return to_torch(self.run_entry(entry, inputs)[0])

    def explain_nonfinite(self, name: str, inputs: Sequence[Any]) -> str:
        """Which operation first makes an entry's logits NaN or infinite, starting from empty states, in words: as torch
        finds it on the CPU."""
        weights = {path: to_torch(value) for path, value in self.state_dict().items()}
        return explain_nonfinite(self._bound, name, inputs, weights, self._present, "equivalent", HOST)


def check_floats(bound: BoundProgram) -> None:
    """Raises ModeError where a generic of the model is a float that this backend has no arithmetic for."""
    for name, value in bound.generics.items():
        if value in ("f16", "f64"):
            raise ModeError(
                f'{name} is {value}, which backend="mlx" does not run in: load with dtype="bf16" or dtype="f32"'
            )


def load_model(
    bound: BoundProgram,
    weights: WeightSource | Mapping[str, Tensor] | Mapping[str, mx.array],
    *,
    entry: str | None = None,
    numerics: str = "exact",
    device: str | None = None,
    convert: bool = False,
    trainable: bool = False,
    compile: bool | None = None,
    fp8: str | None = None,
) -> Model:
    """A model of `bound`.

    `weights`: files to read, or torch tensors or MLX arrays by path. `convert` lets floating tensors of another dtype
    be converted to the manifest's as they load. Raises ModeError, WeightsError.
    """
    check_floats(bound)
    choose_mode(compile, fp8, numerics, device, trainable)
    place = find_device(device)
    report = WeightsReport()
    tensors: Mapping[str, Tensor | PackedTensor]
    if isinstance(weights, WeightSource):
        # Under `exact` every op runs by its body, which takes no packed weights.
        read = read_weights if numerics == "exact" else read_stored
        tensors, report = read(bound.manifest, weights, HOST, convert=convert)
    else:
        given = {path: host(value) for path, value in weights.items()}
        check_tensors(bound.manifest, given)
        tensors = given
    dtypes = {e.path: e.dtype for e in bound.manifest.entries}
    made: dict[int, Weight] = {}
    for path, tensor in tensors.items():
        if id(tensor) not in made:
            dtype = dtypes[path]
            if isinstance(tensor, PackedTensor):
                made[id(tensor)] = quantised_weight(tensor, dtype, place)
            else:
                made[id(tensor)] = from_torch(tensor, dtype)
    mx.eval([arrays_of(weight) for weight in made.values()])
    ready = {path: made[id(tensor)] for path, tensor in tensors.items()}
    return Model(bound, ready, entry=entry, numerics=numerics, device=device, compile=compile, report=report)
