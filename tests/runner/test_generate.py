"""Generated text: against transformers, in pieces, within its limits, and what is refused before anything runs."""

from __future__ import annotations

import copy
import gc
import pickle
import re
import weakref
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from text_package import TextPackage, write_text_package

from linnet import nest
from linnet.language.program.binding import BindError, BoundProgram
from linnet.runner.errors import (
    ChatError,
    ContextError,
    EvaluationError,
    GenerationError,
    NonFiniteError,
    RunnerError,
    SamplingError,
    TokenizerError,
    WeightsError,
)
from linnet.runner.perplexity import measure
from linnet.runner.torch.module import Model, load_model

BROKEN = "\N{REPLACEMENT CHARACTER}"
PROMPT = "The harbour was quiet"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> TextPackage:
    return write_text_package(tmp_path_factory.mktemp("packages") / "text", chat=True)


@pytest.fixture(scope="module")
def model(package: TextPackage) -> Model:
    return nest.load(package.folder, device="cpu")


@pytest.mark.parametrize("prompt", [PROMPT, "fish 🐟", "x"])
def test_greedy_text_is_that_of_transformers(package: TextPackage, model: Model, prompt: str) -> None:
    ids = package.tokenizer.encode(prompt).ids
    generation = model.generate(prompt, max_new_tokens=24, stream=True)
    text = generation.text()
    assert generation.prompt == ids
    wanted: list[int] = []
    eos = {package.tokenizer.token_to_id(token) for token in ("<|endoftext|>", "<|im_end|>")}
    for _ in range(24):
        with torch.no_grad():
            logits = package.reference(torch.tensor([ids + wanted])).logits[0, -1]
        wanted.append(int(logits.argmax()))
        if wanted[-1] in eos:
            break
    assert generation.tokens == wanted
    assert generation.finish == ("eos" if wanted[-1] in eos else "length")
    whole = package.tokenizer.decode(wanted)
    assert whole.startswith(text)
    assert set(whole[len(text) :]) <= {BROKEN}
    assert model.generate(prompt, max_new_tokens=24) == text
    assert model.generate(ids, max_new_tokens=24) == text
    assert model.generate(torch.tensor([ids]), max_new_tokens=24) == text


def test_a_conversation_is_the_template_filled_in(package: TextPackage, model: Model) -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who counted?"}]
    text = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nWho counted?<|im_end|>\n<|im_start|>assistant\n"
    generation = model.generate(messages, max_new_tokens=8, stream=True)
    assert generation.prompt == package.tokenizer.encode(text).ids
    assert generation.text() == model.generate(text, max_new_tokens=8)


def test_pieces_join_to_the_text(model: Model) -> None:
    settings: dict[str, Any] = {"max_new_tokens": 40, "temperature": 1.0, "seed": 7}
    pieces = list(model.generate(PROMPT, stream=True, **settings))
    assert len(pieces) > 5
    assert all(pieces)
    assert "".join(pieces) == model.generate(PROMPT, **settings)


def test_seeds_draw_the_same_text_again(model: Model) -> None:
    def text(seed: int) -> str:
        return model.generate(PROMPT, max_new_tokens=20, temperature=1.0, top_k=50, top_p=0.95, seed=seed)

    assert text(1) == text(1)
    assert text(1) != text(2)


def test_top_k_of_one_is_greedy(model: Model) -> None:
    assert model.generate(PROMPT, max_new_tokens=16, temperature=5.0, top_k=1) == model.generate(
        PROMPT, max_new_tokens=16
    )


def test_a_stop_text_ends_it_before_itself(model: Model) -> None:
    settings: dict[str, Any] = {"max_new_tokens": 40, "temperature": 1.0, "seed": 7}
    whole = model.generate(PROMPT, **settings)
    middle = next(i for i in range(6, len(whole)) if BROKEN not in whole[i : i + 3])
    stop = whole[middle : middle + 3]
    generation = model.generate(PROMPT, stream=True, stop=["never so", stop], **settings)
    assert generation.text() == whole[: whole.find(stop)]
    assert generation.finish == "stop"
    assert model.generate(PROMPT, stop=stop, **settings) == whole[: whole.find(stop)]


