"""Qwen3-8B for `gpu.py`: seeded random weights, this runner in bf16 and FP8, and transformers on the same weights."""

from __future__ import annotations

import gc
import inspect
import json
import re
import statistics
import time
import tomllib
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from linnet.language.check import load
from linnet.language.program.binding import BoundProgram, bind
from linnet.runner.torch.dtypes import NATIVE
from linnet.runner.torch.kernels.triton import reference, scaled
from linnet.runner.torch.kernels.triton.checks import BLOCK, E4M3
from linnet.runner.torch.module import load_model

if TYPE_CHECKING:
    from gpu import Bench, Sizes

ROOT = Path(__file__).resolve().parent.parent
RUNS = 5
EPS = 1e-6
# How far transformers' logits may be from this runner's in bf16: rounding, over every layer.
TOLERANCE = 1e-2


def wall(call: Callable[[], object]) -> float:
    """Seconds of one call."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def round_weight(weight: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """weight [Out, In] -> E4M3 as u8, and scales [Out / 128, In / 128] in `dtype`: the largest magnitude over 448."""
    out, inner = weight.shape
    blocks = weight.float().view(out // BLOCK, BLOCK, inner // BLOCK, BLOCK)
    scale = (blocks.abs().amax((1, 3)).clamp(min=reference.SMALLEST) / reference.E4M3_MAX).to(dtype)
    values = (blocks / scale.float()[:, None, :, None]).clamp(-reference.E4M3_MAX, reference.E4M3_MAX)
    return values.view(out, inner).to(E4M3).view(torch.uint8), scale


def bound_program(name: str, sizes: Sizes) -> BoundProgram:
    """A package's program with its card's generics, its caches as long as the first prompt and what follows it."""
    folder = ROOT / "nests" / name
    card = tomllib.loads((folder / "nest.toml").read_text(encoding="utf-8"))
    checked = load(folder / card["source"]["path"])
    if checked.program is None:
        raise RuntimeError(f"nests/{name} does not check: {checked.diagnostics}")
    length = {"MaxSeq": sizes.prompts[0] + sizes.new}
    return bind(checked.program, card["source"]["root"], {**card["generics"], **sizes.generics, **length})


def model_weights(bound: BoundProgram, device: torch.device) -> dict[str, Tensor]:
    """Weights by path: norms of ones, others normal with a seed of their own, rounded to FP8 where u8 is declared."""
    tensors: dict[str, Tensor] = {}
    for entry in bound.manifest.entries:
        # A scale comes with its weight.
        if entry.optional or entry.path in tensors:
            continue
        if len(entry.shape) == 1:
            tensors[entry.path] = torch.ones(entry.shape, dtype=NATIVE[entry.dtype], device=device)
            continue
        generator = torch.Generator(device).manual_seed(zlib.crc32(entry.path.encode()))
        wide = (torch.randn(entry.shape, generator=generator, device=device) * 0.02).to(torch.bfloat16)
        if entry.dtype == "u8":
            scale = entry.path.removesuffix("weight") + "scale"
            dtype = NATIVE[bound.manifest.by_path()[scale].dtype]
            tensors[entry.path], tensors[scale] = round_weight(wide, dtype)
        else:
            tensors[entry.path] = wide.to(NATIVE[entry.dtype])
    return tensors


def token_bytes(tensors: Mapping[str, Tensor]) -> int:
    """What one token must read: every weight but the embedding, of which it reads a row."""
    return sum(tensor.nbytes for path, tensor in tensors.items() if path != "embedding.weight")


def run_model(bench: Bench, name: str, label: str, options: Mapping[str, Any]) -> None:
    bound = bound_program(name, bench.sizes)
    tensors = model_weights(bound, bench.device)
    figures = new_figures(bench, label, token_bytes(tensors))
    reset_peak(bench)
    model = load_model(bound, tensors, device=bench.device, **options)
    del tensors
    measure(
        bench,
        figures,
        lambda prompt: model.run_entry("prefill", [prompt, 0]),
        lambda token, position: model.run_entry("decode", [token, position]),
        lambda length: model.resize(MaxSeq=length),
    )
    bench.results.models.append(figures)
    for entry, instead in model.fallbacks.items():
        bench.results.notes.append(f"{label}: {entry} was not replayed as a CUDA graph: {instead.reason}")


def run_transformers(bench: Bench) -> None:
    """transformers' own Qwen3 in bf16 on the same weights, run as its users do: no compilation, a growing cache."""
    try:
        from transformers import DynamicCache, Qwen3Config, Qwen3ForCausalLM
    except ImportError:
        bench.results.notes.append("transformers is not installed: not measured beside it")
        return
    bound = bound_program("qwen3-8b", bench.sizes)
    values = bound.generics
    config = Qwen3Config(
        vocab_size=values["Vocab"],
        hidden_size=values["H"],
        intermediate_size=values["Inner"],
        num_hidden_layers=values["Layers"],
        num_attention_heads=values["Heads"],
        num_key_value_heads=values["KvHeads"],
        head_dim=values["HeadDim"],
        rms_norm_eps=EPS,
        max_position_embeddings=40960,
        rope_theta=1e6,
        tie_word_embeddings=False,
    )
    bindings = json.loads((ROOT / "nests" / "qwen3-8b" / "bindings.json").read_text(encoding="utf-8"))
    tensors = model_weights(bound, bench.device)
    figures = new_figures(bench, "transformers bf16", token_bytes(tensors))
    with torch.device("meta"):
        model = Qwen3ForCausalLM(config).to(torch.bfloat16).eval()
    named = {checkpoint_name(path, bindings): tensor for path, tensor in tensors.items()}
    model.load_state_dict(named, assign=True)
    # Its frequencies are no part of the weights.
    with bench.device:
        model.model.rotary_emb = type(model.model.rotary_emb)(config)
    del tensors, named
    # Releases differ in what they call it.
    cache_name = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
    cache = DynamicCache(config=config)

    def prefill(prompt: Tensor) -> Tensor:
        nonlocal cache
        cache = DynamicCache(config=config)
        return step(prompt)

    def step(tokens: Tensor) -> Tensor:
        logits: Tensor = model(tokens.long(), **{cache_name: cache}, use_cache=True, logits_to_keep=1).logits
        return logits[:, -1]

    reset_peak(bench)
    with torch.no_grad():
        measure(
            bench,
            figures,
            prefill,
            lambda token, position: step(token),
            lambda length: None,
        )
    bench.results.models.append(figures)
    apart = figures["logits_from_bf16"]
    if not apart < TOLERANCE:
        raise RuntimeError(f"logits are {apart:.1e} from this runner's in bf16")


