"""What `nest bench` measured, as data: `bench.json`, and the rules by which a file is one.

The schema in words is `docs/benchmarks.md`, for other programs `docs/schemas/bench.v1.schema.json`. It is closed: a key
that it does not have is a problem, as in the card.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from linnet.registry.bench_reader import (
    JsonTable,
    WrongValueError,
    boolean,
    count,
    generic_values,
    line,
    mapping,
    mode,
    natural,
    number,
    or_null,
    quantity,
    sha256,
    utc_time,
)
from linnet.registry.errors import PackageError, Problem, RegistryError, shown
from linnet.registry.package import CARD_NAME, README_NAME, PackageFile, package_files, read_file
from linnet.registry.strict_json import BadJsonError, parse_json

SCHEMA = 1
BENCH_NAME = "bench.json"
BENCH_BYTES = 4 << 20


class BenchReportError(RegistryError):
    """A `bench.json` that is none; `problems` holds all that is wrong with it."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One quantity over several runs, in the unit that its name ends with."""

    runs: tuple[float, ...]

    @property
    def median(self) -> float:
        return median(self.runs)

    @property
    def low(self) -> float:
        return min(self.runs)

    @property
    def high(self) -> float:
        return max(self.runs)

    def to_dict(self) -> dict[str, Any]:
        return {"median": self.median, "min": self.low, "max": self.high, "runs": list(self.runs)}


@dataclass(frozen=True, slots=True)
class Results:
    """Figures of one package. `peak_memory_bytes` is None where the system does not tell."""

    load_seconds: Figure
    load_and_first_token_seconds: Figure
    time_to_first_token_seconds: Figure
    decode_tokens_per_second: Figure
    peak_memory_bytes: Figure | None


@dataclass(frozen=True, slots=True)
class WeightFile:
    """`size` in bytes, `sha256` in hex."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class UsedWeights:
    """The weights that a figure belongs to.

    `pinned` is whether they are those of the card: in its repository at its commit, or beside it, or of the digest that
    it gives. `given` is the name, without its folders, of what was used instead.
    """

    pinned: bool
    given: str | None
    repo: str | None
    revision: str | None
    files: tuple[WeightFile, ...]


@dataclass(frozen=True, slots=True)
class Score:
    """A perplexity; `protocol` is what `nest eval` states."""

    perplexity: float
    standard_error: float | None
    nll: float
    tokens_scored: int
    windows: int
    protocol: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Measured:
    """One package and its figures.

    `digest` is `sources_digest` of its files; `revision` the commit where it came from the Hub; `compile` and `fp8` are
    how it ran (`fp8` None where it has no FP8 weights).
    """

    name: str
    version: str | None
    repo: str | None
    revision: str | None
    digest: str
    generics: Mapping[str, int | str]
    compile: bool | str
    fp8: str | None
    weights: UsedWeights
    results: Results
    perplexity: Score | None = None

    def value(self, key: str) -> float | None:
        """The median of a field of `Results`, or the perplexity; None where it was not measured."""
        if key == "perplexity":
            return self.perplexity.perplexity if self.perplexity else None
        found: Figure | None = getattr(self.results, key)
        return found.median if found is not None else None


@dataclass(frozen=True, slots=True)
class Protocol:
    """`prompt` and `new` count tokens of a row; `runs` are processes for each package. `dtype` None: the card's."""

    prompt: int
    new: int
    runs: int
    seed: int
    numerics: str
    dtype: str | None
    backend: str = "torch"


@dataclass(frozen=True, slots=True)
class Environment:
    """`device` is the backend's name, `device_name` the processor's; `memory_bytes` that of the device. `mlx` is None
    where torch ran it."""

    linnet: str
    python: str
    torch: str
    cuda: str | None
    system: str
    machine: str
    device: str
    device_name: str
    threads: int
    memory_bytes: int | None
    mlx: str | None = None