def test_an_end_token_ends_it_and_is_not_shown(package: TextPackage, tmp_path: Path) -> None:
    greedy = nest.load(package.folder, device="cpu").generate(PROMPT, max_new_tokens=3, stream=True)
    greedy.text()
    token = package.tokenizer.id_to_token(greedy.tokens[2])
    folder = tmp_path / "text"
    other = write_text_package(folder, chat=True)
    other.edit('eos = ["<|endoftext|>", "<|im_end|>"]', f"eos = {token!r}".replace("'", '"'))
    ended = nest.load(folder, device="cpu").generate(PROMPT, max_new_tokens=30, stream=True)
    text = ended.text()
    first = greedy.tokens.index(greedy.tokens[2])
    assert ended.tokens == greedy.tokens[: first + 1]
    assert ended.finish == "eos"
    assert text == package.tokenizer.decode(greedy.tokens[:first]).rstrip(BROKEN)


def test_every_row_of_a_wider_cache_holds_the_text(package: TextPackage, model: Model) -> None:
    wide = nest.load(package.folder, device="cpu", generics={"Batch": 3})
    assert wide.generate(PROMPT, max_new_tokens=12) == model.generate(PROMPT, max_new_tokens=12)


def test_it_tells_how_it_went(model: Model) -> None:
    generation = model.generate(PROMPT, max_new_tokens=4, stream=True)
    assert (generation.tokens, generation.finish, generation.seconds) == ([], None, 0)
    generation.text()
    assert len(generation.tokens) == 4
    assert 0 < generation.first_seconds < generation.seconds


# Limits


def test_a_cache_is_filled_to_its_end_and_no_further(package: TextPackage, model: Model) -> None:
    ids = package.tokenizer.encode(PROMPT).ids
    room = 64 - len(ids)
    full = model.generate(PROMPT, max_new_tokens=room, temperature=1.0, seed=2, stream=True)
    full.text()
    assert full.finish == "eos" or len(full.tokens) == room
    words = rf"a prompt of {len(ids)} tokens and {room + 1} new ones make 65, but the cache holds 64 \(MaxSeq\): "
    with pytest.raises(ContextError, match=words) as caught:
        model.generate(PROMPT, max_new_tokens=room + 1)
    assert (caught.value.prompt, caught.value.new, caught.value.positions) == (len(ids), room + 1, 64)
    long = ids * 20
    with pytest.raises(ContextError, match=rf"a prompt of {len(long)} tokens and 1 new one make"):
        model.generate(long)


def test_without_a_limit_it_takes_the_room_there_is(package: TextPackage, model: Model) -> None:
    ids = package.tokenizer.encode(PROMPT).ids
    generation = model.generate(ids, temperature=1.0, seed=11, stream=True)
    assert generation.limit == 64 - len(ids)


def test_a_model_is_resized_where_weights_allow(package: TextPackage) -> None:
    model = nest.load(package.folder, device="cpu")
    text = model.generate(PROMPT, max_new_tokens=10)
    model.resize(MaxSeq=32, Batch=2)
    assert (model.generics["MaxSeq"], model.generics["Batch"]) == (32, 2)
    assert "Layer<32, 2, 64, 2, 32, f32>" in str(model)
    assert model.generate(PROMPT, max_new_tokens=10) == text
    with pytest.raises(ContextError, match="holds 32"):
        model.generate(PROMPT, max_new_tokens=32)
    with pytest.raises(BindError):
        model.resize(MaxSeq=65)
    with pytest.raises(WeightsError, match="weights depend on Vocab"):
        model.resize(Vocab=100)
    assert model.generics["MaxSeq"] == 32


