"""Text from a model that has `prefill` and `decode`: a prompt read into the caches, then one token after another.

    prefill<S>(tokens: Tensor[Batch, S; i32], pos: i32) -> Tensor[Batch, Vocab; T]
    decode(token: Tensor[Batch, 1; i32], pos: i32) -> Tensor[Batch, Vocab; T]

Both write their tokens into the caches at `pos` and return the logits after the last; `Batch` and `MaxSeq`, the cache's
size in positions, are generics of the root block.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterator, Mapping, Sequence
from operator import index
from time import perf_counter
from typing import Any
from weakref import WeakKeyDictionary

from torch import Tensor

from linnet.language.check.dims import DimError
from linnet.language.program.checked import CheckedFunction
from linnet.language.program.types import INTEGERS, TensorType, Type
from linnet.language.words import counted
from linnet.runner.decoder import DecoderModel, Prompt
from linnet.runner.errors import ContextError, GenerationError, NonFiniteError, TokenizerError
from linnet.runner.sampling import Sampler, Sampling
from linnet.runner.tokenizer import StopText, TextStream, TextTokenizer

# How many tokens are generated at most where nobody says.
DEFAULT_NEW = 256
NOTHING_COMPUTED = "on the meta device there are shapes and no values: load the model on another device, such as cpu"
EXPECTED = {
    "prefill": "prefill<S: Dim>(tokens: Tensor[Batch, S; i32], pos: i32) -> Tensor[Batch, Vocab; T]",
    "decode": "decode(token: Tensor[Batch, 1; i32], pos: i32) -> Tensor[Batch, Vocab; T]",
}

# Whose text a model's caches hold: that of the generation with this ticket, until another takes them over.
_holders: WeakKeyDictionary[DecoderModel, object] = WeakKeyDictionary()


class Generation(Iterator[str]):
    """One text as it is generated, piece by piece; made by `Model.generate(.., stream=True)`.

    `prompt` are the ids that were read, `tokens` those that came out so far (the end token too), and `finish` why it
    ended: "eos", "stop" (a stop string), "length", or None while it goes on. `first_seconds` is the time to the first
    token, `seconds` the time so far, spent here and not by whoever takes the pieces.
    """

    def __init__(
        self,
        model: DecoderModel,
        prompt: Prompt,
        *,
        max_new_tokens: int | None = None,
        sampling: Sampling,
        stop: str | Sequence[str] = (),
    ) -> None:
        """Checks everything that can be known before the model runs. Raises what `Model.generate` does."""
        if model.device.type == "meta":
            raise GenerationError(NOTHING_COMPUTED)
        self.vocabulary = decoder_vocabulary(model)
        self._model = model
        self._tokenizer = model.tokenizer
        if self._tokenizer.size > self.vocabulary:
            raise TokenizerError(
                f"{self._tokenizer.file} has ids up to {self._tokenizer.size - 1:,}, but the model's vocabulary has "
                f"{self.vocabulary:,} entries: name the tokenizer that the model was trained with"
            )
        self.prompt = prompt_ids(self._tokenizer, prompt)
        for i, token in enumerate(self.prompt):
            if not 0 <= token < self.vocabulary:
                raise GenerationError(
                    f"token {i} of the prompt is {token}, outside the vocabulary of {self.vocabulary:,} entries"
                )
        self.limit = new_tokens(len(self.prompt), max_new_tokens, int(model.generics["MaxSeq"]))
        self._stops = StopText(stop_strings(stop))
        self._sampler = Sampler(sampling)
        self.tokens: list[int] = []
        self.finish: str | None = None
        self.first_seconds = 0.0
        self.seconds = 0.0
        self._ticket = object()
        self._pieces = self._generated()

    def __next__(self) -> str:
        return next(self._pieces)

    def text(self) -> str:
        """All that is left, as one text."""
        return "".join(self)

    def _generated(self) -> Iterator[str]:
        stream = TextStream(self._tokenizer)
        with self._model._lock:
            _holders[self._model] = self._ticket
            self._model.reset_state()
            logits = self._run("prefill", self.prompt, 0)
        while True:
            started = perf_counter()
            token = self._sampler.choose(logits)
            self.seconds += perf_counter() - started
            self.first_seconds = self.first_seconds or self.seconds
            self.tokens.append(token)
            if token in self._tokenizer.eos:
                self.finish = "eos"
                break
            piece = self._stops.push(stream.push(token))
            if piece:
                yield piece
            if self._stops.found:
                self.finish = "stop"
                return
            if len(self.tokens) == self.limit:
                self.finish = "length"
                break
            logits = self._run("decode", [token], len(self.prompt) + len(self.tokens) - 1)
        rest = self._stops.push(stream.finish())
        if not self._stops.found:
            rest += self._stops.finish()
        if rest:
            yield rest

    def _run(self, entry: str, tokens: Sequence[int], position: int) -> Tensor:
        """The logits `[Vocab]` after `tokens`. Every row of the caches holds the same text."""
        started = perf_counter()
        with self._model._lock:
            if _holders.get(self._model) is not self._ticket:
                raise GenerationError(
                    "another text was begun on this model, whose caches hold one at a time: "
                    "finish one first, or load the model twice"
                )
            rows = int(self._model.generics["Batch"])
            logits = self._model._first_row(entry, [[list(tokens)] * rows, position])
            if not bool(logits.isfinite().all()):
                read = [*self.prompt, *self.tokens]
                self._model.reset_state()
                told = self._model.explain_nonfinite("prefill", [[read] * rows, 0])
                raise NonFiniteError(f"the logits after {counted(len(read), 'token')} are not all numbers: {told}")
        self.seconds += perf_counter() - started
        return logits


def decoder_vocabulary(model: DecoderModel) -> int:
    """The number of logits that `prefill` and `decode` give. Raises GenerationError where a model has none of them."""
    absent = [name for name in EXPECTED if name not in model._functions]
    if absent:
        raise GenerationError(
            f"generating text needs the {'entries' if len(absent) > 1 else 'entry'} {' and '.join(absent)}, which this "
            f"model does not have: it has {', '.join(model.entries) or 'none'}"
        )
    for name, expected in EXPECTED.items():
        if not _is_step(model._functions[name]):
            raise GenerationError(f"generating text takes the entry {expected}, but here it is {model.entries[name]}")
    unknown = [name for name in ("Batch", "MaxSeq") if not isinstance(model.generics.get(name), int)]
    if unknown:
        raise GenerationError(
            f"generating text needs to know the generic {' and '.join(unknown)} (rows and positions of the cache), "
            f"which this model does not have: it has {', '.join(model.generics)}"
        )
    return vocabulary(model._functions["decode"], model.generics)


def vocabulary(function: CheckedFunction, generics: Mapping[str, int | str]) -> int:
    """The last axis of an entry's logits. Raises GenerationError where the model's generics do not determine it."""
    sizes = {name: value for name, value in generics.items() if isinstance(value, int)}
    assert isinstance(function.result, TensorType)
    axis: Any = function.result.shape[-1]
    try:
        return int(axis.evaluate(sizes))
    except (AttributeError, DimError):
        raise GenerationError(
            f"the entry {function.name} gives {function.result}, whose last axis is not settled by the model's generics"
        ) from None


def _is_step(function: CheckedFunction) -> bool:
    """Whether an entry takes tokens and a position, and gives a row of logits for each row of tokens."""
    types = [parameter.type for parameter in function.parameters[:2]]
    return (
        len(types) == 2
        and is_tensor(types[0], 2, INTEGERS)
        and is_tensor(types[1], 0, INTEGERS)
        and all(default is not None for default in function.defaults[2:])
        and is_tensor(function.result, 2)
    )


def is_tensor(type: Type, rank: int, dtypes: Sequence[str] | None = None) -> bool:
    """Whether a type is a tensor of that rank and, where they are given, of one of the dtypes."""
    if not isinstance(type, TensorType) or len(type.shape) != rank:
        return False
    return dtypes is None or str(type.dtype) in dtypes


def prompt_ids(tokenizer: TextTokenizer, prompt: Prompt) -> list[int]:
    """The ids of a prompt in any of its forms. Raises GenerationError for an empty one, or one of another form."""
    empty = "the prompt is empty: give a text, messages, or token ids"
    if isinstance(prompt, Tensor):
        flat = prompt[0] if prompt.dim() == 2 and len(prompt) == 1 else prompt
        if flat.dim() != 1 or flat.is_floating_point() or flat.is_complex():
            raise GenerationError(f"token ids are a list of integers, not a tensor {list(prompt.shape)}")
        prompt = [int(token) for token in flat]
    wrong = f"a prompt is a text, a list of messages, or token ids, and one at a time, not {reprlib.repr(prompt)}"
    if not isinstance(prompt, str | Sequence):
        raise GenerationError(wrong)
    if len(prompt) == 0:
        raise GenerationError(empty)
    if isinstance(prompt, str):
        ids = tokenizer.encode(prompt)
    elif any(isinstance(item, Mapping) for item in prompt):
        messages: Any = prompt
        ids = tokenizer.encode_chat(messages)
    else:
        try:
            # numpy's integers and tensors of one are indices too; True is not meant as 1.
            ids = [index(token) for token in prompt]  # type: ignore[arg-type]
        except TypeError:
            raise GenerationError(wrong) from None
        if any(isinstance(token, bool) for token in prompt):
            raise GenerationError(wrong)
    if not ids:
        raise GenerationError(empty)
    return ids


def new_tokens(prompt: int, asked: int | None, positions: int) -> int:
    """How many tokens may come after `prompt` ones. Raises ContextError, GenerationError."""
    if asked is None:
        if prompt >= positions:
            raise ContextError(prompt, 1, positions)
        return min(DEFAULT_NEW, positions - prompt)
    if isinstance(asked, bool) or not isinstance(asked, int) or asked < 1:
        raise GenerationError(f"max_new_tokens={asked!r} is not a count from 1 up")
    if prompt + asked > positions:
        raise ContextError(prompt, asked, positions)
    return asked


def stop_strings(stop: str | Sequence[str]) -> tuple[str, ...]:
    """Raises GenerationError unless all are texts that are not empty."""
    if not isinstance(stop, str | Sequence):
        raise GenerationError(f"stop={stop!r} is not a text to stop at, or a list of them")
    stops = (stop,) if isinstance(stop, str) else tuple(stop)
    for item in stops:
        if not isinstance(item, str) or not item:
            raise GenerationError(f"stop={item!r} is not a text to stop at")
    return stops
