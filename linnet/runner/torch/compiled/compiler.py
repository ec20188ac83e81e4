"""How a model's entries are compiled: the mode, what each mode asks of a device, and the weights that entries share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from linnet.language.program.core import Graph
from linnet.runner.errors import ModeError
from linnet.runner.torch.compiled.blocked import can_block
from linnet.runner.torch.compiled.entry import CompiledEntry
from linnet.runner.torch.compiled.graphs import ReplayedEntry
from linnet.runner.torch.compiled.store import FP8_MODES, WeightStore
from linnet.runner.torch.kernels import Policy

# True: straight-line code. "inductor": that, given to torch.compile. "reduce-overhead": that, replayed as a CUDA graph.
MODES = (True, "inductor", "reduce-overhead")
Mode = bool | str


def choose_mode(
    wanted: Mode | None, fp8: str | None, numerics: str, device: str | torch.device, trainable: bool
) -> Mode:
    """The mode that a model runs in; False is the interpreter.

    None takes the best that is sure to work on the device: straight-line code, except where gradients are wanted, on
    the meta device, and under `exact`, whose interpreter is the reference. Raises ModeError for a mode that cannot be
    had.
    """
    place = torch.device(device).type
    if fp8 is not None and fp8 not in FP8_MODES:
        raise ModeError(f"fp8={fp8!r} is not known; write {' or '.join(map(repr, FP8_MODES))}")
    if wanted is None:
        return numerics != "exact" and not trainable and place != "meta"
    if wanted is not False and wanted not in MODES:
        raise ModeError(f"compile={wanted!r} is not known; write True, False, 'inductor' or 'reduce-overhead'")
    if wanted is not False and trainable:
        raise ModeError(f"compile={wanted!r} runs without gradients: leave it out, or load without trainable=True")
    if wanted is not False and place == "meta":
        raise ModeError(f"compile={wanted!r} needs a device that computes, and not meta: leave it out")
    if wanted == "reduce-overhead" and place != "cuda":
        raise ModeError(f"compile='reduce-overhead' replays CUDA graphs, and the device is {place}: write True")
    return wanted


class Compiler:
    """Compiles entries of one model for a policy."""

    def __init__(
        self,
        weights: Mapping[str, Tensor],
        device: torch.device,
        policy: Policy,
        *,
        mode: Mode,
        fp8: str,
    ) -> None:
        self.mode = mode
        self._policy = policy
        # torch.compile wants tensors whose layout it knows.
        blocks = mode is True and can_block(device)
        self.store = WeightStore(weights, device, fp8 if policy.fast else "stream", blocks)

    def entry(self, graph: Graph) -> CompiledEntry:
        """An entry's graph, compiled. Raises SizeError, and InterpretedError."""
        on_host = self.mode is True and self.store.device.type == "cpu"
        kind = ReplayedEntry if self.mode == "reduce-overhead" else CompiledEntry
        made = kind(graph, self._policy, self.store, on_host=on_host)
        if self.mode == "inductor":
            # By itself torch.compile keeps what it fuses in f32.
            options: dict[str, Any] | None = {"emulate_precision_casts": True} if self._policy.rounds else None
            compiled: Any = torch.compile(made.straight.module, dynamic=False, options=options)
            made.forward = compiled
        else:
            made.straight.release()
            made.forward = made.straight.forward
        return made
