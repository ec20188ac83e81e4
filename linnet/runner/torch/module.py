"""A loaded model: a `torch.nn.Module` whose forward is a package's entry."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import chain
from operator import is_
from threading import RLock
from typing import Any

import torch
from torch import Tensor, nn

from linnet.language.program.binding import BoundProgram
from linnet.language.program.checked import CheckedFunction
from linnet.language.program.core import Graph, ResultTree, TensorSpec
from linnet.language.program.instances import Instance, InstanceArray, Instances
from linnet.language.program.manifest import ManifestEntry
from linnet.language.program.types import FLOATS, OptionalType
from linnet.runner.decoder import TextGeneration
from linnet.runner.errors import (
    IndexRangeError,
    WeightsError,
)
from linnet.runner.front import ProgramFront, entry_key, preparing
from linnet.runner.results import arrange
from linnet.runner.torch.compiled.compiler import Compiler, Mode, choose_mode
from linnet.runner.torch.compiled.emit import InterpretedError
from linnet.runner.torch.compiled.entry import CompiledEntry
from linnet.runner.torch.compiled.graphs import ReplayedEntry
from linnet.runner.torch.compiled.store import choose_fp8
from linnet.runner.torch.dtypes import NAMES, to_native
from linnet.runner.torch.inputs import EntryInputs, check_generics, convert_inputs
from linnet.runner.torch.interpreter import Frame, Preparation, PreparedGraph
from linnet.runner.torch.kernels import policy_of
from linnet.runner.torch.memory import allocation_error
from linnet.runner.torch.pages import give_back
from linnet.runner.torch.precision import full_precision
from linnet.runner.torch.sharing import own, own_states, places
from linnet.runner.torch.weights import (
    WeightSource,
    WeightsReport,
    check_tensors,
    empty_weights,
    move_weights,
    read_weights,
)

NUMERICS = ("exact", "equivalent", "fast", "engine")


class BlockModule(nn.Module):
    """One block of the tree: its weights as parameters, its sub blocks as children, under their Linnet names.

    It has no forward: only the root runs, through entries.
    """

    def __init__(self, title: str) -> None:
        super().__init__()
        self._title = title

    def _get_name(self) -> str:
        return self._title

    def extra_repr(self) -> str:
        return "\n".join(f"{name}: {_tensor_text(tensor)}" for name, tensor in self._parameters.items())

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> nn.Module:
        """Moves the block's weights. Raises TypeError, with nothing changed, where `fn` converts their dtypes."""
        for dtype, device in {(tensor.dtype, tensor.device) for tensor in _parameters_below(self).values()}:
            _probe(fn, dtype, device)
        return super()._apply(fn, recurse)  # type: ignore[no-untyped-call, no-any-return]


def _probe(fn: Callable[[Tensor], Tensor], dtype: torch.dtype, device: torch.device) -> torch.device:
    """The device that `fn` moves to. Raises TypeError where it converts `dtype`."""
    moved = fn(torch.empty(1, dtype=dtype, device=device))
    if moved.dtype != dtype:
        raise TypeError(
            f"a model's dtypes are part of its program: its {NAMES.get(dtype, dtype)} weights cannot become "
            f"{NAMES.get(moved.dtype, moved.dtype)}, so load it with nest.load(dtype=...) instead of converting it"
        )
    return moved.device


def _tensor_text(tensor: Tensor | None) -> str:
    return "none" if tensor is None else str(TensorSpec(tuple(tensor.shape), NAMES[tensor.dtype]))


@dataclass(frozen=True)
class PreparedEntry:
    """An entry lowered with its generics and prepared for the model's device; `stateful` where it uses a state.

    `result` arranges its outputs, whose Linnet dtypes are `dtypes`. The graph that it was lowered to is not kept.
    """

    name: str
    result: ResultTree
    dtypes: tuple[str, ...]
    graph: PreparedGraph | CompiledEntry
    stateful: bool


@dataclass(frozen=True)
class Fallback:
    """How an entry runs that cannot run in the model's mode: `mode` as `Model.compiled` says it, and the `reason`."""

    mode: Mode
    reason: str


