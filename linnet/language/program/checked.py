"""The checked program: what the checker builds and the lowering reads.

Every expression has its type and its span; every name is resolved; literals have their dtype; defaults
are filled in; generic arguments of calls are explicit. Shapes and dtypes are symbolic in the generics of
the enclosing function and block. What a node means with concrete generics is said in its docstring.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from linnet.language.check.dims import Clause, Dim
from linnet.language.program.types import (
    BlockType,
    DTypeVar,
    GenericValue,
    Pack,
    Shape,
    Type,
)
from linnet.language.source import Source, Span


@dataclass(slots=True, eq=False)
class LocalVar:
    """A parameter, `let`, `var`, loop variable or pattern binding. Compared by identity."""

    name: str
    type: Type
    mutable: bool = False


@dataclass(slots=True, eq=False)
class IndexVar:
    """An index of index notation. A plain index has one extent, a pack (`*s`) the shape it runs over."""

    name: str
    extent: Shape
    pack: bool = False


# Expressions


@dataclass(slots=True, eq=False)
class TypedNode:
    type: Type
    span: Span


@dataclass(slots=True, eq=False)
class Literal(TypedNode):
    """A number, bool or text; a numeric one is a rank-0 tensor of `type.dtype`."""

    value: int | float | bool | str


@dataclass(slots=True, eq=False)
class DimValue(TypedNode):
    """A dimension used as a rank-0 number of `type.dtype`.

    `truncated` is a division in it, dividend and divisor, of which nothing proves that it leaves no remainder.
    """

    dim: Dim
    truncated: tuple[Span, Span] | None = None


@dataclass(slots=True, eq=False)
class NoneValue(TypedNode):
    pass


@dataclass(slots=True, eq=False)
class SomeValue(TypedNode):
    value: Typed


@dataclass(slots=True, eq=False)
class Local(TypedNode):
    var: LocalVar


@dataclass(slots=True, eq=False)
class SelfBlock(TypedNode):
    """The block whose method this is."""


@dataclass(slots=True, eq=False)
class SubBlock(TypedNode):
    """Child block (or array, or optional child) `name` of the block `object`."""

    object: Typed
    name: str


@dataclass(slots=True, eq=False)
class SubElement(TypedNode):
    """Element `index` of the block array `array`."""

    array: Typed
    index: Dim


@dataclass(slots=True, eq=False)
class Weight(TypedNode):
    """A `param` or `buffer` of the block `object`; its path is the block's path and `name`."""

    object: Typed
    name: str


@dataclass(slots=True, eq=False)
class StateValue(TypedNode):
    """The current value of a `state` of the block `object`."""

    object: Typed
    name: str


@dataclass(slots=True, eq=False)
class Call(TypedNode):
    """A call of a `fn` or `op`; `args` holds one value per parameter, defaults included."""

    function: CheckedFunction
    generics: dict[str, GenericValue]
    args: tuple[Typed, ...]


@dataclass(slots=True, eq=False)
class MethodCall(TypedNode):
    """A call of a method of the block `object`. `generics` are the method's own; the block's come with it."""

    object: Typed
    method: CheckedFunction
    generics: dict[str, GenericValue]
    args: tuple[Typed, ...]


@dataclass(slots=True, eq=False)
class Primitive(TypedNode):
    """An operator or prelude function; `op` is the Core IR's name for it (see `core.PRIMITIVES`).

    neg not abs exp log sqrt rsqrt sin cos tanh cast | add sub mul div rem and or xor eq ne lt le gt ge
    shl shr min max | select | reshape broadcast (to `type.shape`) | permute (`axes`) | concat (`axis`) |
    cumsum (`axis`) | iota (no args) | fill (one scalar arg, to `type.shape`). Scalar `&&`, `||`, `!` are
    and, or, not on bool. Elementwise arguments broadcast. Inside index notation every argument is a scalar.
    Axes are positions in the argument's shape counted in *elements of its symbolic shape* from the front
    when non-negative, from the back when negative, so that they keep their meaning beside a pack.
    """

    op: str
    args: tuple[Typed, ...]
    axes: tuple[int, ...] = ()


