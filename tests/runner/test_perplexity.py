"""Perplexity: the strided protocol, against the same run through transformers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file
from text_package import TEXT, TextPackage, write_text_package
from torch import Tensor
from transformers import Qwen3Config, Qwen3ForCausalLM

from linnet import nest
from linnet.language.program.binding import BoundProgram
from linnet.runner.errors import EvaluationError, InputError, NonFiniteError
from linnet.runner.perplexity import Perplexity, measure, windows
from linnet.runner.torch.module import Model, load_model

SMALL_QWEN = {
    "Vocab": 340,
    "H": 64,
    "Heads": 4,
    "KvHeads": 2,
    "HeadDim": 16,
    "Inner": 96,
    "Layers": 2,
    "Batch": 1,
    "MaxSeq": 64,
    "T": "f32",
}


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> TextPackage:
    return write_text_package(tmp_path_factory.mktemp("packages") / "text")


@pytest.fixture(scope="module")
def model(package: TextPackage) -> Model:
    return nest.load(package.folder, device="cpu")


@pytest.fixture(scope="module")
def ids(package: TextPackage) -> list[int]:
    found = package.tokenizer.encode(TEXT).ids
    assert len(found) > 150
    return list(found[:151])


def strided(reference: Any, ids: list[int], window: int, stride: int) -> tuple[float, list[tuple[float, int]]]:
    """The strided protocol as it is written for transformers: labels that are not scored are -100, and the model shifts
    them itself. Returns the mean, and each window's loss with the labels that it is over."""
    losses, before = [], 0
    for begin in range(0, len(ids), stride):
        end = min(begin + window, len(ids))
        labels = torch.tensor([ids[begin:end]])
        labels[:, : -(end - before)] = -100
        count = int((labels[:, 1:] != -100).sum())
        if count:
            with torch.no_grad():
                losses.append((float(reference(torch.tensor([ids[begin:end]]), labels=labels).loss), count))
        before = end
        if end == len(ids):
            break
    return sum(loss * count for loss, count in losses) / sum(count for _, count in losses), losses


@pytest.mark.parametrize(("window", "stride"), [(32, 16), (64, 64), (48, 1), (24, 23), (64, 7)])
def test_gpt2_has_the_perplexity_that_transformers_gives(
    package: TextPackage, model: Model, ids: list[int], window: int, stride: int
) -> None:
    wanted, losses = strided(package.reference, ids, window, stride)
    found = measure(model, ids, window=window, stride=stride, entry="forward")
    assert found.perplexity == pytest.approx(math.exp(wanted), rel=1e-4)
    assert (found.windows, found.tokens) == (len(losses), sum(count for _, count in losses))
    assert found.entry == "forward"


def test_qwen3_has_the_perplexity_that_transformers_gives(
    root: Any, ids: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    reference = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=SMALL_QWEN["Vocab"],
            hidden_size=SMALL_QWEN["H"],
            num_attention_heads=SMALL_QWEN["Heads"],
            num_key_value_heads=SMALL_QWEN["KvHeads"],
            head_dim=SMALL_QWEN["HeadDim"],
            intermediate_size=SMALL_QWEN["Inner"],
            num_hidden_layers=SMALL_QWEN["Layers"],
            max_position_embeddings=SMALL_QWEN["MaxSeq"],
            rms_norm_eps=1e-6,
            rope_theta=1e6,
            tie_word_embeddings=False,
        )
    ).eval()
    generator = torch.Generator().manual_seed(0)
    for name, parameter in reference.named_parameters():
        torch.nn.init.normal_(parameter, mean=1.0 if "norm" in name else 0.0, std=0.2, generator=generator)
    folder = tmp_path_factory.mktemp("qwen3")
    names = sorted(reference.state_dict())
    for i in range(1, 6):
        part = {name: reference.state_dict()[name].contiguous() for name in names[i - 1 :: 5]}
        save_file(part, folder / f"model-0000{i}-of-00005.safetensors")
    model = nest.load(root / "nests" / "qwen3-8b", weights=folder, generics=SMALL_QWEN, device="cpu")
    wanted, _ = strided(reference, ids, 40, 20)
    whole = measure(model, ids, window=40, stride=20, entry="forward")
    assert whole.perplexity == pytest.approx(math.exp(wanted), rel=1e-3)
    stepped = measure(model, ids, window=40, stride=20, entry="decode")
    assert stepped.perplexity == pytest.approx(math.exp(wanted), rel=1e-3)


