"""A package's source with FP8 projections: `std.quant::Fp8BlockLinear` for `std.nn.linear::Linear` in its layers.

What is replaced are the dense layers that blocks below a block array declare (the repeated layers of a model), also
those inside a `std.nn.mlp::SwiGlu`, unless something else than their `forward` reads their weights. An output head or
an embedding stays. Blocks gain the `where` clauses that whole blocks of weights need, up to the root.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

from linnet.language.check import load
from linnet.language.check.dims import Clause, Dim
from linnet.language.check.substitute import substitute_dim
from linnet.language.diagnostics import Diagnostics
from linnet.language.program.binding import BoundProgram
from linnet.language.program.checked import CheckedBlock, CheckedModule, Program, SubBlock, SubElement, Weight
from linnet.language.program.instances import Instance, InstanceArray, Instances
from linnet.language.program.types import BlockArrayType, BlockType, OptionalType, Type
from linnet.language.source import Source
from linnet.language.syntax import tree
from linnet.language.syntax.formatter import format_source
from linnet.language.syntax.lexer import Token, lex
from linnet.language.syntax.parser import parse
from linnet.quantize.errors import QuantizeError

LINEAR = "std.nn.linear::Linear"
SWIGLU = "std.nn.mlp::SwiGlu"
_SWIGLU_NAME = "Fp8SwiGlu"
_SWIGLU = """
/// `std.nn.mlp::SwiGlu` over FP8 projections.
block {name}<H: Dim, Inner: Dim, T: Float>
where H % {block} == 0, Inner % {block} == 0
{{
    sub gate: Fp8BlockLinear<H, Inner, {block}, T>
    sub up: Fp8BlockLinear<H, Inner, {block}, T>
    sub down: Fp8BlockLinear<Inner, H, {block}, T>

    /// `down(silu(gate(x)) * up(x))`.
    pub fn forward<*S: Shape>(x: Tensor[*S, H; T]) -> Tensor[*S, H; T] {{
        return down.forward(silu(gate.forward(x)) * up.forward(x))
    }}
}}
"""

# A member that is replaced: the block that declares it, and its name.
Member = tuple[CheckedBlock, str]
Edit = tuple[int, int, str]


@dataclass(frozen=True, slots=True)
class QuantizedSource:
    """`program` is the source as rewritten; `texts` has each changed file's new text by its resolved path;
    `projections` are the paths of the dense layers that are now FP8."""

    program: Program
    texts: Mapping[Path, str]
    projections: tuple[str, ...]


def quantize_source(file: Path, bound: BoundProgram, block: int) -> QuantizedSource:
    """Rewrite the source `file`, which is that of `bound`, for blocks of `block` by `block` weights.

    Raises QuantizeError where there is no projection to quantise, where one's sides are not multiples of `block`, and
    where the source reaches beyond the package.
    """
    own = _own_modules(bound.program)
    members = _replaced(bound.block, own)
    projections = tuple(_projections(bound, members))
    if not projections:
        raise QuantizeError(
            f"{file} has no layers with a {LINEAR} or {SWIGLU} whose weights only its forward reads. Quantise a "
            "package that is written with those, and is not quantised yet."
        )
    _check_sides(bound, projections, block)
    clauses = _Clauses(own, members, block)
    texts = {}
    for module in own:
        text = _rewritten(module, members, clauses, block)
        if text != module.source.text:
            texts[Path(module.source.name).resolve()] = text
    result = load(file, texts)
    if result.program is None:
        first = result.errors[0]
        raise QuantizeError(
            f"{file} cannot be rewritten with FP8 projections: at {first.span.location()} it would have the error "
            f"{first.code}, {first.message}. Rename what is in the way, or write the FP8 source by hand."
        )
    return QuantizedSource(result.program, texts, projections)


def _own_modules(program: Program) -> list[CheckedModule]:
    """The package's modules. Raises QuantizeError where there are others than its own and the standard library's."""
    own = []
    for key, module in program.modules.items():
        home = key.split(".")[0]
        if home == "crate" or module is program.root:
            own.append(module)
        elif home != "std":
            raise QuantizeError(
                f"The source uses {key}, a module of another package. Copy what it needs into this one."
            )
    return own


def _replaced(root: CheckedBlock, own: list[CheckedModule]) -> set[Member]:
    """The members to replace in the package's blocks."""
    declared = {id(block) for module in own for block in module.blocks.values()}
    found: set[Member] = set()
    visited: set[tuple[int, bool]] = set()

    def visit(block: CheckedBlock, repeated: bool) -> None:
        if (id(block), repeated) in visited:
            return
        visited.add((id(block), repeated))
        for name, member in block.members.items():
            child, array = _child(member.type)
            if child is None:
                continue
            if child.identity in (LINEAR, SWIGLU) and repeated and not array and id(block) in declared:
                found.add((block, name))
            visit(child, repeated or array)

    visit(root, False)
    return found - {member for module in own for member in _read_directly(module)}


