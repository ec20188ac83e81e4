"""The site at 2,000 models: pages a second beside MkDocs, whether the cost is linear, memory, and one change.

    python bench/site.py [--models 2000] [--jobs 2] [--limit] [--no-mkdocs]

Needs MkDocs with the Material theme for the comparison: pip install -c constraints.txt -e '.[bench]'.

Packages are generated, each with a source of its own (a decoder of gpt2's kind), a README, bindings, two versions and
measurements, and put into a registry in a folder; that is not timed. `cold` draws all of them, every kind of page;
`one change` after one more version of one of them is published; each in a process of its own, as a user's is. MkDocs
gets the same READMEs, a page each. Its pages and ours are counted as files of HTML. Two cold builds are compared byte
by byte. With --limit the exit code is 1 where a figure is past its limit.
"""

from __future__ import annotations

import argparse
import filecmp
import hashlib
import importlib.util
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from linnet.registry.card import read_card
from linnet.registry.generations import rebuild_index
from linnet.registry.index import package_record, package_version
from linnet.registry.layout import object_path, version_path
from linnet.registry.package import PackageFile, package_files
from linnet.registry.publish import KEPT
from linnet.registry.records import ObjectRef, VersionRecord, WeightRecord, WeightsPin
from linnet.registry.registry import Registry
from linnet.registry.store.open import open_store

ROOT = Path(__file__).resolve().parent.parent
TEMPLATE = ROOT / "nests" / "gpt2"
FAMILIES = ("wren", "robin", "finch", "siskin", "bunting", "pipit", "warbler", "swift")
LICENCES = ("Apache-2.0", "MIT", "CC-BY-4.0", "BSD-3-Clause")
TAGS = ("text-generation", "decoder-only", "encoder-only", "quantized", "multilingual", "code", "chat", "vision")
WORDS = "attention cache decoder embedding layer logits norm prefill projection rotary shard token weight width".split()
LAYERS = 30  # how many depths there are
# Times MkDocs' rate with the Material theme; bytes; seconds; and how much more a model may cost among many.
FASTER, MOST_MEMORY, MOST_SECONDS, MOST_GROWTH = 3.0, 1.5 * 2**30, 5.0, 1.3


@dataclass(frozen=True, slots=True)
class Built:
    """What a build took: seconds by the clock and of processors, peak memory of all its processes together in bytes,
    pages of HTML."""

    seconds: float
    processor: float
    memory: int
    pages: int

    @property
    def rate(self) -> float:
        return self.pages / self.seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=int, default=2000, help="how many models the largest site has")
    parser.add_argument("--jobs", type=int, default=2, help="processes that draw pages")
    parser.add_argument("--limit", action="store_true", help="exit 1 where a figure is past its limit")
    parser.add_argument("--no-mkdocs", action="store_true", help="leave the comparison out")
    given = parser.parse_args()
    if not given.no_mkdocs and importlib.util.find_spec("material") is None:
        print("MkDocs' Material theme is not installed: pip install -c constraints.txt -e '.[bench]'", file=sys.stderr)
        return 3
    with tempfile.TemporaryDirectory(prefix="linnet-bench-") as scratch:
        return measure(Path(scratch), given.models, given.jobs, not given.no_mkdocs, given.limit)


