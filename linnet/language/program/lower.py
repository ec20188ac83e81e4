"""From a checked entry to Core IR, by evaluating its typed tree with concrete generics.

Functions are inlined, `static for` is unrolled, blocks, optionals and enums are resolved; ops stay as calls that
carry their body.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from linnet.language.program.checked import (
    Build,
    Call,
    CheckedFunction,
    DimValue,
    EnumValue,
    FieldValue,
    IfValue,
    Literal,
    Local,
    LocalVar,
    MatchEnum,
    MatchOptional,
    MethodCall,
    NoneValue,
    Primitive,
    Reduce,
    SelfBlock,
    Slice,
    SomeValue,
    Statement,
    StateValue,
    StructValue,
    SubBlock,
    SubElement,
    TupleValue,
    Typed,
    TypedNode,
    Weight,
)
from linnet.language.program.core import CoreNode, EntryGraph, EntryInput, Graph, Value
from linnet.language.program.environment import Environment, parameter_values
from linnet.language.program.fold import Number, literal, wrap
from linnet.language.program.instances import Instance, InstanceArray, Instances
from linnet.language.program.lower_builder import Builder, EntryBuilder
from linnet.language.program.lower_flow import lower_if, run_statements
from linnet.language.program.lower_index import lower_build, lower_reduce
from linnet.language.program.lower_primitives import lower_primitive, lower_slice
from linnet.language.program.lower_values import (
    ABSENT,
    Absent,
    Lowered,
    LowerError,
    Variant,
    flatten,
    leaf_names,
    rebuild,
    result_tree,
    structure_key,
)
from linnet.language.program.passes import simplify
from linnet.language.program.types import INTEGERS, OptionalType, StructType, TensorType, TupleType, Type


@dataclass(slots=True)
class Frame:
    """One function being evaluated."""

    env: Environment
    instance: Instance | None
    locals: dict[LocalVar, Lowered] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OpBody:
    """An op's body for one set of generics: the graph, and the structure of its result."""

    graph: Graph
    result: Lowered


# By op, environment and structure of the arguments.
OpBodies = dict[tuple[CheckedFunction, Environment, object], OpBody]


def lower_entry(
    entry: CheckedFunction,
    root: Instance,
    env: Environment,
    instances: Instances,
    bodies: OpBodies,
    present: frozenset[str],
    given: frozenset[str] = frozenset(),
) -> EntryGraph:
    """The Core IR of `entry` of the block `root`, simplified. Raises LowerError.

    `env` holds the generics of the block and the entry. `present` are the paths of the optional weights that exist,
    `given` the names of the optional inputs that are passed. `bodies` keeps op bodies from one entry to the next.
    """
    lowerer = Lowerer(instances, bodies, present)
    builder = EntryBuilder(lowerer.numbers, lowerer.producers)
    lowerer.builder = builder
    args = [
        ABSENT if isinstance(var.type, OptionalType) and var.name not in given else placeholder(var.name, var.type, env)
        for var in entry.parameters
    ]
    try:
        result, outputs = result_tree(lowerer.inline(entry, env, root, args))
    except RecursionError:
        raise LowerError(f"`{entry.name}`: calls and expressions nest too deeply; split the longest chain") from None
    builder.finish_states()
    inputs = tuple(leaf for arg in args for leaf in flatten(arg))
    graph = Graph(inputs, builder.nodes, outputs)
    simplify(graph)
    own = parameter_values(entry.generics, env)
    generics = {name: value for name, value in own.items() if not isinstance(value, tuple)}
    return EntryGraph(entry.name, generics, tuple(EntryInput(v.name, v.spec) for v in inputs), result, graph)


def placeholder(name: str, type: Type, env: Environment) -> Lowered:
    """Graph inputs for a parameter: `p`, or `p.0` and `p.field` inside it."""
    if isinstance(type, OptionalType):
        type = type.inner
    if isinstance(type, TensorType):
        return Value(env.spec(type), name)
    if isinstance(type, TupleType):
        return tuple(placeholder(f"{name}.{i}", item, env) for i, item in enumerate(type.items))
    if isinstance(type, StructType):
        return {key: placeholder(f"{name}.{key}", item, env) for key, item in type.fields}
    raise LowerError(f"input `{name}` of type {type} cannot come from outside; an entry takes tensors")