class Model(TextGeneration, ProgramFront, BlockModule):
    """A bound program with its weights, ready to run.

    Weights are this module's parameters, named by their Linnet paths, so `parameters()`, `state_dict()`, `to(device)`
    and optimizers work as they do for any module, and a parameter that is replaced (by assignment, or by
    `load_state_dict(.., assign=True)`) counts from the next call on, as does one that is changed in place; what is done
    to its `.data` is not noticed, since torch keeps no count of that. `to(dtype)` is refused, since dtypes are part of
    the program (load with `dtype=` instead), and autocast changes nothing. Calls keep no gradients unless the
    model is trainable, and what they give and keep are tensors that later training may use. States start as zeros, live
    between calls, and are detached from the graph of gradients. A result is the caller's own: changing it, or an input,
    in place changes nothing here.

    Threads may share a model: calls that use a state follow one another. What is pickled or copied has the weights and
    the states, and prepares its entries anew.
    """

    def __init__(
        self,
        bound: BoundProgram,
        weights: Mapping[str, Tensor],
        *,
        entry: str | None = None,
        numerics: str = "exact",
        device: torch.device,
        trainable: bool = False,
        compile: Mode | None = None,
        fp8: str | None = None,
        report: WeightsReport | None = None,
    ) -> None:
        super().__init__("Model")
        if numerics not in NUMERICS:
            raise ValueError(f"numerics={numerics!r} is not one of {', '.join(NUMERICS)}")
        self._mode = choose_mode(compile, fp8, numerics, device, trainable)
        self._fp8 = fp8
        self._bound = bound
        self._functions = bound.entries()
        self._entry = entry
        self._numerics = numerics
        self._device = device
        self._trainable = trainable
        self._states: dict[str, Tensor] = {}
        self._prepared: dict[tuple[Any, ...], PreparedEntry] = {}
        self._preparation: Preparation | None = None
        self._compiler: Compiler | None = None
        self._fallbacks: dict[str, Fallback] = {}
        self._weight_places: set[int] | None = None
        self._present = self._optional(weights)
        self._weights = _parameters(bound.manifest.entries, weights, trainable)
        self.weights_report = report or WeightsReport()
        instances = Instances()
        root = Instance(bound.block, instances.environment(bound.block, dict(bound.generics)), "")
        _fill(self, root, instances, self._weights)
        self._watched: _Watch | None = _Watch(self)
        self._lock = RLock()

    # What the model is

    @property
    def compiled(self) -> Mode:
        """How entries run: False by the interpreter, True as straight-line code, or the name of what runs that."""
        return self._mode

    @property
    def fallbacks(self) -> dict[str, Fallback]:
        """The entries that have run, and not as `compiled` says, by name. A CUDA graph is captured at an entry's second
        run; one that cannot be is warned of then, by a RuntimeWarning."""
        return dict(self._fallbacks)

    @property
    def fp8(self) -> str:
        """How `fast` multiplies by FP8 weights: "stream", decoded for each product, or "decoded", once."""
        if self._fp8 is None:
            decoded = sum(2 * math.prod(e.shape) for e in self._bound.manifest.entries if e.dtype == "u8")
            self._fp8 = choose_fp8(decoded, self._device)
        return self._fp8

    @property
    def device(self) -> torch.device:
        """Where the weights are, and the model runs."""
        self._current()
        return self._device

    @property
    def frozen(self) -> list[str]:
        """Paths of weights that cannot train, since they are not floating (FP8 bytes, say)."""
        return [path for path, tensor in self._current().items() if not tensor.is_floating_point()]

    def reset_state(self) -> None:
        """Back to zeros; memory is freed until the next use."""
        with self._lock:
            self._states.clear()

    def resize(self, **generics: int) -> None:
        """Give generics that no weight depends on, such as `MaxSeq`, other values; states start again.

        Raises BindError for values that do not fit, WeightsError where a weight's shape would change.
        """
        bound = self._rebound(generics)
        with self._lock:
            weights = self._current()
            self._bound = bound
            self._states.clear()
            instances = Instances()
            root = Instance(bound.block, instances.environment(bound.block, dict(bound.generics)), "")
            _fill(self, root, instances, weights)
            self._watched = _Watch(self)
            self._settle(self._device)

    def explain_nonfinite(self, name: str, inputs: Sequence[Any]) -> str:
        """Which operation first makes an entry's logits NaN or infinite, starting from empty states, in words."""
        from linnet.runner.torch.nonfinite import explain_nonfinite

        weights, present, device = self._current(), self._present, self._device
        return explain_nonfinite(self._bound, name, inputs, weights, present, self._numerics, device)

    def requires_grad_(self, requires_grad: bool = True) -> Model:
        """As of any module, for the floating `param`s. Raises RuntimeError where calls keep no gradients to turn on."""
        if requires_grad and not self._trainable:
            raise RuntimeError(
                "this model was loaded for inference, and its calls keep no gradients: "
                "load it with nest.load(..., trainable=True)"
            )
        weights = self._current()
        for entry in self._bound.manifest.entries:
            if _trains(entry) and entry.path in weights:
                weights[entry.path].requires_grad_(requires_grad)
        return self

    # Running

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """Run the card's entry. Raises InputError for inputs by name, which `run_entry` takes, as it does generics."""
        return self.run_entry(self._card_entry(named), inputs)

    def run_entry(
        self, name: str, inputs: Sequence[Any] | Mapping[str, Any] = (), generics: Mapping[str, int | str] | None = None
    ) -> Any:
        """Run an entry on tensors, numbers, arrays or lists; returns tensors, arranged as the entry's result type.

        Generics that the inputs do not determine are given in `generics`. Integer inputs may have any integer dtype;
        floats have the declared one. If it refuses a value, no state has changed. Raises UnknownEntryError, InputError,
        IndexRangeError (an id outside the vocabulary, a position beyond the cache), IntegerDivisionError, WeightsError
        (a parameter was replaced by one that does not fit), AllocationError (too little memory).
        """
        function = self._function(name)
        given = check_generics(function, generics)
        try:
            with self._lock:
                weights = self._current()
                taken = convert_inputs(function, inputs, {**self._bound.generics, **given}, self._device)
                if self._compiler is not None and self._compiler.store.stale():
                    self._settle(self._device)
                prepared = self._prepare(function, taken, given)
                if isinstance(prepared.graph, CompiledEntry) and prepared.graph.bind(weights):
                    self._weight_places = None
                if prepared.stateful:
                    results = self._run(prepared, weights, taken.tensors)
            if not prepared.stateful:
                results = self._run(prepared, weights, taken.tensors)
        except (RuntimeError, MemoryError) as error:
            short = allocation_error(error, f"entry {name}", self._device)
            if short is None:
                raise
            raise short from error
        if isinstance(prepared.graph, ReplayedEntry) and prepared.graph.refused is not None:
            self._fall_back(name, True, prepared.graph.refused)
        return arrange(prepared.result, results)

    def _run(self, prepared: PreparedEntry, weights: Mapping[str, Tensor], inputs: list[Tensor]) -> list[Tensor]:
        """The entry's outputs, in memory of their own; states change once it has them all."""
        frame = Frame(weights, self._states)
        gradients: AbstractContextManager[object] = nullcontext() if self._trainable else torch.no_grad()
        # Code that was compiled for a CPU has nothing to ask of a GPU's settings.
        hosted = isinstance(prepared.graph, CompiledEntry) and self._device.type == "cpu"
        precision: AbstractContextManager[object] = nullcontext() if hosted else full_precision()
        # Dtypes are part of the program.
        kind = self._device.type
        cast = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
        casts: AbstractContextManager[object] = torch.autocast(kind, enabled=False) if cast else nullcontext()
        try:
            with precision, gradients, casts:
                outputs = prepared.graph.run(frame, inputs)
                if self._weight_places is None:
                    self._weight_places = places(weights.values())
                    give_back()
                taken = self._weight_places | places(inputs) | prepared.graph.kept
                written = own_states(frame.written, {**self._states, **frame.allocated}, taken)
                taken |= places([*self._states.values(), *frame.allocated.values(), *written.values()])
                results = []
                for output in outputs:
                    results.append(own(output, taken))
                    taken |= places(results[-1:])
        except IndexRangeError as error:
            error.entry = prepared.name
            raise
        self._states.update(frame.allocated)
        self._states.update((path, value.detach()) for path, value in written.items())
        return [to_native(x, dtype) for x, dtype in zip(results, prepared.dtypes, strict=True)]

    def _prepare(self, function: CheckedFunction, taken: EntryInputs, given: dict[str, int | str]) -> PreparedEntry:
        """The entry for inputs of these specs; lowered and prepared once for each."""
        key = entry_key(function, taken, given)
        known = self._prepared.get(key)
        if known is not None:
            return known
        with preparing(function):
            entry = self._lowered(function, taken, given)
            stateful = any(node.op in ("state.read", "state.write") for node in entry.graph.walk())
            dtypes = tuple(value.spec.dtype for value in entry.graph.outputs)
            graph = self._graph(function.name, entry.graph)
            prepared = PreparedEntry(entry.name, entry.result, dtypes, graph, stateful)
            del entry
        self._prepared[key] = prepared
        return prepared

    def _graph(self, name: str, graph: Graph) -> PreparedGraph | CompiledEntry:
        """An entry's graph compiled, or prepared for the interpreter."""
        policy = policy_of(self._numerics, self._device)
        if self._mode is not False:
            if self._compiler is None:
                self._compiler = Compiler(self._weights, self._device, policy, mode=self._mode, fp8=self.fp8)
            try:
                return self._compiler.entry(graph)
            except InterpretedError as error:
                self._fall_back(name, False, str(error))
        if self._preparation is None:
            self._preparation = Preparation(self._device, policy.kernels)
        return self._preparation.graph(policy.rewritten(graph))

    def _fall_back(self, name: str, mode: Mode, reason: str) -> None:
        if name in self._fallbacks:
            return
        self._fallbacks[name] = Fallback(mode, reason)
        if self._mode == "reduce-overhead":
            instead = "as straight-line code" if mode else "by the interpreter"
            warnings.warn(
                f"entry {name} cannot be replayed as a CUDA graph ({reason}): it runs {instead}",
                RuntimeWarning,
                stacklevel=3,
            )

    # Being a module

    def __getstate__(self) -> dict[str, Any]:
        """Without what is made for a run: steps and locks belong to this process."""
        with self._lock:
            fresh = {
                **{"_prepared": {}, "_preparation": None, "_compiler": None, "_weight_places": None},
                **{"_watched": None, "_states": dict(self._states), "_fallbacks": dict(self._fallbacks)},
            }
            kept = {name: value for name, value in self.__dict__.items() if name != "_lock"}
        return {**kept, **fresh}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._lock = RLock()

    def _current(self) -> dict[str, Tensor]:
        """The weights by path, as they now are. Raises WeightsError where what replaced one does not fit."""
        if self._watched is not None and self._watched.unchanged():
            return self._weights
        found = _parameters_below(self)
        weights = {entry.path: found[entry.path] for entry in self._bound.manifest.entries if entry.path in found}
        check_tensors(self._bound.manifest, weights)
        places = {tensor.device: path for path, tensor in weights.items()}
        if len(places) > 1:
            (one, here), (other, there), *_ = places.items()
            raise WeightsError([f"{here} is on {one} and {there} on {other}: move the model to one device with to()"])
        self._weights = weights
        self._present = self._optional(weights)
        self._settle(next(iter(places), self._device))
        self._watched = _Watch(self)
        return weights

    def _optional(self, weights: Mapping[str, Tensor]) -> frozenset[str]:
        return frozenset(e.path for e in self._bound.manifest.entries if e.optional and e.path in weights)

    def _settle(self, device: torch.device) -> None:
        """Run on `device` from now on; graphs are prepared again, and states that are elsewhere start again."""
        self._device = device
        self._states = {path: value for path, value in self._states.items() if value.device == device}
        self._prepared.clear()
        self._preparation = None
        self._compiler = None
        self._weight_places = None

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Model:
        """Moves weights and states. Raises TypeError, with nothing changed, where `fn` converts their dtypes."""
        for dtype, device in {(value.dtype, value.device) for value in self._states.values()}:
            _probe(fn, dtype, device)
        super()._apply(fn, recurse)
        self._states = {path: fn(value) for path, value in self._states.items()}
        first = next(self.parameters(), None)
        self._settle(first.device if first is not None else _probe(fn, torch.float32, self._device))
        return self