def measure(scratch: Path, models: int, jobs: int, mkdocs: bool, limit: bool) -> int:
    print(f"{models:,} models, {jobs} processes", flush=True)
    faults: list[str] = []
    tenth = max(1, models // 10)
    start = time.perf_counter()
    large, small = scratch / "large", scratch / "small"
    publish(scratch, models, {large: models, small: tenth})
    print(f"  published in {time.perf_counter() - start:.0f} s, which is no part of what follows", flush=True)
    few = build(small, scratch / "few", scratch / "cache", jobs)
    cold = build(large, scratch / "site", scratch / "cache", jobs)
    again = build(large, scratch / "again", scratch / "cache", jobs)
    growth = (cold.seconds / models) / (few.seconds / tenth)
    print(f"  cold        {told(cold)} {mebibytes(cold.memory)}", flush=True)
    identical = same(scratch)
    faults += [] if identical else ["two builds of the same registry differ"]
    print(f"  again       {again.seconds:8.1f} s, elsewhere: {'byte-identical' if identical else 'DIFFERENT'}")
    print(f"  a tenth     {few.seconds:8.1f} s; a model among all costs {growth:.2f} times what it costs there")
    release(large, scratch / "more")
    change = build(large, scratch / "site", scratch / "cache", jobs)
    spent = f"{change.seconds:.1f} s ({change.processor:.1f} of processors)"
    print(f"  one change  {spent} {mebibytes(change.memory)}", flush=True)
    faults += [] if same_but_one(scratch) else ["one change changed the pages of other models, or none"]
    if max(cold.memory, change.memory) > MOST_MEMORY:
        faults.append(f"{mebibytes(max(cold.memory, change.memory))} is past {mebibytes(int(MOST_MEMORY))}")
    if change.seconds > MOST_SECONDS:
        faults.append(f"one change took {change.seconds:.1f} s, past {MOST_SECONDS} s")
    if growth > MOST_GROWTH:
        faults.append(f"a model among many costs {growth:.2f} times what it costs among few")
    if mkdocs:
        for theme in ("material", "mkdocs"):
            other = build_mkdocs(scratch, models, theme)
            print(f"  {theme:11} {told(other)}", flush=True)
            if theme == "material":
                each = (cold.pages / cold.processor) / (other.pages / other.processor)
                print(f"  {cold.rate / other.rate:.1f} times the rate of MkDocs with the Material theme by the clock,")
                print(f"  {each:.1f} times for each second of a processor")
                if cold.rate < FASTER * other.rate:
                    faults.append(f"the rate is {cold.rate / other.rate:.1f} times MkDocs', below {FASTER}")
    for fault in faults:
        print(f"  {fault}")
    return 1 if limit and faults else 0


def told(built: Built) -> str:
    each = built.pages / built.processor
    return (
        f"{built.seconds:8.1f} s ({built.processor:.1f} of processors) {built.pages:8,} pages {built.rate:6.0f} pages/s"
        f" ({each:.0f} a processor)"
    )


def mebibytes(size: int) -> str:
    return f"{size / 2**20:,.0f} MB"


def build(registry: Path, output: Path, cache: Path, jobs: int) -> Built:
    """`nest site build` of a registry. Raises CalledProcessError."""
    command = [sys.executable, "-c", "from linnet.cli.nest_main import main; main()", "site", "build"]
    command += ["--registry", str(registry), "-o", str(output), "--jobs", str(jobs), "--quiet"]
    command += ["--base-url", "https://example.org/nest"]
    start, before = time.perf_counter(), processor_seconds()
    process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "LINNET_CACHE": str(cache)})
    peak = 0
    while process.poll() is None:
        peak = max(peak, memory(process.pid))
        time.sleep(0.25)
    seconds = time.perf_counter() - start
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return Built(seconds, processor_seconds() - before, peak, sum(1 for _ in output.rglob("*.html")))