@dataclass(frozen=True, slots=True)
class BenchReport:
    """`bench.json`: a package beside its baseline. `date` is UTC, as ISO 8601 writes it; `command` makes it again."""

    command: str
    date: str
    protocol: Protocol
    environment: Environment
    package: Measured
    baseline: Measured | None

    def ratio(self, key: str) -> float | None:
        """The package's value over the baseline's, of a field of `Results` or of `perplexity`; None without both."""
        own, base = self.package.value(key), self.baseline.value(key) if self.baseline else None
        return own / base if own is not None and base else None

    def to_json(self) -> str:
        """The text of `bench.json`."""
        document = {"schema": SCHEMA, **dataclasses.asdict(self)}
        # Only another backend is told of.
        if self.protocol.backend == "torch":
            del document["protocol"]["backend"]
        if self.environment.mlx is None:
            del document["environment"]["mlx"]
        for measured, key in ((self.package, "package"), (self.baseline, "baseline")):
            if measured is not None:
                document[key]["results"] = {
                    name: figure.to_dict() if figure is not None else None
                    for name, figure in ((f, getattr(measured.results, f)) for f in FIGURES)
                }
        return json.dumps(document, ensure_ascii=False, indent=1) + "\n"

    @classmethod
    def from_json(cls, data: bytes | str) -> BenchReport:
        """The report written in `data`.

        Raises BenchReportError with everything that is wrong, and for a schema that this version does not know.
        """
        return _parse(data.encode() if isinstance(data, str) else data)


FIGURES = tuple(field.name for field in dataclasses.fields(Results))


def read_bench(package: Path) -> BenchReport | None:
    """The package's own `bench.json`; None where it has none. Raises BenchReportError, PackageError."""
    if not (package / BENCH_NAME).is_file():
        return None
    return BenchReport.from_json(read_file(package, BENCH_NAME, BENCH_BYTES))


def sources_digest(files: Iterable[PackageFile]) -> str:
    """A sha256 over what decides how a package runs: path and digest of every file but README and `bench.json`."""
    lines = sorted(f"{item.path} {item.sha256}\n" for item in files if item.path not in (README_NAME, BENCH_NAME))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def package_digest(package: Path, weights: Iterable[str]) -> str:
    """`sources_digest` of a folder, without the weight files that are named. Raises PackageError."""
    if not (package / CARD_NAME).is_file():
        raise PackageError([Problem("package.folder", str(package), f"{package} holds no {CARD_NAME}.", "Add it.")])
    return sources_digest(package_files(package, skip=frozenset(weights)))


# Reading

UNCOMPILED: bool | str = False


def _figure(value: Any) -> Figure:
    wrong = WrongValueError("an object with runs, and their median, min and max")
    if not isinstance(value, dict) or value.keys() != {"median", "min", "max", "runs"}:
        raise wrong
    if not isinstance(value["runs"], list) or not value["runs"]:
        raise wrong
    figure = Figure(tuple(quantity(run) for run in value["runs"]))
    for key, wanted in (("median", figure.median), ("min", figure.low), ("max", figure.high)):
        if not math.isclose(quantity(value[key]), wanted, rel_tol=1e-9):
            raise wrong
    return figure


def _weight_files(value: Any) -> tuple[WeightFile, ...]:
    wrong = WrongValueError("a list of objects with path, size and sha256")
    if not isinstance(value, list) or not value:
        raise wrong
    for item in value:
        if not isinstance(item, dict) or item.keys() != {"path", "size", "sha256"}:
            raise wrong
    return tuple(WeightFile(line(item["path"]), natural(item["size"]), sha256(item["sha256"])) for item in value)


_EMPTY = Figure((1.0,))