def test_copies_and_pickles_generate_the_same(model: Model) -> None:
    text = model.generate(PROMPT, max_new_tokens=10)
    assert copy.deepcopy(model).generate(PROMPT, max_new_tokens=10) == text
    assert pickle.loads(pickle.dumps(model)).generate(PROMPT, max_new_tokens=10) == text


def test_a_second_text_takes_the_caches_over(model: Model) -> None:
    first = model.generate(PROMPT, max_new_tokens=20, stream=True, temperature=1.0, seed=3)
    next(first)
    second = model.generate("The keeper", max_new_tokens=10)
    with pytest.raises(GenerationError, match="another text was begun on this model"):
        list(first)
    assert model.generate("The keeper", max_new_tokens=10) == second


def test_a_model_that_has_generated_is_freed(package: TextPackage) -> None:
    model = nest.load(package.folder, device="cpu")
    generation = model.generate(PROMPT, max_new_tokens=4, stream=True)
    next(generation)
    gone = weakref.ref(model)
    del model, generation
    gc.collect()
    assert gone() is None


def test_threads_that_share_a_model_wait_for_one_another(model: Model) -> None:
    prompts = [PROMPT, "The keeper", "By noon", "fish"]
    wanted = [model.generate(prompt, max_new_tokens=8) for prompt in prompts]
    found: dict[int, str] = {}

    def work(i: int) -> None:
        found[i] = model.generate(prompts[i], max_new_tokens=8)

    threads = [Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[i] for i in range(4)] == wanted


def test_what_torch_is_told_elsewhere_changes_nothing(model: Model) -> None:
    settings: dict[str, Any] = {"max_new_tokens": 8, "temperature": 1.0, "seed": 2}
    wanted = model.generate("The boats", **settings)
    ids = [torch.tensor(token) for token in model.tokenizer.encode("The boats")]
    with torch.device("meta"):
        assert model.generate("The boats", **settings) == wanted
        assert model.generate(ids, **settings) == wanted  # type: ignore[arg-type]
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.inference_mode():
        assert model.generate("The boats", **settings) == wanted


# Refused


@pytest.mark.parametrize(
    ("prompt", "kind", "words"),
    [
        ("", GenerationError, "the prompt is empty: give a text, messages, or token ids"),
        ([], GenerationError, "the prompt is empty"),
        (torch.zeros(0, dtype=torch.long), GenerationError, "the prompt is empty"),
        (torch.zeros(3), GenerationError, r"token ids are a list of integers, not a tensor \[3\]"),
        (torch.zeros(2, 3, dtype=torch.long), GenerationError, r"not a tensor \[2, 3\]"),
        (3, GenerationError, "a prompt is a text, a list of messages, or token ids, and one at a time, not 3"),
        ([4, -1], GenerationError, "token 1 of the prompt is -1, outside the vocabulary of"),
        ([4, 100_000], GenerationError, "token 1 of the prompt is 100000, outside the vocabulary of"),
        (["Hello", "you"], GenerationError, r"and one at a time, not \['Hello', 'you'\]"),
        ([[1, 2], [3, 4]], GenerationError, r"and one at a time, not \[\[1, 2\], \[3, 4\]\]"),
        ([1, True], GenerationError, r"and one at a time, not \[1, True\]"),
        ([{"role": "user", "content": "x"}, "Hello"], ChatError, "a message is a mapping"),
        ([{"role": "user"}], ChatError, "has no content"),
        ("Hello \udcff", TokenizerError, "character 6 of the text is none that UTF-8 has"),
        ("Hello <|nobody|>", TokenizerError, r"the text has <\|nobody\|>, which looks like a special token"),
    ],
)
def test_prompts_that_cannot_be_are_refused(model: Model, prompt: object, kind: type[RunnerError], words: str) -> None:
    with pytest.raises(kind, match=words):
        model.generate(prompt)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "kind", "words"),
    [
        ({"max_new_tokens": 0}, GenerationError, "max_new_tokens=0 is not a count"),
        ({"max_new_tokens": 1.5}, GenerationError, r"max_new_tokens=1\.5 is not a count"),
        ({"stop": ""}, GenerationError, "stop='' is not a text"),
        ({"stop": ["a", 3]}, GenerationError, "stop=3 is not a text"),
        ({"stop": None}, GenerationError, "stop=None is not a text to stop at, or a list of them"),
        ({"temperature": -1}, SamplingError, "temperature=-1"),
    ],
)
def test_settings_that_cannot_be_are_refused(
    model: Model, settings: dict[str, Any], kind: type[RunnerError], words: str
) -> None:
    with pytest.raises(kind, match=words):
        model.generate(PROMPT, **settings)


