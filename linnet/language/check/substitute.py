"""Replacing generics in types, comparing types, and matching a signature's types against arguments'."""

from __future__ import annotations

from collections.abc import Mapping

from linnet.language.check.dims import Clause, Dim
from linnet.language.check.prover import Facts
from linnet.language.program.types import (
    KINDS,
    BlockArrayType,
    BlockType,
    DType,
    DTypeVar,
    EnumType,
    GenericValue,
    OptionalType,
    Pack,
    Shape,
    ShapeElement,
    StringType,
    StructType,
    TensorType,
    TupleType,
    Type,
)

Generics = Mapping[str, GenericValue]
# The dtypes of literals that no context has settled yet; they never leave the checker.
FLEX_INT = "{integer}"
FLEX_FLOAT = "{float}"
FLEX = (FLEX_INT, FLEX_FLOAT)


def substitute_dim(dim: Dim, mapping: Generics) -> Dim:
    if dim.constant is not None:
        return dim
    dims = {name: value for name in dim.symbols() if isinstance(value := mapping.get(name), Dim)}
    return dim.substitute(dims) if dims else dim


def substitute_shape(shape: Shape, mapping: Generics) -> Shape:
    result: list[ShapeElement] = []
    for element in shape:
        if isinstance(element, Pack):
            value = mapping.get(element.name)
            result.extend(value if isinstance(value, tuple) else (element,))
        else:
            result.append(substitute_dim(element, mapping))
    return tuple(result)


def substitute_dtype(dtype: DType, mapping: Generics) -> DType:
    if isinstance(dtype, DTypeVar):
        value = mapping.get(dtype.name)
        return value if isinstance(value, (str, DTypeVar)) else dtype
    return dtype


def substitute_value(value: GenericValue, mapping: Generics) -> GenericValue:
    if isinstance(value, Dim):
        return substitute_dim(value, mapping)
    if isinstance(value, tuple):
        return substitute_shape(value, mapping)
    return substitute_dtype(value, mapping)


def substitute_clause(clause: Clause, mapping: Generics) -> Clause:
    return clause.substitute({name: value for name, value in mapping.items() if isinstance(value, Dim)})


def substitute(type: Type, mapping: Generics) -> Type:
    """`type` with its generics replaced, all at once, so that equal names on both sides do not meet."""
    match type:
        case TensorType():
            return TensorType(substitute_shape(type.shape, mapping), substitute_dtype(type.dtype, mapping))
        case OptionalType():
            return OptionalType(substitute(type.inner, mapping))
        case TupleType():
            return TupleType(tuple(substitute(item, mapping) for item in type.items))
        case StructType():
            return StructType(
                type.decl,
                tuple(substitute_value(arg, mapping) for arg in type.args),
                tuple((name, substitute(field, mapping)) for name, field in type.fields),
            )
        case BlockType():
            return BlockType(type.block, tuple(substitute_value(arg, mapping) for arg in type.args))
        case BlockArrayType():
            inner = substitute(type.inner, mapping)
            assert isinstance(inner, BlockType)
            return BlockArrayType(inner, substitute_dim(type.count, mapping))
        case EnumType() | StringType():
            return type


def same_element(a: ShapeElement, b: ShapeElement, facts: Facts) -> bool:
    if isinstance(a, Pack) or isinstance(b, Pack):
        return a == b
    return a == b or facts.equal(a, b)


def same_shape(a: Shape, b: Shape, facts: Facts) -> bool:
    return a == b or (len(a) == len(b) and all(same_element(x, y, facts) for x, y in zip(a, b, strict=True)))


def same_value(a: GenericValue, b: GenericValue, facts: Facts) -> bool:
    if isinstance(a, Dim) and isinstance(b, Dim):
        return a == b or facts.equal(a, b)
    if isinstance(a, tuple) and isinstance(b, tuple):
        return same_shape(a, b, facts)
    return a == b


