"""An entry's own generics from the shapes and dtypes of its inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from linnet.language.check.dims import DimError
from linnet.language.check.substitute import bare_name
from linnet.language.program.checked import CheckedFunction
from linnet.language.program.core import TensorSpec
from linnet.language.program.environment import Concrete, Environment
from linnet.language.program.types import (
    KINDS,
    DTypeVar,
    OptionalType,
    Pack,
    ShapeElement,
    StructType,
    TensorType,
    TupleType,
    Type,
)


def infer_generics(
    entry: CheckedFunction, known: Mapping[str, Concrete], inputs: Mapping[str, TensorSpec]
) -> tuple[dict[str, Concrete], list[str]]:
    """What the inputs determine of the entry's own generics, and one sentence for each input that does not fit.

    `known` holds the block's generics and those of the entry's that are given. Axes that are one name are solved
    first; every axis that can be evaluated then is compared. Generics that no input determines are left out.
    """
    declared = dict(leaf for var in entry.parameters for leaf in tensor_leaves(var.name, var.type))
    problems = [
        f"`{entry.name}` has no input `{name}`; it takes {_listed(declared)}" for name in inputs if name not in declared
    ]
    solver = _Solver({g.name: g.kind for g in entry.generics}, dict(known))
    given = [(name, type, inputs[name]) for name, (type, _) in declared.items() if name in inputs]
    missing = [name for name, (_, optional) in declared.items() if name not in inputs and not optional]
    problems += [f"input `{name}` of `{entry.name}` is missing: {declared[name][0]}" for name in missing]
    for _, type, spec in given:
        solver.solve(type, spec)
    problems += [problem for name, type, spec in given if (problem := solver.mismatch(name, type, spec))]
    return {name: solver.values[name] for name in solver.own if name in solver.values}, problems


def tensor_leaves(name: str, type: Type, optional: bool = False) -> Iterator[tuple[str, tuple[TensorType, bool]]]:
    """The tensors of a parameter by the names its graph inputs have, and whether each may be left out."""
    if isinstance(type, OptionalType):
        yield from tensor_leaves(name, type.inner, True)
    elif isinstance(type, TensorType):
        yield name, (type, optional)
    elif isinstance(type, TupleType):
        for i, item in enumerate(type.items):
            yield from tensor_leaves(f"{name}.{i}", item, optional)
    elif isinstance(type, StructType):
        for field, item in type.fields:
            yield from tensor_leaves(f"{name}.{field}", item, optional)


class _Solver:
    def __init__(self, own: Mapping[str, str], values: dict[str, Concrete]) -> None:
        self.own = own
        self.values = values

    def solve(self, type: TensorType, spec: TensorSpec) -> None:
        """Give values to the bare names of a type."""
        if isinstance(type.dtype, DTypeVar):
            self._give(type.dtype.name, spec.dtype)
        for element, sizes in self._pair(type.shape, spec.shape):
            if isinstance(element, Pack):
                self._give(element.name, sizes)
            elif (name := bare_name(element)) is not None:
                self._give(name, sizes[0])

    def _give(self, name: str, value: Concrete) -> None:
        if name in self.own:
            self.values.setdefault(name, value)

    def _pair(
        self, shape: Sequence[ShapeElement], sizes: tuple[int, ...]
    ) -> list[tuple[ShapeElement, tuple[int, ...]]]:
        """Each element of a symbolic shape with its sizes; nothing where the ranks do not fit."""
        free = len(sizes)
        unknown = 0
        for element in shape:
            if not isinstance(element, Pack):
                free -= 1
            elif isinstance(value := self.values.get(element.name), tuple):
                free -= len(value)
            else:
                unknown += 1
        if free < 0 or unknown > 1 or (free and not unknown):
            return []
        pairs: list[tuple[ShapeElement, tuple[int, ...]]] = []
        at = 0
        for element in shape:
            width = 1
            if isinstance(element, Pack):
                value = self.values.get(element.name)
                width = len(value) if isinstance(value, tuple) else free
            pairs.append((element, sizes[at : at + width]))
            at += width
        return pairs

    def mismatch(self, name: str, type: TensorType, spec: TensorSpec) -> str | None:
        """What is wrong with an input, None where nothing is known to be."""
        env = Environment(self.values)
        if isinstance(type.dtype, DTypeVar):
            fits = self.values.get(type.dtype.name, spec.dtype) == spec.dtype and spec.dtype in KINDS[type.dtype.kind]
        else:
            fits = type.dtype == spec.dtype
        pairs = self._pair(type.shape, spec.shape)
        if not pairs and (type.shape or spec.shape):
            # Only packs without axes pair with nothing.
            fits = fits and not spec.shape and all(isinstance(element, Pack) for element in type.shape)
        for element, sizes in pairs:
            if isinstance(element, Pack):
                fits = fits and self.values.get(element.name, sizes) == sizes
            else:
                try:
                    fits = fits and env.dim(element) == sizes[0]
                except DimError:
                    # It depends on a generic that the inputs do not determine.
                    continue
        if fits:
            return None
        return f"input `{name}` should be {type}{self._where(type)} but is {spec}"

    def _where(self, type: TensorType) -> str:
        names: list[str] = []
        for element in type.shape:
            names += [element.name] if isinstance(element, Pack) else sorted(element.symbols())
        if isinstance(type.dtype, DTypeVar):
            names.append(type.dtype.name)
        known = [f"{name} = {_text(self.values[name])}" for name in dict.fromkeys(names) if name in self.values]
        return f" with {', '.join(known)}" if known else ""


def _text(value: Concrete) -> str:
    return f"[{', '.join(map(str, value))}]" if isinstance(value, tuple) else str(value)


def _listed(names: Mapping[str, object]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "none"
