"""What every backend's model has: what `nest.load` gives, whatever runs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from linnet.runner.decoder import DecoderModel

if TYPE_CHECKING:
    from linnet.language.program.binding import BoundProgram
    from linnet.runner.tokenizer import TextTokenizer
    from linnet.runner.torch.weights import WeightsReport


class LoadedModel(DecoderModel, Protocol):
    """A package as a running model: `linnet.runner.torch.module.Model`, `linnet.runner.mlx.module.Model`.

    Results, weights and devices are of the backend's own framework.
    """

    _bound: BoundProgram
    _present: frozenset[str]
    tokenizer_source: Callable[[], TextTokenizer] | None
    weights_report: WeightsReport

    @property
    def numerics(self) -> str: ...
    @property
    def compiled(self) -> bool | str: ...
    @property
    def fallbacks(self) -> Mapping[str, Any]: ...
    def __call__(self, *inputs: Any, **named: Any) -> Any: ...
    def run_entry(
        self,
        name: str,
        inputs: Sequence[Any] | Mapping[str, Any] = ...,
        generics: Mapping[str, int | str] | None = ...,
    ) -> Any: ...
    def state_dict(self) -> Mapping[str, Any]: ...
    def state_paths(self) -> list[str]: ...
    def resize(self, **generics: int) -> None: ...

    @property
    def generate(self) -> Callable[..., Any]:
        """A method; see `linnet.runner.decoder.TextGeneration.generate`."""
        ...