def test_a_tokenizer_with_more_ids_than_the_model_has_is_refused(package: TextPackage) -> None:
    vocabulary = package.tokenizer.get_vocab_size()
    weights = {
        n: t[:300] if n == "wte.weight" else t for n, t in load_file(package.folder / "model.safetensors").items()
    }
    other = package.folder.parent / "short"
    other.mkdir(exist_ok=True)
    save_file({name: tensor.contiguous() for name, tensor in weights.items()}, other / "model.safetensors")
    model = nest.load(package.folder, weights=other, generics={"Vocab": 300}, device="cpu")
    words = rf"tokenizer\.json has ids up to {vocabulary - 1}, but the model's vocabulary has 300 entries"
    with pytest.raises(TokenizerError, match=words):
        model.generate(PROMPT)


STEPS = """\
module steps
pub block Steps<Vocab: Dim, {generics}T: Float = f32> {{
    param table: Tensor[Vocab; T]
{entries}
}}
"""
PREFILL = """
    pub entry prefill<B: Dim, S: Dim>(tokens: Tensor[B, S; i32], pos: i32) -> Tensor[B, Vocab; T] where S > 0 {
        let out[b, v] = table[v] + cast<T>(tokens[b, S - 1] + pos)
        return out
    }
"""
DECODE = PREFILL.replace("prefill<B: Dim, S: Dim>(tokens: Tensor[B, S; i32]", "decode<B: Dim>(token: Tensor[B, 1; i32]")
DECODE = DECODE.replace("tokens[b, S - 1]", "token[b, 0]").replace(" where S > 0", "")
OTHER = "\n    pub entry embed(x: Tensor[Vocab; T]) -> Tensor[Vocab; T] { return x + table }\n"


@pytest.mark.parametrize(
    ("generics", "entries", "words"),
    [
        ("", OTHER, "needs the entries prefill and decode, which this model does not have: it has embed"),
        ("", PREFILL, "needs the entry decode, which this model does not have: it has prefill"),
        ("", DECODE, "needs the entry prefill, which this model does not have: it has decode"),
        (
            "",
            PREFILL + DECODE,
            "needs to know the generic Batch and MaxSeq .* this model does not have: it has Vocab, T",
        ),
        ("Batch: Dim, ", PREFILL + DECODE, "needs to know the generic MaxSeq"),
        (
            "Batch: Dim, MaxSeq: Dim, ",
            PREFILL + DECODE.replace(", pos: i32", "").replace(" + pos", ""),
            r"takes the entry decode\(token: .*, pos: i32\) .*, but here it is decode<B: Dim>\(token: Tensor",
        ),
    ],
)
def test_a_model_that_cannot_generate_is_told_what_is_missing(
    bind_source: Callable[..., BoundProgram], generics: str, entries: str, words: str
) -> None:
    sizes = dict.fromkeys(re.findall(r"(\w+): Dim", generics), 4)
    bound = bind_source(STEPS.format(generics=generics, entries=entries), Vocab=8, **sizes)
    model = load_model(bound, {"table": torch.zeros(8)})
    with pytest.raises(GenerationError, match=words):
        model.generate([1])


