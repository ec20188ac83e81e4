"""A rewritten graph as a straight-line `torch.fx.GraphModule`.

Common primitives become torch's own calls, the others and the kernels calls of functions named after them. Control flow
is a call of a function that runs its regions, each a module of its own. What depends on no input, weight or state is
computed here, once.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx

from linnet.language.program.core import CoreNode, Graph, Value
from linnet.language.program.types import FLOATS
from linnet.runner.linears import LinearWeight
from linnet.runner.plan import GIVEN, fixed_nodes
from linnet.runner.rewriting import live
from linnet.runner.torch.dtypes import BITS, CARRIED
from linnet.runner.torch.kernels import Kernel
from linnet.runner.torch.primitives import Target, check_positions, primitive

# Where an argument comes from: ("input", position), ("param" or "state", path), ("packed", (weight, part)) or
# ("constant", position).
Source = tuple[str, Any]
Function = Callable[..., Any]


class InterpretedError(Exception):
    """A graph that only the interpreter runs: control flow whose regions read weights or states of their own."""


@dataclass
class Straight:
    """A graph as straight-line code: `forward` takes the values of `sources` and returns its outputs' tuple.

    `code` is the Python of it. `module` is None once nobody needs its graph, which is megabytes for a deep model.
    """

    module: fx.GraphModule | None
    forward: Function
    code: str
    sources: list[Source]
    constants: list[Tensor]

    def release(self) -> None:
        """Keep the code only."""
        if self.module is not None:
            # The code reads nothing of its module.
            self.forward = partial(type(self.module).forward, None)
            self.module = None


@dataclass(frozen=True)
class Guard:
    """A value that must lie in an axis before the entry runs; see `kernels.Bound`."""

    index: Value
    size: int
    label: str
    span: int
    op: str | None


@dataclass
class Emitter:
    """Emits graphs for one device; kernels by op identity. `on_host`: Python numbers are read from tensors."""

    device: torch.device
    kernels: dict[str, Kernel]
    on_host: bool

    def emit(self, graph: Graph, guarded: set[Value] | None = None) -> Straight:
        """The graph as code. What indexes by a value of `guarded` is not checked again: those are checked before."""
        return _Emission(self, graph, guarded or set()).run()

    def collect_guards(self, graph: Graph) -> list[Guard]:
        """What indexes in the graph, where it follows from its inputs alone, each once."""
        known = set(graph.inputs)
        for node in graph.nodes:
            if node.op not in GIVEN and known.issuperset(node.inputs):
                known.update(node.outputs)
        found = dict.fromkeys(guard for node in graph.nodes for guard in self.guards_of(node) if guard.index in known)
        return list(found)

    def guards_of(self, node: CoreNode) -> list[Guard]:
        bounds = node.attributes.get("bounds")
        if bounds is not None:
            return [Guard(node.inputs[i], size, label, span, op) for i, size, label, span, op in bounds]
        if node.op == "call":
            kernel = self.kernels[node.attributes["op"]]
            names = list(node.attributes["parameters"])
            return [
                Guard(node.inputs[names.index(b.index)], b.size, b.label, b.span, kernel.identity)
                for b in kernel.bounds(node)
            ]
        if node.op == "gather" and node.inputs[1].spec.dtype not in ("u16", "u32"):
            shape = node.inputs[0].spec.shape
            label = str(node.attributes.get("label", ""))
            axes = node.attributes["axes"]
            op = node.attributes.get("within")
            return [Guard(index, shape[a], label, 1, op) for a, index in zip(axes, node.inputs[1:], strict=True)]
        return []

    def may_fail(self, graph: Graph, guards: Sequence[Guard]) -> bool:
        """Whether some value could still be refused while the graph runs, its guards having been checked."""
        guarded = {guard.index for guard in guards}
        constants = {n.outputs[0]: n.attributes["value"] for n in graph.nodes if n.op == "constant"}
        for node in graph.nodes:
            if any(guard.index not in guarded for guard in self.guards_of(node)):
                return True
            if node.op in ("div", "rem") and node.outputs[0].spec.dtype not in FLOATS:
                if not constants.get(node.inputs[1]):
                    return True
            elif node.op == "gather" and not self.guards_of(node):
                return True
            elif node.op == "call":
                if self.kernels[node.attributes["op"]].raises:
                    return True
            elif any(self.may_fail(region, ()) for region in node.regions):
                return True
        return False


class _Emission:
    def __init__(self, emitter: Emitter, graph: Graph, guarded: set[Value]) -> None:
        self.emitter = emitter
        self.graph = graph
        self.guarded = guarded
        self.code = fx.Graph()
        self.values: dict[Value, fx.Node] = {}
        self.numbers: dict[Value, Any] = {}
        self.sources: list[Source] = []
        self.constants: list[Tensor] = []
        self.scalars = {n.outputs[0]: n.attributes["value"] for n in graph.nodes if n.op == "constant"}
        self.fixed = self._evaluate_fixed()

    def run(self) -> Straight:
        for i, value in enumerate(self.graph.inputs):
            self.values[value] = self._placeholder(("input", i), value.name or "x")
        moving = [n for n in self.graph.nodes if not any(value in self.fixed for value in n.outputs)]
        for node in moving:
            # Placeholders come first in the code, whatever the order in which they are needed.
            if node.op in ("param", "state.read"):
                kind = "param" if node.op == "param" else "state"
                path = node.attributes["path"]
                self.values[node.outputs[0]] = self._placeholder((kind, path), path)
            elif node.op == "packed":
                weight: LinearWeight = node.attributes["weight"]
                for i, value in enumerate(node.outputs):
                    self.values[value] = self._placeholder(("packed", (weight, i)), weight.weights[0])
        self._place_constants(moving)
        for node in moving:
            if node.op not in GIVEN:
                self._emit(node)
        written = [node for node in moving if node.op == "state.write"]
        results = [*self.graph.outputs, *(node.inputs[0] for node in written)]
        self.code.output(tuple(self.values[value] for value in results))
        module = fx.GraphModule(torch.nn.Module(), self.code)
        return Straight(module, module.forward, str(module.code), self.sources, self.constants)

    def _placeholder(self, source: Source, hint: str) -> fx.Node:
        self.sources.append(source)
        name = "".join(c if c.isalnum() else "_" for c in hint)
        return self.code.placeholder(f"{name}_{len(self.sources)}")

    def _evaluate_fixed(self) -> dict[Value, Tensor]:
        """The values of nodes that depend on nothing which changes."""
        chosen = fixed_nodes(self.graph)
        fixed = [node for node in self.graph.nodes if node in chosen]
        made: dict[Value, Any] = {}
        for node in fixed:
            results = self._function(node, checked=True)(*[made[value] for value in node.inputs])
            made.update(zip(node.outputs, [results] if _gives_tensor(node) else results, strict=True))
        return made

    def _place_constants(self, moving: Sequence[CoreNode]) -> None:
        read = {value for node in moving for value in node.inputs} | set(self.graph.outputs)
        for value, tensor in self.fixed.items():
            if value in read:
                self.values[value] = self._placeholder(("constant", len(self.constants)), value.name or "constant")
                self.constants.append(tensor)

    def _emit(self, node: CoreNode) -> None:
        inputs: list[Any] = [self.values[value] for value in node.inputs]
        guards = self.emitter.guards_of(node)
        for guard in guards:
            if guard.index not in self.guarded:
                arguments = (self.values[guard.index], guard.size, guard.label, guard.op, guard.span)
                self.code.call_function(check_positions, arguments)
        plain = _plain(node)
        if plain is not None:
            made = plain(self.code, inputs)
        elif node.op == "native":
            for i in node.attributes["numbers"]:
                inputs[i] = self._number(node.inputs[i])
            made = self.code.call_function(node.attributes["function"], (*inputs, *node.attributes["constants"]))
        else:
            function = self._function(node, checked=not guards)
            made = self.code.call_function(_named(function, node), tuple(inputs))
        if _gives_tensor(node):
            self.values[node.outputs[0]] = made
            return
        for i, value in enumerate(node.outputs):
            self.values[value] = self.code.call_function(operator.getitem, (made, i))

    def _number(self, value: Value) -> Any:
        """The one element of `value` as a Python number: read at each run, once, or here where it is fixed."""
        if value in self.fixed:
            return self.fixed[value].item()
        if not self.emitter.on_host:
            return self.values[value]
        if value not in self.numbers:
            self.numbers[value] = self.code.call_method("item", (self.values[value],))
        return self.numbers[value]

    def _function(self, node: CoreNode, *, checked: bool) -> Function:
        target = Target(self.emitter.device, self.scalars, checked=checked)
        if node.op == "native":
            constants = node.attributes["constants"]
            return lambda *inputs: node.attributes["function"](*inputs, *constants)
        if node.op == "call":
            prepared = self.emitter.kernels[node.attributes["op"]].prepare(node, target)
            if prepared is None:
                raise ValueError(f"no kernel for {node.attributes['op']}")
            return prepared
        if node.regions:
            return self._control(node)
        return primitive(node, target)

    def _control(self, node: CoreNode) -> Function:
        regions = [_runner(self.emitter.emit(region)) for region in node.regions]
        match node.op:
            case "while":
                return _while(regions[0], regions[1], node.attributes["carried"])
            case "for":
                return _for(regions[0], node, self.emitter.device)
        then, otherwise = regions
        return lambda condition, *captured: (then if bool(condition) else otherwise)(*captured)


def _gives_tensor(node: CoreNode) -> bool:
    """Whether a node's function gives its one output as it is; control flow gives a sequence, even of one."""
    return len(node.outputs) == 1 and (node.op == "call" or not node.regions)


