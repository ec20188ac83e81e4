"""What a backend is: something that turns a bound program and its weights into a model that runs."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Protocol

from linnet.language.program.binding import BoundProgram
from linnet.runner.loaded import LoadedModel


class Backend(Protocol):
    """A module with this interface.

    `NUMERICS` lists the policies it has. `load_model` binds weights, in a form of the backend's own, to a program; it
    raises WeightsError.
    """

    NUMERICS: tuple[str, ...]

    def choose_mode(
        self, wanted: bool | str | None, fp8: str | None, numerics: str, device: Any, trainable: bool
    ) -> bool | str:
        """How a model would run. Raises ModeError for what cannot be had."""
        ...

    def load_model(
        self,
        bound: BoundProgram,
        weights: Any,
        *,
        entry: str | None = None,
        numerics: str = "exact",
        device: Any = None,
        convert: bool = False,
        trainable: bool = False,
        compile: bool | str | None = None,
        fp8: str | None = None,
    ) -> LoadedModel: ...


def device_name(model: LoadedModel) -> str:
    """The device that a model of any backend runs on: "cpu", "cuda:1", "gpu"."""
    device = model.device
    kind = device.type
    return str(device) if isinstance(kind, str) else str(kind.name)


# Imported when first asked for: a command that runs nothing should not pay for a framework.
BACKENDS: Mapping[str, str] = {"torch": "linnet.runner.torch.module", "mlx": "linnet.runner.mlx.module"}


def find_backend(name: str) -> Backend:
    """The backend called `name`. Raises ValueError for an unknown one, ImportError where its framework is missing."""
    if name not in BACKENDS:
        raise ValueError(f"backend={name!r} is not one of {', '.join(BACKENDS)}")
    module: Any = import_module(BACKENDS[name])
    return module  # type: ignore[no-any-return]
