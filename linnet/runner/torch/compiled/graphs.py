"""Entries replayed as CUDA graphs: one launch for a whole decode step.

A graph is captured at the second run of an entry, so that a prompt's length that comes once costs nothing. It holds
the addresses of what it reads: inputs and results have buffers of their own, states are those that the entry writes in
place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from linnet.runner.torch.compiled.entry import CompiledEntry
from linnet.runner.torch.interpreter import Frame

WARM_UP_RUNS = 2


class ReplayedEntry(CompiledEntry):
    """A compiled entry that is captured where it can be: nothing in it may wait for the device, and every state that it
    writes must be written in place. `refused` says why it is not, once that is known; it then runs as it is, always."""

    refused: str | None = None
    _graph: torch.cuda.CUDAGraph | None = None
    _seen = False
    _addresses: Sequence[int] = ()

    def run(self, frame: Frame, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        if self._written and self.refused is None:
            self.refused = f"it writes {self._written[0]} anew at each run and not in place"
        if self.refused is not None or not self._seen:
            self._seen = True
            return super().run(frame, inputs)
        self.check(inputs)
        arguments = self._arguments(frame, inputs)
        addresses = [
            a.data_ptr() for a, (kind, _) in zip(arguments, self.straight.sources, strict=True) if kind != "input"
        ]
        if self._graph is None or self._addresses != addresses:
            try:
                self._capture(arguments)
            except RuntimeError as error:
                # Something in the entry waits for the device.
                self.refused, self._graph = _first_line(error), None
                torch.cuda.synchronize()
                return super().run(frame, inputs)
            self._addresses = addresses
        for buffer, value in zip(self._buffers, inputs, strict=True):
            buffer.copy_(value)
        assert self._graph is not None
        self._graph.replay()
        return tuple(result.clone() for result in self._results)

    def _capture(self, arguments: list[Any]) -> None:
        sources = self.straight.sources
        own = [a.clone() if kind == "input" else a for a, (kind, _) in zip(arguments, sources, strict=True)]
        # Placeholders of inputs come first, in order.
        self._buffers = [a for a, (kind, _) in zip(own, sources, strict=True) if kind == "input"]
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP_RUNS):
                self.forward(*own)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._results: tuple[Tensor, ...] = self.forward(*own)
        self._graph = graph


def _first_line(error: BaseException) -> str:
    """What went wrong first: leaving a capture that has failed raises once more."""
    while error.__context__ is not None:
        error = error.__context__
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
