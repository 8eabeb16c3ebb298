"""The audit log: one JSON line for each request, written in batches by a thread of its own.

A request costs one tuple and one append. A tenth of a second later the thread encodes all that came in and writes it
with one call, so a slow disk or a full pipe delays lines and never requests. What can be lost, and is said so:

- a process that dies without `aclose` loses the lines of the last tenth of a second, and the batch under way;
- when the writer is so slow that `queue` lines wait, new ones are dropped, counted, and the gap is written as a line.
"""

import asyncio
import contextlib
import json
import os
import select
import threading
from collections.abc import Callable, Mapping, Sequence
from queue import SimpleQueue
from typing import Any, Final

import msgspec

from fairway.api import policy

INTERVAL: Final = 0.1
REDACTED: Final = "[redacted]"
MAX_ARGUMENTS: Final = 8192
"""Bytes of arguments that are kept for one line; larger ones are left out as a whole, with their size."""
MAX_TEXT: Final = 1024
_SECRET_NAMES: Final = frozenset(
    {"authorization", "proxyauthorization", "cookie", "setcookie", "password", "passwd", "secret", "clientsecret",
     "token", "accesstoken", "refreshtoken", "idtoken", "apikey", "xapikey", "privatekey", "credentials"}
)  # fmt: skip
"""Never written, whatever the configuration says; compared without case, hyphens and underscores."""


class Entry(msgspec.Struct, tag_field="event", tag="request", omit_defaults=True, gc=False):
    """One request, as it ended; and as it is written, without what is empty. `session` is a digest at most: the id
    itself is a credential. What takes time is only put right when it is written.
    """

    time: float
    route: str
    method: str
    subject: str
    status: int
    ms: float
    name: str = ""
    issuer: str = ""
    code: int = 0
    trace: str = ""
    peer: str = ""
    session: str = ""
    detail: str = ""
    arguments: Any = msgspec.UNSET
    """As they came, in bytes."""
    outcome: str = ""


class _Gap(msgspec.Struct, tag_field="event", tag="gap"):
    """Lines that are missing here."""

    time: float
    dropped: int


class Redactor:
    """Takes secrets out of values before they are written."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        self._names = _SECRET_NAMES | {_folded(name) for name in names}

    def arguments(self, raw: bytes | msgspec.Raw) -> Any:
        if len(raw) > MAX_ARGUMENTS:
            return f"[{len(raw)} bytes]"
        try:
            return self._clean(msgspec.json.decode(raw))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return "[not JSON]"

    def headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        return {name: REDACTED if _folded(name) in self._names else value for name, value in headers.items()}

    def _clean(self, value: Any) -> Any:
        match value:
            case dict():
                return {
                    name: REDACTED if _folded(name) in self._names else self._clean(member)
                    for name, member in value.items()
                }
            case list():
                return [self._clean(item) for item in value]
        return value


def _folded(name: str) -> str:
    return name.casefold().replace("-", "").replace("_", "")


def kept(arguments: msgspec.Raw) -> bytes:
    """What waits to be written of a call's arguments: lines may wait by the thousand, and arguments be of any size."""
    size = len(arguments)
    return bytes(arguments) if size <= MAX_ARGUMENTS else b'"[%d bytes]"' % size


class Counts:
    """For metrics. Written by one thread each."""

    __slots__ = ("dropped", "failed", "written")

    def __init__(self) -> None:
        self.written = 0
        self.dropped = 0
        """Lines that found the queue full."""
        self.failed = 0
        """Lines that the file did not take."""


