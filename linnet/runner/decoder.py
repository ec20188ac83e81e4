"""What a model that reads and writes text has, whatever runs it.

The modules that do it are imported when they are first asked for: most models are loaded to be called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from threading import RLock
from typing import TYPE_CHECKING, Any, Literal, Protocol, overload

from torch import Tensor

from linnet.language.program.checked import CheckedFunction
from linnet.runner.errors import TokenizerError

if TYPE_CHECKING:
    from linnet.runner.generate import Generation
    from linnet.runner.tokenizer import TextTokenizer

Prompt = str | Sequence[Mapping[str, Any]] | Sequence[int] | Tensor


class DecoderModel(Protocol):
    """What generation needs of a model."""

    _functions: dict[str, CheckedFunction]
    _lock: RLock

    @property
    def generics(self) -> dict[str, int | str]: ...
    @property
    def entries(self) -> dict[str, str]: ...
    @property
    def tokenizer(self) -> TextTokenizer: ...
    @property
    def device(self) -> Any: ...
    def reset_state(self) -> None: ...
    def run_entry(self, name: str, inputs: Sequence[Any] = ...) -> Any: ...
    def explain_nonfinite(self, name: str, inputs: Sequence[Any]) -> str: ...
    def _first_row(self, entry: str, inputs: Sequence[Any]) -> Tensor: ...


class TextGeneration:
    """The part of a model that reads and writes text. `nest.load` gives it the tokenizer of the package's card."""

    tokenizer_source: Callable[[], TextTokenizer] | None = None
    _tokenizer: TextTokenizer | None = None

    @property
    def tokenizer(self) -> TextTokenizer:
        """The card's tokenizer, fetched and read when it is first asked for. Raises TokenizerError, RegistryError."""
        if self._tokenizer is None:
            if self.tokenizer_source is None:
                raise TokenizerError("this model has no tokenizer: load it from a package whose card has [tokenizer]")
            self._tokenizer = self.tokenizer_source()
        return self._tokenizer

    def _first_row(self: DecoderModel, entry: str, inputs: Sequence[Any]) -> Tensor:
        """The first row of an entry's result, as a torch tensor."""
        row: Tensor = self.run_entry(entry, inputs)[0]
        return row

    @overload
    def generate(
        self: DecoderModel,
        prompt: Prompt,
        *,
        max_new_tokens: int | None = None,
        temperature: float = 0.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
        stop: str | Sequence[str] = (),
        stream: Literal[False] = False,
    ) -> str: ...

    @overload
    def generate(
        self: DecoderModel,
        prompt: Prompt,
        *,
        max_new_tokens: int | None = None,
        temperature: float = 0.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
        stop: str | Sequence[str] = (),
        stream: Literal[True],
    ) -> Generation: ...

    def generate(
        self: DecoderModel,
        prompt: Prompt,
        *,
        max_new_tokens: int | None = None,
        temperature: float = 0.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
        stop: str | Sequence[str] = (),
        stream: bool = False,
    ) -> str | Generation:
        """The text that follows a prompt, without the prompt.

        `prompt` is a text; a list of messages, `{"role": .., "content": ..}`, which the card's chat template turns into
        one; or token ids. It ends with one of the card's `eos` tokens, before one of the strings of `stop`, or after
        `max_new_tokens` (None: 256, or what the cache has room for). `temperature` 0 is greedy; above it tokens are
        drawn from the logits divided by it, among the `top_k` likeliest and the fewest whose probabilities reach
        `top_p`; a `seed` draws the same ones again. With `stream` the text comes in pieces as it is made, none of which
        ends within a character.

        The caches are reset and hold this text: a second one on the same model takes them over. Raises GenerationError
        for a model without the entries or an empty prompt, ContextError where prompt and new tokens do not fit the
        cache, TokenizerError, ChatError, SamplingError, NonFiniteError, and what `run_entry` does.
        """
        from linnet.runner.generate import Generation
        from linnet.runner.sampling import Sampling

        sampling = Sampling(temperature, top_k, top_p, seed)
        generation = Generation(self, prompt, max_new_tokens=max_new_tokens, sampling=sampling, stop=stop)
        if stream:
            return generation
        # Threads that share a model generate one after another.
        with self._lock:
            return generation.text()
