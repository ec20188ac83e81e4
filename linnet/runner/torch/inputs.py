"""What a user passes to an entry, turned into the tensors a graph takes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from linnet.language.check.dims import Dim, DimError
from linnet.language.program.checked import CheckedFunction, GenericDecl, Literal, Primitive, Typed
from linnet.language.program.core import TensorSpec
from linnet.language.program.types import (
    FLOATS,
    DTypeVar,
    OptionalType,
    StructType,
    TensorType,
    TupleType,
    Type,
    value_text,
)
from linnet.language.words import counted
from linnet.runner.errors import InputError
from linnet.runner.torch.dtypes import BITS, CARRIED, NAMES, integer_range, scalar, to_carried
from linnet.runner.torch.primitives import extremes

Generics = Mapping[str, int | str]

# Bits of an integer that is printed in full.
LONGEST = 256


def signature_text(function: CheckedFunction) -> str:
    """`prefill<S: Dim>(tokens: Tensor[Batch, S; i32], pos: i32) -> Tensor[Batch, Vocab; T]`."""
    generics = ", ".join(map(_generic_text, function.generics))
    parameters = ", ".join(
        f"{p.name}: {p.type}" + ("" if default is None else f" = {default.span.text}")
        for p, default in zip(function.parameters, function.defaults, strict=True)
    )
    return f"{function.name}{f'<{generics}>' if generics else ''}({parameters}) -> {function.result}"


def _generic_text(decl: GenericDecl) -> str:
    name = f"*{decl.name}" if decl.kind == "Shape" else decl.name
    return f"{name}: {decl.kind}" + (f" = {value_text(decl.default)}" if decl.default is not None else "")


def check_generics(function: CheckedFunction, generics: object) -> dict[str, int | str]:
    """The generics that a call gives, None for none. Raises InputError unless they are numbers and words by name."""
    given = {} if generics is None else generics
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        problem = f"generics are a mapping from names to values, and not {given!r}"
        raise InputError(problem, signature_text(function))
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, int | str):
            problem = f"the generic {name} takes an integer or the name of a dtype, not {value!r}"
            raise InputError(problem, signature_text(function))
    return dict(given)


@dataclass(frozen=True)
class EntryInputs:
    """An entry's inputs: carried tensors in the graph's order, their specs by name, and the optional ones passed."""

    tensors: list[Tensor]
    specs: dict[str, TensorSpec]
    given: frozenset[str]


def convert_inputs(function: CheckedFunction, values: Any, known: Generics, device: torch.device) -> EntryInputs:
    """Turn `values`, a list or a mapping by name, into what the entry's graph takes.

    Trailing parameters with a literal default may be left out, optional ones be None; a tuple is given as a tuple, a
    struct as a mapping. `known` holds the generics already bound. Raises InputError.
    """
    inputs = EntryInputs([], {}, frozenset())
    given: set[str] = set()
    try:
        for name, type, value in _arranged(function, values):
            if isinstance(type, OptionalType):
                if value is None:
                    continue
                given.add(name)
            for leaf, declared, part in _leaves(name, type, value):
                dtype = known.get(declared.dtype.name) if isinstance(declared.dtype, DTypeVar) else declared.dtype
                if dtype is not None and dtype not in CARRIED:
                    raise _RefusedError(f"the generic {declared.dtype} is {dtype}, which is not a dtype")
                _check_place(leaf, part, device)
                tensor, found = _tensor(leaf, part, None if dtype is None else str(dtype))
                _check_shape(leaf, tensor, declared, known)
                inputs.tensors.append(tensor.to(device))
                inputs.specs[leaf] = TensorSpec(tuple(tensor.shape), found)
    except _RefusedError as refused:
        raise InputError(str(refused), signature_text(function)) from None
    return EntryInputs(inputs.tensors, inputs.specs, frozenset(given))


class _RefusedError(Exception):
    """One input that does not fit; becomes an InputError."""


def _arranged(function: CheckedFunction, values: Any) -> Iterator[tuple[str, Type, Any]]:
    """Each parameter's name, declared type and given value, in order."""
    names = [p.name for p in function.parameters]
    if isinstance(values, Mapping):
        unknown = [str(name) for name in values if name not in names]
        if unknown:
            raise _RefusedError(f"no input is called {unknown[0]!r}")
        given = dict(values)
    elif not isinstance(values, list | tuple):
        raise _RefusedError(f"the inputs are a list, or a mapping by name, and not a {type(values).__name__}")
    else:
        if len(values) > len(names):
            raise _RefusedError(f"{counted(len(values), 'input')} given where the entry takes {len(names) or 'none'}")
        given = dict(zip(names, values, strict=False))
    for parameter, default in zip(function.parameters, function.defaults, strict=True):
        if parameter.name not in given:
            value = _default(default)
            if value is None and not isinstance(parameter.type, OptionalType):
                raise _RefusedError(f"the input {parameter.name!r} is missing")
            given[parameter.name] = value
        yield parameter.name, parameter.type, given[parameter.name]


