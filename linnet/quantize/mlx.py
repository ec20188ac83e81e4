"""A package becomes one whose matrices lie in few bits, in MLX's layout, with the recipe that says so."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from linnet.language.program.binding import BoundProgram
from linnet.language.program.instances import Instance, InstanceArray, Instances
from linnet.language.program.types import FLOATS
from linnet.quantize.errors import QuantizeError
from linnet.quantize.original import (
    Encoder,
    Original,
    Quantized,
    Watch,
    check_written,
    read_original,
    report,
    write_weights,
)
from linnet.quantize.package import copy_source, mlx_card, mlx_config, mlx_readme, write_config, write_files
from linnet.quantize.source import LINEAR
from linnet.registry.errors import listed, nearest
from linnet.registry.locate import Located
from linnet.registry.new_package import new_package
from linnet.registry.recipe import BITS, GROUPS, RECIPE_NAME, Packing, Recipe, part_names
from linnet.runner import packed

EMBEDDING = "std.nn.embedding::Embedding"


def quantize_for_mlx(
    package: Located,
    output: Path,
    *,
    bits: int,
    group: int,
    keep: Sequence[str] = (),
    weights: Path | None = None,
    offline: bool | None = None,
    registry: str | None = None,
    watch: Watch = iter,
) -> Quantized:
    """Write the package folder `output`: `package` with the weights of its dense layers and embeddings as numbers of
    `bits` bits, a scale and a bias for each `group` of a row.

    `keep` are blocks and parameters, by their paths, that stay as they are. Source and bindings are the original's:
    `recipe.json` says which tensors are packed. The rest is as of `linnet.quantize.run.quantize_package`.
    """
    if bits not in BITS:
        raise QuantizeError(f"Numbers of {bits} bits are not written. Choose {' or '.join(map(str, BITS))}.")
    if group not in GROUPS:
        raise QuantizeError(f"Groups of {group} weights are none of MLX's. Choose {', '.join(map(str, GROUPS))}.")
    with new_package(output) as staged:
        original = read_original(package, weights, offline=offline, registry=registry)
        chosen = _chosen(original, group, keep)
        packing = packed.Packing(bits, group)

        def encode(name: str, tensor: Tensor) -> tuple[dict[str, Tensor], Tensor]:
            made = packed.pack(tensor, packing)
            scales, biases = part_names(name)
            # The format tells u32 from i32, and torch carries the one as the other.
            parts = {name: made.words.view(torch.uint32), scales: made.scales, biases: made.biases}
            return parts, made.dense(torch.float32)

        encoder = Encoder(encode, chosen)
        write_weights(original, staged, encoder, watch)
        card = mlx_card(original.card, staged.name, bits, group)
        copy_source(staged, original.folder, original.card, {})
        readme = mlx_readme(card, original.card.model.name, bits, group, chosen, encoder.error, keep)
        write_files(staged, original.folder, card, original.bindings.entries, readme)
        recipe = Recipe({name: Packing(bits, group) for name in chosen})
        (staged / RECIPE_NAME).write_text(json.dumps(recipe.to_dict(), indent=1) + "\n", encoding="utf-8")
        write_config(staged, original.folder, mlx_config(bits, group))
        check_written(staged)
    how = f"matrices in {bits} bits with groups of {group}"
    return report(original, output, len(chosen), how, encoder.error)


def _chosen(original: Original, group: int, keep: Sequence[str]) -> list[str]:
    """The tensors to pack. Raises QuantizeError where there is none, for a name of `keep` that there is not, for rows
    that the groups do not fill, and for a name that is taken."""
    match = original.match
    paths = [path for path in _matrices(original.bound) if path in match.tensors]
    kept = _kept(paths, keep, original)
    packed = {match.tensors[path].name for path in paths}
    # A tensor with another reader, or with one that keeps it, stays whole.
    packed -= {info.name for path, info in match.tensors.items() if path not in paths or path in kept}
    if not packed:
        rest = " beside those that are kept" if kept else ""
        raise QuantizeError(
            f"{original.card.model.name} has no {LINEAR} and no {EMBEDDING} with floating weights{rest}. Quantise a "
            "package that is written with those, and is not quantised yet."
        )
    ordered = list(dict.fromkeys(match.tensors[path].name for path in paths if match.tensors[path].name in packed))
    for path in paths:
        info = match.tensors[path]
        if info.name in packed and info.shape[1] % group:
            fitting = [str(size) for size in GROUPS if info.shape[1] % size == 0]
            other = f"--group {' or '.join(fitting)}, or keep" if fitting else "to keep"
            raise QuantizeError(
                f"{path} has rows of {info.shape[1]} weights, which groups of {group} do not fill. Choose {other} it: "
                f"--keep {path.removesuffix('.weight')}."
            )
    names = {info.name for info in match.tensors.values()}
    if taken := sorted(names & {part for name in ordered for part in part_names(name)}):
        raise QuantizeError(f"The checkpoint has a tensor {taken[0]} already, as scales would be called. Rename it.")
    return ordered


def _kept(paths: Collection[str], keep: Sequence[str], original: Original) -> set[str]:
    """The paths that stay as they are. Raises QuantizeError for names under which there is nothing."""
    kept: set[str] = set()
    unknown = []
    for name in keep:
        below = {path for path in paths if path == name or path.startswith(f"{name}.")}
        kept |= below
        if not below:
            unknown.append(name)
    if unknown:
        blocks = {path.rpartition(".")[0] for path in paths}
        close = nearest(unknown[0], blocks)
        help = f"The nearest that could be is {close}." if close else "Leave it out."
        name = original.card.model.name
        raise QuantizeError(f"Nothing of {name} that would be packed is called {listed(unknown, 3)}. {help}")
    return kept


def _matrices(bound: BoundProgram) -> Iterator[str]:
    """The paths of the weights of dense layers and embeddings, in the manifest's order."""
    instances = Instances()
    floating = {e.path for e in bound.manifest.entries if e.dtype in FLOATS and len(e.shape) == 2 and 0 not in e.shape}

    def walk(instance: Instance) -> Iterator[str]:
        if instance.block.identity in (LINEAR, EMBEDDING) and instance.member_path("weight") in floating:
            yield instance.member_path("weight")
        for name, member in instance.block.members.items():
            if member.kind == "sub":
                child = instances.child(instance, name)
                for each in (child[i] for i in range(child.count)) if isinstance(child, InstanceArray) else (child,):
                    yield from walk(each)

    yield from walk(Instance(bound.block, instances.environment(bound.block, dict(bound.generics)), ""))