def _runner(straight: Straight) -> Function:
    """A region's code with its constants."""
    kinds = {kind for kind, _ in straight.sources}
    if not kinds <= {"input", "constant"}:
        raise InterpretedError("a region reads weights or states of its own")
    constants, forward = straight.constants, straight.forward
    return lambda *inputs: forward(*inputs, *constants)


def _while(condition: Function, body: Function, carried: int) -> Function:
    def run(*values: Tensor) -> Sequence[Tensor]:
        captured = values[carried:]
        while bool(condition(*values)[0]):
            values = (*body(*values), *captured)
        return values[:carried]

    return run


def _for(body: Function, node: CoreNode, device: torch.device) -> Function:
    start, stop = node.attributes["start"], node.attributes["stop"]
    carried = node.attributes.get("carried", len(node.inputs))
    stacks = [value.spec for value in node.outputs[carried:]]

    def run(*values: Tensor) -> Sequence[Tensor]:
        captured = values[carried:]
        passes: list[Sequence[Tensor]] = []
        for i in range(start, stop):
            counter = torch.full((), i, dtype=torch.int64, device=device)
            results = body(counter, *values)
            values = (*results[:carried], *captured)
            passes.append(results[carried:])
        if not passes:
            none = [torch.empty(spec.shape, dtype=CARRIED[spec.dtype], device=device) for spec in stacks]
            return [*values[:carried], *none]
        return [*values[:carried], *(torch.stack(column) for column in zip(*passes, strict=True))]

    return run