def _default(default: Typed | None) -> float | str | None:
    """The value of a literal default, negative ones included; None for any other."""
    if isinstance(default, Primitive) and default.op == "neg" and isinstance(default.args[0], Literal):
        return -default.args[0].value  # type: ignore[operator]
    return default.value if isinstance(default, Literal) else None


def _leaves(name: str, type: Type, value: Any) -> Iterator[tuple[str, TensorType, Any]]:
    """The tensors of one input, named as the graph's inputs are: `p`, or `p.0` and `p.field` inside it."""
    if isinstance(type, OptionalType):
        yield from _leaves(name, type.inner, value)
    elif isinstance(type, TensorType):
        yield name, type, value
    elif isinstance(type, TupleType):
        if not isinstance(value, tuple | list) or len(value) != len(type.items):
            raise _RefusedError(f"{name} must be a tuple of {len(type.items)}: {type}")
        for i, (item, part) in enumerate(zip(type.items, value, strict=True)):
            yield from _leaves(f"{name}.{i}", item, part)
    elif isinstance(type, StructType):
        fields = dict(type.fields)
        if not isinstance(value, Mapping) or set(value) != set(fields):
            raise _RefusedError(f"{name} must be a mapping with {', '.join(fields)}: {type}")
        for field, item in fields.items():
            yield from _leaves(f"{name}.{field}", item, value[field])
    else:
        raise _RefusedError(f"{name} is {type}, which no input can be")


def _check_place(name: str, value: Any, device: torch.device) -> None:
    if not isinstance(value, Tensor):
        return
    if value.layout != torch.strided:
        raise _RefusedError(f"{name} is not dense: give it as {name}.to_dense()")
    if value.is_meta and device.type != "meta":
        raise _RefusedError(f"{name} is on the meta device, so it has no values: give a tensor that has them")


def _tensor(name: str, value: Any, dtype: str | None) -> tuple[Tensor, str]:
    """`value` as a carried tensor of `dtype` (None: its own), and its dtype."""
    if isinstance(value, bool | int | float) and dtype is not None:
        return _number(name, value, dtype), dtype
    if not isinstance(value, Tensor):
        value = _array(name, value, dtype)
    have = NAMES.get(value.dtype)
    if have is None:
        raise _RefusedError(f"{name} is {value.dtype}, which Linnet has no dtype for")
    carried = to_carried(value, have)
    dtype = dtype or have
    if have == dtype:
        return carried, dtype
    integers = dtype != "bool" and dtype not in FLOATS and have != "bool" and have not in FLOATS
    if not integers:
        kind = "an integer tensor" if dtype not in FLOATS and dtype != "bool" else dtype
        raise _RefusedError(f"{name} must be {kind}, but is {TensorSpec(tuple(value.shape), have)}: convert it first")
    return _narrowed(name, carried, have, dtype), dtype


