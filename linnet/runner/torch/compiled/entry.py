"""A compiled entry: checks what indexes, gathers its arguments, runs its code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.forward_ad import unpack_dual
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from linnet.language.program.core import Graph
from linnet.language.program.inline import inline_calls
from linnet.language.program.passes import simplify
from linnet.runner.errors import SizeError
from linnet.runner.garbage import collect_own
from linnet.runner.torch.compiled.attention import DENSE, read_prefixes
from linnet.runner.torch.compiled.caches import write_in_place
from linnet.runner.torch.compiled.elementwise import fuse_elementwise
from linnet.runner.torch.compiled.embeddings import read_blocks
from linnet.runner.torch.compiled.emit import Emitter, check, guard_graph
from linnet.runner.torch.compiled.heads import join_heads
from linnet.runner.torch.compiled.linears import fuse_gates, join_linears
from linnet.runner.torch.compiled.store import WeightStore
from linnet.runner.torch.dtypes import CARRIED, is_too_large, to_carried
from linnet.runner.torch.interpreter import Frame
from linnet.runner.torch.kernels import Policy
from linnet.runner.torch.pages import zeros
from linnet.runner.torch.sharing import in_memory, places
from linnet.runner.wide import widen

# Calls whose bodies say more to a compiler than their kernels do: products to join, and what passes its input on.
OPENED = frozenset(
    (
        "std.nn.mlp::swiglu",
        "std.nn.parallel::all_reduce",
        "std.nn.parallel::all_gather",
        "std.nn.parallel::shared",
    )
)
# What `fast` replaces by a form with fewer roundings or fused steps.
FUSED_OPS = frozenset((*DENSE, "std.nn.norm::rms_norm", "std.nn.rope::rope"))


class CompiledEntry:
    """One entry's graph, compiled for a device and a policy. Runs as `PreparedGraph` does: `run(frame, inputs)`.

    With `on_host` scalars that positions come from are read
    as Python numbers, so that only the filled part of a cache is touched; without, the code is the same at each run.
    States are written in place where nothing that they depend on can be refused any more once the run has begun. A run
    that is stopped half-way all the same (memory, Ctrl-C) leaves the positions that it was to write undefined.
    """

    def __init__(
        self,
        graph: Graph,
        policy: Policy,
        store: WeightStore,
        *,
        on_host: bool,
    ) -> None:
        self.store = store
        # Whether code may run in inference mode as far as its weights tell.
        self._inference = False
        self._on_host = on_host
        self._large(graph)
        graph = inline_calls(graph, lambda node: node.attributes["op"] not in OPENED and policy.keeps(node))
        if policy.wide:
            widen(graph)
        elif policy.kernels:
            if policy.fast:
                fuse_elementwise(graph)
            join_linears(graph, store)
            read_blocks(graph, store)
            simplify(graph)
            if policy.fast:
                join_heads(graph)
                fuse_gates(graph, store)
                if store.rounds_inputs:
                    from linnet.runner.torch.compiled.quantised_inputs import round_inputs

                    round_inputs(graph)
        if policy.kernels:
            read_prefixes(graph, policy, on_host)
        simplify(graph)
        collect_own()
        emitter = Emitter(store.device, dict(policy.kernels), on_host)
        # A run that refuses a value half-way must have changed no state.
        if not emitter.may_fail(graph, emitter.collect_guards(graph)):
            # Last: what a write leaves in memory is no value that a pass could see.
            write_in_place(graph, on_host)
        self._large(graph)
        self._guards = emitter.collect_guards(graph)
        self._check = emitter.emit(guard_graph(graph, self._guards)) if self._guards else None
        self.straight = emitter.emit(graph, {guard.index for guard in self._guards})
        if self._check is not None:
            self._check.release()
        self.forward: Callable[..., tuple[Tensor, ...]] = self.straight.forward
        self._outputs = len(graph.outputs)
        self._written = [node.attributes["path"] for node in graph.nodes if node.op == "state.write"]
        self._states = {
            node.attributes["path"]: node.outputs[0].spec for node in graph.nodes if node.op == "state.read"
        }
        self._dtypes = {
            node.attributes["path"]: node.outputs[0].spec.dtype for node in graph.nodes if node.op == "param"
        }
        self._static: list[Any] | None = None
        self._static_of: Mapping[str, Tensor] | None = None
        # Where the values lie that the entry keeps for its next runs.
        self.kept: set[int] = set()

    @property
    def code(self) -> str:
        """The Python that runs."""
        return self.straight.code

    def run(self, frame: Frame, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The entry's outputs; new values of states go to `frame.written`. Raises IndexRangeError before anything runs,
        IntegerDivisionError, and what torch raises (memory, say)."""
        self.check(inputs)
        arguments = self._arguments(frame, inputs)
        if self._inference and _unobserved(inputs):
            # A step is a thousand small calls, of which autograd's bookkeeping takes a twentieth.
            with torch.inference_mode():
                made = self.forward(*arguments)
            results = tuple(map(as_any_other, made))
        else:
            results = self.forward(*arguments)
        frame.written.update(zip(self._written, results[self._outputs :], strict=True))
        self.store.settle()
        return results[: self._outputs]

    def check(self, inputs: Sequence[Tensor]) -> None:
        """Raise IndexRangeError where a token or position that the inputs give is out of range."""
        if self._check is not None:
            check(self._guards, self._check.forward(*inputs, *self._check.constants))

    def bind(self, weights: Mapping[str, Tensor]) -> bool:
        """Gather what does not change from run to run: weights, in the form that the device multiplies by. Whether this
        made anything new."""
        if self._static is not None and self._static_of is weights:
            return False
        self.store.prepare(key[0] for kind, key in self.straight.sources if kind == "packed")
        self._static = [self._fixed(source) for source in self.straight.sources]
        self._static_of = weights
        self.store.give_back()
        kept = [tensor for tensor in self._static if tensor is not None]
        self._inference = self._on_host and in_memory(kept)
        self.kept = places(kept)
        return True

    def _arguments(self, frame: Frame, inputs: Sequence[Tensor]) -> list[Any]:
        self.bind(frame.weights)
        return [
            inputs[key] if kind == "input" else self._state(key, frame) if kind == "state" else known
            for (kind, key), known in zip(self.straight.sources, self._static or (), strict=True)
        ]

    def _fixed(self, source: tuple[str, Any]) -> Any:
        kind, key = source
        match kind:
            case "param":
                return to_carried(self.store.alone(key), self._dtypes[key])
            case "packed":
                weight, part = key
                return self.store.tensors(weight)[part]
            case "constant":
                return self.straight.constants[key]
        return None

    def _state(self, path: str, frame: Frame) -> Tensor:
        value = frame.states.get(path)
        if value is None:
            value = frame.allocated.get(path)
        if value is None:
            spec = self._states[path]
            value = zeros(spec.shape, CARRIED[spec.dtype], self.store.device)
            frame.allocated[path] = value
        return value

    def _large(self, graph: Graph) -> None:
        for node in graph.nodes:
            for value in node.outputs:
                if is_too_large(value.spec):
                    raise SizeError(f"a tensor {value.spec}")


def _unobserved(inputs: Sequence[Tensor]) -> bool:
    """Whether nobody follows what is computed of these: no transform of `torch.func`, forward gradient, tracing, or
    dispatch mode."""
    traced: bool = torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
    if traced or is_in_torch_dispatch_mode() or not in_memory(inputs):
        return False
    return all(not x.is_floating_point() or unpack_dual(x).tangent is None for x in inputs)  # type: ignore[no-untyped-call]


def as_any_other(tensor: Tensor) -> Tensor:
    """A tensor that inference mode made as one that training may use, in the same memory."""
    if not tensor.is_inference() or torch.is_inference_mode_enabled():
        return tensor
    place = tensor.untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride()
    return torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(*place)
