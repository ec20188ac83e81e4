"""Binding generics, the manifest, states, and an entry's generics from its inputs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from lowering_support import bound, checked

from linnet.language.check import load
from linnet.language.program.binding import BindError, BoundProgram, bind
from linnet.language.program.core import TensorSpec
from linnet.language.program.manifest import ManifestEntry

NET = """
pub block Net<Vocab: Dim, H: Dim, Layers: Dim, T: Float = bf16, Shards: Dim = 1, Part: Dim = H + 2 * Shards>
where H % 4 == 0, Shards > 0 {
    sub embedding: Table<Vocab, H, T>
    sub layers: [Layer<H, Part, T>; Layers]
    sub pooler: Layer<H, H, f32>? = none
    buffer positions: Tensor[8; i64]
    param scale: Tensor[H; T]? = none
    state total: Tensor[Layers, H; T]

    pub entry run<B: Dim, S: Dim>(ids: Tensor[B, S; i32]) -> i32 where S > 0 {
        return ids[0, 0] * cast<i32>(B)
    }
}

block Table<Rows: Dim, H: Dim, T: Float> {
    param weight: Tensor[Rows, H; T]
}

block Layer<In: Dim, Out: Dim, T: Float> {
    param weight: Tensor[Out, In / 2; T]
    param bias: Tensor[Out; T]? = none
    state cache: Tensor[Out; T]
}
""".replace("where S > 0", "where B > 0, S > 0")
GENERICS = {"Vocab": 5, "H": 8, "Layers": 2}


def net(**generics: int | str) -> BoundProgram:
    return bind(checked(NET), "Net", {**GENERICS, **generics})


def problems(root: str | None = "Net", **generics: int | str) -> tuple[str, ...]:
    with pytest.raises(BindError) as caught:
        bind(checked(NET), root, generics)
    return caught.value.problems


def test_paths_in_declaration_order_with_what_is_optional() -> None:
    found = [(entry.path, entry.optional) for entry in net().manifest.entries]
    assert found == [
        ("embedding.weight", False),
        ("layers.0.weight", False),
        ("layers.0.bias", True),
        ("layers.1.weight", False),
        ("layers.1.bias", True),
        ("pooler.weight", True),
        ("pooler.bias", True),
        ("positions", False),
        ("scale", True),
    ]
    assert [entry.path for entry in net().manifest.required()] == [path for path, optional in found if not optional]


def test_an_entry_tells_its_shape_in_numbers_and_as_declared() -> None:
    manifest = net(Shards=2).manifest
    assert manifest["layers.1.weight"] == ManifestEntry(
        path="layers.1.weight",
        kind="param",
        shape=(12, 4),
        dtype="bf16",
        optional=False,
        symbolic="Tensor[Out, In / 2; T]",
        owner="test::Layer",
    )
    assert manifest["positions"].kind == "buffer"
    assert manifest["pooler.bias"].symbolic == "Tensor[Out; T]"
    assert manifest["pooler.bias"].dtype == "f32"


def test_defaults_fill_in_from_the_generics_before_them() -> None:
    assert net().generics == {**GENERICS, "T": "bf16", "Shards": 1, "Part": 10}
    assert net(Shards=4, T="f32").generics == {**GENERICS, "T": "f32", "Shards": 4, "Part": 16}


def test_states_by_path() -> None:
    assert net().states() == {
        "layers.0.cache": TensorSpec((10,), "bf16"),
        "layers.1.cache": TensorSpec((10,), "bf16"),
        "pooler.cache": TensorSpec((8,), "f32"),
        "total": TensorSpec((2, 8), "bf16"),
    }


def test_all_problems_of_the_generics_are_told_at_once() -> None:
    assert problems(Vocabs=5, H=-8, Layers=True, T="f8") == (
        "`Net` has no generic `Vocabs`; did you mean `Vocab`?",
        "`Net` needs a value for the generic `Vocab` (a dimension)",
        "generic `H` is -8; a dimension is 0 or more",
        "generic `Layers` is a dimension and takes an integer, not True",
        "generic `T` takes one of f16, bf16, f32, f64, not 'f8'",
    )
    assert problems(**{**GENERICS, "H": "bf16", "T": 3}) == (
        "generic `H` is a dimension and takes an integer, not 'bf16'",
        "generic `T` takes one of f16, bf16, f32, f64, not 3",
    )


def test_a_broken_where_is_quoted_with_its_values() -> None:
    assert problems(**{**GENERICS, "H": 6}) == ("`H % 4 == 0` is false for H = 6",)


def test_the_root_is_named_or_the_only_block_with_entries() -> None:
    assert bind(checked(NET), None, GENERICS).block.name == "Net"
    assert problems(root="Nett") == ("the source has no block `Nett`; did you mean `Net`?",)
    two = checked("pub block A { pub entry f() -> i32 { return 1 } } pub block B { pub entry f() -> i32 { return 1 } }")
    with pytest.raises(BindError, match="`A`, `B` all have entries; say which is the root"):
        bind(two, None, {})
    with pytest.raises(BindError, match="no block of the source has an entry; add one, or name the root block"):
        bind(checked("pub block A { param w: Tensor[2; f32] }"), None, {})


def test_entries_outside_blocks_need_no_root() -> None:
    model = bound("pub entry loss(x: Tensor[2; f32]) -> f32 { return x[0] }")
    assert list(model.entries()) == ["loss"]
    assert model.manifest.entries == ()
    assert model.lower("loss", {}).name == "loss"


def test_entries_of_the_root_come_before_its_modules() -> None:
    model = bound(
        "pub entry loss() -> i32 { return 1 }\npub block Net { pub entry a() -> i32 { return 1 }\n"
        "    pub entry b() -> i32 { return 2 } }"
    )
    assert list(model.entries()) == ["a", "b", "loss"]


FORMS = """
pub block Net<H: Dim> {
    pub entry run<B: Dim, S: Dim, *R: Shape, T: Float, Steps: Dim>(
        x: Tensor[B, S, H; T],
        joined: Tensor[B * S, 2 * Steps; i32],
        rest: Tensor[B, *R; bool],
        pair: (Tensor[S; T], f32),
        more: Tensor[*R; T]? = none,
    ) -> Tensor[B; f32] {
        let y[b] = cast<f32>(b_of<B>()[b])
        return y
    }
}

