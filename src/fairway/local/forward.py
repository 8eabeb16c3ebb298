"""A lasting address for servers without a proxy: connections go on, byte for byte, to one of their ready pods."""

import asyncio
import itertools
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from fairway.kube.resource import POD
from fairway.local import pod as pods
from fairway.runtime.store import Change, StoreView

PIECE = 64 << 10

Bare = Callable[[], Mapping[str, int]]
"""namespace/name of every server without a proxy, and the port that it is reached on."""
PodsOf = Callable[[str], Iterable[str]]
"""The addresses of a server's ready pods."""


class Forwarder:
    """What a Service is to a server without a proxy. Who connects while no pod is ready is turned away at once."""

    def __init__(self, store: StoreView, *, bare: Bare, ready_addresses: PodsOf) -> None:
        self._store = store
        self._bare = bare
        self._ready_addresses = ready_addresses
        self._listening: dict[str, asyncio.Server] = {}
        self._open: set[asyncio.Task[None]] = set()
        self._turn = itertools.count()
        self._news = asyncio.Event()

    async def run(self) -> None:
        """Works until cancelled."""
        unsubscribe = self._store.subscribe(POD, self._pod_changed)
        try:
            while True:
                self._news.clear()
                await self._listen()
                await self._news.wait()
        finally:
            unsubscribe()
            for server in self._listening.values():
                server.close()
            for task in self._open:
                task.cancel()

    def look(self) -> None:
        """There may be other servers than before."""
        self._news.set()

    def _pod_changed(self, _: Change) -> None:
        self._news.set()

    async def _listen(self) -> None:
        wanted = self._bare()
        for name in self._listening.keys() - wanted.keys():
            self._listening.pop(name).close()
        for name in wanted.keys() - self._listening.keys():
            with suppress(OSError):  # taken since it was chosen: tried again at the next change
                self._listening[name] = await asyncio.start_server(self._accepting(name), pods.HOST, wanted[name])

    def _accepting(self, name: str) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]:
        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.create_task(self._forward(name, reader, writer))
            self._open.add(task)
            task.add_done_callback(self._ended)

        return accept

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._open.discard(task)
        if not task.cancelled() and not isinstance(task.exception(), OSError | None):
            task.result()  # a bug: the loop's exception handler shows it

    async def _forward(self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        addresses = sorted(self._ready_addresses(name))
        if not addresses:
            writer.transport.abort()
            return
        host, _, port = addresses[next(self._turn) % len(addresses)].rpartition(":")
        try:
            from_pod, to_pod = await asyncio.open_connection(host, int(port))
        except OSError:
            writer.transport.abort()
            return
        try:
            await asyncio.gather(_copy(reader, to_pod), _copy(from_pod, writer))
        except BaseException:  # one side broke off, or we stop: the other is not left hanging
            writer.transport.abort()
            to_pod.transport.abort()
            raise
        writer.close()
        to_pod.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Until the end of the one is the end of the other, half-closed connections included."""
    while piece := await reader.read(PIECE):
        writer.write(piece)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
    await writer.drain()
