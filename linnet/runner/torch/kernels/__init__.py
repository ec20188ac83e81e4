"""Native kernels for op identities, used under `numerics="equivalent"` and, with a few others, under "engine".

A kernel is a function whose parameters are the op's own, by name, taking tensors (absent optionals are left out). One
that also has a keyword-only `call` is given a `Call`: the op's generics, its result's spec, the device. Each keeps
the accumulation that the op's body states and never rounds an input further; each has a test against the body.

What a kernel indexes by is checked beside it and not inside: it states the bounds of its inputs, so that a compiled
entry can check them once, before anything runs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Any, TypeVar

import torch
from torch import Tensor

from linnet.language.program.core import CoreNode, Graph, TensorSpec
from linnet.language.program.inline import inline_calls
from linnet.runner.bounds import Bound, Shapes
from linnet.runner.torch.primitives import Target, check_positions
from linnet.runner.wide import widen


@dataclass(frozen=True)
class Call:
    """What is known of one op call when it is prepared. `generics`: name -> int, dtype or shape."""

    generics: Mapping[str, Any]
    results: tuple[TensorSpec, ...]
    device: torch.device


class Kernel:
    """A native implementation of the op `identity`. `bounds` tells from its inputs' shapes what must be in range;
    `raises` says that it looks at more, as it runs, and may refuse it."""

    def __init__(
        self,
        identity: str,
        function: Callable[..., Any],
        bounds: Callable[[Shapes], list[Bound]] | None = None,
        raises: bool = False,
    ) -> None:
        self.identity = identity
        self.raises = raises
        self._function = function
        self._bounds = bounds
        parameters = inspect.signature(function).parameters.values()
        self._takes_call = any(p.name == "call" for p in parameters)
        positional = [p for p in parameters if p.name != "call"]
        self._names = [p.name for p in positional]
        self._required = {p.name for p in positional if p.default is p.empty}

    def fits(self, node: CoreNode) -> bool:
        """Whether the op's parameters are this kernel's."""
        return self._required <= set(node.attributes["parameters"]) <= set(self._names)

    def bounds(self, node: CoreNode) -> list[Bound]:
        """What must be in range before the node runs."""
        if self._bounds is None:
            return []
        return self._bounds(dict(zip(node.attributes["parameters"], (v.spec.shape for v in node.inputs), strict=True)))

    def prepare(self, node: CoreNode, target: Target) -> Callable[..., Any] | None:
        """A function of the node's inputs in their order, which checks its bounds first unless the target says that
        they are known; None when the op's parameters are not this kernel's."""
        if not self.fits(node):
            return None
        function = self._bind(node, target)
        bounds = self.bounds(node) if target.checked else []
        if not bounds:
            return function
        given = list(node.attributes["parameters"])
        checks = [(given.index(bound.index), bound) for bound in bounds]

        def checked(*inputs: Tensor) -> Any:
            for i, bound in checks:
                check_positions(inputs[i], bound.size, bound.label, self.identity, bound.span)
            return function(*inputs)

        return checked

    def _bind(self, node: CoreNode, target: Target) -> Callable[..., Any]:
        given = list(node.attributes["parameters"])
        function = self._function
        if self._takes_call:
            call = Call(node.attributes["generics"], tuple(v.spec for v in node.outputs), target.device)
            function = partial(function, call=call)
        if given == self._names[: len(given)]:
            return function
        return lambda *inputs: function(**dict(zip(given, inputs, strict=True)))


# Imported when kernels are first asked for; each registers its own.
MODULES = ("attention", "cache", "dense", "loss", "quant")
REGISTRY: dict[str, Kernel] = {}
Function = TypeVar("Function", bound=Callable[..., Any])


def kernel(
    identity: str, bounds: Callable[[Shapes], list[Bound]] | None = None, *, raises: bool = False
) -> Callable[[Function], Function]:
    """Register the decorated function as the kernel of an op, with what it needs to be in range."""

    def register(function: Function) -> Function:
        REGISTRY[identity] = Kernel(identity, function, bounds, raises)
        return function

    return register


def equivalent_kernels() -> Mapping[str, Kernel]:
    """Every kernel of the `equivalent` policy, by identity."""
    for module in MODULES:
        import_module(f"{__name__}.{module}")
    return REGISTRY


@dataclass(frozen=True)
class Policy:
    """What a numerics policy asks of a device: the kernels by identity (none: every op by its body), whether passes may
    round less often, whether torch.compile must round wherever the program does, and whether sums and functions are
    taken in f64."""

    kernels: Mapping[str, Kernel] = field(default_factory=dict)
    fast: bool = False
    rounds: bool = False
    wide: bool = False

    def rewritten(self, graph: Graph) -> Graph:
        """The graph as the interpreter runs it; `graph` is left as it is."""
        if not self.wide:
            return graph
        made = inline_calls(graph, self.keeps)
        widen(made)
        return made

    def keeps(self, node: CoreNode) -> bool:
        """Whether a kernel takes the call."""
        kernel = self.kernels.get(node.attributes["op"])
        return kernel is not None and kernel.fits(node)


def policy_of(numerics: str, device: torch.device) -> Policy:
    """On the meta device nothing is computed, and bodies prove more shapes than kernels would."""
    if numerics == "exact" or device.type == "meta":
        return Policy()
    if numerics != "engine":
        return Policy(equivalent_kernels(), fast=numerics == "fast")
    from linnet.runner.torch.kernels.engine import engine_kernels

    on_cpu = device.type == "cpu"
    return Policy(engine_kernels(equivalent_kernels(), on_cpu=on_cpu), rounds=True, wide=on_cpu)
