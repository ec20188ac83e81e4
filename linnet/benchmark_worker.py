"""One process of `nest bench`: reads a job, measures one package once, and prints what it found as a line of JSON."""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from linnet.runner.loaded import LoadedModel


def main(job: Mapping[str, Any]) -> None:
    """Do a job: `package`, `load` (arguments of `nest.load`, `device` among them), `prompt`, `new`, `seed`.

    The line is `{"timing", "compile", "fp8", "generics", "environment"}`, or `{"error", "kind", "free"}`: `kind` is
    "memory" where the device has too little, "known" for an error whose own words say it all, else the error's class;
    `free` are the bytes that the device had before the model was loaded.
    """
    free = None
    try:
        from linnet import nest
        from linnet.runner import bench

        backend, named = job["load"]["backend"], job["load"]["device"]
        device = bench.torch_place(backend, named)
        free = bench.free_memory(device)
        sizes = {key: job[key] for key in ("prompt", "new", "seed")}
        model, timing = bench.time_model(lambda: nest.load(job["package"], **job["load"]), device=device, **sizes)
        found: dict[str, Any] = {
            "timing": asdict(timing),
            # What was asked for is not what ran where a CUDA graph could not be captured.
            "compile": _mode(model),
            "fp8": bench.fp8_form(model),
            "generics": model.generics,
            "environment": bench.describe_environment(named, backend),
        }
    except Exception as error:
        if os.environ.get("LINNET_DEBUG") == "1":
            traceback.print_exc()
        found = {"error": str(error), "kind": _kind(error), "free": free}
    sys.stdout.write(f"\n{json.dumps(found)}\n")


def _mode(model: LoadedModel) -> bool | str:
    """How decoding ran. A fallback of MLX's is walked."""
    fallback = model.fallbacks.get("decode")
    mode: bool | str = model.compiled if fallback is None else getattr(fallback, "mode", False)
    return mode


def _kind(error: Exception) -> str:
    import torch

    from linnet.language.program.binding import BindError
    from linnet.nest import NestError
    from linnet.registry.errors import RegistryError
    from linnet.runner.errors import RunnerError

    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return "memory"
    known = isinstance(error, NestError | RegistryError | RunnerError | BindError)
    return "known" if known else type(error).__name__
