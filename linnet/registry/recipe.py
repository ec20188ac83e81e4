"""The recipe of packed weights: which of a checkpoint's tensors hold several numbers in each u32, and how.

A tensor `name.weight` that the recipe names is stored in MLX's layout: u32 words [Out, In * bits / 32], and beside it
`name.scales` and `name.biases`, [Out, In / group]. To the rest of the registry it is then one tensor [Out, In] of the
scales' dtype.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from linnet.registry.card import Card
from linnet.registry.errors import Problem, RegistryError, bare, listed, nearest, shown
from linnet.registry.headers import Packed, TensorInfo, TensorTable
from linnet.registry.package import read_file
from linnet.registry.strict_json import BadJsonError, JsonObject, parse_json

RECIPE_NAME = "recipe.json"
RECIPE_BYTES = 16 << 20
SCHEMA = 1
BITS = (4, 8)
GROUPS = (32, 64, 128)
MODES = ("affine",)
MOST_NAMED = 3
NAME_IT = f"Name it in a {RECIPE_NAME}, and that in the card's weights.recipe."
_FLOATS = ("BF16", "F16", "F32")
_FORM = '{"schema": 1, "tensors": {"a.weight": {"bits": 4, "group": 64, "mode": "affine"}}}'


class RecipeError(RegistryError):
    """A recipe that cannot be read, or that the checkpoint's tensors do not follow."""


@dataclass(frozen=True, slots=True)
class Packing:
    """`bits` of a number, weights of a row that share a scale and a bias, and how they stand for weights: "affine" is
    `scale * number + bias`."""

    bits: int
    group: int
    mode: str = "affine"


@dataclass(frozen=True, slots=True)
class Recipe:
    """The packed tensors of a checkpoint by name; `file` is what messages call the recipe."""

    tensors: Mapping[str, Packing]
    file: str = RECIPE_NAME

    def to_dict(self) -> dict[str, object]:
        """JSON-able, as the file has it."""
        packings = {
            name: {"bits": packing.bits, "group": packing.group, "mode": packing.mode}
            for name, packing in self.tensors.items()
        }
        return {"schema": SCHEMA, "tensors": packings}


def part_names(name: str) -> tuple[str, str]:
    """What the checkpoint calls the scales and the biases of the tensor `name`."""
    stem = name.removesuffix(".weight")
    return f"{stem}.scales", f"{stem}.biases"


def packed_unnamed(info: TensorInfo, table: TensorTable) -> str | None:
    """What to say of a tensor that is packed, as its neighbours tell, and that no recipe names; None of others."""
    parts = part_names(info.name)
    if info.packed is not None or info.dtype != "U32" or not all(part in table for part in parts):
        return None
    tensor = f"the tensor {shown(info.name)} in {info.file} is {info}"
    return f"{tensor}, packed as {' and '.join(map(shown, parts))} beside it tell, and no recipe names it"


def with_recipe(package: Path, card: Card, table: TensorTable) -> TensorTable:
    """The tensors as the card's recipe says they are to be read; all as they are where it names none.

    Raises RecipeError with all that is wrong, PackageError where the file is absent or unreadable.
    """
    if card.weights.recipe is None:
        return table
    return unpacked(table, parse_recipe(read_file(package, card.weights.recipe, RECIPE_BYTES), card.weights.recipe))


def parse_recipe(data: bytes, file: str = RECIPE_NAME) -> Recipe:
    """The recipe written in `data`. Raises RecipeError with all that is wrong with it."""
    help = f"Write {_FORM}."
    try:
        value = parse_json(data)
    except BadJsonError as error:
        raise RecipeError([_problem("json", file, f"{file} {error}.", help)]) from None
    tensors = value.get("tensors") if isinstance(value, JsonObject) else None
    if not isinstance(value, JsonObject) or set(value) != {"schema", "tensors"} or not isinstance(tensors, JsonObject):
        message = f"{file} is not an object of a schema and tensors."
        raise RecipeError([_problem("json", file, message, help)])
    if not _is_one_of(value["schema"], (SCHEMA,)):
        message = f"{file} has the schema {shown(str(value['schema']))}, and this version reads {SCHEMA}."
        raise RecipeError([_problem("schema", file, message, "Install a newer version, or write the recipe anew.")])
    problems = [
        _problem("twice", bare(name), f"{file} has two entries for {shown(name)}.", "Remove one of the two entries.")
        for name in tensors.duplicates
    ]
    packings: dict[str, Packing] = {}
    for name, entry in tensors.items():
        known: dict[str, tuple[int | str, ...]] = {"bits": BITS, "group": GROUPS, "mode": MODES}
        if not isinstance(entry, JsonObject) or set(entry) != set(known) or entry.duplicates:
            message = f"{file} does not give {shown(name)} exactly bits, a group and a mode."
            problems.append(_problem("entry", bare(name), message, help))
            continue
        wrong = [key for key, choices in known.items() if not _is_one_of(entry[key], choices)]
        for key in wrong:
            choices = ", ".join(map(str, known[key]))
            message = f"{file} gives {shown(name)} the {key} {shown(str(entry[key]))}, which is not known."
            problems.append(_problem(key, bare(name), message, f"Known are {choices}."))
        if not wrong:
            packings[name] = Packing(entry["bits"], entry["group"], entry["mode"])
    if problems:
        raise RecipeError(problems)
    return Recipe(packings, file)


