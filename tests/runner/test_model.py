"""The Model: a torch module, its inputs and results, its state, and a sentence for each bad input."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from linnet.language.program.binding import BoundProgram
from linnet.runner.errors import (
    AllocationError,
    IndexRangeError,
    InputError,
    IntegerDivisionError,
    UnknownEntryError,
    WeightsError,
)
from linnet.runner.torch.module import Model, load_model
from linnet.runner.torch.weights import random_weights

SOURCE = """
module tiny
use std.nn.embedding::{Embedding}
use std.nn.linear::{Linear}
use std.nn.cache::{write_at}

pub struct Summary<V: Dim, T: Float> { logits: Tensor[V; T]  pair: (f32, i32) }

pub block Layer<H: Dim, T: Float> {
    sub proj: Linear<H, H, T>
    state seen: Tensor[4, H; T]

    pub fn forward<B: Dim>(x: Tensor[B, H; T]) -> Tensor[B, H; T] {
        return x + proj.forward(x)
    }
    pub fn add(x: Tensor[H; T]) -> Tensor[4, H; T] {
        let every[i, h] = seen[i, h] + x[h]
        seen = every
        return every
    }
}

pub block Tiny<Vocab: Dim, H: Dim, Layers: Dim, T: Float = f32> where H > 0 {
    sub embedding: Embedding<Vocab, H, T>
    sub layers: [Layer<H, T>; Layers]
    sub head: Linear<H, Vocab, T>
    state cache: Tensor[1, 1, 3, H; T]
    param extra: Tensor[H; T]? = none

    pub entry forward<B: Dim>(tokens: Tensor[B; i32]) -> Tensor[B, Vocab; T] {
        var x = embedding.forward(tokens)
        static for layer in layers { x = layer.forward(x) }
        return head.forward(x)
    }
    pub entry count(x: Tensor[H; T]) -> Tensor[4, H; T] {
        var total = fill<T>([4, H], 0.0)
        static for layer in layers { total = total + layer.add(x) }
        return total
    }
    pub entry put(x: Tensor[H; T], at: i32, divisor: i32) -> Tensor[3, H; T] {
        cache = write_at(cache, reshape(x, [1, 1, 1, H]), at / divisor)
        return cache[0, 0, :, :]
    }
    pub entry shift(x: Tensor[H; T]) -> Tensor[H; T] {
        return match extra { some(e) => x + e  none => x }
    }
    pub entry summary(x: Tensor[Vocab; T], scale: f32 = 2.0) -> Summary<Vocab, T> {
        return Summary(logits = x, pair = (scale, 7))
    }
    pub entry repeat<N: Dim>(x: i32) -> Tensor[N; i32] { return fill<i32>([N], x) }
    pub entry steps<N: Dim>() -> Tensor[N; i64] { return iota<i64>(N) }
    pub entry wide(x: Tensor[2; u32]) -> Tensor[2; u32] { return x + 1 }
    pub entry choose(mask: Tensor[2; bool], x: Tensor[2; f32]) -> Tensor[2; f32] { return select(mask, x, 0.0) }
    pub entry negative(x: f32 = -1.5) -> f32 { return x }
    pub entry optional(x: f32, y: f32? = none) -> f32 { return match y { some(v) => x + v  none => x } }
    pub entry halves<T2: Float>(x: Tensor[2; T2]) -> Tensor[2; T2] { return x / 2.0 }
}
"""
GENERICS = {"Vocab": 10, "H": 4, "Layers": 2}
FORWARD = "forward<B: Dim>(tokens: Tensor[B; i32]) -> Tensor[B, Vocab; T]"


@pytest.fixture(scope="module")
def bound(bind_source: Callable[..., BoundProgram]) -> BoundProgram:
    return bind_source(SOURCE, **GENERICS)


@pytest.fixture
def model(bound: BoundProgram) -> Model:
    return load_model(bound, random_weights(bound.manifest, 0), entry="forward")


# What a user sees


def test_the_card_entry_and_any_entry(model: Model) -> None:
    tokens = torch.tensor([1, 2, 3], dtype=torch.int32)
    logits = model(tokens)
    assert (logits.shape, logits.dtype, logits.requires_grad) == ((3, 10), torch.float32, False)
    assert torch.equal(model.run_entry("forward", {"tokens": tokens}), logits)


@pytest.mark.parametrize(
    "tokens",
    [
        [1, 2, 3],
        (1, 2, 3),
        np.array([1, 2, 3]),
        np.array([1, 2, 3], dtype=np.uint16),
        torch.tensor([1, 2, 3]),
        torch.tensor([1, 2, 3], dtype=torch.uint8),
        torch.tensor([1, 2, 3], dtype=torch.uint64),
        torch.tensor([1, 2, 3], dtype=torch.int16),
    ],
)
def test_ids_come_in_any_integer_form(model: Model, tokens: Any) -> None:
    assert torch.equal(model(tokens), model(torch.tensor([1, 2, 3], dtype=torch.int32)))


def test_a_read_only_array_is_taken(model: Model) -> None:
    tokens = np.array([1, 2])
    tokens.flags.writeable = False
    assert model(tokens).shape == (2, 10)


def test_generics_and_signatures(model: Model) -> None:
    assert model.generics == {**GENERICS, "T": "f32"}
    assert model.entries["forward"] == FORWARD
    assert model.entries["summary"] == "summary(x: Tensor[Vocab; T], scale: f32 = 2.0) -> Summary<Vocab, T>"
    assert list(model.entries)[:3] == ["forward", "count", "put"]


def test_results_are_arranged_as_declared_and_defaults_fill_in(model: Model) -> None:
    result = model.run_entry("summary", [torch.ones(10)])
    assert torch.equal(result["logits"], torch.ones(10))
    scale, count = result["pair"]
    assert (scale.item(), count.item(), count.dtype) == (2.0, 7, torch.int32)
    assert model.run_entry("summary", [torch.ones(10), 3])["pair"][0].item() == 3.0
    assert model.run_entry("negative").item() == -1.5


def test_optional_inputs(model: Model) -> None:
    assert model.run_entry("optional", [1.5]).item() == 1.5
    assert model.run_entry("optional", [1.5, None]).item() == 1.5
    assert model.run_entry("optional", [1.5, 2.0]).item() == 3.5


def test_generics_may_be_given(model: Model) -> None:
    assert model.run_entry("repeat", [3], generics={"N": 4}).tolist() == [3, 3, 3, 3]
    assert model.run_entry("halves", [torch.ones(2, dtype=torch.float16)]).dtype == torch.float16
    assert model.run_entry("halves", [[1, 3]], generics={"T2": "f64"}).tolist() == [0.5, 1.5]


def test_unsigned_words_go_in_and_out(model: Model) -> None:
    made = model.run_entry("wide", [torch.tensor([2**32 - 1, 4], dtype=torch.uint32)])
    assert (made.dtype, made.tolist()) == (torch.uint32, [0, 5])
    assert model.run_entry("wide", [[2**31, 4]]).tolist() == [2**31 + 1, 5]


def test_it_prints_as_a_module_tree(model: Model) -> None:
    assert repr(model) == (
        "Model(\n"
        "  extra: none\n"
        "  (embedding): Embedding<10, 4, f32>(weight: [10, 4; f32])\n"
        "  (layers): ModuleList(\n"
        "    (0-1): 2 x Layer<4, f32>(\n"
        "      (proj): Linear<4, 4, f32>(\n"
        "        weight: [4, 4; f32]\n"
        "        bias: none\n"
        "      )\n"
        "    )\n"
        "  )\n"
        "  (head): Linear<4, 10, f32>(\n"
        "    weight: [10, 4; f32]\n"
        "    bias: none\n"
        "  )\n"
        ")"
    )


def test_it_is_a_torch_module(model: Model) -> None:
    names = ["embedding.weight", "layers.0.proj.weight", "layers.1.proj.weight", "head.weight"]
    assert list(model.state_dict()) == names
    assert [name for name, _ in model.named_parameters()] == names
    assert model.layers[1].proj.weight is model.get_parameter("layers.1.proj.weight")
    other = load_model(model._bound, random_weights(model._bound.manifest, 9), entry="forward")
    assert not torch.equal(other([1]), model([1]))
    other.load_state_dict(model.state_dict())
    assert torch.equal(other([1]), model([1]))


def test_optional_weights_are_used_when_given(bound: BoundProgram) -> None:
    weights = random_weights(bound.manifest, 0)
    without = load_model(bound, weights)
    assert torch.equal(without.run_entry("shift", [torch.ones(4)]), torch.ones(4))
    extra = torch.tensor([1.0, 2.0, 3.0, 4.0])
    model = load_model(bound, {**weights, "extra": extra})
    assert torch.equal(model.run_entry("shift", [torch.ones(4)]), 1 + extra)


def test_shared_tensors_are_one_parameter(bound: BoundProgram) -> None:
    weights = random_weights(bound.manifest, 0)
    weights["head.weight"] = weights["embedding.weight"]
    model = load_model(bound, weights, entry="forward", trainable=True)
    assert len(list(model.parameters())) == 3
    assert "head.weight" in model.state_dict()
    model([1, 2]).sum().backward()
    assert model.head.weight.grad is model.embedding.weight.grad


def test_only_a_trainable_model_keeps_gradients(bound: BoundProgram, model: Model) -> None:
    assert not any(p.requires_grad for p in model.parameters())
    trainable = load_model(bound, random_weights(bound.manifest, 0), entry="forward", trainable=True)
    optimizer = torch.optim.SGD(trainable.parameters(), lr=0.5)
    losses = []
    for _ in range(5):
        loss = torch.nn.functional.cross_entropy(trainable([1, 2, 3]), torch.tensor([4, 5, 6]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses == sorted(losses, reverse=True)
    with torch.no_grad():
        assert not trainable([1]).requires_grad


def test_gradients_are_turned_on_as_the_model_is_loaded(bound: BoundProgram, model: Model) -> None:
    with pytest.raises(RuntimeError, match=r"keep no gradients: load it with nest\.load\(\.\.\., trainable=True\)"):
        model.requires_grad_()
    assert model.requires_grad_(False) is model
    trainable = load_model(bound, random_weights(bound.manifest, 0), entry="forward", trainable=True)
    assert not trainable.requires_grad_(False)([1]).requires_grad
    assert trainable.requires_grad_()([1]).requires_grad


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16", "f64"])
@pytest.mark.parametrize("convert", ["half", "bfloat16", "float", "double"])
def test_dtypes_are_part_of_the_program(bind_source: Callable[..., BoundProgram], dtype: str, convert: str) -> None:
    bound = bind_source(SOURCE, **GENERICS, T=dtype)
    model = load_model(bound, random_weights(bound.manifest, 0), entry="forward")
    before = model([1])
    if convert == {"f16": "half", "bf16": "bfloat16", "f32": "float", "f64": "double"}[dtype]:
        getattr(model, convert)()
    else:
        for part in (model, model.layers[0], model.layers):
            with pytest.raises(TypeError, match=rf"{dtype} weights .*, so load it with nest\.load\(dtype="):
                getattr(part, convert)()
    assert torch.equal(model([1]), before)
    assert model.to("cpu") is model


# Parameters that are replaced


def weights_of(bound: BoundProgram, seed: int) -> dict[str, torch.Tensor]:
    return random_weights(bound.manifest, seed)


@pytest.mark.parametrize("assign", [False, True])
def test_loaded_weights_count(bound: BoundProgram, model: Model, assign: bool) -> None:
    model([1])
    other = load_model(bound, weights_of(bound, 9), entry="forward")
    model.load_state_dict(other.state_dict(), assign=assign)
    assert torch.equal(model([1]), other([1]))


def test_an_assigned_parameter_counts(bound: BoundProgram, model: Model) -> None:
    model([1])
    model.head.weight = torch.nn.Parameter(torch.zeros(10, 4))
    assert not model([1]).any()
    other = load_model(bound, weights_of(bound, 9), entry="forward")
    model.head, model.embedding = other.head, other.embedding
    model.layers[0], model.layers[1] = other.layers[0], other.layers[1]
    assert torch.equal(model([1]), other([1]))


def test_an_optional_parameter_comes_and_goes(model: Model) -> None:
    ones = torch.ones(4)
    assert torch.equal(model.run_entry("shift", [ones]), ones)
    model.extra = torch.nn.Parameter(ones)
    assert torch.equal(model.run_entry("shift", [ones]), 2 * ones)
    model.extra = None
    assert torch.equal(model.run_entry("shift", [ones]), ones)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (torch.zeros(10, 5), r"head\.weight needs f32 \[10, 4\], but is given f32 \[10, 5\]"),
        (torch.zeros(10, 4).half(), r"head\.weight needs f32 \[10, 4\], but is given f16 \[10, 4\]"),
        (torch.zeros(10, 4, device="meta"), r"head\.weight on meta: move the model to one device with to\(\)"),
    ],
)
def test_a_parameter_that_does_not_fit_is_refused(model: Model, value: torch.Tensor, problem: str) -> None:
    before, kept = model([1]), model.head.weight
    model.head.weight = torch.nn.Parameter(value)
    for _ in range(2):
        with pytest.raises(WeightsError, match=problem):
            model([1])
    model.head.weight = kept
    assert torch.equal(model([1]), before)
    del model.head.weight
    with pytest.raises(WeightsError, match=r"head\.weight has no tensor"):
        model([1])


def test_real_weights_assigned_to_a_model_on_meta_run_where_they_are(bound: BoundProgram, model: Model) -> None:
    empty = load_model(bound, None, entry="forward", device="meta")
    assert empty([1]).is_meta
    empty.run_entry("count", [torch.ones(4)])
    empty.load_state_dict(model.state_dict(), assign=True)
    assert empty.device.type == "cpu"
    assert torch.equal(empty([1]), model([1]))
    assert torch.equal(empty.run_entry("count", [torch.ones(4)]), model.run_entry("count", [torch.ones(4)]))


def test_runs_keep_full_precision_and_leave_the_settings_alone(bound: BoundProgram, model: Model) -> None:
    matmul = torch.backends.cuda.matmul

    def settings() -> tuple[bool, bool, bool, str]:
        return (
            matmul.allow_bf16_reduced_precision_reduction,
            matmul.allow_fp16_reduced_precision_reduction,
            matmul.allow_fp16_accumulation,
            matmul.fp32_precision,
        )

    seen: list[tuple[bool, bool, bool, str]] = []
    before, factors = settings(), matmul.fp32_precision
    try:
        matmul.fp32_precision = "tf32"
        outside = settings()
        prepared = model._prepare
        model._prepare = lambda *given: watch(prepared(*given))  # type: ignore[method-assign]

        def watch(entry: Any) -> Any:
            class Watched:
                kept = frozenset[int]()

                def run(self, *given: Any) -> Any:
                    seen.append(settings())
                    return entry.graph.run(*given)

            return dataclasses.replace(entry, graph=Watched())

        model([1])
        with pytest.raises(IndexRangeError):
            model([10])
        assert seen == [(False, False, False, "ieee")] * 2
        assert settings() == outside
        assert outside[0]
    finally:
        matmul.fp32_precision = factors
    assert settings() == before


def test_meta_needs_no_weights_and_takes_no_memory(bound: BoundProgram) -> None:
    model = load_model(bound, None, entry="forward", device="meta", numerics="equivalent")
    logits = model([1, 2, 3])
    assert logits.is_meta
    assert logits.shape == (3, 10)
    assert model.run_entry("count", [torch.zeros(4)]).is_meta
    with pytest.raises(ValueError, match="weights are needed"):
        load_model(bound, None)


def test_a_model_moves_with_its_state(model: Model) -> None:
    model.run_entry("count", [torch.ones(4)])
    model.to("meta")
    assert model.run_entry("count", [torch.ones(4)]).is_meta
    assert all(value.is_meta for value in model._states.values())


def test_an_unknown_policy_is_refused(bound: BoundProgram) -> None:
    with pytest.raises(ValueError, match="numerics='quick' is not one of exact, equivalent"):
        load_model(bound, random_weights(bound.manifest, 0), numerics="quick")


# State


def test_state_lives_between_calls_and_resets(model: Model) -> None:
    assert model.state_paths() == ["layers.0.seen", "layers.1.seen", "cache"]
    assert not model._states
    for times in (1, 2, 3):
        assert torch.equal(model.run_entry("count", [torch.ones(4)]), torch.full((4, 4), 2.0 * times))
    model.reset_state()
    assert not model._states
    assert torch.equal(model.run_entry("count", [torch.ones(4)]), torch.full((4, 4), 2.0))


def test_a_result_does_not_change_with_later_calls(model: Model) -> None:
    first = model.run_entry("count", [torch.ones(4)])
    copy = first.clone()
    model.run_entry("count", [torch.ones(4)])
    assert torch.equal(first, copy)


@pytest.mark.parametrize("numerics", ["exact", "equivalent"])
def test_a_failed_call_changes_no_state(bound: BoundProgram, numerics: str) -> None:
    model = load_model(bound, random_weights(bound.manifest, 0), numerics=numerics)
    before = model.run_entry("put", [torch.ones(4), 1, 1])
    with pytest.raises(IndexRangeError):
        model.run_entry("put", [torch.full((4,), 9.0), 3, 1])
    with pytest.raises(IntegerDivisionError):
        model.run_entry("put", [torch.full((4,), 9.0), 1, 0])
    after = model.run_entry("put", [torch.ones(4), 1, 1])
    assert torch.equal(before, after)


def test_states_of_a_trainable_model_are_detached(bound: BoundProgram) -> None:
    model = load_model(bound, random_weights(bound.manifest, 0), trainable=True)
    model.run_entry("count", [torch.ones(4, requires_grad=True)])
    assert not any(value.requires_grad for value in model._states.values())


# Bad input: each a sentence, with the entry's signature


@pytest.mark.parametrize("numerics", ["exact", "equivalent"])
@pytest.mark.parametrize("token", [-1, 10, 2**31 - 1])
def test_a_token_outside_the_vocabulary(bound: BoundProgram, numerics: str, token: int) -> None:
    model = load_model(bound, random_weights(bound.manifest, 0), entry="forward", numerics=numerics)
    with pytest.raises(IndexRangeError) as caught:
        model([0, token, 3])
    assert str(caught.value) == (
        f"entry forward: id {token} is outside the embedding table of 10 rows (std.nn.embedding::embedding): "
        "valid are 0 to 9"
    )


@pytest.mark.parametrize("numerics", ["exact", "equivalent"])
def test_a_position_beyond_the_cache(bound: BoundProgram, numerics: str) -> None:
    model = load_model(bound, random_weights(bound.manifest, 0), numerics=numerics)
    with pytest.raises(IndexRangeError) as caught:
        model.run_entry("put", [torch.zeros(4), 3, 1])
    assert str(caught.value).startswith("entry put: position 3 is outside the cache of 3 positions (std.nn.cache::")


BAD: list[tuple[str, Any, str]] = [
    ("forward", [], "the input 'tokens' is missing"),
    ("forward", [[1], [2]], "2 inputs given where the entry takes 1"),
    ("forward", torch.tensor([1]), "the inputs are a list, or a mapping by name, and not a Tensor"),
    ("forward", {"token": [1]}, "no input is called 'token'"),
    ("forward", [[[1, 2]]], "tokens must have shape [B], but has [1, 2]"),
    ("forward", [3], "tokens must have shape [B], but has []"),
    ("forward", [torch.tensor([1.0])], "tokens must be an integer tensor, but is [1; f32]: convert it first"),
    ("forward", [[1.5, 2.0]], "tokens must be an integer tensor, but is [2; f32]: convert it first"),
    ("forward", [torch.tensor([True])], "tokens must be an integer tensor, but is [1; bool]: convert it first"),
    ("forward", [[5, 2**40]], "tokens[1] is 1099511627776, which i32 cannot hold"),
    ("forward", [torch.tensor([2**63], dtype=torch.uint64)], "tokens[0] is 9223372036854775808, which i32 cannot hold"),
    ("forward", ["hello"], "tokens is not a tensor, a number or an array of numbers"),
    ("forward", [[[1], [2, 3]]], "tokens is not a tensor, a number or an array of numbers"),
    ("forward", [torch.zeros(2, dtype=torch.complex64)], "tokens is torch.complex64, which Linnet has no dtype for"),
    ("count", [torch.zeros(4, dtype=torch.float64)], "x must be f32, but is [4; f64]: convert it first"),
    ("count", [torch.zeros(4, dtype=torch.bfloat16)], "x must be f32, but is [4; bf16]: convert it first"),
    ("count", [torch.zeros(4, dtype=torch.int32)], "x must be f32, but is [4; i32]: convert it first"),
    ("count", [torch.zeros(5)], "x must have shape [4], but has [5]"),
    ("put", [torch.zeros(4), 1.5, 1], "at must be i32, but is the float 1.5"),
    ("put", [torch.zeros(4), True, 1], "at must be i32, but is the bool True"),
    ("put", [torch.zeros(4), 2**31, 1], "at is 2147483648, which i32 cannot hold"),
    ("put", [torch.zeros(4), -(2**31) - 1, 1], "at is -2147483649, which i32 cannot hold"),
    ("choose", [[1, 0], [1.0, 2.0]], "mask must be bool, but is [2; i64]: convert it first"),
    ("repeat", [3], "needs a value for the generic `N`"),
    ("wide", [[-1, 0]], "x[0] is -1, which u32 cannot hold"),
    ("forward", [torch.ones(2, dtype=torch.int32, device="meta")], "tokens is on the meta device, so it has no values"),
    ("count", [torch.ones(4).to_sparse()], "x is not dense: give it as x.to_dense()"),
    ("negative", [1e39], "x is 1e+39, which f32 cannot hold"),
    ("negative", [10**400], "x is an integer of 1329 bits, which f32 cannot hold"),
    ("put", [torch.zeros(4), 10**5000, 1], "at is an integer of 16610 bits, which i32 cannot hold"),
    ("count", [[0.0, 1e39, 0.0, 0.0]], "x[1] is 1e+39, which f32 cannot hold"),
    ("count", [[0.0, 10**400, 0.0, 0.0]], "x is not a tensor, a number or an array of numbers"),
]


@pytest.mark.parametrize(("entry", "inputs", "problem"), BAD, ids=[problem for _, _, problem in BAD])
def test_a_bad_input_is_a_sentence_with_the_signature(model: Model, entry: str, inputs: Any, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        model.run_entry(entry, inputs)
    assert problem in str(caught.value)
    assert str(caught.value).endswith(f"; the entry is {model.entries[entry]}")
    assert not model._states


def test_wrong_generics_are_refused(model: Model) -> None:
    with pytest.raises(InputError, match="`repeat` has no generic `M`"):
        model.run_entry("repeat", [3], generics={"M": 4})
    with pytest.raises(InputError, match="a dimension is 0 or more"):
        model.run_entry("repeat", [3], generics={"N": -4})


@pytest.mark.parametrize(
    ("entry", "inputs", "generics", "problem"),
    [
        ("repeat", [3], "B", "generics are a mapping from names to values, and not 'B'"),
        ("repeat", [3], [1], r"generics are a mapping from names to values, and not \[1\]"),
        ("repeat", [3], {1: 2}, r"generics are a mapping from names to values, and not \{1: 2\}"),
        ("repeat", [3], {"N": [1]}, r"the generic N takes an integer or the name of a dtype, not \[1\]"),
        ("repeat", [3], {"N": True}, "the generic N takes an integer or the name of a dtype, not True"),
        ("repeat", [3], {"N": 2**80}, rf"a tensor \[{2**80}; i32\] is larger than any tensor can be"),
        ("repeat", [3], {"N": 2**62}, rf"a tensor \[{2**62}; i32\] is larger than any tensor can be"),
        ("halves", [[1, 3]], {"T2": "word"}, "the generic T2 is word, which is not a dtype"),
        ("halves", [[1, 3]], {"T2": 3}, "the generic T2 is 3, which is not a dtype"),
    ],
)
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_generics_that_cannot_be_are_a_sentence(
    bound: BoundProgram, device: str, entry: str, inputs: Any, generics: Any, problem: str
) -> None:
    model = load_model(bound, random_weights(bound.manifest, 0), device=device)
    with pytest.raises(InputError, match=problem) as caught:
        model.run_entry(entry, inputs, generics)
    assert str(caught.value).endswith(f"; the entry is {model.entries[entry]}")


def test_infinity_is_a_float(model: Model) -> None:
    assert model.run_entry("negative", [float("inf")]).item() == float("inf")
    assert model.run_entry("negative", [10**30]).item() == pytest.approx(1e30)
    assert model.run_entry("count", [[float("-inf"), 0.0, 1.0, 2.0]])[0, 0].item() == float("-inf")


def test_weights_that_no_tensor_can_be(bind_source: Callable[..., BoundProgram]) -> None:
    bound = bind_source(SOURCE, **{**GENERICS, "Vocab": 2**80})
    with pytest.raises(WeightsError, match=rf"embedding.weight \[{2**80}, 4; f32\] is larger than any tensor can be"):
        load_model(bound, None, device="meta")


def test_autocast_and_the_default_device_leave_dtypes_and_places_as_they_are(model: Model) -> None:
    wanted = model.run_entry("count", [[1.0, 2.0, 3.0, 4.0]])
    model.reset_state()
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.device("meta"):
        found = model.run_entry("count", [[1.0, 2.0, 3.0, 4.0]])
    assert found.dtype == wanted.dtype
    assert torch.equal(found, wanted)


def test_too_little_memory_is_a_sentence(model: Model) -> None:
    """More than a processor can address, so no machine has it."""
    said = r"entry steps needs [\d,.]+ GiB more on cpu, where [\d,.]+ [GM]iB are free: take smaller sizes"
    with pytest.raises(AllocationError, match=said) as caught:
        model.run_entry("steps", generics={"N": 2**58})
    assert caught.value.needed is not None
    assert caught.value.needed >= 2**58


def test_an_entry_is_named_by_a_word(model: Model) -> None:
    with pytest.raises(UnknownEntryError, match=r"no entry is called \['a'\]: this model has forward, count"):
        model.run_entry(["a"])  # type: ignore[arg-type]


def test_an_unknown_entry_lists_those_there_are(model: Model) -> None:
    with pytest.raises(UnknownEntryError, match="no entry is called 'backward': this model has forward, count, put"):
        model.run_entry("backward", [])


def test_a_model_without_a_card_entry_says_so(bound: BoundProgram) -> None:
    with pytest.raises(UnknownEntryError, match="no entry is named here or in the card: this model has forward, count"):
        load_model(bound, random_weights(bound.manifest, 0))([1])
