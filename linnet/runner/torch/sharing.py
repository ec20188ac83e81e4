"""Whose memory a tensor lies in: results and states that a run hands over are nobody else's."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor


def places(tensors: Iterable[Tensor]) -> set[int]:
    """Where the tensors' storages begin; views of one tensor begin at one place. Those without memory (on meta, or
    inside a transform of `torch.func`) have none."""
    return {place for place in map(_place, tensors) if place}


def own(tensor: Tensor, taken: set[int]) -> Tensor:
    """The tensor, copied if it lies in one of the places `taken`."""
    return tensor.clone() if _place(tensor) in taken else tensor


def _place(tensor: Tensor) -> int:
    try:
        return tensor.untyped_storage().data_ptr()
    except RuntimeError:
        return 0