class AuditLog:
    """Appends entries on the loop's thread and writes them on its own. Run `run()` as a task; end with `aclose()`."""

    def __init__(self, config: policy.Audit, *, interval: float = INTERVAL) -> None:
        self.counts = Counts()
        self.wants_arguments = config.arguments
        self._queue = config.queue
        self._interval = interval
        self._waiting: list[Entry] = []
        self._gap = 0
        self._file = _File(config.file)
        self._redactor = Redactor(config.redact)
        self._batches: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._writing = 0
        self._written = asyncio.Event()

    def append(self, entry: Entry) -> None:
        """The hot call. Bytes of arguments must not be a view into a buffer that is used again."""
        if len(self._waiting) + self._writing >= self._queue:
            self.counts.dropped += 1
            self._gap += 1
            return
        self._waiting.append(entry)

    async def run(self) -> None:
        """Writes for ever."""
        while True:
            await asyncio.sleep(self._interval)
            self._hand_over()

    async def flush(self) -> None:
        """Waits until all that was appended before is written, or was found to be impossible to write."""
        while self._waiting or self._writing or self._gap:
            self._hand_over()
            await self._written.wait()

    async def aclose(self, *, within: float = 2.0) -> None:
        """Writes what waits, unless the file does not take it in time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self.flush()
        self.counts.dropped += len(self._waiting)
        self._waiting = []
        self._batches.put(None)

    def _hand_over(self) -> None:
        if self._writing or not (self._waiting or self._gap):
            return
        if self._thread is None:
            # a daemon: a pipe that nobody reads must not keep the process from ending
            self._thread = threading.Thread(target=self._work, name="audit", daemon=True)
            self._thread.start()
        loop = asyncio.get_running_loop()
        batch, self._waiting = self._waiting, []
        gap, self._gap = self._gap, 0
        self._writing = len(batch) + (1 if gap else 0)
        self._written.clear()

        def write() -> None:
            self._write(batch, gap)
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(self._done)

        self._batches.put(write)

    def _done(self) -> None:
        self._writing = 0
        self._written.set()

    # on the thread

    def _work(self) -> None:
        while (write := self._batches.get()) is not None:
            write()

    def _write(self, batch: Sequence[Entry], gap: int) -> None:
        lines: list[Entry | _Gap] = [self._finished(entry) for entry in batch]
        if gap:
            lines.append(_Gap(batch[-1].time if batch else 0.0, gap))
        try:
            self._file.write(_encoded(lines))
        except OSError:
            self.counts.failed += len(lines)
        else:
            self.counts.written += len(lines)

    def _finished(self, entry: Entry) -> Entry:
        entry.outcome = _outcome(entry)
        entry.ms = round(entry.ms, 3)
        if len(entry.method) > MAX_TEXT or len(entry.name) > MAX_TEXT or len(entry.detail) > MAX_TEXT:
            entry.method, entry.name = entry.method[:MAX_TEXT], entry.name[:MAX_TEXT]
            entry.detail = entry.detail[:MAX_TEXT]
        if entry.arguments is not msgspec.UNSET:
            entry.arguments = self._redactor.arguments(entry.arguments) if self.wants_arguments else msgspec.UNSET
        return entry


def _encoded(lines: Sequence[Entry | _Gap]) -> bytes:
    try:
        encoded = msgspec.json.Encoder().encode_lines(lines)
    except UnicodeEncodeError:  # half a character in a name: rare, so only then one by one
        return b"".join(json.dumps(_members(line)).encode("ascii") + b"\n" for line in lines)
    if not encoded.isascii():
        for character, escaped in _LINE_ENDS:
            encoded = encoded.replace(character, escaped)
    return encoded


def _members(line: Entry | _Gap) -> dict[str, Any]:
    defaults = dict(zip(reversed(line.__struct_fields__), reversed(line.__struct_defaults__), strict=False))
    return {
        name: value
        for name in line.__struct_fields__
        if (value := getattr(line, name)) is not msgspec.UNSET and (name not in defaults or value != defaults[name])
    } | {"event": line.__struct_config__.tag}


_LINE_ENDS: Final = tuple((c.encode(), f"\\u{ord(c):04x}".encode()) for c in "\x85\u2028\u2029")
"""JSON leaves them as they are, and many readers of logs take them for the end of a line."""


def _outcome(entry: Entry) -> str:
    if entry.status in (401, 403, 429):
        return "denied"
    return "failure" if entry.status >= 400 or entry.code else "success"


class _File:
    """A file that others may move away: a rotated log is noticed by its name leading elsewhere, and opened anew."""

    def __init__(self, path: str | None, *, stat: Callable[[str], os.stat_result] = os.stat) -> None:
        self._path = path
        self._stat = stat
        self._fd: int | None = 1 if path is None else None

    def write(self, data: bytes) -> None:
        """Everything or OSError."""
        fd = self._opened()
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(fd, view) :]
            except BlockingIOError:  # somebody made standard output non-blocking
                select.select((), (fd,), ())

    def _opened(self) -> int:
        if self._path is None:
            return 1
        if self._fd is not None:
            ours = os.fstat(self._fd)
            try:
                named = self._stat(self._path)
            except FileNotFoundError:
                named = None
            if named is not None and (named.st_dev, named.st_ino) == (ours.st_dev, ours.st_ino):
                return self._fd
            os.close(self._fd)
            self._fd = None
        self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
        return self._fd
