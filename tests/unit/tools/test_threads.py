"""Threads for functions that block."""

import asyncio
import threading

import pytest

from fairway.tools.threads import ThreadPool

pytestmark = pytest.mark.anyio


async def test_results_and_exceptions_come_back():
    pool = ThreadPool(size=2)
    assert await pool.submit(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        await pool.submit(lambda: 1 // 0)
    with pytest.raises(RuntimeError, match="StopIteration"):
        await pool.submit(lambda: next(iter([])))
    with pytest.raises(SystemExit):
        await asyncio.wait_for(pool.submit(lambda: exit(3)), 5)
    assert await pool.submit(threading.get_ident) != threading.get_ident()
    assert pool.unfinished == 0


async def test_no_more_threads_than_allowed_and_none_before_they_are_needed():
    pool = ThreadPool(size=3)
    go = threading.Event()
    barrier = threading.Barrier(4)
    seen = set()

    def work():
        seen.add(threading.current_thread().name)
        if len(seen) <= 3 and not go.is_set():
            barrier.wait(5)
            go.wait(5)

    before = threading.active_count()
    for _ in range(10):
        await pool.submit(lambda: None)
    assert threading.active_count() == before + 1
    waiting = [pool.submit(work) for _ in range(20)]
    await asyncio.to_thread(barrier.wait, 5)
    assert pool.unfinished == 20
    go.set()
    await asyncio.gather(*waiting)
    assert seen == {"tool-1", "tool-2", "tool-3"}
    assert pool.unfinished == 0


async def test_what_is_cancelled_before_its_turn_never_runs():
    pool = ThreadPool(size=1)
    go = threading.Event()
    ran = []
    first = pool.submit(lambda: go.wait(5))
    second = pool.submit(lambda: ran.append(2))
    third = pool.submit(lambda: ran.append(3))
    second.cancel()
    go.set()
    await first
    await third
    assert ran == [3]
    assert pool.unfinished == 0


async def test_what_is_cancelled_while_it_runs_is_still_counted():
    pool = ThreadPool(size=1)
    began, go = threading.Event(), threading.Event()

    def work():
        began.set()
        go.wait(5)

    running = pool.submit(work)
    await asyncio.to_thread(began.wait, 5)
    running.cancel()
    assert pool.unfinished == 1
    go.set()
    await pool.submit(lambda: None)
    assert pool.unfinished == 0


async def test_after_a_burst_calls_one_at_a_time_stay_on_one_thread():
    pool = ThreadPool(size=4)
    barrier = threading.Barrier(4)
    await asyncio.gather(*(pool.submit(lambda: barrier.wait(5)) for _ in range(4)))
    names = {await pool.submit(lambda: threading.current_thread().name) for _ in range(20)}
    assert len(names) == 1
