"""Where a name is looked up and what is known there: module scopes, and the context of one declaration."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn

from linnet.language.check.modules import LoadedModule
from linnet.language.check.order import mentioned_names
from linnet.language.check.prover import Facts
from linnet.language.diagnostics import Note
from linnet.language.program.checked import (
    CheckedBlock,
    CheckedFunction,
    CheckedModule,
    GenericDecl,
    IndexVar,
    LocalVar,
    StructDecl,
    Typed,
)
from linnet.language.program.types import DTYPES, EnumType, TensorType, Type
from linnet.language.source import Span
from linnet.language.syntax import tree

if TYPE_CHECKING:
    from linnet.language.check.checker import Checker

PRELUDE = frozenset(
    "cast exp log sqrt rsqrt sin cos tanh abs min max shl shr select reshape permute broadcast_to concat cumsum iota "
    "fill pad gather scatter".split()
)


class CheckFailedError(Exception):
    """A diagnostic has been reported; whatever needed the result gives up without another one."""


@dataclass(slots=True, eq=False)
class ConstDecl:
    """A constant: its value is written out wherever it is used. `type` may be an unsettled literal's."""

    name: str
    type: TensorType
    value: Typed
    public: bool


@dataclass(slots=True, eq=False)
class AliasDecl:
    name: str
    generics: tuple[GenericDecl, ...]
    type: Type


Decl = ConstDecl | AliasDecl | StructDecl | EnumType | CheckedFunction | CheckedBlock


HABITS = {
    "None": "the absent value is `none`",
    "True": "write `true`",
    "False": "write `false`",
    "not": "write `!` before a scalar bool",
    "float": "the element types are `f32`, `bf16`, ..; to convert a value write `cast<f32>(..)`",
    "int": "the element types are `i64`, `i32`, ..; to convert a value write `cast<i64>(..)`",
    "sum": "a reduction names its index: `sum[i] x[i]`",
    "prod": "a reduction names its index: `prod[i] x[i]`",
    "any": "a reduction names its index: `any[i] x[i]`",
    "all": "a reduction names its index: `all[i] x[i]`",
    "mean": "write `(sum[i] x[i]) / N`, with `N` the extent",
    "len": "shapes are in types: name the axis, as `N` in `Tensor[N; f32]`, and write `N`",
    "range": "a range is written `0..N`, and stands in a loop",
    "print": "nothing prints: return the value",
    "zeros": "write `fill<f32>([..], 0)`",
    "ones": "write `fill<f32>([..], 1)`",
    "arange": "write `iota<i64>(N)`",
    "cat": "write `concat(a, b, axis = 0)`",
    "torch": "there is no torch here: the prelude and `std` have its functions",
    "np": "there is no numpy here: the prelude and `std` have its functions",
    "F": "there is no torch here: the prelude and `std` have its functions",
    "pow": "there is no power operator: multiply, or use `exp` and `log`",
    "einsum": "write it in index notation: `let y[i, j] = sum[k] a[i, k] * b[k, j]`",
}
"""What to write for names that other languages have, where nothing of that name is declared."""

ELEMENT_TYPES = {
    "float": "f32",
    "float32": "f32",
    "float16": "f16",
    "half": "f16",
    "bfloat16": "bf16",
    "float64": "f64",
    "double": "f64",
    "int": "i64",
    "int64": "i64",
    "long": "i64",
    "int32": "i32",
    "int8": "i8",
    "uint8": "u8",
    "byte": "u8",
}
"""Element types by the names that other languages give them."""


def another_name(name: str) -> str:
    """The help for a name that is taken."""
    return f"choose another name, such as `{name}_`"


@dataclass(slots=True, eq=False)
class Import:
    """What a `use` binds: a module (`item` is None) or one of its items."""

    module: LoadedModule
    item: tree.Name | None
    span: Span
    used: bool = False


@dataclass(slots=True, eq=False)
class ModuleScope:
    """A module's own items and imports, by name. `broken` names failed to import: their uses say nothing more."""

    loaded: LoadedModule
    checked: CheckedModule
    items: dict[str, tree.Item] = field(default_factory=dict)
    imports: dict[str, Import] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)
    decls: dict[str, Decl | None] = field(default_factory=dict)
    declaring: list[str] = field(default_factory=list)


