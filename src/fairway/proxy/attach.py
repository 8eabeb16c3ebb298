"""A server whose standard input and output are reached by attaching to its pod, and again whenever that breaks."""

import asyncio
import logging
import random
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Final

import fairway
from fairway.api import names
from fairway.api.runconfig import Attach
from fairway.kube.channels import Channel, Exit
from fairway.kube.client import Client
from fairway.kube.config import AccessError, ClusterAccess, load_access
from fairway.kube.errors import KubeError, Unreachable
from fairway.kube.resource import POD
from fairway.kube.streams import PIECE, Streams
from fairway.kube.transport import Transport
from fairway.mcp.probe import Outcome
from fairway.proxy.bridge.core import Bridge
from fairway.proxy.bridge.handshake import shake
from fairway.proxy.container import Run, running
from fairway.runtime.reflector import Reflector
from fairway.runtime.store import Store

PING: Final = 5.0
SILENCE: Final = 20.0
"""Seconds without a sign of the API server after which the connection is given up."""
DRAIN: Final = 20.0
"""Seconds that requests at work get to be answered, when another server takes its place."""
STEADY: Final = 10.0
"""An attachment that held this long is renewed at once."""
RUMOUR: Final = 2.0
"""Seconds in which it shows in the pod's status that a container has ended. Attaching again before that could reach the
next run of the container, and it would be taken for the one that was greeted."""
_FIRST_WAIT: Final = 0.1
_LONGEST_WAIT: Final = 5.0

log = logging.getLogger("fairway.proxy")


