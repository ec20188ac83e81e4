"""What a fresh process pays to check, part by part: medians, side by side with the interpreter and with torch.

Run: python bench/check.py [--runs 5] [--limit] [PACKAGE]
PACKAGE defaults to the seed package where it is at hand (`LINNET_SHARED` names the folder that holds seed/, by default
../shared), else to nests/qwen3-8b-fp8. With --limit the commands that have a limit are compared with it, on a machine
that does nothing else, and the exit code is 1 where the median is past one. Nothing here reaches the network.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NAME = "qwen3-8b-fp8"
# Seconds that a fresh process may take, on two cores.
LIMITS = {"linnet check": 1.0, "nest check": 3.0, "nest index": 5.0}


def default_package() -> Path:
    """The seed package, else the one of that name here."""
    seed = Path(os.environ.get("LINNET_SHARED", ROOT.parent / "shared")) / "seed" / NAME
    return seed if (seed / "nest.toml").is_file() else ROOT / "nests" / NAME


def seconds(command: Sequence[str]) -> float:
    """Wall-clock seconds of one run. Raises CalledProcessError, with what it printed, where it fails."""
    start = time.perf_counter()
    subprocess.run(command, check=True, cwd=ROOT, capture_output=True, text=True)
    return time.perf_counter() - start


def timed(commands: Mapping[str, Sequence[str]], runs: int) -> dict[str, list[float]]:
    """Wall-clock seconds of `runs` runs of each command."""
    times: dict[str, list[float]] = {name: [] for name in commands}
    # Interleaved, so that a busy moment of the machine falls on every command alike.
    for _ in range(runs):
        for name, command in commands.items():
            times[name].append(seconds(command))
    return times


def show_costs(times: Mapping[str, Sequence[float]]) -> None:
    medians = {name: statistics.median(found) for name, found in times.items()}
    print(f"{'':26} {'median':>8} {'fastest':>8} {'x python':>9} {'x torch':>8}")
    for name, median in medians.items():
        to_python, to_torch = median / medians["python -c pass"], median / medians["import torch"]
        print(f"{name:26} {median:7.2f}s {min(times[name]):7.2f}s {to_python:9.1f} {to_torch:8.2f}")


def show_limits(times: Mapping[str, Sequence[float]]) -> bool:
    """Print medians against LIMITS; whether all are within."""
    medians = {name: statistics.median(times[name]) for name in LIMITS}
    print(f"{'':26} {'median':>8} {'fastest':>8} {'limit':>8}")
    for name, limit in LIMITS.items():
        mark = "" if medians[name] <= limit else "  past the limit"
        print(f"{name:26} {medians[name]:7.2f}s {min(times[name]):7.2f}s {limit:7.2f}s{mark}")
    return all(medians[name] <= limit for name, limit in LIMITS.items())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("package", nargs="?", type=Path, default=default_package())
    parser.add_argument("--runs", type=int, default=5, help="runs of each command; the median is shown")
    parser.add_argument("--limit", action="store_true", help="compare with the limits; exit 1 past one")
    given = parser.parse_args()
    if given.runs < 1 or not (given.package / "nest.toml").is_file():
        parser.error(f"--runs takes 1 or more, and PACKAGE a folder with a nest.toml, unlike {given.package}")
    nest = [sys.executable, "-c", "from linnet.cli.nest_main import main; main()"]
    linnet = [sys.executable, "-c", "from linnet.cli.linnet_main import main; main()"]
    package = str(given.package.resolve())
    check = [*nest, "check", "--no-hub", package]
    with tempfile.TemporaryDirectory() as scratch:
        limited = {
            "linnet check": [*linnet, "check", str(Path(package) / "src" / "lib.linnet")],
            "nest check": check,
            "nest index": [*nest, "index", str(ROOT / "nests"), "-o", f"{scratch}/index.json"],
        }
        print(package)
        if given.limit:
            return 0 if show_limits(timed(limited, given.runs)) else 1
        start = {
            "python -c pass": [sys.executable, "-c", "pass"],
            "import torch": [sys.executable, "-c", "import torch"],
        }
        smokes = {f"nest check --smoke {level}": [*check, "--smoke", level] for level in ("none", "meta")}
        show_costs(timed({**start, **limited, **smokes}, given.runs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