def processor_seconds() -> float:
    """Of all processes that this one started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def memory(pid: int) -> int:
    """Resident bytes of a process and its children, as Linux tells; elsewhere 0."""
    found, pending = 0, [pid]
    while pending:
        place = Path(f"/proc/{pending.pop()}")
        try:
            for task in (place / "task").iterdir():
                pending += map(int, (task / "children").read_text().split())
            status = (place / "status").read_text()
        except OSError:
            continue
        resident = re.search(r"VmRSS:\s+(\d+) kB", status)
        found += int(resident[1]) * 1024 if resident else 0
    return found


def build_mkdocs(scratch: Path, models: int, theme: str) -> Built:
    """The READMEs of the same packages by MkDocs, all of them in its navigation as it has them by default."""
    folder = scratch / f"mkdocs-{theme}"
    (folder / "docs").mkdir(parents=True)
    for number in range(models):
        text = readme(number, "0.2.0")
        (folder / "docs" / f"{name(number)}.md").write_text(text, encoding="utf-8")
    (folder / "docs" / "index.md").write_text("# Models\n", encoding="utf-8")
    settings = f"site_name: Models\ntheme:\n  name: {theme}\n"
    (folder / "mkdocs.yml").write_text(settings, encoding="utf-8")
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    start, before = time.perf_counter(), processor_seconds()
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet"]
    subprocess.run(command, check=True, cwd=folder, env=environment, stderr=subprocess.DEVNULL)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    return Built(seconds, processor_seconds() - before, peak, sum(1 for _ in (folder / "site").rglob("*.html")))


def same(scratch: Path) -> bool:
    return not list(differences(filecmp.dircmp(scratch / "site", scratch / "again")))


def same_but_one(scratch: Path) -> bool:
    """Whether only one model's pages, and what is made of all models together, differ after the change."""
    found = differences(filecmp.dircmp(scratch / "site", scratch / "again"))
    changed = {path.split("/")[1] for path in found if path.startswith("models/")}
    return changed == {name(7)}


def differences(compared: filecmp.dircmp[str], folder: str = "") -> Iterator[str]:
    _, changed, errors = filecmp.cmpfiles(compared.left, compared.right, compared.common_files, shallow=False)
    for item in (*changed, *errors, *compared.left_only, *compared.right_only):
        yield f"{folder}{item}"
    for item, inner in compared.subdirs.items():
        yield from differences(inner, f"{folder}{item}/")


# Generated packages


def name(number: int) -> str:
    return f"{FAMILIES[number % len(FAMILIES)]}-{number:05}"


