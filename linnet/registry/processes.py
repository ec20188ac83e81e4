"""Jobs shared among processes of this program, each of which does one after the other.

A process is started when the first job is there for it, and another in its place where it dies: what one dies of is the
fault of the job that it had, and the others go on.
"""

from __future__ import annotations

import contextlib
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import IO, Generic, Protocol, TypeVar

Job = TypeVar("Job")
Answer = TypeVar("Answer")
Asked = TypeVar("Asked", contravariant=True)
Said = TypeVar("Said", covariant=True)


class Talk(Protocol[Asked, Said]):
    """What this process and one of the others say to each other."""

    def begin(self, to: IO[bytes]) -> None:
        """What a new process is told first."""

    def ask(self, job: Asked, to: IO[bytes]) -> None:
        """Give a job to a process."""

    def answer(self, job: Asked, answers: IO[bytes]) -> Said:
        """What it says of the job. Raises EOFError where it said nothing whole."""

    def ended(self, job: Asked, code: int) -> Said:
        """The answer in place of a process that ended with this code, negative for a signal."""


def in_processes(
    module: str,
    count: int,
    take: Callable[[Job | None], Job | None],
    talk: Talk[Job, Answer],
    watch: Iterable[object],
) -> Generator[tuple[Job, Answer], None, None]:
    """Do jobs in `count` processes that run `module`, and hand on the answers, in any order, one for each of `watch`.

    `take` is asked for the next job by the thread of each process, with the job before it, and says None where none is
    left. Whatever `talk` raises ends all of it; so does whoever asks for no more answers.
    """
    done: queue.SimpleQueue[tuple[Job, Answer] | BaseException] = queue.SimpleQueue()
    workers = [_Worker(module, take, talk, done) for _ in range(count)]
    try:
        for worker in workers:
            worker.start()
        for _ in watch:
            found = done.get()
            if isinstance(found, BaseException):
                raise found
            yield found
    finally:
        for worker in workers:
            worker.stop()


class _Worker(threading.Thread, Generic[Job, Answer]):
    """A thread that feeds one process after the other, as long as there are jobs."""

    def __init__(
        self,
        module: str,
        take: Callable[[Job | None], Job | None],
        talk: Talk[Job, Answer],
        done: queue.SimpleQueue[tuple[Job, Answer] | BaseException],
    ) -> None:
        super().__init__(daemon=True)
        self.module, self.take, self.talk, self.done = module, take, talk, done
        self.lock = threading.Lock()
        self.process: subprocess.Popen[bytes] | None = None
        self.stopped = False

    def run(self) -> None:
        try:
            job = self.take(None)
            while job is not None and not self.stopped:
                self.done.put((job, self._ask(job)))
                job = self.take(job)
        except BaseException as error:
            # Whoever waits for an answer must not wait for ever.
            self.done.put(error)
        finally:
            self._end()

    def stop(self) -> None:
        """End the thread and its process, whatever they are at."""
        with self.lock:
            self.stopped = True
            if self.process is not None:
                self.process.kill()
        self.join()

    def _ask(self, job: Job) -> Answer:
        with self.lock:
            fresh = self.process is None
            process = self.process = self.process or start_process(self.module)
            if self.stopped:
                process.kill()
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            if fresh:
                self.talk.begin(process.stdin)
            self.talk.ask(job, process.stdin)
            process.stdin.flush()
        try:
            return self.talk.answer(job, process.stdout)
        except EOFError:
            return self.talk.ended(job, self._end())

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


def start_process(module: str) -> subprocess.Popen[bytes]:
    """A process of this program that runs a module; what it prints as errors is shown under LINNET_DEBUG=1."""
    # Never from the current folder, which may be a stranger's: only what this process was made of is imported.
    linnet = Path(__file__).resolve().parents[2]
    paths = os.pathsep.join(filter(None, (str(linnet), os.environ.get("PYTHONPATH"))))
    return subprocess.Popen(
        [sys.executable, "-P", "-m", module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=None if os.environ.get("LINNET_DEBUG") == "1" else subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": paths},
    )