def _number(name: str, value: float, dtype: str) -> Tensor:
    cpu = torch.device("cpu")
    if (dtype == "bool") != isinstance(value, bool) or (isinstance(value, float) and dtype not in FLOATS):
        raise _RefusedError(f"{name} must be {dtype}, but is the {type(value).__name__} {value!r}")
    if dtype == "bool":
        return scalar(value, dtype, cpu)
    if dtype in FLOATS:
        with suppress(OverflowError):
            wide = float(value)
            made = scalar(wide, dtype, cpu)
            if bool(made.isfinite()) or not math.isfinite(wide):
                return made
    else:
        least, greatest = integer_range(dtype)
        if least <= value <= greatest:
            return scalar(value, dtype, cpu)
    # Python itself refuses to print an integer of many thousands of digits.
    many = isinstance(value, int) and value.bit_length() > LONGEST
    shown = f"an integer of {int(value).bit_length()} bits" if many else value
    raise _RefusedError(f"{name} is {shown}, which {dtype} cannot hold")


def _array(name: str, value: Any, dtype: str | None) -> Tensor:
    """A list, tuple or numpy array as a tensor; a list of floats takes the float dtype that is wanted."""
    listed = isinstance(value, list | tuple)
    try:
        # Whatever device torch makes tensors on by default.
        tensor = torch.tensor(value, device="cpu")
        if listed and dtype in FLOATS and tensor.dtype != torch.bool:
            return _floats(name, value, str(dtype))
        if listed and not tensor.numel() and dtype is not None:
            return torch.empty(tensor.shape, dtype=BITS.get(dtype, CARRIED[dtype]), device="cpu")
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise _RefusedError(f"{name} is not a tensor, a number or an array of numbers: {error}") from None
    return tensor


def _floats(name: str, values: Any, dtype: str) -> Tensor:
    """A list of numbers; refused when one would become infinite."""
    wide = torch.tensor(values, dtype=torch.float64, device="cpu")
    made = torch.tensor(values, dtype=CARRIED[dtype], device="cpu")
    lost = wide.isfinite() & ~made.isfinite()
    if bool(lost.any()):
        first = lost.nonzero()[0].tolist()
        place = f"{name}[{', '.join(map(str, first))}]"
        raise _RefusedError(f"{place} is {wide[tuple(first)].item()}, which {dtype} cannot hold")
    return made


def _narrowed(name: str, carried: Tensor, have: str, dtype: str) -> Tensor:
    """Integers of another dtype; refused when a value does not fit."""
    least, greatest = integer_range(dtype)
    if carried.is_meta or not carried.numel():
        return carried.to(CARRIED[dtype])
    if have not in ("u16", "u32", "u64") and dtype != "u64":
        smallest, largest = extremes(carried)
        if least <= smallest and largest <= greatest:
            return carried.to(CARRIED[dtype])
    if have == "u64":
        wide = carried
        outside = wide < 0 if dtype != "u64" else torch.zeros_like(wide, dtype=torch.bool)
    else:
        wide = carried.to(torch.int64) & (2**32 - 1 if have == "u32" else 2**16 - 1 if have == "u16" else -1)
        outside = torch.zeros_like(wide, dtype=torch.bool)
    if dtype != "u64":
        outside = outside | (wide > greatest)
    outside = outside | (wide < least)
    if bool(outside.any()):
        first = outside.nonzero()[0].tolist()
        found = int(wide[tuple(first)])
        found += 2**64 if have == "u64" and found < 0 else 0
        place = f"{name}[{', '.join(map(str, first))}]" if first else name
        raise _RefusedError(f"{place} is {found}, which {dtype} cannot hold")
    return wide.to(CARRIED[dtype])


def _check_shape(name: str, tensor: Tensor, type: TensorType, known: Generics) -> None:
    """Compare the axes that are already known; the others are inferred from."""
    declared = [element for element in type.shape if isinstance(element, Dim)]
    if len(declared) != len(type.shape):
        return
    sizes = {key: value for key, value in known.items() if isinstance(value, int)}
    try:
        wanted = [d.evaluate(sizes) if d.symbols() <= sizes.keys() else None for d in declared]
    except DimError as error:
        raise _RefusedError(f"{name} has no shape with these generics: {error}") from None
    shape = list(tensor.shape)
    if len(shape) != len(wanted) or any(w is not None and w != n for w, n in zip(wanted, shape, strict=True)):
        text = ", ".join(str(d if w is None else w) for d, w in zip(declared, wanted, strict=True))
        raise _RefusedError(f"{name} must have shape [{text}], but has [{', '.join(map(str, shape))}]")