@dataclass(eq=False)
class Context:
    """One declaration being checked: its generics, what they satisfy, its block, its locals, its indices."""

    checker: Checker
    scope: ModuleScope
    facts: Facts
    generics: dict[str, GenericDecl] = field(default_factory=dict)
    block: CheckedBlock | None = None
    function: CheckedFunction | None = None
    owner: str = ""
    locals: list[dict[str, LocalVar]] = field(default_factory=list)
    indices: dict[str, IndexVar] | None = None
    # Indices that a call's arguments cannot use, for the message that says so.
    hidden: list[dict[str, IndexVar] | None] = field(default_factory=list)
    poisoned: set[int] = field(default_factory=set)
    read: set[int] = field(default_factory=set)
    spans: dict[int, Span] = field(default_factory=dict)
    # Locals that a `let` bound to a dimension: where that is written.
    dimensions: dict[int, Span] = field(default_factory=dict)
    loops: int = 0
    # In a signature, whose types may repeat one fault: the messages given, each of which is given once.
    said: set[str] | None = None

    def fail(
        self, code: str, message: str, span: Span, notes: Iterable[Note | str] = (), help: str | None = None
    ) -> NoReturn:
        """Report an error and give up on what is being checked."""
        self.error(code, message, span, notes, help)
        raise CheckFailedError

    def error(
        self, code: str, message: str, span: Span, notes: Iterable[Note | str] = (), help: str | None = None
    ) -> None:
        if self.said is not None:
            if message in self.said:
                return
            self.said.add(message)
        as_notes = tuple(Note(note, None) if isinstance(note, str) else note for note in notes)
        self.checker.diagnostics.error(code, message, span, as_notes, help)

    def expr(self, node: tree.Expr, expected: Type | None = None) -> Typed:
        """The checked expression; literals may still be unsettled (`substitute.FLEX`)."""
        return self.checker.expression(self, node, expected)

    # Locals

    @contextmanager
    def inner_scope(self) -> Iterator[None]:
        self.locals.append({})
        try:
            yield
        finally:
            self._close_scope(self.locals.pop())

    def _close_scope(self, names: dict[str, LocalVar]) -> None:
        for name, var in names.items():
            span = self.spans.get(id(var))
            if span is None or id(var) in self.read or id(var) in self.poisoned:
                continue
            if not name.startswith("_") and not self.checker.diagnostics.has_errors:
                self.checker.diagnostics.warning(
                    "W1002", f"local `{name}` is never used", span, help=f"remove it, or call it `_{name}`"
                )

    def declare_local(self, name: tree.Name, var: LocalVar, warn_unused: bool = True) -> None:
        """Bind a local in the innermost scope (E1205 for a second one of its name, E1207 for a prelude name)."""
        if name.text in PRELUDE:
            message = f"`{name.text}` is a prelude name and cannot be redeclared"
            self.error("E1207", message, name.span, help=another_name(name.text))
            self.poison(name)
            return
        scope = self.locals[-1]
        if name.text in scope:
            first = self.spans.get(id(scope[name.text]))
            self.error(
                "E1205",
                f"`{name.text}` is already declared in this scope",
                name.span,
                [Note("first declared here", first)] if first else (),
                "choose another name, or assign to a `var`",
            )
        self._remember(name, var, warn_unused)
        self.checker.references.define(name.span, var)

    def _remember(self, name: tree.Name, var: LocalVar, warn_unused: bool) -> None:
        self.locals[-1][name.text] = var
        self.spans[id(var)] = name.span
        if not warn_unused:
            self.read.add(id(var))

    def poison(self, name: tree.Name) -> None:
        """Bind a name whose value failed to check: uses of it are silent."""
        var = LocalVar(name.text, TensorType((), "bool"), mutable=True)
        self.poisoned.add(id(var))
        if self.locals:
            self._remember(name, var, warn_unused=False)

    def find_local(self, name: str) -> LocalVar | None:
        for scope in reversed(self.locals):
            if name in scope:
                return scope[name]
        return None

    # Names of the module

    def find_item(self, name: str, span: Span) -> Decl | LoadedModule | None:
        """The item or module that `name` means at module level; None where there is none. Raises CheckFailedError."""
        return self.checker.find_item(self.scope, name, span)

    def refuse_hidden(self, name: str, span: Span) -> None:
        """Fail where `name` is an index, but of the index notation that the call here stands in (E3104)."""
        if any(indices and name in indices for indices in self.hidden):
            self.fail(
                "E3104",
                f"index `{name}` cannot be used inside this call",
                span,
                help="a call takes whole tensors: bind its argument with `let` first, then its result, and index that",
            )

    def bound_dimension(self, node: tree.Expr) -> tuple[str, str] | None:
        """The name of a local in `node` that a `let` bound to a dimension, and that dimension as it is written."""
        for name in mentioned_names(node):
            var = self.find_local(name)
            if var is not None and id(var) in self.dimensions:
                return name, " ".join(self.dimensions[id(var)].text.split())
        return None

    def unknown(self, name: str, span: Span, what: str = "name") -> NoReturn:
        self.refuse_hidden(name, span)
        hint = None
        if name in DTYPES and what == "function":
            hint = f"to convert a value write `cast<{name}>(..)`"
        elif name in HABITS:
            hint = HABITS[name]
        elif home := self.checker.std_home(name):
            hint = f"add `use {home}::{{{name}}}`"
        elif what == "type" and name.lower() in ELEMENT_TYPES:
            hint = f"did you mean `{ELEMENT_TYPES[name.lower()]}`?"
        elif near := self.checker.nearest(name, lambda: self.visible_names(what)):
            hint = f"did you mean `{near}`?"
        elif self.said is not None and what == "name":
            hint = f"a size is a generic of what is declared: `<{name}: Dim>`"
        self.fail("E1201", f"unknown {what} `{name}`", span, help=hint)

    def visible_names(self, what: str = "name") -> list[str]:
        """Names that could stand where an unknown `what` does."""
        names = [*self.generics, *self.scope.items, *self.scope.imports]
        if what == "type":
            return [*names, *DTYPES]
        if what == "shape":
            return [name for name, decl in self.generics.items() if decl.kind == "Shape"]
        names += [name for scope in self.locals for name in scope]
        if self.block is not None:
            names += [*self.block.members, *self.block.methods]
        return [*names, *PRELUDE]
