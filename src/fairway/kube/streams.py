"""The open streams of an exec or attach, over a websocket; says what comes as it comes."""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from fairway.kube import channels, websocket
from fairway.kube.channels import Channel, Exit, ForeignMessage
from fairway.kube.errors import Unreachable
from fairway.kube.http import Connection
from fairway.kube.websocket import CloseCode, Closed, Message, Ping, ProtocolViolation, WebSocket

MAX_MESSAGE: Final = 16 << 20
"""Of one message from the server, which sends what it reads from the container, 32 KiB at most."""
PIECE: Final = 64 << 10
"""Of one message to the server, which holds it whole, so that none may be longer than 32 MiB."""
_FAREWELL: Final = 2.0


class Receiver(Protocol):
    """Whom the streams tell. Called from the event loop."""

    def output(self, channel: Channel, data: bytes) -> None: ...

    def writable(self, writable: bool) -> None:
        """Whether the other side keeps up with what is written; what is written all the same is kept in memory."""

    def ended(self, end: Exit | Unreachable) -> None:
        """Once, and nothing comes after it. Unreachable means that what runs there may be running still."""


class Streams:
    """A `Tunnel` that speaks the channel protocol of Kubernetes.

    Every `ping` seconds the server is asked whether it is there. One from which nothing at all has come for `silence`
    seconds, though it takes what we write, counts as gone.
    """

    def __init__(self, receiver: Receiver, *, ping: float = 15.0, silence: float = 60.0) -> None:
        self._receiver = receiver
        self._ping = ping
        self._silence = silence
        self._loop = asyncio.get_running_loop()
        self._websocket = WebSocket(max_message=MAX_MESSAGE)
        self._connection: Connection | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._heard = 0.0
        self._exit: Exit | None = None
        self._paused = False
        self._over = False
        self._stdin_open = True
        self.protocol = ""

    # what users do

    def write(self, data: bytes) -> None:
        """To the container's stdin. What is written after the end goes nowhere."""
        if not self._stdin_open:
            raise ValueError("stdin has been closed")
        if self._connection is None:
            return
        if len(data) <= PIECE:
            self._connection.write(websocket.message(channels.write(Channel.STDIN, data)))
            return
        for start in range(0, len(data), PIECE):
            piece = channels.write(Channel.STDIN, data[start : start + PIECE])
            self._connection.write(websocket.message(piece))

    @property
    def unsent(self) -> int:
        """Bytes written that the other side has not taken yet."""
        return 0 if self._connection is None else self._connection.unsent

    @property
    def can_end_stdin(self) -> bool:
        return channels.end_of(Channel.STDIN, self.protocol) is not None

    def end_stdin(self) -> None:
        end = channels.end_of(Channel.STDIN, self.protocol)
        if end is None:
            raise ValueError(f"{self.protocol} cannot close stdin; Kubernetes 1.30 and newer speak {channels.V5}")
        self._stdin_open = False
        if self._connection is not None:
            self._connection.write(websocket.message(end))

    def pause(self) -> None:
        """Takes no more output for now, so that the container has to wait."""
        self._paused = True
        if self._connection is not None:
            self._connection.pause()

    def resume(self) -> None:
        self._paused = False
        self._heard = self._loop.time()
        if self._connection is not None:
            self._connection.resume()

    def close(self) -> None:
        """Ends the streams from here. `ended` is not called."""
        self._over = True
        self._drop(CloseCode.NORMAL)

    # what the connection does

    def opened(self, connection: Connection, agreed: str) -> None:
        self._connection = connection
        self.protocol = agreed
        self._heard = self._loop.time()
        self._after(self._ping, self._ask)

    def received(self, data: bytes) -> None:
        self._heard = self._loop.time()
        try:
            for event in self._websocket.receive(data):
                if self._connection is None:
                    return  # the receiver closed us meanwhile
                if event.__class__ is Message:
                    self._message(event.data)
                elif event.__class__ is Ping:
                    self._connection.write(websocket.pong(event.data))
                elif event.__class__ is Closed:
                    self._closed(event)
        except ProtocolViolation as violation:
            self._fail(f"the server breaks the websocket protocol: {violation}", violation.code)
        except ForeignMessage as foreign:
            self._fail(f"the server breaks {self.protocol}: {foreign}", CloseCode.PROTOCOL_ERROR)

    def writable(self, writable: bool) -> None:
        if not self._over:
            self._receiver.writable(writable)

    def lost(self, error: Unreachable) -> None:
        self._drop(None)
        self._end(self._exit or error)

    def _message(self, message: bytes) -> None:
        came = channels.read(message)
        if came is None:
            return
        channel, data = came
        if channel is not Channel.ERROR:
            if not self._over:
                self._receiver.output(channel, data)
        elif self._exit is None:
            # the server closes next; output that it sends before that still belongs to the command
            self._exit = channels.read_exit(data)
            self._after(_FAREWELL, self._leave)

    def _closed(self, closed: Closed) -> None:
        said = f": {closed.reason}" if closed.reason else ""
        early = Unreachable(f"the server closed the streams before their end ({closed.code}{said})")
        self._drop(closed.code)
        self._end(self._exit or early)

    def _leave(self) -> None:
        self._drop(CloseCode.NORMAL)
        if self._exit is not None:
            self._end(self._exit)

    def _ask(self) -> None:
        connection = self._connection
        if connection is None:
            return
        if self._paused or connection.unsent:
            # what we do not read, or it does not take, says nothing about the server
            self._heard = self._loop.time()
        elif (silent := self._loop.time() - self._heard) > self._silence:
            self._drop(None)
            self._end(Unreachable(f"nothing came from the server for {silent:.0f}s"))
            return
        else:
            connection.write(websocket.ping())
        self._after(self._ping, self._ask)

    def _after(self, seconds: float, what: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, what)

    def _fail(self, message: str, code: int) -> None:
        self._drop(code)
        self._end(Unreachable(message))

    def _drop(self, code: int | None) -> None:
        """Leaves the connection, with a word unless nobody listens."""
        connection, self._connection = self._connection, None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if connection is None:
            return
        if code is None or connection.unsent:
            connection.abort()
            return
        connection.write(websocket.close(code))
        connection.close()

    def _end(self, end: Exit | Unreachable) -> None:
        if not self._over:
            self._over = True
            self._receiver.ended(end)
