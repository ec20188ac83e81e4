"""What a fresh process pays to check, part by part: medians, side by side with the interpreter and with torch.

Run: python bench/check.py [--runs 5] [PACKAGE]
PACKAGE defaults to nests/qwen3-8b-fp8. Nothing here reaches the network.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def seconds(command: list[str]) -> float:
    """Wall-clock seconds of one run. Raises CalledProcessError, with what it printed, where it fails."""
    start = time.perf_counter()
    subprocess.run(command, check=True, cwd=ROOT, capture_output=True, text=True)
    return time.perf_counter() - start


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("package", nargs="?", default=str(ROOT / "nests" / "qwen3-8b-fp8"))
    parser.add_argument("--runs", type=int, default=5, help="runs of each command; the median is shown")
    given = parser.parse_args()
    source = str(Path(given.package) / "src" / "lib.linnet")
    nest = [sys.executable, "-c", "from linnet.cli.nest_main import main; main()"]
    linnet = [sys.executable, "-c", "from linnet.cli.linnet_main import main; main()"]
    with tempfile.TemporaryDirectory() as scratch:
        check = [*nest, "check", "--no-hub", given.package, "--smoke"]
        index = [*nest, "index", str(ROOT / "nests"), "-o", f"{scratch}/index.json"]
        commands = {
            "python -c pass": [sys.executable, "-c", "pass"],
            "import torch": [sys.executable, "-c", "import torch"],
            "linnet check": [*linnet, "check", source],
            "nest check --smoke none": [*check, "none"],
            "nest check --smoke meta": [*check, "meta"],
            "nest check --smoke small": [*check, "small"],
            "nest index": index,
        }
        times: dict[str, list[float]] = {name: [] for name in commands}
        # Interleaved, so that a busy moment of the machine falls on every command alike.
        for _ in range(given.runs):
            for name, command in commands.items():
                times[name].append(seconds(command))
    medians = {name: statistics.median(found) for name, found in times.items()}
    print(f"{'':26} {'median':>8} {'fastest':>8} {'x python':>9} {'x torch':>8}")
    for name, median in medians.items():
        to_python, to_torch = median / medians["python -c pass"], median / medians["import torch"]
        print(f"{name:26} {median:7.2f}s {min(times[name]):7.2f}s {to_python:9.1f} {to_torch:8.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
