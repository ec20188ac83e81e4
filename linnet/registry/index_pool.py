"""Jobs shared among processes: those of one source go to one process as long as others have work of their own."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from linnet.registry.errors import Problem
from linnet.registry.index_worker import Job, RecordMaker

# A process starts in a third of a second, which this many records take as well.
JOBS_WORTH_A_PROCESS = 16

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
    shared = _Shared(jobs)
    workers = [_Worker(shared) for _ in range(min(count, len(jobs)))]
    try:
        for worker in workers:
            worker.start()
        for _ in watch([job for _, job in jobs]):
            done = shared.done.get()
            if isinstance(done, BaseException):
                raise done
            yield done
    finally:
        for worker in workers:
            worker.stop()


class _Shared:
    """What is to be done, by source, and what was done."""

    def __init__(self, jobs: Sequence[tuple[str, Job]]) -> None:
        self.lock = threading.Lock()
        self.waiting: dict[str, deque[Job]] = {}
        for source, job in jobs:
            self.waiting.setdefault(source, deque()).append(job)
        self.untaken = deque(self.waiting)
        self.done: queue.SimpleQueue[Outcome | BaseException] = queue.SimpleQueue()

    def take(self, current: str | None) -> tuple[str, Job] | None:
        """The next job of the source `current`, else of one that nobody has, else of the one with most jobs left."""
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


class _Worker(threading.Thread):
    """A thread that feeds one process after the other, as long as there are jobs."""

    def __init__(self, shared: _Shared) -> None:
        super().__init__(daemon=True)
        self.shared = shared
        self.lock = threading.Lock()
        self.process: subprocess.Popen[str] | None = None
        self.stopped = False

    def run(self) -> None:
        try:
            source: str | None = None
            while not self.stopped and (taken := self.shared.take(source)) is not None:
                source, job = taken
                self.shared.done.put((job, self._ask(job)))
        except BaseException as error:
            self.shared.done.put(error)
        finally:
            self._end()

    def stop(self) -> None:
        """End the thread and its process, whatever they are at."""
        with self.lock:
            self.stopped = True
            if self.process is not None:
                self.process.kill()
        self.join()

    def _ask(self, job: Job) -> tuple[Problem, ...]:
        with self.lock:
            if self.stopped:
                return ()
            process = self.process = self.process or _start()
        assert process.stdin is not None
        assert process.stdout is not None
        line = ""
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps(asdict(job)) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        if not line.endswith("\n"):
            return (_ended(job, self._end()),)
        answer = json.loads(line)
        if "error" in answer:
            raise OSError(*answer["error"])
        return tuple(Problem(**problem) for problem in answer["problems"])

    def _end(self) -> int:
        """Let the process come to its end, which it does where nothing more is written to it; its exit code."""
        with self.lock:
            process, self.process = self.process, None
        if process is None:
            return 0
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        process.stdout.close()
        return process.wait()


def _ended(job: Job, code: int) -> Problem:
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
    message = f"The process that checked {job.folder} {how}."
    help = "If memory is short, take fewer processes; LINNET_DEBUG=1 shows what else it was."
    return Problem("index.process", job.folder, message, help)


def _start() -> subprocess.Popen[str]:
    # Never from the current folder, which may be a stranger's: only what this process was made of is imported.
    linnet = Path(__file__).resolve().parents[2]
    paths = os.pathsep.join(filter(None, (str(linnet), os.environ.get("PYTHONPATH"))))
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "linnet.registry.index_worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=None if os.environ.get("LINNET_DEBUG") == "1" else subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": paths},
        text=True,
        encoding="utf-8",
    )
