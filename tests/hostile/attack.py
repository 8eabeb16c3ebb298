"""Sends hostile cases to a proxy over connections of their own, and says which answers were not the right ones.

    python -m tests.hostile.attack OPEN_PORT LOOPBACK_PORT RATE

goes on with it until it is killed, so that a test can see what good clients notice of that.
"""

import asyncio
import itertools
import json
import sys
import time

import uvloop

from bench.load import HOST
from tests.hostile.corpus import Case, cases

SENTINEL = b"GET /sentinel HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
"""Asked after a case that leaves the connection open: whoever has lost count of the bytes answers it wrongly."""
PATIENCE = 60.0


async def attack(case: Case, port: int) -> str:
    """What was wrong with the answer; empty if nothing was."""
    began = time.monotonic()
    try:
        async with asyncio.timeout(case.seconds + PATIENCE):
            said = await _exchange(case, port)
    except TimeoutError:
        return f"{case.name}: no answer, and no end"
    except (OSError, EOFError) as error:
        return f"{case.name}: {error!r}"
    if not said and case.seconds and time.monotonic() - began < case.seconds - 1:
        return f"{case.name}: given up after {time.monotonic() - began:.1f} s"
    return f"{case.name}: {said}" if said else ""


async def _exchange(case: Case, port: int) -> str:
    reader, writer = await asyncio.open_connection(HOST, port, limit=1 << 22)
    sending = asyncio.create_task(_send(case, writer))
    try:
        if case.leave:
            await sending
            writer.write_eof()
        if not case.status:
            rest = await reader.read()
            return f"answered {rest[:200]!r}" if rest else ""
        status, message = await _answer(reader)
        if case.interim:
            if status != 100:
                return f"no 100 Continue but {status}"
            status, message = await _answer(reader)
        code = message.get("error", {}).get("code")
        if (status, code) != (case.status, case.code):
            return f"{status} and {code} instead of {case.status} and {case.code}: {message}"
        if case.then:
            status, _ = await _answer(reader)
            if status != case.then:
                return f"{status} instead of {case.then} behind it"
        if not case.end:
            await sending
            writer.write(SENTINEL)
            try:
                status, _ = await _answer(reader)
            except (EOFError, ConnectionError) as error:
                return "" if case.end is None else f"closed: {error!r}"
            if status != 404:
                return f"the next request was answered {status}"
        sending.cancel()
        try:
            rest = await reader.read()
        except ConnectionError:
            return ""  # what was still on its way came to a socket that was closed
        return f"answered more: {rest[:200]!r}" if rest else ""
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        writer.transport.abort()


async def _send(case: Case, writer: asyncio.StreamWriter) -> None:
    try:
        for piece in case.pieces:
            writer.write(piece.data)
            await writer.drain()
            if piece.wait:
                await asyncio.sleep(piece.wait)
    except ConnectionError:
        pass  # the answer says why


async def _answer(reader: asyncio.StreamReader) -> tuple[int, dict]:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")[:-2]
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return int(first.split(" ")[1]), json.loads(body) if body else {}


async def _keep_attacking(ports: tuple[int, int], rate: float) -> None:
    """The quick cases again and again; nobody looks at the answers any more."""
    quick = [case for case in cases() if not case.seconds]
    tasks: set[asyncio.Task[str]] = set()
    due = time.monotonic()
    for case in itertools.cycle(quick):
        due = max(due + 1 / rate, time.monotonic() - 0.1)  # what was missed while we stood still is not made up for
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        task = asyncio.create_task(attack(case, ports[case.loopback]))
        tasks.add(task)
        task.add_done_callback(tasks.discard)


if __name__ == "__main__":
    uvloop.run(_keep_attacking((int(sys.argv[1]), int(sys.argv[2])), float(sys.argv[3])))
