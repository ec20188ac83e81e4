"""Native kernels for op identities in MLX, by numerics policy.

A kernel is a function whose parameters are the op's own, by name, taking arrays (absent optionals are left out). One
that also has a keyword-only `call` is given a `Call`. Parameters that it names as `numbers` are handed over as Python
floats: where they depend on what a run is given, the op's body runs instead. Each has a test against the body.

    equivalent  keeps the accumulation that the body states and never rounds an input further
    engine      those, with the rounding points of a serving engine: rotary arithmetic in f32, rounded once
    wide        `engine` on a CPU: kernels that sum in f64, or nothing; other ops run by their bodies
    fast        attention and FP8 products in the input's dtype, as MLX's own kernels take them
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeVar

import mlx.core as mx

from linnet.language.program.core import CoreNode, TensorSpec
from linnet.runner.bounds import Bound, Shapes
from linnet.runner.mlx.checks import PositionCheck, positions
from linnet.runner.mlx.primitives import Run, Target


@dataclass(frozen=True)
class Call:
    """What is known of one op call when it is prepared. `generics`: name -> int, dtype or shape."""

    generics: Mapping[str, Any]
    results: tuple[TensorSpec, ...]


class Kernel:
    """A native implementation of the op `identity`, whose result is one tensor."""

    def __init__(
        self,
        identity: str,
        function: Callable[..., mx.array],
        bounds: Callable[[Shapes], list[Bound]] | None = None,
        numbers: Sequence[str] = (),
    ) -> None:
        self.identity = identity
        self._function = function
        self._bounds = bounds
        self._numbers = numbers
        parameters = inspect.signature(function).parameters.values()
        self._takes_call = any(p.name == "call" for p in parameters)
        positional = [p for p in parameters if p.name != "call"]
        self._names = {p.name for p in positional}
        self._required = {p.name for p in positional if p.default is p.empty}

    def fits(self, node: CoreNode) -> bool:
        """Whether the op's parameters are this kernel's, and none is f64, which MLX's kernels take in f32."""
        given = set(node.attributes["parameters"])
        dtypes = {value.spec.dtype for value in node.inputs}
        return self._required <= given <= self._names and "f64" not in dtypes

    def prepare(self, node: CoreNode, target: Target) -> Callable[..., mx.array] | None:
        """A function of the run and the node's inputs; None where the op is not this kernel's, or a number of it is not
        known before a run."""
        given: list[str] = list(node.attributes["parameters"])
        numbers = [i for i, name in enumerate(given) if name in self._numbers]
        if not self.fits(node) or any(node.inputs[i] not in target.fixed for i in numbers):
            return None
        shapes = dict(zip(given, (value.spec.shape for value in node.inputs), strict=True))
        bounds = self._bounds(shapes) if self._bounds is not None else []
        checks = [
            (given.index(b.index), PositionCheck(b.label, b.size, self.identity, b.span))
            for b in bounds
            if b.span and node.inputs[given.index(b.index)].spec.size
        ]
        extra = {}
        if self._takes_call:
            extra["call"] = Call(node.attributes["generics"], tuple(value.spec for value in node.outputs))

        def run(frame: Run, *inputs: Any) -> mx.array:
            values = list(inputs)
            for i, check in checks:
                known = frame.range_of(values[i])
                if known is not None:
                    check.settle(known)
                    continue
                frame.check(check, positions(values[i]))
                top = max(check.size - check.span, 0)
                values[i] = mx.clip(values[i], mx.array(0, values[i].dtype), mx.array(top, values[i].dtype))
            for i in numbers:
                values[i] = float(values[i].item())
            return self._function(**dict(zip(given, values, strict=True)), **extra)

        return run


# Imported when kernels are first asked for; each registers its own.
MODULES = ("attention", "cache", "dense", "quant", "wide")
POLICIES = ("equivalent", "engine", "fast")
# Of kernels that round nothing.
EVERY = (*POLICIES, "wide")
_registry: dict[str, dict[str, Kernel]] = {policy: {} for policy in EVERY}
Function = TypeVar("Function", bound=Callable[..., mx.array])


def kernel(
    identity: str,
    *,
    policies: Sequence[str] = POLICIES,
    bounds: Callable[[Shapes], list[Bound]] | None = None,
    numbers: Sequence[str] = (),
) -> Callable[[Function], Function]:
    """Register the decorated function as the kernel of an op under some policies."""

    def register(function: Function) -> Function:
        made = Kernel(identity, function, bounds, numbers)
        for policy in policies:
            _registry[policy][identity] = made
        return function

    return register


def kernels(policy: str) -> Mapping[str, Kernel]:
    """Every kernel of a policy, by identity; none of `exact`."""
    for module in MODULES:
        import_module(f"{__name__}.{module}")
    return _registry.get(policy, {})


def policy_of(numerics: str, device: str) -> str:
    """The policy of the kernels on a device, "cpu" or "gpu"."""
    return "wide" if numerics == "engine" and device == "cpu" else numerics
