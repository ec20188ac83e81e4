"""The match of a manifest with a checkpoint, and the counting of parameters."""

from __future__ import annotations

import pytest

from linnet.language.program.manifest import Manifest, ManifestEntry
from linnet.registry.bindings import Bindings
from linnet.registry.headers import TensorInfo, TensorTable
from linnet.registry.match import Match, match_weights
from linnet.registry.parameters import count_parameters, human_count


def item(
    path: str, shape: tuple[int, ...] = (4,), dtype: str = "f32", kind: str = "param", optional: bool = False
) -> ManifestEntry:
    return ManifestEntry(path, kind, shape, dtype, optional, "Tensor", "tiny::Model")


def table(*tensors: tuple[str, str, tuple[int, ...]]) -> TensorTable:
    infos = {name: TensorInfo(name, dtype, shape, "m.safetensors", 0, 0) for name, dtype, shape in tensors}
    return TensorTable(infos, ("m.safetensors", "n.safetensors"))


def match(
    entries: list[ManifestEntry],
    tensors: TensorTable,
    bindings: dict[str, str] | None = None,
    unused: tuple[str, ...] = (),
) -> Match:
    manifest = Manifest(tuple(entries))
    return match_weights(manifest, Bindings(bindings or {}).resolve(manifest), tensors, unused)


def test_a_full_match() -> None:
    found = match(
        [item("a.weight", (2, 2), "u8"), item("a.bias", optional=True), item("b.bias", optional=True)],
        table(("w", "F8_E4M3", (2, 2)), ("b.bias", "F32", (4,))),
        {"a.weight": "w"},
    )
    assert found.problems == ()
    assert {path: info.name for path, info in found.tensors.items()} == {"a.weight": "w", "b.bias": "b.bias"}
    assert found.present == {"b.bias"}
    assert found.unused == ()


def test_a_missing_tensor_is_named_with_the_files() -> None:
    found = match([item("a"), item("b", optional=True)], table(("model.a", "F32", (4,))), {"b": "gone"})
    assert [str(problem) for problem in found.problems] == [
        'a: The parameter a reads the tensor "a", which is not in "m.safetensors", "n.safetensors". The nearest tensor '
        'that nothing binds is "model.a".',
        'b: The parameter b reads the tensor "gone", which is not in "m.safetensors", "n.safetensors". The nearest '
        'tensor that nothing binds is "model.a".',
    ]
    assert [problem.kind for problem in found.problems] == ["weights.missing-tensor"] * 2


def test_an_optional_tensor_that_a_placeholder_names_may_be_absent() -> None:
    entries = [item("layers.0.bias", optional=True), item("layers.1.bias", optional=True)]
    found = match(entries, table(("b1", "F32", (4,))), {"layers.{i}.bias": "b{i}"})
    assert found.problems == ()
    assert found.present == {"layers.1.bias"}


def test_shapes_and_dtypes_that_differ_are_both_shown() -> None:
    found = match(
        [item("a", (2, 3)), item("b", dtype="bf16"), item("c", (2,), "u8"), item("d", (0,))],
        table(("a", "F32", (3, 2)), ("b", "F32", (4,)), ("c", "F8_E5M2", (2,)), ("d", "F32", ())),
    )
    assert [str(problem) for problem in found.problems] == [
        'a: The shapes of a differ: the source declares f32 [2, 3], but the tensor "a" in m.safetensors is F32 [3, 2]. '
        "It looks transposed: bindings do not transpose, so store it as declared or declare it as stored.",
        'b: The dtypes of b differ: the source declares bf16 [4], but the tensor "b" in m.safetensors '
        "is F32 [4]. Correct "
        "the card's dtype generics or the source: no dtype is converted while binding.",
        'c: The dtypes of c differ: the source declares u8 [2], but the tensor "c" in m.safetensors is F8_E5M2 [2]. '
        "Correct the card's dtype generics or the source: no dtype is converted while binding.",
        'd: The shapes of d differ: the source declares f32 [0], but the tensor "d" in m.safetensors is '
        "F32 []. Correct "
        "the card's generics (or generics=), the binding or the source.",
    ]
    assert found.tensors == {}