def _is_one_of(value: object, choices: tuple[int | str, ...]) -> bool:
    """Whether JSON's `value` is one of these: true and 4.0, which equal 1 and 4, are not."""
    return any(type(value) is type(choice) and value == choice for choice in choices)


def unpacked(table: TensorTable, recipe: Recipe) -> TensorTable:
    """The table with each packed tensor as one of its full shape, and its scales and biases no tensors of their own.

    Raises RecipeError with everything in which table and recipe differ.
    """
    absent = [name for name in recipe.tensors if name not in table]
    problems = [_absent(absent, table, recipe)] if absent else []
    packed: dict[str, TensorInfo] = {}
    parts: set[str] = set()
    for name, packing in recipe.tensors.items():
        if name in absent:
            continue
        found = _packed(table, name, packing, recipe.file)
        if isinstance(found, Problem):
            problems.append(found)
        else:
            packed[name] = found
            parts.update(part_names(name))
    if problems:
        raise RecipeError(problems)
    return TensorTable({n: packed.get(n, info) for n, info in table.tensors.items() if n not in parts}, table.files)


def _absent(names: list[str], table: TensorTable, recipe: Recipe) -> Problem:
    close = nearest(names[0], [name for name in table if name not in recipe.tensors])
    help = f"The nearest tensor to the first is {shown(close)}." if close else "Correct the names."
    what, are = ("the tensor", "which is") if len(names) == 1 else (f"{len(names)} tensors,", "which are")
    message = f"{recipe.file} names {what} {listed(names, MOST_NAMED)}, {are} not in {listed(table.files)}."
    return _problem("missing-tensor", bare(names[0]), message, help)


def _packed(table: TensorTable, name: str, packing: Packing, file: str) -> TensorInfo | Problem:
    """The tensor as one of its full shape, or what is wrong with it."""
    words = table[name]
    scales_name, biases_name = part_names(name)
    where = bare(name)
    missing = [part for part in (scales_name, biases_name) if part not in table]
    if missing:
        message = f"{file} says that {shown(name)} is packed, but there is no tensor {listed(missing)} beside it."
        return _problem("missing-tensor", where, message, "Take it out of the recipe, or quantise again.")
    if words.dtype != "U32" or len(words.shape) != 2:
        message = f"{file} says that {shown(name)} is packed, but it is {words}, and no matrix of U32."
        return _problem("not-packed", where, message, "Take it out of the recipe, or quantise again.")
    scales, biases = table[scales_name], table[biases_name]
    rows, columns = words.shape[0], words.shape[1] * 32 // packing.bits
    if scales.shape != biases.shape or scales.dtype != biases.dtype or scales.dtype not in _FLOATS:
        message = f"The scales of {shown(name)} are {scales} and its biases {biases}: not alike, or not floating."
        return _problem("parts", where, message, "Quantise again.")
    if scales.shape != (rows, columns // packing.group) or columns % packing.group:
        message = (
            f"{file} gives {shown(name)} groups of {packing.group} at {packing.bits} bits, but its words are {words} "
            f"and its scales {scales}{_fitting(columns, scales, rows)}."
        )
        return _problem("group", where, message, "Correct bits and group in the recipe, or quantise again.")
    packed = Packed(packing.bits, packing.group, packing.mode, scales, biases)
    return replace(words, dtype=scales.dtype, shape=(rows, columns), packed=packed)


def _fitting(columns: int, scales: TensorInfo, rows: int) -> str:
    """Which group the scales of rows of so many columns are for, in words."""
    if len(scales.shape) != 2 or scales.shape[0] != rows or not scales.shape[1] or columns % scales.shape[1]:
        return ""
    return f", which is one for each {columns // scales.shape[1]} weights"


def _problem(kind: str, where: str, message: str, help: str) -> Problem:
    return Problem(f"recipe.{kind}", where, message, help)
