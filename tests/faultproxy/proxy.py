"""A proxy in front of a real API server that makes things go wrong as told, and remembers every request."""

import asyncio
import contextlib
import secrets
import socket
import tempfile
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

import yaml

from rig.kubeconfig import read_kubeconfig, write_kubeconfig
from tests.faultproxy.certificate import server_certificate
from tests.faultproxy.connection import Connection, Plan
from tests.faultproxy.log import Log
from tests.faultproxy.rules import Rule, RuleBook
from tests.faultproxy.upstream import Address

T = TypeVar("T")
LOOPBACK = "127.0.0.1"


class FaultProxy:
    """Terminates TLS on loopback and passes everything on to the API server of a kubeconfig, under the same identity.

    `kubeconfig` leads through the proxy. A bearer token travels with the requests; a client certificate cannot, so the
    proxy shows it upstream itself and gives its own clients a token that is good for nothing else. Runs in a thread of
    its own; every method may be called from any thread.
    """

    def __init__(self, upstream: Path) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="faultproxy-")
        self._access = read_kubeconfig(upstream)
        self._namespace = _namespace_of(upstream)
        url = urlsplit(self._access.server)
        assert url.hostname is not None
        guard = "" if self._access.token else secrets.token_urlsafe(32)
        self._certificate = server_certificate(LOOPBACK)
        self._plan = Plan(Address(url.hostname, url.port or 443, self._access.tls), guard)
        self._connections: dict[asyncio.Task[None], Connection] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault proxy", daemon=True)
        self._accepting: asyncio.Task[None] | None = None
        self._greetings: set[asyncio.Task[None]] = set()
        self.port = 0

    @classmethod
    def start(cls, kubeconfig: Path, *rules: Rule, seed: int = 0) -> Self:
        proxy = cls(kubeconfig)
        proxy.use(*rules, seed=seed)
        proxy._thread.start()
        proxy.accept()
        write_kubeconfig(
            proxy.kubeconfig,
            server=f"https://{LOOPBACK}:{proxy.port}",
            ca_pem=proxy._certificate.ca_pem,
            user={"token": proxy._access.token or proxy._plan.guard},
            namespace=proxy._namespace,
        )
        return proxy

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def kubeconfig(self) -> Path:
        return Path(self._directory.name) / "kubeconfig"

    @property
    def log(self) -> Log:
        return self._plan.log

    @property
    def mark(self) -> int:
        """The number of the last request so far, for `since` in questions to the log."""
        return len(self.log)

    @property
    def client_pid(self) -> int | None:
        """Whom signals hit."""
        return self._plan.client_pid

    @client_pid.setter
    def client_pid(self, pid: int | None) -> None:
        self._plan.client_pid = pid

    def use(self, *rules: Rule, seed: int = 0) -> RuleBook:
        """From now on these rules and no others, with counters at zero. Open watches follow the new ones too."""
        self._plan.book = RuleBook(rules, seed)
        return self._plan.book

    def calm(self) -> None:
        """No more faults, except those that are under way."""
        self.use()

    def release(self, gate: str = "gate") -> None:
        """Lets go what is held there, and whatever comes there later."""
        self._call(lambda: self._plan.gate(gate).set())

    def wait_held(self, *, seconds: float = 60.0) -> None:
        self.log.wait(
            "a request to be held", lambda log: any(entry.fault.endswith(", held") for entry in log), seconds=seconds
        )

    def refuse(self) -> None:
        """Like a server that is down: connections are refused, open ones reset."""
        self._run(self._stop_listening())
        self.drop_connections()

    def accept(self) -> None:
        self._run(self._listen())

    def drop_connections(self) -> None:
        self._call(self._reset_all)

    def close(self) -> None:
        """Ends everything. Raises what went wrong inside the proxy itself, so that no test passes by accident."""
        if self._thread.is_alive():
            self._run(self._wind_up())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._loop.close()
        self._directory.cleanup()
        if self._plan.problems:
            raise ExceptionGroup("the fault proxy failed", [e for e in self._plan.problems if isinstance(e, Exception)])

    # Not an asyncio.Server: that forgets whoever is being greeted while it is closed, and leaves him hanging.

    async def _listen(self) -> None:
        if self._accepting is None:
            listening = socket.create_server((LOOPBACK, self.port), backlog=128)
            listening.setblocking(False)
            self.port = listening.getsockname()[1]
            self._accepting = asyncio.create_task(self._accept_all(listening))

    async def _accept_all(self, listening: socket.socket) -> None:
        with listening:
            while True:
                connected, _ = await asyncio.get_running_loop().sock_accept(listening)
                greeting = asyncio.create_task(self._greet(connected))
                self._greetings.add(greeting)
                greeting.add_done_callback(self._greetings.discard)

    async def _greet(self, connected: socket.socket) -> None:
        streams = asyncio.StreamReaderProtocol(asyncio.StreamReader(), self._serve)
        with contextlib.suppress(OSError):  # of which those of TLS are some
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: streams, connected, ssl=self._certificate.context
            )

    async def _stop_listening(self) -> None:
        if self._accepting is None:
            return
        ending = (self._accepting, *self._greetings)
        self._accepting = None
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(self._plan, reader, writer)
        task = asyncio.current_task()
        assert task is not None
        self._connections[task] = connection
        try:
            await connection.serve()
        finally:
            del self._connections[task]

    def _reset_all(self) -> None:
        for connection in self._connections.values():
            connection.reset()

    async def _wind_up(self) -> None:
        await self._stop_listening()
        for task in self._plan.late:
            task.cancel()
        # Reset and not cancelled: asyncio's streams complain loudly of a cancelled server task.
        self._reset_all()
        await asyncio.gather(*self._connections, *self._plan.late, return_exceptions=True)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=20)

    def _call(self, work: Callable[[], None]) -> None:
        async def called() -> None:
            work()

        self._run(called())


def _namespace_of(kubeconfig: Path) -> str:
    config = yaml.safe_load(kubeconfig.read_text())
    for context in config["contexts"]:
        if context["name"] == config["current-context"]:
            return str(context["context"].get("namespace", ""))
    return ""