def test_nothing_is_computed_on_meta(package: TextPackage) -> None:
    model = nest.load(package.folder, device="meta")
    with pytest.raises(GenerationError, match="on the meta device there are shapes and no values: load the model on"):
        model.generate(PROMPT)
    with pytest.raises(EvaluationError, match="on the meta device there are shapes and no values"):
        measure(model, [1, 2, 3], window=3, stride=1, entry="forward")


def test_a_model_without_a_tokenizer_says_so(bind_source: Callable[..., BoundProgram]) -> None:
    text = STEPS.format(generics="Batch: Dim, MaxSeq: Dim, ", entries=PREFILL + DECODE)
    model = load_model(bind_source(text, Vocab=8, Batch=1, MaxSeq=4), {"table": torch.zeros(8)})
    with pytest.raises(TokenizerError, match="this model has no tokenizer: load it from a package"):
        model.generate([1])


# Not numbers


@pytest.mark.parametrize("numerics", ["exact", "equivalent"])
def test_a_weight_that_is_nan_is_named(package: TextPackage, numerics: str) -> None:
    model = nest.load(package.folder, device="cpu", numerics=numerics)
    with torch.no_grad():
        model.layers[1].up.weight[3, 5] = float("nan")
    words = (
        r"the logits after \d+ tokens are not all numbers: NaN appears first in layers\.1\.up \(gpt2\.dense::dense at "
        r".*src/dense\.linnet:\d+:\d+\), whose weight layers\.1\.up\.weight holds 1 value of that kind: fetch"
    )
    with pytest.raises(NonFiniteError, match=words):
        model.generate(PROMPT)


def test_a_row_of_the_table_that_is_infinite_is_named(package: TextPackage) -> None:
    model = nest.load(package.folder, device="cpu")
    with torch.no_grad():
        model.wte.weight[package.tokenizer.encode(PROMPT).ids[0], :2] = float("inf")
    with pytest.raises(NonFiniteError, match=r"infinity appears first in wte \(std\.nn\.embedding::embedding at "):
        model.generate(PROMPT)


def test_an_overflow_in_f16_is_placed(package: TextPackage) -> None:
    model = nest.load(package.folder, device="cpu", dtype="f16")
    with torch.no_grad():
        model.layers[0].down.weight.fill_(30000.0)
    words = (
        r"infinity appears first in layers\.0\.down \(gpt2\.dense::dense at .*\), from finite inputs in f16: "
        r'load with dtype="bf16" or "f32" \(--dtype\)'
    )
    with pytest.raises(NonFiniteError, match=words):
        model.generate(PROMPT)
    # What is left behind is no obstacle.
    with torch.no_grad():
        model.layers[0].down.weight.fill_(0.01)
    assert isinstance(model.generate(PROMPT, max_new_tokens=3), str)


def test_a_sum_that_overflows_is_placed_behind_its_block(package: TextPackage) -> None:
    model = nest.load(package.folder, device="cpu", dtype="f16")
    with torch.no_grad():
        for name in ("wte", "wpe"):
            getattr(model, name).weight.fill_(40000.0)
    with pytest.raises(NonFiniteError, match=r"infinity appears first after wpe \(add at .*lib\.linnet:\d+:\d+\)"):
        model.generate(PROMPT)


def test_weights_and_states_of_a_failed_text_are_left_alone(package: TextPackage, model: Model) -> None:
    before = model.generate(PROMPT, max_new_tokens=6)
    saved = model.norm.weight.detach().clone()
    with torch.no_grad():
        model.norm.weight.fill_(float("nan"))
    with pytest.raises(NonFiniteError, match=r"NaN appears first in norm .* whose weight norm\.weight holds 32 values"):
        model.generate(PROMPT)
    with torch.no_grad():
        model.norm.weight.copy_(saved)
    assert model.generate(PROMPT, max_new_tokens=6) == before
