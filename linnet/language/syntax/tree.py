"""The syntax tree: what the parser builds, one class for each construct, each with its span.

Trees are compared by identity; `linnet.language.syntax.parser` documents the grammar.
"""

from __future__ import annotations

from dataclasses import dataclass

from linnet.language.source import Source, Span


@dataclass(slots=True, eq=False)
class Node:
    span: Span


@dataclass(slots=True, eq=False)
class Name(Node):
    """An identifier as written."""

    text: str


# Types and generic arguments


@dataclass(slots=True, eq=False)
class NamedType(Node):
    """`f32`, `T`, `Hidden<B, H>`, `linear.Linear<A, B>`: a path and its generic arguments, if written."""

    path: tuple[Name, ...]
    args: tuple[GenericArg, ...] | None


@dataclass(slots=True, eq=False)
class TensorTypeNode(Node):
    """`Tensor[*S, H; T]`."""

    axes: tuple[Axis, ...]
    dtype: NamedType


@dataclass(slots=True, eq=False)
class OptionalTypeNode(Node):
    inner: TypeNode


@dataclass(slots=True, eq=False)
class TupleTypeNode(Node):
    items: tuple[TypeNode, ...]


@dataclass(slots=True, eq=False)
class ArrayTypeNode(Node):
    """`[Layer<H, T>; Layers]`."""

    inner: TypeNode
    count: Expr


TypeNode = NamedType | TensorTypeNode | OptionalTypeNode | TupleTypeNode | ArrayTypeNode


@dataclass(slots=True, eq=False)
class PackAxis(Node):
    """`*S` among axes, indices or list items."""

    name: Name


@dataclass(slots=True, eq=False)
class ShapeArg(Node):
    """`[A, B]` as a generic argument."""

    axes: tuple[Axis, ...]


@dataclass(slots=True, eq=False)
class Generic(Node):
    """One generic parameter; `kind` is Dim, Shape, DType, Numeric, Integer or Float (as written)."""

    name: Name
    star: bool
    kind: Name
    default: GenericArg | None


# Expressions


@dataclass(slots=True, eq=False)
class IntLiteral(Node):
    value: int


@dataclass(slots=True, eq=False)
class FloatLiteral(Node):
    value: float


@dataclass(slots=True, eq=False)
class BoolLiteral(Node):
    value: bool


@dataclass(slots=True, eq=False)
class StringLiteral(Node):
    value: str


@dataclass(slots=True, eq=False)
class NoneLiteral(Node):
    pass


@dataclass(slots=True, eq=False)
class SomeExpr(Node):
    value: Expr


@dataclass(slots=True, eq=False)
class NameExpr(Node):
    name: str


@dataclass(slots=True, eq=False)
class MemberExpr(Node):
    """`object.name`."""

    object: Expr
    name: Name


@dataclass(slots=True, eq=False)
class NamedArg(Node):
    name: Name
    value: Expr


@dataclass(slots=True, eq=False)
class CallExpr(Node):
    callee: Expr
    generics: tuple[GenericArg, ...] | None
    args: tuple[Expr, ...]
    named: tuple[NamedArg, ...]


@dataclass(slots=True, eq=False)
class SliceItem(Node):
    """`start:stop:step` inside `[..]`; absent parts are None."""

    start: Expr | None
    stop: Expr | None
    step: Expr | None


@dataclass(slots=True, eq=False)
class EllipsisItem(Node):
    """`...` inside `[..]`."""


@dataclass(slots=True, eq=False)
class IndexExpr(Node):
    """`x[..]`."""

    object: Expr
    positions: tuple[Position, ...]


@dataclass(slots=True, eq=False)
class UnaryExpr(Node):
    op: str
    operand: Expr


@dataclass(slots=True, eq=False)
class BinaryExpr(Node):
    op: str
    left: Expr
    right: Expr
    op_span: Span


@dataclass(slots=True, eq=False)
class IfExpr(Node):
    condition: Expr
    then: Expr
    otherwise: Expr


@dataclass(slots=True, eq=False)
class Pattern(Node):
    """`some(x)`: kind "some" with its binding; `none`: kind "none"; `Mean`: kind "variant" with its name."""

    kind: str
    name: Name | None


@dataclass(slots=True, eq=False)
class MatchArm(Node):
    pattern: Pattern
    body: Expr


@dataclass(slots=True, eq=False)
class MatchExpr(Node):
    subject: Expr
    arms: tuple[MatchArm, ...]


@dataclass(slots=True, eq=False)
class TupleExpr(Node):
    items: tuple[Expr, ...]


@dataclass(slots=True, eq=False)
class ListExpr(Node):
    """`[a, *S, b]`: a shape, a permutation."""

    items: tuple[Axis, ...]


@dataclass(slots=True, eq=False)
class ReduceExpr(Node):
    """`sum<f32>[k, *s] body`; kind is sum, prod, max, min, any or all."""

    kind: Name
    accumulate: NamedType | None
    indices: tuple[Name | PackAxis, ...]
    body: Expr


