"""The files of a quantised package beside its source and weights: card, bindings, README, what is copied."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from linnet.convert.folder import COMPANIONS
from linnet.language.strict_toml import parse_toml
from linnet.registry.bindings import BINDINGS_BYTES, Bindings
from linnet.registry.card import Bench, Card, Weights
from linnet.registry.card_writer import card_text
from linnet.registry.package import CARD_NAME, FILE_BYTES, MANIFEST_NAME, README_NAME, package_path, read_file
from linnet.registry.recipe import RECIPE_NAME

BINDINGS_NAME = "bindings.json"
CONFIG = "config.json"
# What the checkpoint calls the scales of the tensor `name`.
SCALE_SUFFIX = "_scale_inv"
_TITLE_CHARACTERS = 200


def fp8_card(card: Card, name: str, block: int) -> Card:
    """The card of the FP8 package `name`, whose files lie beside it, measured against the package it is made from."""
    what = f"with the projections of its layers in FP8 E4M3, one scale for each block of {block} by {block} weights."
    return _card(card, name, "FP8", what, "fp8")


def mlx_card(card: Card, name: str, bits: int, group: int) -> Card:
    """The card of the package `name` with packed weights, as `fp8_card`."""
    what = f"with the weights of its dense layers and embeddings in {bits} bits, for MLX."
    made = _card(card, name, f"{bits}-bit", what, f"{bits}-bit", "mlx")
    return dataclasses.replace(made, weights=dataclasses.replace(made.weights, recipe=RECIPE_NAME))


def _card(card: Card, name: str, suffix: str, what: str, *tags: str) -> Card:
    title = card.model.title[:_TITLE_CHARACTERS]
    kept = tuple(tag for tag in card.model.tags if tag not in tags)
    model = dataclasses.replace(
        card.model, name=name, title=f"{title} {suffix}", summary=f"{title} {what}", tags=kept + tags
    )
    return dataclasses.replace(
        card,
        model=model,
        # The Hub's page is that of other weights.
        links=dataclasses.replace(card.links, huggingface=None),
        weights=Weights(files=card.weights.files, bindings=BINDINGS_NAME),
        bench=dataclasses.replace(card.bench, baseline=card.model.name) if card.bench != Bench() else card.bench,
    )


def fp8_bindings(bindings: Bindings, projections: Collection[str]) -> dict[str, str]:
    """The bindings of the FP8 source: those there were, and the scales of each weight of `projections` after it.

    A weight that binds to the tensor of its own name has its scale in one that is named likewise.
    """
    weights = [f"{path}.weight" for path in projections]
    entries: dict[str, str] = {}
    for key, tensor in bindings.entries.items():
        entries[key] = tensor
        pattern = re.compile(re.sub(r"\\\{\w+\\\}", "[0-9]+", re.escape(key)))
        if key.endswith(".weight") and any(pattern.fullmatch(path) for path in weights):
            entries[key.removesuffix("weight") + "scale"] = tensor + SCALE_SUFFIX
    return entries


def write_files(folder: Path, made_from: Path, card: Card, bindings: Mapping[str, str], readme: str) -> None:
    """Write into `folder` all of a package but its source and weights; `made_from` is the folder of the original.

    Raises PackageError where a file that the original's card names is not there.
    """
    (folder / CARD_NAME).write_text(card_text(card), encoding="utf-8")
    (folder / README_NAME).write_text(readme, encoding="utf-8")
    assert card.weights.bindings is not None
    data = json.dumps(bindings, indent=2, ensure_ascii=False) + "\n"
    assert len(data) <= BINDINGS_BYTES
    (folder / card.weights.bindings).write_text(data, encoding="utf-8")
    if (made_from / MANIFEST_NAME).is_file():
        (folder / MANIFEST_NAME).write_text(_manifest(made_from, card.model.name), encoding="utf-8")
    for name in _copied(made_from, card):
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(read_file(made_from, name, FILE_BYTES))


def write_config(folder: Path, made_from: Path, more: Mapping[str, Any]) -> None:
    """The original's config.json, where it has one beside its card, with what tells others of the quantisation."""
    file = made_from / CONFIG
    if file.is_file():
        config = {**json.loads(file.read_text(encoding="utf-8")), **more}
        (folder / CONFIG).write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def fp8_config(block: int) -> dict[str, Any]:
    """What tells transformers of the FP8 blocks."""
    settings = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic"}
    return {"quantization_config": {**settings, "weight_block_size": [block, block]}}


