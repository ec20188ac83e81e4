"""The weights of linear layers in the form that a device multiplies by, shared by all compiled entries of a model.

On a CPU bf16 weights are kept as transposed blocks (`blocked`), which is worth two to three times a plain product of
one row; the pages of the file that they were read from are then given back to the system, which maps them again should
anyone ask. Elsewhere layers that are joined lie in one buffer, of which the model's parameters become views.
FP8 weights are kept as they are ("stream") or decoded once ("decoded"). Triton's kernels read the bytes; where there
are none a streamed weight is decoded for each product. They are imported for a model that has FP8 weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from threading import Thread

import torch
from torch import Tensor
from torch.nn import functional

from linnet.runner.linears import LinearWeight
from linnet.runner.torch.compiled import blocked
from linnet.runner.torch.dtypes import CARRIED
from linnet.runner.torch.kernels.quant import dequantize_fp8, dequantize_fp8_block, fp8_block_linear, fp8_linear
from linnet.runner.torch.pages import AROUND, HUGE_PAGE, allocate, enlarge, give_back_edges, give_back_file
from linnet.runner.torch.sharing import in_memory

FP8_MODES = ("stream", "decoded")

Linear = Callable[..., Tensor]


@dataclass
class WeightStore:
    """Linear weights by what they are made of. `fp8` is "stream" or "decoded"; `blocks` allows blocks of bf16."""

    weights: Mapping[str, Tensor]
    device: torch.device
    fp8: str
    blocks: bool
    # Whether a product has been asked for that rounds its inputs (Triton's kernels do).
    rounds_inputs: bool = field(default=False, init=False)
    _made: dict[LinearWeight, tuple[Tensor, ...]] = field(default_factory=dict)
    # The layer, or layers side by side, that each tensor (by its id) is kept in: none is copied for a second one.
    _claims: dict[int, LinearWeight] = field(default_factory=dict)
    # Each weight that a copy was made of, with its version and place then: one that is changed, or given other memory,
    # makes the copy stale.
    _copied: list[tuple[Tensor, int, int]] = field(default_factory=list)
    # Weights that were copied, at whose ends there may be more of their files.
    _edges: list[Tensor] = field(default_factory=list)
    _alone: dict[str, Tensor] = field(default_factory=dict)
    # Memory of blocks that is not on large pages yet.
    _unsettled: list[Tensor] = field(default_factory=list)

    def claim(self, weight: LinearWeight) -> bool:
        """Whether the weights of `weight` are kept for it, in a form of its own; the first to ask has them."""
        # Side by side, scales and biases move too.
        paths = (*weight.weights, *weight.scales, *weight.biases) if len(weight.weights) > 1 else weight.weights
        tensors = {id(self.weights[path]) for path in paths}
        if len(tensors) < len(paths) or any(self._claims.get(tensor, weight) != weight for tensor in tensors):
            return False
        self._claims.update(dict.fromkeys(tensors, weight))
        return True

    def linear(self, weight: LinearWeight, rows: int) -> tuple[Linear, int]:
        """The product of `rows` rows and a weight, `f(x, *tensors)`, and the number of its tensors."""
        biased = bool(weight.biases)
        if self._streams(weight) and not self._on_triton(weight):
            return (fp8_block_linear if weight.kind == "fp8_block" else fp8_linear), 2 + biased
        if self._streams(weight):
            from linnet.runner.torch.kernels import triton

            self.rounds_inputs = True
            plain = triton.row_linear if weight.kind == "fp8_row" else triton.block_linear
            return (partial(with_bias, plain) if biased else plain), 2 + biased
        if self._blocked(weight):
            return blocked.linear_for(rows, biased), 3
        return functional.linear, 1 + biased

    def blocked_alone(self, path: str) -> LinearWeight | None:
        """The linear layer that the weight at `path` is kept in blocks for, where it is the only one in them."""
        weight = self._claims.get(id(self.weights[path]))
        return weight if weight is not None and len(weight.weights) == 1 and self._blocked(weight) else None

    def gate(self, weight: LinearWeight) -> Linear | None:
        if weight.kind != "fp8_block" or weight.biases or not self._on_triton(weight):
            return None
        from linnet.runner.torch.kernels import triton

        return triton.gated

    def prepare(self, weights: Iterable[LinearWeight]) -> None:
        """Make what `tensors` gives for each of `weights`."""
        missing = [weight for weight in dict.fromkeys(weights) if weight not in self._made]
        memory = self._reserve([weight for weight in missing if self._blocked(weight)])
        made = [self._make(weight, memory) for weight in missing]
        self._made.update(zip(missing, made, strict=True))

    def give_back(self) -> None:
        """Let go of what of the checkpoint's files is still in memory beside weights that were copied."""
        give_back_edges(self._edges)
        self._edges.clear()

    def settle(self) -> None:
        """What can wait until the first results are there: large pages for blocks that are new, by a thread that no
        program waits for."""
        while self._unsettled:
            thread = Thread(target=enlarge, args=(self._unsettled.pop(),), name="linnet-pages", daemon=True)
            # A system that has no thread to give has results all the same.
            with suppress(RuntimeError):
                thread.start()

    def tensors(self, weight: LinearWeight) -> tuple[Tensor, ...]:
        """What `linear`'s function takes after x, once `prepare` has made it."""
        return self._made[weight]

    def alone(self, path: str) -> Tensor:
        """A weight that no product takes: a small one as a copy, since the system maps much more of a file around each
        that is read there."""
        weight = self.weights[path].detach()
        if weight.device.type != "cpu" or weight.nbytes >= AROUND or not in_memory((weight,)):
            return weight
        copy = self._alone.get(path)
        if copy is None:
            copy = self._alone[path] = weight.clone()
            self._copies(path)
        return copy

    def stale(self) -> bool:
        """Whether a weight that was copied has been changed since."""
        return any(_version(t) != version or t.data_ptr() != place for t, version, place in self._copied)

    def _streams(self, weight: LinearWeight) -> bool:
        return weight.kind != "plain" and (self.fp8 == "stream" or not self.claim(weight))

    def _on_triton(self, weight: LinearWeight) -> bool:
        """Whether Triton's kernels take the weight as it is."""
        fits = weight.block in (0, 128) and weight.width % 128 == 0 and all(n % 128 == 0 for n in weight.sizes)
        if not fits or weight.dtype not in ("bf16", "f16", "f32") or not self._streams(weight):
            return False
        from linnet.runner.torch.kernels import triton

        return triton.available(self.device)

    def _blocked(self, weight: LinearWeight) -> bool:
        fits = self.blocks and weight.dtype == "bf16" and blocked.block_columns(sum(weight.sizes)) is not None
        return fits and not self._streams(weight) and self.claim(weight)

    def _reserve(self, weights: Sequence[LinearWeight]) -> dict[LinearWeight, Tensor]:
        """Memory for the blocks of `weights`, one after the other in the order in which a run reads them."""
        shapes = [blocked.table_shape(sum(w.sizes), w.width + bool(w.biases)) for w in weights]
        sizes = [rows * columns for rows, columns in shapes]
        memory = allocate(sum(sizes), torch.bfloat16)
        if memory.nbytes >= HUGE_PAGE:
            self._unsettled.append(memory)
        parts = torch.split(memory, sizes)
        return {w: part.view(shape) for w, part, shape in zip(weights, parts, shapes, strict=True)}

    def _make(self, weight: LinearWeight, memory: Mapping[LinearWeight, Tensor]) -> tuple[Tensor, ...]:
        if weight in memory:
            made = blocked.block_weight(
                [self._decoded(weight, i) for i in range(len(weight.sizes))],
                [self.weights[path].detach() for path in weight.biases],
                memory[weight],
            )
            self._copies(*weight.weights, *weight.scales, *weight.biases)
            return made
        biases = (self._joined(weight.biases),) if weight.biases else ()
        if self._streams(weight):
            return self._joined(weight.weights), self._joined(weight.scales), *biases
        if weight.kind == "plain":
            return self._joined(weight.weights), *biases
        parts = [self._decoded(weight, i) for i in range(len(weight.sizes))]
        self._copies(*weight.weights, *weight.scales)
        return parts[0] if len(parts) == 1 else torch.cat(parts), *biases

    def _copies(self, *paths: str) -> None:
        for path in paths:
            tensor = self.weights[path]
            self._copied.append((tensor, _version(tensor), tensor.data_ptr()))
            give_back_file(tensor)
            self._edges.append(tensor)

    def _decoded(self, weight: LinearWeight, i: int) -> Tensor:
        stored = self.weights[weight.weights[i]].detach()
        if weight.kind == "plain":
            return stored
        scale = self.weights[weight.scales[i]].detach()
        decode = dequantize_fp8_block if weight.kind == "fp8_block" else dequantize_fp8
        return decode(stored, scale).to(CARRIED[weight.dtype])

    def _joined(self, paths: tuple[str, ...]) -> Tensor:
        """The weights of `paths` one below the other; they become views of what is returned."""
        tensors = [self.weights[path] for path in paths]
        if len(tensors) == 1:
            # The parameter itself: another entry's layers side by side may yet give it other memory.
            return tensors[0]
        joined = torch.cat([tensor.detach() for tensor in tensors])
        start = 0
        for tensor in tensors:
            stop = start + tensor.shape[0]
            tensor.data = joined[start:stop]
            start = stop
        moved = set(map(id, tensors))
        # What was copied of one that has only moved is no staler for it.
        for i, (tensor, _, _) in enumerate(self._copied):
            if id(tensor) in moved:
                self._copied[i] = tensor, _version(tensor), tensor.data_ptr()
        return joined


def _version(tensor: Tensor) -> int:
    """How often a tensor was changed; of those made in inference mode, torch keeps no count."""
    return 0 if tensor.is_inference() else tensor._version


def with_bias(linear: Linear, x: Tensor, weight: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    """An FP8 product plus a bias [Out]."""
    return linear(x, weight, scale) + bias


def choose_fp8(decoded_bytes: int, device: torch.device) -> str:
    """The FP8 mode: "stream" where kernels read the bytes as they are; else "decoded" where the decoded weights take
    less than half of the memory that is free, or there are none."""
    if not decoded_bytes:
        return "decoded"
    from linnet.runner.torch.kernels import triton

    if triton.available(device):
        return "stream"
    return "decoded" if 2 * decoded_bytes <= free_bytes(device) else "stream"


def free_bytes(device: torch.device) -> int:
    """Memory that may still be taken on the device, in bytes; 0 where nobody can tell."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    with suppress(OSError, ValueError, StopIteration), open("/proc/meminfo") as lines:
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    return 0
