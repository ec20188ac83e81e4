"""The registry at 100, 1,000 and 10,000 packages: what an index costs, and what a client fetches to find one name.

    python bench/registry.py [--packages 100,1000,10000] [--processes 2] [--limit]

Packages are generated: 50 sources (gpt2 of nests/ with another line of documentation in each, which makes other
programs of them), each in a fiftieth of the packages, whose cards differ in name and generics. `cold` is a full index
with an empty cache, `warm` with nothing changed, `one changed` after an edit of one README. Each runs in a process of
its own, as a user's does, and writes the whole index. A registry with as many packages then stands behind a web server
of this machine: `resolve` is what a client that was never there receives until it knows the version that a name means,
heads and bodies, and `signed` the same with a trust root. With --limit the exit code is 1 where a figure for 10,000 is
past its limit. Nothing here reaches the network.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from linnet.registry.check import check_package
from linnet.registry.client import Client
from linnet.registry.generations import rebuild_index
from linnet.registry.layout import version_path
from linnet.registry.locate import Located
from linnet.registry.publish import make_publication, publish_version
from linnet.registry.registry import Registry
from linnet.registry.sign import start_signing
from linnet.registry.store.open import open_store

ROOT = Path(__file__).resolve().parent.parent
TEMPLATE = ROOT / "nests" / "gpt2"
# Its weights are beside its card, so that no Hub is asked for their digests.
PUBLISHED = ROOT / "nests" / "qwen3-tiny-fp8"
SOURCES = 50
# Seconds for 10,000 packages on two cores, and bytes.
LIMITS = {"cold": 180.0, "one changed": 6.0}
RESOLVE_BYTES = 50_000


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


class _CountingHandler(SimpleHTTPRequestHandler):
    """Files of a folder; the server's `received` counts what its clients get."""

    server: _CountingServer

    def do_GET(self) -> None:
        path = Path(self.translate_path(self.path))
        data = path.read_bytes() if path.is_file() else None
        self.send_response(404 if data is None else 200)
        self.send_header("Content-Length", str(len(data or b"")))
        self.server.received += sum(map(len, self._headers_buffer)) + 2 + len(data or b"")
        self.end_headers()
        self.wfile.write(data or b"")

    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads it."""


class _CountingServer(ThreadingHTTPServer):
    received = 0


def resolve_bytes(count: int) -> tuple[int, int]:
    """What a client receives to resolve one name of `count`, unsigned and signed."""
    with tempfile.TemporaryDirectory(prefix="linnet-bench-") as scratch:
        folder = Path(scratch) / "registry"
        registry = Registry(open_store(folder))
        package = Located(PUBLISHED)
        publish_version(registry, make_publication(package, "1.0.0", check_package(package, hub=False)))
        template = registry.version(PUBLISHED.name, "1.0.0").document
        for number in range(1, count):
            name = f"{PUBLISHED.name}-{number:05}"
            card = {**template.card, "model": {**template.card["model"], "name": name}}
            record = dataclasses.replace(template, name=name, card=card, publish_id=uuid.uuid4().hex)
            registry.store.create(version_path(name, "1.0.0"), record.to_bytes())
        rebuild_index(registry)
        start_signing(registry, Path(scratch) / "keys")
        server = _CountingServer(("127.0.0.1", 0), partial(_CountingHandler, directory=str(folder)))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        found = []
        for root in (None, f"{scratch}/keys/root.json"):
            client = Path(scratch) / f"client{len(found)}"
            os.environ.update(LINNET_CACHE=f"{client}/cache", LINNET_DATA=f"{client}/data")
            if root is not None:
                os.environ["LINNET_TRUST_ROOT"] = root
            before = server.received
            resolved = Client(f"http://127.0.0.1:{server.server_port}").resolve(f"{PUBLISHED.name}-{count // 2:05}")
            if resolved is None:
                raise SystemExit("The registry has no such package.")
            found.append(server.received - before)
        del os.environ["LINNET_TRUST_ROOT"]
        server.shutdown()
        server.server_close()
    return found[0], found[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--packages", default="100,1000,10000", help="how many, separated by commas")
    parser.add_argument("--processes", type=int, default=2, help="processes that check packages")
    parser.add_argument("--limit", action="store_true", help="exit 1 where 10,000 packages are past a limit")
    given = parser.parse_args()
    names = ("cold", "warm", "one changed")
    print(
        f"{'packages':>8}"
        + "".join(f"{name:>12} {'processor':>9}" for name in names)
        + "     index      peak  resolve   signed"
    )
    fine = True
    for count in map(int, given.packages.split(",")):
        found = index_figures(count, given.processes)
        times = "".join(f"{found.seconds[name]:11.1f}s {found.processor[name]:8.1f}s" for name in names)
        plain, signed = resolve_bytes(count)
        sizes = f"{found.index_bytes / 2**20:7.1f} MB {found.peak / 2**20:6.0f} MB"
        sizes += f" {plain / 1024:5.1f} kB {signed / 1024:5.1f} kB"
        print(f"{count:8,}{times} {sizes}", flush=True)
        if given.limit and count == 10_000:
            fine = all(found.seconds[name] <= limit for name, limit in LIMITS.items())
            fine = fine and max(plain, signed) < RESOLVE_BYTES
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