def same_type(a: Type, b: Type, facts: Facts) -> bool:
    """Whether the two types are proven equal."""
    if a == b:
        return True
    match a, b:
        case TensorType(), TensorType():
            return a.dtype == b.dtype and same_shape(a.shape, b.shape, facts)
        case OptionalType(), OptionalType():
            return same_type(a.inner, b.inner, facts)
        case TupleType(), TupleType():
            return len(a.items) == len(b.items) and all(
                same_type(x, y, facts) for x, y in zip(a.items, b.items, strict=True)
            )
        case (StructType(), StructType()) if a.decl is b.decl:
            return all(same_value(x, y, facts) for x, y in zip(a.args, b.args, strict=True))
        case (BlockType(), BlockType()) if a.block is b.block:
            return all(same_value(x, y, facts) for x, y in zip(a.args, b.args, strict=True))
        case BlockArrayType(), BlockArrayType():
            return same_type(a.inner, b.inner, facts) and same_value(a.count, b.count, facts)
    return False


def kind_accepts(kind: str, dtype: DType) -> bool:
    """Whether a dtype (or another dtype generic) satisfies the generic kind `kind`."""
    if isinstance(dtype, DTypeVar):
        return KINDS[dtype.kind] <= KINDS[kind]
    return dtype in KINDS[kind]


def match_shape(pattern: Shape, actual: Shape, unsolved: Mapping[str, str], solved: dict[str, GenericValue]) -> None:
    """Solve bare-name axes and packs of `pattern` from `actual` where the ranks allow it."""
    packs = [i for i, element in enumerate(pattern) if isinstance(element, Pack) and element.name in unsolved]
    fixed = len(pattern) - len(packs)
    pairs: list[tuple[ShapeElement, ShapeElement]]
    # A pack of the caller's own stands where it stands: patterns without packs line up one to one.
    if len(packs) == 1 and len(actual) >= fixed:
        at = packs[0]
        tail = len(pattern) - at - 1
        pack = pattern[at]
        assert isinstance(pack, Pack)
        solved.setdefault(pack.name, actual[at : len(actual) - tail])
        pairs = list(zip(pattern[:at], actual[:at], strict=True))
        pairs += zip(pattern[at + 1 :], actual[len(actual) - tail :], strict=True)
    elif not packs and len(actual) == len(pattern):
        pairs = list(zip(pattern, actual, strict=True))
    else:
        return
    for expected, given in pairs:
        if isinstance(expected, Dim) and isinstance(given, Dim):
            name = bare_name(expected)
            if name is not None and name in unsolved:
                solved.setdefault(name, given)


def bare_name(dim: Dim) -> str | None:
    """The name of a dimension that is exactly one symbol."""
    symbols = dim.symbols()
    if len(symbols) == 1:
        (name,) = symbols
        if dim == Dim.symbol(name):
            return name
    return None


def match_type(pattern: Type, actual: Type, unsolved: Mapping[str, str], solved: dict[str, GenericValue]) -> None:
    """Solve what generics of `pattern` (name -> kind in `unsolved`) the type `actual` determines.

    Mismatches are left alone: the types are compared once everything is solved.
    """
    match pattern, actual:
        case TensorType(), TensorType():
            match_shape(pattern.shape, actual.shape, unsolved, solved)
            if isinstance(pattern.dtype, DTypeVar) and pattern.dtype.name in unsolved and actual.dtype not in FLEX:
                solved.setdefault(pattern.dtype.name, actual.dtype)
        case OptionalType(), OptionalType():
            match_type(pattern.inner, actual.inner, unsolved, solved)
        case TupleType(), TupleType():
            for p, a in zip(pattern.items, actual.items, strict=False):
                match_type(p, a, unsolved, solved)
        case (StructType(), StructType()) if pattern.decl is actual.decl:
            for (_, p), (_, a) in zip(pattern.fields, actual.fields, strict=True):
                match_type(p, a, unsolved, solved)
