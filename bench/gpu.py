"""FP8 on a GPU: every kernel beside its reference; Qwen3-8B at full size in bf16 and FP8; the kernels, timed.

Run: python bench/gpu.py
Needs this checkout, torch and Triton (made for torch 2.11 and Triton 3.6), and takes less than four minutes. Weights
are random, from a fixed seed, and the FP8 model's are the bf16 model's, rounded. transformers is measured on the same
bf16 weights where it is installed. Prints one table and writes bench/results/DATE-DEVICE.json; what there was no time
for is said, never guessed. Exits with 1 where a kernel is wrong or something failed, and with 3 where torch sees no
GPU.

--self-test runs the same steps at toy sizes on the CPU, with the references in place of the kernels. It shows that the
script works; its figures mean nothing and are not written.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import platform
import re
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import gpu_models  # noqa: E402
import torch  # noqa: E402
from torch import Tensor  # noqa: E402
from torch.nn import functional  # noqa: E402

from linnet.runner.torch.kernels import triton as kernels  # noqa: E402
from linnet.runner.torch.kernels.triton import dispatch, launch, reference, scaled  # noqa: E402
from linnet.runner.torch.kernels.triton.checks import ceil_div  # noqa: E402

# Seconds after which nothing new is started, and how many of them the kernels' timings may take.
DEADLINE = 210.0
KERNEL_SECONDS = 70.0
# Of the measure `1 - 2 sum(xy) / sum(x^2 + y^2)` between a kernel and its reference in f64.
TOLERANCE = 1e-3
RUNS = 7
# How often a graph repeats its calls, and how many times the L2 cache its weights fill.
CALLS = 24
PAST_L2 = 3
EPS = gpu_models.EPS


@dataclass(frozen=True)
class Sizes:
    """`shapes` are the projections' (outputs, inputs); after the first of `prompts` (lengths) `new` tokens follow."""

    shapes: Mapping[str, tuple[int, int]]
    rows: tuple[int, ...]
    checked: tuple[int, ...]
    copied: int
    generics: Mapping[str, int | str]
    prompts: tuple[int, ...]
    new: int


FULL = Sizes(
    shapes={
        "q, k, v": (6144, 4096),
        "output": (4096, 4096),
        "gate, up": (24576, 4096),
        "down": (4096, 12288),
    },
    rows=(1, 4, 16, 32, 64, 128, 256, 512, 2048),
    checked=(1, 2, 16, 17, 32, 33, 64, 256, 512),
    copied=2**30,
    generics={},
    prompts=(512, 2048),
    new=64,
)
TOY = Sizes(
    shapes={"q, k, v": (512, 256), "output": (256, 256), "gate, up": (1024, 256), "down": (256, 512)},
    rows=(1, 4, 64),
    checked=(1, 17, 64),
    copied=2**20,
    generics={"Vocab": 256, "H": 256, "Heads": 4, "KvHeads": 2, "HeadDim": 64, "Inner": 512, "Layers": 2},
    prompts=(8, 16),
    new=4,
)


@dataclass
class Results:
    """What is written: bytes a second, seconds, bytes. `notes` says what was left out and why."""

    environment: dict[str, Any]
    copy_bytes_per_second: float = 0.0
    checks: list[dict[str, Any]] = field(default_factory=list)
    kernels: list[dict[str, Any]] = field(default_factory=list)
    models: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    seconds: float = 0.0


class Bench:
    """The device, the clock that fits it, and the results so far."""

    def __init__(self, device: torch.device, sizes: Sizes) -> None:
        self.device = device
        self.sizes = sizes
        self.cuda = device.type == "cuda"
        self.start = time.perf_counter()
        self.results = Results(environment(device))
        # Of each model after the first prompt.
        self.logits: dict[str, Tensor] = {}

    def elapsed(self) -> float:
        return time.perf_counter() - self.start

    def say(self, text: str) -> None:
        print(f"{self.elapsed():6.1f}s  {text}", file=sys.stderr, flush=True)

    def synchronise(self) -> None:
        if self.cuda:
            torch.cuda.synchronize(self.device)

    def attempt(self, name: str, step: Callable[[], None]) -> None:
        """Run a step, if there is time; what it raises is a failure of the run, and the next step follows."""
        if self.elapsed() > DEADLINE:
            self.results.notes.append(f"{name}: not reached within {DEADLINE:.0f} s")
            return
        self.say(name)
        try:
            step()
        except Exception as error:
            self.results.failures.append(f"{name}: {type(error).__name__}: {error}")
            self.say(self.results.failures[-1])

    def seconds(self, calls: Sequence[Callable[[], object]]) -> float:
        """Of one call: the median over RUNS replays of one CUDA graph that makes them all, several times over."""
        for call in calls:
            call()
        repeats = ceil_div(CALLS, len(calls)) if self.cuda else 1
        total = repeats * len(calls)
        self.synchronise()
        if not self.cuda:
            return gpu_models.wall(lambda: [call() for call in calls]) / total
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(repeats):
                for call in calls:
                    call()
        graph.replay()
        times = []
        for _ in range(RUNS):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            graph.replay()
            end.record()
            self.synchronise()
            times.append(begin.elapsed_time(end) / 1000 / total)
        return statistics.median(times)

    def copies(self, size: int) -> int:
        """How many weights of `size` bytes are past the L2 cache together."""
        cache = torch.cuda.get_device_properties(self.device).L2_cache_size if self.cuda else 0
        return max(2, ceil_div(PAST_L2 * cache, size))


