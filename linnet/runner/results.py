"""How an entry's result is put together from a graph's flat outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from linnet.language.program.core import ResultTree

if TYPE_CHECKING:
    from torch import Tensor


def arrange(tree: ResultTree, results: Sequence[Any]) -> Any:
    """Tuples as tuples, structs as dicts, an absent optional as None."""
    if tree is None:
        return None
    if isinstance(tree, int):
        return results[tree]
    if isinstance(tree, tuple):
        return tuple(arrange(part, results) for part in tree)
    return {name: arrange(part, results) for name, part in tree.items()}


def as_tensor(result: Any) -> Tensor:
    """One tensor of any backend's, as torch's: torch's own where it is, MLX's on the CPU."""
    from torch import Tensor

    if isinstance(result, Tensor):
        return result.detach()
    from linnet.runner.mlx.dtypes import to_torch

    return to_torch(result)
