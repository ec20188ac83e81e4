"""The index of any number of packages: only what changed is checked again, and nothing depends on how it was done."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from linnet.registry.cache import cache_folder
from linnet.registry.contents import code_digest, contents, folder_name, source_digest
from linnet.registry.discover import discover
from linnet.registry.errors import PackageError, Problem
from linnet.registry.index import SCHEMA, index_bytes, write_chunks
from linnet.registry.index_pool import Watch, make_records
from linnet.registry.index_worker import Job, RecordMaker
from linnet.registry.locate import Located, package_folders
from linnet.registry.package import CARD_NAME
from linnet.registry.record_cache import DamagedError, RecordCache, open_cache


@dataclass(slots=True)
class Crawl:
    """Packages that were found, and their records, which are read from the cache one at a time.

    `jobs` are the packages that have a record, by name; `problems` what is wrong with the others. `made` counts the
    records that were not in the cache, `damaged` those that were, but not as they had been written.
    """

    jobs: dict[str, Job] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    made: int = 0
    damaged: int = 0

    def records(self) -> Iterator[bytes]:
        """The record of each package, JSON that `record_bytes` wrote, sorted by name. Raises PackageError, OSError."""
        for _, job in sorted(self.jobs.items()):
            record = self._read(job)
            if record is None:
                if problems := RecordMaker().make(job):
                    raise PackageError(in_package(job, problem) for problem in problems)
                record = RecordCache(Path(job.cache)).read(job.key)
            if record is None:
                raise OSError(errno.ENOENT, "removed while the index was being written", job.cache)
            yield record

    def write(self, path: Path) -> None:
        """Write the index to a file, whole or not at all. Raises PackageError, OSError."""
        write_chunks(index_bytes(self.records()), path)

    def _read(self, job: Job) -> bytes | None:
        try:
            return RecordCache(Path(job.cache)).read(job.key)
        except DamagedError:
            self.damaged += 1
            return None


@contextmanager
def crawl(
    roots: Iterable[str | os.PathLike[str]],
    *,
    processes: int | None = None,
    cache: bool = True,
    watch: Watch = iter,
) -> Iterator[Crawl]:
    """The packages under `roots` (see `discover`), each with a record or a problem.

    A package that has not changed is hashed and no more; the others are checked in `processes` processes (None: as many
    as are worth it), a source once however many packages share it. Without `cache` all are. The records are the same
    whatever was in the cache. `watch` hands on what is checked, for who shows progress. Raises OSError.
    """
    found = discover(roots)
    with _crawled(found.packages, processes, cache, watch) as result:
        result.problems[:0] = found.problems
        yield result


def index_records(roots: Iterable[str | os.PathLike[str]], processes: int | None = None) -> list[dict[str, Any]]:
    """The records of every package under `roots`, sorted by name. Raises PackageError with all that is wrong."""
    with crawl(roots, processes=processes) as found:
        if found.problems:
            raise PackageError(found.problems)
        return list(map(json.loads, found.records()))


def build_index(nests: Path, watch: Callable[[Sequence[Any]], Iterable[Any]] = iter) -> dict[str, Any]:
    """The index of every package in the folder `nests`: `{"schema": 1, "packages": [record, ...]}`, sorted by name.

    `watch` hands on what is checked, for who shows progress. Raises PackageError with the problems of every package
    that does not check, or where there is no package.
    """
    with _crawled([Located(folder) for folder in package_folders(nests)], None, True, watch) as found:
        if found.problems:
            raise PackageError(found.problems)
        return {"schema": SCHEMA, "packages": list(map(json.loads, found.records()))}


def in_package(job: Job, problem: Problem) -> Problem:
    """The problem with the name of its package, once."""
    name = job.repo or Path(job.folder).name
    # A place in a source begins with the package's folder.
    where = problem.where.removeprefix(f"{job.folder}/")
    begins = problem.message.startswith(f"{where} ")
    message = f"{name}: {problem.message}" if begins else problem.message
    return Problem(problem.kind, f"{name}: {where}", message, problem.help)


@contextmanager
def _crawled(packages: Sequence[Located], processes: int | None, cache: bool, watch: Watch) -> Iterator[Crawl]:
    result = Crawl()
    with tempfile.TemporaryDirectory(prefix="linnet-index-") as scratch:
        kept = _cache() if cache else None
        missing: list[tuple[str, Job]] = []
        for number, package in enumerate(packages):
            now = contents(package)
            counted = kept is not None and now is not None
            place = kept.folder if counted and kept is not None else Path(scratch)
            digest = now.digest if now is not None else None
            key = digest if counted and digest is not None else f"{number:08}"
            job = Job(str(package.folder), package.repo, package.revision, digest, str(place), key)
            if not _named(result, job):
                continue
            if not RecordCache(place).has(key):
                missing.append((source_digest(package, now) if now is not None else key, job))
        result.made = len(missing)
        faulty: dict[str, list[Problem]] = {}
        for job, problems in make_records(missing, processes, watch):
            if problems:
                faulty[job.folder] = [in_package(job, problem) for problem in problems]
        for name, job in list(result.jobs.items()):
            if job.folder in faulty:
                result.problems += faulty[job.folder]
                del result.jobs[name]
        result.problems.sort(key=lambda problem: problem.where)
        yield result


def _cache() -> RecordCache | None:
    """The user's cache of records; None where there cannot be one, which costs time and nothing else."""
    with contextlib.suppress(OSError):
        return open_cache(cache_folder() / "records", code_digest())
    return None


def _named(result: Crawl, job: Job) -> bool:
    """Enter a job under its package's name; a problem where another package has that name."""
    name = _name(job)
    other = result.jobs.setdefault(name, job)
    if other is job:
        return True
    message = f"{job.folder} and {other.folder} are both named {name}."
    result.problems.append(Problem("index.twice", name, message, "Rename one of the two, or leave one out."))
    return False


def _name(job: Job) -> str:
    """What a package is called: its folder must be named so. A repository's is named after a commit, and only its card
    knows."""
    if job.repo is None:
        return folder_name(Path(job.folder))
    try:
        name = tomllib.loads((Path(job.folder) / CARD_NAME).read_text("utf-8"))["model"]["name"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        # The check says what is wrong with the card.
        return job.repo
    return name if isinstance(name, str) else job.repo