@dataclass(slots=True, eq=False)
class Keep:
    """A whole shape element (an axis or a pack)."""


@dataclass(slots=True, eq=False)
class Range:
    """`start:stop:step` of an axis; the length is ceil((stop - start) / step)."""

    start: Dim
    stop: Dim
    step: int


@dataclass(slots=True, eq=False)
class At:
    """One position of an axis, which is dropped: a compile-time Dim or a run-time integer scalar."""

    index: Dim | Typed


@dataclass(slots=True, eq=False)
class Slice(TypedNode):
    """`x[..]` outside index notation; one item for each element of `value`'s symbolic shape."""

    value: Typed
    items: tuple[Keep | Range | At, ...]


@dataclass(slots=True, eq=False)
class Build(TypedNode):
    """`let y[*s, i] = body`: a tensor over `axes` whose element is `body`."""

    axes: tuple[IndexVar, ...]
    body: Typed


@dataclass(slots=True, eq=False)
class Reduce(TypedNode):
    """`sum[k] body`; `kind` is sum, prod, min, max, any or all; accumulates in `type.dtype`, which is body's.

    Over no elements: sum 0, prod 1, any false, all true, max the dtype's lowest value (-inf), min its highest.
    """

    kind: str
    indices: tuple[IndexVar, ...]
    body: Typed


@dataclass(slots=True, eq=False)
class Access(TypedNode):
    """An element of tensor `value` inside index notation.

    `positions` cover `value`'s symbolic shape in order: an IndexVar covers as many elements as its extent has
    (a plain one covers one), a Dim is a constant position of one axis, a typed integer scalar gathers.
    """

    value: Typed
    positions: tuple[IndexVar | Dim | Typed, ...]


@dataclass(slots=True, eq=False)
class IfValue(TypedNode):
    condition: Typed
    then: Typed
    otherwise: Typed


@dataclass(slots=True, eq=False)
class MatchOptional(TypedNode):
    """`match v { some(x) => .. none => .. }`."""

    subject: Typed
    var: LocalVar | None
    some: Typed
    none: Typed


@dataclass(slots=True, eq=False)
class EnumValue(TypedNode):
    variant: str


@dataclass(slots=True, eq=False)
class MatchEnum(TypedNode):
    subject: Typed
    arms: dict[str, Typed]


@dataclass(slots=True, eq=False)
class TupleValue(TypedNode):
    items: tuple[Typed, ...]


@dataclass(slots=True, eq=False)
class StructValue(TypedNode):
    """Fields in declaration order."""

    fields: dict[str, Typed]


@dataclass(slots=True, eq=False)
class FieldValue(TypedNode):
    object: Typed
    name: str


Typed = (
    Literal
    | DimValue
    | NoneValue
    | SomeValue
    | Local
    | SelfBlock
    | SubBlock
    | SubElement
    | Weight
    | StateValue
    | Call
    | MethodCall
    | Primitive
    | Slice
    | Build
    | Reduce
    | Access
    | IfValue
    | MatchOptional
    | EnumValue
    | MatchEnum
    | TupleValue
    | StructValue
    | FieldValue
)


# Statements


@dataclass(slots=True, eq=False)
class Let:
    """`let`, `var` and assignment to a `var`: `var` now means `value`."""

    var: LocalVar
    value: Typed


@dataclass(slots=True, eq=False)
class LetTuple:
    vars: tuple[LocalVar, ...]
    value: Typed


@dataclass(slots=True, eq=False)
class AssignState:
    """Own state `name` becomes `value`."""

    name: str
    value: Typed


@dataclass(slots=True, eq=False)
class StaticForBlocks:
    """Unrolled over a block array; `var` is each child block."""

    var: LocalVar
    array: Typed
    body: tuple[Statement, ...]


@dataclass(slots=True, eq=False)
class StaticForRange:
    """Unrolled; `var` is an i64 scalar."""

    var: LocalVar
    start: Dim
    stop: Dim
    body: tuple[Statement, ...]


