"""Models shared among processes. Each does one after the other; what one dies of is that model's fault."""

from __future__ import annotations

import os
import pickle
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from linnet.site_builder.collect import SiteError
from linnet.site_builder.paths import Site
from linnet.site_builder.sources import ModelSource
from linnet.site_builder.worker import Refused, Rendered, attempt, settle

# A process starts in half a second, in which as many models are done.
MODELS_WORTH_A_PROCESS = 6
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
    waiting: queue.SimpleQueue[ModelSource | None] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[ModelSource, Outcome] | BaseException] = queue.SimpleQueue()
    for job in (*sources, *([None] * count)):
        waiting.put(job)
    workers = [_Worker(site, folder, waiting, done) for _ in range(count)]
    try:
        for worker in workers:
            worker.start()
        for _ in watch(sources):
            found = done.get()
            if isinstance(found, BaseException):
                raise found
            yield found
    finally:
        for worker in workers:
            worker.stop()


class _Worker(threading.Thread):
    """A thread that feeds one process after the other, as long as there are models."""

    def __init__(
        self,
        site: Site,
        folder: Path,
        waiting: queue.SimpleQueue[ModelSource | None],
        done: queue.SimpleQueue[tuple[ModelSource, Outcome] | BaseException],
    ) -> None:
        super().__init__(daemon=True)
        self.site, self.folder = site, folder
        self.waiting, self.done = waiting, done
        self.process: subprocess.Popen[bytes] | None = None
        self.stopped = False

    def run(self) -> None:
        try:
            while not self.stopped and (source := self.waiting.get()) is not None:
                self.done.put((source, self._ask(source)))
        except BaseException as error:
            # Whoever waits for an answer must not wait for ever.
            self.done.put(error)
        finally:
            self._end()

    def stop(self) -> None:
        """End the thread and its process, whatever they are at."""
        self.stopped = True
        self.waiting.put(None)
        process = self.process
        if process is not None:
            process.kill()
        self.join()

    def _ask(self, source: ModelSource) -> Outcome:
        if self.process is None:
            self.process = _start()
            self._send((self.site, self.folder))
        process = self.process
        assert process.stdout is not None
        with suppress(BrokenPipeError):
            self._send(source)
        try:
            found: Outcome = pickle.load(process.stdout)
        except (EOFError, pickle.UnpicklingError):
            code = self._end()
            message = f"The process that drew {source.name} ended with {code}"
            return SiteError(f"{message}; if memory is short, take fewer with --jobs 1.")
        return found

    def _send(self, value: object) -> None:
        assert self.process is not None
        assert self.process.stdin is not None
        pickle.dump(value, self.process.stdin)
        self.process.stdin.flush()

    def _end(self) -> int:
        process, self.process = self.process, None
        if process is None:
            return 0
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError):
            process.stdin.close()
        process.stdout.close()
        return process.wait()


def _start() -> subprocess.Popen[bytes]:
    # Never from the current folder, which may be a stranger's: only what this process was made of is imported.
    linnet = Path(__file__).resolve().parents[2]
    paths = os.pathsep.join(filter(None, (str(linnet), os.environ.get("PYTHONPATH"))))
    return subprocess.Popen(
        [sys.executable, "-P", "-c", "from linnet.site_builder.worker import main; main()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=None if os.environ.get("LINNET_DEBUG") == "1" else subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": paths},
    )