def mlx_config(bits: int, group: int) -> dict[str, Any]:
    """What tells mlx-lm of the groups: it packs what has scales."""
    return {"quantization": {"bits": bits, "group_size": group, "mode": "affine"}}


def copy_source(folder: Path, made_from: Path, card: Card, texts: Mapping[Path, str]) -> None:
    """The Linnet files of the original, with the new texts of those that changed, by their resolved paths."""
    root = made_from.resolve()
    # A package's modules lie under src, a source without a manifest is one file.
    files = sorted((root / "src").rglob("*.linnet")) if (root / MANIFEST_NAME).is_file() else []
    for file in {*files, package_path(made_from, card.source.path)}:
        target = folder / file.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        if file in texts:
            target.write_text(texts[file], encoding="utf-8")
        else:
            shutil.copyfile(file, target)


def fp8_readme(card: Card, original: str, block: int, projections: int, error: float) -> str:
    """The README: what the package is, how to load it, what was measured."""
    return f"""# {card.model.title}

The weights of the package `{original}` with the {projections} projections of its layers in FP8: one E4M3 byte a weight
and one scale for each block of {block} by {block} weights, the scheme of
[DeepSeek-V3](https://arxiv.org/abs/2412.19437). All other weights are as they were. It was made by
`nest quantize {original} --fp8-block {block}`.

## Loading

```python
from linnet import nest

model = nest.load("{card.model.name}")
```

The FP8 tensors are read as their bytes (`u8`) and decoded for each product. In `bindings.json` each `scale` binds to
the tensor that the checkpoint calls `weight{SCALE_SUFFIX}`. It multiplies, despite that name.

## Numerics

A scale is its block's largest magnitude over 448, and weights are rounded to the nearest E4M3 number. The relative RMS
error of the projections' weights is {100 * error:.2f}%.
"""


def mlx_readme(
    card: Card, original: str, bits: int, group: int, tensors: Sequence[str], error: float, keep: Sequence[str]
) -> str:
    """As `fp8_readme`."""
    kept = f" --keep {','.join(keep)}" if keep else ""
    return f"""# {card.model.title}

The weights of the package `{original}` with {len(tensors)} matrices in {bits} bits: rows lie in groups of {group},
and each weight is a number of {bits} bits that stands for `scale * number + bias`, by the scale and bias of its group.
All other weights are as they were. It was made by `nest quantize {original} --mlx-bits {bits} --group {group}{kept}`.

## Loading

```python
from linnet import nest

model = nest.load("{card.model.name}", backend="mlx")
```

MLX multiplies by the packed matrices as they are. On torch they are decoded as they load. `{RECIPE_NAME}` says which
tensors are packed, in the layout of MLX: `name.weight` holds the numbers, `name.scales` and `name.biases` the rest.

## Numerics

The relative RMS error of the packed weights is {100 * error:.2f}%.
"""


def _manifest(made_from: Path, name: str) -> str:
    """The original's linnet.toml under another name."""
    package = parse_toml((made_from / MANIFEST_NAME).read_bytes())["package"]
    lines = [f"{key} = {json.dumps(value)}" for key, value in {**package, "name": name}.items()]
    return "\n".join(["[package]", *lines, ""])


def _copied(made_from: Path, card: Card) -> list[str]:
    """The files that the card names beside source and weights, those that transformers reads there, and licences."""
    names = []
    if card.tokenizer is not None:
        names += [card.tokenizer.file] if card.tokenizer.repo is None else []
        names += [card.tokenizer.chat_template] if card.tokenizer.chat_template is not None else []
    if card.bench.dataset is not None and package_path(made_from, card.bench.dataset).is_file():
        names.append(card.bench.dataset)
    names += [name for name in COMPANIONS if (made_from / name).is_file()]
    return [*dict.fromkeys(names), *sorted(path.name for path in made_from.glob("LICENSE*") if path.is_file())]