def readme(number: int, version: str) -> str:
    """About three kilobytes of Markdown: headings, lists, tables, code, links to a file and to another model."""
    other = name((number * 7 + 1) % (number + 1))
    pick = [WORDS[(number * 31 + step * step + step // 3) % len(WORDS)] for step in range(60)]
    sentence = " ".join(pick[:24])
    rows = "\n".join(f"| {pick[i]} | {number + i} | {(number * 13 + i * 7) % 1000 / 10} |" for i in range(12))
    points = "\n".join(f"- `{pick[20 + i]}`: {' '.join(pick[i : i + 9])}." for i in range(10))
    sections = "\n\n".join(
        f"## {pick[i].title()} {i}\n\n{sentence}, and {' '.join(pick[i : i + 15])}." for i in range(6)
    )
    return f"""# Model {number}

A generated decoder, version {version}: {sentence}. It is much like [{other}](../{other}), and its source is
[one file](src/lib.linnet#L5).

## Loading

```python
from linnet import nest

model = nest.load("{name(number)}", backend="torch", numerics="fast")
logits = model(tokens)
```

{points}

| part | size | share |
| --- | ---: | ---: |
{rows}

{sections}
"""


def write_package(folder: Path, number: int, version: str) -> None:
    """A package with a source that no other has."""
    card = (TEMPLATE / "nest.toml").read_text("utf-8")
    layers = 6 + number % LAYERS
    (folder / "src").mkdir(parents=True)
    for source in sorted((TEMPLATE / "src").iterdir()):
        text = source.read_text("utf-8")
        if source.name == "lib.linnet":
            text += f"\n// Number {number}, as of {version}.\n"
        (folder / "src" / source.name).write_text(text, encoding="utf-8")
    (folder / "bindings.json").write_bytes((TEMPLATE / "bindings.json").read_bytes())
    tags = ", ".join(f'"{TAGS[(number + step) % len(TAGS)]}"' for step in range(3))
    values = {
        "name": f'"{name(number)}"',
        "title": f'"Model {number}"',
        "summary": f'"A generated decoder of {layers} layers, number {number}, as of version {version}."',
        "license": f'"{LICENCES[number % len(LICENCES)]}"',
        "family": f'"{FAMILIES[number % len(FAMILIES)]}"',
        "tags": f"[{tags}]",
        "Layers": str(layers),
    }
    for key, value in values.items():
        card = re.sub(rf"(?m)^{key} = .*$", f"{key} = {value}", card, count=1)
    (folder / "nest.toml").write_text(card, encoding="utf-8")
    manifest = f'[package]\nname = "{name(number)}"\nversion = "{version}"\nlanguage = "0.1"\n'
    (folder / "linnet.toml").write_text(manifest, encoding="utf-8")
    (folder / "README.md").write_text(readme(number, version), encoding="utf-8")


def bench(number: int) -> dict[str, object]:
    """Measurements as `nest bench` writes them, with other figures."""
    found = json.loads((ROOT / "nests" / "qwen3-tiny-fp8" / "bench.json").read_text("utf-8"))
    found["package"]["name"], found["baseline"]["name"] = name(number), name(0)
    runs = [100.0 + number % 50 + step for step in range(3)]
    figure = {"median": runs[1], "min": runs[0], "max": runs[2], "runs": runs}
    found["package"]["results"]["decode_tokens_per_second"] = figure
    return dict(found)


def publish(scratch: Path, count: int, registries: Mapping[Path, int]) -> None:
    """`count` packages in two versions, of which each registry has the first so many. The documents are written as they
    are, not one by one as `nest publish` does, which would read each of them back."""
    for version in ("0.1.0", "0.2.0"):
        put(scratch / version, registries, range(count), version)


def release(registry: Path, scratch: Path) -> None:
    """One more version of one package."""
    put(scratch, {registry: 8}, range(7, 8), "0.3.0")


def put(nests: Path, registries: Mapping[Path, int], numbers: range, version: str) -> None:
    known: dict[int, dict[str, Any]] = {}
    for number in numbers:
        folder = nests / name(number)
        write_package(folder, number, version)
        if number % LAYERS not in known:
            known[number % LAYERS] = package_record(folder)
        record, measured = record_like(known[number % LAYERS], folder), bench(number)
        for registry, count in registries.items():
            if number < count:
                write_version(folder, registry, record, measured)
    if record_like(known[number % LAYERS], folder) != package_record(folder):
        raise AssertionError(f"{folder} is not what was published")
    for registry in registries:
        rebuild_index(Registry(open_store(registry)))


def record_like(other: dict[str, Any], folder: Path) -> dict[str, Any]:
    """A package's record, given that of one with as many layers: their sources differ in comments alone."""
    card = read_card(folder)
    files = package_files(folder, skip=frozenset(card.weights.files))
    return {
        **other,
        "name": card.model.name,
        "version": package_version(folder, card),
        "card": card.to_dict(),
        "files": [{"path": file.path, "size": file.size, "sha256": file.sha256} for file in files],
        "size": sum(file.size for file in files),
    }


def write_version(folder: Path, registry: Path, found: dict[str, Any], measured: dict[str, object]) -> None:
    files, card = found["files"], found["card"]
    for item in files:
        write(registry / object_path(item["sha256"]), (folder / item["path"]).read_bytes())
    manifest = json.dumps({"schema": 1, "parameters": found["parameters"]}).encode()
    reference = ObjectRef(sha256(manifest), len(manifest))
    write(registry / object_path(reference.sha256), manifest)
    weights = card["weights"]
    pins = tuple(WeightRecord(file, 1000, sha256(file.encode()), False) for file in weights["files"])
    number, version = found["name"], found["version"]
    record = VersionRecord(
        name=number,
        version=version,
        publish_id=sha256(f"{number} {version}".encode())[:32],
        published=f"2026-0{version[2]}-15T12:00:00Z",
        files=tuple(PackageFile(item["path"], item["size"], item["sha256"]) for item in files),
        card=card,
        weights=WeightsPin(weights["repo"], weights["revision"], pins),
        record={key: found[key] for key in KEPT},
        check={},
        bench=measured,
        manifest=reference,
    )
    write(registry / version_path(number, version), record.to_bytes())


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def write(path: Path, data: bytes) -> None:
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


if __name__ == "__main__":
    sys.exit(main())