def test_a_packed_tensor_that_no_recipe_names_is_told_so() -> None:
    parts = [("a.scales", "BF16", (8, 2)), ("a.biases", "BF16", (8, 2))]
    entries = [item("a.weight", (8, 64), "bf16")]
    found = match(entries, table(("a.weight", "U32", (8, 8)), *parts))
    assert [str(problem) for problem in found.problems] == [
        'a.weight is declared bf16 [8, 64], but the tensor "a.weight" in m.safetensors is U32 [8, 8], packed '
        'as "a.scales" and "a.biases" beside it tell, and no recipe names it. Name it in a recipe.json, and that in '
        "the card's weights.recipe."
    ]
    # Words alone are no packed tensor.
    alone = match(entries, table(("a.weight", "U32", (8, 8))))
    assert [problem.kind for problem in alone.problems] == ["weights.shape"]


@pytest.mark.parametrize(
    ("tensors", "kind"),
    [
        ([("a.gate_up_proj.weight", "F32", (7, 4))], "weights.shape"),
        ([("a.gate_up_proj.weight", "F32", (8, 4)), ("a.up_proj.weight", "F32", (4, 4))], "weights.fused-and-split"),
        (
            [
                (f"a.gate_up_proj.{what}", dtype, (8, 1))
                for what, dtype in (("weight", "U32"), ("scales", "F32"), ("biases", "F32"))
            ],
            "weights.packed",
        ),
    ],
)
def test_of_a_fused_tensor_that_is_wrong_one_thing_is_said(
    tensors: list[tuple[str, str, tuple[int, ...]]], kind: str
) -> None:
    entries = [item(f"a.{part}_proj.weight", (4, 4)) for part in ("gate", "up")]
    assert [problem.kind for problem in match(entries, table(*tensors)).problems] == [kind]


def test_tensors_that_nothing_binds() -> None:
    tensors = table(("a", "F32", (4,)), ("x.position_ids", "I64", (1, 512)), ("extra", "F32", (4,)))
    assert match([item("a")], tensors).unused == ("x.position_ids", "extra")
    assert match([item("a")], tensors, unused=("*.position_ids",)).unused == ("extra",)
    assert match([item("a")], tensors, unused=("*",)).unused == ()


def test_two_paths_on_one_tensor() -> None:
    found = match([item("embed"), item("head")], table(("wte", "F32", (4,))), {"embed": "wte", "head": "wte"})
    assert found.problems == ()
    assert found.unused == ()


def test_scales_buffers_and_tied_tensors_do_not_count() -> None:
    manifest = Manifest(
        (
            item("embed.weight", (10, 4)),
            item("head.weight", (10, 4)),
            item("q.weight", (4, 4), "u8"),
            item("q.scale", (2, 2)),
            item("q.bias", (4,), optional=True),
            item("norm.scale", (4,)),
            item("norm.weight", (4,)),
            item("table", (100,), kind="buffer"),
        )
    )
    tied = Bindings({"embed.weight": "wte", "head.weight": "wte"}).resolve(manifest).tensors
    assert count_parameters(manifest, tied) == 40 + 16 + 4 + 4
    assert count_parameters(manifest, tied, {"q.bias"}) == 40 + 16 + 4 + 4 + 4
    untied = Bindings().resolve(manifest).tensors
    assert count_parameters(manifest, untied) == 80 + 16 + 4 + 4


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0"), (999, "999"), (4096, "4.1K"), (22713216, "22.7M"), (999_949_999, "999.9M"), (999_950_000, "1.0B"),
        (8190735360, "8.2B"), (1_000_000_000_000, "1.0T"), (2_500_000_000_000_000, "2500.0T"),
    ],
)  # fmt: skip
def test_counts_for_people(count: int, text: str) -> None:
    assert human_count(count) == text
