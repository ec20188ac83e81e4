"""Models shared among processes. Each does one after the other; what one dies of is that model's fault."""

from __future__ import annotations

import contextlib
import os
import pickle
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from linnet.registry.processes import in_processes
from linnet.site_builder.collect import SiteError
from linnet.site_builder.paths import Site
from linnet.site_builder.sources import ModelSource
from linnet.site_builder.worker import Refused, Rendered, attempt, settle

# A process starts in half a second, in which as many models are done.
MODELS_WORTH_A_PROCESS = 6
WORKER = "linnet.site_builder.worker"
Outcome = Rendered | Refused | SiteError | OSError
Watch = Callable[[Sequence[ModelSource]], Iterable[object]]


def write_models(
    sources: Sequence[ModelSource], site: Site, folder: Path, jobs: int | None, watch: Watch
) -> Iterator[tuple[ModelSource, Outcome]]:
    """Write each model's files below `folder`, and hand on what came of it, in any order.

    `jobs` None takes as many processes as there are processors and models to keep them busy; 1 works here. `watch`
    hands on the models one by one, for who shows progress.
    """
    count = jobs or min(os.cpu_count() or 1, len(sources) // MODELS_WORTH_A_PROCESS)
    if min(count, len(sources)) <= 1:
        settle()
        for source, _ in zip(sources, watch(sources), strict=True):
            yield source, attempt(source, site, folder)
        return
    waiting = iter(sources)
    lock = threading.Lock()

    def take(before: ModelSource | None) -> ModelSource | None:
        del before
        with lock:
            return next(waiting, None)

    answers = in_processes(WORKER, min(count, len(sources)), take, _Pickles(site, folder), watch(sources))
    with contextlib.closing(answers):
        yield from answers


@dataclass(frozen=True, slots=True)
class _Pickles:
    """What a process is to draw for, then a model at a time."""

    site: Site
    folder: Path

    def begin(self, to: IO[bytes]) -> None:
        pickle.dump((self.site, self.folder), to)

    def ask(self, job: ModelSource, to: IO[bytes]) -> None:
        pickle.dump(job, to)

    def answer(self, job: ModelSource, answers: IO[bytes]) -> Outcome:
        try:
            found: Outcome = pickle.load(answers)
        except pickle.UnpicklingError:
            raise EOFError from None
        return found

    def ended(self, job: ModelSource, code: int) -> Outcome:
        message = f"The process that drew {job.name} ended with {code}"
        return SiteError(f"{message}; if memory is short, take fewer with --jobs 1.")