def checkpoint_name(path: str, bindings: Mapping[str, str]) -> str:
    """The tensor that a path is bound to; `{i}` stands for the layer."""
    layer = re.search(r"layers\.(\d+)\.", path)
    if layer is None:
        return bindings[path]
    return bindings[path.replace(layer[0], "layers.{i}.")].replace("{i}", layer[1])


def new_figures(bench: Bench, label: str, read: int) -> dict[str, Any]:
    return {"model": label, "bytes_a_token": read, "floor_ms": read / bench.results.copy_bytes_per_second * 1e3}


def reset_peak(bench: Bench) -> None:
    gc.collect()
    if bench.cuda:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(bench.device)


def measure(
    bench: Bench,
    figures: dict[str, Any],
    prefill: Callable[[Tensor], Tensor],
    decode: Callable[[Tensor, int], Tensor],
    resize: Callable[[int], None],
) -> None:
    """Time to first token for each prompt, tokens a second after the first prompt, peak memory with that one."""
    new = bench.sizes.new
    vocabulary = int(bench.sizes.generics.get("Vocab", 151936))
    for length in bench.sizes.prompts:
        generator = torch.Generator().manual_seed(length)
        prompt = torch.randint(0, vocabulary, (1, length), generator=generator, dtype=torch.int32).to(bench.device)
        resize(length + new)

        def first(prompt: Tensor = prompt) -> Tensor:
            token = prefill(prompt).argmax(-1, keepdim=True).to(torch.int32)
            bench.synchronise()
            return token

        logits = prefill(prompt).float()
        if not torch.isfinite(logits).all():
            raise RuntimeError(f"logits after {length} tokens are not finite")
        # Prepares, compiles, captures.
        first()
        figures[f"first_token_ms_{length}"] = statistics.median(wall(first) for _ in range(RUNS)) * 1e3
        if length != bench.sizes.prompts[0]:
            continue
        bench.logits[figures["model"]] = logits
        figures["logits_from_bf16"] = scaled.distance(logits, bench.logits.get("bf16", logits))

        def generate(length: int = length, first: Callable[[], Tensor] = first) -> float:
            token = first()
            begin = time.perf_counter()
            for position in range(length, length + new):
                token = decode(token, position).argmax(-1, keepdim=True).to(torch.int32)
            bench.synchronise()
            return new / (time.perf_counter() - begin)

        generate()
        rates = [generate() for _ in range(RUNS)]
        figures["tokens_per_second"] = statistics.median(rates)
        figures["tokens_per_second_spread"] = [min(rates), max(rates)]
        figures["of_floor"] = figures["tokens_per_second"] * figures["floor_ms"] / 1e3
        if bench.cuda:
            figures["peak_bytes"] = torch.cuda.max_memory_allocated(bench.device)
