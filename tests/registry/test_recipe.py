"""The recipe of packed weights: how it is read, and how a checkpoint's tensors follow it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from linnet.registry.headers import TensorInfo, TensorTable
from linnet.registry.recipe import Packing, Recipe, RecipeError, parse_recipe, unpacked

FOUR = {"bits": 4, "group": 32, "mode": "affine"}


def table(**changed: tuple[str, tuple[int, ...]]) -> TensorTable:
    """A packed matrix [8, 64] of 4 bits in groups of 32, a dense one, and what is `changed` or added (`a_scales`)."""
    tensors: dict[str, tuple[str, tuple[int, ...]]] = {
        "a.weight": ("U32", (8, 8)),
        "a.scales": ("BF16", (8, 2)),
        "a.biases": ("BF16", (8, 2)),
        "b.weight": ("BF16", (8, 64)),
    }
    tensors |= {name.replace("_", "."): info for name, info in changed.items()}
    infos = {n: TensorInfo(n, dtype, shape, "m.safetensors", 0, 0) for n, (dtype, shape) in tensors.items() if dtype}
    return TensorTable(infos, ("m.safetensors",))


def recipe(**tensors: Mapping[str, Any]) -> Recipe:
    entries = {name.replace("_", "."): entry for name, entry in tensors.items()}
    return parse_recipe(json.dumps({"schema": 1, "tensors": entries}).encode())


def refused(text: str | bytes) -> str:
    with pytest.raises(RecipeError) as error:
        parse_recipe(text.encode() if isinstance(text, str) else text)
    return str(error.value)


def not_followed(tensors: TensorTable, **entries: Mapping[str, Any]) -> str:
    with pytest.raises(RecipeError) as error:
        unpacked(tensors, recipe(**entries))
    return str(error.value)


def test_a_packed_tensor_is_one_of_its_full_shape() -> None:
    found = unpacked(table(), recipe(a_weight=FOUR))
    assert sorted(found) == ["a.weight", "b.weight"]
    info = found["a.weight"]
    assert (info.dtype, info.shape, str(info)) == ("BF16", (8, 64), "BF16 [8, 64]")
    assert info.packed is not None
    packed = info.packed
    assert (packed.bits, packed.group, packed.mode) == (4, 32, "affine")
    assert (packed.scales.name, packed.biases.name) == ("a.scales", "a.biases")
    assert found["b.weight"].packed is None


def test_a_recipe_is_read_as_it_is_written() -> None:
    made = Recipe({"a.weight": Packing(8, 128)})
    assert parse_recipe(json.dumps(made.to_dict()).encode()) == made


def test_what_is_no_recipe_is_told() -> None:
    assert "recipe.json is not JSON at line 1" in refused("{")
    for text in ("[]", "{}", '{"schema": 1, "tensors": []}', '{"schema": 1, "tensors": {}, "more": 1}'):
        assert "recipe.json is not an object of a schema and tensors" in refused(text)
    assert 'recipe.json has the schema "2", and this version reads 1' in refused('{"schema": 2, "tensors": {}}')
    for schema in ("1.0", "true", "[1]"):
        assert "and this version reads 1" in refused(f'{{"schema": {schema}, "tensors": {{}}}}')
    twice = '{"schema": 1, "tensors": {"a": {"bits": 4, "group": 64, "mode": "affine"}, "a": {}}}'
    assert 'recipe.json has two entries for "a"' in refused(twice)
    assert 'does not give "a" exactly bits, a group and a mode' in refused(
        '{"schema": 1, "tensors": {"a": {"bits": 4, "group": 64}}}'
    )


@pytest.mark.parametrize(
    ("key", "value", "known"),
    [
        ("bits", 3, "4, 8"), ("bits", True, "4, 8"), ("bits", "4", "4, 8"), ("bits", 4.0, "4, 8"),
        ("group", 64.0, "32, 64, 128"), ("group", 48, "32, 64, 128"),
        ("mode", "nf4", "affine"), ("mode", [], "affine"),
    ],
)  # fmt: skip
def test_numbers_that_are_not_known_are_told_with_those_that_are(key: str, value: object, known: str) -> None:
    document = {"schema": 1, "tensors": {"a.weight": {**FOUR, key: value}}}
    message = refused(json.dumps(document))
    assert f'recipe.json gives "a.weight" the {key} "{value}", which is not known. Known are {known}.' in message


def test_tensors_that_are_not_there_are_named_a_few_and_counted() -> None:
    one = not_followed(table(), a_weight=FOUR, b_waight=FOUR)
    assert 'recipe.json names the tensor "b.waight", which is not in "m.safetensors".' in one
    assert 'The nearest tensor to the first is "b.weight".' in one
    several = not_followed(table(), **{f"c{i}": FOUR for i in range(5)})
    assert 'names 5 tensors, "c0", "c1", "c2" and 2 more, which are not in "m.safetensors"' in several


def test_parts_that_do_not_fit_are_told() -> None:
    assert 'there is no tensor "a.scales" beside it' in not_followed(table(a_scales=("", ())), a_weight=FOUR)
    beside = table(b_scales=("BF16", (8, 2)), b_biases=("BF16", (8, 2)))
    assert '"b.weight" is packed, but it is BF16 [8, 64], and no matrix of U32' in not_followed(beside, b_weight=FOUR)
    alike = not_followed(table(a_biases=("F32", (8, 2))), a_weight=FOUR)
    assert 'The scales of "a.weight" are BF16 [8, 2] and its biases F32 [8, 2]: not alike' in alike


def test_groups_that_the_scales_do_not_have_are_told() -> None:
    message = not_followed(table(), a_weight={**FOUR, "group": 64})
    assert 'recipe.json gives "a.weight" groups of 64 at 4 bits, but its words are U32 [8, 8]' in message
    assert "and its scales BF16 [8, 2], which is one for each 32 weights" in message
    assert "at 8 bits" in not_followed(table(), a_weight={**FOUR, "bits": 8})
    assert "its scales BF16 [7, 2]." in not_followed(
        table(a_scales=("BF16", (7, 2)), a_biases=("BF16", (7, 2))), a_weight=FOUR
    )