def _child(type: Type) -> tuple[CheckedBlock | None, bool]:
    """The block that a member holds, and whether it holds an array of them."""
    bare = type.inner if isinstance(type, OptionalType) else type
    if isinstance(bare, BlockArrayType):
        return bare.inner.block, True
    return (bare.block, False) if isinstance(bare, BlockType) else (None, False)


def _read_directly(module: CheckedModule) -> Iterator[Member]:
    """The members whose weights, or whose children's, the module's functions name themselves."""
    functions = [*module.functions.values(), *(f for b in module.blocks.values() for f in b.methods.values())]
    for function in functions:
        for node in _nodes(function.body):
            if not isinstance(node, Weight):
                continue
            holder: Any = node.object
            while isinstance(holder, SubBlock | SubElement):
                if isinstance(holder, SubElement):
                    holder = holder.array
                    continue
                owner, _ = _child(holder.object.type)
                if owner is not None:
                    yield owner, holder.name
                holder = holder.object


def _nodes(value: Any) -> Iterator[Any]:
    """Every node of a typed body."""
    if isinstance(value, tuple):
        for item in value:
            yield from _nodes(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _nodes(item)
    elif is_dataclass(value):
        yield value
        for field in fields(value):
            # What a node refers to is not part of it.
            if field.name not in ("type", "span", "function", "method", "generics", "var", "vars"):
                yield from _nodes(getattr(value, field.name))


def _projections(bound: BoundProgram, members: set[Member]) -> Iterator[str]:
    """The paths of the dense layers that `members` hold, in the manifest's order."""
    instances = Instances()

    def walk(instance: Instance, inside: bool) -> Iterator[str]:
        if inside and instance.block.identity == LINEAR:
            yield instance.path
        for name, member in instance.block.members.items():
            if member.kind != "sub":
                continue
            child = instances.child(instance, name)
            below = inside or (instance.block, name) in members
            for each in (child[i] for i in range(child.count)) if isinstance(child, InstanceArray) else (child,):
                yield from walk(each, below)

    yield from walk(Instance(bound.block, instances.environment(bound.block, dict(bound.generics)), ""), False)


def _check_sides(bound: BoundProgram, projections: tuple[str, ...], block: int) -> None:
    shapes = {entry.path: entry.shape for entry in bound.manifest.entries}
    for path in projections:
        shape = shapes[f"{path}.weight"]
        if any(side % block for side in shape):
            sides = " by ".join(map(str, shape))
            help = "Choose a block that divides both sides of every projection."
            raise QuantizeError(f"{path}.weight is {sides}, which blocks of {block} by {block} do not fill. {help}")


class _Clauses:
    """What must be a multiple of the block's side in each block of the package, in terms of its generics."""

    def __init__(self, own: list[CheckedModule], members: set[Member], side: int) -> None:
        self.own = {id(block) for module in own for block in module.blocks.values()}
        self.members = members
        self.side = side
        self.known: dict[int, tuple[Dim, ...]] = {}

    def added(self, block: CheckedBlock) -> list[str]:
        """The clauses that `block` lacks."""
        clauses = [Clause("==", dim % Dim.of(self.side), Dim.of(0)) for dim in self._dims(block)]
        return [str(clause) for clause in clauses if clause.symbols() and clause not in block.where]

    def _dims(self, block: CheckedBlock) -> tuple[Dim, ...]:
        if id(block) not in self.known:
            found = dict.fromkeys(dim for name in block.members for dim in self._of_member(block, name))
            self.known[id(block)] = tuple(found)
        return self.known[id(block)]

    def _of_member(self, block: CheckedBlock, name: str) -> Iterator[Dim]:
        type = block.members[name].type
        bare = type.inner if isinstance(type, OptionalType) else type
        child = bare.inner if isinstance(bare, BlockArrayType) else bare
        if not isinstance(child, BlockType):
            return
        if (block, name) in self.members:
            yield from (arg for arg in child.args if isinstance(arg, Dim))
        elif id(child.block) in self.own:
            given = {decl.name: arg for decl, arg in zip(child.block.generics, child.args, strict=True)}
            yield from (substitute_dim(dim, given) for dim in self._dims(child.block))


def _rewritten(module: CheckedModule, members: set[Member], clauses: _Clauses, block: int) -> str:
    """The module's text with its members replaced, in canonical style where anything changed."""
    source = module.source
    parsed = parse(source, Diagnostics())
    tokens = lex(source, Diagnostics()).tokens
    edits: list[Edit] = []
    gone: list[tree.NamedType] = []
    needs: dict[str, str] = {}
    for item in parsed.items:
        if not isinstance(item, tree.BlockItem):
            continue
        checked = module.blocks[item.name.text]
        for node in item.members:
            if (checked, node.name.text) in members:
                type = node.type.inner if isinstance(node.type, tree.OptionalTypeNode) else node.type
                assert isinstance(type, tree.NamedType)
                gone.append(type)
                edits.append((type.span.start, type.span.end, _type_text(checked, node.name.text, block)))
                needs["Fp8BlockLinear"] = "std.quant"
                if _child(checked.members[node.name.text].type)[0].identity == SWIGLU:  # type: ignore[union-attr]
                    needs["silu"] = "std.nn.activations"
        if added := clauses.added(checked):
            edits.append(_where_edit(item, tokens, ", ".join(added)))
    if not edits:
        return source.text
    if "silu" in needs:
        edits.append((len(source.text), len(source.text), _SWIGLU.format(name=_SWIGLU_NAME, block=block)))
    edits += _use_edits(parsed, tokens, gone, needs)
    text = source.text
    for start, end, replacement in sorted(edits, reverse=True):
        text = text[:start] + replacement + text[end:]
    return format_source(Source(source.name, text), Diagnostics()) or text


def _type_text(block: CheckedBlock, name: str, side: int) -> str:
    """The type that takes the place of a member's, a Linear<In, Out, T> or a SwiGlu<H, Inner, T>."""
    type = block.members[name].type
    bare = type.inner if isinstance(type, OptionalType) else type
    assert isinstance(bare, BlockType)
    first, second, dtype = map(str, bare.args)
    if bare.block.identity == SWIGLU:
        return f"{_SWIGLU_NAME}<{first}, {second}, {dtype}>"
    return f"Fp8BlockLinear<{first}, {second}, {side}, {dtype}>"


def _where_edit(item: tree.BlockItem, tokens: list[Token], clauses: str) -> Edit:
    """Put `clauses` before those that the block has."""
    token = next(t for t in tokens if t.start >= item.name.span.end and t.text in ("where", "{"))
    if token.text == "where":
        return token.end, token.end, f" {clauses},"
    return token.start, token.start, f" where {clauses} "


def _use_edits(
    parsed: tree.Module, tokens: list[Token], gone: list[tree.NamedType], needs: Mapping[str, str]
) -> Iterator[Edit]:
    """Import what `needs` names from its module, and no longer what only the types `gone` named."""
    passed = [node.span for node in (*parsed.uses, *gone)]
    named = {t.text for t in tokens if not any(span.start <= t.start < span.end for span in passed)}
    dropped = {type.path[0].text for type in gone} - named
    present = set()
    for use in parsed.uses:
        names = use.names or ()
        kept = [name for name in names if (name.alias or name.name).text not in dropped]
        present |= {(name.alias or name.name).text for name in kept}
        if len(kept) == len(names):
            continue
        listed = ", ".join(n.name.text + (f" as {n.alias.text}" if n.alias else "") for n in kept)
        # The line goes with its last name: no item comes before the first import, so a line end does.
        start = use.span.start if kept else use.span.start - 1
        yield start, use.span.end, f"use {_path(use)}::{{{listed}}}" if kept else ""
    for name, path in needs.items():
        if name not in present:
            before = [use for use in parsed.uses if _path(use) < path]
            at = before[-1].span.end if before else parsed.uses[0].span.start
            text = f"use {path}::{{{name}}}"
            yield at, at, f"\n{text}" if before else f"{text}\n"


def _path(use: tree.UseDecl) -> str:
    return ".".join(part.text for part in use.path)
