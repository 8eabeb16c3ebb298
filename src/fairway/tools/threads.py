"""A bounded pool of threads for functions that block."""

# Not concurrent.futures: its threads are joined when the interpreter exits, so that one function that never returns
# would keep a pod from ending. These are daemons. Work goes to the thread that was busy last, not to whichever wakes
# up: after a burst that made many threads, calls one at a time would otherwise wander over all of them, at twice the
# cost.
#
# The pool itself lives on the event loop: only jobs go to threads, and only results come back.

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, NamedTuple, TypeVar

T = TypeVar("T")


class _Job(NamedTuple):
    function: Callable[[], Any]
    future: asyncio.Future[Any]


_Jobs = SimpleQueue[_Job]


class ThreadPool(Generic[T]):
    """Runs functions in at most `size` threads; what is over that waits its turn. For use from one event loop."""

    def __init__(self, *, size: int) -> None:
        self._size = size
        self._threads = 0
        self._idle: list[_Jobs] = []
        self._waiting: deque[_Job] = deque()
        self.unfinished = 0
        """Functions that have not ended, those included that nobody waits for any more."""

    def submit(self, function: Callable[[], T]) -> asyncio.Future[T]:
        """A cancelled future takes its function out of the queue; one that already runs cannot be stopped."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        job = _Job(function, future)
        self.unfinished += 1
        if self._idle:
            self._idle.pop().put(job)
        elif self._threads < self._size:
            self._threads += 1
            jobs: _Jobs = SimpleQueue()
            jobs.put(job)
            name = f"tool-{self._threads}"
            threading.Thread(target=self._work, args=(jobs, loop), name=name, daemon=True).start()
        else:
            self._waiting.append(job)
        return future

    def _work(self, jobs: _Jobs, loop: asyncio.AbstractEventLoop) -> None:
        while True:
            job = jobs.get()
            error: BaseException | None = None
            value: Any = None
            try:
                value = job.function()
            except BaseException as raised:  # whatever it is, it belongs to who waits, and the thread must live on
                error = raised
            try:
                loop.call_soon_threadsafe(self._finished, jobs, job.future, value, error)
            except RuntimeError:  # the loop is closed: the process is ending
                return
            del job, value, error  # an idle thread keeps nothing alive

    def _finished(self, jobs: _Jobs, future: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
        self.unfinished -= 1
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.future.cancelled():
                jobs.put(waiting)
                break
            self.unfinished -= 1
        else:
            self._idle.append(jobs)
        if future.cancelled():
            return
        if error is None:
            future.set_result(value)
        elif isinstance(error, StopIteration):  # a future would refuse it
            future.set_exception(RuntimeError("StopIteration"))
        else:
            future.set_exception(error)