def _parameters(entries: Sequence[ManifestEntry], weights: Mapping[str, Tensor], trainable: bool) -> dict[str, Tensor]:
    """Parameters by path in the manifest's order; tensors shared by two paths become one parameter."""
    made: dict[int, nn.Parameter] = {}
    result: dict[str, Tensor] = {}
    for entry in entries:
        tensor = weights.get(entry.path)
        if tensor is None:
            continue
        if id(tensor) not in made:
            made[id(tensor)] = nn.Parameter(tensor.detach(), requires_grad=trainable and _trains(entry))
        result[entry.path] = made[id(tensor)]
    return result


def _trains(entry: ManifestEntry) -> bool:
    """Whether the weight is one that training may change: no buffer, and floating."""
    return entry.kind == "param" and entry.dtype in FLOATS


def _title(instance: Instance) -> str:
    arguments = ", ".join(map(str, instance.env.generics.values()))
    return f"{instance.block.name}<{arguments}>" if arguments else instance.block.name


def _fill(module: nn.Module, instance: Instance, instances: Instances, weights: Mapping[str, Tensor]) -> None:
    """Give `module` the instance's weights and children.

    Straight into torch's tables: a member may have a name that `nn.Module` uses for a method (`type`, `forward`), which
    `register_parameter` and `add_module` refuse.
    """
    for member in instance.block.members.values():
        if member.kind in ("param", "buffer"):
            weight = weights.get(instance.member_path(member.name))
            if weight is not None or isinstance(member.type, OptionalType):
                module._parameters[member.name] = weight  # type: ignore[assignment]
        elif member.kind == "sub":
            child = instances.child(instance, member.name)
            if isinstance(child, InstanceArray):
                module._modules[member.name] = nn.ModuleList(
                    _block(child[i], instances, weights) for i in range(child.count)
                )
            elif not isinstance(member.type, OptionalType) or any(p.startswith(f"{child.path}.") for p in weights):
                module._modules[member.name] = _block(child, instances, weights)


