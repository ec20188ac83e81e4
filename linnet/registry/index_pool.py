"""Jobs shared among processes: those of one source go to one process as long as others have work of their own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import IO

from linnet.registry.errors import Problem
from linnet.registry.index_worker import Job, RecordMaker
from linnet.registry.processes import in_processes

# A process starts in a third of a second, which this many records take as well.
JOBS_WORTH_A_PROCESS = 16

WORKER = "linnet.registry.index_worker"
# A job with the digest of its source.
_Taken = tuple[str, Job]
Outcome = tuple[Job, tuple[Problem, ...]]
Watch = Callable[[Sequence[Job]], Iterable[object]]


def make_records(jobs: Sequence[tuple[str, Job]], processes: int | None, watch: Watch) -> Iterator[Outcome]:
    """Do jobs, each given with the digest of its source, and hand on each one's problems, in any order.

    `processes` None takes as many as there are processors, and one where there is little to do; 1 works here. A process
    that dies is the problem of the package that it had, and the others go on. Raises OSError where a record cannot be
    written.
    """
    count = processes or min(os.cpu_count() or 1, 1 + len(jobs) // JOBS_WORTH_A_PROCESS)
    if min(count, len(jobs)) <= 1:
        maker = RecordMaker()
        for _, job in zip(watch([job for _, job in jobs]), (job for _, job in jobs), strict=True):
            yield job, maker.make(job)
        return
    watched = watch([job for _, job in jobs])
    take = _Shared(jobs).take
    answers = in_processes(WORKER, min(count, len(jobs)), take, _Lines(), watched)
    with contextlib.closing(answers):
        for (_, job), problems in answers:
            yield job, problems


class _Shared:
    """What is to be done, by source."""

    def __init__(self, jobs: Sequence[tuple[str, Job]]) -> None:
        self.lock = threading.Lock()
        self.waiting: dict[str, deque[Job]] = {}
        for source, job in jobs:
            self.waiting.setdefault(source, deque()).append(job)
        self.untaken = deque(self.waiting)

    def take(self, before: _Taken | None) -> _Taken | None:
        """The next job of the same source, else of one that nobody has, else of the one with most jobs left."""
        current = before[0] if before else None
        with self.lock:
            if current not in self.waiting:
                if not self.waiting:
                    return None
                source = self.untaken.popleft() if self.untaken else max(self.waiting, key=self._left)
            else:
                source = current
            jobs = self.waiting[source]
            job = jobs.popleft()
            if not jobs:
                del self.waiting[source]
            return source, job

    def _left(self, source: str) -> int:
        return len(self.waiting[source])


class _Lines:
    """A line of JSON for a job, and one for its answer."""

    def begin(self, to: IO[bytes]) -> None:
        """Nothing: a job says all."""

    def ask(self, job: _Taken, to: IO[bytes]) -> None:
        to.write(f"{json.dumps(asdict(job[1]))}\n".encode())

    def answer(self, job: _Taken, answers: IO[bytes]) -> tuple[Problem, ...]:
        line = answers.readline()
        if not line.endswith(b"\n"):
            raise EOFError
        answer = json.loads(line)
        if "error" in answer:
            raise OSError(*answer["error"])
        return tuple(Problem(**problem) for problem in answer["problems"])

    def ended(self, job: _Taken, code: int) -> tuple[Problem, ...]:
        folder = job[1].folder
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
        message = f"The process that checked {folder} {how}."
        help = "If memory is short, take fewer processes; LINNET_DEBUG=1 shows what else it was."
        return (Problem("index.process", folder, message, help),)
