"""Native kernels for op identities, used under `numerics="equivalent"`.

A kernel is a function whose parameters are the op's own, by name, taking tensors (absent optionals are left out). One
that also has a keyword-only `call` is given a `Call`: the op's generics, its result's spec, the device. Each keeps
the accumulation that the op's body states and never rounds an input further; each has a test against the body.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, TypeVar

import torch

from linnet.language.program.core import CoreNode, TensorSpec
from linnet.runner.torch.primitives import Target


@dataclass(frozen=True)
class Call:
    """What is known of one op call when it is prepared. `generics`: name -> int, dtype or shape."""

    generics: Mapping[str, Any]
    results: tuple[TensorSpec, ...]
    device: torch.device


class Kernel:
    """A native implementation of the op `identity`."""

    def __init__(self, identity: str, function: Callable[..., Any]) -> None:
        self.identity = identity
        self._function = function
        parameters = inspect.signature(function).parameters.values()
        self._takes_call = any(p.name == "call" for p in parameters)
        positional = [p for p in parameters if p.name != "call"]
        self._names = [p.name for p in positional]
        self._required = {p.name for p in positional if p.default is p.empty}

    def prepare(self, node: CoreNode, target: Target) -> Callable[..., Any] | None:
        """A function of the node's inputs in their order; None when the op's parameters are not this kernel's."""
        given = list(node.attributes["parameters"])
        if not self._required <= set(given) <= set(self._names):
            return None
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


def kernel(identity: str) -> Callable[[Function], Function]:
    """Register the decorated function as the kernel of an op."""

    def register(function: Function) -> Function:
        REGISTRY[identity] = Kernel(identity, function)
        return function

    return register


def equivalent_kernels() -> Mapping[str, Kernel]:
    """Every kernel of the `equivalent` policy, by identity."""
    for module in MODULES:
        import_module(f"{__name__}.{module}")
    return REGISTRY