fn b_of<B: Dim>() -> Tensor[B; i32] {
    return iota<i32>(B)
}
"""
INPUTS = {
    "x": TensorSpec((2, 3, 4), "f32"),
    "joined": TensorSpec((6, 10), "i32"),
    "rest": TensorSpec((2, 7, 1), "bool"),
    "pair.0": TensorSpec((3,), "f32"),
    "pair.1": TensorSpec((), "f32"),
}


def misfit(known: dict[str, int | str] | None = None, **inputs: TensorSpec) -> tuple[str, ...]:
    changed = {**INPUTS, **{name.replace("__", "."): spec for name, spec in inputs.items()}}
    with pytest.raises(BindError) as caught:
        bound(FORMS, H=4).infer("run", changed, known)
    return caught.value.problems


def test_bare_names_are_inferred_and_the_rest_left_out() -> None:
    assert bound(FORMS, H=4).infer("run", INPUTS) == {"B": 2, "S": 3, "T": "f32", "R": (7, 1)}
    assert bound(FORMS, H=4).infer("run", INPUTS, {"Steps": 5}) == {
        "B": 2,
        "S": 3,
        "T": "f32",
        "R": (7, 1),
        "Steps": 5,
    }


def test_an_input_that_does_not_fit_is_named_with_both_shapes() -> None:
    assert misfit(x=TensorSpec((2, 3, 5), "f32")) == (
        "input `x` should be Tensor[B, S, H; T] with B = 2, S = 3, H = 4, T = f32 but is [2, 3, 5; f32]",
    )
    assert misfit(joined=TensorSpec((7, 10), "i32")) == (
        "input `joined` should be Tensor[B * S, 2 * Steps; i32] with B = 2, S = 3 but is [7, 10; i32]",
    )
    assert misfit({"Steps": 4}) == (
        "input `joined` should be Tensor[B * S, 2 * Steps; i32] with B = 2, S = 3, Steps = 4 but is [6, 10; i32]",
    )
    assert misfit(x=TensorSpec((3, 4), "f32"))[0] == (
        "input `x` should be Tensor[B, S, H; T] with B = 2, S = 3, H = 4, T = f32 but is [3, 4; f32]"
    )
    assert misfit(pair__0=TensorSpec((3,), "f64")) == (
        "input `pair.0` should be Tensor[S; T] with S = 3, T = f32 but is [3; f64]",
    )
    assert misfit(rest=TensorSpec((), "bool")) == ("input `rest` should be Tensor[B, *R; bool] with B = 2 but is bool",)
    assert misfit(more=TensorSpec((7,), "f32")) == (
        "input `more` should be Tensor[*R; T] with R = [7, 1], T = f32 but is [7; f32]",
    )


def test_inputs_that_are_missing_or_unknown_are_told() -> None:
    with pytest.raises(BindError) as caught:
        bound(NET, "Net", **GENERICS).infer("run", {"tokens": TensorSpec((1, 1), "i32")})
    assert caught.value.problems == (
        "`run` has no input `tokens`; it takes `ids`",
        "input `ids` of `run` is missing: Tensor[B, S; i32]",
    )


def test_the_seed_binds_exactly_the_paths_of_its_bindings(seed: Path) -> None:
    package = seed / "qwen3-8b-fp8"
    program = load(package / "src" / "lib.linnet").program
    assert program is not None
    card = {"Vocab": 151936, "H": 4096, "Heads": 32, "KvHeads": 8, "HeadDim": 128, "Inner": 12288, "Layers": 36}
    model = bind(program, "Model", {**card, "Batch": 1, "MaxSeq": 40960, "T": "bf16"})
    required = [entry.path for entry in model.manifest.required()]
    assert len(required) == 651
    assert set(required) == set(json.loads((package / "bindings.json").read_text()))
    weight, scale = (model.manifest[f"layers.0.attention.q_proj.{name}"] for name in ("weight", "scale"))
    assert (weight.shape, weight.dtype) == ((4096, 4096), "u8")
    assert (scale.shape, scale.dtype) == ((32, 32), "bf16")
    assert len(model.states()) == 72
    with pytest.raises(BindError, match=r"`H % 128 == 0` is false for H = 100"):
        bind(program, "Model", {**card, "H": 100, "Batch": 1, "MaxSeq": 8})