def _block(instance: Instance, instances: Instances, weights: Mapping[str, Tensor]) -> BlockModule:
    module = BlockModule(_title(instance))
    _fill(module, instance, instances, weights)
    return module


def _parameters_below(module: nn.Module) -> dict[str, Tensor]:
    """Every parameter by path, shared ones at each of theirs."""
    return dict(module.named_parameters(remove_duplicate=False))


class _Watch:
    """Notices when a parameter or a block of the tree is replaced, taken away or added: far faster than a walk."""

    def __init__(self, root: nn.Module) -> None:
        tables = [table for module in root.modules() for table in (module._parameters, module._modules)]
        self._tables: list[dict[str, Any]] = [table for table in tables if table]
        self._values = tuple(value for table in self._tables for value in table.values())

    def unchanged(self) -> bool:
        found = chain.from_iterable(map(dict.values, self._tables))
        return all(map(is_, found, self._values)) and sum(map(len, self._tables)) == len(self._values)


def load_model(
    bound: BoundProgram,
    weights: WeightSource | Mapping[str, Tensor] | None,
    *,
    entry: str | None = None,
    numerics: str = "exact",
    device: str | torch.device | None = None,
    convert: bool = False,
    trainable: bool = False,
    compile: Mode | None = None,
    fp8: str | None = None,
) -> Model:
    """A model of `bound`.

    `weights`: files to map, tensors by path, or None on the meta device, where weights have shapes only. `convert` lets
    floating tensors of another dtype be converted to the manifest's as they load. Raises WeightsError, AllocationError.
    """
    place = torch.device(device or "cpu")
    report = WeightsReport()
    if place.type == "meta":
        tensors = empty_weights(_present(bound, weights), place)
    elif isinstance(weights, WeightSource):
        tensors, report = read_weights(bound.manifest, weights, place, convert=convert)
    elif weights is None:
        raise ValueError("weights are needed on every device but meta")
    else:
        check_tensors(bound.manifest, weights)
        tensors = move_weights(weights, place)
    options: dict[str, Any] = {"numerics": numerics, "trainable": trainable, "compile": compile, "fp8": fp8}
    return Model(bound, tensors, entry=entry, device=place, report=report, **options)


def _present(bound: BoundProgram, weights: WeightSource | Mapping[str, Tensor] | None) -> list[ManifestEntry]:
    """On the meta device: the required weights, and the optional ones that `weights` names."""
    if isinstance(weights, WeightSource):
        table, bindings = weights.table, weights.bindings
        return [e for e in bound.manifest.entries if not e.optional or bindings.get(e.path, e.path) in table]
    return [e for e in bound.manifest.entries if not e.optional or (weights is not None and e.path in weights)]