def test_step_by_step_it_is_the_same(package: TextPackage, model: Model, ids: list[int]) -> None:
    whole = measure(model, ids, window=32, stride=12, entry="forward")
    stepped = measure(model, ids, window=32, stride=12, entry="prefill")
    assert stepped.entry == "prefill, decode"
    assert (stepped.tokens, stepped.windows) == (whole.tokens, whole.windows)
    assert stepped.nll == pytest.approx(whole.nll, rel=1e-5)
    assert stepped.nll_error == pytest.approx(whole.nll_error, rel=1e-4)
    wide = nest.load(package.folder, device="cpu", generics={"Batch": 4})
    assert measure(wide, ids, window=32, stride=12, entry="prefill").nll == pytest.approx(whole.nll, rel=1e-5)


@pytest.mark.parametrize("batch", [2, 3, 100])
def test_a_batch_changes_nothing(model: Model, ids: list[int], batch: int) -> None:
    one = measure(model, ids, window=32, stride=12, entry="forward")
    many = measure(model, ids, window=32, stride=12, entry="forward", batch=batch)
    assert many.nll == pytest.approx(one.nll, rel=1e-6)
    assert (many.tokens, many.windows) == (one.tokens, one.windows)


def test_windows_are_the_sample_of_the_standard_error(package: TextPackage, model: Model, ids: list[int]) -> None:
    found = measure(model, ids, window=30, stride=30, entry="forward")
    _, losses = strided(package.reference, ids, 30, 30)
    # Five windows of 29 tokens, and a last one of a single token, which is not scored.
    means = torch.tensor([loss for loss, count in losses if count == 29], dtype=torch.float64)
    assert (found.windows, found.tokens) == (5, 5 * 29)
    assert found.nll_error == pytest.approx(float(means.std() / math.sqrt(len(means))), rel=1e-3)
    assert found.error == pytest.approx(found.perplexity * (found.nll_error or 0))
    assert measure(model, ids[:20], window=30, stride=30, entry="forward").error is None


@given(st.integers(2, 120), st.integers(2, 40), st.integers(1, 40))
def test_windows_score_each_token_once(tokens: int, window: int, stride: int) -> None:
    if stride > window:
        with pytest.raises(EvaluationError, match="would leave tokens out"):
            windows(tokens, window, stride)
        return
    scored: list[int] = []
    for item in windows(tokens, window, stride):
        assert item.end - item.begin <= window
        first = item.end - item.scored
        # A token is predicted from those before it, at least `window - stride` of them once a window is full.
        assert first - item.begin >= (1 if item.begin == 0 else max(1, window - stride))
        scored += range(first, item.end)
    everything = range(1, tokens)
    left_out = set(everything) - set(scored)
    assert sorted(set(scored)) == scored
    assert left_out == ({i for i in everything if i % window == 0} if stride == window else set())


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"window": 1, "stride": 1}, "a window of 1 token predicts nothing"),
        ({"window": 8, "stride": 9}, "a stride of 9 over a window of 8 would leave tokens out: take 1 to 8"),
        ({"window": 8, "stride": 0}, "a stride of 0 over a window of 8"),
        ({"window": 8, "stride": 4, "batch": 0}, "a batch of 0 windows is none"),
    ],
)
def test_sizes_that_cannot_be_are_refused(model: Model, ids: list[int], settings: dict[str, int], words: str) -> None:
    with pytest.raises(EvaluationError, match=words):
        measure(model, ids, entry="forward", **settings)


