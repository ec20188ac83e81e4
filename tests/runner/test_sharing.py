"""What a run hands over is the caller's own, and a model can be shared by threads, copied and pickled."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
import torch

from linnet.language.program.binding import BoundProgram
from linnet.runner.torch.module import Model, load_model
from linnet.runner.torch.precision import full_precision

SOURCE = """
module sharing

pub block Keep {
    state s: Tensor[3; f32]
    state words: Tensor[2; u32]
    param w: Tensor[3; f32]

    pub entry put(x: Tensor[3; f32]) -> Tensor[3; f32] { s = x  return s }
    pub entry get() -> Tensor[3; f32] { return s }
    pub entry row() -> Tensor[2; f32] { return s[1:] }
    pub entry step(x: Tensor[3; f32]) -> Tensor[3; f32] { s = s + x * w  return s }
    pub entry keep() -> Tensor[3; f32] { s = w  return s + 0.0 }
    pub entry weight() -> Tensor[3; f32] { return w }
    pub entry same(x: Tensor[3; f32]) -> Tensor[3; f32] { return x }
    pub entry put_words(x: Tensor[2; u32]) -> Tensor[2; u32] { words = x  return words }
    pub entry get_words() -> Tensor[2; u32] { return words }
    pub entry count() -> Tensor[4; i64] { return iota<i64>(4) }
    pub entry number() -> f32 { return 2.5 }
    pub entry filled() -> Tensor[3; f32] { return fill<f32>([3], 2.5) }
    pub entry empty(x: Tensor[0; f32]) -> f32 { let most = max[i] x[i]  return most }
    pub entry twice(x: Tensor[3; f32]) -> (Tensor[3; f32], Tensor[2; f32]) { let y = x + 1.0  return (y, y[1:]) }
}
"""
ONES = torch.ones(3)


@pytest.fixture(scope="module")
def bound(bind_source: Callable[..., BoundProgram]) -> BoundProgram:
    return bind_source(SOURCE)


@pytest.fixture
def model(bound: BoundProgram) -> Model:
    return load_model(bound, {"w": torch.tensor([1.0, 2.0, 3.0])}, entry="step")


def test_a_state_is_not_the_input_it_was_written_from(model: Model) -> None:
    x = torch.ones(3)
    model.run_entry("put", [x]).zero_()
    x.zero_()
    assert model.run_entry("get").tolist() == [1, 1, 1]
    words = torch.tensor([1, 2**32 - 1], dtype=torch.uint32)
    model.run_entry("put_words", [words])
    words.zero_()
    assert model.run_entry("get_words").tolist() == [1, 2**32 - 1]


def test_a_state_is_not_the_weight_it_was_written_from(model: Model) -> None:
    model.run_entry("keep")
    model.w.data.zero_()
    assert model.run_entry("get").tolist() == [1, 2, 3]


@pytest.mark.parametrize("entry", ["get", "row", "weight", "count", "number", "filled", "get_words"])
def test_a_result_that_is_changed_changes_no_later_one(model: Model, entry: str) -> None:
    model.run_entry("put", [ONES])
    first = model.run_entry(entry)
    expected = first.clone()
    first.view(-1)[0] = 7
    assert torch.equal(model.run_entry(entry), expected)


def test_the_largest_of_nothing_is_not_kept(model: Model) -> None:
    model.run_entry("empty", [torch.ones(0)]).fill_(7)
    assert model.run_entry("empty", [torch.ones(0)]).item() == float("-inf")


def test_a_result_is_neither_an_input_nor_another_result(model: Model) -> None:
    x = torch.ones(3)
    model.run_entry("same", [x]).zero_()
    assert x.tolist() == [1, 1, 1]
    first, second = model.run_entry("twice", [x])
    first.zero_()
    assert second.tolist() == [2, 2]


def test_a_result_that_is_new_is_not_copied(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    model.run_entry("step", [ONES])
    copies: list[torch.Tensor] = []
    clone = torch.Tensor.clone
    monkeypatch.setattr(torch.Tensor, "clone", lambda x: copies.append(x) or clone(x))
    model.run_entry("step", [ONES])
    # The result is the state; the state itself is new.
    assert len(copies) == 1


def test_a_result_that_is_a_weight_has_its_gradient(bound: BoundProgram) -> None:
    model = load_model(bound, {"w": torch.ones(3)}, trainable=True)
    result = model.run_entry("weight")
    assert result is not model.w
    result.sum().backward()
    assert model.w.grad.tolist() == [1, 1, 1]


def test_functional_calls_are_transformed(bound: BoundProgram) -> None:
    model = load_model(bound, {"w": torch.ones(3)}, entry="weight", trainable=True)

    def total(weights: dict[str, torch.Tensor]) -> torch.Tensor:
        return (torch.func.functional_call(model, weights) ** 2).sum()

    assert torch.func.grad(total)({"w": torch.tensor([1.0, 2.0, 3.0])})["w"].tolist() == [2, 4, 6]


def test_calls_from_threads_lose_no_state(model: Model) -> None:
    workers, calls = 8, 200
    together = Barrier(workers)

    def work(_: int) -> None:
        together.wait()
        for _ in range(calls):
            model.run_entry("step", [ONES])

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(work, range(workers)))
    assert model.run_entry("get").tolist() == [workers * calls * w for w in (1, 2, 3)]


def test_runs_that_overlap_put_the_precision_back_last() -> None:
    matmul = torch.backends.cuda.matmul
    before = matmul.allow_bf16_reduced_precision_reduction
    assert before
    first, second = full_precision(), full_precision()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not matmul.allow_bf16_reduced_precision_reduction
    second.__exit__(None, None, None)
    assert matmul.allow_bf16_reduced_precision_reduction == before


@pytest.mark.parametrize("made", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_copy_has_weights_and_states_of_its_own(model: Model, made: Callable[[Model], Model]) -> None:
    model.run_entry("step", [ONES])
    other = made(model)
    assert other(ONES).tolist() == [2, 4, 6]
    assert model.run_entry("get").tolist() == [1, 2, 3]
    other.w = torch.nn.Parameter(torch.zeros(3))
    assert other(ONES).tolist() == [2, 4, 6]
    assert model(ONES).tolist() == [2, 4, 6]
