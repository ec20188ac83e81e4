"""Bindings: what is read, how placeholders expand, and each way to be wrong."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_package import MakePackage

from linnet.language.program.manifest import Manifest, ManifestEntry
from linnet.registry.bindings import MOST_SUGGESTIONS, Bindings, parse_bindings, read_bindings
from linnet.registry.card import read_card
from linnet.registry.errors import BindingsError, PackageError, nearest


def manifest(*paths: str) -> Manifest:
    return Manifest(
        tuple(ManifestEntry(path, "param", (2,), "f32", False, "Tensor[N; f32]", "tiny::Model") for path in paths)
    )


LAYERS = manifest(
    "embed.weight",
    "layers.0.a.weight",
    "layers.0.b.1.weight",
    "layers.1.a.weight",
    "layers.1.b.1.weight",
    "head.weight",
)


def parse(value: object) -> Bindings:
    return parse_bindings(value.encode() if isinstance(value, str) else json.dumps(value).encode())


def problems(error: pytest.ExceptionInfo[BindingsError]) -> list[str]:
    return [str(problem) for problem in error.value.problems]


def test_the_seed_bindings(seed: Path) -> None:
    package = seed / "qwen3-8b-fp8"
    bindings = read_bindings(package, read_card(package))
    assert len(bindings.entries) == 651
    assert bindings.entries["layers.35.mlp.down.scale"] == "model.layers.35.mlp.down_proj.weight_scale_inv"


def test_paths_that_no_entry_names_bind_to_themselves() -> None:
    resolved = parse({"embed.weight": "wte", "head.weight": "wte"}).resolve(LAYERS)
    assert resolved.tensors["layers.0.a.weight"] == "layers.0.a.weight"
    assert resolved.tensors["embed.weight"] == resolved.tensors["head.weight"] == "wte"
    assert resolved.written == {"embed.weight", "head.weight"}
    assert list(resolved.tensors) == [entry.path for entry in LAYERS.entries]


def test_placeholders() -> None:
    resolved = parse({"layers.{i}.a.weight": "h.{i}.a_{i}", "layers.{i}.b.{j}.weight": "b{j}.{i}"}).resolve(LAYERS)
    assert resolved.tensors["layers.1.a.weight"] == "h.1.a_1"
    assert resolved.tensors["layers.1.b.1.weight"] == "b1.1"
    assert resolved.tensors["layers.0.b.1.weight"] == "b1.0"
    assert resolved.exact == frozenset()
    assert len(resolved.written) == 4


def test_a_placeholder_twice_is_one_position() -> None:
    resolved = parse({"layers.{i}.b.{i}.weight": "diagonal.{i}"}).resolve(LAYERS)
    assert resolved.tensors["layers.1.b.1.weight"] == "diagonal.1"
    assert resolved.tensors["layers.0.b.1.weight"] == "layers.0.b.1.weight"


def test_a_path_that_the_manifest_lacks() -> None:
    bindings = parse({"layers.2.a.weight": "x", "layers.{i}.c.weight": "{i}", "embed.wieght": "y"})
    with pytest.raises(BindingsError) as caught:
        bindings.resolve(LAYERS)
    assert problems(caught) == [
        'layers.2.a.weight: bindings.json binds "layers.2.a.weight", a path that the source does not have. The nearest '
        "path is layers.1.a.weight.",
        'layers.{i}.c.weight: bindings.json binds "layers.{i}.c.weight", a path that the source does not have. The '
        "nearest path is layers.1.a.weight.",
        'embed.wieght: bindings.json binds "embed.wieght", a path that the source does not have. The nearest path is '
        "embed.weight.",
    ]
    assert bindings.resolve(LAYERS, shrunk=True).written == frozenset()
    with pytest.raises(BindingsError, match=r"Remove the entry, or correct its path\."):
        bindings.resolve(manifest())


def test_only_the_first_unknown_paths_cost_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    searches: list[str] = []

    def count(text: str, known: Iterable[str]) -> str | None:
        searches.append(text)
        return nearest(text, known)

    monkeypatch.setattr("linnet.registry.bindings.nearest", count)
    with pytest.raises(BindingsError) as caught:
        parse({f"x{i}": "t" for i in range(100)}).resolve(LAYERS)
    assert len(caught.value.problems) == 100
    assert {text for text in searches if text.startswith("x")} == {f"x{i}" for i in range(MOST_SUGGESTIONS)}


def test_two_entries_for_one_path() -> None:
    with pytest.raises(BindingsError) as caught:
        parse({"layers.{i}.a.weight": "a.{i}", "layers.1.a.weight": "x"}).resolve(LAYERS)
    assert problems(caught) == [
        'layers.1.a.weight: bindings.json binds the path layers.1.a.weight twice: by "layers.{i}.a.weight" and by '
        '"layers.1.a.weight". Remove one of the two entries.'
    ]
    with pytest.raises(BindingsError) as caught:
        parse('{"a": "x", "b": "y", "a": "z"}')
    assert problems(caught) == ['a: bindings.json has two entries for "a". Remove one of the two entries.']


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON at line 1, column 2: expecting property name enclosed in double quotes."),
        ("[1]", "is not a JSON object."),
        ("NaN", "is not JSON at line 1, column 1: unexpected NaN."),
        ("[" * 100_000, "is nested too deeply."),
        ('{"a": ' + "1" * 5000 + "}", "holds a number that is out of range."),
    ],
)
def test_what_is_not_an_object(text: str, message: str) -> None:
    with pytest.raises(BindingsError) as caught:
        parse(text)
    step = 'Write one flat object: { "path": "tensor name" }.'
    assert problems(caught) == [f"bindings.json {message} {step}"]
    with pytest.raises(BindingsError, match=r"bindings\.json is not UTF-8 at byte 1\."):
        parse_bindings(b'"\xff')


def test_all_unfit_entries_are_told_together() -> None:
    with pytest.raises(BindingsError) as caught:
        parse(
            {
                "a": 1,
                "b": {"c": "d"},
                "c": "",
                "d.x{i}": "{i}",
                "e.{i}": "x",
                "f": "x.{k}",
                "{g-h}": "x",
                "i.{i}": "x.{i + 1}",
            }
        )
    assert problems(caught) == [
        'a: bindings.json binds "a" to something that is not a tensor\'s name. Write one flat object: { '
        '"path": "tensor '
        'name" }.',
        'b: bindings.json binds "b" to something that is not a tensor\'s name. Write one flat object: { '
        '"path": "tensor '
        'name" }.',
        'c: bindings.json binds "c" to something that is not a tensor\'s name. Write one flat object: { '
        '"path": "tensor '
        'name" }.',
        'd.x{i}: bindings.json has the key "d.x{i}", where "x{i}" is not an array position. A placeholder such as {i} '
        "stands alone between dots.",
        'e.{i}: bindings.json binds "e.{i}" to "x", but "i" is in only one of the two. Write the same '
        "placeholders in the "
        "path and in the tensor's name.",
        'f: bindings.json binds "f" to "x.{k}", but "k" is in only one of the two. Write the same '
        "placeholders in the path "
        "and in the tensor's name.",
        "{g-h}: bindings.json computes with a position, {g-h}, but bindings have no arithmetic. "
        "Write one line for each position whose tensor has another number.",
        "i.{i}: bindings.json computes with a position, {i + 1}, but bindings have no arithmetic. "
        "Write one line for each position whose tensor has another number.",
    ]


def test_no_file_binds_everything_by_name() -> None:
    assert Bindings().resolve(LAYERS).tensors["head.weight"] == "head.weight"


def test_a_file_that_is_not_there(make_package: MakePackage) -> None:
    package = make_package(bindings=None)
    with pytest.raises(PackageError, match=r'The file "bindings\.json" is not in the package\.'):
        read_bindings(package, read_card(package))


@given(st.binary(max_size=60))
def test_any_bytes_give_bindings_or_an_error(data: bytes) -> None:
    with contextlib.suppress(BindingsError):
        assert all(isinstance(tensor, str) for tensor in parse_bindings(data).entries.values())


NAMES = st.sampled_from(["a", "b", "0", "1", "{i}", "{j}", "{i", "x{i}"])


@given(
    st.dictionaries(st.lists(NAMES, min_size=1, max_size=3).map(".".join), st.lists(NAMES, min_size=1).map(".".join))
)
def test_expansion_binds_each_path_once(entries: dict[str, str]) -> None:
    paths = manifest("a", "a.0", "a.1", "a.0.b", "a.1.b", "a.0.1", "b.1.1")
    try:
        resolved = parse(entries).resolve(paths, shrunk=True)
    except BindingsError:
        return
    assert list(resolved.tensors) == [entry.path for entry in paths.entries]
    assert not any("{i}" in tensor or "{j}" in tensor for tensor in resolved.tensors.values())
    assert all(resolved.tensors[path] == path for path in set(resolved.tensors) - resolved.written)
