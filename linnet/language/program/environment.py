"""Concrete generics: what turns symbolic dimensions, shapes and types into numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from linnet.language.check.dims import Clause, Dim
from linnet.language.program.checked import GenericDecl, TypedNode
from linnet.language.program.core import TensorSpec
from linnet.language.program.types import (
    BlockType,
    DType,
    DTypeVar,
    GenericValue,
    OptionalType,
    Pack,
    Shape,
    TensorType,
    Type,
)

# A generic's concrete value: a dimension, a dtype, a shape.
Concrete = int | str | tuple[int, ...]


class Environment:
    """The generics in scope of one function or block instance, all concrete.

    Types of nodes are evaluated once for each environment, so that instances which share an environment (a layer
    repeated 36 times) share the work.
    """

    __slots__ = ("_nodes", "_shapes", "calls", "generics")

    def __init__(self, generics: Mapping[str, Concrete]) -> None:
        self.generics: dict[str, Concrete] = dict(generics)
        self._nodes: dict[TypedNode, TensorSpec] = {}
        self._shapes: dict[int, tuple[Shape, tuple[int, ...]]] = {}
        # The environments of the calls made from here, by the call's node.
        self.calls: dict[TypedNode, Environment] = {}

    def dim(self, dim: Dim) -> int:
        """The dimension's value. Raises DimError for an unknown name or a division by zero."""
        constant = dim.constant
        # Only Dim generics are ever named in a dimension, so the others in the mapping are not read.
        return dim.evaluate(cast("Mapping[str, int]", self.generics)) if constant is None else constant

    def shape(self, shape: Shape) -> tuple[int, ...]:
        """Concrete sizes, packs expanded in place."""
        known = self._shapes.get(id(shape))
        if known is not None:
            return known[1]
        sizes: list[int] = []
        for element in shape:
            if isinstance(element, Pack):
                sizes.extend(self.pack(element))
            else:
                sizes.append(self.dim(element))
        result = tuple(sizes)
        # Holding the symbolic shape keeps its id from being used again.
        self._shapes[id(shape)] = (shape, result)
        return result

    def pack(self, pack: Pack) -> tuple[int, ...]:
        value = self.generics[pack.name]
        assert isinstance(value, tuple)
        return value

    def widths(self, shape: Shape) -> list[int]:
        """How many concrete axes each element of a symbolic shape stands for."""
        return [len(self.pack(element)) if isinstance(element, Pack) else 1 for element in shape]

    def dtype(self, dtype: DType) -> str:
        if isinstance(dtype, DTypeVar):
            value = self.generics[dtype.name]
            assert isinstance(value, str)
            return value
        return dtype

    def spec(self, type: Type) -> TensorSpec:
        """The spec of a tensor type, or of the tensor inside an optional."""
        if isinstance(type, OptionalType):
            type = type.inner
        assert isinstance(type, TensorType)
        return TensorSpec(self.shape(type.shape), self.dtype(type.dtype))

    def node_spec(self, node: TypedNode) -> TensorSpec:
        """The spec of an expression of tensor type."""
        spec = self._nodes.get(node)
        if spec is None:
            spec = self._nodes[node] = self.spec(node.type)
        return spec

    def value(self, value: GenericValue) -> Concrete:
        """A generic argument's concrete value."""
        if isinstance(value, Dim):
            return self.dim(value)
        return self.shape(value) if isinstance(value, tuple) else self.dtype(value)

    def block_arguments(self, type: BlockType) -> dict[str, Concrete]:
        """The generics of a block instance, by the block's own names."""
        return {decl.name: self.value(arg) for decl, arg in zip(type.block.generics, type.args, strict=True)}

    def broken(self, clauses: Sequence[Clause]) -> list[str]:
        """One sentence for each clause that these generics do not satisfy: `H % 128 == 0 is false for H = 100`."""
        values = cast("Mapping[str, int]", self.generics)
        problems: list[str] = []
        for clause in clauses:
            if not clause.holds(values):
                names = sorted(clause.left.symbols() | clause.right.symbols())
                where = " and ".join(f"{name} = {self.generics[name]}" for name in names)
                problems.append(f"`{clause}` is false for {where}" if where else f"`{clause}` is false")
        return problems


def parameter_values(decls: Sequence[GenericDecl], env: Environment) -> dict[str, Concrete]:
    """The values that an environment gives to declared generics, in declaration order."""
    return {decl.name: env.generics[decl.name] for decl in decls}
