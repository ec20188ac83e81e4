"""Timing one model in one process: load, first token, decoding, and the memory that all of it took.

A process measures once. Loading and the first token of a fresh process include what happens once (reading files,
preparing entries); the time to first token and the decoding rate are taken after that, as a process that goes on has
them.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from linnet.runner.errors import NonFiniteError
from linnet.runner.generate import decoder_vocabulary
from linnet.runner.loaded import LoadedModel
from linnet.runner.results import as_tensor
from linnet.runner.torch.dtypes import WIDTH
from linnet.runner.torch.module import Model

# Decode steps that are run before those that count: code is compiled, or captured, within them.
WARM_STEPS = 4
# How often the prompt is read for the time to first token, of which the median counts.
PROMPTS = 3


@dataclass(frozen=True, slots=True)
class Timing:
    """One process's figures: seconds, tokens/s over all rows, bytes (None where the system does not tell)."""

    load_seconds: float
    load_and_first_token_seconds: float
    time_to_first_token_seconds: float
    decode_tokens_per_second: float
    peak_memory_bytes: int | None


def time_model(
    load: Callable[[], LoadedModel], *, prompt: int, new: int, seed: int, device: str
) -> tuple[LoadedModel, Timing]:
    """Load a model on `device`, as torch names it, read `prompt` seeded random ids a row, and decode greedily up to
    `new` tokens.

    A decode step ends when its token is known here, as for whoever streams text; the rate is that of the median step.
    Raises GenerationError for a model without `prefill` and `decode`, NonFiniteError, and what `load` and `run_entry`
    raise.
    """
    place = torch.device(device)
    memory = _MemoryMeter(place)
    started = perf_counter()
    model = load()
    _wait(place)
    loaded = perf_counter()
    tokens = random_tokens(decoder_vocabulary(model), int(model.generics["Batch"]), prompt, seed)
    logits, token = _step(model, "prefill", tokens, 0)
    first = perf_counter()
    _require_numbers(model, logits, tokens)
    for i in range(min(WARM_STEPS, new - 1)):
        logits, token = _step(model, "decode", token, prompt + i)
    prompts = []
    for _ in range(PROMPTS):
        model.reset_state()
        begun = perf_counter()
        logits, token = _step(model, "prefill", tokens, 0)
        prompts.append(perf_counter() - begun)
    read, steps = [tokens], []
    for i in range(new - 1):
        read.append(token)
        begun = perf_counter()
        logits, token = _step(model, "decode", token, prompt + i)
        steps.append(perf_counter() - begun)
    peak = memory.peak()
    _require_numbers(model, logits, torch.cat([ids.cpu() for ids in read], dim=1))
    rate = len(tokens) / median(steps)
    return model, Timing(loaded - started, first - started, median(prompts), rate, peak)


def random_tokens(vocabulary: int, rows: int, count: int, seed: int) -> Tensor:
    """Ids `[rows, count]`, drawn alike on every machine."""
    return torch.randint(0, vocabulary, (rows, count), generator=torch.Generator().manual_seed(seed))


def cache_bytes(model: LoadedModel) -> int:
    """What a model's states take once they are all allocated."""
    total = 0
    for spec in model._bound.states().values():
        size = WIDTH[spec.dtype] // 8
        for n in spec.shape:
            size *= n
        total += size
    return total


def fp8_weights(model: LoadedModel) -> bool:
    """Whether `fp8=` means anything to a model: it has weights of eight bits, and kernels that may decode them."""
    able = isinstance(model, Model) and model.numerics == "fast"
    return able and any(entry.dtype == "u8" for entry in model._bound.manifest.entries)


def fp8_form(model: LoadedModel) -> str | None:
    """How FP8 weights are multiplied by; None where `fp8=` means nothing to the model."""
    return model.fp8 if isinstance(model, Model) and fp8_weights(model) else None


def free_memory(device: str) -> int | None:
    """Bytes that a device can still give; None where that cannot be asked."""
    if torch.device(device).type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return _kilobytes(Path("/proc/meminfo"), "MemAvailable")


def torch_place(backend: str, device: str) -> str:
    """The device whose memory torch can ask about: MLX's GPU shares that of the processor."""
    return device if backend == "torch" else "cpu"


def describe_environment(device: str, backend: str = "torch") -> dict[str, Any]:
    """What this process runs on: keys of `bench.json`'s environment, without the version of Linnet. `device` is the
    backend's name."""
    if backend != "torch":
        return {**describe_environment("cpu"), "device": device, "mlx": version("mlx")}
    place = torch.device(device)
    on_gpu = place.type == "cuda"
    return {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "mlx": None,
        "cuda": torch.version.cuda if on_gpu else None,
        # The kernel's own number, without what whoever built it put behind.
        "system": f"{platform.system()} {platform.release().split('-')[0]}".strip() or "unknown",
        "machine": platform.machine() or "unknown",
        "device": str(place),
        "device_name": torch.cuda.get_device_name(place) if on_gpu else _processor(),
        "threads": torch.get_num_threads(),
        "memory_bytes": int(torch.cuda.mem_get_info(place)[1]) if on_gpu else _installed_memory(),
    }


def _step(model: LoadedModel, entry: str, tokens: Tensor, position: int) -> tuple[Tensor, Tensor]:
    """The logits `[Batch, Vocab]` after `tokens`, and the likeliest ids `[Batch, 1]`, which are known on return."""
    logits = as_tensor(model.run_entry(entry, [tokens, position]))
    token = logits.argmax(-1, keepdim=True)
    token.tolist()
    return logits, token


def _require_numbers(model: LoadedModel, logits: Tensor, read: Tensor) -> None:
    """Raises NonFiniteError unless the logits after the ids `read`, `[Batch, N]`, are all numbers."""
    if bool(logits.isfinite().all()):
        return
    model.reset_state()
    told = model.explain_nonfinite("prefill", [read, 0])
    raise NonFiniteError(f"the logits after {read.shape[1]} tokens are not all numbers: {told}")


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class _MemoryMeter:
    """The most memory held since it was made: on a GPU what tensors were given, else growth of the resident set."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            return
        # The high-water mark may be that of an import; where it cannot be lowered, it counts from the start.
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")
        self._before = _kilobytes(Path("/proc/self/status"), "VmRSS") or _most_resident()

    def peak(self) -> int | None:
        if self._device.type == "cuda":
            return int(torch.cuda.max_memory_allocated(self._device))
        most = _kilobytes(Path("/proc/self/status"), "VmHWM") or _most_resident()
        return max(most - self._before, 1) if most is not None and self._before is not None else None


def _kilobytes(file: Path, key: str) -> int | None:
    """The value of a line `key: 123 kB`, in bytes; None where there is none."""
    try:
        found = re.search(rf"^{key}:\s+(\d+) kB$", file.read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) * 1024 if found else None


def _most_resident() -> int | None:
    """The largest resident set of this process so far, in bytes; None where the system does not tell."""
    if sys.platform == "win32":
        return None
    import resource

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def _processor() -> str:
    with suppress(OSError):
        found = re.search(r"^model name\s*:\s*(\S.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
        if found:
            return found[1].strip()
    return platform.processor() or platform.machine() or "unknown"


def _installed_memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None