def _parse(data: bytes) -> BenchReport:
    try:
        document = parse_json(data)
    except BadJsonError as error:
        raise _refused("bench.json", f"{BENCH_NAME} {error}.") from None
    if not isinstance(document, dict):
        raise _refused("bench.json", f"{BENCH_NAME} must be an object.")
    schema = document.get("schema")
    if isinstance(schema, bool) or schema != SCHEMA:
        if isinstance(schema, int) and not isinstance(schema, bool) and schema > SCHEMA:
            message = f"{BENCH_NAME} has the schema {schema}, and this version reads {SCHEMA}."
            raise _refused("bench.schema", message, "Install a newer linnet-nest, or measure again with nest bench.")
        what = f"the schema {shown(str(schema))}" if "schema" in document else "no schema"
        raise _refused("bench.schema", f"{BENCH_NAME} has {what}, and this version reads {SCHEMA}.")
    problems: list[Problem] = []
    top = JsonTable(document, "", problems, {"schema"})
    command, date = top.take("command", line, ""), top.take("date", utc_time, "")
    protocol, environment = _protocol(top.sub("protocol")), _environment(top.sub("environment"))
    package, baseline = _measured(top.sub("package")), _measured(top.sub("baseline", optional=True))
    top.close()
    if problems:
        raise BenchReportError(problems)
    assert protocol is not None
    assert environment is not None
    assert package is not None
    return BenchReport(command, date, protocol, environment, package, baseline)


def _protocol(table: JsonTable | None) -> Protocol | None:
    if table is None:
        return None
    found = Protocol(
        prompt=table.take("prompt", count, 1),
        new=table.take("new", count, 1),
        runs=table.take("runs", count, 1),
        seed=table.take("seed", natural, 0),
        numerics=table.take("numerics", line, ""),
        dtype=table.take("dtype", or_null(line), None),
        # Reports from before there was another backend say nothing of it.
        backend=table.take("backend", line, "") if "backend" in table.data else "torch",
    )
    table.close()
    return found


def _environment(table: JsonTable | None) -> Environment | None:
    if table is None:
        return None
    names = ("linnet", "python", "torch", "system", "machine", "device", "device_name")
    found = Environment(
        **{name: table.take(name, line, "") for name in names},
        cuda=table.take("cuda", or_null(line), None),
        threads=table.take("threads", count, 1),
        memory_bytes=table.take("memory_bytes", or_null(count), None),
        mlx=table.take("mlx", or_null(line), None) if "mlx" in table.data else None,
    )
    table.close()
    return found


def _measured(table: JsonTable | None) -> Measured | None:
    if table is None:
        return None
    weights, results, score = table.sub("weights"), table.sub("results"), table.sub("perplexity", optional=True)
    found = Measured(
        name=table.take("name", line, ""),
        version=table.take("version", or_null(line), None),
        repo=table.take("repo", or_null(line), None),
        revision=table.take("revision", or_null(line), None),
        digest=table.take("digest", sha256, ""),
        generics=table.take("generics", generic_values, {}),
        compile=table.take("compile", mode, UNCOMPILED),
        fp8=table.take("fp8", or_null(line), None),
        weights=_used_weights(weights),
        results=_results(results),
        perplexity=_score(score),
    )
    table.close()
    return found


def _used_weights(table: JsonTable | None) -> UsedWeights:
    if table is None:
        return UsedWeights(False, None, None, None, ())
    found = UsedWeights(
        pinned=table.take("pinned", boolean, False),
        given=table.take("given", or_null(line), None),
        repo=table.take("repo", or_null(line), None),
        revision=table.take("revision", or_null(line), None),
        files=table.take("files", _weight_files, ()),
    )
    table.close()
    return found


def _results(table: JsonTable | None) -> Results:
    if table is None:
        return Results(_EMPTY, _EMPTY, _EMPTY, _EMPTY, None)
    found = Results(
        **{name: table.take(name, _figure, _EMPTY) for name in FIGURES if name != "peak_memory_bytes"},
        peak_memory_bytes=table.take("peak_memory_bytes", or_null(_figure), None),
    )
    table.close()
    return found


def _score(table: JsonTable | None) -> Score | None:
    if table is None:
        return None
    found = Score(
        perplexity=table.take("perplexity", quantity, 1.0),
        standard_error=table.take("standard_error", or_null(number), None),
        nll=table.take("nll", number, 0.0),
        tokens_scored=table.take("tokens_scored", count, 1),
        windows=table.take("windows", count, 1),
        protocol=table.take("protocol", mapping, {}),
    )
    table.close()
    return found


def _refused(kind: str, message: str, help: str = "Measure again with nest bench.") -> BenchReportError:
    return BenchReportError([Problem(kind, BENCH_NAME, message, help)])