def environment(device: torch.device) -> dict[str, Any]:
    """What a reader needs to compare figures."""
    try:
        triton = importlib.import_module("triton").__version__
    except ImportError:
        triton = None
    found = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "triton": triton,
        "cuda": torch.version.cuda,
        "device": platform.machine(),
    }
    if device.type == "cuda":
        facts = dispatch.facts(device)
        properties = torch.cuda.get_device_properties(device)
        found |= {
            "device": torch.cuda.get_device_name(device),
            "capability": ".".join(map(str, facts.capability)),
            "multiprocessors": facts.sms,
            "memory_bytes": properties.total_memory,
            "l2_bytes": properties.L2_cache_size,
            "cublaslt": facts.cublaslt,
            "block_scales": dispatch.block_scales(device, torch.bfloat16),
        }
    return found


# Kernels


def random_weight(out: int, inner: int, device: torch.device, seed: int = 0) -> tuple[Tensor, Tensor]:
    """E4M3 weights [out, inner] as u8 and f32 block scales, of normal weights with deviation 0.02."""
    generator = torch.Generator(device).manual_seed(seed)
    return gpu_models.round_weight(torch.randn(out, inner, generator=generator, device=device) * 0.02, torch.float32)


def rows_of(rows: int, inner: int, device: torch.device) -> Tensor:
    generator = torch.Generator(device).manual_seed(rows)
    return torch.randn(rows, inner, generator=generator, device=device).to(torch.bfloat16)


