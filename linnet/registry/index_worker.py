"""Making index records, here or in a process of its own that reads jobs and writes answers, a line of JSON each."""

from __future__ import annotations

import gc
import json
import os
import sys
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from linnet.language.check import CheckResult, load
from linnet.registry.contents import contents, source_digest
from linnet.registry.errors import Problem, RegistryError
from linnet.registry.index import package_record, record_bytes
from linnet.registry.locate import Located
from linnet.registry.record_cache import RecordCache

# Checked programs that are kept in memory, about a megabyte each.
MOST_PROGRAMS = 64


@dataclass(frozen=True, slots=True)
class Job:
    """A package whose record is wanted in the cache `cache`, under `key`.

    `digest` is that of its contents, None where none can stand for them.
    """

    folder: str
    repo: str | None
    revision: str | None
    digest: str | None
    cache: str
    key: str


class RecordMaker:
    """Makes records; a source is checked once, however many packages have it."""

    def __init__(self) -> None:
        self.checked: OrderedDict[tuple[str, str], CheckResult] = OrderedDict()

    def make(self, job: Job) -> tuple[Problem, ...]:
        """Put a package's record in the cache; the problems that keep it from having one. Raises OSError."""
        package = Located(Path(job.folder), job.repo, job.revision)
        before = contents(package)
        sources = source_digest(package, before) if before is not None else None
        try:
            record = package_record(package, self._loader(package.folder, sources))
        except RegistryError as error:
            return error.problems
        after = contents(package)
        if not job.digest == (before and before.digest) == (after and after.digest):
            message = f"{job.folder} changed while it was read."
            return (Problem("package.changed", job.folder, message, "Try again when nothing writes to it."),)
        RecordCache(Path(job.cache)).write(job.key, record_bytes(record))
        return ()

    def _loader(self, folder: Path, sources: str | None) -> Callable[[Path], CheckResult]:
        if sources is None:
            return load

        def load_once(path: Path) -> CheckResult:
            key = (sources, str(path.relative_to(folder)))
            known = self.checked.get(key)
            if known is None:
                known = load(path)
                # Diagnostics name the folder that they were found in: of a faulty source each package has its own.
                if known.ok:
                    self.checked[key] = known
                    if len(self.checked) > MOST_PROGRAMS:
                        self.checked.popitem(last=False)
            else:
                self.checked.move_to_end(key)
            return known

        return load_once


def main() -> None:
    """Do jobs until there are no more. An answer is `{"problems": [...]}`, or `{"error": [errno, text, file]}`."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    # Whatever prints must not be taken for an answer.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    # Trees and programs live long: looking through them for garbage again and again takes a sixth of the time.
    gc.set_threshold(200_000, 50, 100)
    maker = RecordMaker()
    for line in sys.stdin:
        answers.write(json.dumps(_answer(maker, json.loads(line))) + "\n")
        answers.flush()


def _answer(maker: RecordMaker, job: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return {"problems": [asdict(problem) for problem in maker.make(Job(**job))]}
    except OSError as error:
        return {"error": [error.errno, error.strerror, error.filename]}


if __name__ == "__main__":
    main()
