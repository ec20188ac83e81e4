"""How a model is loaded, as one value that functions and commands hand on."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    import os

    import torch


class LoadArguments(TypedDict, total=False):
    """What `linnet.nest.load` takes beside a package and a backend, as its users write it."""

    numerics: str
    device: str | torch.device | None
    dtype: str | torch.dtype | None
    generics: Mapping[str, int | str] | None
    weights: str | os.PathLike[str] | None
    compile: bool | str | None
    fp8: str | None
    registry: str | None
    trainable: bool
    offline: bool | None
    capacity: int | None


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """Arguments of `linnet.nest.load`, of the same names and meanings."""

    backend: str = "torch"
    numerics: str = "equivalent"
    device: str | None = None
    dtype: str | None = None
    generics: Mapping[str, int | str] | None = None
    weights: Path | None = None
    compile: bool | str | None = None
    fp8: str | None = None
    capacity: int | None = None
    registry: str | None = None
    offline: bool | None = None

    @classmethod
    def of(cls, **given: Any) -> LoadOptions:
        """From what users give `nest.load`. Raises NestError for a dtype that is none, TypeError for other names."""
        from linnet.loading import dtype_name

        named = dict(given)
        if named.get("dtype") is not None:
            named["dtype"] = dtype_name(named["dtype"], named.get("backend", "torch"))
        if named.get("device") is not None:
            named["device"] = str(named["device"])
        if named.get("weights") is not None:
            named["weights"] = Path(named["weights"]).expanduser()
        return cls(**named)

    def arguments(self) -> dict[str, Any]:
        """As keyword arguments of `nest.load`."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def but(self, **changed: Any) -> LoadOptions:
        """The same with other values."""
        return dataclasses.replace(self, **changed)

    def shapes(self) -> LoadOptions:
        """For a model of shapes alone, on the meta device of torch, whatever it is to run on."""
        return self.but(backend="torch", device="meta", weights=None, compile=None, fp8=None)

    def with_positions(self, positions: int) -> LoadOptions:
        """With caches of so many positions, where nobody said how many."""
        generics = dict(self.generics or {})
        if self.capacity is None:
            generics.setdefault("MaxSeq", positions)
        return self.but(generics=generics or None)