def linear(x: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
    if x.is_cuda:
        return kernels.block_linear(x, weight, scale)
    return reference.linear(x, weight, scale, torch.float32).to(x.dtype)


def gated(x: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
    if x.is_cuda:
        return kernels.gated(x, weight, scale)
    return reference.gated(x, weight, scale, torch.float32).to(x.dtype)


def check_kernels(bench: Bench) -> None:
    """Every kernel at full size in bf16 beside f64, through the path that its rows take and through the tile kernel."""
    for shape, (out, inner) in bench.sizes.shapes.items():
        weight, scale = random_weight(out, inner, bench.device)
        wide = reference.decode_weight(weight, scale)
        record(bench, "decode", shape, 0, decoded(weight, scale), wide)
        for rows in bench.sizes.checked:
            x = rows_of(rows, inner, bench.device)
            wanted = functional.linear(x.double(), wide)
            # Inputs that are rounded differ by E4M3's own error; the reference then rounds them too.
            q, q_scale = reference.quantise(x)
            rounded = functional.linear(reference.dequantise(q, q_scale, rows), wide)
            many = rows > launch.MOST_SMALL_ROWS and bench.cuda
            record(
                bench,
                f"linear ({path_of(bench, rows)})",
                shape,
                rows,
                linear(x, weight, scale),
                rounded if many else wanted,
            )
            if shape == "gate, up":
                both = reference.silu_mul(rounded if many else wanted)
                record(bench, "gated", shape, rows, gated(x, weight, scale), both)
            if bench.cuda:
                found = launch.tile(q, q_scale, rows, weight, scale, x.dtype)
                record(bench, "tile", shape, rows, found, rounded)
    check_rounding(bench)


def decoded(weight: Tensor, scale: Tensor) -> Tensor:
    return kernels.decode_weight(weight, scale, torch.bfloat16)


def check_rounding(bench: Bench) -> None:
    for shape, (_, inner) in bench.sizes.shapes.items():
        for rows in bench.sizes.checked:
            x = rows_of(rows, inner, bench.device)
            weight = rows_of(1, inner, bench.device)[0]
            both = rows_of(rows, 2 * inner, bench.device)
            cases: dict[str, tuple[Callable[[], tuple[Tensor, Tensor]], Tensor]] = {
                "quantise": (lambda x=x: kernels.quantise(x), x),
                "rms_norm_quantise": (
                    lambda x=x, weight=weight: kernels.rms_norm_quantise(x, weight, EPS),
                    reference.rms_norm(x, weight, EPS),
                ),
                "silu_mul_quantise": (lambda both=both: kernels.silu_mul_quantise(both), reference.silu_mul(both)),
            }
            for name, (call, wanted) in cases.items():
                found = call() if bench.cuda else reference.quantise(wanted)
                back = reference.dequantise(*found, rows)
                record(bench, name, shape, rows, back, wanted, tolerance=2 * TOLERANCE)


def record(
    bench: Bench, kernel: str, shape: str, rows: int, found: Tensor, wanted: Tensor, tolerance: float = TOLERANCE
) -> None:
    measure = scaled.distance(found, wanted)
    # A NaN fails too.
    passed = measure < tolerance
    case = {"kernel": kernel, "shape": shape, "rows": rows, "measure": measure, "passed": passed}
    bench.results.checks.append(case)
    if not passed:
        bench.results.failures.append(f"{kernel}, {shape}, {rows} rows: {measure:.2e} is not below {tolerance:.0e}")


def path_of(bench: Bench, rows: int) -> str:
    return dispatch.route(rows, dispatch.block_scales(bench.device, torch.bfloat16)) if bench.cuda else "reference"


def copy_bandwidth(bench: Bench) -> None:
    """Bytes read and written a second by a copy within the device's memory."""
    source = torch.empty(bench.sizes.copied, dtype=torch.uint8, device=bench.device)
    target = torch.empty_like(source)
    seconds = bench.seconds([lambda: target.copy_(source)])
    bench.results.copy_bytes_per_second = 2 * source.nbytes / seconds


def time_kernels(bench: Bench) -> None:
    until = bench.elapsed() + KERNEL_SECONDS
    for rows in bench.sizes.rows:
        for shape in bench.sizes.shapes:
            if bench.elapsed() > min(until, DEADLINE):
                bench.results.notes.append(f"kernels at {rows} rows, {shape}: not reached in time")
                continue
            time_shape(bench, shape, rows)


def time_shape(bench: Bench, shape: str, rows: int) -> None:
    """One projection: FP8 by each path that takes these rows, and bf16 by torch."""
    out, inner = bench.sizes.shapes[shape]
    x = rows_of(rows, inner, bench.device)
    weights = [random_weight(out, inner, bench.device, seed) for seed in range(bench.copies(out * inner))]
    paths: dict[str, Callable[[Tensor, Tensor], object]] = {
        f"linear ({path_of(bench, rows)})": lambda w, s: linear(x, w, s),
    }
    if shape == "gate, up":
        paths["gated"] = lambda w, s: gated(x, w, s)
    if bench.cuda and rows > launch.MOST_SMALL_ROWS:
        q, q_scale = launch.quantise(x)
        paths["tile, inputs rounded before"] = lambda w, s: launch.tile(q, q_scale, rows, w, s, x.dtype)
        if bench.results.environment["block_scales"]:
            paths["scaled_mm, inputs rounded before"] = lambda w, s: scaled.block_product(q, q_scale, w, s)
    for name, call in paths.items():
        seconds = bench.seconds([lambda w=w, s=s, call=call: call(w, s) for w, s in weights])
        keep(bench, name, shape, rows, out * inner, seconds)
    del weights
    half = [
        torch.randn(out, inner, device=bench.device).to(torch.bfloat16) for _ in range(bench.copies(2 * out * inner))
    ]
    keep(
        bench,
        "bf16 linear",
        shape,
        rows,
        2 * out * inner,
        bench.seconds([lambda w=w: functional.linear(x, w) for w in half]),
    )


def keep(bench: Bench, name: str, shape: str, rows: int, weight_bytes: int, seconds: float) -> None:
    """`of_copy`: bytes of the weight a second over those of a copy."""
    out, inner = bench.sizes.shapes[shape]
    bench.results.kernels.append(
        {
            "kernel": name,
            "shape": shape,
            "rows": rows,
            "microseconds": seconds * 1e6,
            "of_copy": weight_bytes / seconds / bench.results.copy_bytes_per_second,
            "tflops": 2 * rows * out * inner / seconds / 1e12,
        }
    )


# What is printed


def table(bench: Bench) -> str:
    found = bench.results
    lines = [
        "device: " + ", ".join(f"{key} {value}" for key, value in found.environment.items()),
        f"copy within memory: {found.copy_bytes_per_second / 1e12:.3f} TB/s, read and written",
        "",
    ]
    groups: dict[str, list[dict[str, Any]]] = {}
    for case in found.checks:
        groups.setdefault(case["kernel"], []).append(case)
    for name, cases in groups.items():
        worst = max((case["measure"] for case in cases), key=lambda value: math.inf if math.isnan(value) else value)
        passed = sum(case["passed"] for case in cases)
        lines.append(f"{name:32} {passed} of {len(cases)} cases right, the worst {worst:.1e}")
    lines += ["", f"{'kernel':34}{'projection':12}{'rows':>6}{'us':>10}{'% of copy':>11}{'TFLOP/s':>9}"]
    lines += [
        f"{row['kernel']:34}{row['shape']:12}{row['rows']:>6}{row['microseconds']:>10.1f}"
        f"{row['of_copy']:>11.1%}{row['tflops']:>9.1f}"
        for row in found.kernels
    ]
    lengths = bench.sizes.prompts
    heads = "".join(f"{f'first {n} ms':>14}" for n in lengths)
    lines += ["", f"{'model':20}{'tokens/s':>10}{'% of floor':>12}{'floor ms':>10}{heads}{'peak GiB':>10}"]
    for row in found.models:
        firsts = "".join(_cell(row.get(f"first_token_ms_{n}"), 14, "{:.2f}") for n in lengths)
        peak = row.get("peak_bytes")
        lines.append(
            f"{row['model']:20}{_cell(row.get('tokens_per_second'), 10, '{:.1f}')}"
            f"{_cell(row.get('of_floor'), 12, '{:.1%}')}{row['floor_ms']:>10.3f}{firsts}"
            f"{_cell(peak / 2**30 if peak else None, 10, '{:.2f}')}"
        )
    lines += ["", *found.notes, *(f"FAILED {text}" for text in found.failures)]
    lines.append(f"{found.seconds:.0f} s in all")
    return "\n".join(lines)


def _cell(value: float | None, width: int, form: str) -> str:
    return f"{'-' if value is None else form.format(value):>{width}}"


def write(bench: Bench) -> Path:
    """bench/results/DATE-DEVICE.json."""
    known = bench.results.environment
    device = re.sub(r"[^a-z0-9]+", "-", known["device"].lower()).strip("-")
    path = ROOT / "bench" / "results" / f"{known['date']}-{device}.json"
    path.parent.mkdir(exist_ok=True)
    waiting = path.with_suffix(".json.new")
    waiting.write_text(json.dumps(asdict(bench.results), indent=1) + "\n", encoding="utf-8")
    waiting.replace(path)
    return path


def run(bench: Bench) -> None:
    # Replaying graphs needs a GPU.
    fast: dict[str, Any] = {"numerics": "fast", "compile": "reduce-overhead" if bench.cuda else True}
    bench.attempt("copy within memory", lambda: copy_bandwidth(bench))
    if not bench.results.copy_bytes_per_second:
        return
    bench.attempt("kernels beside their references", lambda: check_kernels(bench))
    steps: dict[str, Callable[[], None]] = {
        "qwen3-8b": lambda: gpu_models.run_model(bench, "qwen3-8b", "bf16", fast),
        "qwen3-8b-fp8": lambda: gpu_models.run_model(bench, "qwen3-8b-fp8", "FP8", {**fast, "fp8": "stream"}),
        "transformers": lambda: gpu_models.run_transformers(bench),
    }
    for name, step in steps.items():
        bench.attempt(name, step)
        gpu_models.reset_peak(bench)
    bench.attempt("kernels, timed", lambda: time_kernels(bench))
    bench.results.seconds = bench.elapsed()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--self-test", action="store_true", help="the same steps at toy sizes on the CPU")
    chosen = parser.parse_args()
    if not chosen.self_test:
        reason = "torch sees no GPU here" if not torch.cuda.is_available() else kernels.unavailable("cuda")
        if reason is not None:
            print(f"bench/gpu.py measures an NVIDIA GPU of compute capability 9.0 or later: {reason}.", file=sys.stderr)
            return 3
    bench = Bench(torch.device("cpu" if chosen.self_test else "cuda"), TOY if chosen.self_test else FULL)
    run(bench)
    print(table(bench))
    if chosen.self_test:
        print("self-test on the CPU, at toy sizes, without the kernels: these figures mean nothing")
    else:
        print(f"written to {write(bench).relative_to(ROOT)}")
    return 1 if bench.results.failures else 0


if __name__ == "__main__":
    sys.exit(main())
