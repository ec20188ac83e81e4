"""What flows where in an entry: a graph of blocks and ops, read from the checked program without running it.

A call of a child block or of an op is a node; functions and methods of the same block are read through; arithmetic of
two values is a node of its own, so that residual connections show. A loop over an array of blocks is one node, which
holds its body once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from linnet.language.check.dims import Dim, DimError
from linnet.language.check.substitute import substitute, substitute_dim, substitute_value
from linnet.language.program import checked
from linnet.language.program.checked import CheckedBlock, CheckedFunction, Statement, Typed
from linnet.language.program.types import (
    BlockArrayType,
    BlockType,
    GenericValue,
    OptionalType,
    StructType,
    TensorType,
    Type,
)
from linnet.language.source import Span

# Functions call functions no deeper than this in any sensible source; what lies deeper is left out of the picture.
DEEPEST = 60
# More nodes than this are no picture; what would come after them is left out.
MOST_NODES = 4_000
SYMBOLS = {"add": "+", "sub": "\N{MINUS SIGN}", "mul": "\N{MULTIPLICATION SIGN}", "div": "\N{DIVISION SIGN}"}
# Exchange between parts of a model on several devices: with one part, their result is their argument.
PARALLEL = "std.nn.parallel"
Generics = Mapping[str, GenericValue]


@dataclass(slots=True, eq=False)
class Node:
    """A box. `kind` is input, output, block, op, join (arithmetic) or repeat (a loop's body).

    `path` is a block's path without array positions; `type` the block with its numbers, `named` with their names too,
    `block` its definition; `span` is where it is defined; `weights` are the parameters that an op is given by name.
    """

    kind: str
    label: str
    shape: str = ""
    path: tuple[str, ...] = ()
    type: str = ""
    named: str = ""
    block: CheckedBlock | None = None
    span: Span | None = None
    count: int = 1
    inner: Graph | None = None
    weights: tuple[str, ...] = ()


@dataclass(slots=True, eq=False)
class Graph:
    """Nodes in the order of the source; an edge joins two by their places in `nodes`, and has the shape that is taken:
    a reshape on the way is no node."""

    nodes: list[Node] = field(default_factory=list)
    edges: dict[tuple[int, int], str] = field(default_factory=dict)
    parent: Graph | None = None
    place: int = -1  # the node of `parent` that holds this graph
    names: Mapping[Port, str] = field(default_factory=dict)  # what values from outside are called
    _proxies: dict[Port, int] = field(default_factory=dict)

    def add(self, node: Node) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1

    def connect(self, port: Port, target: int, hint: str) -> None:
        """An edge from a value to the node `target`; a value from outside enters by an input."""
        source = port.node if port.graph is self else self._enter(port, hint)
        if source is not None and source != target:
            self.edges.setdefault((source, target), port.seen or port.shape)

    def _enter(self, port: Port, hint: str) -> int | None:
        if port not in self._proxies:
            if self.parent is None:
                return None
            self._proxies[port] = self.add(Node("input", self.names.get(port, hint), port.shape))
            self.parent.connect(replace(port, seen=""), self.place, hint)
        return self._proxies[port]


@dataclass(frozen=True, slots=True)
class Port:
    """Where a value comes from; `seen` is the shape that it is taken in, where that is another."""

    graph: Graph
    node: int
    shape: str
    seen: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class BlockRef:
    """A block at a path, its generics bound; `own` where its methods are read through."""

    block: CheckedBlock
    generics: Generics
    path: tuple[str, ...]
    own: bool = False


@dataclass(frozen=True, slots=True)
class ArrayRef:
    element: BlockRef
    count: Dim


# What an expression means here: where its value comes from (nowhere for constants and weights), or a block.
Value = tuple[Port, ...] | list["Value"] | BlockRef | ArrayRef
NOTHING: tuple[Port, ...] = ()


def entry_graph(
    entry: CheckedFunction, generics: Generics, root: CheckedBlock, is_present: Callable[[tuple[str, ...]], bool]
) -> Graph:
    """The graph of an entry. `generics` are the root's; the entry's own stay letters.

    `is_present` says whether the checkpoint has a parameter at a path without array positions, or below it.
    """
    own = {decl.name for decl in entry.generics}
    bound = {name: value for name, value in generics.items() if name not in own}
    graph = Graph()
    reader = _Reader(is_present)
    values: dict[object, Value] = {}
    for var in entry.parameters:
        shape = shape_text(var.type, bound)
        values[var] = (Port(graph, graph.add(Node("input", var.name, shape)), shape),)
    scope = _Scope(graph, bound, BlockRef(root, generics, (), own=True), values, 0)
    result = reader.body(entry.body, scope)
    target = graph.add(Node("output", "result", shape_text(entry.result, bound)))
    for port in _ports(result):
        graph.connect(port, target, "result")
    return graph


def shape_text(type: Type, generics: Generics) -> str:
    """A tensor's shape with its numbers, `[B, S, 4096]`; a scalar's dtype; empty for what is no tensor."""
    try:
        found = substitute(type, generics)
    except DimError:
        return ""
    found = found.inner if isinstance(found, OptionalType) else found
    if not isinstance(found, TensorType):
        return ""
    return f"[{', '.join(map(str, found.shape))}]" if found.shape else str(found.dtype)


@dataclass(slots=True)
class _Scope:
    """A body that is being read: the graph that its nodes go to, its generics, its block, its variables."""

    graph: Graph
    generics: Generics
    self_block: BlockRef | None
    values: dict[object, Value]
    depth: int
    hint: str = ""


@dataclass(slots=True)
class _Reader:
    is_present: Callable[[tuple[str, ...]], bool]
    count: int = 0
    # What was written to a state before, in the same graph: a value read from there comes from it.
    states: dict[tuple[Graph, tuple[str, ...], str], Value] = field(default_factory=dict)

    def body(self, statements: Sequence[Statement], scope: _Scope) -> Value:
        """What a body returns."""
        result: Value = NOTHING
        for statement in statements:
            match statement:
                case checked.Let():
                    scope.hint = statement.var.name
                    scope.values[statement.var] = self.value(statement.value, scope)
                case checked.LetTuple():
                    value = self.value(statement.value, scope)
                    items = value if isinstance(value, list) else [value] * len(statement.vars)
                    scope.values.update(zip(statement.vars, items, strict=False))
                case checked.AssignState():
                    scope.hint = statement.name
                    owner = scope.self_block.path if scope.self_block is not None else ()
                    self.states[scope.graph, owner, statement.name] = self.value(statement.value, scope)
                case checked.StaticForBlocks():
                    array = self.value(statement.array, scope)
                    if isinstance(array, ArrayRef):
                        element = BlockRef(array.element.block, array.element.generics, array.element.path, own=True)
                        scope.values[statement.var] = element
                        self.repeat(element, array.count, statement.body, scope)
                case checked.StaticForRange() | checked.For():
                    length = substitute_dim(statement.stop - statement.start, scope.generics)
                    scope.values[statement.var] = NOTHING
                    self.repeat(None, length, statement.body, scope, statement)
                case checked.While():
                    self.repeat(None, None, statement.body, scope)
                case checked.Return():
                    scope.hint = "result"
                    result = self.value(statement.value, scope)
        return result

    def repeat(
        self,
        element: BlockRef | None,
        count: Dim | None,
        body: Sequence[Statement],
        scope: _Scope,
        loop: checked.StaticForRange | checked.For | None = None,
    ) -> None:
        """A loop as one node that holds its body once; what the body assigns comes from that node after it."""
        times = count.constant if count is not None else None
        label = element.path[-1] if element is not None else "loop"
        if count is not None and times is None:
            label = f"{label} {SYMBOLS['mul']} {count}"
        node = Node("repeat", label, count=times or 1, path=element.path if element else ())
        if element is not None:
            node.block, node.span = element.block, element.block.span
            node.type, node.named = type_text(element), named_text(element)
        elif count is not None:
            node.type = f"{count} times"
        place = scope.graph.add(node)
        names = {
            port: var.name
            for var, value in scope.values.items()
            if isinstance(var, checked.LocalVar)
            for port in _ports(value)
        }
        inner = Graph(parent=scope.graph, place=place, names=names)
        node.inner = inner
        values = dict(scope.values)
        within = _Scope(inner, scope.generics, scope.self_block, values, scope.depth + 1)
        self.body(body, within)
        if isinstance(loop, checked.For) and loop.result is not None and loop.yielded is not None:
            values[loop.result] = self.value(loop.yielded, within)
        for var, value in values.items():
            # What is assigned before it is read, or declared inside, matters to nobody outside.
            if value is scope.values.get(var) or (var not in scope.values and not _is_result(loop, var)):
                continue
            shape = shape_text(var.type, scope.generics) if isinstance(var, checked.LocalVar) else ""
            name = var.name if isinstance(var, checked.LocalVar) else ""
            target = inner.add(Node("output", name, shape))
            for port in _ports(value):
                inner.connect(port, target, name)
            scope.values[var] = (Port(scope.graph, place, shape),)

    def value(self, node: Typed, scope: _Scope) -> Value:
        """What an expression means, in the shape that it has."""
        value = self.meaning(node, scope)
        if isinstance(value, tuple) and len(value) == 1 and isinstance(node.type, TensorType | OptionalType):
            shape = shape_text(node.type, scope.generics)
            # Inside index notation a value is a scalar of what is taken as a whole.
            if shape.startswith("["):
                return (replace(value[0], seen=shape),)
        return value

    def meaning(self, node: Typed, scope: _Scope) -> Value:
        match node:
            case checked.Local():
                return scope.values.get(node.var, NOTHING)
            case checked.SelfBlock():
                return scope.self_block or NOTHING
            case checked.SubBlock():
                return self.child(node, scope)
            case checked.SubElement():
                array = self.value(node.array, scope)
                return array.element if isinstance(array, ArrayRef) else NOTHING
            case checked.SomeValue():
                return self.value(node.value, scope)
            case checked.StateValue():
                block = self.value(node.object, scope)
                owner_path = block.path if isinstance(block, BlockRef) else ()
                return self.states.get((scope.graph, owner_path, node.name), NOTHING)
            case checked.Call():
                return self.call(node, scope)
            case checked.MethodCall():
                return self.method(node, scope)
            case checked.Primitive():
                values = [self.value(arg, scope) for arg in node.args]
                return self.joined(SYMBOLS.get(node.op, node.op), values, node, scope)
            case checked.Slice():
                extra = [item.index for item in node.items if isinstance(item, checked.At)]
                parts = [node.value, *(index for index in extra if not isinstance(index, Dim))]
                return self.joined("slice", [self.value(part, scope) for part in parts], node, scope)
            case checked.Build() | checked.Reduce():
                return self.joined(scope.hint, [self.value(node.body, scope)], node, scope)
            case checked.Access():
                own = [position for position in node.positions if isinstance(position, checked.TypedNode)]
                return self.joined("gather", [self.value(part, scope) for part in (node.value, *own)], node, scope)
            case checked.IfValue():
                parts = [node.condition, node.then, node.otherwise]
                return self.joined("if", [self.value(part, scope) for part in parts], node, scope)
            case checked.MatchOptional():
                return self.optional(node, scope)
            case checked.MatchEnum():
                parts = [node.subject, *node.arms.values()]
                return self.joined("match", [self.value(part, scope) for part in parts], node, scope)
            case checked.TupleValue():
                return [self.value(item, scope) for item in node.items]
            case checked.StructValue():
                return [self.value(item, scope) for item in node.fields.values()]
            case checked.FieldValue():
                whole, owner = self.value(node.object, scope), node.object.type
                if isinstance(whole, list) and isinstance(owner, StructType):
                    names = [name for name, _ in owner.fields]
                    return whole[names.index(node.name)]
                return whole
        return NOTHING

    def child(self, node: checked.SubBlock, scope: _Scope) -> Value:
        owner = self.value(node.object, scope)
        if not isinstance(owner, BlockRef):
            return NOTHING
        declared = owner.block.members[node.name].type
        type = substitute(declared.inner if isinstance(declared, OptionalType) else declared, owner.generics)
        path = (*owner.path, node.name)
        if isinstance(type, BlockArrayType):
            return ArrayRef(_reference(type.inner, path), type.count)
        return _reference(type, path) if isinstance(type, BlockType) else NOTHING

    def optional(self, node: checked.MatchOptional, scope: _Scope) -> Value:
        subject = node.subject
        value = self.value(subject, scope)
        if isinstance(subject, checked.Weight):
            owner = self.value(subject.object, scope)
            there = isinstance(owner, BlockRef) and self.is_present((*owner.path, subject.name))
        elif isinstance(value, BlockRef):
            there = self.is_present(value.path)
        else:
            there = bool(_ports(value))
        if there and node.var is not None:
            scope.values[node.var] = value
        return self.value(node.some if there else node.none, scope)

    def call(self, node: checked.Call, scope: _Scope) -> Value:
        function = node.function
        hint = scope.hint
        args = [self.value(arg, scope) for arg in node.args]
        if function.kind != "op":
            return self.through(function, self.generics(node.generics, scope), None, args, scope)
        scope.hint = hint
        if not any(map(_ports, args)):
            return NOTHING
        if function.module == PARALLEL and _same_type(node, scope.generics):
            return args[0]
        weights = tuple(arg.name for arg in node.args if isinstance(arg, checked.Weight))
        made = Node("op", function.name, shape_text(node.type, scope.generics), span=function.span, weights=weights)
        return self.place(made, args, node, scope)

    def method(self, node: checked.MethodCall, scope: _Scope) -> Value:
        owner = self.value(node.object, scope)
        args = [self.value(arg, scope) for arg in node.args]
        if not isinstance(owner, BlockRef):
            return self.joined("call", args, node, scope)
        generics = {**owner.generics, **self.generics(node.generics, scope)}
        if owner.own:
            return self.through(node.method, generics, owner, args, scope)
        made = Node(
            "block",
            owner.path[-1],
            shape_text(node.type, scope.generics),
            path=owner.path,
            type=type_text(owner),
            named=named_text(owner),
            block=owner.block,
            span=owner.block.span,
        )
        result = self.place(made, args, node, scope)
        self.fill(made, node.method, generics, owner, args, scope)
        return result

    def fill(
        self,
        node: Node,
        method: CheckedFunction,
        generics: Generics,
        owner: BlockRef,
        args: Sequence[Value],
        scope: _Scope,
    ) -> None:
        """The inside of a block's node, where it has blocks of its own or more than one op."""
        if scope.depth >= DEEPEST or self.count >= MOST_NODES:
            return
        inner = Graph()
        values: dict[object, Value] = {}
        for var, arg in zip(method.parameters, args, strict=True):
            shape = shape_text(var.type, generics)
            if _ports(arg):
                values[var] = (Port(inner, inner.add(Node("input", var.name, shape)), shape),)
        own = BlockRef(owner.block, owner.generics, owner.path, own=True)
        result = self.body(method.body, _Scope(inner, generics, own, values, scope.depth + 1))
        parts = [item for item in inner.nodes if item.kind in ("block", "op", "repeat")]
        if len(parts) > 1 or any(item.kind != "op" for item in parts):
            target = inner.add(Node("output", "result", shape_text(method.result, generics)))
            for port in _ports(result):
                inner.connect(port, target, "result")
            node.inner = inner

    def through(
        self,
        function: CheckedFunction,
        generics: Generics,
        owner: BlockRef | None,
        args: Sequence[Value],
        scope: _Scope,
    ) -> Value:
        """A function that is read through: its nodes are the caller's."""
        if scope.depth >= DEEPEST or self.count >= MOST_NODES:
            return tuple(dict.fromkeys(port for arg in args for port in _ports(arg)))
        values: dict[object, Value] = dict(zip(function.parameters, args, strict=True))
        return self.body(function.body, _Scope(scope.graph, generics, owner, values, scope.depth + 1))

    def joined(self, label: str, values: Sequence[Value], node: Typed, scope: _Scope) -> Value:
        """One value from several: where they come from different places, a node that joins them."""
        ports = tuple(dict.fromkeys(port for value in values for port in _ports(value)))
        if len(ports) < 2:
            return ports
        if label in SYMBOLS.values() or not isinstance(node, checked.Primitive):
            kind = "join" if label in SYMBOLS.values() else "op"
            shape = shape_text(node.type, scope.generics)
            # Inside index notation a value is a scalar; what it builds is joined as a whole.
            if isinstance(node.type, TensorType) and not node.type.shape and not isinstance(node, checked.Build):
                return ports
            return self.place(Node(kind, label or "index", shape), values, node, scope)
        shape = shape_text(node.type, scope.generics)
        return self.place(Node("op", label, shape), values, node, scope) if shape.startswith("[") else ports

    def place(self, made: Node, args: Sequence[Value], node: Typed, scope: _Scope) -> Value:
        """Add a node that takes `args`; its value, or one for each item where it is a tuple."""
        self.count += 1
        place = scope.graph.add(made)
        for arg in args:
            for port in _ports(arg):
                scope.graph.connect(port, place, scope.hint)
        items = getattr(node.type, "items", None)
        if items:
            return [(Port(scope.graph, place, shape_text(item, scope.generics)),) for item in items]
        return (Port(scope.graph, place, made.shape),)

    def generics(self, given: Generics, scope: _Scope) -> dict[str, GenericValue]:
        return {name: substitute_value(value, scope.generics) for name, value in given.items()}


def _reference(type: BlockType, path: tuple[str, ...]) -> BlockRef:
    generics = {decl.name: value for decl, value in zip(type.block.generics, type.args, strict=True)}
    return BlockRef(type.block, generics, path)


def type_text(owner: BlockRef) -> str:
    """A block with its numbers, `Linear<4096, 1024, bf16>`."""
    return str(BlockType(owner.block, tuple(owner.generics[decl.name] for decl in owner.block.generics)))


def named_text(owner: BlockRef) -> str:
    """A block with the names of its generics, `Linear<In = 4096, Out = 1024, T = bf16>`."""
    given = ", ".join(f"{decl.name} = {owner.generics[decl.name]}" for decl in owner.block.generics)
    return f"{owner.block.name}<{given}>" if given else owner.block.name


def _ports(value: Value) -> tuple[Port, ...]:
    if isinstance(value, tuple):
        return value
    if isinstance(value, list):
        return tuple(dict.fromkeys(port for item in value for port in _ports(item)))
    return NOTHING


def _same_type(call: checked.Call, generics: Generics) -> bool:
    """Whether a call's result has its first argument's type."""
    try:
        return substitute(call.args[0].type, generics) == substitute(call.type, generics)
    except (DimError, IndexError):
        return False


def _is_result(loop: object, var: object) -> bool:
    return isinstance(loop, checked.For) and loop.result is var
