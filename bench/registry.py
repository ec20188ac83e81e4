"""The registry at 100, 1,000 and 10,000 packages: what an index costs, and what a client fetches to find one name.

    python bench/registry.py [--packages 100,1000,10000] [--processes 2] [--limit]

Packages are generated: 50 sources (gpt2 of nests/ with another line of documentation in each, which makes other
programs of them), each in a fiftieth of the packages, whose cards differ in name and generics. `cold` is a full index
with an empty cache, `warm` with nothing changed, `one changed` after an edit of one README. Each runs in a process of
its own, as a user's does, and writes the whole index. With --limit the exit code is 1 where a figure for 10,000 is past
its limit. Nothing here reaches the network.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TEMPLATE = ROOT / "nests" / "gpt2"
SOURCES = 50
# Seconds for 10,000 packages on two cores.
LIMITS = {"cold": 180.0, "one changed": 6.0}


@dataclass(frozen=True, slots=True)
class Figures:
    """Seconds of each index, by the clock and of processor time; bytes of the index file; peak memory in bytes."""

    seconds: dict[str, float]
    processor: dict[str, float]
    index_bytes: int
    peak: int


def generate(nests: Path, count: int) -> None:
    """Write `count` packages that share SOURCES sources."""
    card = (TEMPLATE / "nest.toml").read_text("utf-8")
    manifest = (TEMPLATE / "linnet.toml").read_text("utf-8")
    for number in range(count):
        name = f"gpt2-{number:05}"
        folder = nests / name
        (folder / "src").mkdir(parents=True)
        for file in ("README.md", "bindings.json"):
            shutil.copy(TEMPLATE / file, folder / file)
        for source in sorted((TEMPLATE / "src").iterdir()):
            text = source.read_text("utf-8")
            if source.name == "lib.linnet":
                text = text.replace("\npub block Model", f"\n/// Source {number % SOURCES}.\npub block Model")
            (folder / "src" / source.name).write_text(text, encoding="utf-8")
        own = card.replace('"gpt2"', f'"{name}"', 1).replace("Vocab = 50257", f"Vocab = {50000 + number}")
        (folder / "nest.toml").write_text(own, encoding="utf-8")
        (folder / "linnet.toml").write_text(manifest.replace('"gpt2"', f'"{name}"'), encoding="utf-8")


def index_figures(count: int, processes: int) -> Figures:
    """Index `count` generated packages three times. Raises CalledProcessError."""
    with tempfile.TemporaryDirectory(prefix="linnet-bench-") as scratch:
        nests, output = Path(scratch) / "nests", Path(scratch) / "index.json"
        generate(nests, count)
        environment = {**os.environ, "LINNET_CACHE": f"{scratch}/cache"}

        seconds: dict[str, float] = {}
        processor: dict[str, float] = {}

        def build(name: str) -> str:
            start, before = time.perf_counter(), os.times()
            command = [sys.executable, "-c", "from linnet.cli.nest_main import main; main()", "index", "build"]
            command += [str(nests), "-o", str(output), "--processes", str(processes)]
            subprocess.run(command, check=True, cwd=ROOT, env=environment, capture_output=True)
            seconds[name], after = time.perf_counter() - start, os.times()
            processor[name] = sum(after[2:4]) - sum(before[2:4])
            return hashlib.sha256(output.read_bytes()).hexdigest()

        first = build("cold")
        if build("warm") != first:
            raise SystemExit("The index of unchanged packages changed.")
        readme = nests / "gpt2-00042" / "README.md"
        readme.write_text(readme.read_text("utf-8") + "\nOne more line.\n", encoding="utf-8")
        if build("one changed") == first:
            raise SystemExit("The index of a changed package did not change.")
        size = output.stat().st_size
    return Figures(seconds, processor, size, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--packages", default="100,1000,10000", help="how many, separated by commas")
    parser.add_argument("--processes", type=int, default=2, help="processes that check packages")
    parser.add_argument("--limit", action="store_true", help="exit 1 where 10,000 packages are past a limit")
    given = parser.parse_args()
    names = ("cold", "warm", "one changed")
    print(f"{'packages':>8}" + "".join(f"{name:>12} {'processor':>9}" for name in names) + "     index      peak")
    fine = True
    for count in map(int, given.packages.split(",")):
        found = index_figures(count, given.processes)
        times = "".join(f"{found.seconds[name]:11.1f}s {found.processor[name]:8.1f}s" for name in names)
        sizes = f"{found.index_bytes / 2**20:7.1f} MB {found.peak / 2**20:6.0f} MB"
        print(f"{count:8,}{times} {sizes}", flush=True)
        if given.limit and count == 10_000:
            fine = all(found.seconds[name] <= limit for name, limit in LIMITS.items())
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