class AttachedServer:
    """The runs of one container behind one bridge, from `start` to `stop`.

    The bridge greets each run of the container once: a connection that breaks is made anew without a greeting, as long
    as the pod says that it is the same run.
    """

    def __init__(self, attach: Attach, *, name: str, access: ClusterAccess | None = None) -> None:
        self._attach = attach
        self._name = name
        self._access = access
        self._store = Store()
        self._client: Client | None = None
        self._reflector: Reflector | None = None
        self._streams: Streams | None = None
        self._end: asyncio.Future[str] | None = None
        self._left = False
        """The other side ended the streams in order."""
        self._greeted: Run | None = None
        self._open = False
        """The bridge was told that there is a connection."""
        self._cut = False
        """The end of what was last written may not have arrived, so that a line would be left open."""
        self._pod_changed = asyncio.Event()
        self._failures = 0
        self._work: asyncio.Task[None] | None = None
        self._up = asyncio.Event()
        self._changed: Callable[[], None] = _nobody
        self.starts = 0
        """Attachments made."""
        # others may be attached to the same container, as the proxy that this one replaces: ids must not be the same
        last = random.getrandbits(28) << 24
        loop = asyncio.get_running_loop()
        self.bridge = Bridge(defer=loop.call_soon, clock=monotonic, changed=self._note_change, last_id=last)

    def start(self, changed: Callable[[], None]) -> None:
        """`changed` is called when the server comes up and when it goes down."""
        self._changed = changed
        self._work = asyncio.get_running_loop().create_task(self._run(), name=f"attach {self._name}")

    async def shake(self) -> Outcome:
        """Waits until the server is up, within reason."""
        return await shake(self.bridge, self._up)

    async def stop(self) -> None:
        """Requests at work are answered first, within reason."""
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN):
                while self.bridge.link.pending and self.bridge.link.up:  # noqa: ASYNC110  nobody is told of the last answer
                    await asyncio.sleep(0.05)
        await self.end()

    async def end(self) -> None:
        work, self._work = self._work, None
        if work is not None:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    # work

    async def _run(self) -> None:
        transport = Transport(await self._access_to_cluster(), user_agent=f"fairway-proxy/{fairway.__version__}")
        self._client = Client(transport, field_manager=names.FIELD_MANAGER)
        self._reflector = Reflector(
            client=self._client,
            store=self._store,
            resource=POD,
            namespace=self._attach.namespace,
            field_selector=f"metadata.name={self._attach.pod}",
        )
        self._store.subscribe(POD, lambda _: self._pod_changed.set())
        self._store.subscribe_synced(POD, self._pod_changed.set)
        watching = asyncio.create_task(self._reflector.run(), name=f"pod of {self._name}")
        try:
            while True:
                run = await self._next_run()
                began = monotonic()
                reason = await self._once(run)
                self._down(reason)
                self._failures = 0 if monotonic() - began > STEADY else self._failures + 1
                await asyncio.sleep(_wait(self._failures))
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            await self._client.close()

    async def _access_to_cluster(self) -> ClusterAccess:
        while True:
            try:
                return self._access or load_access()
            except AccessError as error:
                self._down(f"there is no way to the pod {self._attach.pod}: {error}")
                await asyncio.sleep(_LONGEST_WAIT)

    async def _next_run(self) -> Run:
        """Waits until the container runs."""
        while True:
            self._pod_changed.clear()
            seen = self._look()
            if isinstance(seen, Run):
                return seen
            self._down(seen)
            # what keeps a watch from beginning is told by nobody
            with suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._pod_changed.wait()

    def _look(self) -> Run | str:
        attach = self._attach
        if not self._store.synced(POD):
            error = self._reflector.last_error if self._reflector is not None else None
            return f"the pod {attach.pod} is not known yet" + (f": {error}" if error is not None else "")
        pod = self._store.get(POD, attach.namespace, attach.pod)
        return running(pod, name=attach.pod, container=attach.container)

    async def _once(self, run: Run) -> str:
        """One attachment; returns why it ended."""
        attach = self._attach
        assert self._client is not None
        self._end = asyncio.get_running_loop().create_future()
        self._left = False
        streams = Streams(self, ping=PING, silence=SILENCE)
        pods = self._client.pods
        try:
            await pods.attach_to(
                streams, attach.namespace, attach.pod, container=attach.container, stdin=True, stderr=False
            )
        except KubeError as error:
            return f"cannot attach to the pod {attach.pod}: {error}"
        self._streams = streams
        self.starts += 1
        fresh = run != self._greeted
        log.info("attached", extra={"route": self._name, "pod": attach.pod, "greeted_before": not fresh})
        try:
            if self._cut and not fresh:
                streams.write(b"\n")
            self._greeted, self._cut = run, False
            self._open = True
            self.bridge.opened(self, fresh=fresh)
            return await self._until_its_end(run)
        except asyncio.CancelledError:
            self._down("the server is being let go")
            raise
        finally:
            self._streams = None
            streams.close()

    async def _until_its_end(self, run: Run) -> str:
        assert self._end is not None
        while not self._end.done():
            self._pod_changed.clear()
            seen = self._look()
            if isinstance(seen, Run) and seen != run:
                return f"the container {self._attach.container} of pod {self._attach.pod} was started anew"
            change = asyncio.create_task(self._pod_changed.wait())
            await asyncio.wait((self._end, change), return_when=asyncio.FIRST_COMPLETED)
            change.cancel()
        reason = self._end.result()
        self._down(reason)
        if self._left:
            await self._rumour(run)
        return reason

    async def _rumour(self, run: Run) -> None:
        """The other side ended the streams: most likely the container did, and its pod is about to say so."""
        with suppress(TimeoutError):
            async with asyncio.timeout(RUMOUR):
                while self._look() == run:
                    self._pod_changed.clear()
                    await self._pod_changed.wait()

    def _down(self, reason: str) -> None:
        if self._open or self.bridge.link.why != reason:
            self._open = False
            log.warning("server not reached", extra={"route": self._name, "reason": reason})
            self.bridge.closed(reason)

    def _note_change(self) -> None:
        (self._up.set if self.bridge.link.up else self._up.clear)()
        self._changed()

    # the bridge's transport

    def write(self, lines: bytes) -> None:
        if self._streams is not None:
            self._streams.write(lines)
            # pieces travel whole: only what is more than one, or has to wait, can be cut
            self._cut = self._cut or len(lines) > PIECE

    def backlog(self) -> int:
        return 0 if self._streams is None else self._streams.unsent

    def give_up(self, reason: str) -> None:
        self._greeted = None
        self._finish(reason)

    # what the streams tell

    def output(self, channel: Channel, data: bytes) -> None:
        if channel is Channel.STDOUT:
            self._cut = False
            self.bridge.feed(data)

    def writable(self, writable: bool) -> None:
        self._cut = self._cut or not writable

    def ended(self, end: Exit | Unreachable) -> None:
        if isinstance(end, Exit):
            self._left = True
            detail = f": {end.message}" if end.message else ""
            self._finish(f"the container {self._attach.container} of pod {self._attach.pod} closed its output{detail}")
        else:
            self._finish(f"the connection to the pod {self._attach.pod} broke: {end.message}")

    def _finish(self, reason: str) -> None:
        if self._end is not None and not self._end.done():
            self._end.set_result(reason)


def _wait(failures: int) -> float:
    if failures == 0:
        return 0.0
    return min(_LONGEST_WAIT, _FIRST_WAIT * 2.0 ** min(failures - 1, 10)) * random.uniform(0.75, 1.25)  # noqa: S311


def _nobody() -> None:
    return None
