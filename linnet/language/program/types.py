"""The types of checked programs: symbolic until generics are bound."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from linnet.language.check.dims import Dim

if TYPE_CHECKING:
    from linnet.language.program.checked import CheckedBlock, StructDecl

INTEGERS = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
FLOATS = ("f16", "bf16", "f32", "f64")
DTYPES = ("bool", *INTEGERS, *FLOATS)
# safetensors dtype -> the dtype that a parameter of it is declared with. E4M3 is bound as its bytes.
SAFETENSORS: Mapping[str, str] = {
    "BOOL": "bool", "U8": "u8", "U16": "u16", "U32": "u32", "U64": "u64", "I8": "i8", "I16": "i16", "I32": "i32",
    "I64": "i64", "F16": "f16", "BF16": "bf16", "F32": "f32", "F64": "f64", "F8_E4M3": "u8",
}  # fmt: skip
# What each generic kind accepts.
KINDS: Mapping[str, frozenset[str]] = {
    "DType": frozenset(DTYPES),
    "Numeric": frozenset(INTEGERS + FLOATS),
    "Integer": frozenset(INTEGERS),
    "Float": frozenset(FLOATS),
}


@dataclass(frozen=True, slots=True)
class DTypeVar:
    """A dtype generic, such as `T: Float`."""

    name: str
    kind: str

    def __str__(self) -> str:
        return self.name


DType = str | DTypeVar


@dataclass(frozen=True, slots=True)
class Pack:
    """`*S` in a shape: any number of axes."""

    name: str

    def __str__(self) -> str:
        return f"*{self.name}"


ShapeElement = Dim | Pack
Shape = tuple[ShapeElement, ...]
# What a generic stands for: a dimension, a shape, an element type.
GenericValue = Dim | Shape | str | DTypeVar


@dataclass(frozen=True, slots=True)
class TensorType:
    """A tensor; a scalar is one of rank 0."""

    shape: Shape
    dtype: DType

    def __str__(self) -> str:
        if not self.shape:
            return str(self.dtype)
        return f"Tensor[{', '.join(map(str, self.shape))}; {self.dtype}]"


@dataclass(frozen=True, slots=True)
class OptionalType:
    inner: Type

    def __str__(self) -> str:
        return f"{self.inner}?"


@dataclass(frozen=True, slots=True)
class TupleType:
    items: tuple[Type, ...]

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.items))})"


@dataclass(frozen=True, slots=True)
class StructType:
    """An instance of a struct; `fields` are already substituted."""

    decl: StructDecl
    args: tuple[GenericValue, ...]
    fields: tuple[tuple[str, Type], ...]

    def __str__(self) -> str:
        return self.decl.name + args_text(self.args)


@dataclass(frozen=True, slots=True)
class EnumType:
    name: str
    module: str
    variants: tuple[str, ...]

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class BlockType:
    """A block with its generics substituted, in declaration order."""

    block: CheckedBlock
    args: tuple[GenericValue, ...]

    def __str__(self) -> str:
        return self.block.name + args_text(self.args)


@dataclass(frozen=True, slots=True)
class BlockArrayType:
    inner: BlockType
    count: Dim

    def __str__(self) -> str:
        return f"[{self.inner}; {self.count}]"


@dataclass(frozen=True, slots=True)
class StringType:
    def __str__(self) -> str:
        return "text"


Type = TensorType | OptionalType | TupleType | StructType | EnumType | BlockType | BlockArrayType | StringType


def value_text(value: GenericValue) -> str:
    """A generic argument as a reader would write it."""
    return f"[{', '.join(map(str, value))}]" if isinstance(value, tuple) else str(value)


def args_text(args: tuple[GenericValue, ...]) -> str:
    return f"<{', '.join(map(value_text, args))}>" if args else ""