def _named(function: Function, node: CoreNode) -> Function:
    """`function` under a name that the code can show."""
    name = str(node.attributes.get("op", node.op)).rpartition("::")[2]
    if getattr(function, "__name__", "") == name:
        return function

    def call(*inputs: Any) -> Any:
        return function(*inputs)

    call.__name__ = call.__qualname__ = name
    return call


Plain = Callable[[fx.Graph, list[Any]], fx.Node]
_DIRECT: dict[str, Function] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "eq": torch.eq,
    "ne": torch.ne,
    "and": torch.bitwise_and,
    "or": torch.bitwise_or,
    "xor": torch.bitwise_xor,
    "select": torch.where,
    **{name: getattr(torch, name) for name in "neg exp log sqrt rsqrt sin cos tanh".split()},
}


def _plain(node: CoreNode) -> Plain | None:
    """torch's own call for a primitive that is one, whatever the dtype."""
    if node.op in _DIRECT:
        return lambda code, inputs: code.call_function(_DIRECT[node.op], tuple(inputs))
    spec = node.outputs[0].spec if node.outputs else None
    if spec is None:
        return None
    match node.op:
        case "reshape":
            return lambda code, inputs: code.call_method("reshape", (inputs[0], spec.shape))
        case "broadcast":
            return lambda code, inputs: code.call_method("expand", (inputs[0], spec.shape))
        case "permute":
            axes = tuple(node.attributes["axes"])
            return lambda code, inputs: code.call_method("permute", (inputs[0], axes))
        case "concat":
            axis = node.attributes["axis"]
            return lambda code, inputs: code.call_function(torch.cat, (tuple(inputs), axis))
        case "cast" if not {spec.dtype, node.inputs[0].spec.dtype} & BITS.keys():
            return lambda code, inputs: code.call_method("to", (inputs[0], CARRIED[spec.dtype]))
    return None


def check(guards: Sequence[Guard], values: Sequence[Tensor]) -> None:
    """Raise IndexRangeError unless the guards' values are in range."""
    for guard, value in zip(guards, values, strict=True):
        check_positions(value, guard.size, guard.label, guard.op, guard.span)


def guard_graph(graph: Graph, guards: Sequence[Guard]) -> Graph:
    """What the guards' values need of a graph, as a graph of its own."""
    outputs = tuple(guard.index for guard in guards)
    return Graph(graph.inputs, live(graph.nodes, outputs), outputs)
