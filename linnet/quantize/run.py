"""A package becomes one with FP8 projections, or nothing is written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from torch import Tensor

from linnet.language.program.binding import bind
from linnet.quantize.errors import QuantizeError
from linnet.quantize.fp8 import dequantize_blocks, quantize_blocks
from linnet.quantize.original import Encoder, Quantized, Watch, check_written, read_original, report, write_weights
from linnet.quantize.package import (
    copy_source,
    fp8_bindings,
    fp8_card,
    fp8_config,
    fp8_readme,
    write_config,
    write_files,
)
from linnet.quantize.source import quantize_source
from linnet.registry.bindings import Bindings
from linnet.registry.errors import listed
from linnet.registry.locate import Located
from linnet.registry.match import Match
from linnet.registry.new_package import new_package


def quantize_package(
    package: Located,
    output: Path,
    *,
    block: int,
    weights: Path | None,
    offline: bool | None,
    registry: str | None,
    watch: Watch,
) -> Quantized:
    """Write the package folder `output`: `package` with the projections of its layers in FP8 E4M3, one scale for each
    block of `block` by `block` weights.

    `weights` is a local file or folder used instead of the package's own; `watch` is handed the tensors' names as they
    are written. The package passes the check, with its entries run at small sizes, before it is put in place.

    Raises QuantizeError for what cannot be quantised, SourceError for a source that does not check, RegistryError for
    the package, its weights and an `output` that cannot be written to, OSError where the disk fails.
    """
    if block < 1:
        raise QuantizeError(f"Blocks of {block} weights are none. Choose 128, or another positive number.")
    with new_package(output) as staged:
        original = read_original(package, weights, offline=offline, registry=registry)
        card, folder = original.card, original.folder
        source = quantize_source(original.file, original.bound, block)
        made = fp8_card(card, staged.name, block)
        entries = fp8_bindings(original.bindings, source.projections)
        scales = Bindings(entries).resolve(bind(source.program, card.source.root, card.generics).manifest).tensors
        chosen = _quantized_tensors(original.match, source.projections, scales)

        def encode(name: str, tensor: Tensor) -> tuple[dict[str, Tensor], Tensor]:
            encoded, scale = quantize_blocks(tensor, block)
            return {name: encoded, chosen[name]: scale}, dequantize_blocks(encoded, scale)

        encoder = Encoder(encode, chosen)
        write_weights(original, staged, encoder, watch)
        copy_source(staged, folder, card, source.texts)
        readme = fp8_readme(made, card.model.name, block, len(source.projections), encoder.error)
        write_files(staged, folder, made, entries, readme)
        write_config(staged, folder, fp8_config(block))
        check_written(staged)
    how = f"projections in FP8 with blocks of {block} by {block}"
    return report(original, output, len(source.projections), how, encoder.error)


def _quantized_tensors(match: Match, projections: Iterable[str], scales: Mapping[str, str]) -> dict[str, str]:
    """The tensors to quantise, each with the name of its scales'.

    Raises QuantizeError where another parameter reads one too, or a tensor has the name of the scales.
    """
    paths = {f"{path}.weight" for path in projections} & match.tensors.keys()
    chosen = {match.tensors[path].name: scales[f"{path.removesuffix('weight')}scale"] for path in paths}
    shared = [path for path, info in match.tensors.items() if info.name in chosen and path not in paths]
    if shared:
        name = match.tensors[shared[0]].name
        raise QuantizeError(
            f"The tensor {name} is a projection's and also {listed(shared)}, which would then read FP8 bytes. "
            "Give each a tensor of its own."
        )
    if taken := sorted({info.name for info in match.tensors.values()} & set(chosen.values())):
        raise QuantizeError(f"The checkpoint has a tensor {taken[0]} already, as scales would be called. Rename it.")
    return chosen