Expr = (
    IntLiteral
    | FloatLiteral
    | BoolLiteral
    | StringLiteral
    | NoneLiteral
    | SomeExpr
    | NameExpr
    | MemberExpr
    | CallExpr
    | IndexExpr
    | UnaryExpr
    | BinaryExpr
    | IfExpr
    | MatchExpr
    | TupleExpr
    | ListExpr
    | ReduceExpr
)
Axis = Expr | PackAxis
Position = Expr | PackAxis | SliceItem | EllipsisItem
GenericArg = Expr | ShapeArg


# Statements


@dataclass(slots=True, eq=False)
class LetStmt(Node):
    """`let x: T = e` (one name) or `let (a, b) = e` (several, `is_tuple`); `mutable` for `var`."""

    names: tuple[Name, ...]
    is_tuple: bool
    mutable: bool
    type: TypeNode | None
    value: Expr


@dataclass(slots=True, eq=False)
class LetIndexStmt(Node):
    """`let y[*s, i] = e`."""

    name: Name
    indices: tuple[Name | PackAxis, ...]
    value: Expr


@dataclass(slots=True, eq=False)
class AssignStmt(Node):
    name: Name
    value: Expr


@dataclass(slots=True, eq=False)
class ReturnStmt(Node):
    value: Expr


@dataclass(slots=True, eq=False)
class YieldStmt(Node):
    value: Expr


@dataclass(slots=True, eq=False)
class StaticForStmt(Node):
    """`static for name in iterable { .. }` or `static for name in start..stop { .. }`."""

    name: Name
    iterable: Expr | None
    start: Expr | None
    stop: Expr | None
    body: tuple[Stmt, ...]


@dataclass(slots=True, eq=False)
class WhileStmt(Node):
    condition: Expr
    body: tuple[Stmt, ...]


@dataclass(slots=True, eq=False)
class ForStmt(Node):
    """`for i in a..b { .. }`; a scan when `result` names what its yields stack into."""

    result: Name | None
    name: Name
    start: Expr
    stop: Expr
    body: tuple[Stmt, ...]


Stmt = LetStmt | LetIndexStmt | AssignStmt | ReturnStmt | YieldStmt | StaticForStmt | WhileStmt | ForStmt


# Items


@dataclass(slots=True, eq=False)
class UseName(Node):
    name: Name
    alias: Name | None


@dataclass(slots=True, eq=False)
class UseDecl(Node):
    """`use a.b::{x, y as z}` (names), `use a.b` or `use a.b as c` (names is None)."""

    path: tuple[Name, ...]
    names: tuple[UseName, ...] | None
    alias: Name | None


@dataclass(slots=True, eq=False)
class ConstItem(Node):
    name: Name
    public: bool
    doc: str | None
    type: TypeNode | None
    value: Expr


@dataclass(slots=True, eq=False)
class AliasItem(Node):
    name: Name
    public: bool
    doc: str | None
    generics: tuple[Generic, ...]
    type: TypeNode


@dataclass(slots=True, eq=False)
class Field(Node):
    name: Name
    type: TypeNode


@dataclass(slots=True, eq=False)
class StructItem(Node):
    name: Name
    public: bool
    doc: str | None
    generics: tuple[Generic, ...]
    fields: tuple[Field, ...]


@dataclass(slots=True, eq=False)
class EnumItem(Node):
    name: Name
    public: bool
    doc: str | None
    variants: tuple[Name, ...]


@dataclass(slots=True, eq=False)
class Parameter(Node):
    name: Name
    type: TypeNode
    default: Expr | None


@dataclass(slots=True, eq=False)
class KernelClause(Node):
    """`kernel name<args>` of a function."""

    path: tuple[Name, ...]
    args: tuple[GenericArg, ...] | None


@dataclass(slots=True, eq=False)
class GradClause(Node):
    """`grad(y, dy) { .. }` of a function."""

    names: tuple[Name, ...]
    body: tuple[Stmt, ...]


@dataclass(slots=True, eq=False)
class FunctionItem(Node):
    """`fn`, `op` or `entry`, at module level or in a block. `signature` spans the text up to the body.

    `clauses` are a backend's business: those before the body, then those after it.
    """

    name: Name
    public: bool
    doc: str | None
    kind: str
    generics: tuple[Generic, ...]
    parameters: tuple[Parameter, ...]
    result: TypeNode
    where: tuple[Expr, ...]
    body: tuple[Stmt, ...]
    signature: Span
    clauses: tuple[KernelClause | GradClause, ...] = ()


@dataclass(slots=True, eq=False)
class Member(Node):
    """`param`, `buffer`, `state` or `sub`; `value` is its initialiser (only `none` is legal)."""

    name: Name
    doc: str | None
    kind: str
    type: TypeNode
    value: Expr | None


@dataclass(slots=True, eq=False)
class BlockItem(Node):
    name: Name
    public: bool
    doc: str | None
    generics: tuple[Generic, ...]
    where: tuple[Expr, ...]
    members: tuple[Member, ...]
    methods: tuple[FunctionItem, ...]


Item = ConstItem | AliasItem | StructItem | EnumItem | FunctionItem | BlockItem


@dataclass(slots=True, eq=False)
class Comment(Node):
    """A comment's full text, kept for the formatter."""

    text: str


@dataclass(slots=True, eq=False)
class Module(Node):
    source: Source
    path: tuple[Name, ...]
    doc: str | None
    uses: tuple[UseDecl, ...]
    items: tuple[Item, ...]
    comments: tuple[Comment, ...]
