"""A bounded pool of threads for functions that block."""

# Not concurrent.futures: its threads are joined when the interpreter exits, so that one function that never returns
# would keep a pod from ending. These are daemons, are made when needed, and report to the loop.

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, NamedTuple, TypeVar

T = TypeVar("T")


class _Job(NamedTuple):
    function: Callable[[], Any]
    future: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop


class ThreadPool(Generic[T]):
    """Runs functions in at most `size` threads; what is over that waits its turn. For use from one event loop."""

    def __init__(self, *, size: int) -> None:
        self._size = size
        self._jobs: SimpleQueue[_Job] = SimpleQueue()
        self._threads = 0
        self.unfinished = 0
        """Functions that have not ended, those included that nobody waits for any more."""

    def submit(self, function: Callable[[], T]) -> asyncio.Future[T]:
        """A cancelled future takes its function out of the queue; one that already runs cannot be stopped."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self.unfinished += 1
        if self.unfinished > self._threads and self._threads < self._size:
            self._threads += 1
            threading.Thread(target=self._work, name=f"tool-{self._threads}", daemon=True).start()
        self._jobs.put(_Job(function, future, loop))
        return future

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            if job.future.cancelled():
                job.loop.call_soon_threadsafe(self._skipped)
                continue
            error: BaseException | None = None
            value: Any = None
            try:
                value = job.function()
            except BaseException as raised:  # whatever it is, it belongs to who waits, and the thread must live on
                error = raised
            try:
                job.loop.call_soon_threadsafe(self._finished, job.future, value, error)
            except RuntimeError:  # the loop is closed: the process is ending
                return
            del job, value, error

    def _skipped(self) -> None:
        self.unfinished -= 1

    def _finished(self, future: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
        self.unfinished -= 1
        if future.cancelled():
            return
        if error is None:
            future.set_result(value)
        elif isinstance(error, StopIteration):  # a future would refuse it
            future.set_exception(RuntimeError("StopIteration"))
        else:
            future.set_exception(error)