@dataclass(slots=True, eq=False)
class While:
    condition: Typed
    body: tuple[Statement, ...]


@dataclass(slots=True, eq=False)
class For:
    """A run-time loop, `var` an i64 scalar; a scan when `result` is set: `yielded` is what each pass yields,
    evaluated at the end of the body, stacked along a new first axis."""

    var: LocalVar
    start: Dim
    stop: Dim
    body: tuple[Statement, ...]
    result: LocalVar | None
    yielded: Typed | None


@dataclass(slots=True, eq=False)
class Return:
    value: Typed


Statement = Let | LetTuple | AssignState | StaticForBlocks | StaticForRange | While | For | Return


# Declarations


@dataclass(frozen=True, slots=True)
class GenericDecl:
    """`kind` is Dim, Shape, DType, Numeric, Integer or Float."""

    name: str
    kind: str
    default: GenericValue | None
    span: Span


@dataclass(slots=True, eq=False, repr=False)
class CheckedFunction:
    """A `fn`, `op` or `entry`; a method when `block` is set. `body` is filled after all signatures are known."""

    name: str
    kind: str
    module: str
    public: bool
    doc: str | None
    generics: tuple[GenericDecl, ...]
    parameters: tuple[LocalVar, ...]
    defaults: tuple[Typed | None, ...]
    result: Type
    where: tuple[Clause, ...]
    span: Span
    signature: Span
    block: CheckedBlock | None = None
    body: tuple[Statement, ...] = ()

    @property
    def identity(self) -> str:
        """`std.nn.linear::linear`: the declared module's name and the function's, with its block between."""
        owner = f"{self.block.name}." if self.block else ""
        return f"{self.module}::{owner}{self.name}"


@dataclass(slots=True, eq=False)
class CheckedMember:
    """`kind` is param, buffer, state or sub; `type` is a tensor, block or block array, or an optional one."""

    name: str
    kind: str
    type: Type
    doc: str | None
    span: Span


@dataclass(slots=True, eq=False, repr=False)
class CheckedBlock:
    name: str
    module: str
    public: bool
    doc: str | None
    span: Span
    generics: tuple[GenericDecl, ...] = ()
    where: tuple[Clause, ...] = ()
    members: dict[str, CheckedMember] = field(default_factory=dict)
    methods: dict[str, CheckedFunction] = field(default_factory=dict)

    @property
    def identity(self) -> str:
        return f"{self.module}::{self.name}"

    def entries(self) -> list[CheckedFunction]:
        """The block's entries in source order."""
        return [m for m in self.methods.values() if m.kind == "entry"]

    def self_type(self) -> BlockType:
        """This block with its own generics as arguments."""

        def own(decl: GenericDecl) -> GenericValue:
            if decl.kind == "Dim":
                return Dim.symbol(decl.name)
            return (Pack(decl.name),) if decl.kind == "Shape" else DTypeVar(decl.name, decl.kind)

        return BlockType(self, tuple(own(g) for g in self.generics))


@dataclass(frozen=True, slots=True, eq=False)
class StructDecl:
    name: str
    module: str
    generics: tuple[GenericDecl, ...]
    fields: tuple[tuple[str, Type], ...]
    span: Span


@dataclass(slots=True, eq=False, repr=False)
class CheckedModule:
    """A module's own items, by name."""

    name: str
    source: Source
    blocks: dict[str, CheckedBlock] = field(default_factory=dict)
    functions: dict[str, CheckedFunction] = field(default_factory=dict)


@dataclass(slots=True, eq=False, repr=False)
class Program:
    """A checked file with everything that it reaches. `modules` is keyed by import path (`crate.a`, `std.nn.norm`)."""

    root: CheckedModule
    modules: dict[str, CheckedModule]

    def blocks_with_entries(self) -> list[CheckedBlock]:
        """The root module's blocks that have entries, in source order."""
        return [b for b in self.root.blocks.values() if b.entries()]
