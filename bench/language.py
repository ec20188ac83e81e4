"""Lines a second through the lexer, the parser, the checker and the formatter, at three sizes of generated package.

Run: python bench/language.py [--limit]
Each size is measured in a process of its own, first fresh and then again in the same process (warm, where the standard
library is loaded already), with the process's peak memory. The last line of sizes says what a line of the largest costs
beside a line of the middle one: about 1 where the cost is linear. The seed package, where it is at hand
(`LINNET_SHARED`), is checked by a fresh `linnet check`, start-up included, and again in one process. With --limit the
exit code is 1 where a number is past LIMITS, on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from linnet.language.check import load
from linnet.language.diagnostics import Diagnostics
from linnet.language.source import Source, read_source
from linnet.language.syntax.formatter import format_source
from linnet.language.syntax.lexer import lex
from linnet.language.syntax.parser import parse

ROOT = Path(__file__).resolve().parent.parent
SEED = Path(os.environ.get("LINNET_SHARED", ROOT.parent / "shared")) / "seed" / "qwen3-8b-fp8" / "src" / "lib.linnet"
SIZES = {5: "1,000 lines", 50: "10,000 lines", 200: "40,000 lines"}
STEPS = ("lex", "parse", "check", "format", "warm check")
RUNS = 5
# Seconds and bytes of the largest size; what a line of it costs beside one of the middle size (4, were the cost
# quadratic); seconds of a fresh `linnet check` of the seed, and of a check in one process after the first.
LIMITS = {"check": 30.0, "memory": 1e9, "growth": 2.0, "linnet check": 1.0, "warm seed": 0.25}

UNIT = """
/// Two projections of `x` with a gate between them, unit {unit} of module {module}.
pub op mix{unit}<*S: Shape, H: Dim, Inner: Dim, T: Float>(
    x: Tensor[*S, H; T],
    up: Tensor[Inner, H; T],
    down: Tensor[H, Inner; T],
) -> Tensor[*S, H; T] {{
    let wide[*s, i] = sum[h] x[*s, h] * up[i, h]
    let gated = wide * cast<T>(0.5) + wide * wide
    let narrow[*s, h] = sum[i] gated[*s, i] * down[h, i]
    return narrow
}}

/// Rows of `x` split over heads, and back.
pub fn heads{unit}<B: Dim, S: Dim, H: Dim, N: Dim, T: Float>(
    x: Tensor[B, S, H; T],
) -> Tensor[B, N, S, H / N; T]
where
    N > 0,
    H % N == 0,
{{
    let split = reshape(x, [B, S, N, H / N])
    return permute(split, [0, 2, 1, 3])
}}

pub block Layer{unit}<H: Dim, Heads: Dim, T: Float = bf16>
where
    Heads > 0,
    H % Heads == 0,
{{
    param up: Tensor[4 * H, H; T]
    param down: Tensor[H, 4 * H; T]
    param bias: Tensor[H; T]? = none
    sub norm: RmsNorm<H, T>
    sub out: Linear<H, H, T>

    pub fn forward<B: Dim, S: Dim>(x: Tensor[B, S, H; T]) -> Tensor[B, S, H; T] {{
        let normed = norm.forward(x)
        let split = heads{unit}<B, S, H, Heads, T>(normed)
        let joined = reshape(permute(split, [0, 2, 1, 3]), [B, S, H])
        let mixed = mix{unit}(joined, up, down)
        let moved = match bias {{
            some(b) => mixed + b
            none => mixed
        }}
        return x + out.forward({previous})
    }}
}}
"""
UNITS = 4


def module_text(number: int) -> str:
    """A module of 200 lines; all but the first use a layer's ops of the one before."""
    lines = [f"// Module {number} of a generated package.", f"module big.m{number}", ""]
    lines += ["use std.nn.linear::{Linear}", "use std.nn.norm::{RmsNorm}"]
    if number:
        lines.append(f"use crate.m{number - 1}::{{mix0 as earlier}}")
    text = "\n".join(lines) + "\n"
    for unit in range(UNITS):
        previous = "earlier(moved, up, down)" if number and unit == 0 else "moved"
        text += UNIT.format(unit=unit, module=number, previous=previous)
    return text + "// ..\n" * (200 - text.count("\n"))


