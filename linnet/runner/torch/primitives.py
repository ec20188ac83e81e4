"""Each Core IR primitive in torch: `primitive(node, target)` prepares a function from input tensors to the result.

Where the language leaves a choice: shift counts are read as unsigned, and a count of the width or more shifts every
bit out (0, or the sign of a signed `shr`); integer division by zero raises; `rem` of floats is C's fmod. Sums and
products of f16 and bf16 are torch's own, which accumulate in f32 and round once (see `full_precision`). Nothing is
written in place, so gradients flow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from linnet.language.program.core import REDUCTIONS, CoreNode, Value
from linnet.language.program.types import FLOATS
from linnet.runner.errors import IndexRangeError, IntegerDivisionError
from linnet.runner.torch import meta
from linnet.runner.torch.dtypes import BITS, CARRIED, WIDTH, scalar

Operation = Callable[..., Tensor]

# So many integers Python compares as fast as a kernel starts, or nearly.
FEW = 256
I64_MAX = torch.iinfo(torch.int64).max


@dataclass(frozen=True)
class Target:
    """What preparation knows: the device, the scalars that are constants of the graph, and whether what indexes must
    still be checked as it runs."""

    device: torch.device
    constants: Mapping[Value, float] = field(default_factory=dict)
    checked: bool = True


def primitive(node: CoreNode, target: Target) -> Operation:
    """The function of a primitive node. Raises KeyError for an op that is none of these."""
    if target.device.type == "meta" and node.op in meta.BUILDERS:
        return meta.BUILDERS[node.op](node)
    return BUILDERS[node.op](node, target)


# Elementwise


def _constant(node: CoreNode, target: Target) -> Operation:
    value = scalar(node.attributes["value"], node.outputs[0].spec.dtype, target.device)
    return lambda: value


def _iota(node: CoreNode, target: Target) -> Operation:
    spec = node.outputs[0].spec
    return lambda: torch.arange(spec.shape[0], device=target.device).to(CARRIED[spec.dtype])


def _unary(name: str) -> Callable[[CoreNode, Target], Operation]:
    function: Operation = torch.bitwise_not if name == "not" else getattr(torch, name)

    def build(node: CoreNode, target: Target) -> Operation:
        if name == "abs" and node.inputs[0].spec.dtype in BITS:
            return lambda x: x
        return function

    return build


def ordered(x: Tensor) -> Tensor:
    """Bits of an unsigned value mapped so that signed order is their order (and back)."""
    order: Tensor = torch.bitwise_xor(x, torch.iinfo(x.dtype).min)
    return order


def _compared(function: Operation, ordered_result: bool) -> Callable[[CoreNode, Target], Operation]:
    def build(node: CoreNode, target: Target) -> Operation:
        if node.inputs[0].spec.dtype not in BITS:
            return function
        if ordered_result:
            return lambda a, b: ordered(function(ordered(a), ordered(b)))
        return lambda a, b: function(ordered(a), ordered(b))

    return build


def _same(function: Operation) -> Callable[[CoreNode, Target], Operation]:
    return lambda node, target: function


def _widen(x: Tensor, dtype: str) -> Tensor:
    """u16 or u32 bits as non-negative i64 values."""
    return torch.bitwise_and(x.to(torch.int64), 2 ** WIDTH[dtype] - 1)


def _divide_u64(a: Tensor, b: Tensor) -> Tensor:
    """Unsigned quotient of u64 bits (Hacker's Delight, 9-3: halve, divide, correct)."""
    small = torch.where(b > 0, b, 1)
    halved = torch.div((a >> 1) & I64_MAX, small, rounding_mode="trunc") << 1
    quotient = halved + (ordered(a - halved * small) >= ordered(small))
    return torch.where(b > 0, quotient, (ordered(a) >= ordered(b)).to(torch.int64))


def _integer_division(quotient: bool, dtype: str) -> Operation:
    def signed(a: Tensor, b: Tensor) -> Tensor:
        # The least value over -1 traps in hardware, so -1 never reaches the divider.
        minus = b == -1
        safe = torch.where(minus, 1, b)
        if quotient:
            return torch.where(minus, -a, torch.div(a, safe, rounding_mode="trunc"))
        return torch.fmod(a, safe)

    def unsigned(a: Tensor, b: Tensor) -> Tensor:
        if dtype == "u64":
            q = _divide_u64(a, b)
            return q if quotient else a - q * b
        wide_a, wide_b = _widen(a, dtype), _widen(b, dtype)
        result = torch.div(wide_a, wide_b, rounding_mode="trunc") if quotient else torch.fmod(wide_a, wide_b)
        return result.to(CARRIED[dtype])

    def byte(a: Tensor, b: Tensor) -> Tensor:
        return torch.div(a, b, rounding_mode="trunc") if quotient else torch.fmod(a, b)

    if dtype == "u8":
        return byte
    return unsigned if dtype in BITS else signed


def _division(quotient: bool) -> Callable[[CoreNode, Target], Operation]:
    def build(node: CoreNode, target: Target) -> Operation:
        dtype = node.inputs[0].spec.dtype
        if dtype in FLOATS:
            return torch.true_divide if quotient else torch.fmod
        divide = _integer_division(quotient, dtype)
        if target.constants.get(node.inputs[1]):
            return divide
        where = f" ({node.span.location()})" if node.span else ""

        def checked(a: Tensor, b: Tensor) -> Tensor:
            if not b.is_meta and bool((b == 0).any()):
                raise IntegerDivisionError(
                    f"integer {'division' if quotient else 'remainder'} by zero{where}: check the inputs"
                )
            return divide(a, b)

        return checked

    return build


def _shift(left: bool) -> Callable[[CoreNode, Target], Operation]:
    def build(node: CoreNode, target: Target) -> Operation:
        dtype = node.inputs[0].spec.dtype
        width = WIDTH[dtype]

        def shifted(x: Tensor, n: Tensor) -> Tensor:
            if left:
                return x << n
            if dtype == "u64":
                return torch.where(n == 0, x, ((x >> 1) & I64_MAX) >> (n - 1).clamp(min=0))
            if dtype in BITS:
                return (_widen(x, dtype) >> n.to(torch.int64)).to(x.dtype)
            return x >> n

        count = target.constants.get(node.inputs[1])
        if count is not None and 0 <= count < width:
            return shifted
        if left or dtype.startswith("u"):

            def emptied(x: Tensor, n: Tensor) -> Tensor:
                inside = (n >= 0) & (n < width)
                return torch.where(inside, shifted(x, torch.where(inside, n, 0)), 0)

            return emptied
        return lambda x, n: x >> torch.where((n >= 0) & (n < width), n, width - 1)

    return build


def _cast(node: CoreNode, target: Target) -> Operation:
    source, result = node.inputs[0].spec.dtype, node.outputs[0].spec.dtype
    carried = CARRIED[result]
    if source in BITS and result in FLOATS:
        if source == "u64":

            def from_u64(x: Tensor) -> Tensor:
                # Halve with the lost bit kept sticky, so that one rounding is right, then double.
                halved = (((x >> 1) & I64_MAX) | (x & 1)).to(carried)
                return torch.where(x < 0, halved * 2, x.to(carried))

            return from_u64
        return lambda x: _widen(x, source).to(carried)
    if source in ("u16", "u32"):
        return lambda x: _widen(x, source).to(carried)
    if source in FLOATS and result in BITS:
        if result == "u64":
            half = float(2**63)

            def to_u64(x: Tensor) -> Tensor:
                wide = x.to(torch.float64)
                return torch.where(wide >= half, ordered((wide - half).to(torch.int64)), wide.to(torch.int64))

            return to_u64
        return lambda x: x.to(torch.int64).to(carried)
    return lambda x: x.to(carried)


# Structure


def _reshape(node: CoreNode, target: Target) -> Operation:
    shape = node.outputs[0].spec.shape
    return lambda x: x.reshape(shape)


def _broadcast(node: CoreNode, target: Target) -> Operation:
    shape = node.outputs[0].spec.shape
    return lambda x: x.expand(shape)


def _permute(node: CoreNode, target: Target) -> Operation:
    axes = tuple(node.attributes["axes"])
    return lambda x: x.permute(axes)


def _slice(node: CoreNode, target: Target) -> Operation:
    a = node.attributes
    ranges = tuple(slice(*part) for part in zip(a["starts"], a["stops"], a["steps"], strict=True))
    return lambda x: x[ranges]


def _concat(node: CoreNode, target: Target) -> Operation:
    axis = node.attributes["axis"]
    return lambda *parts: torch.cat(parts, dim=axis)


def _cumsum(node: CoreNode, target: Target) -> Operation:
    axis, dtype = node.attributes["axis"], CARRIED[node.outputs[0].spec.dtype]
    return lambda x: torch.cumsum(x, axis, dtype=dtype)


def extremes(values: Tensor) -> tuple[int, int]:
    """The least and the greatest of some integers, of which there is one at least."""
    # Two numbers in one copy, where they are on another device.
    few = values.numel() <= FEW
    numbers = values.flatten().tolist() if few else torch.stack(torch.aminmax(values)).tolist()
    return min(numbers), max(numbers)


def check_positions(index: Tensor, size: int, label: str, op: str | None = None, span: int = 1) -> None:
    """Raise IndexRangeError unless each element of `index`, and the `span - 1` positions after it, is in 0 .. size - 1.

    Meta tensors hold nothing to check.
    """
    if index.is_meta or not index.numel() or not span:
        return
    least, greatest = extremes(index)
    if least < 0 or greatest + span > size:
        raise IndexRangeError(label, least if least < 0 else greatest + span - 1, size, op)


def _gather(node: CoreNode, target: Target) -> Operation:
    axes = tuple(node.attributes["axes"])
    label = str(node.attributes.get("label", ""))
    shape = node.inputs[0].spec.shape
    result = node.outputs[0].spec.shape
    unsigned = node.inputs[1].spec.dtype
    sizes = [shape[axis] for axis in axes]

    def position(index: Tensor, size: int) -> Tensor:
        index = _widen(index, unsigned) if unsigned in ("u16", "u32") else index
        if target.checked:
            check_positions(index, size, label)
        return index if index.dtype in (torch.int32, torch.int64) else index.to(torch.int64)

    if len(axes) == 1:
        axis, size = axes[0], sizes[0]

        def along(x: Tensor, index: Tensor) -> Tensor:
            rows = x.index_select(axis, position(index, size).reshape(-1))
            return (rows.movedim(axis, 0) if axis else rows).reshape(result)

        return along
    order = (*axes, *(axis for axis in range(len(shape)) if axis not in axes))

    def across(x: Tensor, *indices: Tensor) -> Tensor:
        places = tuple(position(index, size) for index, size in zip(indices, sizes, strict=True))
        return x.permute(order)[places]

    return across


# Reductions


def _lowest(dtype: str, negate: bool) -> float:
    """The value that `max` has over nothing (its opposite, for `min`), as carried."""
    if dtype in FLOATS:
        return float("inf") if negate else float("-inf")
    if dtype == "bool":
        return negate
    info = torch.iinfo(CARRIED[dtype])
    if dtype in BITS:
        return -1 if negate else 0
    return info.max if negate else info.min


def _reduce(node: CoreNode, target: Target) -> Operation:
    kind, axes = node.attributes["kind"], tuple(node.attributes["axes"])
    spec, result = node.inputs[0].spec, node.outputs[0].spec
    dtype = CARRIED[spec.dtype]
    if kind not in REDUCTIONS:
        raise KeyError(kind)
    if not axes:
        return lambda x: x
    if kind == "sum":
        return lambda x: torch.sum(x, dim=axes, dtype=dtype)
    if kind == "prod":

        def product(x: Tensor) -> Tensor:
            for axis in sorted(axes, reverse=True):
                x = torch.prod(x, dim=axis, dtype=dtype)
            return x

        return product
    if kind in ("any", "all"):
        test: Operation = torch.any if kind == "any" else torch.all
        return lambda x: test(x, dim=axes)
    if any(spec.shape[axis] == 0 for axis in axes):
        lowest = _lowest(spec.dtype, kind == "min")
        return lambda x: scalar(lowest, spec.dtype, target.device).expand(result.shape)
    best: Operation = torch.amax if kind == "max" else torch.amin
    if spec.dtype in BITS:
        return lambda x: ordered(best(ordered(x), dim=axes))
    return lambda x: best(x, dim=axes)


def _contract(node: CoreNode, target: Target) -> Operation:
    spec, dtype = node.attributes["spec"], node.outputs[0].spec.dtype
    if dtype in FLOATS:
        return lambda a, b: torch.einsum(spec, a, b)
    if target.device.type == "cpu":
        return lambda a, b: torch.einsum(spec, a.to(torch.int64), b.to(torch.int64)).to(CARRIED[dtype])
    return lambda a, b: _integer_contract(spec, a, b)


def _integer_contract(spec: str, a: Tensor, b: Tensor) -> Tensor:
    """A contraction by products and sums, for devices whose matrix product takes floats only."""
    operands, output = spec.split("->")
    left, right = operands.split(",")
    summed = [label for label in dict.fromkeys(left + right) if label not in output]
    labels = output + "".join(summed)

    def aligned(x: Tensor, own: str) -> Tensor:
        kept = "".join(label for label in labels if label in own)
        x = torch.einsum(f"{own}->{kept}", x)
        return x[tuple(slice(None) if label in own else None for label in labels)]

    product = aligned(a, left) * aligned(b, right)
    return product.sum(dim=tuple(range(len(output), len(labels))), dtype=a.dtype) if summed else product


BUILDERS: Mapping[str, Callable[[CoreNode, Target], Operation]] = {
    "constant": _constant,
    "iota": _iota,
    **{name: _unary(name) for name in "neg not abs exp log sqrt rsqrt sin cos tanh".split()},
    "cast": _cast,
    "add": _same(torch.add),
    "sub": _same(torch.sub),
    "mul": _same(torch.mul),
    "div": _division(quotient=True),
    "rem": _division(quotient=False),
    "min": _compared(torch.minimum, ordered_result=True),
    "max": _compared(torch.maximum, ordered_result=True),
    "and": _same(torch.bitwise_and),
    "or": _same(torch.bitwise_or),
    "xor": _same(torch.bitwise_xor),
    "shl": _shift(left=True),
    "shr": _shift(left=False),
    "eq": _same(torch.eq),
    "ne": _same(torch.ne),
    **{name: _compared(getattr(torch, name), ordered_result=False) for name in ("lt", "le", "gt", "ge")},
    "select": _same(torch.where),
    "reshape": _reshape,
    "broadcast": _broadcast,
    "permute": _permute,
    "slice": _slice,
    "concat": _concat,
    "cumsum": _cumsum,
    "gather": _gather,
    "reduce": _reduce,
    "contract": _contract,
}
