"""Whose memory a tensor lies in: results and states that a run hands over are nobody else's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from torch import Tensor


def places(tensors: Iterable[Tensor]) -> set[int]:
    """Where the tensors' storages begin; views of one tensor begin at one place. Those without memory (on meta, or
    inside a transform of `torch.func`) have none."""
    return {place for place in map(_place, tensors) if place}


def in_memory(tensors: Iterable[Tensor]) -> bool:
    """Whether each tensor lies somewhere, or has no elements."""
    return all(_place(tensor) or not tensor.numel() for tensor in tensors)


def own(tensor: Tensor, taken: set[int]) -> Tensor:
    """The tensor, copied if it lies in one of the places `taken`."""
    return tensor.clone() if _place(tensor) in taken else tensor


def own_states(written: Mapping[str, Tensor], states: Mapping[str, Tensor], taken: set[int]) -> dict[str, Tensor]:
    """The new values of states, copied where they lie in one of the places `taken`, in another state or in another new
    value: an entry that writes one state in place must not change a second."""
    owners = {_place(state): path for path, state in states.items()}
    result: dict[str, Tensor] = {}
    for path, value in written.items():
        place = _place(value)
        shared = place and (place in taken or owners.setdefault(place, path) != path)
        result[path] = value.clone() if shared else value
    return result


def _place(tensor: Tensor) -> int:
    try:
        return tensor.untyped_storage().data_ptr()
    except RuntimeError:
        return 0