def write_package(folder: Path, modules: int) -> Path:
    """A package of `modules` modules, each importing the one before; its last module, which reaches them all."""
    source = folder / "src"
    source.mkdir()
    (folder / "linnet.toml").write_text('[package]\nname = "big"\nversion = "1.0.0"\nlanguage = "0.1"\n')
    for number in range(modules):
        (source / f"m{number}.linnet").write_text(module_text(number))
    uses = "".join(f"use crate.m{number}::{{Layer0 as Layer_{number}}}\n" for number in range(modules))
    members = "".join(f"    sub l{number}: Layer_{number}<H, Heads, T>\n" for number in range(modules))
    steps = "".join(f"        h = l{number}.forward(h)\n" for number in range(modules))
    (source / "lib.linnet").write_text(
        f"module big\n\n{uses}\n"
        "pub block Model<H: Dim, Heads: Dim, T: Float = bf16>\nwhere Heads > 0, H % Heads == 0 {\n"
        f"{members}\n    pub entry forward<B: Dim, S: Dim>(x: Tensor[B, S, H; T]) -> Tensor[B, S, H; T] {{\n"
        f"        var h = x\n{steps}        return h\n    }}\n}}\n"
    )
    return source / "lib.linnet"


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def each(step: Callable[[Source, Diagnostics], object], sources: Sequence[Source]) -> float:
    """Seconds of a step over every source, nothing of it kept."""

    def run() -> None:
        for source in sources:
            step(source, Diagnostics())

    return seconds(run)


def check(path: Path) -> None:
    result = load(path)
    if result.program is None or result.diagnostics:
        raise SystemExit(f"{path}: {result.diagnostics[0].message}")


def measure(modules: int) -> dict[str, float]:
    """Seconds of each step over one generated package, its lines, and the peak bytes of a process that checks it."""
    with tempfile.TemporaryDirectory() as folder:
        root = write_package(Path(folder), modules)
        found = {"check": seconds(lambda: check(root))}
        found["memory"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0
        found["warm check"] = seconds(lambda: check(root))
        sources = [read_source(path, path.name) for path in sorted(root.parent.glob("*.linnet"))]
        found["lines"] = sum(source.text.count("\n") for source in sources)
        found["lex"] = each(lex, sources)
        found["parse"] = each(parse, sources)
        found["format"] = each(format_source, sources)
    return found


def seed() -> dict[str, float]:
    """Seconds of a fresh `linnet check` of the seed, and of a check in this process after the first: medians."""
    command = [sys.executable, "-c", "from linnet.cli.linnet_main import main; main()", "check", str(SEED)]
    fresh = [seconds(lambda: subprocess.run(command, check=True, capture_output=True)) for _ in range(RUNS)]
    check(SEED)
    warm = [seconds(lambda: check(SEED)) for _ in range(RUNS)]
    return {"linnet check": statistics.median(fresh), "warm seed": statistics.median(warm)}


def in_process(argument: str) -> dict[str, float]:
    """What this script measures in a process of its own."""
    command = [sys.executable, __file__, "--one", argument]
    run = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    found: dict[str, float] = json.loads(run.stdout)
    return found


def past(found: Mapping[str, float]) -> list[str]:
    return [
        f"{name} is {found[name]:,.2f}, past {limit:,.2f}"
        for name, limit in LIMITS.items()
        if found.get(name, 0) > limit
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--limit", action="store_true", help="exit 1 where a number is past its limit")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one is not None:
        print(json.dumps(seed() if given.one == "seed" else measure(int(given.one))))
        return 0
    print(f"{'lines/s':14}" + "".join(f"{step:>12}" for step in STEPS) + f"{'check':>12}{'peak':>10}")
    problems: list[str] = []
    costs: list[float] = []
    for modules, title in SIZES.items():
        found = in_process(str(modules))
        rates = "".join(f"{found['lines'] / found[step]:12,.0f}" for step in STEPS)
        print(f"{title:14}{rates}{found['check']:10.2f} s{found['memory'] / 2**20:6.0f} MiB", flush=True)
        problems += past(found)
        costs.append(found["check"] / found["lines"])
    growth = costs[-1] / costs[-2]
    print(f"a line of the largest size costs {growth:.2f} of a line of the middle one to check")
    problems += past({"growth": growth})
    if SEED.is_file():
        found = in_process("seed")
        print(f"seed: {found['linnet check']:.2f} s by a fresh linnet check, {found['warm seed']:.2f} s in one process")
        problems += past(found)
    for problem in problems:
        print(problem)
    return 1 if problems and given.limit else 0


if __name__ == "__main__":
    sys.exit(main())
