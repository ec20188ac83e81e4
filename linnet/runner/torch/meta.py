"""Primitives on the meta device, where tensors have shapes and dtypes but no elements.

Most of torch's own meta kernels are written in Python, and the first call of one imports sympy or torch's compiler:
more than a second for a check that takes a tenth of one. So the ops that compute are here, each by its own rule, and
raise SpecError for operands that do not fit; those that only move data (reshape, permute, slice, ..) are torch's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from linnet.language.program.core import ARITHMETIC, COMPARISON, UNARY, CoreNode
from linnet.runner.errors import SpecError
from linnet.runner.torch.dtypes import CARRIED

Operation = Callable[..., Tensor]
Shape = tuple[int, ...]


def _empty(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    return torch.empty(tuple(shape), dtype=dtype, device="meta")


def _broadcast(node: CoreNode, shapes: Sequence[Shape]) -> Shape:
    """The shape that right-aligned shapes broadcast to: each axis equal, or 1."""
    result: list[int] = []
    for axis in range(-max(map(len, shapes)), 0):
        sizes = {shape[axis] for shape in shapes if len(shape) >= -axis} - {1}
        if len(sizes) > 1:
            raise SpecError(f"{node.op} cannot broadcast {', '.join(map(str, map(list, shapes)))}")
        result.append(sizes.pop() if sizes else 1)
    return tuple(result)


def _elementwise(node: CoreNode) -> Operation:
    dtype = CARRIED[node.outputs[0].spec.dtype]
    operands = 1 if node.op == "select" else 0

    def run(*inputs: Tensor) -> Tensor:
        dtypes = {x.dtype for x in inputs[operands:]}
        if len(dtypes) > 1:
            raise SpecError(f"{node.op} of {', '.join(map(str, dtypes))}")
        return _empty(_broadcast(node, [x.shape for x in inputs]), dtype)

    return run


def _iota(node: CoreNode) -> Operation:
    spec = node.outputs[0].spec
    return lambda: _empty(spec.shape, CARRIED[spec.dtype])


def _concat(node: CoreNode) -> Operation:
    axis = node.attributes["axis"]

    def run(*parts: Tensor) -> Tensor:
        around = {(*x.shape[:axis], *x.shape[axis + 1 :]) for x in parts}
        if len(around) > 1:
            raise SpecError(f"concat along {axis} of {', '.join(str(list(x.shape)) for x in parts)}")
        first = parts[0]
        joined = sum(x.shape[axis] for x in parts)
        return _empty((*first.shape[:axis], joined, *first.shape[axis + 1 :]), first.dtype)

    return run


def _cumsum(node: CoreNode) -> Operation:
    return lambda x: _empty(x.shape, x.dtype)


def _gather(node: CoreNode) -> Operation:
    axes = node.attributes["axes"]

    def run(x: Tensor, *indices: Tensor) -> Tensor:
        shapes = {tuple(index.shape) for index in indices}
        if len(shapes) > 1 or len(indices) != len(axes):
            raise SpecError(f"gather over axes {list(axes)} with indices of shapes {sorted(shapes)}")
        others = [size for axis, size in enumerate(x.shape) if axis not in axes]
        return _empty((*shapes.pop(), *others), x.dtype)

    return run


def _reduce(node: CoreNode) -> Operation:
    axes = node.attributes["axes"]
    return lambda x: _empty([size for axis, size in enumerate(x.shape) if axis not in axes], x.dtype)


def _contract(node: CoreNode) -> Operation:
    operands, output = node.attributes["spec"].split("->")
    left, right = operands.split(",")

    def run(a: Tensor, b: Tensor) -> Tensor:
        sizes: dict[str, int] = {}
        for labels, x in ((left, a), (right, b)):
            if len(labels) != x.dim():
                raise SpecError(f"contract {node.attributes['spec']} of {list(a.shape)} and {list(b.shape)}")
            for label, size in zip(labels, x.shape, strict=True):
                if sizes.setdefault(label, size) != size:
                    raise SpecError(f"contract {node.attributes['spec']}: {label} is {sizes[label]} and {size}")
        if a.dtype != b.dtype:
            raise SpecError(f"contract of {a.dtype} and {b.dtype}")
        return _empty([sizes[label] for label in output], a.dtype)

    return run


BUILDERS: Mapping[str, Callable[[CoreNode], Operation]] = {
    **dict.fromkeys(UNARY | ARITHMETIC | COMPARISON | {"select"}, _elementwise),
    "iota": _iota,
    "concat": _concat,
    "cumsum": _cumsum,
    "gather": _gather,
    "reduce": _reduce,
    "contract": _contract,
}