class Lowerer:
    """The evaluation of one entry: where it is (`frame`) and what it builds (`builder`)."""

    def __init__(self, instances: Instances, bodies: OpBodies, present: frozenset[str]) -> None:
        self.instances = instances
        self.bodies = bodies
        self.present = present
        self.numbers: dict[Value, Number] = {}
        self.producers: dict[Value, CoreNode] = {}
        self.unrolled = 0
        self.builder = Builder(self.numbers, self.producers)
        self.frame = Frame(Environment({}), None)
        self._handlers: dict[type[Any], Callable[[Any], Lowered]] = {
            Primitive: lambda node: lower_primitive(self, node),
            Local: lambda node: self.frame.locals[node.var],
            Literal: self._literal,
            DimValue: self._dim_value,
            Call: self._call,
            MethodCall: self._method_call,
            Build: lambda node: lower_build(self, node),
            Reduce: lambda node: lower_reduce(self, node),
            Slice: lambda node: lower_slice(self, node),
            Weight: self._weight,
            StateValue: self._state,
            SelfBlock: lambda node: self.own_instance(),
            SubBlock: self._sub_block,
            SubElement: self._sub_element,
            NoneValue: lambda node: ABSENT,
            SomeValue: lambda node: self.lower(node.value),
            IfValue: lambda node: lower_if(self, node),
            MatchOptional: lambda node: self.lower(self.optional_arm(node)),
            MatchEnum: lambda node: self.lower(self.enum_arm(node)),
            EnumValue: lambda node: Variant(node.variant),
            TupleValue: lambda node: tuple(self.lower(item) for item in node.items),
            StructValue: lambda node: {name: self.lower(item) for name, item in node.fields.items()},
            FieldValue: self._field,
        }

    def lower(self, node: Typed) -> Lowered:
        """The value of an expression."""
        return self._handlers[type(node)](node)

    def tensor(self, node: Typed) -> Value:
        """The value of an expression of tensor type."""
        value = self._handlers[type(node)](node)
        assert isinstance(value, Value), f"{type(node).__name__} is no tensor"
        return value

    def run(self, statements: Iterable[Statement]) -> Lowered | None:
        """Evaluate statements in the current frame; what they return, if they do."""
        return run_statements(self, statements)

    def inline(
        self, function: CheckedFunction, env: Environment, instance: Instance | None, args: Iterable[Lowered]
    ) -> Lowered:
        """The value of a call: the body evaluated in a frame of its own."""
        caller = self.frame
        self.frame = Frame(env, instance, dict(zip(function.parameters, args, strict=True)))
        result = self.run(function.body)
        self.frame = caller
        assert result is not None, f"{function.identity} returns nothing"
        return result

    def own_instance(self) -> Instance:
        assert self.frame.instance is not None
        return self.frame.instance

    def optional_arm(self, node: MatchOptional) -> Typed:
        """The arm that an optional selects, its binding set."""
        subject = self.lower(node.subject)
        if subject is ABSENT:
            return node.none
        if node.var is not None:
            self.frame.locals[node.var] = subject
        return node.some

    def enum_arm(self, node: MatchEnum) -> Typed:
        subject = self.lower(node.subject)
        assert isinstance(subject, Variant)
        return node.arms[subject.name]

    def _literal(self, node: Literal) -> Lowered:
        if isinstance(node.value, str):
            return node.value
        self.builder.span = node.span
        dtype = self.frame.env.node_spec(node).dtype
        return self.builder.constant(literal(node.value, dtype), dtype)

    def _dim_value(self, node: DimValue) -> Lowered:
        self.builder.span = node.span
        dtype = self.frame.env.node_spec(node).dtype
        value = self.frame.env.dim(node.dim)
        if dtype in INTEGERS and value != wrap(value, dtype):
            raise LowerError(f"`{node.dim}` is {value:,}, which does not fit `{dtype}`", node.span)
        return self.builder.constant(literal(value, dtype), dtype)

    def _field(self, node: FieldValue) -> Lowered:
        value = self.lower(node.object)
        assert isinstance(value, dict)
        return value[node.name]

    def _instance(self, node: Typed) -> Instance:
        instance = self.lower(node)
        assert isinstance(instance, Instance)
        return instance

    def _weight(self, node: Weight) -> Lowered:
        path = self._instance(node.object).member_path(node.name)
        if isinstance(node.type, OptionalType) and path not in self.present:
            return ABSENT
        self.builder.span = node.span
        return self.builder.parameter(path, self.frame.env.node_spec(node))

    def _state(self, node: StateValue) -> Lowered:
        path = self._instance(node.object).member_path(node.name)
        self.builder.span = node.span
        return self.builder.read_state(path, self.frame.env.node_spec(node))

    def _sub_block(self, node: SubBlock) -> Lowered:
        child = self.instances.child(self._instance(node.object), node.name)
        if isinstance(node.type, OptionalType) and not self.instances.is_present(child, self.present):
            return ABSENT
        return child

    def _sub_element(self, node: SubElement) -> Lowered:
        array = self.lower(node.array)
        assert isinstance(array, InstanceArray)
        return array[self.frame.env.dim(node.index)]

    def _call(self, node: Call) -> Lowered:
        function = node.function
        env = self._environment(node, function, node.generics, {})
        args = self._arguments(node.args, function, env, None)
        if function.kind != "op":
            return self.inline(function, env, None, args)
        self.builder.span = node.span
        return self._call_op(function, env, args)

    def _method_call(self, node: MethodCall) -> Lowered:
        instance = self._instance(node.object)
        env = self._environment(node, node.method, node.generics, instance.env.generics)
        args = self._arguments(node.args, node.method, env, instance)
        return self.inline(node.method, env, instance, args)

    def _environment(
        self, node: TypedNode, function: CheckedFunction, generics: dict[str, Any], outer: dict[str, Any]
    ) -> Environment:
        # The block of a method call follows from the caller's generics, so the node alone is the key.
        calls = self.frame.env.calls
        env = calls.get(node)
        if env is None:
            own = {decl.name: self.frame.env.value(generics[decl.name]) for decl in function.generics}
            env = calls[node] = self.instances.environment(function, {**outer, **own})
        return env

    def _arguments(
        self, nodes: Iterable[Typed], function: CheckedFunction, env: Environment, instance: Instance | None
    ) -> list[Lowered]:
        args: list[Lowered] = []
        for node, default in zip(nodes, function.defaults, strict=True):
            if node is default:
                # A default is written in the callee's generics.
                caller = self.frame
                self.frame = Frame(env, instance)
                args.append(self.lower(node))
                self.frame = caller
            else:
                args.append(self.lower(node))
        return args

    def _call_op(self, op: CheckedFunction, env: Environment, args: list[Lowered]) -> Lowered:
        span = self.builder.span
        body = self._op_body(op, env, args)
        names = [name for var, arg in zip(op.parameters, args, strict=True) for name in leaf_names(var.name, arg)]
        attributes: dict[str, Any] = {
            "op": op.identity,
            "parameters": tuple(names),
            "generics": parameter_values(op.generics, env),
        }
        enums = {var.name: arg.name for var, arg in zip(op.parameters, args, strict=True) if isinstance(arg, Variant)}
        if enums:
            attributes["enums"] = enums
        self.builder.span = span
        inputs = [leaf for arg in args for leaf in flatten(arg)]
        specs = [output.spec for output in body.graph.outputs]
        outputs = self.builder.emit("call", inputs, specs, attributes, (body.graph,))
        return rebuild(body.result, list(outputs))

    def _op_body(self, op: CheckedFunction, env: Environment, args: list[Lowered]) -> OpBody:
        key = (op, env, structure_key(tuple(args)))
        known = self.bodies.get(key)
        if known is not None:
            return known
        inside: list[Lowered] = [
            arg if isinstance(arg, Absent) else self._body_input(var, arg)
            for var, arg in zip(op.parameters, args, strict=True)
        ]
        caller, self.builder = self.builder, Builder(self.numbers, self.producers)
        result = self.inline(op, env, None, inside)
        inputs = tuple(leaf for arg in inside for leaf in flatten(arg))
        graph = Graph(inputs, self.builder.nodes, tuple(flatten(result)))
        self.builder = caller
        simplify(graph)
        body = self.bodies[key] = OpBody(graph, result)
        return body

    def _body_input(self, var: LocalVar, arg: Lowered) -> Lowered:
        names = leaf_names(var.name, arg)
        return rebuild(arg, [Value(leaf.spec, name) for leaf, name in zip(flatten(arg), names, strict=True)])
