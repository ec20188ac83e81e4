"""Block instances: a block with concrete generics at a path, and the weights and states below it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from linnet.language.program.checked import CheckedBlock, CheckedFunction, CheckedMember
from linnet.language.program.core import TensorSpec
from linnet.language.program.environment import Concrete, Environment
from linnet.language.program.manifest import ManifestEntry
from linnet.language.program.types import BlockArrayType, BlockType, OptionalType


@dataclass(frozen=True, slots=True, eq=False)
class Instance:
    """One block of the tree. `path` is empty for the root, else what its members' paths begin with."""

    block: CheckedBlock
    env: Environment
    path: str

    def member_path(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name


@dataclass(frozen=True, slots=True, eq=False)
class InstanceArray:
    """A block array; element `i` lies at `path.i`."""

    block: CheckedBlock
    env: Environment
    path: str
    count: int

    def __getitem__(self, index: int) -> Instance:
        return Instance(self.block, self.env, f"{self.path}.{index}")


class Instances:
    """The environments of a bound program, one for each block or function and each set of its generics."""

    def __init__(self) -> None:
        self._environments: dict[tuple[object, ...], Environment] = {}
        self._counts: dict[Environment, int] = {}
        self._weights: dict[Environment, tuple[ManifestEntry, ...]] = {}
        self._states: dict[Environment, tuple[tuple[str, TensorSpec], ...]] = {}

    def environment(self, owner: CheckedBlock | CheckedFunction, generics: dict[str, Concrete]) -> Environment:
        """The shared environment of `owner` with these generics, given in declaration order."""
        key = (owner, *generics.values())
        env = self._environments.get(key)
        if env is None:
            env = self._environments[key] = Environment(generics)
        return env

    def child(self, parent: Instance, name: str) -> Instance | InstanceArray:
        """Child `name`, present or not."""
        type = parent.block.members[name].type
        if isinstance(type, OptionalType):
            type = type.inner
        path = parent.member_path(name)
        if isinstance(type, BlockArrayType):
            env = self.environment(type.inner.block, parent.env.block_arguments(type.inner))
            return InstanceArray(type.inner.block, env, path, parent.env.dim(type.count))
        assert isinstance(type, BlockType)
        return Instance(type.block, self.environment(type.block, parent.env.block_arguments(type)), path)

    def count(self, block: CheckedBlock, env: Environment) -> int:
        """How many blocks there are, `block` and all below it."""
        known = self._counts.get(env)
        if known is None:
            known = 1
            for member in block.members.values():
                if member.kind == "sub":
                    child = self.child(Instance(block, env, ""), member.name)
                    copies = child.count if isinstance(child, InstanceArray) else 1
                    known += copies * self.count(child.block, child.env) if copies else 0
            self._counts[env] = known
        return known

    def weights(self, block: CheckedBlock, env: Environment) -> tuple[ManifestEntry, ...]:
        """Every weight of a block and below it in declaration order, with paths relative to the block."""
        known = self._weights.get(env)
        if known is None:
            known = self._weights[env] = tuple(self._list_weights(Instance(block, env, "")))
        return known

    def _list_weights(self, instance: Instance) -> Iterator[ManifestEntry]:
        for member in instance.block.members.values():
            optional = isinstance(member.type, OptionalType)
            if member.kind in ("param", "buffer"):
                yield _entry(instance, member, optional)
            for child in self._children(instance, member):
                for entry in self.weights(child.block, child.env):
                    yield replace(entry, path=f"{child.path}.{entry.path}", optional=optional or entry.optional)

    def states(self, block: CheckedBlock, env: Environment) -> tuple[tuple[str, TensorSpec], ...]:
        """Every state of a block and below it in declaration order, with paths relative to the block."""
        known = self._states.get(env)
        if known is None:
            known = self._states[env] = tuple(self._list_states(Instance(block, env, "")))
        return known

    def _list_states(self, instance: Instance) -> Iterator[tuple[str, TensorSpec]]:
        for member in instance.block.members.values():
            if member.kind == "state":
                yield member.name, instance.env.spec(member.type)
            for child in self._children(instance, member):
                for path, spec in self.states(child.block, child.env):
                    yield f"{child.path}.{path}", spec

    def _children(self, instance: Instance, member: CheckedMember) -> list[Instance]:
        if member.kind != "sub":
            return []
        child = self.child(instance, member.name)
        return [child] if isinstance(child, Instance) else [child[i] for i in range(child.count)]

    def is_present(self, child: Instance | InstanceArray, present: frozenset[str]) -> bool:
        """Whether an optional child exists: all the weights that it requires are in `present`."""
        elements = [child] if isinstance(child, Instance) else [child[i] for i in range(child.count)]
        return all(
            element.member_path(entry.path) in present
            for element in elements
            for entry in self.weights(element.block, element.env)
            if not entry.optional
        )


def _entry(instance: Instance, member: CheckedMember, optional: bool) -> ManifestEntry:
    declared = member.type.inner if isinstance(member.type, OptionalType) else member.type
    spec = instance.env.spec(declared)
    return ManifestEntry(
        path=member.name,
        kind=member.kind,
        shape=spec.shape,
        dtype=spec.dtype,
        optional=optional,
        symbolic=str(declared),
        owner=instance.block.identity,
    )