@pytest.mark.parametrize("text", [[], [5]])
def test_a_text_of_no_predictions_is_refused(model: Model, text: list[int]) -> None:
    with pytest.raises(EvaluationError, match=rf"the text has {len(text)} tokens?, and a prediction needs 2"):
        measure(model, text, window=8, stride=4, entry="forward")


def test_ids_outside_the_vocabulary_are_refused(model: Model) -> None:
    with pytest.raises(EvaluationError, match="token 2 of the text is 5000, and the model's vocabulary has"):
        measure(model, [1, 2, 5000], window=8, stride=4, entry="forward")


def test_a_window_longer_than_the_model_is_refused(model: Model, ids: list[int]) -> None:
    with pytest.raises(InputError, match="S <= Positions"):
        measure(model, ids, window=100, stride=50, entry="forward")
    with pytest.raises(EvaluationError, match=r"a window of 100 tokens does not fit the cache of 64 positions"):
        measure(model, ids, window=100, stride=50, entry="prefill")


@pytest.mark.parametrize("entry", ["forward", "prefill"])
def test_logits_that_are_nan_are_an_error(package: TextPackage, ids: list[int], entry: str) -> None:
    model = nest.load(package.folder, device="cpu")
    with torch.no_grad():
        model.layers[0].attention_norm.weight[0] = float("nan")
    words = rf"logits of the entry {entry} .* NaN appears first in layers\.0\.attention_norm .* fetch the weights again"
    with pytest.raises(NonFiniteError, match=words):
        measure(model, ids, window=32, stride=16, entry=entry)


SCORES = """\
module scores
pub block Scores<Vocab: Dim, Batch: Dim, T: Float = f32> {
    param table: Tensor[Vocab, Vocab; T]

    /// One row of logits a token, for a batch of a fixed size.
    pub entry all<S: Dim>(tokens: Tensor[Batch, S; i32]) -> Tensor[Batch, S, Vocab; T] {
        let out[b, s, v] = table[tokens[b, s], v]
        return out
    }

    pub entry sum<S: Dim>(tokens: Tensor[Batch, S; i32]) -> Tensor[Vocab; T] {
        let out[v] = sum[b, s] table[tokens[b, s], v]
        return out
    }
}
"""


def bigram(bind_source: Callable[..., BoundProgram], batch: int) -> tuple[Model, Tensor]:
    table = torch.randn(6, 6, generator=torch.Generator().manual_seed(0))
    return load_model(bind_source(SCORES, Vocab=6, Batch=batch), {"table": table}), table


@pytest.mark.parametrize("batch", [1, 4])
def test_a_bigram_model_has_the_perplexity_of_its_table(bind_source: Callable[..., BoundProgram], batch: int) -> None:
    model, table = bigram(bind_source, batch)
    text = torch.randint(0, 6, (50,), generator=torch.Generator().manual_seed(1))
    wanted = torch.nn.functional.cross_entropy(table[text[:-1]], text[1:])
    seen: list[Any] = []
    found = measure(model, text.tolist(), window=9, stride=5, entry="all", watch=lambda work: seen.append(work) or work)
    assert found.nll == pytest.approx(float(wanted), rel=1e-5)
    assert found.tokens == 49
    assert len(seen) == 1


def test_a_model_without_logits_is_refused(bind_source: Callable[..., BoundProgram]) -> None:
    model, _ = bigram(bind_source, 1)
    words = (
        r"no perplexity: sum<S: Dim>.* gives no logits \[B, S, Vocab\] of tokens \[B, S\], and .* prefill and decode"
    )
    with pytest.raises(EvaluationError, match=words):
        measure(model, [1, 2, 3], window=4, stride=2, entry="sum")
    with pytest.raises(
        EvaluationError, match="this model has no perplexity: generating text needs the entries prefill"
    ):
        measure(model, [1, 2, 3], window=4, stride=2)


def test_a_perplexity_beyond_floats_is_infinite() -> None:
    assert Perplexity(700.0, 0.1, 1, 2, "forward", 1.0).perplexity == math.exp(700)
    assert Perplexity(1e4, 0.1, 1, 2, "forward", 1.0).perplexity == math.inf
